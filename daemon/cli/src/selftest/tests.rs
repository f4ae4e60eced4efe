//! A stored report is read back, and no test begins after the time limit.

#![allow(clippy::unwrap_used)]

use super::checks::Outcome;
use super::*;

/// A test of these areas whose time is over.
fn no_time(only: Vec<Area>) -> Args {
    Args {
        camera: Vec::new(),
        only,
        load: Duration::ZERO,
        report: None,
        json: false,
        show: None,
        in_process: false,
        inner: Some(Duration::ZERO),
        compile_kernels: false,
    }
}

#[test]
fn after_the_time_limit_nothing_begins_and_every_row_says_so() {
    let args = Args {
        camera: vec!["/dev/null".parse().unwrap()],
        ..no_time(vec![Area::Cuda, Area::Memory, Area::Tensorrt, Area::Cameras])
    };
    let report = test(&args);
    let rows: Vec<_> = report.rows.iter().map(|row| (row.area, row.outcome, row.seen.as_str())).collect();
    let skipped = |area| (area, Outcome::Skipped, NO_TIME);
    assert_eq!(rows, args.only.iter().copied().map(skipped).collect::<Vec<_>>());
}

#[test]
fn with_a_minute_of_load_all_limits_together_are_less_than_five_minutes() {
    assert!(TIME + Duration::from_secs(60) + HEAT_TIME < Duration::from_secs(300));
}

/// A run of visiond 0.1.0 on a virtual machine without GPU and camera, `selftest --json --load 1s --camera /dev/null`.
const PC: (&str, &str) = (include_str!("fixtures/pc.json"), include_str!("fixtures/pc.txt"));
/// One on a machine with an NVIDIA H200 and TensorRT for RTX 1.6.1; its paths and the kernel's name are shortened.
const H200: (&str, &str) = (include_str!("fixtures/h200.json"), include_str!("fixtures/h200.txt"));

#[test]
fn a_stored_report_is_read_back_whole_and_shows_the_same_table() {
    for ((json, table), counts, status) in [(PC, [0, 1, 15], Exit::Failure), (H200, [28, 0, 10], Exit::Success)] {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("report.json");
        std::fs::write(&plain, json).unwrap();
        let report = archive::read(&plain).unwrap();
        assert_eq!(report.table(), table);
        // No field of it is lost.
        assert_eq!(serde_json::to_value(&report).unwrap(), serde_json::from_str::<serde_json::Value>(json).unwrap());
        assert_eq!((report.counts(), exit(&report)), (counts, status));

        let packed = folder.path().join("report.tar.gz");
        archive::write(&packed, &report, &Redaction::new(folder.path(), [])).unwrap();
        assert_eq!(archive::read(&packed).unwrap(), report);
    }
}

#[test]
fn the_sandbox_alone_repeats_all_that_it_can_and_with_others_only_those() {
    for (only, expected) in [
        (vec![Area::Sandbox], [&sandbox::AREAS[..], &[Area::Sandbox]].concat()),
        (vec![Area::Argus, Area::Sandbox], vec![Area::Argus, Area::Sandbox]),
        (vec![Area::Argus], vec![Area::Argus]),
    ] {
        let report = test(&no_time(only));
        let mut areas: Vec<_> = report.rows.iter().map(|row| row.area).collect();
        areas.dedup();
        assert_eq!(areas, expected);
    }
}

#[test]
fn a_failed_check_fails_the_whole() {
    let mut test = checks::AreaTest::new(Area::Board, true, Instant::now());
    for (outcome, expected) in [
        (Outcome::Pass, Exit::Success),
        (Outcome::Skipped, Exit::Success),
        (Outcome::Info, Exit::Success),
        (Outcome::Fail, Exit::Failure),
    ] {
        test.info("a check", "seen");
        test.rows.last_mut().unwrap().outcome = outcome;
        assert_eq!(exit(&Report { rows: test.rows.clone(), ..Report::default() }), expected, "{outcome:?}");
    }
}
