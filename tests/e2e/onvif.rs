//! `visiond probe --discover` against `tests/onvif/devices.py`, in a separate network namespace.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use visiond_tests::{root, run, skip, stderr, visiond};

const NAMESPACE: [&str; 3] = ["--user", "--map-root-user", "--net"];

/// Runs `visiond probe` with `args` in a network with `devices`. Returns its output, and the requests that the devices got;
/// `None` if users may not create namespaces.
fn probe_among(devices: &[&str], args: &[&str]) -> Option<(Output, String)> {
    let may = Command::new("unshare").args(NAMESPACE).args(["ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        skip("this user may not make a network namespace (unshare --user --net), or `ip` is missing");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let named = devices.iter().enumerate().map(|(n, kind)| format!("127.0.0.{}={kind}", n + 11));
    let mut command = Command::new("unshare");
    command.args(NAMESPACE).arg("python3").arg(root().join("tests/onvif/devices.py"));
    command.arg("--log").arg(&log).args(named).arg("--").arg(visiond()).arg("probe").args(args);
    let output = command.output().unwrap();
    let heard = fs::read_to_string(&log).unwrap_or_default();
    assert!(heard.starts_with("ready\n"), "{}", stderr(&output));
    Some((output, heard))
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn camera<'r>(report: &'r Value, name: &str) -> &'r Value {
    let cameras = report["cameras"].as_array().unwrap();
    cameras.iter().find(|camera| camera["name"] == name).unwrap_or_else(|| panic!("{name} of {report}"))
}

#[test]
fn cameras_of_the_network_are_found_with_their_streams_and_no_password() {
    let devices = ["good", "old", "login", "fault", "terminal", "printer"];
    let Some((output, heard)) = probe_among(&devices, &["--discover", "--json", "--wait", "3s"]) else { return };
    let found = report(&output);
    assert_eq!(found["cameras"].as_array().unwrap().len(), 5, "{found}");
    assert_eq!(found["networks"], json!(["lo (127.0.0.1)"]));
    let good = camera(&found, "The good camera");
    assert_eq!((&good["address"], &good["model"]), (&json!("127.0.0.11"), &json!("M-1")));
    let main = json!({
        "name": "Main", "codec": "H265", "width": 2560, "height": 1440, "fps": 12.5,
        "url": "rtsp://***@127.0.0.11:554/main?token=***",
    });
    let sub = json!({
        "name": "Sub", "codec": "H264", "width": 640, "height": 360, "fps": 25.0, "url": "rtsp://127.0.0.11:554/sub",
    });
    assert_eq!((&good["profiles"][0], &good["profiles"][1]), (&main, &sub));
    assert_eq!(camera(&found, "The old camera")["profiles"][0]["url"], "rtsp://127.0.0.12:554/p0");
    for locked in ["The login camera", "The fault camera"] {
        assert_eq!(camera(&found, locked)["requires_login"], true, "{found}");
    }
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    for hidden in ["swordfish", "sesame", "\u{9b}", "\u{202e}"] {
        assert!(!out.contains(hidden), "{hidden:?} in {out}");
    }
    assert!(!heard.contains("authorized"), "{heard}");
    // The proposed configuration is valid.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("visiond.toml");
    let model = root().join("tests/vm/tiny.onnx");
    let tomls = found["cameras"].as_array().unwrap().iter().filter_map(|camera| camera["toml"].as_str());
    let tomls: Vec<_> = tomls.collect();
    assert_eq!(tomls.len(), 2, "{found}");
    fs::write(&file, format!("[[model]]\nname = \"m\"\npath = \"{}\"\n{}", model.display(), tomls.concat())).unwrap();
    let checked = run(["check", &file.display().to_string()]);
    assert!(checked.status.success(), "{}", stderr(&checked));
}

#[test]
fn hostile_devices_lead_nowhere_and_hide_no_camera() {
    let devices = [
        "flood",
        "stranger",
        "elsewhere",
        "media-elsewhere",
        "redirect",
        "silent",
        "drip",
        "endless",
        "huge",
        "head",
        "bomb",
        "nested",
        "profiles",
        "noise",
        "large",
        "broken",
        "good",
    ];
    let Some((output, heard)) = probe_among(&devices, &["--discover", "--json", "--wait", "3s"]) else { return };
    let found = report(&output);
    for (name, words) in [
        ("elsewhere", "names another host"),
        ("media-elsewhere", "names another host, 127.0.0.99"),
        ("redirect", "HTTP status 302"),
        ("silent", "no answer"),
        ("drip", "no answer"),
        ("endless", "more than 524288 bytes"),
        ("huge", "more than 524288 bytes"),
        ("head", "breaks HTTP"),
        ("bomb", "DTD"),
        ("nested", "namespaces"),
        ("noise", "not text"),
        ("broken", "Optional action not implemented"),
    ] {
        let camera = camera(&found, &format!("The {name} camera"));
        assert!(camera["error"].as_str().is_some_and(|error| error.contains(words)), "{camera}");
        assert_eq!(camera["profiles"], json!([]), "{camera}");
    }
    assert_eq!(camera(&found, "The profiles camera")["profiles"].as_array().unwrap().len(), 16);
    assert_eq!(camera(&found, "The good camera")["profiles"].as_array().unwrap().len(), 3);
    let of_flood = found["cameras"].as_array().unwrap().iter().filter(|camera| camera["name"] == "The flood camera");
    assert_eq!((of_flood.count(), &found["too_many"]), (4, &json!(true)));
    assert!(found["cameras"].as_array().unwrap().iter().all(|camera| camera["name"] != "The stranger camera"));
    // No other host was asked, and nothing was read to its end.
    assert!(!heard.contains("trapped") && !heard.contains("flooded"), "{heard}");
}

#[test]
fn nothing_is_sent_unless_it_is_asked_for() {
    let Some((output, heard)) = probe_among(&["good"], &["--json"]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(heard, "ready\n");
    assert_eq!(run(["probe", "--wait", "3s"]).status.code(), Some(2));
}

#[test]
fn without_a_network_it_says_so() {
    let mut command = Command::new("unshare");
    let output = command.args(NAMESPACE).arg(visiond()).args(["probe", "--discover"]).output();
    let Some(output) = output.ok().filter(|output| !stderr(output).contains("unshare:")) else {
        skip("this user may not make a network namespace (unshare --user --net)");
        return;
    };
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("no network interface is up"), "{}", stderr(&output));
}
