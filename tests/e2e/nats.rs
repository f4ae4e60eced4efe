//! The NATS sink against nats-server with JetStream: what stands in the stream.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as arranged")]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use visiond_tests::nats::NatsServer;
use visiond_tests::{Daemon, Finished, certificates, root};

/// A device called gate whose camera door sees one bar of each of eight colours, and a sink with these keys.
fn config(url: &str, sink: &str) -> String {
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
type = "nats"
url = ["{url}"]
queue = 10000
{sink}
[[sink]]
type = "file"
path = "{{dir}}/out.jsonl"
"#,
        tiny.display()
    )
}

fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// A stream that is made where it is missing.
const MADE: &str = "stream = \"visiond\"\ncreate_stream = true\n";

/// A message as it stands in the stream.
struct Stored {
    subject: String,
    header_id: String,
    json: Value,
}

/// Everything in the stream; empty while there is none.
fn stored(port: u16) -> Vec<Stored> {
    stored_with(async_nats::ConnectOptions::new().connect(url(port)))
}

fn stored_with(connect: impl Future<Output = Result<async_nats::Client, async_nats::ConnectError>>) -> Vec<Stored> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let jetstream = async_nats::jetstream::new(connect.await.unwrap());
        let Ok(mut stream) = jetstream.get_stream("visiond").await else { return Vec::new() };
        let state = stream.info().await.unwrap().state.clone();
        let mut all = Vec::new();
        // A stream that holds nothing yet calls its first and its last message number 0, and there is no message 0.
        if state.messages == 0 {
            return all;
        }
        for number in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(number).await.unwrap();
            let header_id = message.headers.get("Nats-Msg-Id").unwrap().as_str().to_owned();
            let json = serde_json::from_slice(&message.payload).unwrap();
            all.push(Stored { subject: message.subject.to_string(), header_id, json });
        }
        all
    })
}

fn sequences(stored: &[Stored]) -> Vec<u64> {
    stored.iter().map(|message| message.json["sequence"].as_u64().unwrap()).collect()
}

/// Each message once, a camera's in order.
fn assert_in_order_and_once(stored: &[Stored], log: &str) {
    let ids: HashSet<_> = stored.iter().map(|message| message.header_id.as_str()).collect();
    assert_eq!(ids.len(), stored.len(), "an id is there twice\n{log}");
    let order = sequences(stored);
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}\n{log}");
}

/// What went to a file is what went to the stream, from its first message on.
fn assert_as_in_the_file(ended: &Finished, stored: &[Stored]) {
    let written = ended.daemon.messages("out.jsonl");
    let ids = |messages: &mut dyn Iterator<Item = &Value>| messages.map(|m| m["id"].clone()).collect::<Vec<_>>();
    let expected = ids(&mut written.iter());
    assert_eq!(ids(&mut stored.iter().map(|message| &message.json)), expected, "{}", ended.log);
}

fn terminated(daemon: Daemon) -> Finished {
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended
}

/// The log is not to be had before the end, so a test that needs a line of it ends the daemon.
fn log_after(daemon: Daemon) -> String {
    terminated(daemon).log
}

/// What a daemon says that is set so, after a moment.
fn said(text: &str) -> String {
    let daemon = Daemon::start(text);
    std::thread::sleep(Duration::from_millis(1500));
    log_after(daemon)
}

#[test]
fn messages_stand_in_the_stream_that_is_made_once_each_with_their_ids() {
    let server = NatsServer::start();
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    daemon.wait_until("messages", |_| stored(server.port).len() >= 40);
    let ended = terminated(daemon);
    assert!(ended.log.contains("made the stream visiond for visiond.*.*.detections"), "{}", ended.log);
    let stored = stored(server.port);
    for message in &stored {
        assert_eq!(message.subject, "visiond.gate.door.detections");
        assert_eq!(message.json["id"], message.header_id.as_str());
        assert_eq!(message.json["detections"].as_array().unwrap().len(), 8);
    }
    assert_in_order_and_once(&stored, &ended.log);
    // What was on its way at the end is there, too.
    assert_as_in_the_file(&ended, &stored);
}

#[test]
fn a_server_that_is_killed_and_started_again_has_every_message_once_and_in_order() {
    let mut server = NatsServer::start();
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    for _ in 0..3 {
        let before = stored(server.port).len();
        daemon.wait_until("messages", |_| stored(server.port).len() >= before + 20);
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        server.resume();
    }
    let before = stored(server.port).len();
    daemon.wait_until("messages", |_| stored(server.port).len() >= before + 20);
    let ended = terminated(daemon);
    let (stored, log) = (stored(server.port), &ended.log);
    assert_in_order_and_once(&stored, log);
    assert_as_in_the_file(&ended, &stored);
    for line in ["the connection is lost", "connected after"] {
        assert_eq!(log.matches(line).count(), 3, "{line}:\n{log}");
    }
}

/// A connection of the daemon's, and what it said there.
type Overheard = (TcpStream, Arc<Mutex<Vec<u8>>>);

/// Stands between daemon and server, keeps what the daemon says, and can swallow what the server says.
struct Middleman {
    port: u16,
    deaf: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<Overheard>>>,
}

impl Middleman {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (deaf, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let this = Self { port, deaf: Arc::clone(&deaf), connections: Arc::clone(&connections) };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(to_server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let said = Arc::new(Mutex::new(Vec::new()));
                connections.lock().unwrap().push((client.try_clone().unwrap(), Arc::clone(&said)));
                let (from, to) = (client.try_clone().unwrap(), to_server.try_clone().unwrap());
                std::thread::spawn(move || pump(from, to, |bytes| said.lock().unwrap().extend_from_slice(bytes)));
                let deaf = Arc::clone(&deaf);
                std::thread::spawn(move || {
                    pump(to_server, client, |_| {
                        while deaf.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    });
                });
            }
        });
        this
    }

    /// Cuts the newest connection off; what the daemon said on it.
    fn cut(&self) -> Vec<u8> {
        let connections = self.connections.lock().unwrap();
        let (client, said) = connections.last().unwrap();
        client.shutdown(Shutdown::Both).unwrap();
        said.lock().unwrap().clone()
    }

    /// What the daemon said on the newest connection.
    fn said(&self) -> Vec<u8> {
        self.connections.lock().unwrap().last().unwrap().1.lock().unwrap().clone()
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut bytes = [0; 65536];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        look(&bytes[..n]);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The ids that were sent.
fn ids_in(said: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(said);
    text.split("Nats-Msg-Id: ").skip(1).map(|rest| rest.split("\r\n").next().unwrap().to_owned()).collect()
}

#[test]
fn what_was_stored_but_not_acknowledged_is_sent_again_and_is_one_message() {
    let server = NatsServer::start();
    let between = Middleman::start(server.port);
    let mut daemon = Daemon::start(&config(&url(between.port), MADE));
    daemon.wait_until("messages", |_| stored(server.port).len() >= 10);
    between.deaf.store(true, Ordering::SeqCst);
    let before = stored(server.port).len();
    daemon.wait_until("messages without acknowledgement", |_| stored(server.port).len() >= before + 10);
    let first = ids_in(&between.cut());
    between.deaf.store(false, Ordering::SeqCst);
    daemon.wait_until("another connection", |_| ids_in(&between.said()).iter().any(|id| !first.contains(id)));
    let second = ids_in(&between.said());
    let again: Vec<_> = second.iter().filter(|id| first.contains(id)).collect();
    let stored_before: HashSet<_> = stored(server.port).into_iter().map(|message| message.header_id).collect();
    assert!(again.len() >= 10 && again.iter().all(|id| stored_before.contains(*id)), "{again:?}");
    let log = log_after(daemon);
    assert_in_order_and_once(&stored(server.port), &log);
}

#[test]
fn a_message_too_large_for_the_server_is_left_out_and_counts_as_lost() {
    let server = NatsServer::start_with(|_| "max_payload: 1000\n".to_owned());
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    daemon.wait_until("messages", |daemon| daemon.messages("out.jsonl").len() >= 20);
    let ended = terminated(daemon);
    assert!(ended.log.contains("takes no message as large as"), "{}", ended.log);
    assert!(ended.log.contains("it is left out; raise max_payload there"), "{}", ended.log);
    let written = ended.daemon.messages("out.jsonl").len();
    let lost =
        format!("sink nats: {written} messages lost of {written}: 0 by a full queue, {written} by failed writes");
    assert!(ended.log.contains(&lost), "{lost}\n{}", ended.log);
}

#[test]
fn what_is_missing_at_the_server_is_said_once_in_a_sentence_that_helps() {
    let bare = NatsServer::start_bare(|_| String::new());
    let log = said(&config(&url(bare.port), MADE));
    let off = "JetStream does not answer: is it on (`nats-server -js`)";
    assert!(log.contains(off) || log.contains("JetStream is off there"), "{log}");

    let server = NatsServer::start();
    let log = said(&config(&url(server.port), "stream = \"visiond\"\n"));
    assert!(log.contains("there is no stream visiond: make it (`nats stream add`), or set `create_stream`"), "{log}");
    assert_eq!(log.matches("there is no stream").count(), 1, "once an outage\n{log}");
    let log = said(&config(&url(server.port), ""));
    assert!(log.contains("no stream takes the messages of camera door: make one"), "{log}");
    assert_eq!(log.matches("no stream takes").count(), 1, "once an outage\n{log}");

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = said(&config(&url(nobody), MADE));
    assert!(log.contains(&format!("nats://127.0.0.1:{nobody}: Connection refused")), "{log}");
    assert!(log.contains("does nats-server run there?"), "{log}");
}

#[test]
fn tls_and_a_login_prove_both_ends_and_what_is_wrong_is_said_without_the_password() {
    let server = NatsServer::start_with(|folder| {
        certificates::make(folder, "DNS:localhost,IP:127.0.0.1");
        let file = |name: &str| folder.join(name).display().to_string();
        format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n\
             authorization {{ user: jet, password: s3cret }}\n",
            file("server.pem"),
            file("server.key"),
            file("ca.pem")
        )
    });
    let pem = |name: &str| server.path(name).display().to_string();
    std::fs::write(server.path("right"), "jet:s3cret\n").unwrap();
    std::fs::write(server.path("wrong"), "jet:hunter2\n").unwrap();
    let read = || {
        let options = async_nats::ConnectOptions::with_user_and_password("jet".into(), "s3cret".into())
            .add_root_certificates(server.path("ca.pem"))
            .add_client_certificate(server.path("device.pem"), server.path("device.key"));
        stored_with(options.connect(format!("tls://127.0.0.1:{}", server.port)))
    };
    let sink = |scheme: &str, ca: &str, login: &str, more: &str| {
        let (ca, login) = (pem(ca), pem(login));
        let keys = format!("{MADE}ca = \"{ca}\"\nlogin = \"{login}\"\n{more}");
        config(&format!("{scheme}://localhost:{}", server.port), &keys)
    };
    let proof = format!("certificate = \"{}\"\nkey = \"{}\"\n", pem("device.pem"), pem("device.key"));

    for scheme in ["tls", "nats"] {
        let before = read().len();
        let mut daemon = Daemon::start(&sink(scheme, "ca.pem", "right", &proof));
        daemon.wait_until("messages", |_| read().len() >= before + 10);
        let log = log_after(daemon);
        assert!(!log.contains("s3cret"), "{log}");
    }
    let log = said(&sink("tls", "ca.pem", "wrong", &proof));
    assert!(log.contains("the server does not take this user and password: see `login`"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    let log = said(&sink("tls", "other-ca.pem", "right", &proof));
    assert!(log.contains("signed by nobody who is trusted here: name its authority with `ca`"), "{log}");
    let log = said(&sink("tls", "ca.pem", "right", ""));
    assert!(log.contains("does not take this device's certificate"), "{log}");
}

#[test]
fn a_sink_that_is_set_otherwise_connects_anew_and_loses_nothing() {
    let server = NatsServer::start();
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    daemon.wait_until("messages", |_| stored(server.port).len() >= 10);
    let before = stored(server.port).len();
    daemon.reconfigure(&config(&url(server.port), &format!("{MADE}ack_timeout = \"3s\"\n")));
    daemon.wait_until("messages", |_| stored(server.port).len() >= before + 50);
    let ended = terminated(daemon);
    let stored = stored(server.port);
    assert_in_order_and_once(&stored, &ended.log);
    assert_as_in_the_file(&ended, &stored);
}
