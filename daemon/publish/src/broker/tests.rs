//! The sink around a client, with a broker that fails in many ways.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use visiond_config::types::{FileSinkConfig, SinkConfig, SinkKind, WhenFull};
use visiond_message::Message;
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_system::testing::{never, wait_until};

use super::*;
use crate::queue::Queue;
use crate::sink::Sink;
use visiond_message::Published;
use visiond_message::testing::door_message as message;
use visiond_system::testing::TinyDisk;

/// How the broker behaves, and what it received.
#[derive(Debug, Default)]
struct Broker {
    /// It does not answer.
    down: bool,
    /// It accepts connections, but nothing else.
    hangs: bool,
    /// A connection breaks after this many messages, the last few of which are lost; 0: never.
    breaks_after: u64,
    /// It refuses the messages of these cameras.
    refuses: Vec<&'static str>,
    refusals: u64,
    connections: u64,
    /// Each arrival: camera, id, line.
    arrivals: Vec<(String, String, Bytes)>,
}

/// A client of a [`Broker`] that acknowledges late and in any order.
struct Fake {
    broker: Arc<Mutex<Broker>>,
    random: u64,
    sent: u64,
    connection: u64,
    to_acknowledge: VecDeque<u64>,
    to_refuse: VecDeque<u64>,
}

impl Fake {
    fn new(broker: &Arc<Mutex<Broker>>) -> Self {
        let broker = Arc::clone(broker);
        Self {
            broker,
            random: 0x9e37_79b9_7f4a_7c15,
            sent: 0,
            connection: 0,
            to_acknowledge: VecDeque::new(),
            to_refuse: VecDeque::new(),
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below.max(1) as u64) as usize
    }

    fn is_broken(&self) -> bool {
        let broker = self.broker.lock().unwrap();
        broker.down || broker.connections != self.connection
    }
}

impl BrokerClient for Fake {
    async fn connect(&mut self) -> Result<(), String> {
        let mut broker = self.broker.lock().unwrap();
        if broker.down {
            return Err("test: no answer".to_owned());
        }
        broker.connections += 1;
        (self.connection, self.sent) = (broker.connections, 0);
        self.to_acknowledge.clear();
        self.to_refuse.clear();
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        if self.broker.lock().unwrap().hangs {
            std::future::pending::<()>().await;
        }
        if self.is_broken() {
            return Err("test: broken pipe".to_owned());
        }
        self.sent += 1;
        let unlucky = self.draw(8) as u64;
        let mut broker = self.broker.lock().unwrap();
        if broker.refuses.contains(&&*message.camera) {
            broker.refusals += 1;
            self.to_refuse.push_back(message.number);
            return Ok(());
        }
        // For the client, the last few before the break count as sent, but they never arrive.
        if broker.breaks_after == 0 || self.sent + unlucky.min(4) < broker.breaks_after {
            broker.arrivals.push((message.camera.to_string(), message.id.to_string(), message.line.clone()));
            self.to_acknowledge.push_back(message.number);
        } else {
            self.sent = broker.breaks_after;
        }
        Ok(())
    }

    async fn event(&mut self) -> BrokerEvent {
        let breaks = self.broker.lock().unwrap().breaks_after;
        if self.is_broken() || breaks > 0 && self.sent >= breaks {
            return BrokerEvent::Lost("test: reset by peer".to_owned().into());
        }
        if let Some(number) = self.to_refuse.pop_front() {
            return BrokerEvent::Refused(number, "test: no right".to_owned());
        }
        if self.to_acknowledge.is_empty() || self.draw(3) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            return BrokerEvent::Nothing;
        }
        let at = self.draw(self.to_acknowledge.len());
        self.to_acknowledge.remove(at).map_or(BrokerEvent::Nothing, BrokerEvent::Acknowledged)
    }

    async fn close(&mut self, _within: Duration) {}

    fn configure(&mut self, config: &SinkConfig) -> bool {
        !config.only_detections
    }
}

fn config(spool: Option<&Path>) -> SinkConfig {
    SinkConfig {
        name: "test".into(),
        kind: SinkKind::File(FileSinkConfig::default()),
        queue: 100_000,
        when_full: WhenFull::DropOldest,
        durable: spool.is_some(),
        spool_directory: spool.map(Path::to_owned),
        ..SinkConfig::default()
    }
}

/// A running sink; [`Running::close`] ends it in order.
struct Running {
    queue: Arc<Queue>,
    thread: std::thread::JoinHandle<()>,
}

impl Running {
    fn start(config: &SinkConfig, broker: &Arc<Mutex<Broker>>) -> Self {
        let sink = Box::new(BrokerSink::open(config, Fake::new(broker), IfUnusable::Retry).unwrap());
        let queue = Arc::new(Queue::of(config, &Stop::new().unwrap()));
        let thread = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                sink.run(&queue);
                queue.abandon(|counters| &counters.unsent);
            })
        };
        Self { queue, thread }
    }

    /// Queues messages of three cameras.
    fn publish(&self, sequences: std::ops::Range<u64>) {
        for sequence in sequences {
            self.queue.push(&Arc::new(Published::new(of_some_camera(sequence))), || ());
            self.queue.wake();
        }
    }

    fn written(&self) -> u64 {
        self.queue.counters.written.load(Ordering::Relaxed)
    }

    /// Waits for the end, which comes as early as possible.
    fn close(self) -> Arc<Queue> {
        self.queue.close(never());
        wait_until("the sink to end", || self.thread.is_finished());
        self.thread.join().unwrap();
        self.queue
    }
}

#[test]
fn what_a_rate_holds_back_is_not_lost_without_a_broker() {
    let broker = Arc::new(Mutex::new(Broker { down: true, ..Broker::default() }));
    let sink = Running::start(&SinkConfig { max_rate: Some(50.0), queue: 10, ..config(None) }, &broker);
    sink.publish(0..30);
    std::thread::sleep(Duration::from_millis(300));
    let queue = sink.close();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(count(&queue.counters.thinned) + count(&queue.counters.unsent), 30);
}

/// Makes the id from the number, so that a test can compare several processes.
fn of_some_camera(sequence: u64) -> Arc<Message> {
    let camera = ["door", "yard", "gate"][sequence as usize % 3];
    let id = format!("0123456789abcdef-{sequence}").into();
    Arc::new(Message { camera: camera.into(), topic: camera.into(), id, ..Arc::unwrap_or_clone(message(sequence, 1)) })
}

/// Checks that each of `sequences` arrived, unchanged each time, and each camera's first arrivals in order.
fn assert_all(broker: &Mutex<Broker>, sequences: std::ops::Range<u64>) {
    let broker = broker.lock().unwrap();
    let mut first: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut seen: BTreeMap<u64, &Bytes> = BTreeMap::new();
    for (camera, id, line) in &broker.arrivals {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        let sequence = value["sequence"].as_u64().unwrap();
        assert_eq!((value["id"].as_str().unwrap(), value["camera"].as_str().unwrap()), (id.as_str(), camera.as_str()));
        assert_eq!(id.rsplit_once('-').unwrap().1, sequence.to_string());
        assert!(!line.ends_with(b"\n"));
        match seen.insert(sequence, line) {
            Some(before) => assert_eq!(before, line, "sent again, it is the same"),
            None => first.entry(camera).or_default().push(sequence),
        }
    }
    let missing: Vec<_> = sequences.filter(|sequence| !seen.contains_key(sequence)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (camera, numbers) in first {
        assert!(numbers.is_sorted(), "camera {camera}: {numbers:?}");
    }
}

#[test]
fn over_many_broken_connections_everything_arrives_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for spool in [None, Some(folder.path())] {
        let broker = Arc::new(Mutex::new(Broker { breaks_after: 300, ..Broker::default() }));
        let sink = Running::start(&config(spool), &broker);
        for round in 0..10 {
            sink.publish(round * 100..round * 100 + 100);
            std::thread::sleep(Duration::from_millis(10));
        }
        wait_until("the last acknowledgement", || sink.written() == 1000);
        let queue = sink.close();
        assert_all(&broker, 0..1000);
        assert!(broker.lock().unwrap().connections > 3);
        let counters = &queue.counters;
        assert!(counters.resent.load(Ordering::Relaxed) > 0 && counters.reconnects.load(Ordering::Relaxed) > 2);
        assert_eq!(counters.unsent.load(Ordering::Relaxed) + counters.dropped_full.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_durable_sink_keeps_what_came_without_a_broker_over_restarts_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Arc::new(Mutex::new(Broker { down: true, ..Broker::default() }));
    // More than the window holds, so that most is read back from disk.
    for start in 0..3 {
        let sink = Running::start(&config(Some(folder.path())), &broker);
        sink.publish(start * 500..start * 500 + 500);
        let queue = sink.close();
        let spool = queue.counters.spool.lock().clone().unwrap();
        assert_eq!((spool.records, spool.dropped), (start * 500 + 500, 0));
        assert_eq!(queue.counters.unsent.load(Ordering::Relaxed), 0);
    }
    broker.lock().unwrap().down = false;
    let sink = Running::start(&config(Some(folder.path())), &broker);
    sink.publish(1500..1600);
    wait_until("all of it", || sink.written() == 1600);
    let queue = sink.close();
    assert_all(&broker, 0..1600);
    assert_eq!(queue.counters.spool.lock().as_ref().unwrap().records, 0);
    assert_eq!(broker.lock().unwrap().arrivals.len(), 1600, "each once: nothing was acknowledged and sent again");
}

/// Returns how many messages of a camera have arrived.
fn arrived(broker: &Mutex<Broker>, camera: &str) -> usize {
    broker.lock().unwrap().arrivals.iter().filter(|(of, ..)| of == camera).count()
}

#[test]
fn a_refused_camera_holds_up_no_other_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for spool in [None, Some(folder.path())] {
        let broker = Arc::new(Mutex::new(Broker { refuses: vec!["yard"], ..Broker::default() }));
        let sink = Running::start(&config(spool), &broker);
        // Many more than the window holds.
        sink.publish(0..3000);
        wait_until("the others", || sink.written() == 2000);
        assert_eq!((arrived(&broker, "yard"), sink.queue.waiting()), (0, 0));
        assert_eq!(sink.queue.counters.outage.lock().as_deref(), Some("test: no right"));
        broker.lock().unwrap().refuses.clear();
        sink.publish(3000..3300);
        wait_until("all of it", || sink.written() == 3300);
        wait_until("the end of the refusal", || sink.queue.counters.outage.lock().is_none());
        sink.close();
        assert_all(&broker, 0..3300);
        assert_eq!(broker.lock().unwrap().arrivals.len(), 3300, "each once");
    }
}

#[test]
fn what_is_refused_without_a_spool_is_dropped_as_the_queue_does() {
    for (when_full, kept) in [(WhenFull::DropOldest, 270..300), (WhenFull::DropNewest, 0..30)] {
        let broker = Arc::new(Mutex::new(Broker { refuses: vec!["yard"], ..Broker::default() }));
        let sink = Running::start(&SinkConfig { queue: 10, when_full, ..config(None) }, &broker);
        let failed = || sink.queue.counters.failed.load(Ordering::Relaxed);
        for sequence in 0..300 {
            sink.publish(sequence..sequence + 1);
            wait_until("room", || sink.queue.waiting() == 0);
        }
        wait_until("the others", || sink.written() == 200 && failed() == 90);
        broker.lock().unwrap().refuses.clear();
        wait_until("what was kept", || sink.written() == 210);
        let queue = sink.close();
        assert_eq!(
            (queue.counters.failed.load(Ordering::Relaxed), queue.counters.unsent.load(Ordering::Relaxed)),
            (90, 0)
        );
        let kept: Vec<_> = kept.filter(|sequence| sequence % 3 == 1).collect();
        let broker = broker.lock().unwrap();
        let of_yard = broker.arrivals.iter().filter(|(camera, ..)| camera == "yard");
        let of_yard: Vec<u64> = of_yard.map(|(_, id, _)| id.rsplit_once('-').unwrap().1.parse().unwrap()).collect();
        assert_eq!(of_yard, kept);
    }
}

#[test]
fn what_is_refused_stays_in_the_spool_over_a_restart_and_a_lost_connection() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Arc::new(Mutex::new(Broker { refuses: vec!["yard"], breaks_after: 300, ..Broker::default() }));
    let sink = Running::start(&config(Some(folder.path())), &broker);
    sink.publish(0..900);
    wait_until("the others", || sink.written() == 600);
    sink.close();
    broker.lock().unwrap().refuses = vec!["yard", "door"];
    let sink = Running::start(&config(Some(folder.path())), &broker);
    sink.publish(900..1200);
    wait_until("the last camera", || arrived(&broker, "gate") >= 400);
    broker.lock().unwrap().refuses.clear();
    wait_until("all of it", || sink.queue.counters.spool.lock().as_ref().is_some_and(|spool| spool.records == 0));
    sink.close();
    assert_all(&broker, 0..1200);
}

#[test]
fn a_sink_without_a_spool_counts_what_it_could_not_send() {
    let broker = Arc::new(Mutex::new(Broker { down: true, ..Broker::default() }));
    let sink = Running::start(&SinkConfig { queue: 50, ..config(None) }, &broker);
    sink.publish(0..80);
    wait_until("the refusal", || sink.queue.counters.outage.lock().is_some());
    assert_eq!(sink.queue.counters.outage.lock().as_deref(), Some("test: no answer"));
    assert_eq!(sink.queue.counters.connected.load(Ordering::Relaxed), 1);
    // The end does not wait for a broker that is away.
    let queue = sink.close();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&queue.counters.dropped_full), count(&queue.counters.unsent)), (30, 50));
}

#[test]
fn a_spool_that_cannot_be_written_is_reported_until_it_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("spool");
    let broker = Arc::new(Mutex::new(Broker { down: true, ..Broker::default() }));
    let sink = Running::start(&config(Some(&directory)), &broker);
    let outage = || sink.queue.counters.spool.lock().as_ref().and_then(|spool| spool.outage.clone());
    wait_until("the spool", || sink.queue.counters.spool.lock().is_some());
    assert_eq!(outage(), None);
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "in the way").unwrap();
    sink.publish(0..10);
    wait_until("the outage", || outage().is_some_and(|reason| reason.contains("Not a directory")));
    std::fs::remove_file(&directory).unwrap();
    wait_until("the end of the outage", || outage().is_none());
    let records = || sink.queue.counters.spool.lock().as_ref().map_or(0, |spool| spool.records);
    wait_until("all records", || records() == 10);
    sink.close();
}

#[test]
fn a_broker_that_takes_nothing_holds_up_neither_the_spool_nor_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Arc::new(Mutex::new(Broker { hangs: true, ..Broker::default() }));
    let sink = Running::start(&config(Some(folder.path())), &broker);
    sink.publish(0..1000);
    wait_until("the spool", || sink.queue.counters.spool.lock().as_ref().is_some_and(|spool| spool.records == 1000));
    sink.close();
    broker.lock().unwrap().hangs = false;
    let sink = Running::start(&config(Some(folder.path())), &broker);
    wait_until("what was kept", || sink.written() == 1000);
    sink.close();
    assert_all(&broker, 0..1000);
}

#[test]
fn a_sink_that_takes_over_a_spool_goes_on_where_the_other_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Arc::new(Mutex::new(Broker::default())), Arc::new(Mutex::new(Broker::default())));
    let before = Running::start(&config(Some(folder.path())), &old);
    before.publish(0..100);
    wait_until("the first", || before.written() == 100);
    old.lock().unwrap().down = true;
    before.publish(100..200);
    // As in a reload: the new sink runs before the old one ends.
    let after = Running::start(&config(Some(folder.path())), &new);
    after.publish(200..300);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(after.written(), 0);
    before.close();
    wait_until("the rest", || after.written() == 200);
    after.close();
    assert_all(&old, 0..100);
    assert_all(&new, 100..300);
}

#[test]
fn a_change_that_needs_another_connection_loses_nothing() {
    let broker = Arc::new(Mutex::new(Broker::default()));
    let sink = Running::start(&config(None), &broker);
    for round in 0..20 {
        sink.publish(round * 50..round * 50 + 50);
        let before = broker.lock().unwrap().connections;
        sink.queue.configure(&SinkConfig { only_detections: round % 3 == 0, ..config(None) });
        wait_until("the change", || round % 3 > 0 || broker.lock().unwrap().connections > before);
    }
    wait_until("all of it", || sink.written() == 1000);
    sink.close();
    assert_all(&broker, 0..1000);
    assert!(broker.lock().unwrap().connections > 3);
}

#[test]
fn a_full_disk_is_survived_in_memory_and_gone_on_with() {
    let Some(disk) = TinyDisk::mount(512 << 10) else { return };
    let ballast = disk.join("ballast");
    let broker = Arc::new(Mutex::new(Broker { down: true, ..Broker::default() }));
    let sink = Running::start(&config(Some(&disk.join("spool"))), &broker);
    let waiting = |sink: &Running| sink.queue.waiting();
    sink.publish(0..100);
    wait_until("the spool", || waiting(&sink) == 0);
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap_err();
    // Messages that the disk refuses wait in the queue.
    sink.publish(100..1000);
    wait_until("a full disk", || waiting(&sink) > 500);
    broker.lock().unwrap().down = false;
    wait_until("all of it", || sink.written() == 1000);
    assert!(sink.queue.counters.memory_only.load(Ordering::Relaxed) > 500);
    std::fs::remove_file(&ballast).unwrap();
    // The sink retries the disk after at most 5 s.
    let mut sequence = 1000;
    let records = |sink: &Running| sink.queue.counters.memory_only.load(Ordering::Relaxed);
    wait_until("the disk", || {
        let before = records(&sink);
        sink.publish(sequence..sequence + 1);
        sequence += 1;
        wait_until("it", || sink.written() == sequence);
        records(&sink) == before
    });
    sink.close();
    assert_all(&broker, 0..sequence);
}

#[test]
fn a_queue_with_a_rate_lets_the_first_and_the_newest_through_and_counts_the_rest() {
    let broker = Arc::new(Mutex::new(Broker::default()));
    let sink = Running::start(&SinkConfig { max_rate: Some(5.0), ..config(None) }, &broker);
    // All from one camera: one passes, the newest goes out later. On a busy machine some in between do too.
    for sequence in 0..30 {
        sink.queue.push(&Arc::new(Published::new(message(sequence, 0))), || ());
        sink.queue.wake();
    }
    let sequence =
        |line: &Bytes| serde_json::from_slice::<serde_json::Value>(line).unwrap()["sequence"].as_u64().unwrap();
    let arrived = || broker.lock().unwrap().arrivals.iter().map(|(_, _, line)| sequence(line)).collect::<Vec<_>>();
    wait_until("the newest", || arrived().last() == Some(&29));
    let queue = sink.close();
    let arrived = arrived();
    assert!(arrived[0] == 0 && arrived.is_sorted_by(|a, b| a < b), "{arrived:?}");
    let thinned = queue.counters.thinned.load(Ordering::Relaxed);
    assert_eq!(thinned + arrived.len() as u64, 30);
}
