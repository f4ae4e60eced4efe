//! `visiond bundle`: from a model to a daemon that uses it, and back; what is not as signed or promised is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, assert_no_panic, json_lines, picture, root, run, stderr};

use crate::documents::assert_valid;
use crate::engines::plan;

const MODEL: i32 = 4;
const INPUT: i32 = 5;
const DIFFERS: i32 = 8;

/// A folder in which bundles are made and installed, with a key pair and the tiny network.
pub struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    pub fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["tiny.onnx", "tiny.toml"] {
            fs::copy(root().join("tests/vm").join(name), desk.path(name)).unwrap();
        }
        desk.succeed(&["keys", "DIR/team", "--no-password"]);
        desk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `visiond bundle ARGS` with the folder in the place of DIR.
    pub fn bundle(&self, args: &[&str]) -> Output {
        let folder = self.folder.path().to_str().unwrap();
        let args = args.iter().map(|arg| arg.replace("DIR", folder));
        let output = run(["bundle".to_owned()].into_iter().chain(args));
        assert_no_panic(&stderr(&output));
        output
    }

    pub fn succeed(&self, args: &[&str]) -> Output {
        let output = self.bundle(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    /// Writes what the network detects in two pictures, unless there is a reference, and returns the pictures.
    fn reference(&self) -> [PathBuf; 2] {
        let pictures = ["astronaut", "coffee"].map(|name| picture(&format!("{name}.png")));
        if !self.path("expected.json").exists() {
            let detected =
                run(["detect".as_ref(), "--json".as_ref(), "--model".as_ref(), self.path("tiny.onnx").as_os_str()]
                    .into_iter()
                    .chain(pictures.iter().map(|picture| picture.as_os_str())));
            assert_eq!(json_lines(&detected.stdout).len(), 2);
            fs::write(self.path("expected.json"), detected.stdout).unwrap();
        }
        pictures
    }

    /// Makes and signs a bundle of the network, whose proof is what it detects in two pictures. Devices find out what is wrong with it.
    pub fn make(&self, version: &str, more: &[&str]) {
        let pictures = self.reference();
        let out = format!("DIR/street-{version}.visiond");
        let mut args = vec!["make", "DIR/tiny.onnx", "--name", "street", "--version", version, "-o", &out];
        args.extend(["--no-proof", "--reference", "DIR/expected.json"]);
        for picture in &pictures {
            args.extend(["--pictures", picture.to_str().unwrap()]);
        }
        args.extend(more);
        self.succeed(&args);
        self.succeed(&["sign", &out, "--key", "DIR/team.key"]);
    }

    /// Makes a bundle of the same network with another label, which its reference has as well.
    fn make_with_label(&self, version: &str, [from, to]: [&str; 2]) {
        self.relabel(&format!("\"{from}\""), &format!("\"{to}\""));
        let _ = fs::remove_file(self.path("expected.json"));
        self.make(version, &[]);
    }

    pub fn install(&self, version: &str, more: &[&str]) -> Output {
        let bundle = format!("DIR/street-{version}.visiond");
        let mut args = vec!["install", &bundle, "--key", "DIR/team.pub", "--store", "DIR/models"];
        args.extend(more);
        self.bundle(&args)
    }

    /// The current and the previous version.
    pub fn versions(&self) -> [Option<u64>; 2] {
        let list = self.succeed(&["list", "--json", "--store", "DIR/models"]);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        ["current", "previous"].map(|key| list[0][key]["version"].as_u64())
    }

    /// Replaces a label of the card.
    pub fn relabel(&self, from: &str, to: &str) {
        let card = fs::read_to_string(self.path("tiny.toml")).unwrap();
        fs::write(self.path("tiny.toml"), card.replace(from, to)).unwrap();
    }
}

pub fn refused(output: &Output, exit: i32, words: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(exit), "{said}");
    assert!(said.contains(words), "{said}");
}

pub const CONFIG: &str = r#"
[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "tiny"
bundle = "street"

[bundles]
directory = "STORE"

[[camera]]
name = "gate"
source = { type = "pattern", width = 128, height = 64, fps = 50.0 }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

#[test]
fn a_daemon_uses_a_new_version_after_a_reload_and_the_old_one_after_a_rollback() {
    let desk = Desk::new();
    desk.make("1", &["--max-latency-p99-ms", "60000", "--notes", "first"]);
    let installed = desk.install("1", &[]);
    assert!(installed.status.success(), "{}", stderr(&installed));
    let wanted =
        "street 1 is installed: `sudo visiond reload` makes the daemon use it, if a model has bundle = \"street\"";
    assert!(stderr(&installed).contains(wanted), "{}", stderr(&installed));
    let mut daemon = Daemon::start(&CONFIG.replace("STORE", desk.path("models").to_str().unwrap()));
    let labels = |daemon: &Daemon, from: usize| -> Vec<String> {
        let messages = daemon.messages("out.jsonl").split_off(from);
        let detections = messages.iter().flat_map(|message| message["detections"].as_array().unwrap().clone());
        detections.map(|detection| detection["label"].as_str().unwrap().to_owned()).collect()
    };
    let old = "white";
    daemon.wait_until("the first version", |daemon| labels(daemon, 0).iter().any(|label| label == old));
    desk.make_with_label("2", ["white", "snow"]);
    assert!(desk.install("2", &[]).status.success());
    assert_eq!(desk.versions(), [Some(2), Some(1)]);
    let reload = |daemon: &Daemon| {
        let output = run(["reload".as_ref(), daemon.path("visiond.toml").as_os_str()]);
        assert!(output.status.success(), "{}", stderr(&output));
        (daemon.count("out.jsonl"), String::from_utf8(output.stdout).unwrap())
    };
    let (from, changes) = reload(&daemon);
    assert!(changes.contains("model tiny loaded again"), "{changes}");
    daemon.wait_until("the second version", |daemon| labels(daemon, from).iter().any(|label| label == "snow"));
    let (_, changes) = reload(&daemon);
    assert!(!changes.contains("model"), "the bundle is the same: {changes}");
    desk.succeed(&["rollback", "street", "--store", "DIR/models"]);
    assert_eq!(desk.versions(), [Some(1), None]);
    let (from, _) = reload(&daemon);
    daemon.wait_until("the first version again", |daemon| labels(daemon, from).iter().any(|label| label == old));
    refused(&desk.install("2", &[]), MODEL, "street 2 was refused here before (rolled back by hand)");
    assert!(desk.install("2", &["--again"]).status.success());
    let finished = daemon.terminate();
    assert!(finished.status.success(), "{}", finished.log);
}

#[test]
fn a_model_that_detects_something_else_is_slow_or_cannot_be_loaded_is_refused_and_the_one_before_stays() {
    let desk = Desk::new();
    desk.make("1", &[]);
    assert!(desk.install("1", &[]).status.success());
    let right = fs::read(desk.path("expected.json")).unwrap();
    let wrong = r#"{"image_id": "coffee.png", "category_id": 3, "bbox": [0, 0, 90, 90], "score": 0.9}"#;
    fs::write(desk.path("expected.json"), wrong).unwrap();
    desk.make("2", &[]);
    fs::write(desk.path("expected.json"), right).unwrap();
    refused(
        &desk.install("2", &[]),
        DIFFERS,
        "street 2 is refused, and the version in use stays: it detects something else",
    );
    refused(&desk.install("2", &[]), MODEL, "was refused here before (it detects something else");
    desk.make("3", &["--max-latency-p99-ms", "0.0001"]);
    refused(&desk.install("3", &[]), DIFFERS, "instead of 0.0001 ms; make a new version, or use --again");
    desk.make("4", &["--max-memory", "1MiB", "--min-found", "0.7"]);
    let shown = String::from_utf8(desk.succeed(&["inspect", "DIR/street-4.visiond"]).stdout).unwrap();
    assert!(shown.contains(", 1 MiB of memory") && shown.contains("finds 0.7 of what the version in use"), "{shown}");
    refused(&desk.install("4", &[]), DIFFERS, "of memory instead of 1 MiB; make a new version");
    fs::write(desk.path("tiny.onnx"), "no model").unwrap();
    desk.make("5", &[]);
    refused(&desk.install("5", &[]), MODEL, "none of the bundle's models can be used on this machine");
    assert_eq!(desk.versions(), [Some(1), None]);
    let left: Vec<_> = fs::read_dir(desk.path("models/street")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| ["1", "current", "newest", "refused.toml", ".lock"].contains(&name.to_str().unwrap())),
        "{left:?}"
    );
    let list = desk.succeed(&["list", "--store", "DIR/models"]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(
        text.contains("version 1, previous version none") && text.contains("  3 is refused: 99 of 100 frames take"),
        "{text}"
    );
}

#[test]
fn of_several_models_the_first_that_can_be_loaded_is_used() {
    let desk = Desk::new();
    fs::write(desk.path("orin.engine"), "no engine").unwrap();
    let out = "DIR/street-5.visiond";
    let card = ["--card", "DIR/tiny.toml", "--expires", "2020-01-01"];
    let made = desk.succeed(
        &[&["make", "DIR/orin.engine", "DIR/tiny.onnx", "--name", "street", "--version", "5", "-o", out], &card[..]]
            .concat(),
    );
    assert!(stderr(&made).contains("orin.engine cannot be used on this machine, and is packed"), "{}", stderr(&made));
    desk.succeed(&["sign", out, "--key", "DIR/team.key"]);
    let output = desk.install("5", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("street 5 expired on 2020-01-01: ask its maker"), "{}", stderr(&output));
    assert!(stderr(&output).contains("it can be loaded, which is all that is known"), "{}", stderr(&output));
    assert_eq!(fs::read_link(desk.path("models/street/current/model")).unwrap(), Path::new("tiny.onnx"));
}

#[test]
fn a_bundle_is_made_only_if_its_models_detect_what_the_reference_has() {
    let desk = Desk::new();
    let pictures = desk.reference();
    let make = |models: &[&str], more: &[&str]| {
        let mut args = vec!["make"];
        args.extend(models);
        args.extend(["--name", "street", "--version", "1", "-o", "DIR/street-1.visiond", "--reference"]);
        args.extend(["DIR/expected.json", "--card", "DIR/tiny.toml"]);
        args.extend(pictures.iter().flat_map(|picture| ["--pictures", picture.to_str().unwrap()]));
        desk.bundle(&[&args, more].concat())
    };
    let made = || fs::read_dir(desk.path("")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let bundles = || made().filter(|name| name.contains("street")).collect::<Vec<_>>();
    let right = fs::read(desk.path("expected.json")).unwrap();
    let wrong = r#"{"image_id": "coffee.png", "category_id": 3, "bbox": [0, 0, 90, 90], "score": 0.9}"#;
    fs::write(desk.path("expected.json"), wrong).unwrap();
    let differs = make(&["DIR/tiny.onnx"], &[]);
    refused(&differs, DIFFERS, "no bundle is made, because tiny.onnx differs: it detects something else");
    let figures = String::from_utf8(differs.stdout).unwrap();
    assert!(figures.contains("only in the reference") || figures.contains("outside"), "{figures}");
    fs::write(desk.path("expected.json"), right).unwrap();
    // Every model that can be loaded is tried, not only the first.
    fs::write(desk.path("orin.engine"), "no engine").unwrap();
    let alone = make(&["DIR/orin.engine"], &[]);
    refused(&alone, MODEL, "this machine can use none of its models: ");
    assert!(stderr(&alone).contains("for models of other machines, use --no-proof"), "{}", stderr(&alone));
    assert_eq!(bundles(), Vec::<String>::new(), "nothing is left of a bundle that has not proven itself");
    let newer = make(&["DIR/tiny.onnx"], &["--minimum-visiond", "99.0"]);
    refused(&newer, MODEL, "street 1 needs visiond 99.0 or newer");
    let slow = make(&["DIR/orin.engine", "DIR/tiny.onnx"], &["--max-latency-p99-ms", "0.0001"]);
    assert!(slow.status.success(), "{}", stderr(&slow));
    let words = "a device that takes more than 0.0001 ms refuses the bundle";
    assert!(stderr(&slow).contains(words), "{}", stderr(&slow));
    assert_eq!(bundles(), ["street-1.visiond"]);
    fs::remove_file(desk.path("street-1.visiond")).unwrap();
    assert!(make(&["DIR/orin.engine"], &["--no-proof"]).status.success());
    assert_eq!(bundles(), ["street-1.visiond"]);
}

#[test]
fn the_sidecar_of_an_engine_is_packed_with_it() {
    let desk = Desk::new();
    fs::write(desk.path("orin.engine"), plan([1, 5, 0, 0], 0)).unwrap();
    for name in ["orin.engine.json", "tiny.onnx.json"] {
        fs::write(desk.path(name), "{}").unwrap();
    }
    let args = ["DIR/orin.engine", "DIR/tiny.onnx", "--card", "DIR/tiny.toml", "--name", "street", "--version", "1"];
    desk.succeed(&[&["make", "-o", "DIR/street-1.visiond", "--no-proof"], &args[..]].concat());
    let inspected = desk.succeed(&["inspect", "--json", "DIR/street-1.visiond"]);
    let inspected: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    let files = inspected["manifest"]["file"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap());
    assert_eq!(files.collect::<Vec<_>>(), ["orin.engine", "orin.engine.json", "tiny.onnx", "tiny.toml"]);
}

#[test]
fn what_nobody_trusted_has_signed_is_refused_before_anything_is_written() {
    let desk = Desk::new();
    desk.make("1", &[]);
    let described = desk.succeed(&["inspect", "--json", "DIR/street-1.visiond"]);
    let described: serde_json::Value = serde_json::from_slice(&described.stdout).unwrap();
    assert_eq!(described["manifest"]["version"], 1);
    let verified = desk.succeed(&["verify", "DIR/street-1.visiond", "--key", "DIR/team.pub"]);
    assert!(String::from_utf8(verified.stdout).unwrap().contains("all 5 files are as signed"));
    desk.succeed(&["keys", "DIR/other", "--no-password"]);
    let other = ["verify", "DIR/street-1.visiond", "--key", "DIR/other.pub"];
    refused(&desk.bundle(&other), MODEL, "put its public key into /etc/visiond-keys, or name it with --key");
    refused(&desk.bundle(&["keys", "DIR/team"]), 6, "team.pub exists: choose another name");
    let over = ["make", "DIR/tiny.onnx", "--name", "a", "--version", "1", "-o", "DIR/tiny.onnx"];
    refused(&desk.bundle(&over), 6, "tiny.onnx exists: delete it, or choose another name with -o");
    let secret = desk.bundle(&["verify", "DIR/street-1.visiond", "--key", "DIR/team.key"]);
    refused(&secret, 3, "team.key has no public key of minisign: name the file that ends with .pub");
    assert!(!stderr(&secret).contains("RW"), "{}", stderr(&secret));
    refused(&desk.bundle(&["sign", "DIR/street-1.visiond", "--key", "DIR/team.pub"]), 3, "cannot use the secret key");
    let bytes = fs::read(desk.path("street-1.visiond")).unwrap();
    fs::write(desk.path("street-1.visiond"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&desk.install("1", &[]), INPUT, "street-1.visiond is damaged: ");
    fs::write(desk.path("street-1.visiond"), "text").unwrap();
    refused(&desk.install("1", &[]), INPUT, "is not a bundle: make one with `visiond bundle make`");
    refused(
        &desk.bundle(&["rollback", "street", "--store", "DIR/models"]),
        1,
        "street has no previous version: install another one",
    );
    refused(&desk.bundle(&["rollback", "../x", "--store", "DIR/models"]), 1, "no bundle named ../x is installed");
}

#[test]
fn check_names_the_version_of_a_bundle_and_says_how_to_install_one_that_is_missing() {
    let desk = Desk::new();
    let store = desk.path("models");
    let config =
        CONFIG.replace("STORE", store.to_str().unwrap()).replace("{dir}", desk.folder.path().to_str().unwrap());
    fs::write(desk.path("visiond.toml"), &config).unwrap();
    let check = |more: &[&str]| {
        let path = desk.path("visiond.toml");
        run(["check", path.to_str().unwrap()].into_iter().chain(more.iter().copied()))
    };
    let said = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let missing = check(&[]);
    let wanted = format!(
        "model tiny: no bundle named street is installed in {}: install one with `visiond bundle install`",
        store.display()
    );
    assert!(missing.status.code() == Some(3) && said(&missing).contains(&wanted), "{}", said(&missing));
    assert!(said(&missing).contains("visiond.toml:11:10"), "at the key: {}", said(&missing));
    assert!(check(&["--file-only"]).status.success(), "the store is not a part of the file");
    let started = run(["run".as_ref(), desk.path("visiond.toml").as_os_str()]);
    refused(&started, MODEL, &wanted);
    desk.make("3", &[]);
    assert!(desk.install("3", &[]).status.success());
    let found = check(&[]);
    assert!(found.status.success(), "{}", said(&found));
    assert!(said(&found).contains("model tiny: bundle street, version 3, signed by the key "), "{}", said(&found));
    let json: serde_json::Value = serde_json::from_slice(&check(&["--json"]).stdout).unwrap();
    assert_eq!((&json[0]["bundles"][0]["bundle"], &json[0]["bundles"][0]["version"]), (&"street".into(), &3.into()));
    let effective = check(&["--effective"]);
    let text = said(&effective);
    assert!(text.contains("bundle = \"street\"") && !text.contains("current"), "{text}");
    fs::write(desk.path("again.toml"), &text).unwrap();
    let again = run(["check".as_ref(), desk.path("again.toml").as_os_str()]);
    assert!(again.status.success(), "{}", said(&again));
}

#[test]
fn the_version_in_use_and_what_is_done_about_a_newer_one_are_shown_everywhere() {
    let desk = Desk::new();
    desk.make("1", &[]);
    assert!(desk.install("1", &[]).status.success());
    let broker = Mosquitto::start();
    let reader = broker.reader("#", &[]);
    let sink = format!(
        "[device]\nname = \"box\"\n[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nhome_assistant = true\n\
         state_interval = \"250 ms\"\n",
        broker.port
    );
    let config = format!("{}{sink}", CONFIG.replace("STORE", desk.path("models").to_str().unwrap()));
    let mut daemon = Daemon::start(&config);
    let place = Place::socket(&mut daemon);
    let bundle = || place.get("/api/v1/status").json()["models"][0]["bundle"].clone();
    let listed = desk.succeed(&["list", "--json", "--store", "DIR/models"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let key = &listed[0]["current"]["signed_by"];
    let shown = bundle();
    assert_eq!((&shown["name"], &shown["version"], &shown["signed_by"]), (&"street".into(), &1.into(), key));
    assert!(shown["since"].is_string() && shown.get("rollout").is_none(), "nothing looks for newer ones: {shown}");
    let state = || reader.under("/cameras/gate/state").last().map(|state| state.json());
    daemon.wait_until("the state", |_| state().is_some_and(|state| state["bundles"]["tiny"]["version"] == 1));
    let is_entity = |topic: &str| topic == "homeassistant/update/visiond_box/bundle_tiny/config";
    daemon.wait_until("the entity", |_| reader.messages().iter().any(|message| is_entity(&message.topic)));
    // Another process writes this.
    let rollout = desk.path("models/street/rollout.toml");
    let fetching = "source = \"https://models.example.org\"\nstep = \"fetching\"\nversion = 2\nnewest = 2\n\
                    since_unix_s = 1790000000\npercent = 40\n";
    fs::write(&rollout, fetching).unwrap();
    daemon.wait_until("the rollout", |_| bundle()["rollout"]["percent"] == 40);
    let wanted = serde_json::json!({
        "source": "https://models.example.org", "step": "fetching", "version": 2, "newest": 2,
        "since": "2026-09-21T14:13:20Z", "percent": 40,
    });
    assert_eq!(bundle()["rollout"], wanted);
    daemon.wait_until("the rollout in the state", |_| {
        state().is_some_and(|it| it["bundles"]["tiny"]["rollout"] == wanted)
    });
    assert_valid(&state().unwrap());
    let metrics = place.get("/metrics").text();
    for line in [
        "visiond_model_bundle_version{model=\"tiny\",bundle=\"street\"} 1",
        "visiond_model_bundle_newest_version{model=\"tiny\",bundle=\"street\"} 2",
        "visiond_model_rollout_step{model=\"tiny\",bundle=\"street\",step=\"fetching\"} 1",
        "visiond_model_rollout_step{model=\"tiny\",bundle=\"street\",step=\"refused\"} 0",
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line} in {metrics}");
    }
    let top = run(["top".as_ref(), "--once".as_ref(), daemon.path("visiond.toml").as_os_str()]);
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(top.contains("street 1, fetching 2: 40 %"), "{top}");
    // A file that is no rollout, or too large, is as none.
    for broken in ["step = 7".to_owned(), format!("{fetching}# {}\n", "x".repeat(1 << 20))] {
        fs::write(&rollout, fetching).unwrap();
        daemon.wait_until("the rollout again", |_| bundle()["rollout"]["percent"] == 40);
        fs::write(&rollout, broken).unwrap();
        daemon.wait_until("no rollout", |_| bundle().get("rollout").is_none());
        assert_eq!(bundle()["version"], 1);
    }
    // The version that runs is shown, not the one that is installed.
    desk.make_with_label("2", ["white", "snow"]);
    assert!(desk.install("2", &[]).status.success());
    assert_eq!(bundle()["version"], 1);
    let reload = run(["reload".as_ref(), daemon.path("visiond.toml").as_os_str()]);
    assert!(reload.status.success(), "{}", stderr(&reload));
    assert_eq!(bundle()["version"], 2);
    // A file again: the entity goes.
    let by_path = format!("path = \"{}\"", desk.path("models/street/current/model").display());
    daemon.rewrite(&config.replace("bundle = \"street\"", &by_path));
    let reload = run(["reload".as_ref(), daemon.path("visiond.toml").as_os_str()]);
    assert!(reload.status.success(), "{}", stderr(&reload));
    assert!(bundle().is_null());
    daemon.wait_until("no entity", |_| {
        reader.messages().iter().any(|message| is_entity(&message.topic) && message.payload.is_empty())
    });
    let finished = daemon.terminate();
    assert!(finished.status.success(), "{}", finished.log);
}
