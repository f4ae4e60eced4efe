#![allow(clippy::unwrap_used)]

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;
use crate::types::Config;

/// A file as people write it: comments everywhere, two cameras, tables of one camera apart from each other.
const FILE: &str = r##"# The gate.

[http]
listen = ["127.0.0.1:8790"]   # this machine

[[model]]
name = "objects"
path = "objects.onnx"

# The first camera.
[[camera]]
name = "gate"
[camera.source]
type = "pattern"
# The neighbour's window.
# It must stay black.
[[camera.privacy]]
polygon = [
    [0.0, 0.0],   # the corner
    [0.5, 0.0],
    [0.5, 0.5],
]
fill = "mosaic"   # for now

# The street.
[[camera.privacy]]
polygon = [[0, 900], [400, 900], [400, 1080], [0, 1080]]
frame_size = [1920, 1080]
# Nothing else.

[camera.track]   # needed
classes = ["person"]

[[camera.zone]]
# Where lorries stand.
name = "dock"
polygon = [[0.0, 0.5], [0.5, 0.5], [0.5, 1.0]]
settle = "0.2 s"   # as by default
[camera.zone.occupancy]
at_least = 3   # people
[[camera.zone.active]]
days = ["sat"]
[[camera.zone.active]]
days = ["sun"]

[[camera.zone]]
name = "all"
stopped.time = "10 s"
stopped.distance = 20.0

# The other one.
[[camera]]
name = "yard"
ignore = [{ polygon = [[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]] }]
source = { type = "pattern" }

[[sink]]
type = "stdout"
"##;

fn table(text: &str) -> Table {
    text.parse().unwrap()
}

/// Returns the shapes that `camera` has, each as it is.
fn unchanged(text: &str, camera: &str) -> Shapes<WantedShape> {
    let (shapes, _) = shapes_of(text, camera).unwrap();
    let as_it_is = |(was, table)| WantedShape { was: Some(was), table };
    shapes.into_iter().map(|(kind, list)| (kind, list.into_iter().enumerate().map(as_it_is).collect())).collect()
}

/// Returns the lines of `before` that are not in `after`, and those of `after` that are not in `before`, without empty ones.
fn difference(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let mut added: Vec<_> = after.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let mut removed = Vec::new();
    for line in before.lines().filter(|line| !line.is_empty()) {
        match added.iter().position(|other| other == line) {
            Some(place) => drop(added.remove(place)),
            None => removed.push(line.to_owned()),
        }
    }
    (removed, added)
}

/// Changes the shapes of the gate, and returns the lines that were removed and added.
fn changed(change: impl FnOnce(&mut Shapes<WantedShape>)) -> (Vec<String>, Vec<String>) {
    let mut wanted = unchanged(FILE, "gate");
    change(&mut wanted);
    let after = with_shapes(FILE, "gate", &wanted).unwrap();
    Config::parse(&after, Path::new("visiond.toml")).unwrap();
    difference(FILE, &after)
}

#[test]
fn shapes_that_stay_change_no_byte() {
    Config::parse(FILE, Path::new("visiond.toml")).unwrap();
    for camera in ["gate", "yard"] {
        let wanted = unchanged(FILE, camera);
        assert_eq!(with_shapes(FILE, camera, &wanted).unwrap(), FILE);
        assert_eq!(uncovered(FILE, camera, &wanted).unwrap(), [0; 0]);
    }
    // A client may write 1.0 as 1.
    let mut wanted = unchanged(FILE, "gate");
    wanted.get_mut(&ShapeKind::Zone).unwrap()[0].table["polygon"] =
        table("a = [[0, 0.5], [0.5, 0.5], [0.5, 1]]")["a"].clone();
    assert_eq!(with_shapes(FILE, "gate", &wanted).unwrap(), FILE);
}

#[test]
fn a_point_that_moves_changes_its_key_alone() {
    let (removed, added) = changed(|wanted| {
        let zone = &mut wanted.get_mut(&ShapeKind::Zone).unwrap()[0].table;
        zone["polygon"] = table("a = [[0.25, 0.5], [0.5, 0.5], [0.5, 1.0]]")["a"].clone();
        zone.insert("classes".to_owned(), table("a = ['a \"b\" \\', 'c']")["a"].clone());
    });
    assert_eq!(removed, ["polygon = [[0.0, 0.5], [0.5, 0.5], [0.5, 1.0]]"]);
    assert_eq!(added, ["polygon = [[0.25, 0.5], [0.5, 0.5], [0.5, 1.0]]", r#"classes = ['a "b" \', "c"]"#]);
    // Pixels become fractions, and a key that is gone takes its line along.
    let (removed, added) = changed(|wanted| {
        let masks = wanted.get_mut(&ShapeKind::Privacy).unwrap();
        masks[0].table.remove("fill");
        masks[1].table = table("polygon = [[0, 0.5], [0.25, 0.5], [0.25, 1]]");
    });
    assert_eq!(
        removed,
        [
            "fill = \"mosaic\"   # for now",
            "polygon = [[0, 900], [400, 900], [400, 1080], [0, 1080]]",
            "frame_size = [1920, 1080]"
        ]
    );
    assert_eq!(added, ["polygon = [[0, 0.5], [0.25, 0.5], [0.25, 1]]"]);
}

#[test]
fn tables_below_a_shape_and_dotted_keys_are_changed_as_well() {
    let (removed, added) = changed(|wanted| {
        let zones = wanted.get_mut(&ShapeKind::Zone).unwrap();
        zones[0].table["occupancy"] = table("at_least = 4").into();
        zones[0].table["active"] = Value::Array(vec![table("days = ['mon']").into()]);
        zones[1].table["stopped"] = table("time = '10 s'\ndistance = 5.5").into();
    });
    assert_eq!(
        removed,
        [
            "at_least = 3   # people",
            "[[camera.zone.active]]",
            "days = [\"sat\"]",
            "[[camera.zone.active]]",
            "days = [\"sun\"]",
            "stopped.time = \"10 s\"",
            "stopped.distance = 20.0"
        ]
    );
    assert_eq!(
        added,
        ["active = [{ days = [\"mon\"] }]", "at_least = 4   # people", "stopped = { distance = 5.5, time = \"10 s\" }"]
    );
}

#[test]
fn a_shape_that_is_removed_takes_its_own_comments_along() {
    let (removed, added) = changed(|wanted| drop(wanted.get_mut(&ShapeKind::Privacy).unwrap().remove(1)));
    let gone = [
        "# The street.",
        "[[camera.privacy]]",
        "polygon = [[0, 900], [400, 900], [400, 1080], [0, 1080]]",
        "frame_size = [1920, 1080]",
        "# Nothing else.",
    ];
    assert_eq!((removed, added), (gone.map(str::to_owned).to_vec(), vec![]));
    // Comments that are directly below other text may be about that.
    let (removed, _) = changed(|wanted| drop(wanted.get_mut(&ShapeKind::Privacy).unwrap().remove(0)));
    assert!(
        !removed.iter().any(|line| line.contains("neighbour"))
            && removed.contains(&"fill = \"mosaic\"   # for now".to_owned()),
        "{removed:?}"
    );
    let (removed, added) = changed(|wanted| drop(wanted.get_mut(&ShapeKind::Zone).unwrap().remove(0)));
    assert_eq!((removed.len(), added.len()), (11, 0), "{removed:?}");
    assert!(removed.contains(&"# Where lorries stand.".to_owned()));
    let (removed, added) = changed(Shapes::clear);
    assert!(removed.contains(&"name = \"all\"".to_owned()) && added.is_empty());
    assert!(
        !removed.contains(&"[camera.track]   # needed".to_owned()) && !removed.contains(&"# The other one.".to_owned())
    );
}

#[test]
fn a_new_shape_is_written_after_the_tables_of_its_camera() {
    let new = |text: &str| WantedShape { was: None, table: table(text) };
    for newline in ["\n", "\r\n"] {
        let file = FILE.replace('\n', newline);
        let mut wanted = unchanged(&file, "gate");
        wanted.get_mut(&ShapeKind::Line).unwrap().push(new("name = 'door'\npoints = [[0, 0.5], [1, 0.5]]"));
        let after = with_shapes(&file, "gate", &wanted).unwrap();
        let expected = "stopped.distance = 20.0\n\n[[camera.line]]\nname = \"door\"\npoints = [[0, 0.5], [1, 0.5]]\n\n# The other one.";
        assert!(after.contains(&expected.replace('\n', newline)), "{after}");
        assert_eq!(difference(&file, &after).0, [""; 0]);
        // At the end of the file, without a line break, and for the first zone of a camera with tracks for it.
        let short =
            file.split(newline).filter(|line| !line.contains("sink") && !line.contains("stdout")).collect::<Vec<_>>();
        let short = short.join(newline).trim_end().to_owned();
        let mut wanted = unchanged(&short, "yard");
        wanted.get_mut(&ShapeKind::Zone).unwrap().push(new("name = 'all'"));
        let after = with_shapes(&short, "yard", &wanted).unwrap();
        let expected = "\n\n[camera.track]\n\n[[camera.zone]]\nname = \"all\"\n".replace('\n', newline);
        assert_eq!(after, format!("{short}{expected}"));
    }
}

#[test]
fn privacy_masks_that_go_or_change_are_named() {
    let mut wanted = unchanged(FILE, "gate");
    wanted.get_mut(&ShapeKind::Privacy).unwrap()[1].table["frame_size"] = table("a = [1921, 1080]")["a"].clone();
    wanted.get_mut(&ShapeKind::Zone).unwrap().clear();
    assert_eq!(uncovered(FILE, "gate", &wanted).unwrap(), [1]);
    wanted.get_mut(&ShapeKind::Privacy).unwrap().remove(0);
    assert_eq!(uncovered(FILE, "gate", &wanted).unwrap(), [0, 1]);
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_remedy() {
    let text_of = |error: ShapeError| error.to_string();
    let refused = |text: &str, camera: &str, wanted: &Shapes<WantedShape>| {
        text_of(with_shapes(text, camera, wanted).unwrap_err())
    };
    let none = Shapes::new();
    let mut wanted = unchanged(FILE, "yard");
    wanted.get_mut(&ShapeKind::Ignore).unwrap().clear();
    assert!(refused(FILE, "yard", &wanted).starts_with("`ignore` of camera \"yard\" is a list in one value: write"));
    assert!(refused(FILE, "attic", &none).starts_with("the file has no camera \"attic\""));
    assert!(refused("", "attic", &none).starts_with("the file has no camera"));
    assert!(refused("a = 1\nb = \n", "gate", &none).starts_with("line 2 is invalid TOML: "));
    let inline = "camera = [{ name = \"gate\", privacy = [{ polygon = [] }] }]";
    assert!(refused(inline, "gate", &none).starts_with("cannot change the text of camera \"gate\" alone: paste"));
    let swapped = |places: [usize; 2]| {
        let mut wanted = unchanged(FILE, "gate");
        wanted
            .get_mut(&ShapeKind::Zone)
            .unwrap()
            .iter_mut()
            .zip(places)
            .for_each(|(zone, place)| zone.was = Some(place));
        wanted
    };
    for places in [[1, 0], [1, 1], [0, 2]] {
        assert!(refused(FILE, "gate", &swapped(places)).contains("must ascend, and be less than 2"));
    }
    // No key of a client becomes more than a key.
    for key in ["", "a = 1\n[http]\nb", "a.b", "\u{fc}"] {
        let shape = Table::from_iter([(key.to_owned(), Value::Integer(1))]);
        let mut wanted = unchanged(FILE, "gate");
        wanted.get_mut(&ShapeKind::Line).unwrap().push(WantedShape { was: None, table: shape.clone() });
        assert!(refused(FILE, "gate", &wanted).ends_with("cannot be a key: write letters, digits, - and _"));
    }
}

#[test]
fn an_error_is_found_at_its_shape() {
    let mut wanted = unchanged(FILE, "gate");
    let zones = wanted.get_mut(&ShapeKind::Zone).unwrap();
    zones.remove(0);
    zones.insert(0, WantedShape { was: None, table: table("name = 'all'") });
    zones.insert(0, WantedShape { was: None, table: table("name = 'dock'\ndwell = '0 s'") });
    let after = with_shapes(FILE, "gate", &wanted).unwrap();
    let errors = Config::parse(&after, Path::new("visiond.toml")).unwrap_err();
    let lines: Vec<_> = errors.findings.iter().filter_map(|finding| finding.line).collect();
    let found: Vec<_> = lines.iter().filter_map(|line| shape_at(&after, "gate", &wanted, *line)).collect();
    // The zone that stays also has the name "all".
    assert_eq!((lines.len(), found), (2, vec![(ShapeKind::Zone, 0), (ShapeKind::Zone, 1)]), "{errors}");
    assert_eq!(shape_at(&after, "gate", &wanted, 1), None);
    assert_eq!(shape_at(&after, "yard", &wanted, lines[0]), None);
}

/// Any shape of a kind, not necessarily a valid one.
fn shape() -> impl Strategy<Value = Table> {
    let points = prop::collection::vec([0.0..1.0, 0.0..1.0_f64], 0..5);
    (points, prop::option::of("[ -~]{0,8}"), prop::option::of(0..9_i64)).prop_map(|(points, text, number)| {
        let points = points.into_iter().map(|point| Value::Array(point.map(Value::Float).to_vec())).collect();
        let mut table = Table::from_iter([("polygon".to_owned(), Value::Array(points))]);
        table.extend(text.map(|text| ("name".to_owned(), Value::String(text))));
        table.extend(number.map(|number| {
            ("occupancy".to_owned(), Value::Table(Table::from_iter([("at_least".to_owned(), Value::Integer(number))])))
        }));
        table
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any change of the shapes gives a text with exactly these shapes, and leaves each line that is about none of them.
    #[test]
    fn any_change_changes_the_shapes_alone(
        kept in prop::array::uniform4(subsequence(vec![0, 1], 0..=2)),
        new in prop::array::uniform4(prop::collection::vec(shape(), 0..3)),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), shape()), 0..3),
    ) {
        let mut wanted = unchanged(FILE, "gate");
        for ((list, kept), new) in wanted.values_mut().zip(kept).zip(new) {
            list.retain(|shape| kept.contains(&shape.was.unwrap()));
            list.extend(new.into_iter().map(|table| WantedShape { was: None, table }));
        }
        for (kind, place, shape) in edits {
            let list = wanted.get_mut(kind.get(&ShapeKind::ALL)).unwrap();
            if !list.is_empty() {
                let place = place.index(list.len());
                list[place].table = shape;
            }
        }
        let after = with_shapes(FILE, "gate", &wanted).unwrap();
        let (removed, _) = difference(FILE, &after);
        for line in ["# The gate.", "listen = [\"127.0.0.1:8790\"]   # this machine", "# The first camera.", "[camera.track]   # needed", "# The other one.", "# It must stay black."] {
            prop_assert!(!removed.contains(&line.to_owned()), "{line}\n{after}");
        }
        // What was written is what a second client reads.
        let again = unchanged(&after, "gate");
        prop_assert_eq!(with_shapes(&after, "gate", &again).unwrap(), after);
    }
}
