//! A report that was stored is read back, and what runs tests apart survives them.

#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;

use super::*;

#[test]
fn a_program_that_hangs_is_ended_and_its_last_words_are_told() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo ready; echo begun >&2; echo 'waiting for the GPU' >&2; exec sleep 1000"]);
    let mut heard = false;
    let error = supervise(&mut command, Duration::from_millis(300), |words| heard |= !words.is_empty());
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("sh did not end within 0 s; its last words: waiting for the GPU"), "{error}");
    assert!(heard);
}

#[test]
fn a_program_that_crashes_is_told_by_its_signal() {
    let mut command = Command::new("/bin/sh");
    let ended = supervise(command.args(["-c", "echo half; kill -SEGV $$"]), Duration::from_secs(60), |_| {}).unwrap();
    assert_eq!((ended.status.signal(), ended.output.as_slice()), (Some(libc::SIGSEGV), &b"half\n"[..]));
    let missing = supervise(&mut Command::new("/no/such/program"), Duration::from_secs(60), |_| {});
    let missing = missing.unwrap_err().to_string();
    assert!(missing.starts_with("cannot run program: No such file"), "{missing}");
}

#[test]
fn a_program_that_is_ended_takes_with_it_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"exec 3>"$0"; sleep 1000 & wait"#]).arg(&pipe);
    assert!(matches!(supervise(&mut command, Duration::from_secs(1), |_| {}), Err(SuperviseError::TimedOut { .. })));
    // At its end when nothing has it open for writing any more.
    while !matches!(reader.read(&mut [0]), Ok(0)) {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_program_that_leaves_one_behind_with_its_pipes_is_not_waited_for_longer() {
    let mut command = Command::new("/bin/sh");
    let ended = supervise(command.args(["-c", "sleep 1000 & echo $!"]), Duration::from_secs(60), |_| {}).unwrap();
    assert!(ended.status.success());
    let left: libc::pid_t = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
    // SAFETY: it touches no memory; the program sleeps yet, and nothing has waited for it.
    assert_eq!(unsafe { libc::kill(left, libc::SIGKILL) }, 0, "it was left alone");
}

#[test]
fn after_its_time_nothing_begins_and_every_row_says_so() {
    let args = Args {
        camera: vec!["/dev/null".parse().unwrap()],
        only: vec![Area::Cuda, Area::Memory, Area::Tensorrt, Area::Cameras],
        load: Duration::ZERO,
        report: None,
        json: false,
        show: None,
        in_process: false,
        inner: Some(Duration::ZERO),
        compile_kernels: false,
    };
    let report = test(&args, &mut Teller::new(true));
    let rows: Vec<_> = report.rows.iter().map(|row| (row.area, row.outcome, row.seen.as_str())).collect();
    let skipped = |area| (area, report::Outcome::Skipped, NO_TIME);
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
        archive::write(&packed, json, &report.table(), &Redaction::new(folder.path(), [])).unwrap();
        assert_eq!(archive::read(&packed).unwrap(), report);
    }
}
