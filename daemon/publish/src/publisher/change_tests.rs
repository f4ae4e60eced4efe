//! Sinks that are added, removed and changed while messages go out.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use visiond_config::types::UnixSinkConfig;
use visiond_system::testing::{hang, wait_until};

use visiond_flow::testing::door_message as message;

use super::tests::*;
use super::*;

fn change(publisher: &Publisher, sinks: &[SinkConfig]) {
    publisher.change(publisher.prepare(sinks, IfUnusable::Refuse).unwrap()).unwrap().close(hang());
}

fn named(name: &str, kind: SinkKind) -> SinkConfig {
    SinkConfig { name: name.into(), ..sink(kind) }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn sinks_come_and_go_and_the_one_that_stays_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stays = named("stays", file_kind(&path("stays"), 0, 5));
    let publisher = Publisher::start(std::slice::from_ref(&stays), &context(), &Stop::new().unwrap()).unwrap();
    let mut comes = Vec::new();
    for round in 0..20 {
        let other = named("other", file_kind(&path(&format!("{round}")), 0, 5));
        // The order of the sinks does not matter.
        let sinks = if round % 2 == 0 { [stays.clone(), other] } else { [other, stays.clone()] };
        change(&publisher, &sinks);
        (round * 10..round * 10 + 10).for_each(|sequence| publisher.publish(&message(sequence, 1)));
        comes.push(round);
        if round == 10 {
            change(&publisher, std::slice::from_ref(&stays));
        }
    }
    publisher.close(hang());
    assert_eq!(sequences(&path("stays")), (0..200).collect::<Vec<_>>());
    for round in comes {
        assert_eq!(sequences(&path(&format!("{round}"))), (round * 10..round * 10 + 10).collect::<Vec<_>>());
    }
}

#[test]
fn a_sink_that_cannot_be_opened_leaves_all_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (good, new) = (folder.path().join("good"), folder.path().join("new.sock"));
    let stays = sink(file_kind(&good, 0, 5));
    let publisher = Publisher::start(std::slice::from_ref(&stays), &context(), &Stop::new().unwrap()).unwrap();
    let bad = named("bad", file_kind(Path::new("/nowhere/at/all"), 0, 5));
    let socket = named("socket", SinkKind::Unix(unix_kind(&new)));
    let error = publisher.prepare(&[socket, bad], IfUnusable::Refuse).err().unwrap();
    assert!(error.to_string().starts_with("sink bad: cannot write /nowhere/at/all"), "{error}");
    assert!(!new.exists(), "what was opened for it is taken back");
    publisher.publish(&message(7, 0));
    publisher.close(hang());
    assert_eq!(sequences(&good), [7]);
}

#[test]
fn readers_stay_connected_when_their_socket_is_set_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.sock");
    let socket = |limits: UnixSinkConfig| sink(SinkKind::Unix(limits));
    let publisher = Publisher::start(&[socket(unix_kind(&path))], &context(), &Stop::new().unwrap()).unwrap();
    let reader = UnixStream::connect(&path).unwrap();
    wait_until("the reader", || publisher.counts()[0].readers == 1);
    publisher.publish(&message(0, 0));
    change(&publisher, &[socket(UnixSinkConfig { mode: 0o660, max_readers: 1, ..unix_kind(&path) })]);
    publisher.publish(&message(1, 0));
    wait_until("the new mode", || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777 == 0o660);
    let turned_away = UnixStream::connect(&path).unwrap();
    wait_until("the new limit", || publisher.counts()[0].readers_refused == 1);
    drop(turned_away);
    let only_detections = SinkConfig { only_detections: true, ..socket(unix_kind(&path)) };
    change(&publisher, &[only_detections]);
    (2..4).for_each(|sequence| publisher.publish(&message(sequence, sequence as usize % 2)));
    publisher.close(hang());
    let lines = BufReader::new(reader).lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()));
    let sequences: Vec<_> = lines.map(|line| line.unwrap()["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [0, 1, 3]);
}

#[test]
fn a_file_goes_on_with_another_rotation_and_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let publisher = Publisher::start(&[sink(file_kind(&path, 0, 5))], &context(), &Stop::new().unwrap()).unwrap();
    (10..30).for_each(|sequence| publisher.publish(&message(sequence, 1)));
    wait_until("the first", || publisher.counts()[0].written == 20);
    change(&publisher, &[named("other", file_kind(&path, 4096, 3))]);
    publisher.publish(&message(30, 1));
    let counts = publisher.close(hang()).remove(0);
    assert_eq!((counts.name.as_str(), counts.written, counts.lost), ("other", 21, 0), "the counts go on");
    assert_eq!(sequences(&path), [30]);
    assert_eq!(sequences(&super::file::numbered(&path, 1)), (10..30).collect::<Vec<_>>());
}

#[test]
fn a_hundred_changes_leave_no_thread_behind() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = Publisher::start(&[], &context(), &Stop::new().unwrap()).unwrap();
    let sink = |n: usize| named("s", file_kind(&folder.path().join(format!("{}", n % 2)), 0, 5));
    (0..100).for_each(|n| change(&publisher, &[sink(n)]));
    // Other tests have threads in this process too.
    assert!(threads() < 90, "{}", threads());
}

#[test]
fn the_last_reader_that_leaves_ends_the_daemon_and_the_first_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Stop::new().unwrap();
    let file = sink(file_kind(&folder.path().join("out"), 0, 5));
    let stdout = named("stdout", SinkKind::Stdout);
    let publisher = Publisher::start(&[stdout.clone(), file.clone()], &context(), &stop).unwrap();
    publisher.shared.sinks()[0].handle.gone.store(true, Ordering::SeqCst);
    assert!(!publisher.shared.end_without_readers() && !stop.is_raised());
    change(&publisher, &[file, stdout.clone()]);
    assert!(!stop.is_raised() && publisher.failure().is_none());
    change(&publisher, &[stdout]);
    assert!(stop.is_raised() && matches!(publisher.failure(), Some(PublishError::ReaderGone)));
}
