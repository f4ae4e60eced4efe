//! The MQTT sink against Mosquitto; `mosquitto_sub` reads the messages.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::mosquitto::{Message, Mosquitto, Reader};
use visiond_tests::{Daemon, certificates, root, wait_until};

use crate::documents::assert_valid;

/// A device called gate whose camera door sees one bar of each of eight colours, and a sink with these keys.
fn config(sink: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        r#"
[device]
name = "gate"
[engine]
backend = "rten"
threads = 1
[[model]]
name = "bars"
path = "{}"
[[camera]]
name = "door"
source = {{ type = "pattern", width = 128, height = 64, fps = 20 }}
[[sink]]
type = "mqtt"
{sink}
"#,
        tiny.display()
    )
}

fn url(broker: &Mosquitto) -> String {
    format!("url = \"mqtt://127.0.0.1:{}\"\n", broker.port)
}

fn sequences(reader: &Reader) -> Vec<u64> {
    reader.under("/detections").iter().map(|message| message.json()["sequence"].as_u64().unwrap()).collect()
}

/// Returns each message's number from its id; it has no gaps, even if a busy machine drops frames.
fn counts(reader: &Reader) -> Vec<u64> {
    let count = |message: &Message| message.json()["id"].as_str()?.rsplit_once('-')?.1.parse().ok();
    reader.under("/detections").iter().map(|message| count(message).unwrap()).collect()
}

/// Returns the log of a daemon after a regular end.
fn log_after(daemon: Daemon) -> String {
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}

/// Starts a daemon, waits until its log holds `words`, and ends it.
fn log_with(config: &str, words: &str) -> String {
    let mut daemon = Daemon::start(config);
    daemon.wait_for_log(words);
    log_after(daemon)
}

/// Returns the number of connections so far.
fn connections(broker: &Mosquitto) -> usize {
    broker.log().matches("New connection from").count()
}

fn last(messages: &[Message]) -> Option<String> {
    messages.last().map(Message::text)
}

#[test]
fn detections_state_and_availability_arrive_by_both_versions_and_every_quality() {
    for (protocol, qos) in [("5", 0), ("5", 1), ("5", 2), ("3.1.1", 1), ("3.1.1", 2)] {
        let broker = Mosquitto::start();
        let reader = broker.reader("visiond/gate/#", &[]);
        let sink =
            format!("{}protocol = \"{protocol}\"\nqos_detections = {qos}\nmessage_expiry = \"10h\"\n", url(&broker));
        let mut daemon = Daemon::start(&config(&sink));
        daemon.wait_until("twenty messages", |_| reader.under("/detections").len() >= 20);
        wait_until("the state", || reader.under("/state").iter().any(|state| state.json()["occupied"] == true));

        let detections = reader.under("/detections");
        for message in &detections {
            let (json, facts) = (message.json(), format!("{protocol} {qos}: {message:?}"));
            assert_eq!(message.topic, "visiond/gate/cameras/door/detections", "{facts}");
            assert_eq!((json["camera"].as_str(), message.retained, message.qos), (Some("door"), false, qos), "{facts}");
            assert!(!message.payload.ends_with(b"\n"), "{facts}");
            if protocol == "5" {
                assert_eq!(message.user_properties, format!("id:{}", json["id"].as_str().unwrap()), "{facts}");
                assert_eq!(message.content_type, "application/json", "{facts}");
                assert!((30_000..=36_000).contains(&message.expiry.parse::<u64>().unwrap()), "{facts}");
            }
        }
        let order = sequences(&reader);
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{protocol} {qos}: {order:?}");

        for message in detections.iter().chain(&reader.under("/state")) {
            assert_valid(&message.json());
        }

        // A later reader gets the retained messages.
        let kept = broker.retained("visiond/gate/#");
        let state = kept.iter().find(|message| message.topic.ends_with("/cameras/door/state")).unwrap().json();
        assert_eq!((state["phase"].as_str(), state["counts"]["red"].as_u64()), (Some("streaming"), Some(1)), "{state}");
        assert_eq!((state["detections"].as_u64(), state["model"].as_str()), (Some(8), Some("bars")), "{state}");
        assert!(kept.iter().any(|message| message.topic.ends_with("/availability") && message.text() == "online"));
        assert!(!kept.iter().any(|message| message.topic.ends_with("/detections")), "{kept:?}");

        let log = log_after(daemon);
        wait_until("its leave", || last(&reader.under("/availability")).as_deref() == Some("offline"));
        assert!(log.contains("sink mqtt: connected"), "{log}");
        assert!(
            !broker.log().contains("exceeded timeout") && !broker.log().contains("protocol error"),
            "{}",
            broker.log()
        );
    }
}

#[test]
fn a_killed_daemon_is_offline_by_its_last_will() {
    let broker = Mosquitto::start();
    let reader = broker.reader("visiond/gate/availability", &[]);
    let mut daemon = Daemon::start(&config(&url(&broker)));
    daemon.wait_until("it to be online", |_| last(&reader.messages()).as_deref() == Some("online"));
    daemon.signal(libc::SIGKILL);
    wait_until("the last will", || last(&reader.messages()).as_deref() == Some("offline"));
    assert_eq!(last(&broker.retained("visiond/gate/availability")).as_deref(), Some("offline"));
}

#[test]
fn a_restarted_broker_gets_everything_in_order_and_the_state_again() {
    for (protocol, qos) in [("5", 1), ("3.1.1", 2)] {
        // It keeps the reader's session on disk, so that a missing message was lost on its way to the broker.
        let window = if protocol == "5" { "max_inflight_messages 5\n" } else { "" };
        let mut broker = Mosquitto::start_with(|_| {
            format!("allow_anonymous true\npersistence true\nmax_queued_messages 100000\n{window}")
        });
        let reader = broker.reader("visiond/#", &["-c", "-q", "1"]);
        let sink = format!("{}protocol = \"{protocol}\"\nqos_detections = {qos}\nqueue = 10000\n", url(&broker));
        let mut daemon = Daemon::start(&config(&sink));
        // Published while the reader listens, not retained from before.
        let online = || reader.under("/availability").iter().filter(|m| m.text() == "online" && !m.retained).count();
        for round in 1..=3 {
            let before = sequences(&reader).len();
            daemon.wait_until("messages", |_| sequences(&reader).len() >= before + 10);
            let before = online();
            broker.end(libc::SIGTERM);
            daemon
                .wait_until("the loss to be logged", |daemon| daemon.log().matches("connection lost").count() == round);
            broker.resume();
            daemon.wait_until("it to be online again", |_| online() > before);
        }
        let before = sequences(&reader).len();
        daemon.wait_until("messages", |_| sequences(&reader).len() >= before + 10);
        let log = log_after(daemon);
        let sent = counts(&reader);
        let mut all = sent.clone();
        all.sort_unstable();
        all.dedup();
        let expected: Vec<u64> = (all[0]..all[0] + all.len() as u64).collect();
        assert_eq!(all, expected, "{protocol}: without a gap\n{log}");
        // Messages are repeated only after the restart, from the first unacknowledged one on.
        let back = sent.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        assert!(back <= 3, "{protocol}: in order each time: {sent:?}");
        for (line, times) in [("connection lost", 3), ("connected after", 3)] {
            assert_eq!(log.matches(line).count(), times, "{line}:\n{log}");
        }
    }
}

/// Returns the pauses before further attempts that a log at level debug has.
fn pauses(log: &str) -> Vec<f32> {
    let pause = |line: &str| line.split_once("next attempt in ")?.1.split_once(" s")?.0.parse().ok();
    log.lines().filter_map(pause).collect()
}

/// A log has this once: connections are lost again and again.
const IN_A_ROW: &str = "4 connections in a row were lost within 10 s";

/// Checks the log of a sink whose connections are lost again and again, and returns what comes after [`IN_A_ROW`] in its line.
fn assert_few_lines_and_growing_pauses(log: &str) -> &str {
    assert_eq!(log.matches(IN_A_ROW).count(), 1, "{log}");
    let (until, after) = log.split_once(IN_A_ROW).unwrap();
    for line in ["connection lost", "not connected", "connected after"] {
        assert!(!after.contains(line), "{line}:\n{log}");
    }
    let pauses = pauses(until);
    assert!(pauses.len() >= 4 && pauses[pauses.len() - 4..].is_sorted_by(|a, b| a < b), "{pauses:?}\n{log}");
    after.lines().next().unwrap()
}

fn start_with_debug_lines(sink: &str) -> Daemon {
    Daemon::start_with(&config(sink), |command| {
        command.arg("-v");
    })
}

#[test]
fn two_daemons_with_one_client_id_say_so_once_and_retry_ever_more_slowly() {
    for (sink, remedy) in [
        (
            "protocol = \"5\"\n",
            "another client uses the client id visiond-gate-mqtt, give each machine its own `name` under [device]",
        ),
        (
            "protocol = \"3.1.1\"\nclient_id = \"jet\"\n",
            "another client uses the client id jet, give each its own `client_id`",
        ),
    ] {
        let broker = Mosquitto::start();
        let sink = format!("{}{sink}", url(&broker));
        let mut daemons = [start_with_debug_lines(&sink), start_with_debug_lines(&sink)];
        for daemon in &mut daemons {
            daemon.wait_for_log(IN_A_ROW);
        }
        let before = connections(&broker);
        daemons[0].wait_until("further attempts", |_| connections(&broker) >= before + 2);
        for daemon in &daemons {
            let log = daemon.log();
            let line = assert_few_lines_and_growing_pauses(&log);
            assert!(line.contains(remedy), "{log}");
        }
        if sink.contains("3.1.1") {
            let [left, mut stays] = daemons;
            log_after(left);
            stays.wait_for_log("connection stable again");
        }
    }
}

#[test]
fn a_broker_that_says_that_the_session_is_taken_over_is_understood() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = format!("url = \"mqtt://{}\"\nprotocol = \"5\"\n", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // CONNECT is one packet of less than 128 bytes.
            let mut connect = [0; 2];
            stream.read_exact(&mut connect).unwrap();
            stream.read_exact(&mut vec![0; usize::from(connect[1])]).unwrap();
            // CONNACK, and DISCONNECT with 0x8E, session taken over.
            stream.write_all(&[0x20, 3, 0, 0, 0, 0xE0, 2, 0x8E, 0]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let mut daemon = start_with_debug_lines(&sink);
    let remedy = "another client uses the client id visiond-gate-mqtt: give each machine its own `name` under [device]; retrying";
    daemon.wait_for_log(remedy);
    daemon.wait_for_log(IN_A_ROW);
    daemon.wait_until("further attempts", |daemon| pauses(&daemon.log()).len() >= 6);
    let log = log_after(daemon);
    let line = assert_few_lines_and_growing_pauses(&log);
    assert!(line.contains(remedy), "{log}");
}

#[test]
fn a_wrong_login_is_reported_and_a_reload_with_the_right_one_connects() {
    let broker = Mosquitto::start_with(|folder| {
        let passwords = folder.join("passwords");
        let made = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&passwords).args(["jet", "s3cret"]).status();
        assert!(made.unwrap().success());
        format!("allow_anonymous false\npassword_file {}\n", passwords.display())
    });
    let reader = broker.reader("visiond/gate/#", &["-u", "jet", "-P", "s3cret"]);
    for protocol in ["5", "3.1.1"] {
        let sink = |login: &str| format!("{}protocol = \"{protocol}\"\n{login}", url(&broker));
        let words = "the broker requires a user and a password: set `login`";
        let mut daemon = Daemon::start(&config(&sink("")));
        daemon.wait_for_log(words);
        // Before a third attempt, it has been refused again.
        let before = connections(&broker);
        daemon.wait_until("further attempts", |_| connections(&broker) >= before + 2);
        let log = log_after(daemon);
        assert_eq!(log.matches(words).count(), 1, "once an outage\n{log}");

        let logins = tempfile::tempdir().unwrap();
        let (wrong, right) = (logins.path().join("wrong"), logins.path().join("right"));
        std::fs::write(&wrong, "jet:hunter2\n").unwrap();
        std::fs::write(&right, "jet:s3cret\n").unwrap();
        let with = |file: &Path| config(&sink(&format!("login = \"{}\"\n", file.display())));
        let mut daemon = Daemon::start(&with(&wrong));
        daemon.wait_for_log("rejects the user and password of the login");
        let before = reader.under("/detections").len();
        daemon.reconfigure(&with(&right));
        daemon.wait_until("messages", |_| reader.under("/detections").len() > before);
        let log = log_after(daemon);
        assert!(!log.contains("hunter2") && !log.contains("s3cret"), "{log}");
    }
}

#[test]
fn tls_proves_both_ends_and_reports_what_is_wrong() {
    let broker = Mosquitto::start_with(|folder| {
        certificates::make(folder, "DNS:localhost");
        let file = |name: &str| folder.join(name).display().to_string();
        format!(
            "cafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\nuse_identity_as_username true\n",
            file("ca.pem"),
            file("server.pem"),
            file("server.key")
        )
    });
    let pem = |name: &str| broker.path(name).display().to_string();
    let (ca, certificate, key) = (pem("ca.pem"), pem("device.pem"), pem("device.key"));
    let reader = broker.reader("visiond/gate/#", &["--cafile", &ca, "--cert", &certificate, "--key", &key]);
    let sink = |host: &str, more: &str| config(&format!("url = \"mqtts://{host}:{}\"\n{more}", broker.port));
    let trust = format!("ca = \"{ca}\"\n");
    let proof = format!("certificate = \"{certificate}\"\nkey = \"{key}\"\n");

    let mut daemon = Daemon::start(&sink("localhost", &format!("{trust}{proof}")));
    daemon.wait_until("messages", |_| reader.under("/detections").len() > 5);
    log_after(daemon);
    log_with(&sink("localhost", &trust), "the broker rejects this device's certificate");
    let other = sink("localhost", &format!("ca = \"{}\"\n{proof}", pem("other-ca.pem")));
    log_with(&other, "unknown certificate issuer: set `ca` to the signing CA");
    let address = sink("127.0.0.1", &format!("{trust}{proof}"));
    log_with(&address, "the broker's certificate is not for 127.0.0.1");
    let plain = Mosquitto::start();
    let no_tls = config(&format!("url = \"mqtts://localhost:{}\"\n{trust}", plain.port));
    log_with(&no_tls, "if that port has no TLS, use mqtt:// in `url`");

    // Files that can never work are errors before anything runs.
    let refused =
        Daemon::start(&sink("localhost", &format!("{trust}certificate = \"{ca}\"\nkey = \"{ca}\"\n"))).finish();
    assert!(refused.log.contains("has no key in PEM format"), "{}", refused.log);
    assert_ne!(refused.status.code(), Some(0));
}

#[test]
fn messages_that_the_broker_refused_arrive_once_it_allows_them() {
    let broker = Mosquitto::start_with(|folder| {
        let rights = folder.join("rights");
        std::fs::write(&rights, "topic readwrite visiond/gate/availability\ntopic read #\n").unwrap();
        format!("allow_anonymous true\nacl_file {}\n", rights.display())
    });
    let reader = broker.reader("visiond/gate/#", &[]);
    let mut daemon = Daemon::start(&config(&format!("{}queue = 10000\n", url(&broker))));
    daemon.wait_until("it to be online", |_| last(&reader.under("/availability")).as_deref() == Some("online"));
    let refused = "the broker refuses a message to visiond/gate/cameras/door/";
    daemon.wait_for_log(refused);
    assert!(reader.under("/detections").is_empty());
    std::fs::write(broker.path("rights"), "topic readwrite #\n").unwrap();
    broker.signal(libc::SIGHUP);
    daemon.wait_until("messages", |_| reader.under("/detections").len() > 100);
    // Of the messages in flight when the rights change, the broker may take a later one before an earlier one is sent again.
    let order = counts(&reader);
    let (mut first, rest) = (order[..20].to_vec(), &order[20..]);
    first.sort_unstable();
    let sequence = [&first, rest].concat();
    assert!(sequence.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order, without a gap: {order:?}");
    daemon.wait_for_log("sink mqtt: the broker accepts the messages of camera door again");
    log_after(daemon);
}

/// The same with a second camera, yard.
fn with_yard(text: &str) -> String {
    format!(
        "{text}[[camera]]\nname = \"yard\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n"
    )
}

#[test]
fn a_camera_that_the_broker_refuses_holds_up_no_other_and_costs_two_lines() {
    let folder = tempfile::tempdir().unwrap();
    let durable = format!("durable = true\nspool_directory = \"{}\"\n", folder.path().join("spool").display());
    for keys in ["queue = 20\n", &durable] {
        let broker = Mosquitto::start_with(|folder| {
            let rights =
                "topic read #\ntopic write visiond/gate/availability\ntopic write visiond/gate/cameras/door/#\n";
            std::fs::write(folder.join("rights"), rights).unwrap();
            format!("allow_anonymous true\nacl_file {}\n", folder.join("rights").display())
        });
        let reader = broker.reader("visiond/gate/#", &[]);
        let mut daemon = Daemon::start(&with_yard(&config(&format!("{}{keys}", url(&broker)))));
        // Lasts longer than several attempts for yard, with many more messages than may be in flight.
        daemon.wait_until("messages of door", |_| reader.under("door/detections").len() > 300);
        assert!(reader.under("yard/detections").is_empty());
        let log = daemon.log();
        let refused = "sink mqtt: the broker refuses a message to visiond/gate/cameras/yard/detections: not authorized; \
                       allow this user to publish there; the messages of camera yard wait";
        assert_eq!((log.matches(refused).count(), log.matches("again").count()), (1, 0), "{log}");
        assert_eq!(log.matches("the broker refuses").count(), 2, "and one line for states and pictures\n{log}");

        std::fs::write(broker.path("rights"), "topic readwrite #\n").unwrap();
        broker.signal(libc::SIGHUP);
        daemon.wait_for_log("sink mqtt: the broker accepts the messages of camera yard again");
        // With a spool, no message is lost.
        let most = if keys == durable { 300 } else { 20 };
        daemon.wait_until("messages of yard", |_| reader.under("yard/detections").len() > most);
        let of_yard: Vec<_> =
            reader.under("yard/detections").iter().map(|one| one.json()["sequence"].as_u64()).collect();
        assert!(of_yard.is_sorted() && (keys != durable || of_yard[0] < Some(20)), "{of_yard:?}");
        daemon.wait_for_log("sink mqtt: the broker accepts states and snapshots again");
        let log = log_after(daemon);
        assert_eq!((log.matches("refuses").count(), log.matches("again").count()), (2, 2), "{log}");
    }
}

/// Returns the data for Home Assistant, by topic.
fn announced(broker: &Mosquitto) -> Vec<(String, Value)> {
    let kept = broker.retained("homeassistant/#");
    kept.iter().map(|message| (message.topic.clone(), message.json())).collect()
}

#[test]
fn home_assistant_finds_a_camera_and_loses_a_removed_one() {
    let broker = Mosquitto::start();
    let reader = broker.reader("visiond/gate/#", &[]);
    // Announcements of another program, and of this device when it had a camera called attic.
    for (topic, text) in [
        ("homeassistant/sensor/visiond_gate/other_fps/config", "{\"origin\":{\"name\":\"other\"}}"),
        ("homeassistant/sensor/visiond_gate/attic_fps/config", "{\"origin\":{\"name\":\"visiond\"}}"),
        ("visiond/gate/cameras/attic/state", "{}"),
    ] {
        let port = broker.port.to_string();
        let sent = Command::new("mosquitto_pub")
            .args(["-h", "127.0.0.1", "-p", &port, "-r", "-t", topic, "-m", text])
            .status();
        assert!(sent.unwrap().success());
    }
    let sink = format!(
        "{}home_assistant = true\ncount_labels = [\"red\", \"white\"]\nsnapshot_interval = \"1s\"\n",
        url(&broker)
    );
    let two = format!(
        "{}[[camera]]\nname = \"yard\"\nsource = {{ type = \"pattern\", width = 128, height = 64 }}\n",
        config(&sink)
    );
    let mut daemon = Daemon::start(&two);
    daemon.wait_until("pictures", |_| {
        let (yard, door) = (reader.under("yard/snapshot").len(), reader.under("door/snapshot").len());
        yard >= 1 && door >= 1 && yard + door >= 3
    });
    let picture = reader.under("door/snapshot").pop().unwrap();
    assert!(picture.payload.starts_with(&[0xff, 0xd8, 0xff]) && picture.payload.ends_with(&[0xff, 0xd9]), "a JPEG");

    wait_until("announcements", || announced(&broker).len() == 13);
    let entities = announced(&broker);
    for (topic, entity) in entities.iter().filter(|(topic, _)| topic.contains("/door_")) {
        assert!(entity["unique_id"].as_str().unwrap().starts_with("visiond_gate_door_"), "{topic}");
        assert_eq!(entity["device"]["identifiers"][0], "visiond_gate_door", "{topic}");
        assert_eq!(entity["device"]["name"], "gate door", "{topic}");
        assert_eq!(entity["availability"][0]["topic"], "visiond/gate/availability", "{topic}");
        let source = entity["state_topic"].as_str().or(entity["topic"].as_str()).unwrap();
        wait_until(&format!("a message at {source}, which {topic} reads"), || !broker.retained(source).is_empty());
        if let Some(template) = entity["value_template"].as_str() {
            assert!(template.starts_with("{{ ") && template.ends_with(" }}"), "{template}");
        }
    }
    let mut ids: Vec<_> = entities.iter().filter_map(|(_, entity)| entity["unique_id"].as_str()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), all), (12, 12), "each entity has an id of its own, and the other program's is left alone");
    let attic = || broker.retained("visiond/gate/cameras/attic/state");
    wait_until("what is left behind to be cleared", || attic().is_empty());

    daemon.reconfigure(&config(&sink));
    wait_until("yard to be gone", || announced(&broker).iter().all(|(topic, _)| !topic.contains("/yard_")));
    wait_until("its state to be gone", || broker.retained("visiond/gate/cameras/yard/#").is_empty());
    assert_eq!(announced(&broker).len(), 7, "the other camera's and the other program's");

    daemon.reconfigure(&config(&sink.replace("home_assistant = true", "home_assistant = false")));
    wait_until("nothing to be announced", || announced(&broker).len() == 1);
    log_after(daemon);
}

#[test]
fn a_missing_camera_is_published_with_its_reason() {
    let broker = Mosquitto::start();
    let reader = broker.reader("visiond/gate/cameras/door/state", &[]);
    let text = config(&url(&broker));
    let (from, to) =
        ("type = \"pattern\", width = 128, height = 64, fps = 20", "type = \"v4l2\", device = \"/dev/video-nowhere\"");
    assert!(text.contains(from));
    let mut daemon = Daemon::start(&text.replace(from, to));
    let waiting = || {
        let states = reader.messages().into_iter().map(|message| message.json());
        states.into_iter().find(|state| state["phase"] == "waiting" && state["reason"].is_string())
    };
    daemon.wait_until("the reason", |_| waiting().is_some());
    let state = waiting().unwrap();
    assert_valid(&state);
    assert_eq!((state["occupied"].as_bool(), state["detections"].as_u64()), (Some(false), Some(0)), "{state}");
    let reason = state["reason"].as_str().unwrap();
    assert!(reason.contains("video-nowhere"), "{reason}");
}

#[test]
fn a_broker_without_retained_messages_or_with_a_lower_quality_gets_the_detections() {
    for (setting, words) in [
        ("retain_available false\n", "the broker retains nothing: a reader"),
        ("max_qos 0\n", "the broker has QoS 0 only: messages"),
        ("retain_available false\nmax_qos 0\n", "the broker retains nothing and has QoS 0 only"),
    ] {
        for protocol in ["5", "3.1.1"] {
            let broker = Mosquitto::start_with(|_| format!("allow_anonymous true\n{setting}"));
            let reader = broker.reader("visiond/gate/#", &["-q", "0"]);
            let sink = format!("{}protocol = \"{protocol}\"\nqos_detections = 2\n", url(&broker));
            let mut daemon = Daemon::start(&config(&sink));
            daemon.wait_until("messages", |_| reader.under("/detections").len() >= 20);
            daemon.wait_until("the state", |_| !reader.under("/state").is_empty());
            let log = daemon.log();
            assert_eq!(log.matches(words).count(), 1, "{setting} {protocol}:\n{log}");
            daemon.signal(libc::SIGKILL);
            wait_until("the will", || last(&reader.under("/availability")).as_deref() == Some("offline"));
        }
    }
}

#[test]
fn what_a_reload_switches_off_does_not_stay_at_the_broker() {
    let broker = Mosquitto::start();
    let on = format!("{}retain = true\nsnapshot_interval = \"1s\"\n", url(&broker));
    let mut daemon = Daemon::start(&config(&on));
    let kept = || {
        let kept =
            broker.retained("#").into_iter().map(|message| message.topic).filter(|topic| !topic.starts_with('$'));
        let mut kept: Vec<_> = kept.collect();
        kept.sort_unstable();
        kept
    };
    let [availability, detections, snapshot, state] =
        ["availability", "cameras/door/detections", "cameras/door/snapshot", "cameras/door/state"];
    let under =
        |prefix: &str, topics: &[&str]| topics.iter().map(|topic| format!("{prefix}/gate/{topic}")).collect::<Vec<_>>();
    daemon.wait_until("everything", |_| kept() == under("visiond", &[availability, detections, snapshot, state]));
    daemon.reconfigure(&config(&url(&broker)));
    daemon.wait_until("it to be cleared", |_| kept() == under("visiond", &[availability, state]));
    daemon.reconfigure(&config(&on));
    daemon.wait_until("everything", |_| kept() == under("visiond", &[availability, detections, snapshot, state]));
    daemon.reconfigure(&config(&format!("{on}topic_prefix = \"other\"\n")));
    daemon
        .wait_until("the new prefix alone", |_| kept() == under("other", &[availability, detections, snapshot, state]));
    // Another name, and switched off at a restart.
    log_after(daemon);
    let renamed = config(&format!("{}topic_prefix = \"other\"\n", url(&broker))).replace("\"door\"", "\"porch\"");
    let mut daemon = Daemon::start(&renamed);
    daemon.wait_until("the new name alone", |_| kept() == under("other", &[availability, "cameras/porch/state"]));
    log_after(daemon);
}

#[test]
fn however_many_cameras_there_are_none_stays_in_home_assistant_that_is_gone() {
    for (cameras, gone) in [(1, 1), (80, 300)] {
        // The tests' own reader gets everything at QoS 2.
        let broker = Mosquitto::start_with(|_| "allow_anonymous true\nmax_queued_messages 0\n".to_owned());
        let mut left = Vec::new();
        for number in 0..gone {
            let entities = (0..12).map(|entity| {
                (
                    format!("homeassistant/sensor/visiond_gate/old{number}_{entity}/config"),
                    "{\"origin\":{\"name\":\"visiond\"}}".to_owned(),
                )
            });
            left.extend(entities);
            left.push((format!("visiond/gate/cameras/old{number}/state"), "{}".to_owned()));
        }
        broker.keep(&left);
        let labels = "count_labels = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\"]\n";
        let mut text = config(&format!("{}home_assistant = true\n{labels}", url(&broker)));
        for number in 1..cameras {
            text += &format!(
                "[[camera]]\nname = \"c{number}\"\nsource = {{ type = \"pattern\", width = 64, height = 48, fps = 0.05 }}\n"
            );
        }
        let mut daemon = Daemon::start(&text);
        let kept = |of: &str| broker.retained("#").iter().filter(|message| message.topic.contains(of)).count();
        daemon.wait_until("the old ones to be gone", |_| kept("/old") == 0);
        daemon.wait_until("the others", |_| kept("homeassistant/") == cameras * 13);
        log_after(daemon);
    }
}
