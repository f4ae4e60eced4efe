//! Brokers that send data that no broker should send: the effect on the daemon's memory, its log and its other sinks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use visiond_tests::{Daemon, certificates, root};

/// The number of bytes that all connections to a broker get together.
const MOST_SENT: u64 = 400 << 20;
/// By how much the daemon's memory may grow meanwhile.
const MOST_GROWN: u64 = 64 << 20;

/// A broker that answers each connection with a greeting, then repeats some bytes and reads nothing.
struct HostileBroker {
    port: u16,
    sent: Arc<AtomicU64>,
    connections: Arc<AtomicUsize>,
}

impl HostileBroker {
    fn start(greet: fn(&mut TcpStream) -> std::io::Result<()>, bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (sent, connections) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            sent: Arc::clone(&sent),
            connections: Arc::clone(&connections),
        };
        let chunk = bytes.repeat((64 << 10) / bytes.len() + 1);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                if greet(&mut stream).is_err() {
                    continue;
                }
                while sent.load(Ordering::SeqCst) < MOST_SENT && stream.write_all(&chunk).is_ok() {
                    sent.fetch_add(chunk.len() as u64, Ordering::SeqCst);
                }
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        this
    }

    /// Whether it has had further connections, or has sent everything.
    fn is_done(&self) -> bool {
        self.connections.load(Ordering::SeqCst) >= 3 || self.sent.load(Ordering::SeqCst) >= MOST_SENT
    }
}

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
source = {{ type = "pattern", width = 128, height = 64, fps = 50 }}
[[sink]]
type = "file"
path = "{{dir}}/out.jsonl"
{sink}"#,
        tiny.display()
    )
}

/// Adds a sink to a running daemon: its memory stays bounded, its log says `words`, it connects again, and the file gets every
/// message. Takes turns with the other such tests, which all send as fast as they can.
fn assert_bounded(words: &str, sink: &str, mut done: impl FnMut() -> bool) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let mut daemon = Daemon::start(&config(""));
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 20);
    let before = daemon.memory_kib("VmHWM") << 10;
    daemon.reconfigure(&config(sink));
    daemon.wait_until("further connections", |_| done());
    let grown = (daemon.memory_kib("VmHWM") << 10).saturating_sub(before);
    assert!(grown < MOST_GROWN, "{} MiB more: {words}", grown >> 20);
    daemon.wait_for_log(words);
    let count = daemon.count("out.jsonl");
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= count + 20);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.lines().all(|line| line.len() < 1000), "{}", ended.log);
    assert!(!ended.log.contains("sink file: lost"), "{}", ended.log);
}

fn assert_nats_bounded(words: &str, greet: fn(&mut TcpStream) -> std::io::Result<()>, bytes: &[u8]) {
    let broker = HostileBroker::start(greet, bytes.to_vec());
    let sink =
        format!("[[sink]]\ntype = \"nats\"\nurl = [\"nats://127.0.0.1:{}\"]\nack_timeout = \"1h\"\n", broker.port);
    assert_bounded(words, &sink, || broker.is_done());
}

fn assert_mqtt_bounded(words: &str, protocol: &str, bytes: &[u8]) {
    let greet = if protocol == "5" { accept_mqtt_5 } else { accept_mqtt_3 };
    let broker = HostileBroker::start(greet, bytes.to_vec());
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    let sink = format!("[[sink]]\ntype = \"mqtt\"\nurl = \"{url}\"\nprotocol = \"{protocol}\"\n");
    assert_bounded(words, &sink, || broker.is_done());
}

/// Greets like a NATS server, and sends nothing more.
fn accept_nats(stream: &mut TcpStream) -> std::io::Result<()> {
    stream
        .write_all(b"INFO {\"server_id\":\"x\",\"version\":\"2.11.0\",\"headers\":true,\"max_payload\":1048576}\r\n")?;
    let (mut received, mut byte) = (Vec::new(), [0]);
    while !received.ends_with(b"PING\r\n") {
        stream.read_exact(&mut byte)?;
        received.push(byte[0]);
    }
    stream.write_all(b"PONG\r\n")
}

/// Greets like a NATS server, and announces this before the endless rest.
macro_rules! accept_nats_and_send {
    ($start:literal) => {
        |stream| {
            accept_nats(stream)?;
            stream.write_all($start)
        }
    };
}

fn read_connect(stream: &mut TcpStream) -> std::io::Result<()> {
    // One packet of less than 128 bytes.
    let mut connect = [0; 2];
    stream.read_exact(&mut connect)?;
    stream.read_exact(&mut vec![0; usize::from(connect[1])])
}

fn accept_mqtt_5(stream: &mut TcpStream) -> std::io::Result<()> {
    read_connect(stream)?;
    stream.write_all(&[0x20, 3, 0, 0, 0])
}

fn accept_mqtt_3(stream: &mut TcpStream) -> std::io::Result<()> {
    read_connect(stream)?;
    stream.write_all(&[0x20, 2, 0, 0])
}

#[test]
fn a_nats_server_whose_lines_have_no_end_is_given_up() {
    let words = "the server sent a line of more than 64 KiB";
    assert_nats_bounded(words, |stream| stream.write_all(b"INFO {\"server_id\":\""), b"x");
    assert_nats_bounded(words, accept_nats_and_send!(b"-ERR '"), b"x");
    assert_nats_bounded(words, accept_nats_and_send!(b"MSG "), b"x");
}

#[test]
fn a_nats_server_that_announces_a_huge_message_is_given_up() {
    let words = "the server announced a message of 1099511627776 bytes";
    assert_nats_bounded(words, accept_nats_and_send!(b"MSG x 1 1099511627776\r\n"), b"x");
    assert_nats_bounded(words, accept_nats_and_send!(b"HMSG x 1 12 1099511627776\r\n"), b"x");
}

#[test]
fn a_nats_server_that_never_stops_is_given_up() {
    let words = "the server sent 4 MiB that visiond did not request";
    assert_nats_bounded(words, accept_nats, b"+OK\r\n");
    assert_nats_bounded(words, accept_nats, b"PING\r\n");
    assert_nats_bounded(words, accept_nats, b"MSG _INBOX.x.1 1 2\r\n{}\r\n");
    assert_nats_bounded(words, accept_nats, b"INFO {\"max_payload\":1048576}\r\n");
}

/// A NATS server with TLS that announces a huge message on each of three connections; it prints its port first.
const HOSTILE_TLS: &str = r#"
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for _ in range(3):
    client = listener.accept()[0]
    client.sendall(b'INFO {"server_id":"x","version":"2.11.0","headers":true,"tls_required":true}\r\n')
    try:
        client = context.wrap_socket(client, server_side=True)
        received = b""
        while not received.endswith(b"PING\r\n"):
            received += client.recv(4096) or sys.exit("no PING")
        client.sendall(b"PONG\r\nMSG x 1 1099511627776\r\n")
        for _ in range(200):
            client.sendall(bytes(1 << 20))
    except OSError:
        pass
    client.close()
"#;

struct KilledAtTheEnd(Child);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn tls_changes_nothing_about_that() {
    let folder = tempfile::tempdir().unwrap();
    certificates::make(folder.path(), "DNS:localhost,IP:127.0.0.1");
    let file = |name: &str| folder.path().join(name);
    let mut server = Command::new("python3");
    server.args(["-c", HOSTILE_TLS]).args([file("server.pem"), file("server.key")]).stdout(Stdio::piped());
    let mut server = KilledAtTheEnd(server.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let (url, ca) = (format!("tls://localhost:{}", port.trim()), file("ca.pem").display().to_string());
    let sink = format!("[[sink]]\ntype = \"nats\"\nurl = [\"{url}\"]\nca = \"{ca}\"\nack_timeout = \"1h\"\n");
    let words = "the server announced a message of 1099511627776 bytes";
    assert_bounded(words, &sink, || server.0.try_wait().unwrap().is_some());
}

#[test]
fn an_mqtt_broker_that_announces_a_huge_packet_is_given_up() {
    // PUBLISH of 256 MiB.
    for protocol in ["5", "3.1.1"] {
        assert_mqtt_bounded("the broker sent an invalid packet", protocol, &[0x30, 0xff, 0xff, 0xff, 0x7f]);
    }
}

#[test]
fn an_mqtt_broker_that_never_stops_is_given_up() {
    let words = "the broker sent 4 MiB that visiond did not request";
    let retained =
        |topic: &str| [&[0x31, (topic.len() + 5) as u8, 0, topic.len() as u8], topic.as_bytes(), b"{}x"].concat();
    for protocol in ["5", "3.1.1"] {
        // PINGRESP; PUBREC, each of which requires a PUBREL; a retained state of a removed camera, which visiond must clear.
        assert_mqtt_bounded(words, protocol, &[0xd0, 0]);
        assert_mqtt_bounded(words, protocol, &[0x50, 2, 0, 9]);
    }
    assert_mqtt_bounded(words, "3.1.1", &retained("visiond/gate/cameras/gone/state"));
}

#[test]
fn an_mqtt_broker_that_takes_only_tiny_packets_costs_a_line_and_not_one_for_each_message() {
    fn accept_tiny(stream: &mut TcpStream) -> std::io::Result<()> {
        read_connect(stream)?;
        // Maximum Packet Size is 20.
        stream.write_all(&[0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 20])?;
        // Reads to the end, and sends nothing.
        std::io::copy(stream, &mut std::io::sink())?;
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
    let broker = HostileBroker::start(accept_tiny, vec![0]);
    let sink = format!("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nqos_detections = 0\n", broker.port);
    let mut daemon = Daemon::start(&config(&sink));
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 50);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let lines: Vec<_> = ended.log.lines().filter(|line| line.contains("leaving it out")).collect();
    assert_eq!(lines.len(), 1, "{}", ended.log);
    assert!(lines[0].contains("bytes, the broker accepts at most 20"), "{}", lines[0]);
}
