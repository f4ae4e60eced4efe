//! A durable sink: the broker is away, the daemon is killed, and everything that it accepted arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use visiond_tests::mosquitto::{Message, Mosquitto};
use visiond_tests::{Daemon, root, run, stderr, wait_until};

/// Two cameras and a durable sink.
fn config(broker: &Mosquitto, spool: &Path, more: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        r#"
[device]
name = "gate"
[log]
level = "trace"
target = "stderr"
[engine]
backend = "rten"
threads = 1
[[model]]
name = "bars"
path = "{}"
[[camera]]
name = "door"
source = {{ type = "pattern", width = 128, height = 64, fps = 20 }}
[[camera]]
name = "yard"
source = {{ type = "pattern", width = 128, height = 64, fps = 30 }}
[[sink]]
type = "mqtt"
url = "mqtt://127.0.0.1:{}"
durable = true
spool_directory = "{}"
{more}
"#,
        tiny.display(),
        broker.port,
        spool.display()
    )
}

/// Returns the messages that a log calls accepted: each camera's ids, in order.
fn accepted(log: &str, into: &mut BTreeMap<String, Vec<String>>) {
    for line in log.lines() {
        let Some((_, words)) = line.split_once("sink mqtt: accepted ") else { continue };
        let words: Vec<_> = words.split(' ').collect();
        into.entry(words[1].to_owned()).or_default().push(words[0].to_owned());
    }
}

#[test]
fn accepted_messages_arrive_in_order_though_the_broker_was_away_and_the_daemon_killed() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("made/where/missing");
    let mut broker = Mosquitto::start();
    broker.end(libc::SIGKILL);
    let config = config(&broker, &spool, "");
    let mut expected = BTreeMap::new();
    for _ in 0..2 {
        let mut daemon = Daemon::start(&config);
        daemon.wait_until("both cameras' messages", |daemon| {
            let mut found = BTreeMap::new();
            accepted(&daemon.log(), &mut found);
            found.len() == 2 && found.values().all(|ids| ids.len() > 20)
        });
        daemon.signal(libc::SIGKILL);
        accepted(&daemon.finish().log, &mut expected);
    }

    broker.resume();
    let reader = broker.reader("visiond/gate/cameras/+/detections", &[]);
    let mut daemon = Daemon::start(&config);
    let before: usize = expected.values().map(Vec::len).sum();
    daemon.wait_until("what was kept, and more", |_| reader.under("/detections").len() > before + 50);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("messages from an earlier run are in the spool"), "{}", ended.log);
    accepted(&ended.log, &mut expected);

    // Messages that were not sent within the time limit of the end are in the spool, too: the next start sends them.
    let all: BTreeSet<&String> = expected.values().flatten().collect();
    let has_all = || {
        let ids: BTreeSet<String> = reader.under("/detections").iter().map(id).collect();
        all.iter().all(|id| ids.contains(*id))
    };
    let daemon = Daemon::start(&config);
    wait_until("everything that was accepted", has_all);
    drop(daemon);

    let mut arrived: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for message in reader.under("/detections") {
        let id = id(&message);
        match lines.insert(id.clone(), message.payload.clone()) {
            Some(before) => assert_eq!(before, message.payload, "sent again, it is the same"),
            None if all.contains(&id) => {
                let camera = message.json()["camera"].as_str().unwrap().to_owned();
                arrived.entry(camera).or_default().push(id);
            }
            None => {}
        }
    }
    assert_eq!(arrived, expected);
}

fn id(message: &Message) -> String {
    message.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_durable_sink_reports_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Mosquitto::start();
    let path = folder.path().join("visiond.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let output = run(["check".as_ref(), path.as_os_str()]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output))
    };
    let text = config(&broker, folder.path(), "");
    assert_eq!(check(&text).0, Some(0), "{}", check(&text).1);
    let (status, said) = check(&format!("{text}\n[[sink]]\ntype = \"stdout\"\ndurable = true\n"));
    assert_ne!(status, Some(0));
    assert!(said.contains("`durable` requires a sink for a broker, not \"stdout\": remove it"), "{said}");
    let (status, said) = check(&text.replace("durable = true", "durable = true\nspool_sync = \"1 ms\""));
    assert_ne!(status, Some(0));
    assert!(said.contains("spool_sync"), "{said}");

    // Two processes never share a spool.
    let mut first = Daemon::start(&text);
    first.wait_until("the spool", |_| folder.path().join("lock").exists());
    let second = Daemon::start(&text).finish();
    assert_ne!(second.status.code(), Some(0));
    assert!(second.log.contains("is in use by another process: end that process"), "{}", second.log);
    assert_eq!(first.terminate().status.code(), Some(0));
}
