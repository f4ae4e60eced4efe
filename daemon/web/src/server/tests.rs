//! A whole server on its own socket, for a service of test patterns and a tiny model; clients speak HTTP by hand.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tempfile::TempDir;
use visiond_config::types::{Address, Config};
use visiond_message::{EventMessage, EventTotals, Published};
use visiond_service::Service;
use visiond_service::reload::Reloader;
use visiond_system::process;
use visiond_system::stop::Stop;
use visiond_system::testing::{HANG, finishes, hang, wait_until};
use visiond_system::wake_pipe::WakePipe;

use super::*;
use crate::api::OPENAPI;
use crate::listen::check;
use crate::status::StatusCollector;

const MODEL: &str = "
[engine]
backend = \"rten\"
threads = 1
[[model]]
name = \"tiny\"
path = \"{dir}/tiny.onnx\"
[[sink]]
type = \"file\"
name = \"log\"
path = \"{dir}/out.jsonl\"
";
const DOOR: &str = "
[[camera]]
name = \"door\"
source = { type = \"pattern\", width = 128, height = 64, fps = 50.0 }
";
const YARD: &str = "
[[camera]]
name = \"yard\"
source = { type = \"pattern\", width = 128, height = 64, fps = 20.0 }
";
/// A camera that is away.
const ATTIC: &str = "
[[camera]]
name = \"attic\"
source = { type = \"images\", path = \"/nowhere\" }
";
/// A camera that is present, but never delivers a frame.
const SILENT: &str = "
[[camera]]
name = \"silent\"
source = { type = \"command\", command = [\"sleep\", \"1000000\"], timeout = \"1h\" }
";

/// A daemon's service with its server.
struct Daemon {
    folder: TempDir,
    config: Config,
    service: Arc<Service>,
    status: Arc<StatusCollector>,
    server: Arc<Server>,
    stop: Stop,
    _reloader: Reloader,
}

impl Daemon {
    fn start(cameras: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        for name in ["tiny.onnx", "tiny.toml"] {
            fs::copy(tests.join(name), folder.path().join(name)).unwrap();
        }
        let own = folder.path().join("visiond.toml");
        let text = [&[MODEL], cameras].concat().concat().replace("{dir}", folder.path().to_str().unwrap());
        let mut config = Config::parse(&text, &own).unwrap();
        config.http.listen = vec![Address::Unix(folder.path().join("a.sock"))];
        config.http.max_connections = 2;
        let stop = Stop::new().unwrap();
        let service = Arc::new(Service::start(config.clone(), None, &stop).unwrap());
        let reloader = Reloader::new(own.clone(), &service, Arc::new(WakePipe::new().unwrap()));
        let status = Arc::new(StatusCollector::new(&service, None, &own));
        let state = AppState {
            service: Arc::clone(&service),
            live: Arc::clone(service.live()),
            status: Arc::clone(&status),
            reloads: reloader.reloads.clone(),
        };
        let prepared = PreparedListeners::new(&config.http, &[]).unwrap();
        let server = Arc::new(Server::start(prepared, state).unwrap());
        Self { folder, config, service, status, server, stop, _reloader: reloader }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("a.sock")).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    }

    /// Sends a request, such as `GET /healthz`, with further lines of its head, and reads all of the answer.
    fn ask(&self, line: &str, more: &[&str], body: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request(line, &[&["connection: close"], more].concat(), body).as_bytes()).unwrap();
        let mut bytes = Vec::new();
        // An error, after the answer: the server has not read all of a request that it refuses.
        let _ = stream.read_to_end(&mut bytes);
        // The server counts the connection until it has seen its end.
        wait_until("the end of the connection", || self.status.http.facts().connections == 0);
        Answer::of(&bytes)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "")
    }

    /// Sends a request whose answer has no end, and reads until it contains `text`.
    fn watch(&self, path: &str, more: &[&str], text: &str) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request(&format!("GET {path}"), more, "").as_bytes()).unwrap();
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains(text) {
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "no {text} in {}", String::from_utf8_lossy(&bytes));
            bytes.extend(&part[..length]);
        }
        drop(stream);
        wait_until("the end of the connection", || self.status.http.facts().connections == 0);
        bytes
    }

    fn see(&self, cameras: &[&str]) {
        wait_until("messages", || cameras.iter().all(|name| self.service.live().messages().latest(name).is_some()));
    }

    fn end(self) {
        self.server.end();
        assert!(!self.path("a.sock").exists(), "the socket's file goes with it");
        self.stop.raise();
        finishes("the end", move || drop(self.service.end(hang(), 1.0)));
    }
}

fn request(line: &str, more: &[&str], body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{line} HTTP/1.1\r\nhost: localhost\r\n{length}{more}\r\n{body}")
}

/// An answer, its head in lower case.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts that this is a problem (RFC 9457) with this status.
    #[track_caller]
    fn assert_problem(&self, status: u16, detail: &str) {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{}",
            self.head
        );
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[test]
fn a_client_sees_the_cameras_that_run_and_what_they_found() {
    let daemon = Daemon::start(&[DOOR, YARD, ATTIC]);
    daemon.see(&["door", "yard"]);
    let ready = daemon.get("/readyz");
    assert_eq!((ready.status, &*ready.text()), (200, "ready\n"));
    assert_eq!(daemon.get("/healthz").text(), "ok\n");

    let mut status = Value::Null;
    wait_until("the camera that is away to be given up for now", || {
        status = daemon.get("/api/v1/status").json();
        status["cameras"][2]["phase"] == "failed"
    });
    // The system counts the age of a process in hundredths of a second.
    let age = process::age().unwrap().as_secs_f64() + 0.1;
    assert!(status["uptime_s"].as_f64().is_some_and(|uptime| uptime > 0.0 && uptime <= age), "{status}");
    assert_eq!((&status["ready"], &status["not_ready"]), (&json!(true), &json!([])));
    assert_eq!(status["config"], daemon.path("visiond.toml").to_str().unwrap());
    assert_eq!(status["models"][0]["name"], "tiny");
    assert_eq!(status["sinks"][0]["name"], "log");
    let camera = |name: &str| status["cameras"].as_array().unwrap().iter().find(|one| one["name"] == *name).unwrap();
    for name in ["door", "yard"] {
        assert_eq!((&camera(name)["phase"], &camera(name)["model"]), (&json!("streaming"), &json!("tiny")));
        assert!(camera(name)["reason"].is_null() && camera(name)["stages"]["total"]["count"].as_u64() > Some(0));
    }
    assert!(camera("attic")["reason"].as_str().unwrap().contains("/nowhere"), "{}", camera("attic"));
    let names = |list: &Value, key: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&daemon.get("/api/v1/cameras").json(), "name"), ["door", "yard", "attic"]);
    assert_eq!(daemon.get("/api/v1/cameras/yard").json()["name"], "yard");
    daemon.get("/api/v1/cameras/cellar").assert_problem(404, "no running camera has the name \"cellar\"");

    assert_eq!(names(&daemon.get("/api/v1/detections").json(), "camera"), ["door", "yard"]);
    let newest = daemon.get("/api/v1/cameras/door/detections").json();
    assert_eq!((&newest["camera"], &newest["model"]["name"]), (&json!("door"), &json!("tiny")));
    daemon.get("/api/v1/cameras/attic/detections").assert_problem(404, "camera attic has published nothing yet");
    daemon.get("/api/v1/cameras/cellar/detections").assert_problem(404, "no running camera");

    let metrics = daemon.get("/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in ["visiond_ready 1", "visiond_camera_phase{camera=\"door\",phase=\"streaming\"} 1"] {
        assert!(metrics.text().lines().any(|is| is == line), "no {line} in {}", metrics.text());
    }
    daemon.end();
}

#[test]
fn a_daemon_that_has_processed_no_frame_is_not_ready_and_says_which_model() {
    let daemon = Daemon::start(&[SILENT]);
    daemon.get("/readyz").assert_problem(503, "model tiny: no frame processed yet");
    assert_eq!(daemon.status.not_ready(), ["model tiny: no frame processed yet"]);
    let status = daemon.get("/api/v1/status").json();
    assert_eq!(
        (&status["ready"], &status["not_ready"][0]),
        (&json!(false), &json!("model tiny: no frame processed yet"))
    );
    assert_eq!(daemon.get("/api/v1/detections").json(), json!([]));
    daemon.end();
}

#[test]
fn the_configuration_its_changes_the_log_and_a_trace_are_asked_for() {
    let daemon = Daemon::start(&[DOOR]);
    let config = daemon.get("/api/v1/config").json();
    assert_eq!((&config["camera"][0]["name"], &config["http"]["max_connections"]), (&json!("door"), &json!(2)));
    let own = daemon.path("visiond.toml");
    let text = fs::read_to_string(daemon.path("tiny.toml")).unwrap();
    let proposal = json!({ "path": own, "text": text }).to_string();
    let more = ["content-type: application/json"];
    let preview = daemon.ask("POST /api/v1/changes", &more, &proposal).json();
    assert_eq!(preview["valid"], false);
    assert!(preview["error"].as_str().unwrap().contains("visiond.toml:"), "{preview}");
    daemon.ask("POST /api/v1/changes", &more, "{}").assert_problem(422, "path");

    assert!(daemon.get("/api/v1/log").json().is_object());
    daemon.get("/api/v1/log?after=x").assert_problem(400, "`after` must be a line number");
    for seconds in ["0", "1000000", "x"] {
        daemon.ask(&format!("POST /api/v1/trace?seconds={seconds}"), &[], "").assert_problem(400, "from 1 to ");
    }
    let trace = daemon.ask("POST /api/v1/trace?seconds=1", &[], "");
    assert_eq!((trace.status, trace.header("content-type")), (200, Some("application/json")));
    assert!(trace.json()["traceEvents"].as_array().is_some_and(|events| !events.is_empty()), "{}", trace.text());
    daemon.end();
}

#[test]
fn pictures_of_a_camera_come_alone_or_one_after_another() {
    let daemon = Daemon::start(&[DOOR, ATTIC]);
    daemon.see(&["door"]);
    for path in ["/cameras/door/snapshot.jpg", "/api/v1/cameras/door/snapshot?overlay=1"] {
        let picture = daemon.get(path);
        assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/jpeg")));
        assert!(picture.body.starts_with(b"\xff\xd8") && picture.body.ends_with(b"\xff\xd9"));
    }
    daemon.get("/cameras/door/snapshot.jpg?overlay=maybe").assert_problem(400, "`overlay` must be 1 or true");
    daemon.get("/cameras/cellar/snapshot.jpg").assert_problem(404, "no running camera");
    daemon.get("/cameras/cellar/stream.mjpeg").assert_problem(404, "no running camera");
    let film = daemon.watch("/cameras/door/stream.mjpeg", &[], "Content-Type: image/jpeg\r\nContent-Length: ");
    assert!(String::from_utf8_lossy(&film).contains("multipart/x-mixed-replace; boundary=picture"));
    daemon.end();
}

#[test]
fn the_newest_events_are_answered_by_camera_and_kind() {
    let daemon = Daemon::start(&[DOOR, YARD]);
    daemon.see(&["door", "yard"]);
    for number in 0..6_u64 {
        let (camera, kind) = if number % 2 == 0 { ("door", "zone") } else { ("yard", "line") };
        let (to, totals) = (Some("left".into()), Some(EventTotals { begun: number, inside: None }));
        let event = EventMessage {
            camera: camera.into(),
            kind: kind.into(),
            sequence: number,
            to,
            totals,
            ..EventMessage::default()
        };
        daemon.service.live().messages().publish(&Arc::new(Published::of_event(Arc::new(event), None)));
    }
    let get = |query: &str| {
        let answer = daemon.get(&format!("/api/v1/events{query}")).json();
        let numbers = |list: &str, of: &str| -> Vec<_> {
            answer[list].as_array().unwrap().iter().filter_map(|each| each[of].as_u64()).collect()
        };
        (numbers("events", "sequence"), numbers("totals", "begun"))
    };
    assert_eq!(get(""), (vec![5, 4, 3, 2, 1, 0], vec![4, 5]));
    assert_eq!(get("?limit=2"), (vec![5, 4], vec![4, 5]));
    assert_eq!(get("?camera=door&limit=2"), (vec![4, 2], vec![4]));
    assert_eq!(get("?kind=line"), (vec![5, 3, 1], vec![5]));
    assert_eq!(get("?camera=door&kind=line"), (vec![], vec![]));
    for limit in ["0", "201"] {
        daemon.get(&format!("/api/v1/events?limit={limit}")).assert_problem(400, "from 1 to 200");
    }
    daemon.get("/api/v1/events?limit=x").assert_problem(400, "limit");
    daemon.get("/api/v1/events?camera=cellar").assert_problem(404, "no running camera");
    daemon.get("/api/v1/stream?messages=all").assert_problem(400, "`messages` must be frames, events or frames,events");
    daemon.end();
}

#[test]
fn messages_are_streamed_as_events_and_over_a_websocket() {
    let daemon = Daemon::start(&[DOOR, YARD]);
    daemon.see(&["door", "yard"]);
    let events = daemon.watch("/api/v1/stream?camera=yard", &[], "\n\n");
    let events = Answer::of(&events);
    assert_eq!((events.status, events.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(events.header("x-accel-buffering"), Some("no"));
    assert!(events.head.contains("no-transform"), "{}", events.head);
    let text = events.text();
    let (id, data) = text.split_once("id: ").unwrap().1.split_once("\ndata: ").unwrap();
    assert!(!text.contains("event: lost"), "a reader that has just come lost nothing: {text}");
    let message: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!((&message["camera"], &message["id"]), (&json!("yard"), &json!(id)));

    daemon.get("/api/v1/stream?camera=cellar").assert_problem(404, "no running camera");
    daemon.get("/api/v1/stream?only_detections=maybe").assert_problem(400, "`only_detections` must be 1 or true");
    let upgrade = [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let frames = daemon.watch("/api/v1/stream?camera=door", &upgrade, "\"schema\":");
    let frames = Answer::of(&frames);
    assert_eq!(frames.status, 101);
    // RFC 6455, 5.2: a whole text, of which the next two bytes have the length.
    assert_eq!(frames.body[..2], [0x81, 126]);
    assert!(frames.body[4..].starts_with(b"{") && !frames.text().contains("\"lost\""), "{}", frames.text());
    wait_until("the readers to be counted no more", || {
        let http = daemon.status.http.facts();
        (http.event_readers, http.websocket_readers, http.events_lost) == (0, 0, 0)
    });
    daemon.end();
}

#[test]
fn long_text_is_compressed_for_clients_that_ask_and_caches_know() {
    let daemon = Daemon::start(&[ATTIC]);
    let gzip = ["accept-encoding: gzip"];
    let packed = daemon.ask("GET /api/v1/openapi.json", &gzip, "");
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), (Some("gzip"), Some("accept-encoding")));
    assert!(packed.body.len() < OPENAPI.len() / 2);
    let mut text = String::new();
    GzDecoder::new(&*packed.body).read_to_string(&mut text).unwrap();
    assert_eq!(text, OPENAPI);
    let plain = daemon.get("/api/v1/openapi.json");
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    assert_eq!(plain.text(), OPENAPI);
    let short = daemon.ask("GET /healthz", &gzip, "");
    assert_eq!((short.header("content-encoding"), short.header("vary"), &*short.text()), (None, None, "ok\n"));
    daemon.end();
}

#[test]
fn requests_that_do_not_fit_are_answered_with_a_problem() {
    let daemon = Daemon::start(&[ATTIC]);
    daemon.get("/nowhere").assert_problem(404, "no such path: see /api/v1/openapi.json");
    let wrong = daemon.ask("DELETE /healthz", &[], "");
    wrong.assert_problem(405, "method not allowed; see the Allow header");
    assert_eq!(wrong.header("allow"), Some("get,head"));
    assert_eq!(wrong.header("cache-control"), Some("no-store"));

    let more = ["content-type: application/json"];
    let post = |length: usize| daemon.ask("POST /api/v1/changes", &more, &" ".repeat(length));
    assert_eq!(post(64 << 10).status, 400, "it is read, and is no JSON");
    post((64 << 10) + 1).assert_problem(413, "larger than 64 KiB");
    // The same without its length before it.
    let mut stream = daemon.connect();
    let head =
        "POST /api/v1/changes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n";
    stream.write_all(format!("{head}\r\n10001\r\n{}\r\n0\r\n\r\n", " ".repeat((64 << 10) + 1)).as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    Answer::of(&bytes).assert_problem(413, "larger than 64 KiB");
    daemon.end();
}

#[test]
fn a_client_too_many_is_asked_to_come_again_and_told_the_health() {
    let daemon = Daemon::start(&[ATTIC]);
    let held = [daemon.connect(), daemon.connect()];
    wait_until("two connections", || daemon.status.http.facts().connections == 2);
    let ask = |path: &str| {
        let mut stream = daemon.connect();
        stream.write_all(request(&format!("GET {path}"), &[], "").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::of(&bytes)
    };
    let refused = ask("/api/v1/status");
    refused.assert_problem(503, "all connections are taken");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let health = ask("/healthz");
    assert_eq!((&*health.text(), health.header("connection")), ("ok\n", Some("close")), "one request");
    assert_eq!(daemon.status.http.facts().refused, 2);
    drop(held);
    wait_until("their end", || daemon.status.http.facts().connections == 0);
    assert_eq!(daemon.get("/healthz").status, 200);
    let http = daemon.get("/api/v1/status").json()["http"].clone();
    assert_eq!((&http["accepted"], &http["answers"]), (&json!(4), &json!([0, 2, 0, 0, 1])));
    daemon.end();
}

#[test]
fn a_change_opens_other_addresses_and_ends_those_that_are_gone() {
    let daemon = Daemon::start(&[ATTIC]);
    let mut open = daemon.connect();
    wait_until("its connection", || daemon.status.http.facts().connections == 1);
    let mut next = daemon.config.http.clone();
    next.listen = vec![Address::Unix(daemon.path("b.sock"))];
    let prepared = daemon.server.prepare(&next).unwrap();
    assert!(daemon.path("a.sock").exists(), "nothing has changed yet");
    prepared();
    wait_until("the old address to go", || !daemon.path("a.sock").exists());
    assert_eq!(open.read(&mut [0; 9]).unwrap(), 0, "its connections end");
    assert!(UnixStream::connect(daemon.path("b.sock")).is_ok());
    next.listen.push(Address::Unix(daemon.path("a.sock")));
    daemon.server.prepare(&next).unwrap()();
    wait_until("both", || daemon.path("a.sock").exists());
    assert!(daemon.path("b.sock").exists());
    daemon.end();
}

#[test]
fn a_check_names_each_address_that_cannot_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = Address::Tcp(taken.local_addr().unwrap());
    let nowhere = Address::Unix("/nowhere/http.sock".into());
    let free = Address::Unix(folder.path().join("http.sock"));
    let listen = vec![in_use.clone(), Address::Tcp("127.0.0.1:0".parse().unwrap()), nowhere.clone(), free];
    let config = HttpConfig { listen, token: Some(folder.path().join("none")), ..HttpConfig::default() };
    let found: Vec<_> = check(&config).into_iter().map(|(address, _)| address).collect();
    assert_eq!(found, [None, Some(in_use), Some(nowhere)]);
    assert!(
        check(&HttpConfig { listen: vec![Address::Tcp("127.0.0.1:0".parse().unwrap())], ..HttpConfig::default() })
            .is_empty()
    );
}

#[test]
fn pictures_are_counted_at_the_camera_that_stores_them() {
    let annotated = DOOR.to_owned() + "annotate = { directory = \"{dir}/pictures\", every = 1 }\n";
    let daemon = Daemon::start(&[YARD, &annotated]);
    let stored = |camera: &str| daemon.get(&format!("/api/v1/cameras/{camera}")).json()["pictures"].clone();
    wait_until("a picture", || stored("door")["written"].as_u64() > Some(0));
    assert_eq!(stored("yard"), Value::Null);
    daemon.end();
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let daemon = Daemon::start(&[ATTIC]);
    let mut stream = daemon.connect();
    for _ in 0..3 {
        stream.write_all(request("GET /healthz", &[], "").as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            let mut part = [0; 512];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "closed after {}", String::from_utf8_lossy(&answer));
            answer.extend(&part[..length]);
        }
    }
    assert_eq!(daemon.status.http.facts().accepted, 1);
    drop(stream);
    daemon.end();
}
