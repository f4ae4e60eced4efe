//! A durable sink: the broker is away, the daemon is killed, and everything that it accepted arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

    // Messages that were not sent before the deadline of the end are also in the spool: the next start sends them.
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
    let mut second = Daemon::start(&text);
    second.wait_for_log("it is in use by another process: end that process");
    assert_eq!(second.terminate().status.code(), Some(0));
    assert_eq!(first.terminate().status.code(), Some(0));
}

/// Builds the library that makes a disk fail; see spool/disk.c.
fn failing_disk(folder: &Path) -> PathBuf {
    let library = folder.join("disk.so");
    let source = root().join("tests/e2e/spool/disk.c");
    let mut cc = Command::new("cc");
    let built = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

/// Returns everything that the segments would have after a power cut.
fn after_a_power_cut(disk: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(disk).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().starts_with("names-") {
            continue;
        }
        for line in fs::read_to_string(entry.path()).unwrap().lines() {
            let (inode, name) = line.split_once(' ').unwrap();
            if name.ends_with(".spool") {
                bytes.extend(fs::read(disk.join(format!("inode-{inode}"))).unwrap_or_default());
            }
        }
    }
    bytes
}

/// Asserts that each of the messages is in `bytes`.
fn assert_kept(expected: &BTreeMap<String, Vec<String>>, bytes: &[u8]) {
    for id in expected.values().flatten() {
        assert!(bytes.windows(id.len()).any(|part| part == id.as_bytes()), "{id} is not on the disk");
    }
}

#[test]
fn accepted_messages_survive_a_power_cut_though_a_sync_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let library = failing_disk(folder.path());
    let mut broker = Mosquitto::start();
    broker.end(libc::SIGKILL);
    // The first segment's data, two folders, and data again.
    for (number, every) in [(1, "0 s"), (2, "0 s"), (3, "0 s"), (4, "0 s"), (1, "100 ms"), (4, "100 ms")] {
        let (made, disk) = (folder.path().join("on-disk"), folder.path().join("disk"));
        let spool = made.join("spool");
        fs::create_dir(&disk).unwrap();
        let config = config(&broker, &spool, &format!("spool_sync = \"{every}\""));
        let mut daemon = Daemon::start_with(&config, |command| {
            command.env("LD_PRELOAD", &library).env("DISK", &disk).env("FAIL_SYNC", number.to_string());
        });
        daemon.wait_for_log("cannot sync the spool");
        daemon.wait_until("more messages", |daemon| {
            let log = daemon.log();
            let after = log.split_once("cannot sync the spool").unwrap().1;
            after.matches("sink mqtt: accepted").count() > 30 && after.contains("is synced again")
        });
        daemon.signal(libc::SIGKILL);
        let log = daemon.finish().log;
        // With an interval between syncs, later messages may be lost.
        let log = if every == "0 s" { &log } else { log.split_once("cannot sync the spool").unwrap().0 };
        let mut expected = BTreeMap::new();
        accepted(log, &mut expected);
        assert_kept(&expected, &after_a_power_cut(&disk));
        // The new folder's name is synced.
        assert!(disk.join(format!("names-{}", fs::metadata(&made).unwrap().ino())).exists());
        fs::remove_dir_all(&made).unwrap();
        fs::remove_dir_all(&disk).unwrap();
    }
}

#[test]
fn a_segment_that_cannot_be_read_ends_neither_the_daemon_nor_the_sink() {
    let folder = tempfile::tempdir().unwrap();
    let (library, spool) = (failing_disk(folder.path()), folder.path().join("on-disk"));
    let mut broker = Mosquitto::start();
    broker.end(libc::SIGKILL);
    let file = "[[sink]]\ntype = \"file\"\npath = \"{dir}/out.jsonl\"";
    let config = config(&broker, &spool, file);
    let mut runs = [BTreeMap::new(), BTreeMap::new()];
    for run in &mut runs {
        let mut daemon = Daemon::start(&config);
        daemon.wait_until("messages", |daemon| daemon.log().matches("sink mqtt: accepted").count() > 20);
        daemon.signal(libc::SIGKILL);
        accepted(&daemon.finish().log, run);
    }
    let mut segments: Vec<_> = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|end| end == "spool"));
    segments.sort();
    let newest = segments.last().unwrap();
    let bytes = fs::read(newest).unwrap();

    broker.resume();
    let reader = broker.reader("visiond/gate/cameras/+/detections", &[]);
    let mut daemon = Daemon::start_with(&config, |command| {
        command.env("LD_PRELOAD", &library).env("FAIL_READ", newest.file_name().unwrap());
    });
    let older: BTreeSet<&String> = runs[0].values().flatten().collect();
    daemon.wait_until("what the other segment has, and more", |daemon| {
        let ids: BTreeSet<String> = reader.under("/detections").iter().map(id).collect();
        older.iter().all(|id| ids.contains(*id)) && ids.len() > older.len() + 20 && daemon.count("out.jsonl") > 20
    });
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let aside = format!("{}.unreadable", newest.display());
    let words = format!("cannot read {}: Input/output error", newest.display());
    assert!(ended.log.contains(&words) && ended.log.contains(&format!("renamed it to {aside}")), "{}", ended.log);
    assert_eq!(fs::read(aside).unwrap(), bytes, "nothing of it is deleted");
}

#[test]
fn annotated_pictures_survive_a_power_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (library, disk) = (failing_disk(folder.path()), folder.path().join("disk"));
    let pictures = folder.path().join("on-disk");
    fs::create_dir(&disk).unwrap();
    let tiny = root().join("tests/vm/tiny.onnx");
    let config = format!(
        "[[model]]\nname = \"bars\"\npath = {tiny:?}\n[engine]\nbackend = \"rten\"\n[[camera]]\nname = \"door\"\n\
         source = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n\
         annotate = {{ every = 1, directory = {pictures:?} }}\n"
    );
    let mut daemon = Daemon::start_with(&config, |command| {
        command.env("LD_PRELOAD", &library).env("DISK", &disk);
    });
    let stored = || {
        let entries = fs::read_dir(&pictures).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut stored: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "jpg")).collect();
        stored.sort();
        stored
    };
    daemon.wait_until("pictures", |_| stored().len() > 3);
    daemon.signal(libc::SIGKILL);
    daemon.finish();
    let mut stored = stored();
    // The newest may have its name only for a moment.
    stored.pop();
    let names = fs::read_to_string(disk.join(format!("names-{}", fs::metadata(&pictures).unwrap().ino()))).unwrap();
    for path in stored {
        let inode = fs::metadata(&path).unwrap().ino();
        assert!(names.contains(&format!("{inode} {}\n", path.file_name().unwrap().to_str().unwrap())), "{names}");
        let (on_disk, whole) = (fs::read(disk.join(format!("inode-{inode}"))).unwrap(), fs::read(&path).unwrap());
        assert!(on_disk == whole, "{} has {} bytes of {}", path.display(), on_disk.len(), whole.len());
    }
}
