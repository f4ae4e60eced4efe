//! `visiond capture` from sources other than cameras. tests/vm/suites/controls has real cameras.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Output;

use visiond_tests::{assert_no_panic, json_lines, model, run, stderr};

/// A configuration with a test pattern that ends after `frames` frames; a busy machine may lose some of them.
fn config(folder: &Path, frames: u32) -> String {
    let path = folder.join("visiond.toml");
    let model = model();
    let text = format!(
        "[[model]]\nname = \"n\"\npath = {model:?}\n[[camera]]\nname = \"door\"\n\
         source = {{ type = \"pattern\", width = 64, height = 48, fps = 100, max_frames = {frames} }}\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn frames_are_saved_as_whole_pictures_with_a_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let out_text = out.display().to_string();
    let output = run([
        "capture",
        "--config",
        &config(folder.path(), 10_000),
        "-n",
        "3",
        "--skip",
        "2",
        "-o",
        &out_text,
        "--json",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&output.stdout);
    let events: Vec<_> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!((events.first(), events.last()), (Some(&"opened"), Some(&"end")));
    let frames: Vec<_> = lines.iter().filter(|line| line["event"] == "frame").collect();
    assert_eq!(frames.len(), 3);
    for frame in frames {
        assert!(frame["sequence"].as_u64().unwrap() >= 2, "{frame}");
        let png = fs::read(frame["file"].as_str().unwrap()).unwrap();
        // The header's chunk starts with the size; the last chunk shows that the file is whole.
        assert_eq!((&png[1..4], &png[16..24]), (&b"PNG"[..], &[0, 0, 0, 64, 0, 0, 0, 48][..]));
        assert_eq!(&png[png.len() - 8..][..4], b"IEND");
    }
    // No partial image is left.
    assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
}

/// Runs `visiond capture -n 3` on a program's raw frames: 64x48, grey.
fn shots_of_program(folder: &Path, fd: u32, script: &str) -> Output {
    let (path, model) = (folder.join("visiond.toml"), model());
    let text = format!(
        "[[model]]\nname = \"n\"\npath = {model:?}\n[[camera]]\nname = \"program\"\n[camera.source]\ntype = \"command\"\n\
         command = [\"sh\", \"-c\", {script:?}]\ncontainer = \"raw\"\nformat = \"grey\"\nwidth = 64\nheight = 48\n\
         pace = \"fastest\"\nfd = {fd}\n"
    );
    fs::write(&path, text).unwrap();
    let out = folder.join("shots");
    run([
        OsStr::new("capture"),
        OsStr::new("--config"),
        path.as_os_str(),
        OsStr::new("-n"),
        OsStr::new("3"),
        OsStr::new("-o"),
        out.as_os_str(),
        OsStr::new("--json"),
    ])
}

/// The three images of such a capture.
fn pictures(output: &Output) -> Vec<Vec<u8>> {
    assert!(output.status.success(), "{}", stderr(output));
    let lines = json_lines(&output.stdout);
    let frames = lines.iter().filter(|line| line["event"] == "frame");
    frames.map(|frame| fs::read(frame["file"].as_str().unwrap()).unwrap()).collect()
}

#[test]
fn a_program_prints_to_standard_output_while_its_frames_go_to_descriptor_3() {
    // Numbers, so that frames that begin at another byte differ.
    let frame = "seq 1 2000 | head -c 3072";
    let folder = tempfile::tempdir().unwrap();
    let alone = pictures(&shots_of_program(folder.path(), 1, &format!("while {frame}; do :; done")));
    assert_eq!(alone.len(), 3);
    let prints = format!(
        "echo GST_ARGUS: Creating output stream; while {frame} >&3; do echo CONSUMER: Producer has connected; done"
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(pictures(&shots_of_program(folder.path(), 3, &prints)) == alone, "other pixels");
}

#[test]
fn text_before_raw_frames_is_an_error_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo GST_ARGUS: Creating output stream; while head -c 3072 /dev/zero; do :; done";
    let output = shots_of_program(folder.path(), 1, script);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("sh writes text where a frame should begin (\"GST_ARGUS: Creating output stream\")"),
        "{said}"
    );
    assert!(said.contains("set `fd = 3`") && said.contains("`fdsink fd=3`"), "{said}");
}

#[test]
fn opening_and_closing_costs_no_descriptor_and_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(["capture", "--config", &config(folder.path(), 10_000), "--cycles", "20", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = json_lines(&output.stdout);
    let of = |cycle: u64| lines.iter().find(|line| line["cycle"] == cycle).unwrap();
    assert_eq!((&of(1)["descriptors"], &of(1)["threads"]), (&of(20)["descriptors"], &of(20)["threads"]));
    assert!(of(0)["resident_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn each_failure_has_its_exit_status_and_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), 10);
    let out = folder.path().display().to_string();
    for (arguments, status, says) in [
        (&["--camera", "/dev/no-video"][..], 5, "is missing: plug the camera in"),
        (&["--camera", "video0"], 2, "write /dev/video0"),
        (&["--camera", "/dev/video0", "--format", "mpeg"], 2, "mpeg"),
        (&["--camera", "/dev/video0", "--control", "gain"], 2, "expected NAME=VALUE"),
        (&["--config", &config, "--camera", "gate"], 2, "has no camera gate; name one with --camera: door"),
        (&["--config", &config, "--fps", "5"], 2, "is not a V4L2 camera"),
        // A busy machine may lose some of the ten.
        (&["--config", &config, "-n", "11", "-o", &out], 5, " ended after "),
        (&["--config", &config, "-o", "/proc/pictures"], 6, "cannot create /proc/pictures"),
        (&["--config", "no-such.toml"], 3, "no-such.toml"),
        (&[], 2, "--camera"),
    ] {
        let output = run([&["capture"], arguments].concat());
        let said = stderr(&output);
        assert_no_panic(&said);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn probe_reports_that_a_camera_is_missing() {
    let output = run(["probe", "--camera", "1234:5678"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("1234:5678 is missing"), "{}", stderr(&output));
}
