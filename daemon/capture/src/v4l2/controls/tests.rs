use super::resolve::Assignment;
use super::*;

fn control(name: &str, kind: ControlKind, range: (i64, i64)) -> Control {
    Control {
        id: 1,
        name: name.to_owned(),
        title: name.to_owned(),
        kind,
        minimum: range.0,
        maximum: range.1,
        step: 1,
        default: range.0,
        items: Vec::new(),
        value: None,
        read_only: false,
        write_only: false,
        inactive: false,
        changes_others: false,
        volatile: false,
    }
}

fn menu(name: &str, kind: ControlKind, items: &[(i64, &str)]) -> Control {
    let items = items.iter().map(|&(index, text)| MenuItem { index, text: text.to_owned() }).collect();
    Control { items, ..control(name, kind, (0, 9)) }
}

/// The controls of a camera, one of every kind.
fn camera() -> Vec<Control> {
    vec![
        control("brightness", ControlKind::Integer, (-64, 64)),
        control("exposure_time_absolute", ControlKind::Integer, (1, 5000)),
        menu("auto_exposure", ControlKind::Menu, &[(1, "Manual Mode"), (3, "Aperture Priority Mode")]),
        control("white_balance_automatic", ControlKind::Boolean, (0, 1)),
        menu("link_frequency", ControlKind::IntegerMenu, &[(0, "1"), (1, "42")]),
        control("test_pattern_seed", ControlKind::Integer64, (i64::MIN, i64::MAX)),
        control("leds", ControlKind::Bitmask, (0, 0b101)),
        control("station", ControlKind::String, (2, 4)),
        control("do_white_balance", ControlKind::Button, (0, 0)),
        control("matrix", ControlKind::Compound, (0, 0)),
        Control { read_only: true, ..control("temperature", ControlKind::Integer, (0, 100)) },
    ]
}

fn wanted(pairs: &[(&str, &str)]) -> BTreeMap<String, ControlValue> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), ControlValue::parse(value))).collect()
}

fn assignments(pairs: &[(&str, &str)]) -> Vec<String> {
    let controls = camera();
    let (assignments, refusals) = resolve(&controls, &wanted(pairs));
    assert!(refusals.is_empty(), "{refusals:?}");
    assignments.iter().map(ToString::to_string).collect()
}

fn refusal(name: &str, value: &str) -> String {
    let controls = camera();
    let (assignments, mut refusals) = resolve(&controls, &wanted(&[(name, value)]));
    assert!(assignments.is_empty(), "{assignments:?}");
    refusals.remove(0).1
}

#[test]
fn modes_come_before_what_they_lock_and_buttons_after_all() {
    let all = assignments(&[
        ("brightness", "-3"),
        ("auto_exposure", "Manual Mode"),
        ("do_white_balance", "true"),
        ("exposure_time_absolute", "100"),
        ("white_balance_automatic", "false"),
    ]);
    let names = ["auto_exposure = 1 (Manual Mode)", "white_balance_automatic = false", "brightness = -3"];
    assert_eq!(all[..3], names);
    assert_eq!(all[3], "exposure_time_absolute = 100");
    assert!(all[4].starts_with("do_white_balance"));
}

#[test]
fn every_kind_takes_what_it_should() {
    assert_eq!(assignments(&[("auto_exposure", "3")]), ["auto_exposure = 3 (Aperture Priority Mode)"]);
    assert_eq!(assignments(&[("auto_exposure", "manual_mode")]), ["auto_exposure = 1 (Manual Mode)"]);
    assert_eq!(assignments(&[("link_frequency", "1")]), ["link_frequency = 1 (42)"]);
    assert_eq!(assignments(&[("link_frequency", "\"42\"")]), ["link_frequency = 1 (42)"]);
    assert_eq!(assignments(&[("leds", "0x4")]), ["leds = 0x4"]);
    assert_eq!(assignments(&[("test_pattern_seed", "-9000000000")]), ["test_pattern_seed = -9000000000"]);
    assert_eq!(assignments(&[("station", "abc")]), ["station = \"abc\""]);
    assert_eq!(assignments(&[("white_balance_automatic", "1")]), ["white_balance_automatic = true"]);
}

#[test]
fn names_of_drivers_and_of_older_kernels_are_known() {
    assert_eq!(control::spelled("Exposure Time, Absolute"), "exposure_time_absolute");
    assert_eq!(control::spelled(" (Pan) 2"), "pan_2");
    assert_eq!(assignments(&[("Exposure Time, Absolute", "7")]), ["exposure_time_absolute = 7"]);
    assert_eq!(assignments(&[("exposure_absolute", "7")]), ["exposure_time_absolute = 7"]);
    assert_eq!(assignments(&[("exposure_auto", "1")]), ["auto_exposure = 1 (Manual Mode)"]);
    let old = [control("exposure_absolute", ControlKind::Integer, (1, 9))];
    assert_eq!(resolve(&old, &wanted(&[("exposure_time_absolute", "7")])).0.len(), 1);
}

#[test]
fn what_is_wrong_is_answered_with_what_is_possible() {
    assert_eq!(refusal("brightnes", "1"), "the camera has no control `brightnes`: did you mean `brightness`?");
    assert_eq!(refusal("zoom", "1"), "the camera has no control `zoom`: `visiond probe` lists those it has");
    assert_eq!(refusal("brightness", "65"), "the control `brightness` does not accept 65: it accepts -64 to 64");
    assert_eq!(refusal("brightness", "true"), "the control `brightness` does not accept true: it accepts -64 to 64");
    assert_eq!(
        refusal("auto_exposure", "2"),
        "the control `auto_exposure` has no item 2: it has 1 (Manual Mode), 3 (Aperture Priority Mode)"
    );
    assert!(refusal("link_frequency", "42").ends_with("with quotes the one in them"));
    assert_eq!(refusal("leds", "2"), "the control `leds` does not accept 2: it accepts bits of 0x5");
    assert_eq!(refusal("station", "a"), "the control `station` does not accept \"a\": it accepts text of 2 to 4 bytes");
    assert_eq!(refusal("temperature", "7"), "the control `temperature` is read-only");
    assert!(refusal("matrix", "7").contains("cannot be set here"));
    assert!(refusal("do_white_balance", "false").contains("true, which presses it"));
    assert!(refusal("white_balance_automatic", "on").ends_with("does not accept \"on\": it accepts true or false"));
    let none = resolve(&[], &wanted(&[("gain", "1")])).1.remove(0).1;
    assert_eq!(none, "the camera has no control `gain`: it has none");
}

#[test]
fn a_rate_is_set_in_the_drivers_own_unit() {
    for (range, value) in [((2_000_000, 30_000_000), 29_970_000), ((2_000, 120_000), 29_970), ((2, 120), 30)] {
        let controls =
            [control("gain", ControlKind::Integer64, (1, 9)), control("frame_rate", ControlKind::Integer64, range)];
        assert_eq!(FrameRateControl::among(&controls).map(|rate| rate.value(29.97)), Some(value));
    }
    let controls = [control("frame_rate", ControlKind::Integer64, (2_000_000, 30_000_000))];
    let rate = FrameRateControl::among(&controls).map(|rate| rate.fps(rate.value(60.0)));
    assert_eq!(rate, Some(30.0), "the highest that the camera has");
    assert!(FrameRateControl::among(&camera()).is_none());
}

#[test]
fn a_sensor_without_the_override_starts_at_the_rate_of_its_mode() {
    let now = |overrides: Option<i64>| {
        let value = |number| Some(Value::Number(number));
        let rate = control("frame_rate", ControlKind::Integer64, (2_000_000, 30_000_000));
        let mut controls = vec![Control { value: value(12_000_000), ..rate }];
        let switch = control("override_enable", ControlKind::IntegerMenu, (0, 1));
        controls.extend(overrides.map(|number| Control { value: value(number), ..switch }));
        FrameRateControl::among(&controls).and_then(|rate| rate.now())
    };
    assert_eq!([now(Some(0)), now(Some(1)), now(None)], [Some(30.0), Some(12.0), Some(12.0)]);
}

#[test]
fn the_rate_comes_before_the_exposure_that_must_end_within_its_frames() {
    let of = |name| control(name, ControlKind::Integer64, (0, 9));
    let controls = [of("exposure"), of("frame_rate"), of("gain")];
    let (assignments, _) = resolve(&controls, &wanted(&[("exposure", "1"), ("gain", "1"), ("frame_rate", "1")]));
    assert_eq!(
        assignments.iter().map(|assignment| assignment.control.name.as_str()).collect::<Vec<_>>(),
        ["frame_rate", "exposure", "gain"]
    );
}

#[test]
fn a_number_has_a_neighbour_in_its_range() {
    let neighbour = |kind, range, value| {
        let control = Control { step: 2, ..control("gain", kind, range) };
        Assignment { control: &control, value: Value::Number(value) }.neighbour()
    };
    assert_eq!(neighbour(ControlKind::Integer64, (0, 10), 4), Some(Value::Number(2)));
    assert_eq!(neighbour(ControlKind::Integer, (4, 10), 4), Some(Value::Number(6)));
    assert_eq!(neighbour(ControlKind::Integer, (4, 4), 4), None);
    assert_eq!(neighbour(ControlKind::Boolean, (0, 1), 1), None);
}

#[test]
fn what_the_capture_unit_takes_is_known_by_its_number() {
    let of = |id| Control { id, ..control("x", ControlKind::Integer, (0, 1)) }.is_captures();
    // bypass_mode, override_enable, preferred_stride, sensor_mode, hdr_enable
    assert!([0x009a_2064, 0x009a_2065, 0x009a_206e, 0x009a_2008, 0x009a_2004].into_iter().all(of));
    // gain, exposure, frame_rate, group_hold, brightness
    assert!(![0x009a_2009, 0x009a_200a, 0x009a_200b, 0x009a_2003, 0x0098_0900].into_iter().any(of));
}

#[test]
fn what_a_control_takes_is_said_for_every_kind() {
    let takes = |name: &str| camera().into_iter().find(|control| control.name == name).unwrap().takes();
    for (name, words) in [
        ("brightness", "-64 to 64"),
        ("auto_exposure", "1 (Manual Mode), 3 (Aperture Priority Mode)"),
        ("white_balance_automatic", "true or false"),
        ("link_frequency", "0 (1), 1 (42)"),
        ("leds", "bits of 0x5"),
        ("station", "text of 2 to 4 bytes"),
        ("do_white_balance", "true, which presses it"),
        ("matrix", "an array or structure, which cannot be set here"),
    ] {
        assert_eq!(takes(name), words);
    }
    let stepped = Control { step: 4, ..control("gain", ControlKind::Integer64, (0, 16)) };
    assert_eq!(stepped.takes(), "0 to 16 in steps of 4");
    assert_eq!(control("name", ControlKind::String, (8, 8)).takes(), "text of 8 bytes");
}

#[test]
fn the_rate_that_a_sensor_starts_with_is_the_stored_one_or_its_modes() {
    let rate = |value: Option<i64>, switch: Option<i64>| {
        let value = value.map(Value::Number);
        let mut controls =
            vec![Control { value, ..control("frame_rate", ControlKind::Integer64, (2_000_000, 60_000_000)) }];
        let of_switch = |value| Control {
            value: Some(Value::Number(value)),
            ..control("override_enable", ControlKind::Menu, (0, 1))
        };
        controls.extend(switch.map(of_switch));
        FrameRateControl::among(&controls).unwrap().now()
    };
    assert_eq!(rate(Some(25_000_000), Some(1)), Some(25.0));
    assert_eq!(rate(Some(25_000_000), None), Some(25.0));
    assert_eq!(rate(Some(25_000_000), Some(0)), Some(60.0), "the stored value is not applied");
    assert_eq!([rate(Some(0), Some(1)), rate(None, Some(1))], [None, None]);
}
