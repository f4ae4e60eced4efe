//! The sinks with real files, real sockets and real full disks.

#![allow(clippy::unwrap_used)]

mod change;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use visiond_config::types::{FileSinkConfig, SinkConfig, SinkKind, UnixSinkConfig, WhenFull};
use visiond_message::status::SinkCounts;
use visiond_message::testing::door_message as message;
use visiond_message::{EmbeddingMessage, Message};
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_system::testing::{TinyDisk, finishes, hang, make_fifo, never, wait_until};

use super::{PublishError, Publisher};
use crate::sink::SinkContext;

fn line_bytes(sequence: u64, detections: usize) -> u64 {
    message(sequence, detections).to_line().len() as u64
}

pub fn sink(kind: SinkKind) -> SinkConfig {
    SinkConfig {
        name: "test".into(),
        kind,
        cameras: Vec::new(),
        only_detections: false,
        queue: 10_000,
        when_full: WhenFull::DropOldest,
        ..SinkConfig::default()
    }
}

pub fn file_kind(path: &Path, rotate_bytes: u64, rotate_keep: u32) -> SinkKind {
    SinkKind::File(FileSinkConfig { path: path.to_owned(), rotate_bytes, rotate_keep })
}

pub fn unix_kind(path: &Path) -> UnixSinkConfig {
    UnixSinkConfig { path: path.to_owned(), mode: 0o600, max_readers: 64, reader_buffer_bytes: 1 << 20 }
}

fn start(config: SinkConfig) -> Publisher {
    Publisher::start(&[config], &context(), &Stop::new().unwrap()).unwrap()
}

/// The context of a process without cameras.
pub fn context() -> SinkContext {
    SinkContext { live: visiond_live::Live::new(), device: "test".into(), commander: None }
}

/// Publishes each of `sequences` and closes the publisher.
fn publish_all(config: SinkConfig, sequences: std::ops::Range<u64>) -> SinkCounts {
    let publisher = start(config);
    sequences.for_each(|sequence| publisher.publish(&message(sequence, 1)));
    publisher.close(hang()).remove(0)
}

/// Returns the numbers of a file's messages; fails on half a line.
pub fn sequences(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "half a line at the end of {}", path.display());
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["sequence"].as_u64().unwrap())
        .collect()
}

fn wait_for_written(publisher: &Publisher, n: u64) {
    wait_until("the sink", || publisher.counts()[0].written >= n);
}

#[test]
fn a_check_names_the_key_of_each_sink_that_could_not_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("empty.pem"), "no certificate").unwrap();
    fs::write(path("file"), "").unwrap();
    let login = path("login");
    fs::write(&login, "user:password\n").unwrap();
    fs::set_permissions(&login, fs::Permissions::from_mode(0o600)).unwrap();
    let found = |kind: &str, keys: &str| {
        let keys = keys.replace("DIR", &folder.path().display().to_string());
        let text = format!("[[sink]]\ntype = \"{kind}\"\n{keys}\n");
        let config =
            visiond_config::types::Config::parse(&text, Path::new("v.toml")).map_err(|e| e.to_string()).unwrap();
        let found = super::check(&config.sinks).into_iter();
        found.map(|(number, error)| (number, error.key, error.reason)).collect::<Vec<_>>()
    };
    let (mqtt, tls, nats) = ("url = \"mqtt://b\"", "url = \"mqtts://b\"", "url = [\"nats://b\"]\nstream = \"s\"");
    let spool = "durable = true\nspool_directory";
    for (kind, keys, key, words) in [
        ("file", "path = \"DIR\"".to_owned(), "path", "cannot write"),
        ("file", "path = \"DIR/no/d.jsonl\"".to_owned(), "path", "cannot write"),
        ("unix", "path = \"DIR/file\"".to_owned(), "path", ""),
        ("mqtt", format!("{mqtt}\nlogin = \"DIR/no\""), "login", ""),
        ("mqtt", format!("{tls}\nca = \"DIR/no.pem\""), "ca", "cannot read"),
        ("mqtt", format!("{tls}\nca = \"DIR/empty.pem\""), "ca", "no certificate in PEM format"),
        ("mqtt", format!("{mqtt}\n{spool} = \"DIR/file\""), "spool_directory", ""),
        ("nats", format!("{nats}\nlogin = \"DIR/no\""), "login", ""),
        ("nats", format!("{nats}\ncredentials = \"DIR/empty.pem\""), "credentials", "holds no NATS credentials"),
        ("nats", format!("{nats}\nca = \"DIR/empty.pem\""), "ca", "no certificate in PEM format"),
        ("nats", "url = [\"tls://b\"]\nstream = \"s\"\nca = \"DIR/no.pem\"".to_owned(), "ca", "cannot read"),
    ] {
        let found = found(kind, &keys);
        assert!(matches!(&found[..], [(0, named, why)] if *named == key && why.contains(words)), "{keys}: {found:?}");
    }
    for (kind, keys) in [
        ("stdout", String::new()),
        ("file", "path = \"DIR/d.jsonl\"".to_owned()),
        ("unix", "path = \"DIR/s\"".to_owned()),
        ("mqtt", format!("{mqtt}\nlogin = \"DIR/login\"\n{spool} = \"DIR/spool\"")),
        ("nats", format!("{nats}\nlogin = \"DIR/login\"")),
    ] {
        assert_eq!(found(kind, &keys), [], "{kind} {keys}");
    }
}

// Files

#[test]
fn a_file_gets_every_message_and_is_added_to_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let counts = publish_all(sink(file_kind(&path, 0, 5)), 0..1000);
    assert_eq!((counts.written, counts.lost), (1000, 0));
    publish_all(sink(file_kind(&path, 0, 5)), 1000..1010);
    assert_eq!(sequences(&path), (0..1010).collect::<Vec<_>>());
}

#[test]
fn a_file_rotates_by_size_and_keeps_so_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let config = sink(file_kind(&path, line_bytes(10, 1) * 10, 3));
    publish_all(config, 10..95);
    let with = |n: u32| sequences(&crate::file::numbered(&path, n));
    assert_eq!(sequences(&path), (90..95).collect::<Vec<_>>());
    assert_eq!(with(1), (80..90).collect::<Vec<_>>());
    assert_eq!(with(3), (60..70).collect::<Vec<_>>());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn nothing_kept_means_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    publish_all(sink(file_kind(&path, line_bytes(10, 1) * 10, 0)), 10..25);
    assert_eq!(sequences(&path), (20..25).collect::<Vec<_>>());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_cannot_be_rotated_keeps_growing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    // A file cannot be renamed to a folder.
    fs::create_dir(folder.path().join("d.jsonl.1")).unwrap();
    let counts = publish_all(sink(file_kind(&path, line_bytes(10, 1) * 10, 1)), 10..45);
    assert_eq!((counts.written, counts.lost), (35, 0));
    assert_eq!(sequences(&path), (10..45).collect::<Vec<_>>());
}

#[test]
fn what_a_file_ends_in_decides_how_it_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let long = "x".repeat(5 << 20);
    for (before, kept) in [
        ("", ""),
        ("a\n", "a\n"),
        ("{\"sch", ""),
        ("a\n{\"schema\":\"visiond/1\",\"came", "a\n"),
        ("a\n{\"other\":", "a\n{\"other\":\n"),
        ("abc", "abc\n"),
        // Longer than any line of ours.
        (&format!("{{\"schema\":\"visiond/{long}"), &format!("{{\"schema\":\"visiond/{long}\n")),
        (&format!("{long}\n{{\"schema\":\"visiond/"), &format!("{long}\n")),
    ] {
        fs::write(&path, before).unwrap();
        publish_all(sink(file_kind(&path, 0, 5)), 7..8);
        let expected = kept.to_owned() + std::str::from_utf8(&message(7, 1).to_line()).unwrap();
        assert!(fs::read_to_string(&path).unwrap() == expected, "{:.40}", before);
    }
}

#[test]
fn a_file_that_logrotate_moved_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let publisher = start(sink(file_kind(&path, 0, 5)));
    publisher.publish(&message(0, 1));
    wait_for_written(&publisher, 1);
    let moved = folder.path().join("old.jsonl");
    fs::rename(&path, &moved).unwrap();
    // The sink checks once a second whether the file was moved.
    let mut last = 0;
    wait_until("the new file", || {
        last += 1;
        publisher.publish(&message(last, 1));
        wait_for_written(&publisher, last + 1);
        path.exists()
    });
    publisher.close(hang());
    let (moved, begun) = (sequences(&moved), sequences(&path));
    assert_eq!([&*moved, &*begun].concat(), (0..=last).collect::<Vec<_>>());
    assert_eq!(begun, [last]);
}

#[test]
fn half_a_line_left_by_a_power_cut_is_taken_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    publish_all(sink(file_kind(&path, 0, 5)), 0..3);
    for cut in [1, 10, 100] {
        let len = fs::metadata(&path).unwrap().len();
        publish_all(sink(file_kind(&path, 0, 5)), 3..4);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len + cut).unwrap();
        publish_all(sink(file_kind(&path, 0, 5)), 9..10);
    }
    assert_eq!(sequences(&path), [0, 1, 2, 9, 9, 9]);
}

#[test]
fn somebody_elses_last_line_is_ended_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes");
    fs::write(&path, "mine").unwrap();
    publish_all(sink(file_kind(&path, 0, 5)), 0..1);
    assert!(fs::read_to_string(&path).unwrap().starts_with("mine\n{\"schema\""));
}

#[test]
fn an_output_that_can_never_work_is_refused_at_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = Publisher::start(&[], &context(), &Stop::new().unwrap()).unwrap();
    let open = |kind| match publisher.prepare(&[sink(kind)], IfUnusable::Refuse) {
        Err(error @ PublishError::Open { .. }) => error.to_string(),
        _ => panic!("it was opened"),
    };
    let missing = open(file_kind(&folder.path().join("no/d.jsonl"), 0, 5));
    assert!(missing.starts_with("sink test: ") && missing.ends_with("; make its folder"), "{missing}");
    let directory = open(file_kind(folder.path(), 0, 5));
    assert!(directory.contains("name a file in it"), "{directory}");
    let no_socket = folder.path().join("file");
    fs::write(&no_socket, "precious").unwrap();
    let occupied = open(SinkKind::Unix(unix_kind(&no_socket)));
    assert!(occupied.contains("is not a socket"), "{occupied}");
    assert_eq!(fs::read_to_string(&no_socket).unwrap(), "precious");
    let long = open(SinkKind::Unix(unix_kind(&folder.path().join("x".repeat(120)))));
    assert!(long.contains("more than 107 bytes"), "{long}");
}

#[test]
fn a_file_that_cannot_be_used_costs_its_own_messages_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("away/bad"));
    let fifo = folder.path().join("fifo");
    make_fifo(&fifo);
    let sinks = [&good, &bad, &fifo, &folder.path().to_owned()].map(|path| sink(file_kind(path, 0, 5)));
    let publisher = Publisher::start(&sinks, &context(), &Stop::new().unwrap()).unwrap();
    let outage = |number: usize| publisher.counts()[number].outage.clone().unwrap_or_default();
    for (number, words) in [(1, "make its folder"), (2, "it is not a file"), (3, "name a file in it")] {
        wait_until("the outage", || outage(number).contains(words));
    }
    fs::create_dir(folder.path().join("away")).unwrap();
    let mut sequence = 0;
    wait_until("the folder to be found", || {
        publisher.publish(&message(sequence, 1));
        sequence += 1;
        publisher.counts()[1].written > 0
    });
    assert_eq!(outage(1), "");
    publisher.close(hang());
    assert_eq!(sequences(&good), (0..sequence).collect::<Vec<_>>());
}

#[test]
fn a_full_device_is_survived_and_counted() {
    let publisher = start(sink(file_kind(Path::new("/dev/full"), 100, 5)));
    assert_eq!(publisher.counts()[0].outage, None);
    (0..50).for_each(|sequence| publisher.publish(&message(sequence, 1)));
    wait_until("the outage", || publisher.counts()[0].outage.as_ref().is_some_and(|why| why.contains("No space left")));
    let counts = publisher.close(hang()).remove(0);
    assert_eq!((counts.written, counts.failed), (0, 50));
}

#[test]
fn a_full_disk_leaves_whole_lines_and_is_gone_on_with_once_there_is_room() {
    let Some(disk) = TinyDisk::mount(64 * 1024) else { return };
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![0; 32 * 1024]).unwrap();
    let path = disk.join("d.jsonl");
    let publisher = start(sink(file_kind(&path, 0, 5)));
    (0..200).for_each(|sequence| publisher.publish(&message(sequence, 1)));
    wait_until("the disk to be full", || publisher.counts()[0].waiting == 0);
    let full = sequences(&path);
    assert!(full.len() > 20 && full.len() < 200, "{}", full.len());
    fs::remove_file(&ballast).unwrap();
    // The sink retries the disk after a pause; messages until then are lost.
    let (mut tried, before) = (0, publisher.counts()[0].written);
    wait_until("room to be found", || {
        tried += 1;
        publisher.publish(&message(1000, 1));
        wait_until("it", || publisher.counts()[0].waiting == 0);
        publisher.counts()[0].written > before
    });
    assert_eq!(publisher.counts()[0].outage, None);
    (200..220).for_each(|sequence| publisher.publish(&message(sequence, 1)));
    let counts = publisher.close(hang()).remove(0);
    let after = sequences(&path);
    assert_eq!(after[..full.len()], full);
    assert_eq!(after[after.len() - 20..], (200..220).collect::<Vec<_>>());
    assert_eq!(counts.written, after.len() as u64);
    assert_eq!(counts.written + counts.failed, 220 + tried);
}

// Queues

#[test]
fn a_full_queue_follows_when_full() {
    // A FIFO without a reader blocks the sink once it is full; then the queue of 4 fills.
    for (when_full, first_kept) in [(WhenFull::DropOldest, false), (WhenFull::DropNewest, true)] {
        let queue = crate::queue::Queue::new(4, when_full, &Stop::new().unwrap());
        for sequence in 0..10 {
            queue.push(&Arc::new(visiond_message::Published::new(message(sequence, 0))), || ());
        }
        let crate::queue::Popped::Message(first) = queue.pop(None) else { panic!() };
        let first: serde_json::Value = serde_json::from_slice(first.line()).unwrap();
        assert_eq!(first["sequence"], if first_kept { 0 } else { 6 });
        assert_eq!(queue.counters.dropped_full.load(Ordering::Relaxed), 6);
    }
}

#[test]
fn a_blocked_push_goes_on_with_room_and_gives_up_at_the_stop() {
    use crate::queue::Queue;
    use visiond_message::Published;
    let stop = Stop::new().unwrap();
    let queue = Arc::new(Queue::new(1, WhenFull::Block, &stop));
    let push = |sequence| {
        let queue = Arc::clone(&queue);
        std::thread::spawn(move || queue.push(&Arc::new(Published::new(message(sequence, 0))), || ()))
    };
    push(0).join().unwrap();
    let blocked = push(1);
    std::thread::sleep(Duration::from_millis(30));
    assert!(!blocked.is_finished());
    queue.pop(None);
    blocked.join().unwrap();
    let blocked = push(2);
    stop.raise();
    blocked.join().unwrap();
    assert_eq!(queue.counters.dropped_full.load(Ordering::Relaxed), 1);
}

#[test]
fn a_sink_gets_only_what_it_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    let mut config = sink(file_kind(&path, 0, 5));
    config.only_detections = true;
    let publisher = start(config.clone());
    publisher.publish(&message(0, 0));
    publisher.publish(&message(1, 2));
    // Values of the frame count as detections.
    let mut values = Message::clone(&message(2, 0));
    values.embedding = Some(EmbeddingMessage { length: 1, f16: "ADw=".to_owned() });
    publisher.publish(&Arc::new(values));
    publisher.close(hang());
    config.cameras = vec!["gate".into()];
    publish_all(config, 3..5);
    assert_eq!(sequences(&path), [1, 2]);
}

// Sockets

fn lines(stream: UnixStream) -> impl Iterator<Item = u64> {
    BufReader::new(stream)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap()["sequence"].as_u64().unwrap())
}

#[test]
fn readers_join_and_leave_at_any_time_and_get_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let publisher = start(sink(SinkKind::Unix(unix_kind(&path))));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let back = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..20)
        .map(|reader| {
            let (path, back) = (path.clone(), Arc::clone(&back));
            std::thread::spawn(move || {
                // Each connects at another time, reads some, disconnects, connects again, and stays to the end.
                std::thread::sleep(Duration::from_millis(10 * reader));
                let some: Vec<_> = lines(UnixStream::connect(&path).unwrap()).take(5 + reader as usize).collect();
                assert!(some.windows(2).all(|pair| pair[1] == pair[0] + 1), "{some:?}");
                let mut again = lines(UnixStream::connect(&path).unwrap());
                let mut rest = vec![again.next().unwrap()];
                back.fetch_add(1, Ordering::SeqCst);
                rest.extend(again);
                assert!(rest.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rest:?}");
                *rest.last().unwrap()
            })
        })
        .collect();
    let mut last = 0;
    wait_until("every reader to be back", || {
        last += 1;
        publisher.publish(&message(last, 1));
        back.load(Ordering::SeqCst) == 20
    });
    last += 1;
    publisher.publish(&message(last, 1));
    let counts = publisher.close(hang()).remove(0);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), last);
    }
    assert_eq!((counts.lost, counts.reader_lost), (0, 0));
    assert!(!path.exists());
}

#[test]
fn a_reader_that_never_reads_loses_whole_messages_and_slows_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut config = unix_kind(&path);
    config.reader_buffer_bytes = 64 * 1024;
    let publisher = start(sink(SinkKind::Unix(config)));
    let stuck = UnixStream::connect(&path).unwrap();
    let good = UnixStream::connect(&path).unwrap();
    wait_until("both", || publisher.counts()[0].readers == 2);
    let read = Arc::new(AtomicU64::new(0));
    let reads = Arc::clone(&read);
    let good = std::thread::spawn(move || {
        let count = |_: &u64| {
            reads.fetch_add(1, Ordering::SeqCst);
        };
        lines(good).inspect(count).collect::<Vec<_>>()
    });
    for sequence in 0..5000 {
        publisher.publish(&message(sequence, 1));
        // Its buffer has room for more.
        wait_until("the good reader", || read.load(Ordering::SeqCst) + 100 > sequence);
    }
    wait_for_written(&publisher, 5000);
    let lost = publisher.counts()[0].reader_lost;
    assert!(lost > 1000, "{lost}");
    // The end does not wait for the reader that does not read.
    finishes("the end", move || publisher.close(never()));
    assert_eq!(good.join().unwrap(), (0..5000).collect::<Vec<_>>());
    // The slow reader finds whole lines, in order, then one that the end cut off.
    let mut text = String::new();
    BufReader::new(stuck).read_to_string(&mut text).unwrap();
    let whole = &text[..=text.rfind('\n').unwrap()];
    let kept: BTreeSet<u64> = whole
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["sequence"].as_u64().unwrap())
        .collect();
    assert!(kept.len() == whole.lines().count() && kept.first() == Some(&0));
}

#[test]
fn a_reader_that_closed_its_sending_side_still_gets_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let publisher = start(sink(SinkKind::Unix(unix_kind(&path))));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"hello? who reads this?").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("it", || publisher.counts()[0].readers == 1);
    publisher.publish(&message(7, 0));
    publisher.close(hang());
    assert_eq!(lines(stream).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a listener leaves its file behind");
    let publisher = start(sink(SinkKind::Unix(unix_kind(&path))));
    let second = Publisher::start(&[sink(SinkKind::Unix(unix_kind(&path)))], &context(), &Stop::new().unwrap());
    let error = second.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is served by another process"), "{error}");
    publisher.publish(&message(1, 1));
    assert_eq!(publisher.close(hang())[0].written, 1);
}

#[test]
fn too_many_readers_are_turned_away_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut config = unix_kind(&path);
    config.max_readers = 2;
    let publisher = start(sink(SinkKind::Unix(config)));
    let connected: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    wait_until("one to be refused", || publisher.counts()[0].readers_refused == 1);
    drop(connected);
    wait_until("room", || publisher.counts()[0].readers == 0);
    let reader = UnixStream::connect(&path).unwrap();
    wait_until("the next", || publisher.counts()[0].readers == 1);
    publisher.publish(&message(0, 0));
    publisher.close(hang());
    assert_eq!(lines(reader).count(), 1);
}
