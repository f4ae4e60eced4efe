//! A durable sink as a user has it: the broker is away, the daemon is killed, and everything that it accepted arrives.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as arranged")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::{Daemon, root, run, stderr};

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

/// What a log calls accepted: each camera's messages by their ids, in order.
fn accepted(log: &str, into: &mut BTreeMap<String, Vec<String>>) {
    for line in log.lines() {
        let Some((_, words)) = line.split_once("sink mqtt: accepted ") else { continue };
        let words: Vec<_> = words.split(' ').collect();
        into.entry(words[1].to_owned()).or_default().push(words[0].to_owned());
    }
}

#[test]
fn what_was_accepted_arrives_in_order_though_the_broker_was_away_and_the_daemon_killed() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("made/where/missing");
    let mut broker = Mosquitto::start();
    broker.end(libc::SIGKILL);
    let config = config(&broker, &spool, "");
    let mut expected = BTreeMap::new();
    for _ in 0..2 {
        let daemon = Daemon::start(&config);
        std::thread::sleep(Duration::from_secs(2));
        daemon.signal(libc::SIGKILL);
        accepted(&daemon.finish().log, &mut expected);
    }
    assert!(expected.len() == 2 && expected.values().all(|ids| ids.len() > 20), "{expected:?}");

    broker.resume();
    let reader = broker.reader("visiond/gate/cameras/+/detections", &[]);
    let mut daemon = Daemon::start(&config);
    let before: usize = expected.values().map(Vec::len).sum();
    daemon.wait_until("what was kept, and more", |_| reader.under("/detections").len() > before + 50);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("messages of before are in the spool"), "{}", ended.log);
    accepted(&ended.log, &mut expected);

    let mut arrived: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for message in reader.under("/detections") {
        let json = message.json();
        let (camera, id) = (json["camera"].as_str().unwrap().to_owned(), json["id"].as_str().unwrap().to_owned());
        match lines.insert(id.clone(), message.payload.clone()) {
            Some(before) => assert_eq!(before, message.payload, "sent again, it is the same"),
            None => arrived.entry(camera).or_default().push(id),
        }
    }
    assert_eq!(arrived, expected);
}

#[test]
fn a_durable_sink_says_what_it_needs() {
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
    assert!(said.contains("`durable` is for sinks that talk to a broker, not for \"stdout\": leave it out"), "{said}");
    let (status, said) = check(&text.replace("durable = true", "durable = true\nspool_sync = \"1 ms\""));
    assert_ne!(status, Some(0));
    assert!(said.contains("spool_sync"), "{said}");

    // Two processes never share a spool.
    let mut first = Daemon::start(&text);
    first.wait_until("the spool", |_| folder.path().join("lock").exists());
    let second = Daemon::start(&text).finish();
    assert_ne!(second.status.code(), Some(0));
    assert!(second.log.contains("is in use by another process: end that one"), "{}", second.log);
    assert_eq!(first.terminate().status.code(), Some(0));
}
