//! Commands by MQTT and HTTP, with Mosquitto: cameras, lines and zones are switched on and off, scores change, totals are reset.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};
use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, root, wait_until};

use crate::documents::{assert_valid, errors};
use crate::events::film;

/// A broker that lets `gate` publish all and read commands, `home` send commands, and `guest` read all.
fn broker() -> Mosquitto {
    Mosquitto::start_with(|folder| {
        let passwords = folder.join("passwords");
        for (number, user) in ["gate", "home", "guest"].into_iter().enumerate() {
            let new: &[&str] = if number == 0 { &["-b", "-c"] } else { &["-b"] };
            let made = Command::new("mosquitto_passwd").args(new).arg(&passwords).args([user, "s3cret"]).status();
            assert!(made.unwrap().success());
        }
        let rights = folder.join("rights");
        let text = "user gate\ntopic readwrite visiond/gate/#\ntopic readwrite homeassistant/+/visiond_gate/#\n\
                    user home\ntopic read #\ntopic write visiond/gate/cameras/+/+/set\n\
                    topic write visiond/gate/cameras/+/rules/+/+/set\n\
                    user guest\ntopic read #\n";
        std::fs::write(&rights, text).unwrap();
        format!("allow_anonymous false\npassword_file {}\nacl_file {}\n", passwords.display(), rights.display())
    })
}

/// Publishes as a user of the broker; `arguments` such as `-r`.
fn publish(broker: &Mosquitto, user: &str, topic: &str, payload: &str, arguments: &[&str]) {
    let port = broker.port.to_string();
    let mut command = Command::new("mosquitto_pub");
    command.args(["-h", "127.0.0.1", "-p", &port, "-u", user, "-P", "s3cret", "-q", "1"]);
    command.args(["-t", &format!("visiond/gate/cameras/{topic}")]).args(arguments);
    // `-m` takes no empty payload.
    let payload = if payload.is_empty() { vec!["-n"] } else { vec!["-m", payload] };
    command.args(payload);
    assert!(command.status().unwrap().success(), "{topic}");
}

/// What the broker retains, as `guest` reads it until nothing more comes.
fn retained(broker: &Mosquitto, topic: &str) -> Vec<(String, Value)> {
    let port = broker.port.to_string();
    let mut command = Command::new("mosquitto_sub");
    command.args(["-h", "127.0.0.1", "-p", &port, "-u", "guest", "-P", "s3cret", "-t", topic, "--retained-only"]);
    let output = command.args(["-W", "1", "-F", "%t %p"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (topic, payload) = line.split_once(' ').unwrap();
        (topic.to_owned(), serde_json::from_str(payload).unwrap_or_else(|_| payload.into()))
    };
    text.lines().map(line).collect()
}

fn sink(broker: &Mosquitto, daemon_folder: &str) -> String {
    format!(
        "[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nlogin = \"{daemon_folder}/login\"\ncommands = true\n\
         home_assistant = true\nstate_interval = \"250ms\"\n",
        broker.port
    )
}

/// A folder with the login of `gate`.
fn login() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("login");
    std::fs::write(&file, "gate:s3cret\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    folder
}

/// The camera door, of which the model sees eight bars, and the camera yard.
fn config(sink: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[device]\nname = \"gate\"\n[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"bars\"\npath = \"{}\"\n\
         [http]\nlisten = [\"unix:{{dir}}/http.sock\"]\n\
         [[camera]]\nname = \"door\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n\
         [[camera]]\nname = \"yard\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n{sink}",
        tiny.display()
    )
}

#[test]
fn a_camera_obeys_who_may_publish_commands_and_the_state_says_so() {
    let (broker, folder) = (broker(), login());
    let sink = sink(&broker, &folder.path().display().to_string());
    let reader = broker.reader("visiond/gate/#", &["-u", "guest", "-P", "s3cret"]);
    let state = |camera: &str| {
        let end = format!("/{camera}/state");
        reader.under(&end).pop().filter(|state| !state.payload.is_empty()).map_or(Value::Null, |state| state.json())
    };
    let is = |camera: &str, phase: &str, enabled: bool| {
        let state = state(camera);
        state["phase"] == phase && state["settings"]["enabled"] == enabled
    };
    // It was retained before visiond came.
    publish(&broker, "home", "door/enabled/set", "OFF", &["-r"]);
    let mut daemon = Daemon::start(&config(&sink));
    daemon.wait_until("both cameras", |_| is("door", "streaming", true) && is("yard", "streaming", true));
    daemon.wait_for_log("ignoring the command at visiond/gate/cameras/door/enabled/set: it is retained");
    publish(&broker, "home", "door/enabled/set", "", &["-r"]);

    // A guest's commands do not pass the broker.
    publish(&broker, "guest", "door/enabled/set", "OFF", &[]);
    publish(&broker, "home", "door/enabled/set", "OFF", &[]);
    publish(&broker, "guest", "yard/enabled/set", "OFF", &[]);
    daemon.wait_until("the door to be off", |_| is("door", "disabled", false));
    assert_valid(&state("door"));
    let entity = "homeassistant/switch/visiond_gate/door_command_enabled/config";
    wait_until("the switch", || retained(&broker, "homeassistant/switch/#").iter().any(|(topic, _)| topic == entity));
    assert!(is("yard", "streaming", true));
    let http = Place::socket(&mut daemon);
    let door = http.get("/api/v1/cameras/door").json();
    assert_eq!(door["phase"], "disabled");
    assert_eq!(errors(&door), [""; 0]);
    assert!(!http.get("/metrics").text().contains("camera=\"door\""));
    // Reloads of the same file change nothing.
    let config_text = config(&sink);
    daemon.reconfigure(&config_text);
    daemon.wait_for_log("reloaded: nothing has changed");
    assert!(is("door", "disabled", false));

    // The last camera as well.
    publish(&broker, "home", "yard/enabled/set", "OFF", &[]);
    daemon.wait_until("the yard to be off", |_| is("yard", "disabled", false));
    assert_eq!(http.get("/readyz").status, 200);
    publish(&broker, "home", "door/enabled/set", "ON", &[]);
    daemon.wait_until("the door to be on", |_| is("door", "streaming", true) && state("door")["detections"] == 8);

    publish(&broker, "home", "door/score_threshold/set", "1", &[]);
    daemon.wait_until("no detection", |_| state("door")["detections"] == 0);
    assert_eq!(state("door")["settings"], json!({ "enabled": true, "score_threshold": 1.0 }));
    publish(&broker, "home", "door/score_threshold/set", "high", &[]);
    publish(&broker, "home", "door/score_threshold/set", "0.25", &[]);
    daemon.wait_until("detections", |_| state("door")["detections"] == 8);
    // A restart has the settings of the file.
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("command: camera door: enabled = false"), "{}", ended.log);
    assert!(!ended.log.contains("command: camera door: score_threshold = high"), "{}", ended.log);
    let mut daemon = Daemon::start(&config_text);
    daemon.wait_until("both cameras", |_| is("door", "streaming", true) && is("yard", "streaming", true));
    daemon.wait_until("the score of the file", |_| state("door")["settings"]["score_threshold"] == 0.0);

    // Entities go with commands.
    daemon.reconfigure(&config_text.replace("commands = true\n", ""));
    daemon.wait_until("the switches to go", |_| {
        let all = retained(&broker, "homeassistant/#");
        !all.is_empty() && all.iter().all(|(topic, _)| !topic.contains("_command"))
    });
    daemon.wait_until("a state without settings", |_| state("door").get("settings").is_none());
    publish(&broker, "home", "door/enabled/set", "OFF", &[]);
    daemon.reconfigure(&config_text);
    daemon.wait_until("settings again", |_| is("door", "streaming", true));
    assert_eq!(daemon.terminate().status.code(), Some(0));
}

#[test]
fn a_retained_message_that_is_too_large_for_a_command_costs_a_line_and_not_the_session() {
    let (broker, folder) = (broker(), login());
    let large = folder.path().join("large");
    std::fs::write(&large, vec![b'x'; 6 << 20]).unwrap();
    let port = broker.port.to_string();
    let mut command = Command::new("mosquitto_pub");
    command.args(["-h", "127.0.0.1", "-p", &port, "-u", "home", "-P", "s3cret", "-q", "1", "-r", "-f"]).arg(&large);
    command.args(["-t", "visiond/gate/cameras/door/enabled/set"]);
    assert!(command.status().unwrap().success());
    let sink = sink(&broker, &folder.path().display().to_string()) + "protocol = \"3.1.1\"\n";
    let reader = broker.reader("visiond/gate/cameras/door/state", &["-u", "guest", "-P", "s3cret"]);
    let state = || reader.messages().pop().map_or(Value::Null, |state| state.json());
    let mut daemon = Daemon::start(&config(&sink));
    daemon.wait_for_log("ignoring the message at visiond/gate/cameras/door/enabled/set: it has 62");
    daemon.wait_until("the door", |_| state()["phase"] == "streaming");
    // Also one that is not retained, and a command right after it.
    let place = command.get_args().position(|argument| argument == "-r").unwrap();
    let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let others = arguments.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, argument)| argument);
    assert!(Command::new("mosquitto_pub").args(others).status().unwrap().success());
    publish(&broker, "home", "door/enabled/set", "OFF", &[]);
    daemon.wait_until("the door to be off", |_| state()["phase"] == "disabled");
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("the broker closed") && !ended.log.contains("invalid packet"), "{}", ended.log);
}

#[test]
fn a_thousand_switches_are_few_changes_and_the_last_one_counts() {
    let (broker, folder) = (broker(), login());
    let sink = sink(&broker, &folder.path().display().to_string());
    let reader = broker.reader("visiond/gate/cameras/door/state", &["-u", "guest", "-P", "s3cret"]);
    let state = || reader.messages().pop().map_or(Value::Null, |state| state.json());
    let mut daemon = Daemon::start(&config(&sink));
    daemon.wait_until("the door", |_| state()["phase"] == "streaming");
    let (switches, port) = (folder.path().join("switches"), broker.port.to_string());
    let lines: String = (0..1000).map(|number| if number % 2 == 0 { "ON\n" } else { "OFF\n" }).collect();
    std::fs::write(&switches, lines).unwrap();
    let mut command = Command::new("mosquitto_pub");
    command.args(["-h", "127.0.0.1", "-p", &port, "-u", "home", "-P", "s3cret", "-q", "1", "-l"]);
    command.args(["-t", "visiond/gate/cameras/door/enabled/set"]).stdin(std::fs::File::open(&switches).unwrap());
    assert!(command.status().unwrap().success());
    // It is the last one that arrives.
    publish(&broker, "home", "yard/enabled/set", "OFF", &[]);
    daemon.wait_for_log("command: camera yard: enabled = false");
    daemon.wait_until("the door to be off", |_| state()["phase"] == "disabled");
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let changes = ended.log.matches("command: camera door: enabled").count();
    assert!(changes < 100 && !ended.log.contains("ignoring the command"), "{changes} changes:\n{}", ended.log);
}

#[test]
fn a_zone_is_switched_off_and_on_and_totals_are_reset_for_all_readers() {
    let (broker, folder, films) = (broker(), login(), tempfile::tempdir().unwrap());
    let text = format!(
        "[engine]\nbackend = \"rten\"\n[device]\nname = \"gate\"\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\n\
         [events]\ndirectory = \"{}/ledger\"\n[[model]]\nname = \"objects\"\npath = \"{{model}}\"\nscore_threshold = 0.3\n\
         [[camera]]\nname = \"door\"\nsource = {{ type = \"video\", url = {:?}, repeat = true }}\n\
         [camera.track]\nclasses = [\"person\"]\n[[camera.line]]\nname = \"middle\"\npoints = [[0.5, 0.0], [0.5, 1.0]]\n\
         [[camera.zone]]\nname = \"here\"\nhold = \"10 s\"\ndwell = \"0.1 s\"\n\
         [[sink]]\ntype = \"file\"\npath = \"{{dir}}/events.jsonl\"\nmessages = [\"events\"]\n{}",
        films.path().display(),
        film(films.path()),
        sink(&broker, &folder.path().display().to_string())
    );
    let mut daemon = Daemon::start(&text);
    let reader = broker.reader("visiond/gate/cameras/door/state", &["-u", "guest", "-P", "s3cret"]);
    let state = || reader.messages().pop().map_or(Value::Null, |state| state.json());
    let seen = |daemon: &Daemon, phase: &str, reason: &str| {
        let is = |event: &Value| event["rule"] == "here" && event["kind"] == "zone" && event["phase"] == phase;
        daemon.messages("events.jsonl").iter().filter(|event| is(event)).any(|event| event["reason"] == reason)
    };
    let crossings =
        || state()["lines"]["middle"].as_object().map(|sides| sides.values().filter_map(Value::as_u64).sum());
    daemon.wait_until("crossings and a visit", |_| {
        crossings() >= Some(2_u64) && state()["zones"]["here"]["events"]["zone"]["under_way"].as_u64() >= Some(1)
    });
    publish(&broker, "home", "door/rules/here/enabled/set", "OFF", &[]);
    daemon.wait_until("the end of the visit", |daemon| seen(daemon, "end", "rule_off"));
    daemon.wait_until("the state", |_| {
        let state = state();
        state["settings"]["rules"]["here"]["enabled"] == false
            && state["zones"]["here"]["events"]["zone"]["under_way"] == 0
    });
    assert_valid(&state());
    let begun = state()["zones"]["here"]["events"]["zone"]["begun"].as_u64().unwrap();
    assert!(begun >= 1, "totals stay");

    let http = Place::socket(&mut daemon);
    let post = |path: &str, body: &str| {
        let answer = http.ask("POST", &format!("/api/v1/cameras/{path}"), &["Content-Type: application/json"], body);
        (answer.status, answer.json())
    };
    let (status, settings) = post("door/rules/here/reset", "");
    assert_eq!((status, &settings["rules"]["here"]), (200, &json!({ "enabled": false, "min_score": 0.0 })));
    assert_eq!(errors(&settings), [""; 0]);
    daemon.wait_until("totals of 0", |_| {
        let events = &state()["zones"]["here"]["events"];
        events["zone"]["begun"] == 0 && events["dwell"]["begun"] == 0
    });
    publish(&broker, "home", "door/rules/middle/reset/set", "PRESS", &[]);
    daemon.wait_for_log("command: camera door, middle: reset totals");
    daemon.wait_until("few crossings", |_| crossings() < Some(2));

    assert_eq!(post("door/rules/here/settings", "{\"enabled\":true,\"min_score\":0.125}").0, 200);
    let firsts = |daemon: &Daemon| {
        let is = |event: &&Value| event["kind"] == "zone" && event["phase"] == "begin" && event["totals"]["begun"] == 1;
        daemon.messages("events.jsonl").iter().filter(is).count()
    };
    daemon.wait_until("another visit that is the first", |daemon| firsts(daemon) == 2);
    for (path, body, wanted) in [
        ("gone/settings", "{\"enabled\":true}", 404),
        ("door/rules/gone/settings", "{\"enabled\":true}", 404),
        ("door/rules/gone/reset", "", 404),
        ("door/settings", "{\"score_threshold\":2}", 400),
        ("door/settings", "{}", 400),
        ("door/settings", "{\"colour\":1}", 422),
        ("door/settings", "no json", 400),
    ] {
        let (status, problem) = post(path, body);
        assert_eq!((status, problem["status"].as_u64()), (wanted, Some(u64::from(wanted))), "{path} {body}: {problem}");
    }
    let foreign = http.ask("POST", "/api/v1/cameras/door/rules/here/reset", &["Origin: http://evil.example"], "");
    assert_eq!(foreign.status, 403);
    // Killed right after a reset, it goes on from 0.
    publish(&broker, "home", "door/rules/here/enabled/set", "OFF", &[]);
    daemon.wait_until("the zone to be off", |_| state()["settings"]["rules"]["here"]["enabled"] == false);
    assert_eq!(post("door/rules/here/reset", "").0, 200);
    daemon.signal(libc::SIGKILL);
    daemon.finish();
    let mut daemon = Daemon::start(&text);
    let is_begin = |event: &Value| event["kind"] == "zone" && event["phase"] == "begin";
    daemon.wait_until("a visit", |daemon| daemon.messages("events.jsonl").iter().any(is_begin));
    let events = daemon.messages("events.jsonl");
    assert_eq!(events.iter().find(|event| is_begin(event)).unwrap()["totals"]["begun"], 1);
    assert_eq!(daemon.terminate().status.code(), Some(0));
}
