//! Rollouts over groups of simulated devices, which decide by the same code as real ones.

#![allow(clippy::unwrap_used)]

use jiff::civil::{DateTime, datetime};
use proptest::prelude::*;
use visiond_bundle::rollout::Step;
use visiond_fleet::{
    Advance, BundleReport, Counts, Desired, EVERY_PLACE, Limits, Member, Order, Outcome, Pin, Progress, admit, advance,
    is_admitted, outcome, place,
};

const NOON: DateTime = datetime(2026, 11, 30, 12, 0, 0, 0);

fn report(current: Option<u64>) -> BundleReport {
    BundleReport {
        current,
        previous: None,
        step: Step::UpToDate,
        version: current,
        since_unix_s: 0,
        percent: None,
        reason: None,
    }
}

/// A rollout of version 2 that has not admitted anybody.
fn desired(waves: &[f64]) -> Desired {
    Desired {
        format: 1,
        version: 2,
        before: Some(1),
        is_rollback: false,
        rollout: "9f3c".to_owned(),
        first: Vec::new(),
        progress: Progress::Running,
        reason: None,
        admitted: 0,
        waves: waves.to_vec(),
        wave: 0,
        wave_since_unix_s: 0,
        succeeded_since_unix_s: None,
        since_unix_s: 0,
        by: "maria@office".to_owned(),
        limits: Limits { max_failed_percent: 5.0, min_succeeded_percent: 90.0, soak_s: 60, offline_after_s: 600 },
        windows: Vec::new(),
    }
}

/// A device of the simulation.
struct Device {
    name: String,
    report: BundleReport,
    seen_unix_s: u64,
    is_online: bool,
    /// Whether the new version fails on it.
    fails: bool,
}

fn group(devices: usize, is_online: impl Fn(usize) -> bool, fails: impl Fn(usize) -> bool) -> Vec<Device> {
    let device = |index| Device {
        name: format!("gate-{index}"),
        report: report(Some(1)),
        seen_unix_s: 0,
        is_online: is_online(index),
        fails: fails(index),
    };
    (0..devices).map(device).collect()
}

fn members(devices: &[Device]) -> Vec<Member<'_>> {
    devices
        .iter()
        .map(|it| Member { device: &it.name, report: &it.report, seen_unix_s: it.seen_unix_s, is_pinned: false })
        .collect()
}

/// Lets each online device do what it is told, one step of it.
fn act(devices: &mut [Device], desired: &Desired, now_unix_s: u64) {
    for device in devices.iter_mut().filter(|device| device.is_online) {
        device.seen_unix_s = now_unix_s;
        let own = [device.report.current, device.report.previous];
        // As the store on a real device: a version that failed once is never tried again.
        let has_failed = device.report.step == Step::Refused && device.report.version == Some(desired.version);
        match Order::of(&device.name, own, Some(desired), None, NOON) {
            Order::Use { version, wait: None } if !has_failed => {
                device.report.version = Some(version);
                device.report.step = match device.report.step {
                    Step::Fetching if device.fails => Step::Refused,
                    Step::Fetching => {
                        (device.report.previous, device.report.current) = (device.report.current, Some(version));
                        Step::Watching
                    }
                    _ => Step::Fetching,
                };
            }
            Order::GoBack { from, .. } => {
                device.report.current = device.report.previous.take();
                (device.report.step, device.report.version) = (Step::WentBack, Some(from));
            }
            Order::Stay { .. } if device.report.step == Step::Watching => device.report.step = Step::UpToDate,
            _ => {}
        }
    }
}

/// Runs a rollout for at most `minutes`; `check` sees it each minute.
fn run(
    devices: &mut [Device],
    mut desired: Desired,
    minutes: u64,
    mut check: impl FnMut(&Desired, &[Device]),
) -> (Desired, Counts) {
    desired.admitted = admit(&desired, &members(devices), 0);
    let mut counts = Counts::default();
    for minute in 1..=minutes {
        let now = minute * 60;
        act(devices, &desired, now);
        let Advance { counts: counted, next } = advance(&desired, &members(devices), now);
        counts = counted;
        check(&desired, devices);
        desired = next.unwrap_or(desired);
        if desired.progress != Progress::Running {
            break;
        }
    }
    (desired, counts)
}

#[test]
fn a_thousand_devices_get_a_version_wave_by_wave() {
    let mut devices = group(1000, |index| index % 20 != 0, |index| index % 33 == 1);
    let (done, counts) = run(&mut devices, desired(&[10.0, 25.0, 50.0, 100.0]), 60, |desired, devices| {
        let begun = devices.iter().filter(|device| device.report.version == Some(2)).count();
        assert!(begun as f64 <= (desired.share() * 10.0).ceil(), "{begun} in the wave of {} %", desired.share());
    });
    assert_eq!(done.progress, Progress::Done, "{:?}", done.reason);
    let failed = devices.iter().filter(|device| device.is_online && device.fails).count();
    assert_eq!((counts.failed, counts.offline, counts.busy, counts.waiting), (failed, 50, 0, 0), "{counts:?}");
    assert_eq!(counts.succeeded, 950 - failed);
    // Those that were away come later.
    for device in &mut devices {
        device.is_online = true;
    }
    for minute in 60..64 {
        act(&mut devices, &done, minute * 60);
    }
    assert!(devices.iter().all(|device| device.fails != (device.report.current == Some(2))));
}

#[test]
fn a_wave_soaks_from_the_time_when_enough_devices_have_succeeded() {
    let mut devices = group(10, |_| true, |_| false);
    let begin = Desired { limits: Limits { soak_s: 600, ..desired(&[]).limits }, ..desired(&[20.0, 100.0]) };
    let begin = Desired { admitted: admit(&begin, &members(&devices), 0), ..begin };
    // The devices need an hour for it.
    let now = 3600;
    assert_eq!(advance(&begin, &members(&devices), now).next, None);
    for _ in 0..4 {
        act(&mut devices, &begin, now);
    }
    let soaks = advance(&begin, &members(&devices), now).next.unwrap();
    assert_eq!((soaks.wave, soaks.succeeded_since_unix_s), (0, Some(now)));
    assert_eq!(advance(&soaks, &members(&devices), now + 599).next, None);
    // One of the two is busy again: the wave waits for it, and its soak goes on.
    let admitted = devices.iter().position(|device| device.report.current == Some(2)).unwrap();
    devices[admitted].report.step = Step::Watching;
    assert_eq!(advance(&soaks, &members(&devices), now + 600).next, None);
    devices[admitted].report.step = Step::UpToDate;
    let second = advance(&soaks, &members(&devices), now + 600).next.unwrap();
    assert_eq!((second.wave, second.wave_since_unix_s, second.succeeded_since_unix_s), (1, now + 600, None));
    // A device that fails while the wave soaks stops it.
    devices[admitted].report.step = Step::WentBack;
    let stopped = advance(&soaks, &members(&devices), now + 600).next.unwrap();
    assert_eq!(stopped.progress, Progress::Stopped);
}

#[test]
fn named_devices_come_before_all_others() {
    let mut devices = group(40, |index| index != 7, |_| false);
    let first = vec!["gate-7".to_owned(), "gate-9".to_owned(), "gate-30".to_owned()];
    let begin = Desired { first: first.clone(), ..desired(&[5.0, 25.0, 100.0]) };
    let admitted = |desired: &Desired, devices: &[Device]| {
        let admitted = admit(desired, &members(devices), 0);
        let desired = Desired { admitted, ..desired.clone() };
        devices.iter().map(|it| it.name.clone()).filter(|name| is_admitted(name, &desired)).collect::<Vec<_>>()
    };
    // More than the 2 of the share, and nobody else.
    assert_eq!(admitted(&begin, &devices), first);
    let second = admitted(&Desired { wave: 1, ..begin.clone() }, &devices);
    assert!(second.len() == 10 && first.iter().all(|first| second.contains(first)), "{second:?}");
    let (done, counts) = run(&mut devices, begin.clone(), 60, |desired, devices| {
        let begun = devices.iter().filter(|device| device.report.version == Some(2)).count();
        assert!(desired.wave > 0 || begun <= 2, "{begun}");
    });
    assert_eq!((done.progress, counts.succeeded, counts.offline), (Progress::Done, 39, 1), "{counts:?}");
    let many = Desired { first: (0..51).map(|index| format!("gate-{index}")).collect(), ..begin };
    assert!(Desired::parse("k", &many.to_json()).is_err());
}

#[test]
fn a_bad_version_stops_in_its_first_wave() {
    let mut devices = group(1000, |_| true, |_| true);
    let (stopped, counts) = run(&mut devices, desired(&[5.0, 100.0]), 60, |_, _| {});
    assert_eq!((stopped.progress, stopped.wave, counts.failed), (Progress::Stopped, 0, 50));
    assert_eq!(stopped.reason.as_deref(), Some("50 of 50 devices failed, more than 5 %"));
    // Nobody starts after that.
    for minute in 60..64 {
        act(&mut devices, &stopped, minute * 60);
    }
    assert_eq!(devices.iter().filter(|device| device.report.version == Some(2)).count(), 50);
}

#[test]
fn a_group_goes_back_to_the_version_before() {
    let mut devices = group(10, |_| true, |_| false);
    let (done, _) = run(&mut devices, desired(&[50.0, 100.0]), 60, |_, _| {});
    assert!(devices.iter().all(|device| device.report.current == Some(2)), "{done:?}");
    devices[3].report.previous = None;
    let back = Desired { version: 1, before: Some(2), is_rollback: true, rollout: "b".to_owned(), ..desired(&[100.0]) };
    let (back, counts) = run(&mut devices, back, 3, |_, _| {});
    assert_eq!(counts.succeeded, 9, "{counts:?}");
    assert!(devices.iter().all(|device| (device.report.current == Some(1)) == (device.name != "gate-3")));
    let order = Order::of("gate-3", [Some(2), None], Some(&back), None, NOON);
    let Order::Impossible { version: 1, reason } = order else { panic!("{order:?}") };
    assert!(reason.contains("no other here to go back to"), "{reason}");
    // What a device installed meanwhile is newer; only a rollback takes it away.
    let forward = Desired { is_rollback: false, ..back };
    assert_eq!(Order::of("gate-3", [Some(3), Some(1)], Some(&forward), None, NOON), Order::Stay { newest: Some(1) });
}

#[test]
fn a_device_waits_for_its_wave_its_window_and_a_pause() {
    let all = Desired { admitted: EVERY_PLACE, ..desired(&[100.0]) };
    let order = |desired: &Desired, now| Order::of("gate-1", [Some(1), None], Some(desired), None, now);
    assert_eq!(order(&all, NOON), Order::Use { version: 2, wait: None });
    let first = Desired { admitted: 0, ..desired(&[5.0, 100.0]) };
    let Order::Wait { version: 2, reason } = order(&first, NOON) else { panic!() };
    assert!(reason.contains("not in the first 5 % of its group"), "{reason}");
    for (progress, words) in
        [(Progress::Paused, "the rollout is paused: lunch"), (Progress::Stopped, "the rollout was stopped: lunch")]
    {
        let paused = Desired { progress, reason: Some("lunch".to_owned()), ..all.clone() };
        assert_eq!(order(&paused, NOON), Order::Use { version: 2, wait: Some(words.to_owned()) });
        let paused = Desired { admitted: 0, ..paused };
        assert_eq!(order(&paused, NOON), Order::Wait { version: 2, reason: words.to_owned() });
    }
    let night = Desired { windows: vec!["23:00-05:00".to_owned(), "never".to_owned()], ..all };
    let Order::Use { wait: Some(reason), .. } = order(&night, NOON) else { panic!() };
    assert!(reason.contains("outside of its maintenance window (23:00-05:00; never)"), "{reason}");
    assert_eq!(order(&night, datetime(2026, 11, 30, 23, 30, 0, 0)), Order::Use { version: 2, wait: None });
    assert_eq!(Order::of("gate-1", [Some(1), None], None, None, NOON), Order::Stay { newest: None });
}

#[test]
fn a_pin_counts_more_than_the_group() {
    let all = Desired { admitted: EVERY_PLACE, ..desired(&[100.0]) };
    let pin = |version| Pin {
        format: 1,
        version,
        by: "maria@office".to_owned(),
        since_unix_s: 0,
        reason: Some("a test".to_owned()),
    };
    let order =
        |current, previous, version| Order::of("gate-1", [current, previous], Some(&all), Some(&pin(version)), NOON);
    assert_eq!(order(Some(1), None, None), Order::Stay { newest: Some(2) }, "it keeps what it has");
    assert_eq!(order(Some(1), None, Some(1)), Order::Stay { newest: Some(2) });
    assert_eq!(order(Some(1), None, Some(3)), Order::Use { version: 3, wait: None });
    let reason = "maria@office pinned this device to an older version: a test".to_owned();
    assert_eq!(order(Some(2), Some(1), Some(1)), Order::GoBack { from: 2, reason });
    assert!(matches!(order(Some(3), Some(2), Some(1)), Order::Impossible { version: 1, .. }));
    let report = report(Some(1));
    let pinned = Member { device: "gate-1", report: &report, seen_unix_s: 0, is_pinned: true };
    assert_eq!(outcome(&all, &pinned, 0), Outcome::Apart);
}

#[test]
fn places_are_those_that_other_programs_compute() {
    // python3 -c 'import hashlib; print(int.from_bytes(hashlib.sha256(b"9f3c/gate-1").digest()[:4], "big"))'
    assert_eq!(place("gate-1", "9f3c"), 2_283_971_668);
}

#[test]
fn a_record_that_is_not_ours_is_refused_with_its_key() {
    let good = desired(&[5.0, 100.0]);
    assert_eq!(Desired::parse("k", &good.to_json()).unwrap(), good);
    for (change, words) in [
        (r#"{"format":2}"#, "k has format 2, and this visiond reads format 1: update visiond"),
        ("nonsense", "k is not a record of visiond"),
        (r#"{"format":1}"#, "missing field"),
    ] {
        let said = Desired::parse("k", change.as_bytes()).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    for bad in [
        Desired { waves: vec![], ..good.clone() },
        Desired { waves: vec![10.0, 5.0], ..good.clone() },
        Desired { waves: vec![0.0, 100.0], ..good.clone() },
        Desired { waves: vec![101.0], ..good.clone() },
        Desired { wave: 2, ..good.clone() },
        Desired { version: 0, ..good.clone() },
        Desired { admitted: EVERY_PLACE + 1, ..good.clone() },
    ] {
        assert!(Desired::parse("k", &bad.to_json()).is_err(), "{bad:?}");
    }
    assert!(Desired::parse("k", &vec![b' '; 100_000]).unwrap_err().to_string().contains("100000 bytes"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever devices do, a wave never has more than its share, and it ends: done, stopped, or waiting for devices.
    #[test]
    fn a_wave_has_its_share_at_most(
        devices in 1_usize..300, online in 0.5..1.0, failing in 0.0..0.2, waves in prop::collection::btree_set(1_u32..100, 0..4), seed in any::<u32>(),
    ) {
        let draw = |index: usize, salt: &str| f64::from(place(&format!("{index}"), &format!("{salt}{seed}"))) / 4_294_967_296.0;
        let mut fleet = group(devices, |index| draw(index, "on") < online, |index| draw(index, "bad") < failing);
        let waves: Vec<f64> = waves.into_iter().map(f64::from).chain([100.0]).collect();
        let begin = Desired { rollout: format!("{seed}"), ..desired(&waves) };
        let first_online = {
            let mut places: Vec<_> = fleet.iter().map(|it| (place(&it.name, &begin.rollout), it.is_online)).collect();
            places.sort_unstable();
            places.iter().position(|it| it.1).map_or(0, |at| at + 1)
        };
        let mut admitted = 0;
        let (end, counts) = run(&mut fleet, begin, 600, |desired, fleet| {
            let begun = fleet.iter().filter(|device| device.report.version == Some(2)).count();
            let most = (fleet.len() as f64 * desired.share() / 100.0).ceil() as usize;
            assert!(begun <= most.max(first_online), "{begun} of {most}");
            assert!(desired.admitted >= admitted, "nobody is sent away");
            admitted = desired.admitted;
            for device in fleet.iter().filter(|device| device.report.version == Some(2)) {
                assert!(is_admitted(&device.name, desired));
            }
        });
        let online = fleet.iter().filter(|device| device.is_online).count();
        match end.progress {
            Progress::Done => prop_assert!(counts.succeeded + counts.failed == online),
            Progress::Stopped => prop_assert!(counts.failed_percent() > 5.0),
            // Fewer than 90 % succeed, and not enough fail among those that are admitted: the offline count as admitted.
            _ => prop_assert!(counts.succeeded_percent() < 90.0 || counts.succeeded == 0),
        }
    }
}
