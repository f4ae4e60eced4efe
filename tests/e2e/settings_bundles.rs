//! Bundles of settings: from a fragment of TOML to a daemon that has it in force, and back; what a fragment may not say is refused
//! where it is made and where it is used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};
use visiond_bundle::{BundleModel, Manifest, SETTINGS, write};
use visiond_tests::nats::NatsServer;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, command, run, stderr, wait_until_or_show};

use crate::bundles::{Desk, refused};

const CONFIG: i32 = 3;
const MODEL: i32 = 4;

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
        self.succeed(&[&args[..], more].concat());
        self.succeed(&["sign", &out, "--key", "DIR/team.key"]);
    }

    /// Makes and signs a bundle as somebody does who has stolen the key, and does not use `visiond bundle make`.
    fn forge_settings(&self, version: u64, text: &str) {
        self.write_settings(text);
        let out = self.path(&format!("north-{version}.visiond"));
        let manifest = Manifest::of_settings("north".to_owned(), version);
        write(&out, manifest, &vec![(SETTINGS.to_owned(), self.path("north.toml"))]).unwrap();
        self.succeed(&["sign", &format!("DIR/north-{version}.visiond"), "--key", "DIR/team.key"]);
    }

    /// Makes and signs a bundle of a model under the name of the settings.
    fn forge_model(&self, version: u64) {
        let out = self.path(&format!("north-{version}.visiond"));
        let mut manifest = Manifest::new("north".to_owned(), version);
        manifest.models = vec![BundleModel::new("tiny.onnx".to_owned())];
        write(&out, manifest, &vec![("tiny.onnx".to_owned(), self.path("tiny.onnx"))]).unwrap();
        self.succeed(&["sign", &format!("DIR/north-{version}.visiond"), "--key", "DIR/team.key"]);
    }

    fn publish_settings(&self, version: &str, text: &str, more: &[&str]) {
        self.make_settings(version, text, more);
        self.succeed(&["publish", &format!("DIR/north-{version}.visiond"), "DIR/published"]);
    }

    /// Follows the settings once, with this daemon.
    fn follow_settings(&self, daemon: &Daemon, more: &[&str]) -> Output {
        let url = format!("unix:{}", daemon.path("http.sock").display());
        let args = [
            "follow",
            "north",
            "--key",
            "DIR/team.pub",
            "--store",
            "DIR/models",
            "--source",
            "DIR/published",
            "--once",
        ];
        self.bundle(&[&args[..], &["--url", &*url], more].concat())
    }

    /// The current and the previous version of the settings, and the versions that are refused.
    fn settings_versions(&self) -> (Option<u64>, Option<u64>, Vec<u64>) {
        let list = self.succeed(&["list", "--json", "--store", "DIR/models"]);
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        let version = |key: &str| list[0][key]["version"].as_u64();
        let refused = list[0]["refused"].as_array().into_iter().flatten();
        (version("current"), version("previous"), refused.map(|it| it["version"].as_u64().unwrap()).collect())
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
    Place::Unix(daemon.path("http.sock")).get("/api/v1/status").json()
}

/// The settings of a camera in force.
fn threshold(daemon: &Daemon) -> f64 {
    let settings = Place::Unix(daemon.path("http.sock")).get("/api/v1/cameras/gate/settings").json();
    settings["score_threshold"].as_f64().unwrap()
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

#[test]
fn settings_that_are_followed_prove_themselves_and_one_that_breaks_the_configuration_changes_nothing() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    desk.publish_settings("1", "[[camera]]\nname = \"gate\"\nscore_threshold = 0.001\n", &[]);
    let output = desk.follow_settings(&daemon, &["--watch", "1s"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("north 1 is in use, and watched"), "{}", stderr(&output));
    assert_eq!((threshold(&daemon), &status(&daemon)["settings"]["version"]), (0.001, &json!(1)));
    let metrics = Place::Unix(daemon.path("http.sock")).get("/metrics").text();
    assert!(metrics.contains("visiond_settings_bundle_version{bundle=\"north\"} 1"), "{metrics}");
    // The maker cannot know that the line looks at a zone that the device does not have.
    desk.publish_settings(
        "2",
        "[[camera]]\nname = \"gate\"\n\n[[camera.line]]\nname = \"door\"\nonly_while = [\"dock\"]\n",
        &[],
    );
    let reloads = status(&daemon)["reloads"]["applied"].clone();
    let output = desk.follow_settings(&daemon, &["--watch", "1s"]);
    refused(&output, CONFIG, "north 2 is refused, and the version in use stays: the configuration would be invalid: ");
    assert!(stderr(&output).contains("north 2: settings.toml:6:"), "{}", stderr(&output));
    assert_eq!(desk.settings_versions(), (Some(1), None, vec![2]));
    assert_eq!((threshold(&daemon), &status(&daemon)["reloads"]["applied"]), (0.001, &reloads));
    // A file that has an error of its own is waited for.
    desk.publish_settings("3", "[[camera]]\nname = \"gate\"\nscore_threshold = 0.002\n", &[]);
    daemon.rewrite(&format!("{}\n[log]\nlevel = \"loud\"\n", desk.file()));
    let output = desk.follow_settings(&daemon, &["--watch", "1s"]);
    refused(&output, CONFIG, "north 3 waits: the configuration has errors without these settings as well");
    daemon.rewrite(&desk.file());
    assert!(desk.follow_settings(&daemon, &["--watch", "0"]).status.success());
    assert_eq!((threshold(&daemon), desk.settings_versions()), (0.002, (Some(3), Some(1), vec![2])));
    // Settings that the reload rejects are left for those before.
    let log = daemon.terminate().log;
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_device_whose_file_takes_no_settings_refuses_them_until_it_does() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    daemon.rewrite(&desk.file().replace("settings = \"north\"", ""));
    assert!(reload(&daemon).status.success());
    desk.publish_settings("1", "[log]\nlevel = \"debug\"\n", &[]);
    let words = "takes no settings of the bundle north: write `settings = \"north\"` into its table [bundles]";
    refused(&desk.follow_settings(&daemon, &["--watch", "0"]), CONFIG, words);
    assert_eq!(desk.follow_settings(&daemon, &["--watch", "0"]).status.code(), Some(CONFIG), "it stays refused");
    assert_eq!(status(&daemon)["settings"], Value::Null);
    daemon.rewrite(&desk.file());
    let output = desk.follow_settings(&daemon, &["--watch", "0"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(status(&daemon)["settings"]["version"], 1);
    // A bundle of a model is no settings, and the reverse.
    daemon.rewrite(&desk.file().replacen("path = \"", "bundle = \"north\" #", 1));
    refused(&reload(&daemon), MODEL, "north 1 has settings, and no model: name it as `settings` in `[bundles]`");
    desk.make("1", &[]);
    assert!(desk.install("1", &[]).status.success());
    daemon.rewrite(&desk.file().replace("\"north\"", "\"street\""));
    refused(
        &reload(&daemon),
        CONFIG,
        "cannot take the settings of the bundle street: street 1 has a model, and no settings",
    );
}

#[test]
fn a_model_under_the_name_of_the_settings_is_refused_and_the_daemon_starts() {
    let desk = Desk::new();
    desk.make_settings("1", "[log]\nlevel = \"debug\"\n", &[]);
    let output = desk.install_settings("1", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    desk.forge_model(2);
    let words = "north 2 has a model, and north 1, which is installed, has settings: make it again under another name";
    let bundle = "DIR/north-2.visiond";
    let install = ["install", bundle, "--key", "DIR/team.pub", "--store", "DIR/models"];
    refused(&desk.bundle(&install), CONFIG, words);
    refused(&desk.bundle(&[&install[..], &["--again"]].concat()), CONFIG, words);
    assert_eq!(desk.settings_versions(), (Some(1), None, vec![]));
    let daemon = desk.daemon_with_settings();
    assert_eq!(status(&daemon)["settings"]["version"], 1);
    desk.succeed(&["publish", bundle, "DIR/published"]);
    refused(&desk.follow_settings(&daemon, &["--watch", "0"]), CONFIG, words);
    // Nor is such a model the first version.
    fs::remove_dir_all(desk.path("models/north")).unwrap();
    let words = "north 2 has a model, and no settings";
    refused(&desk.follow_settings(&daemon, &["--watch", "0"]), CONFIG, words);
    refused(&desk.bundle(&[&install[..], &["--config", &config_of(&daemon)]].concat()), CONFIG, words);
}

#[test]
fn settings_that_are_no_text_are_refused_once() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    fs::write(desk.path("latin1.toml"), b"# \xe9\n").unwrap();
    let (bundle, out) = ("DIR/north-1.visiond", desk.path("north-1.visiond"));
    let source = vec![(SETTINGS.to_owned(), desk.path("latin1.toml"))];
    write(&out, Manifest::of_settings("north".to_owned(), 1), &source).unwrap();
    desk.succeed(&["sign", bundle, "--key", "DIR/team.key"]);
    desk.succeed(&["publish", bundle, "DIR/published"]);
    let words = "its settings are not UTF-8: make a new version";
    refused(&desk.follow_settings(&daemon, &["--watch", "0"]), CONFIG, words);
    assert_eq!(desk.settings_versions(), (None, None, vec![1]));
}

#[test]
fn a_client_cannot_choose_the_folder_of_bundles_that_the_daemon_reads() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    let folder = desk.path("theirs/north/1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(desk.path("secret"), "token = hidden\n").unwrap();
    std::os::unix::fs::symlink("1", desk.path("theirs/north/current")).unwrap();
    std::os::unix::fs::symlink(desk.path("secret"), folder.join("manifest.toml")).unwrap();
    let preview = |text: &str| {
        let proposal = json!({ "path": config_of(&daemon), "text": text });
        let json = ["content-type: application/json"];
        Place::Unix(daemon.path("http.sock")).ask("POST", "/api/v1/changes", &json, &proposal.to_string()).json()
    };
    let own = fs::read_to_string(daemon.path("visiond.toml")).unwrap();
    assert_eq!(preview(&own)["valid"], true);
    let theirs = own.replace(desk.path("models").to_str().unwrap(), desk.path("theirs").to_str().unwrap());
    let with_model = theirs.replace("settings = \"north\"", "").replacen("path = \"", "bundle = \"north\" #", 1);
    for text in [theirs, with_model] {
        let answer = preview(&text);
        let error = answer["error"].as_str().unwrap();
        assert!(error.starts_with("cannot preview bundles in "), "{answer}");
        assert!(!error.contains("hidden"), "{answer}");
    }
}

/// What no bundle may say, the place of the error, and its words.
const FORBIDDEN: [(&str, &str, &str); 12] = [
    (
        "[[camera]]\nname = \"gate\"\nsource = { type = \"command\", command = [\"id\"] }\n",
        "3:1",
        "`camera.source` cannot",
    ),
    ("[[camera]]\nname = \"gate\"\nsource.type = \"pattern\"\n", "3:1", "`camera.source` cannot"),
    ("[[camera]]\nname = \"gate\"\nannotate.directory = \"/etc\"\n", "3:10", "`camera.annotate.directory` cannot"),
    ("[[camera]]\nname = \"gate\"\nclips = { directory = \"/etc\" }\n", "3:11", "`camera.clips.directory` cannot"),
    ("[[camera]]\nname = \"gate\"\nmodel = \"other\"\n", "3:1", "`camera.model` cannot"),
    ("[[model]]\nname = \"tiny\"\npath = \"/dev/shm/x.onnx\"\n", "3:1", "`model.path` cannot"),
    ("[[model]]\nname = \"tiny\"\nbundle = \"other\"\n", "3:1", "`model.bundle` cannot"),
    ("[http]\nlisten = [\"0.0.0.0:80\"]\n", "1:2", "`http` cannot"),
    ("bundles.settings = \"other\"\n", "1:1", "`bundles` cannot"),
    ("[[sink]]\ntype = \"file\"\npath = \"/etc/cron.d/x\"\n", "1:3", "`sink` cannot"),
    ("[engine]\nonnxruntime_library = \"/tmp/x.so\"\n", "1:2", "`engine` cannot"),
    ("[ffmpeg]\nprogram = \"/tmp/x\"\n", "1:2", "`ffmpeg` cannot"),
];

#[test]
fn what_a_bundle_may_not_say_is_refused_where_it_is_made_where_it_is_installed_and_where_it_is_used() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    let config = config_of(&daemon);
    desk.make_settings("1", "[[camera]]\nname = \"gate\"\nmax_fps = 40.0\n", &[]);
    assert!(desk.install_settings("1", &[]).status.success());
    assert!(reload(&daemon).status.success());
    let installed = desk.path("models/north/1/settings.toml");
    let good = fs::read_to_string(&installed).unwrap();
    for (version, (text, place, words)) in (2..).zip(FORBIDDEN) {
        desk.write_settings(text);
        let number = version.to_string();
        let out = format!("DIR/north-{version}.visiond");
        let made =
            desk.bundle(&["make", "--settings", "DIR/north.toml", "--name", "north", "--version", &number, "-o", &out]);
        refused(&made, CONFIG, words);
        assert!(stderr(&made).contains(&format!("north.toml:{place}: ")), "{place}: {}", stderr(&made));
        assert!(!desk.path(&format!("north-{version}.visiond")).exists());
        desk.forge_settings(version, text);
        let output = desk.install_settings(&number, &[]);
        refused(&output, CONFIG, words);
        assert!(stderr(&output).contains(&format!("north {version}: settings.toml:{place}: ")), "{}", stderr(&output));
        // Whoever can write to the store could do more than that, but not by an update of visiond that allows less.
        fs::write(&installed, text).unwrap();
        let output = reload(&daemon);
        refused(&output, CONFIG, words);
        assert!(stderr(&output).contains(&format!("north 1: settings.toml:{place}: ")), "{}", stderr(&output));
        refused(&run(["run", &config]), CONFIG, words);
    }
    fs::write(&installed, good).unwrap();
    assert!(reload(&daemon).status.success());
    assert_eq!(desk.settings_versions(), (Some(1), None, vec![]));
}

#[test]
fn settings_add_privacy_masks_and_take_none_away() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    let config = config_of(&daemon);
    let masks = || {
        let effective = run(["check", "--effective", &config]);
        assert!(effective.status.success(), "{}", stderr(&effective));
        String::from_utf8(effective.stdout).unwrap().matches("[[camera.privacy]]").count()
    };
    for (version, (privacy, count)) in (1..).zip([
        ("privacy = []\n", 1),
        ("privacy = [{ polygon = [[0.5, 0.5], [0.9, 0.5], [0.9, 0.9]] }]\n", 2),
        // The mask of the file once more.
        ("privacy = [{ polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1], [0.0, 0.1]] }]\n", 1),
        ("privacy = [{ polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1], [0.0, 0.1]], fill = \"mosaic\" }]\n", 2),
    ]) {
        desk.make_settings(&version.to_string(), &format!("[[camera]]\nname = \"gate\"\n{privacy}"), &[]);
        let installed = desk.install_settings(&version.to_string(), &["--config", &config]);
        assert!(installed.status.success(), "{}", stderr(&installed));
        assert_eq!(masks(), count, "{privacy}");
    }
}

#[test]
fn cameras_and_models_that_the_file_does_not_have_are_named() {
    let desk = Desk::new();
    let daemon = desk.daemon_with_settings();
    let config = config_of(&daemon);
    for (version, (text, words)) in (1..).zip([
        (
            "[[camera]]\nname = \"yard\"\nmax_fps = 2.0\n",
            "north 1: settings.toml:1:1: the configuration file has no camera \"yard\"",
        ),
        (
            "[[model]]\nname = \"plates\"\nscore_threshold = 0.5\n",
            "north 2: settings.toml:1:1: the configuration file has no model \"plates\"",
        ),
        ("[[camera]]\nname = \"gate\"\n[[camera.models]]\nname = \"plates\"\n", "north 3: settings.toml:"),
    ]) {
        desk.make_settings(&version.to_string(), text, &[]);
        refused(&desk.install_settings(&version.to_string(), &["--config", &config]), CONFIG, words);
    }
    assert_eq!(desk.settings_versions(), (None, None, vec![]));
}

#[test]
fn the_page_cannot_change_what_a_bundle_sets_and_commands_lie_over_it() {
    let desk = Desk::new();
    fs::write(desk.path("token"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(desk.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let token = format!("[http]\ntoken = {:?}\nallow_changes = true\n", desk.path("token"));
    let file = desk.file().replace("[http]\n", &token);
    let mut daemon = Daemon::start(&file);
    daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 0);
    let place = Place::Unix(daemon.path("http.sock"));
    let text =
        "[[camera]]\nname = \"gate\"\nscore_threshold = 0.25\n\n[[camera.line]]\nname = \"door\"\nmin_score = 0.5\n";
    desk.make_settings("1", text, &[]);
    assert!(desk.install_settings("1", &[]).status.success());
    assert!(reload(&daemon).status.success());
    let path = "/api/v1/cameras/gate/shapes";
    let put = |change: &dyn Fn(&mut Value)| {
        let shapes = place.get(path);
        let mut body = shapes.json();
        for kind in ["privacy", "ignore", "line", "zone"] {
            let list = body[kind].as_array().cloned().unwrap_or_default();
            body[kind] =
                list.into_iter().enumerate().map(|(was, table)| json!({ "was": was, "table": table })).collect();
        }
        let body = body.as_object_mut().unwrap();
        body.retain(|key, _| ["privacy", "ignore", "line", "zone"].contains(&key.as_str()));
        let mut body = Value::Object(body.clone());
        change(&mut body);
        let version = format!("If-Match: {}", shapes.header("etag").unwrap());
        place.ask("PUT", path, &["Content-Type: application/json", &version], &body.to_string())
    };
    let before = fs::read_to_string(daemon.path("visiond.toml")).unwrap();
    let moved = put(&|body| body["line"][0]["table"]["points"] = json!([[0.1, 0.5], [0.9, 0.5]]));
    assert_eq!(moved.status, 409, "{moved:?}");
    let words = "the bundle north (version 1) sets the line \\\"door\\\" of camera gate, so a change of the file would have no effect";
    assert!(moved.text().contains(words), "{moved:?}");
    let removed = put(&|body| body["line"] = json!([]));
    assert!(removed.status == 409 && removed.text().contains("sets the line"), "{removed:?}");
    assert_eq!(fs::read_to_string(daemon.path("visiond.toml")).unwrap(), before);
    // What the bundle does not set can be changed.
    let area = json!({ "table": { "polygon": [[0.5, 0.5], [0.9, 0.5], [0.9, 0.9]] } });
    let added = put(&|body| body["ignore"] = json!([area]));
    assert_eq!(added.status, 200, "{added:?}");
    // A command lies over file and bundle until the daemon ends, so it has its effect.
    let headers = ["Content-Type: application/json"];
    let set = place.ask("POST", "/api/v1/cameras/gate/settings", &headers, r#"{"score_threshold": 0.75}"#);
    assert_eq!((set.status, threshold(&daemon)), (200, 0.75), "{set:?}");
}

/// A device that follows the fleet; killed when dropped.
struct Device(Child);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_fleet_gives_settings_to_a_group_and_takes_them_back() {
    let desk = Desk::new();
    let server = NatsServer::start();
    let url = format!("nats://127.0.0.1:{}", server.port);
    let folder = desk.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    let fleet = |args: &[&str]| {
        let args = args.iter().map(|arg| arg.replace("DIR", &folder));
        let output = run(["fleet".to_owned()].into_iter().chain(args).chain(["--nats".to_owned(), url.clone()]));
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    fleet(&["init"]);
    for (version, fps) in [("1", "10.0"), ("2", "5.0")] {
        desk.make_settings(version, &format!("[[camera]]\nname = \"gate\"\nmax_fps = {fps}\n"), &[]);
        fleet(&["push", &format!("DIR/north-{version}.visiond")]);
    }
    // One device has a daemon, which gets the settings; the other one has a file alone.
    let daemon = desk.daemon_with_settings();
    let file = desk.file().replace("{dir}", &folder).replace(&format!("{folder}/models"), &format!("{folder}/second"));
    fs::write(desk.path("second.toml"), file).unwrap();
    let follow = |name: &str, store: &str, config: &str, address: &str| {
        let mut follow = command();
        follow.args(["bundle", "follow", "north", "--group", "north", "--device", name, "--interval", "300ms"]);
        follow.args(["--watch", "1s", "--source", &url, "--url", address, "--config", config, "--key"]);
        follow.arg(desk.path("team.pub")).arg("--store").arg(desk.path(store));
        let log = fs::File::options().create(true).append(true).open(desk.path("follow.log")).unwrap();
        Device(follow.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    };
    let address = format!("unix:{}", daemon.path("http.sock").display());
    let _first = follow("gate-0", "models", &config_of(&daemon), &address);
    let _second = follow("gate-1", "second", desk.path("second.toml").to_str().unwrap(), "unix:/nowhere/http.sock");
    let devices = || -> Value { serde_json::from_slice(&fleet(&["devices", "--json"]).stdout).unwrap() };
    let versions = || -> Vec<Option<u64>> {
        let mut devices = devices().as_array().unwrap().clone();
        devices.sort_by_key(|device| device["device"].to_string());
        devices.iter().map(|device| device["bundles"][0]["current"].as_u64()).collect()
    };
    let log = || fs::read_to_string(desk.path("follow.log")).unwrap_or_default();
    wait_until_or_show("both devices", || devices().as_array().is_some_and(|all| all.len() == 2), log);
    for version in ["1", "2"] {
        let output = fleet(&["rollout", "north", version, "--group", "north", "--soak", "0", "--waves", "50"]);
        assert!(stderr(&output).contains(&format!("north {version}: done: 2 succeeded")), "{}", stderr(&output));
    }
    assert_eq!(versions(), [Some(2), Some(2)]);
    assert_eq!(status(&daemon)["settings"]["version"], 2);
    fleet(&["rollback", "north", "--group", "north", "--reason", "too slow"]);
    assert_eq!((versions(), &status(&daemon)["settings"]["version"]), (vec![Some(1), Some(1)], &json!(1)));
}
