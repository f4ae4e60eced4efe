//! A report that was stored is read back, and what runs tests apart survives them.

#![allow(clippy::unwrap_used)]

use std::os::unix::process::ExitStatusExt;

use super::*;

#[test]
fn a_program_that_hangs_is_ended_and_its_last_words_are_told() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo ready; echo begun >&2; echo 'waiting for the GPU' >&2; exec sleep 1000"]);
    let mut heard = false;
    let error = supervise(&mut command, Duration::from_millis(300), |words| heard |= !words.is_empty()).unwrap_err();
    assert!(error.starts_with("sh did not end within 0 s; its last words: waiting for the GPU"), "{error}");
    assert!(heard);
}

#[test]
fn a_program_that_crashes_is_told_by_its_signal() {
    let mut command = Command::new("/bin/sh");
    let ended = supervise(command.args(["-c", "echo half; kill -SEGV $$"]), Duration::from_secs(60), |_| {}).unwrap();
    assert_eq!((ended.status.signal(), ended.output.as_slice()), (Some(libc::SIGSEGV), &b"half\n"[..]));
    let missing = supervise(&mut Command::new("/no/such/program"), Duration::from_secs(60), |_| {}).unwrap_err();
    assert!(missing.starts_with("cannot run program: No such file"), "{missing}");
}

/// A run of visiond 0.1.0 on a virtual machine without GPU and camera, `selftest --json --load 1s --camera /dev/null`.
const PC: (&str, &str) = (include_str!("fixtures/pc.json"), include_str!("fixtures/pc.txt"));
/// One on a machine with an NVIDIA H200 and TensorRT for RTX 1.6.1; its paths and the kernel's name are shortened.
const H200: (&str, &str) = (include_str!("fixtures/h200.json"), include_str!("fixtures/h200.txt"));

#[test]
fn a_stored_report_is_read_back_whole_and_shows_the_same_table() {
    for ((json, table), counts, status) in [(PC, [0, 1, 15], Exit::Failure), (H200, [27, 0, 10], Exit::Success)] {
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
