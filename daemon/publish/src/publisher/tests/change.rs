//! Sinks that are added, removed and changed while messages go out.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5;
use visiond_config::types::{Config, UnixSinkConfig};
use visiond_system::testing::{hang, wait_until};
use visiond_telemetry::metrics::{CameraMetrics, LaneMetrics, LaneView};

use visiond_message::testing::door_message as message;

use super::*;
use crate::publisher::*;

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
    assert_eq!(sequences(&crate::file::numbered(&path, 1)), (10..30).collect::<Vec<_>>());
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

/// A publication of a client: topic and payload.
type Said = Vec<(String, String)>;

/// An MQTT broker that notes what each of its clients publishes.
struct Broker {
    url: String,
    clients: Arc<Mutex<Vec<Said>>>,
}

impl Broker {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap());
        let clients: Arc<Mutex<Vec<Said>>> = Arc::default();
        let noted = Arc::clone(&clients);
        // The threads end with the process.
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                noted.lock().push(Vec::new());
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(stream.unwrap(), |said| noted.lock()[number].push(said)));
            }
        });
        Self { url, clients }
    }

    /// Waits until that client has published such a message.
    fn wait_for(&self, client: usize, topic: &str, payload: &str) {
        wait_until(topic, || {
            let clients = self.clients.lock();
            let said = clients.get(client).into_iter().flatten();
            said.into_iter().any(|(at, text)| at.contains(topic) && text.contains(payload))
        });
    }

    /// Returns the topics at which that client has published `payload`, from its message `from` on.
    fn topics_with(&self, client: usize, payload: &str, from: usize) -> Vec<String> {
        let said = self.clients.lock()[client].clone();
        said.into_iter().skip(from).filter(|(_, text)| text == payload).map(|(topic, _)| topic).collect()
    }

    fn count(&self, client: usize) -> usize {
        self.clients.lock()[client].len()
    }
}

fn serve(mut stream: TcpStream, note: impl Fn((String, String))) {
    let (mut bytes, mut chunk) = (BytesMut::new(), [0; 4096]);
    loop {
        match v5::Packet::read(&mut bytes, None) {
            Ok(v5::Packet::Connect(..)) => stream.write_all(&[0x20, 3, 0, 0, 0]).unwrap(),
            Ok(v5::Packet::Publish(packet)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                note((text(&packet.topic), text(&packet.payload)));
                let [high, low] = packet.pkid.to_be_bytes();
                // A client that has ended expects none.
                let _ = stream.write_all(&[0x40, 2, high, low]);
            }
            Ok(_) => {}
            Err(_) => match stream.read(&mut chunk) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&chunk[..n]),
                _ => return,
            },
        }
    }
}

/// An MQTT sink that announces its cameras to Home Assistant.
fn mqtt(url: &str, keys: &str) -> SinkConfig {
    let text = format!("[[sink]]\ntype = \"mqtt\"\nname = \"m\"\nurl = \"{url}\"\n{keys}\n");
    Config::parse(&text, Path::new("test.toml")).unwrap().sinks.remove(0)
}

/// The context of a process with the camera `door`.
fn with_door() -> SinkContext {
    let (context, door) = (context(), Arc::new(CameraMetrics::new("door".into())));
    context.live.set_lanes(vec![LaneView { lane: Arc::new(LaneMetrics::new("m".into())), cameras: vec![door] }]);
    context
}

const HOME: &str = "home_assistant = true";

#[test]
fn an_mqtt_sink_leaves_its_topics_to_the_one_that_follows() {
    let spool = tempfile::tempdir().unwrap();
    let durable = format!("durable = true\nspool_directory = \"{}\"\n", spool.path().display());
    for (keys, clears_discovery) in
        [(HOME, false), ("", true), ("home_assistant = true\ndiscovery_prefix = \"h\"", true)]
    {
        let broker = Broker::start();
        let publisher = Publisher::start(&[mqtt(&broker.url, HOME)], &with_door(), &Stop::new().unwrap()).unwrap();
        broker.wait_for(0, "door_fps/config", "visiond");
        change(&publisher, &[mqtt(&broker.url, &(durable.clone() + keys))]);
        broker.wait_for(1, "availability", "online");
        broker.wait_for(1, "door/state", "phase");
        assert_eq!(broker.topics_with(0, "offline", 0), [""; 0]);
        let cleared = broker.topics_with(0, "", 0);
        assert!(cleared.iter().all(|topic| topic.starts_with("homeassistant/")), "{cleared:?}");
        assert_eq!(!cleared.is_empty(), clears_discovery, "{keys}: {cleared:?}");
        let from = broker.count(1);
        publisher.close(hang());
        broker.wait_for(1, "availability", "offline");
        assert_eq!(broker.topics_with(1, "", from), [""; 0]);
    }
}

#[test]
fn an_mqtt_sink_clears_what_no_other_publishes() {
    let prefix = format!("{HOME}\ntopic_prefix = \"p\"");
    for (moves, keys, clears_discovery) in [(false, &*prefix, false), (true, HOME, true)] {
        let (broker, other) = (Broker::start(), Broker::start());
        let publisher = Publisher::start(&[mqtt(&broker.url, HOME)], &with_door(), &Stop::new().unwrap()).unwrap();
        broker.wait_for(0, "door_fps/config", "visiond");
        change(&publisher, &[mqtt(if moves { &other.url } else { &broker.url }, keys)]);
        let cleared = broker.topics_with(0, "", 0);
        let has = |end: &str| cleared.iter().any(|topic| topic.ends_with(end));
        assert!(has("/availability") && has("/door/state"), "{cleared:?}");
        assert_eq!(has("/door_fps/config"), clears_discovery, "{cleared:?}");
        publisher.close(hang());
    }
}
