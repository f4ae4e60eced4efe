//! Bundles of settings: from a fragment of TOML to a daemon that has it in force, and back; what a fragment may not say is refused
//! where it is made and where it is used.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use visiond_tests::{Daemon, run, stderr};

use crate::bundles::{Desk, refused};

const CONFIG: i32 = 3;

/// A device that is a pattern and a tiny network, without a bundle for that.
const FILE: &str = r#"
[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[bundles]
directory = "STORE"
settings = "north"

[[model]]
name = "tiny"
path = "MODEL"

[[camera]]
name = "gate"
source = { type = "pattern", width = 128, height = 64, fps = 50.0 }
track = {}

[[camera.privacy]]
polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1], [0.0, 0.1]]

[[camera.line]]
name = "door"
points = [[0.2, 0.6], [0.8, 0.6]]

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

impl Desk {
    fn file(&self) -> String {
        let file = FILE.replace("STORE", self.path("models").to_str().unwrap());
        file.replace("MODEL", self.path("tiny.onnx").to_str().unwrap())
    }

    fn daemon_with_settings(&self) -> Daemon {
        let mut daemon = Daemon::start(&self.file());
        daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 10);
        daemon
    }

    fn write_settings(&self, text: &str) {
        fs::write(self.path("north.toml"), text).unwrap();
    }

    /// Makes and signs a bundle of these settings.
    fn make_settings(&self, version: &str, text: &str, more: &[&str]) {
        self.write_settings(text);
        let out = format!("DIR/north-{version}.visiond");
        let args = ["make", "--settings", "DIR/north.toml", "--name", "north", "--version", version, "-o", &out];
        self.succeed(&[&args, more].concat());
        self.succeed(&["sign", &out, "--key", "DIR/team.key"]);
    }

    fn install_settings(&self, version: &str, more: &[&str]) -> Output {
        let bundle = format!("DIR/north-{version}.visiond");
        self.bundle(&[&["install", &bundle, "--key", "DIR/team.pub", "--store", "DIR/models"], more].concat())
    }
}

fn config_of(daemon: &Daemon) -> String {
    daemon.path("visiond.toml").to_str().unwrap().to_owned()
}

fn reload(daemon: &Daemon) -> Output {
    run(["reload", &config_of(daemon)])
}

fn status(daemon: &Daemon) -> Value {
    let output = Command::new("curl")
        .args(["-sS", "--unix-socket"])
        .arg(daemon.path("http.sock"))
        .arg("http://visiond/api/v1/status")
        .output();
    serde_json::from_slice(&output.unwrap().stdout).unwrap()
}

/// The least score of the last messages' detections.
fn least_score(daemon: &Daemon, from: usize) -> Option<f64> {
    let messages = daemon.messages("out.jsonl").split_off(from);
    let scores = messages.iter().flat_map(|message| message["detections"].as_array().cloned().unwrap_or_default());
    scores.map(|detection| detection["score"].as_f64().unwrap()).reduce(f64::min)
}

#[test]
fn a_daemon_has_the_settings_of_a_new_version_after_a_reload_and_the_old_ones_after_a_rollback() {
    let desk = Desk::new();
    // Before the first version, the file alone is in force.
    let mut daemon = desk.daemon_with_settings();
    let first = least_score(&daemon, 0).unwrap();
    desk.make_settings("1", "[[camera]]\nname = \"gate\"\nscore_threshold = 0.999\n", &[]);
    let config = config_of(&daemon);
    let installed = desk.install_settings("1", &["--config", &config]);
    assert!(installed.status.success(), "{}", stderr(&installed));
    assert!(stderr(&installed).contains("the settings north 1 are installed: `sudo visiond reload`"));
    let checked = run(["check", &config]);
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.contains("settings: bundle north, version 1, signed by the key "), "{checked}");
    let reloaded = reload(&daemon);
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    let from = daemon.count("out.jsonl");
    daemon.wait_until("more messages", |daemon| daemon.count("out.jsonl") > from + 10);
    assert!(least_score(&daemon, from + 1).is_none_or(|score| score >= 0.999));
    desk.succeed(&["rollback", "north", "--store", "DIR/models"]);
    assert!(reload(&daemon).status.success());
    let from = daemon.count("out.jsonl");
    daemon.wait_until("the file's threshold", |daemon| least_score(daemon, from).is_some_and(|score| score < 0.999));
    assert!(first < 0.999);
    let log = daemon.terminate().log;
    assert!(log.contains("no version of the bundle north is installed in"), "{log}");
    refused(&desk.install_settings("1", &[]), 4, "north 1 was refused here before (rolled back by hand)");
}
