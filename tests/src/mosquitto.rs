//! Mosquitto, the broker that the MQTT sink is tested with, and `mosquitto_sub`, which reads the messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::port::Port;
use crate::wait_until_or_show;

/// A broker on loopback in its own folder; killed when dropped.
pub struct Mosquitto {
    /// Its folder: configuration, passwords, certificates, stored messages.
    pub folder: tempfile::TempDir,
    /// Where it listens.
    pub port: u16,
    _port: Port,
    child: Option<Child>,
}

/// The topic of a retained message that reaches a new reader after all other retained messages.
const LAST_KEPT: &str = "visiond-tests/last";

impl Mosquitto {
    /// A broker without access control.
    pub fn start() -> Self {
        Self::start_with(|_| "allow_anonymous true\n".to_owned())
    }

    /// A broker with these lines in its configuration; `settings` may put files into its folder.
    pub fn start_with(settings: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = settings(folder.path());
        let reserved = Port::reserve();
        let port = reserved.number;
        // SAFETY: geteuid(2) has no conditions and cannot fail.
        let root = if unsafe { libc::geteuid() } == 0 { "user root\n" } else { "" };
        let text = format!(
            "{root}listener {port} 127.0.0.1\npersistence_location {}/\nlog_dest file {}\nlog_type error\nlog_type warning\n\
             log_type notice\nlog_type information\nlog_type subscribe\n{settings}",
            folder.path().display(),
            folder.path().join("log").display()
        );
        std::fs::write(folder.path().join("conf"), text).expect("the broker's configuration");
        let mut broker = Self { folder, port, _port: reserved, child: None };
        broker.resume();
        broker
    }

    /// Restarts it in the same folder and on the same port.
    pub fn resume(&mut self) {
        let program =
            ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("mosquitto"));
        command.arg("-c").arg(self.path("conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("mosquitto starts: tests/setup --test says what to install");
        self.child = Some(child);
        let listens = || TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        wait_until_or_show("mosquitto to listen", listens, || self.log());
    }

    /// Ends it by a signal and waits for that.
    pub fn end(&mut self, signal: i32) {
        let Some(mut child) = self.child.take() else { return };
        signal_to(&child, signal);
        child.wait().expect("mosquitto ends");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        signal_to(self.child.as_ref().expect("it runs"), signal);
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Reads `topic` from now on; returns when the broker has accepted the subscription. `arguments` are passed to
    /// mosquitto_sub.
    pub fn reader(&self, topic: &str, arguments: &[&str]) -> Reader {
        let id = reader_id();
        let reader = Reader::start(self.port, &id, &[topic], arguments);
        // The broker logs TIME: ID QOS TOPIC.
        let subscribed = format!(": {id} ");
        wait_until_or_show("the broker to subscribe a reader", || self.log().contains(&subscribed), || self.log());
        reader
    }

    /// Makes the broker retain these messages, as if from another client. For brokers without access control.
    pub fn keep(&self, messages: &[(String, String)]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        // CONNECT of MQTT 3.1.1, clean, with the client id "k".
        let mut bytes = vec![0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, b'k'];
        for (topic, payload) in messages {
            let length = 2 + topic.len() + payload.len();
            // PUBLISH, retained, QoS 0, of less than 16 KiB.
            bytes.extend([0x31, (length % 128) as u8 | 0x80, (length / 128) as u8, 0, topic.len() as u8]);
            bytes.extend(topic.bytes().chain(payload.bytes()));
        }
        // PINGREQ, whose answer comes after all of them, and DISCONNECT.
        bytes.extend([0xC0, 0]);
        stream.write_all(&bytes).expect("the broker reads");
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).expect("CONNACK and PINGRESP");
        assert_eq!(answer, [0x20, 2, 0, 0, 0xD0, 0]);
        stream.write_all(&[0xE0, 0]).expect("the broker reads");
    }

    /// The messages that the broker retains under `topic` now. For brokers without access control.
    pub fn retained(&self, topic: &str) -> Vec<Message> {
        let mut publish = Command::new("mosquitto_pub");
        publish.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-r", "-q", "2", "-t", LAST_KEPT, "-m", "last"]);
        assert!(publish.status().expect("mosquitto_pub starts").success(), "mosquitto_pub");
        // For a SUBSCRIBE with two topics, the broker sends retained messages in their order.
        let reader = Reader::start(self.port, &reader_id(), &[topic, LAST_KEPT], &[]);
        wait_until_or_show("what the broker keeps", || !reader.under(LAST_KEPT).is_empty(), || self.log());
        let mut messages = reader.messages();
        messages.retain(|message| message.retained && message.topic != LAST_KEPT);
        messages
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.end(libc::SIGKILL);
    }
}

/// Another client's id.
fn reader_id() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("reader-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn signal_to(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).expect("a pid");
    // SAFETY: kill(2) takes two integers; the child has not been waited for, so the pid is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "signal {signal}");
}

/// A message as mosquitto_sub shows it.
#[derive(Debug, Clone)]
pub struct Message {
    /// The topic that it was published to.
    pub topic: String,
    /// The bytes.
    pub payload: Vec<u8>,
    /// Whether the broker had retained it.
    pub retained: bool,
    /// Its quality of service.
    pub qos: u64,
    /// MQTT 5: user properties, `key:value`.
    pub user_properties: String,
    /// MQTT 5.
    pub content_type: String,
    /// MQTT 5: the seconds until it expires.
    pub expiry: String,
}

impl Message {
    /// The payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    /// The payload as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

/// A `mosquitto_sub`; killed when dropped.
pub struct Reader {
    child: Child,
    messages: Arc<Mutex<Vec<Message>>>,
}

impl Reader {
    /// Reads `topic` of any broker that listens on `port`; returns once connected. `arguments` are passed to mosquitto_sub.
    pub fn at(port: u16, topic: &str, arguments: &[&str]) -> Self {
        Self::start(port, &reader_id(), &[topic], arguments)
    }

    fn start(port: u16, id: &str, topics: &[&str], arguments: &[&str]) -> Self {
        let mut command = Command::new("mosquitto_sub");
        command.args(["-h", "localhost", "-p", &port.to_string(), "-i", id, "-V", "mqttv5", "-q", "2"]);
        command.args(topics.iter().flat_map(|topic| ["-t", topic]));
        // The payload in hexadecimal digits, because it may be an image.
        command.args(["-F", "%t|%r|%q|%P|%C|%E|%x", "--quiet"]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("mosquitto_sub starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().expect("no panic").push(parse(&line));
            }
        });
        Self { child, messages }
    }

    /// The messages so far.
    pub fn messages(&self) -> Vec<Message> {
        self.messages.lock().expect("no panic").clone()
    }

    /// The messages so far whose topics end like this.
    pub fn under(&self, end: &str) -> Vec<Message> {
        self.messages().into_iter().filter(|message| message.topic.ends_with(end)).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Message {
    let mut parts = line.split('|');
    let mut next = || parts.next().unwrap_or_default();
    let (topic, retained, qos) = (next(), next(), next());
    let (user_properties, content_type, expiry, hex) = (next(), next(), next(), next());
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(0);
    Message {
        topic: topic.to_owned(),
        payload: hex.as_bytes().chunks(2).map(digits).collect(),
        retained: retained == "1",
        qos: qos.parse().unwrap_or(0),
        user_properties: user_properties.to_owned(),
        content_type: content_type.to_owned(),
        expiry: expiry.to_owned(),
    }
}
