//! SIGTERM ends the daemon within its time, whatever its outputs do.
//!
//! The outputs here hang forever, so a daemon that waits for one of them does not end. No test measures the time: the daemon
//! itself logs when the orderly shutdown took too long ([`CUT`]).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use visiond_tests::port::Port;
use visiond_tests::{Daemon, Finished, HANG, root};

/// The daemon's log line when it ends although something still hangs.
const CUT: &str = "shutdown did not finish within 2 s";

/// A camera whose messages go to ref.jsonl and to `sinks`.
fn config(sinks: &str) -> String {
    config_with(&root().join("tests/vm/tiny.onnx"), sinks)
}

fn config_with(model: &Path, sinks: &str) -> String {
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"bars\"\npath = \"{}\"\n[[camera]]\nname = \"door\"\n\
         source = {{ type = \"pattern\", width = 128, height = 64, fps = 50 }}\n\
         [[sink]]\nname = \"ref\"\ntype = \"file\"\npath = \"{{dir}}/ref.jsonl\"\n{sinks}",
        model.display()
    )
}

/// A server that does what `script` does with each connection, and then keeps it open.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(script: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        // Connections inherit the small buffer, which soon is full.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(2048).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(16).unwrap();
        let listener = TcpListener::from(socket);
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (script, count) = (Arc::new(script), Arc::clone(&connections));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                std::thread::spawn(move || {
                    script(&mut stream);
                    std::mem::forget(stream);
                });
            }
        });
        Self { port, connections }
    }
}

/// Reads until the bytes `word` came.
fn read_until(stream: &mut TcpStream, word: &[u8]) {
    let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
    while !read.windows(word.len()).any(|found| found == word) {
        match stream.read(&mut chunk) {
            Ok(n @ 1..) => read.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    }
}

fn read_on(stream: &mut TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

fn nats_info(stream: &mut TcpStream) {
    let _ = stream.write_all(
        b"INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.10.0\",\"go\":\"go1\",\"host\":\"127.0.0.1\",\
          \"port\":4222,\"headers\":true,\"max_payload\":1048576,\"proto\":1,\"jetstream\":true}\r\n",
    );
}

fn nats_session(stream: &mut TcpStream) {
    nats_info(stream);
    read_until(stream, b"PING\r\n");
    let _ = stream.write_all(b"PONG\r\n");
}

fn mqtt_session(stream: &mut TcpStream) {
    // CONNECT begins with this packet type and contains the protocol's name.
    read_until(stream, b"MQTT");
    let _ = stream.write_all(&[0x20, 3, 0, 0, 0]);
}

fn mqtt_without_acknowledgement() -> Server {
    Server::start(|stream| {
        mqtt_session(stream);
        read_on(stream);
    })
}

fn sink(name: &str, kind: &str, keys: &str) -> String {
    format!("[[sink]]\nname = \"{name}\"\ntype = \"{kind}\"\nqueue = 10000\n{keys}\n")
}

fn mqtt(name: &str, port: u16, keys: &str) -> String {
    sink(name, "mqtt", &format!("url = \"mqtt://127.0.0.1:{port}\"\n{keys}"))
}

/// Builds the library that makes outputs hang; see stopping/stuck.c.
fn stuck(folder: &Path) -> PathBuf {
    let library = folder.join("stuck.so");
    let source = root().join("tests/e2e/stopping/stuck.c");
    let mut cc = Command::new("cc");
    let built = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

fn start_stuck(folder: &Path, config: &str, adapt: impl FnOnce(&mut Command)) -> Daemon {
    let library = stuck(folder);
    Daemon::start_with(config, |command| {
        command.env("LD_PRELOAD", library);
        adapt(command);
    })
}

/// Asserts that the daemon ended in order, and that ref.jsonl has every message.
fn assert_in_order(ended: &Finished) {
    let log = &ended.log;
    assert_eq!(ended.status.code(), Some(0), "{log}");
    assert!(!log.contains(CUT), "{log}");
    let count = ended.daemon.count("ref.jsonl");
    assert!(log.contains(&format!("sink ref: {count} messages to")), "{log}");
    assert!(!log.contains("sink ref: lost"), "{log}");
}

#[test]
fn outputs_that_do_not_answer_are_given_up_at_one_deadline_and_the_log_says_what_each_lost() {
    let silent = || Server::start(read_on);
    let servers = [
        ("nats-silent", silent()),
        ("nats-tls", silent()),
        (
            "nats-no-pong",
            Server::start(|stream| {
                nats_info(stream);
                read_on(stream);
            }),
        ),
        (
            "nats-no-ack",
            Server::start(|stream| {
                nats_session(stream);
                read_on(stream);
            }),
        ),
        ("nats-full", Server::start(nats_session)),
        ("mqtt-silent", silent()),
        ("mqtt-tls", silent()),
        ("mqtt-no-ack", mqtt_without_acknowledgement()),
        ("mqtt-full", Server::start(mqtt_session)),
        ("mqtt-durable", mqtt_without_acknowledgement()),
    ];
    let broker = |(name, server): &(&str, Server)| {
        let (kind, behaviour) = name.split_once('-').unwrap();
        let scheme = match (kind, behaviour) {
            ("nats", "tls") => "tls",
            ("mqtt", "tls") => "mqtts",
            _ => kind,
        };
        let url = format!("\"{scheme}://127.0.0.1:{}\"", server.port);
        let url = if kind == "nats" { format!("url = [{url}]") } else { format!("url = {url}") };
        let durable = if behaviour == "durable" { "durable = true\nspool_directory = \"{dir}/spool\"" } else { "" };
        sink(name, kind, &format!("{url}\n{durable}"))
    };
    let mut sinks: String = servers.iter().map(broker).collect();
    sinks += &sink("nats-dns", "nats", "url = [\"nats://stuck.invalid:4222\"]");
    sinks += &sink("mqtt-dns", "mqtt", "url = \"mqtt://stuck.invalid:1883\"");
    sinks += &sink("pipe", "stdout", "");
    sinks += &sink("socket", "unix", "path = \"{dir}/d.sock\"\nreader_buffer_bytes = \"64 KiB\"");
    let port = Port::reserve();
    let text = format!("[http]\nlisten = [\"127.0.0.1:{}\"]\n{}", port.number, config(&sinks));

    let folder = tempfile::tempdir().unwrap();
    let (unread, pipe) = std::io::pipe().unwrap();
    let mut daemon = start_stuck(folder.path(), &text, |command| {
        command.stdout(Stdio::from(pipe));
    });
    let socket = daemon.path("d.sock");
    let mut reader = None;
    daemon.wait_until("the socket", |_| {
        reader = UnixStream::connect(&socket).ok();
        reader.is_some()
    });
    daemon.wait_until("the live page", |_| TcpStream::connect(("127.0.0.1", port.number)).is_ok());
    let _streams = ["/cameras/door/stream.mjpeg", "/api/v1/stream"].map(|path| {
        let mut stream = TcpStream::connect(("127.0.0.1", port.number)).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", port.number).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    });
    daemon.wait_until("every server to have a connection", |_| {
        servers.iter().all(|(_, server)| server.connections.load(Ordering::SeqCst) > 0)
    });
    // More than the pipe and the buffers of the sockets hold.
    daemon.wait_until("a hundred messages", |daemon| daemon.count("ref.jsonl") >= 100);
    let ended = daemon.terminate();
    drop(unread);
    assert_in_order(&ended);
    let lost = servers.iter().map(|(name, _)| *name).filter(|name| *name != "mqtt-durable");
    for name in lost.chain(["nats-dns", "mqtt-dns", "pipe"]) {
        assert!(ended.log.contains(&format!("sink {name}: lost ")), "{name}:\n{}", ended.log);
    }
    let kept = format!("sink mqtt-durable: {} messages stay in the spool", ended.daemon.count("ref.jsonl"));
    assert!(ended.log.contains(&kept), "{kept}\n{}", ended.log);
    for words in ["does not respond", "did not finish in time"] {
        assert!(!ended.log.contains(words), "no thread hangs\n{}", ended.log);
    }
}

#[test]
fn stuck_disks_are_given_up_at_the_same_time_however_many_they_are() {
    const FILES: usize = 40;
    let server = mqtt_without_acknowledgement();
    let file = |n| sink(&format!("file{n}"), "file", &format!("path = \"{{dir}}/stuck-{n}\""));
    let mut sinks: String = (0..FILES).map(file).collect();
    sinks += &mqtt("spool", server.port, "durable = true\nspool_directory = \"{dir}/stuck-spool\"");
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = start_stuck(folder.path(), &config(&sinks), |_| {});
    daemon.wait_until("messages", |daemon| daemon.count("ref.jsonl") >= 20);
    let ended = daemon.terminate();
    assert_in_order(&ended);
    let count = ended.daemon.count("ref.jsonl");
    for n in 0..FILES {
        // The message that the thread hangs with is lost as well.
        let lost = format!(
            "sink file{n}: lost {count} of {count} messages: 0 by a full queue, 0 by failed writes, {count} un"
        );
        assert!(ended.log.contains(&lost), "{lost}\n{}", ended.log);
    }
    // Either the sink's thread hangs or the one that syncs for it, depending on when the last sync began.
    let kept =
        [format!("{count} messages stay in its spool"), format!("sink spool: {count} messages stay in the spool")];
    assert!(kept.iter().any(|words| ended.log.contains(words)), "{kept:?}\n{}", ended.log);
    // In sequence, with 150 ms each, they would take six seconds, and the shutdown would not be orderly.
    let given_up = |line: &&str| line.contains("sink file") && line.contains("does not respond");
    assert_eq!(ended.log.lines().filter(given_up).count(), FILES);
}

#[test]
fn sigterm_shortens_the_end_of_a_run_that_reached_its_limit() {
    let server = mqtt_without_acknowledgement();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let notified = UnixDatagram::bind(&path).unwrap();
    notified.set_read_timeout(Some(HANG)).unwrap();
    let text = config(&mqtt("mqtt", server.port, "keep_alive = \"1h\""));
    let daemon = Daemon::start_with(&text, |command| {
        command.args(["--max-messages", "20"]).env("NOTIFY_SOCKET", &path);
    });
    let mut said = [0; 4096];
    while !String::from_utf8_lossy(&said).contains("STOPPING=1") {
        said.fill(0);
        notified.recv(&mut said).unwrap();
    }
    // Without the signal it waits for the broker's acknowledgements.
    let ended = daemon.terminate();
    assert_in_order(&ended);
    assert!(ended.log.contains("SIGTERM: shutting down"), "{}", ended.log);
    let lost = "sink mqtt: lost 20 of 20 messages: 0 by a full queue, 0 by failed writes, 20 unsent at the end";
    assert!(ended.log.contains(lost), "{}", ended.log);
}

#[test]
fn sigterm_shortens_the_end_of_a_sink_that_a_reload_removed_and_its_losses_are_logged() {
    let server = mqtt_without_acknowledgement();
    let mut daemon = Daemon::start(&config(&mqtt("mqtt", server.port, "")));
    daemon.wait_until("a session and messages", |daemon| {
        server.connections.load(Ordering::SeqCst) > 0 && daemon.count("ref.jsonl") >= 20
    });
    daemon.reconfigure(&config(&sink("second", "file", "path = \"{dir}/second.jsonl\"")));
    daemon.wait_until("the new configuration to be in force", |daemon| daemon.count("second.jsonl") > 0);
    let ended = daemon.terminate();
    assert_in_order(&ended);
    assert!(ended.log.contains("sink mqtt: lost "), "{}", ended.log);
    assert!(!ended.log.contains("a reload was still running"), "{}", ended.log);
}

#[test]
fn sigterm_ends_a_start_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.sock");
    let served = UnixListener::bind(&path).unwrap();
    // SAFETY: a socket that is open.
    assert_eq!(unsafe { libc::listen(served.as_raw_fd(), 0) }, 0);
    // Nobody accepts. The daemon checks whether the socket is served, and hangs because of this connection.
    let _first = UnixStream::connect(&path).unwrap();
    let served = format!("[[sink]]\nname = \"served\"\ntype = \"unix\"\npath = {path:?}\n");
    let mut daemon = Daemon::start(&config(&served));
    daemon.wait_until("the daemon to handle signals", |daemon| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // The last that it handles.
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (libc::SIGHUP - 1) != 0
    });
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains(CUT), "{}", ended.log);
}
