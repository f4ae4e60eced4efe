//! `visiond selftest` on the machine that runs the tests: missing hardware is skipped, and the report identifies no person.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use visiond_tests::{run, stderr, visiond};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// The rows of an area: check and outcome.
fn rows<'a>(report: &'a Value, area: &str) -> Vec<(&'a str, &'a str)> {
    let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["area"] == area);
    rows.map(|row| (row["check"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect()
}

#[test]
fn a_machine_without_gpu_and_camera_skips_them_and_ends_well() {
    let output = run(["selftest", "--json", "--load", "1s"]);
    let report = json(&output);
    assert_eq!(report["format"], 1);
    for row in report["rows"].as_array().unwrap() {
        assert!(["pass", "fail", "skipped", "info"].contains(&row["outcome"].as_str().unwrap()), "{row}");
        assert!(!row["seen"].as_str().unwrap().is_empty(), "a reason: {row}");
    }
    let failed = report["rows"].as_array().unwrap().iter().any(|row| row["outcome"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)));
    for area in ["board", "nodes", "cuda", "memory", "tensorrt", "cameras", "argus", "sandbox", "heat"] {
        assert!(!rows(&report, area).is_empty(), "{area} has a row");
    }
    if !Path::new("/dev/nvidia0").exists() && !Path::new("/dev/nvmap").exists() {
        assert_eq!(rows(&report, "cuda"), [("GPU", "skipped")]);
        assert_eq!(rows(&report, "memory"), [("memory matrix", "skipped")]);
        assert_eq!(rows(&report, "tensorrt"), [("TensorRT", "skipped")]);
    }
    if !Path::new("/dev/video0").exists() {
        assert_eq!(rows(&report, "cameras"), [("cameras", "skipped")]);
    }
}

#[test]
fn a_device_that_is_not_a_camera_fails() {
    let output = run(["selftest", "--only", "cameras", "--camera", "/dev/null", "--camera", "/dev/no-such-camera"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    for line in [
        "FAIL  cameras  /dev/null: opens",
        "FAIL  cameras  /dev/no-such-camera: opens",
        "0 passed, 2 failed, 0 skipped",
    ] {
        assert!(table.contains(line), "{line} is missing:\n{table}");
    }
    assert_eq!(run(["selftest", "--only", "kitchen"]).status.code(), Some(2));
}

#[test]
fn the_report_identifies_no_person_and_is_shown_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("board.tar.gz");
    // Two missing cameras, named after the host and an address.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let camera = format!("--camera=/dev/{host}");
    let output = Command::new(visiond())
        .args(["selftest", "--only", "board,nodes,cameras", &camera, "--camera=/dev/10.1.2.3", "--report"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.contains(&format!("/dev/{host}: opens")), "the terminal shows everything:\n{table}");
    assert!(stderr(&output).contains("look through it"), "{}", stderr(&output));

    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap()));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(entry.path().unwrap().display().to_string());
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        // A short name occurs inside other words, so it stays.
        assert!(
            host.len() < 4 || !words.contains(&host.as_str()),
            "{} names the host:\n{text}",
            names[names.len() - 1]
        );
        assert!(!text.contains("10.1.2.3"), "an address:\n{text}");
    }
    assert!(names.contains(&"visiond-selftest/report.json".to_owned()), "{names:?}");
    assert!(names.contains(&"visiond-selftest/table.txt".to_owned()), "{names:?}");

    let shown = run(["selftest", "--show", file.to_str().unwrap()]);
    assert_eq!(shown.status.code(), Some(1), "as the test itself");
    let shown = String::from_utf8(shown.stdout).unwrap();
    let name = if host.len() < 4 { &host } else { "<host>" };
    assert!(shown.contains(&format!("/dev/{name}: opens")) && shown.contains("/dev/<ip>: opens"), "{shown}");
    // For the run in the sandbox it is not redacted; otherwise the same row would have two names.
    let raw = json(&run(["selftest", "--inner=85000ms", "--only", "cameras", &camera]));
    assert_eq!(rows(&raw, "cameras"), [(format!("/dev/{host}: opens").as_str(), "fail")]);
    // It also tries calls that the unit refuses, which this shell allows.
    assert_eq!(rows(&raw, "sandbox"), [("system calls", "fail")]);
    let calls = raw["rows"].as_array().unwrap().iter().find(|row| row["check"] == "system calls").unwrap();
    assert!(
        calls["seen"].as_str().unwrap().starts_with("allowed: ") && calls["seen"].as_str().unwrap().contains("ptrace")
    );
    // A file that cannot be written is an error before anything is tested.
    for file in ["/no/such/folder/board.tar.gz", folder.path().to_str().unwrap()] {
        let output = run(["selftest", "--report", file, "--only", "board"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(6), 0), "{}", stderr(&output));
    }
}

#[test]
fn heat_has_a_row_for_each_zone_and_throttling_fails() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    put("sys/class/thermal/thermal_zone0/type", "tj-thermal\n");
    put("sys/class/thermal/thermal_zone0/temp", "52468\n");
    put("sys/class/thermal/cooling_device0/type", "gpu-throttle-alert\n");
    let heat = || {
        let mut command = Command::new(visiond());
        command.args(["selftest", "--json", "--only", "heat", "--load", "200ms"]);
        let output = command.env("VISIOND_SYSTEM_ROOT", root.path()).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), json(&output))
    };
    put("sys/class/thermal/cooling_device0/cur_state", "0\n");
    let (code, cool) = heat();
    let expected = [("load", "pass"), ("zone tj", "info"), ("throttling", "pass")];
    assert_eq!((code, rows(&cool, "heat")), (Some(0), expected.to_vec()), "{cool}");
    assert_eq!(cool["rows"][1]["figures"], serde_json::json!({"before_c": 52.468, "loaded_c": 52.468}));
    put("sys/class/thermal/cooling_device0/cur_state", "2\n");
    let (code, hot) = heat();
    assert_eq!((code, &hot["rows"][2]["seen"]), (Some(1), &Value::from("throttled: gpu")), "{hot}");
}

#[test]
fn a_jetson_has_rows_for_its_release_and_device_tree() {
    let board = visiond_tests::root().join("tests/boards/orin-nano-36.4.3");
    let mut command = Command::new(visiond());
    let output =
        command.args(["selftest", "--json", "--only", "board"]).env("VISIOND_SYSTEM_ROOT", board).output().unwrap();
    let report = json(&output);
    let seen = |check: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|row| row["check"] == check).unwrap()["seen"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (seen("L4T"), seen("JetPack"), seen("kernel")),
        ("36.4.3".into(), "6.2".into(), "5.15.148-tegra".into())
    );
    assert!(seen("board").contains("Orin Nano") && seen("device tree").contains("nvidia,tegra234"), "{report}");
}
