//! The NATS sink against nats-server with JetStream; the tests compare the content of the stream.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use visiond_tests::nats::NatsServer;
use visiond_tests::port::Port;
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

/// Creates the stream if it is missing.
const MADE: &str = "stream = \"visiond\"\ncreate_stream = true\n";

/// A message in the stream.
pub struct Stored {
    pub subject: String,
    header_id: String,
    json: Value,
}

/// Returns everything in the stream; empty while there is none.
pub fn stored(port: u16) -> Vec<Stored> {
    stored_with(async_nats::ConnectOptions::new().connect(url(port)))
}

fn stored_with(connect: impl Future<Output = Result<async_nats::Client, async_nats::ConnectError>>) -> Vec<Stored> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let jetstream = async_nats::jetstream::new(connect.await.unwrap());
        let Ok(mut stream) = jetstream.get_stream("visiond").await else { return Vec::new() };
        let state = stream.info().await.unwrap().state.clone();
        let mut all = Vec::new();
        // In an empty stream, the first and the last message have the number 0, which does not exist.
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

/// Asserts that each message is there once, those of a camera in order.
fn assert_in_order_and_once(stored: &[Stored], log: &str) {
    let ids: HashSet<_> = stored.iter().map(|message| message.header_id.as_str()).collect();
    assert_eq!(ids.len(), stored.len(), "an id is there twice\n{log}");
    let order = sequences(stored);
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}\n{log}");
}

/// The same messages in the same order.
fn assert_same(stored: &[Stored], written: &[Value], log: &str) {
    let of_file: Vec<_> = written.iter().map(|message| &message["id"]).collect();
    let of_stream: Vec<_> = stored.iter().map(|message| &message.json["id"]).collect();
    assert_eq!(of_stream, of_file, "{log}");
}

/// Asserts that the stream soon has the messages that the file has so far, and nothing else before or between them.
fn assert_as_in_the_file(daemon: &mut Daemon, port: u16) {
    let written = daemon.messages("out.jsonl");
    daemon.wait_until("what is in the file to be in the stream", |_| stored(port).len() >= written.len());
    assert_same(&stored(port)[..written.len()], &written, &daemon.log());
}

fn terminated(daemon: Daemon) -> Finished {
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended
}

/// Starts a daemon, waits until its log holds `words`, and ends it.
fn log_with(text: &str, words: &str) -> String {
    let mut daemon = Daemon::start(text);
    daemon.wait_for_log(words);
    terminated(daemon).log
}

#[test]
fn messages_are_in_the_created_stream_once_each_with_their_ids() {
    let server = NatsServer::start();
    // At the message limit, unlike after a signal, it waits for all messages in flight.
    let daemon = Daemon::start_with(&config(&url(server.port), MADE), |command| {
        command.args(["--max-messages", "40"]);
    });
    let ended = daemon.finish();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("created the stream visiond for visiond.*.*.detections"), "{}", ended.log);
    let stored = stored(server.port);
    for message in &stored {
        assert_eq!(message.subject, "visiond.gate.door.detections");
        assert_eq!(message.json["id"], message.header_id.as_str());
        assert_eq!(message.json["detections"].as_array().unwrap().len(), 8);
    }
    assert_in_order_and_once(&stored, &ended.log);
    // Messages that were in flight at the end have also arrived.
    assert_eq!(stored.len(), 40);
    assert_same(&stored, &ended.daemon.messages("out.jsonl"), &ended.log);
}

#[test]
fn a_server_that_was_killed_and_restarted_has_every_message_once_and_in_order() {
    let mut server = NatsServer::start();
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    for round in 1..=3 {
        let before = stored(server.port).len();
        daemon.wait_until("messages", |_| stored(server.port).len() >= before + 20);
        server.kill();
        daemon.wait_until("the loss to be logged", |daemon| daemon.log().matches("connection lost").count() == round);
        server.resume();
    }
    let before = stored(server.port).len();
    daemon.wait_until("messages", |_| stored(server.port).len() >= before + 20);
    assert_as_in_the_file(&mut daemon, server.port);
    let log = &terminated(daemon).log;
    assert_in_order_and_once(&stored(server.port), log);
    for line in ["connection lost", "connected after"] {
        assert_eq!(log.matches(line).count(), 3, "{line}:\n{log}");
    }
}

/// A connection of the daemon's, and the bytes that it sent there.
type Overheard = (TcpStream, Arc<Mutex<Vec<u8>>>);

/// A proxy between daemon and server that keeps the daemon's bytes and can drop the server's.
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

    /// Cuts the newest connection; returns the daemon's bytes on it.
    fn cut(&self) -> Vec<u8> {
        let connections = self.connections.lock().unwrap();
        let (client, said) = connections.last().unwrap();
        client.shutdown(Shutdown::Both).unwrap();
        said.lock().unwrap().clone()
    }

    /// Returns how often the daemon has connected.
    fn count(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// Returns the daemon's bytes on the newest connection.
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
fn a_stored_but_unacknowledged_message_is_sent_again_and_kept_once() {
    let server = NatsServer::start();
    let between = Middleman::start(server.port);
    // Even on a busy machine an acknowledgement arrives before the daemon gives up the connection.
    let mut daemon = Daemon::start(&config(&url(between.port), &format!("{MADE}ack_timeout = \"1h\"\n")));
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
    let log = terminated(daemon).log;
    assert_in_order_and_once(&stored(server.port), &log);
}

#[test]
fn a_message_too_large_for_the_server_is_left_out_and_counts_as_lost() {
    let server = NatsServer::start_with(|_| "max_payload: 1000\n".to_owned());
    let daemon = Daemon::start_with(&config(&url(server.port), MADE), |command| {
        command.args(["--max-messages", "20"]);
    });
    let ended = daemon.finish();
    assert!(ended.log.contains("as too large; raise max_payload there"), "{}", ended.log);
    // The others are counted, and not logged one by one.
    assert_eq!(ended.log.matches("cannot send a message, leaving it out: ").count(), 1, "{}", ended.log);
    let lost = "sink nats: lost 20 of 20 messages: 0 by a full queue, 20 by failed writes";
    assert!(ended.log.contains(lost), "{}", ended.log);
}

#[test]
fn a_missing_stream_is_reported_once_with_a_remedy() {
    let bare = NatsServer::start_bare(|_| String::new());
    let mut daemon = Daemon::start(&config(&url(bare.port), MADE));
    daemon.wait_until("what is missing", |daemon| {
        let log = daemon.log();
        log.contains("no answer from JetStream: start the server with -js")
            || log.contains("JetStream is off: start the server")
    });
    terminated(daemon);
    let without_a_stream = "start the server with -js if it has no streams at all";
    log_with(&config(&url(bare.port), ""), without_a_stream);

    let server = NatsServer::start();
    let words = "there is no stream visiond: create it (`nats stream add`), or set `create_stream`";
    let between = Middleman::start(server.port);
    let mut daemon = Daemon::start(&config(&url(between.port), "stream = \"visiond\"\n"));
    daemon.wait_for_log(words);
    // Before a third attempt, it has failed again.
    let before = between.count();
    daemon.wait_until("further attempts", |_| between.count() >= before + 2);
    let log = terminated(daemon).log;
    assert_eq!(log.matches(words).count(), 1, "once an outage\n{log}");

    let words = "no stream accepts the messages of camera door: make one";
    let between = Middleman::start(server.port);
    let mut daemon = Daemon::start(&config(&url(between.port), ""));
    daemon.wait_for_log(words);
    // One message is sent every five seconds.
    let first = ids_in(&between.said()).swap_remove(0);
    let attempts = || ids_in(&between.said()).iter().filter(|id| **id == first).count();
    daemon.wait_until("further attempts", |_| attempts() >= 3);
    assert_eq!(between.count(), 1, "over the same connection");
    let log = terminated(daemon).log;
    assert_eq!(log.matches(words).count(), 1, "once an outage\n{log}");

    let nobody = Port::reserve();
    let refused = format!("nats://127.0.0.1:{}: Connection refused", nobody.number);
    let log = log_with(&config(&url(nobody.number), MADE), &refused);
    assert!(log.contains("check that nats-server runs there"), "{log}");
}

#[test]
fn tls_and_a_login_prove_both_ends_and_errors_leave_out_the_password() {
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
        let log = terminated(daemon).log;
        assert!(!log.contains("s3cret"), "{log}");
    }
    let refused = "the server rejects this user and password: check `login`";
    let log = log_with(&sink("tls", "ca.pem", "wrong", &proof), refused);
    assert!(!log.contains("hunter2"), "{log}");
    let unknown = "unknown certificate issuer: set `ca` to the signing CA";
    log_with(&sink("tls", "other-ca.pem", "right", &proof), unknown);
    log_with(&sink("tls", "ca.pem", "right", ""), "rejects this device's certificate");
}

/// Returns a token like those of `nsc`: `nats` has the rights of its subject, and `issuer` signs it.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let claims = json!({ "jti": "x", "iat": 1, "iss": issuer.public_key(), "sub": subject.public_key(), "nats": nats });
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap()))
}

#[test]
fn credentials_open_a_server_that_knows_no_passwords() {
    let (operator, account, user) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user());
    let system = KeyPair::new_account();
    let server = NatsServer::start_with(|folder| {
        // The system's own account must not store messages.
        let kinds = ["subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage"];
        let account_token = |one: &KeyPair, limits: &[&str]| {
            let limits: Value = limits.iter().map(|limit| ((*limit).to_owned(), json!(-1))).collect();
            let nats = json!({ "type": "account", "version": 2, "limits": limits });
            format!("{}: {}", one.public_key(), token(&operator, one, &nats))
        };
        let (of_account, of_system) = (account_token(&account, &kinds), account_token(&system, &kinds[..7]));
        let operator_token = token(&operator, &operator, &json!({ "type": "operator", "version": 2 }));
        std::fs::write(folder.join("operator.jwt"), operator_token).unwrap();
        format!(
            "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {of_account}, {of_system} }}\n",
            folder.join("operator.jwt").display(),
            system.public_key()
        )
    });
    let rights = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let credentials = |user: &KeyPair, of: &KeyPair| {
        let (token, seed) = (token(&account, of, &rights), user.seed().unwrap());
        format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    };
    let (right, wrong) = (server.path("right.creds"), server.path("wrong.creds"));
    std::fs::write(&right, credentials(&user, &user)).unwrap();
    std::fs::write(&wrong, credentials(&KeyPair::new_user(), &user)).unwrap();
    let sink = |file: &Path| config(&url(server.port), &format!("{MADE}credentials = \"{}\"\n", file.display()));
    let read = async || {
        async_nats::ConnectOptions::with_credentials_file(&right).await.unwrap().connect(url(server.port)).await
    };
    let mut daemon = Daemon::start(&sink(&right));
    daemon.wait_until("messages", |_| stored_with(read()).len() >= 10);
    terminated(daemon);
    let log = log_with(&sink(&wrong), "the server rejects these credentials: check `credentials`");
    assert!(!log.contains(&user.seed().unwrap()), "{log}");
    log_with(&config(&url(server.port), MADE), "the server requires authentication: set `login` or `credentials`");
}

#[test]
fn a_changed_sink_reconnects_and_loses_nothing() {
    let server = NatsServer::start();
    let mut daemon = Daemon::start(&config(&url(server.port), MADE));
    daemon.wait_until("messages", |_| stored(server.port).len() >= 10);
    let before = stored(server.port).len();
    daemon.reconfigure(&config(&url(server.port), &format!("{MADE}ack_timeout = \"3s\"\n")));
    daemon.wait_until("messages", |_| stored(server.port).len() >= before + 50);
    assert_as_in_the_file(&mut daemon, server.port);
    let ended = terminated(daemon);
    assert_in_order_and_once(&stored(server.port), &ended.log);
}

/// The same with a second camera, yard.
fn with_yard(text: &str) -> String {
    format!(
        "{text}[[camera]]\nname = \"yard\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n"
    )
}

/// Makes the stream for these subjects.
pub fn make_stream(port: u16, subjects: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let jetstream = async_nats::jetstream::new(async_nats::connect(url(port)).await.unwrap());
        let subjects = subjects.iter().map(|subject| (*subject).to_owned()).collect();
        let config = async_nats::jetstream::stream::Config { name: "visiond".into(), subjects, ..Default::default() };
        jetstream.create_or_update_stream(config).await.unwrap();
    });
}

#[test]
fn a_camera_whose_subject_is_refused_holds_up_no_other() {
    const DOOR: &str = "visiond.gate.door.detections";
    let no_right = |_: &Path| {
        format!(
            "authorization {{ users = [ {{ user: jet, password: s3cret, permissions: {{ publish: [\"{DOOR}\"], subscribe: \"_INBOX.>\" }} }}, \
             {{ user: all, password: all }} ] }}\nno_auth_user: all\n"
        )
    };
    let no_stream = NatsServer::start();
    let no_right = NatsServer::start_with(no_right);
    std::fs::write(no_right.path("login"), "jet:s3cret\n").unwrap();
    let login = format!("login = \"{}\"\n", no_right.path("login").display());
    for (server, streams, keys, words) in [
        (&no_stream, &[DOOR][..], "", "no stream accepts the messages of camera yard"),
        (&no_right, &["visiond.>"], &*login, "Permissions Violation for Publish to \"visiond.gate.yard.detections\""),
    ] {
        make_stream(server.port, streams);
        let between = Middleman::start(server.port);
        let mut daemon = Daemon::start(&with_yard(&config(&url(between.port), keys)));
        daemon.wait_until("messages of door", |_| stored(server.port).len() > 300);
        assert!(stored(server.port).iter().all(|message| message.subject == DOOR));
        assert_eq!(between.count(), 1, "{}", daemon.log());
        if keys.is_empty() {
            make_stream(server.port, &["visiond.>"]);
            daemon.wait_for_log("sink nats: the broker accepts the messages of camera yard again");
            daemon
                .wait_until("messages of yard", |_| stored(server.port).iter().any(|message| message.subject != DOOR));
        }
        let log = terminated(daemon).log;
        assert_eq!(
            (log.matches(words).count(), log.matches("; the messages of camera yard wait").count()),
            (1, 1),
            "{log}"
        );
        assert!(!log.contains("connection lost"), "{log}");
    }
}
