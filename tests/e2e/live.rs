//! Live data over HTTP: messages as events and over WebSockets, and images, as a browser requests them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;
use visiond_kernels::jpeg::{JpegDecoder, JpegHeader};
use visiond_tests::{Daemon, HANG, root};

const TEXT: &str = r#"
[engine]
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]
max_fps = 20.0

[[model]]
name = "tiny"
path = "{tiny}"

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

fn camera(name: &str, fps: u32) -> String {
    let source = format!("{{ type = \"pattern\", width = 320, height = 240, fps = {fps}.0 }}");
    format!("[[camera]]\nname = \"{name}\"\nmodel = \"tiny\"\nsource = {source}\n")
}

fn config(cameras: &[String]) -> String {
    TEXT.replace("{tiny}", &root().join("tests/vm/tiny.onnx").display().to_string()) + &cameras.concat()
}

fn start(cameras: &[String]) -> Daemon {
    let mut daemon = Daemon::start(&config(cameras));
    daemon.wait_until("a message and the socket", |daemon| {
        daemon.count("out.jsonl") > 0 && UnixStream::connect(daemon.path("http.sock")).is_ok()
    });
    daemon
}

/// A response: its head, and its body to read.
pub struct Answer {
    pub status: u16,
    pub head: String,
    body: BufReader<UnixStream>,
}

pub fn ask(daemon: &Daemon, path: &str, headers: &str) -> Answer {
    let mut socket = UnixStream::connect(daemon.path("http.sock")).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    let mut body = BufReader::new(socket);
    let head = head(&mut body);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body }
}

/// Lines up to an empty one.
pub fn head(from: &mut impl BufRead) -> String {
    let mut text = String::new();
    while from.read_line(&mut text).unwrap() > 2 {}
    text
}

pub fn field(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Answer {
    /// Returns the body of a plain response.
    pub fn bytes(mut self) -> Vec<u8> {
        let length = field(&self.head, "content-length").unwrap().parse().unwrap();
        let mut bytes = vec![0; length];
        self.body.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Returns a body in chunked encoding.
    pub fn chunked(self) -> Chunked {
        assert_eq!((self.status, field(&self.head, "transfer-encoding").as_deref()), (200, Some("chunked")));
        Chunked { from: self.body, left: 0 }
    }
}

/// A body in chunked encoding, read as one.
pub struct Chunked {
    from: BufReader<UnixStream>,
    left: usize,
}

impl Read for Chunked {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.from.read_line(&mut line)?;
            self.left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = to.len().min(self.left);
        let read = self.from.read(&mut to[..most])?;
        self.left -= read;
        if self.left == 0 {
            self.from.read_exact(&mut [0; 2])?;
        }
        Ok(read)
    }
}

/// Opens a WebSocket as a browser does.
fn web_socket(daemon: &Daemon, path: &str) -> BufReader<UnixStream> {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = ask(daemon, path, upgrade);
    assert_eq!(answer.status, 101, "{}", answer.head);
    // RFC 6455's own example.
    assert_eq!(field(&answer.head, "sec-websocket-accept").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    answer.body
}

/// Returns the next text of a WebSocket's server.
fn next_text(socket: &mut BufReader<UnixStream>) -> Value {
    loop {
        let mut start = [0; 2];
        socket.read_exact(&mut start).unwrap();
        let mut length = usize::from(start[1]);
        if length == 126 {
            let mut two = [0; 2];
            socket.read_exact(&mut two).unwrap();
            length = usize::from(u16::from_be_bytes(two));
        }
        assert!(length < 65_536, "no mask and no longer length: {start:?}");
        let mut text = vec![0; length];
        socket.read_exact(&mut text).unwrap();
        match start[0] {
            0x81 => return serde_json::from_slice(&text).unwrap(),
            // A ping, answered by a pong: masked by zeros, and empty.
            0x89 => socket.get_mut().write_all(&[0x8a, 0x80, 0, 0, 0, 0]).unwrap(),
            other => panic!("a frame of kind {other:#x}"),
        }
    }
}

fn sequence(message: &Value) -> u64 {
    message["sequence"].as_u64().unwrap()
}

/// The image's size and the colour of the pixel at `x`, `y`.
fn pixel(jpeg: &[u8], x: u32, y: u32) -> ((u32, u32), [u8; 3]) {
    let mut decoder = JpegDecoder::new();
    let JpegHeader { width, height, .. } = decoder.header(jpeg).unwrap();
    let mut rgb = vec![0; (width * height * 3) as usize];
    decoder.decode(jpeg, &mut rgb).unwrap();
    let at = ((y * width + x) * 3) as usize;
    ((width, height), [rgb[at], rgb[at + 1], rgb[at + 2]])
}

/// Returns how many clients watch the first camera.
fn watchers(daemon: &Daemon) -> u64 {
    let status: Value = serde_json::from_slice(&ask(daemon, "/api/v1/status", "").bytes()).unwrap();
    status["cameras"][0]["watchers"].as_u64().unwrap()
}

#[test]
fn events_and_web_sockets_deliver_every_message_of_the_sinks_that_was_requested() {
    let daemon = start(&[camera("door", 30), camera("yard", 30)]);
    let mut events = BufReader::new(ask(&daemon, "/api/v1/stream?camera=door", "").chunked());
    let mut all = web_socket(&daemon, "/api/v1/stream");
    let mut yard = web_socket(&daemon, "/api/v1/stream?camera=yard&only_detections=1");

    let (mut of_events, mut line) = (Vec::new(), String::new());
    while of_events.len() < 20 {
        line.clear();
        events.read_line(&mut line).unwrap();
        if let Some(id) = line.strip_prefix("id: ").or_else(|| line.strip_prefix("id:")) {
            assert!(!id.trim().is_empty());
        }
        if let Some(data) = line.strip_prefix("data: ").or_else(|| line.strip_prefix("data:")) {
            of_events.push(serde_json::from_str::<Value>(data).unwrap());
        }
    }
    let of_all: Vec<_> = (0..40).map(|_| next_text(&mut all)).collect();
    let of_yard: Vec<_> = (0..10).map(|_| next_text(&mut yard)).collect();
    assert!(of_events.iter().all(|message| message["camera"] == "door"));
    assert!(of_yard.iter().all(|message| message["camera"] == "yard"));
    assert!(of_yard.iter().all(|message| !message["detections"].as_array().unwrap().is_empty()));

    let finished = daemon.terminate();
    let written = finished.daemon.messages("out.jsonl");
    for (name, got) in [("door", &of_events), ("yard", &of_yard)] {
        let first = sequence(&got[0]);
        let expected = written.iter().filter(|message| message["camera"] == name && sequence(message) >= first);
        let same = got.iter().eq(expected.take(got.len()));
        assert!(same, "{name}: not what the file has");
    }
    let first = written.iter().position(|message| *message == of_all[0]).unwrap();
    assert_eq!(written[first..first + 40], of_all[..]);
}

#[test]
fn a_slow_reader_learns_how_many_messages_it_missed() {
    // Small frames, many a second.
    let source = "{ type = \"pattern\", width = 32, height = 32, fps = 1000.0 }";
    let mut daemon = start(&[format!("[[camera]]\nname = \"door\"\nmodel = \"tiny\"\nsource = {source}\n")]);
    let mut slow = web_socket(&daemon, "/api/v1/stream");
    let before = daemon.count("out.jsonl");
    let mut read = Vec::new();
    for messages in (50..=1800).step_by(50) {
        daemon.wait_until("more than a socket holds", |daemon| daemon.count("out.jsonl") > before + messages);
        // A client that reads nothing for 30 s is disconnected; a busy machine takes longer for all of them.
        read.extend((0..5).map(|_| next_text(&mut slow)));
    }
    let (mut first, mut got, mut read) = (None, 0, read.into_iter());
    let mut next = || read.next().unwrap_or_else(|| next_text(&mut slow));
    let lost = loop {
        let text = next();
        if let Some(lost) = text["lost"].as_u64() {
            break lost;
        }
        first.get_or_insert(sequence(&text));
        got += 1;
    };
    let next = next();
    let written = daemon.messages("out.jsonl");
    let at = written.iter().position(|message| Some(sequence(message)) == first).unwrap();
    let place = at + got + usize::try_from(lost).unwrap();
    daemon.wait_until("it in the file", |daemon| daemon.count("out.jsonl") > place);
    let expected = &daemon.messages("out.jsonl")[place];
    assert_eq!((sequence(&next), &next["captured_at"]), (sequence(expected), &expected["captured_at"]));
    assert!(daemon.terminate().status.success());
}

#[test]
fn a_snapshot_is_a_picture_of_the_camera_with_boxes_on_request() {
    let mut daemon = start(&[camera("door", 30)]);
    for path in ["/cameras/door/snapshot.jpg", "/api/v1/cameras/door/snapshot", "/cameras/door/snapshot.jpg?overlay=0"]
    {
        let answer = ask(&daemon, path, "");
        assert_eq!((answer.status, field(&answer.head, "content-type").as_deref()), (200, Some("image/jpeg")));
        assert_eq!(field(&answer.head, "cache-control").as_deref(), Some("no-store"));
        let number: u64 = field(&answer.head, "x-visiond-sequence").unwrap().parse().unwrap();
        let (size, color) = pixel(&answer.bytes(), 10, 120);
        assert_eq!(size, (320, 240));
        // The first of the bars is white.
        assert!(color.iter().all(|&value| value > 170), "{color:?}");
        let told = |daemon: &Daemon| daemon.messages("out.jsonl").iter().any(|message| sequence(message) == number);
        daemon.wait_until("the frame's message", told);
    }
    let plain = ask(&daemon, "/cameras/door/snapshot.jpg", "").bytes();
    let overlay = ask(&daemon, "/cameras/door/snapshot.jpg?overlay=1", "").bytes();
    let differs = (0..320).filter(|&x| {
        let ((_, a), (_, b)) = (pixel(&plain, x, 1), pixel(&overlay, x, 1));
        a.iter().zip(b).any(|(&a, b)| a.abs_diff(b) > 40)
    });
    assert!(differs.count() > 20, "the boxes' upper edges are there");
    assert!(daemon.terminate().status.success());
}

#[test]
fn pictures_arrive_in_sequence_while_they_are_watched_and_cost_nothing_after() {
    let mut daemon = start(&[camera("door", 60)]);
    let answer = ask(&daemon, "/cameras/door/stream.mjpeg?overlay=1", "");
    assert_eq!(field(&answer.head, "content-type").as_deref(), Some("multipart/x-mixed-replace; boundary=picture"));
    let mut parts = BufReader::new(answer.chunked());
    let mut numbers = Vec::new();
    for _ in 0..12 {
        let mut line = String::new();
        parts.read_line(&mut line).unwrap();
        assert_eq!(line, "--picture\r\n");
        let head = head(&mut parts);
        let mut jpeg = vec![0; field(&head, "content-length").unwrap().parse().unwrap()];
        parts.read_exact(&mut jpeg).unwrap();
        parts.read_exact(&mut [0; 2]).unwrap();
        numbers.push(field(&head, "x-visiond-sequence").unwrap().parse::<u64>().unwrap());
        assert_eq!(pixel(&jpeg, 0, 0).0, (320, 240));
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(watchers(&daemon), 1);
    drop(parts);
    daemon.wait_until("nobody to watch", |daemon| watchers(daemon) == 0);
    assert!(daemon.terminate().status.success());
}

#[test]
fn pictures_end_with_their_camera_and_missing_ones_are_an_error() {
    let daemon = start(&[camera("door", 30), camera("yard", 30)]);
    for (path, status, word) in [
        ("/cameras/attic/snapshot.jpg", 404, "attic"),
        ("/cameras/attic/stream.mjpeg", 404, "attic"),
        ("/api/v1/stream?camera=door,attic", 404, "attic"),
        ("/cameras/door/snapshot.jpg?overlay=maybe", 400, "overlay"),
        ("/api/v1/stream?only_detections=maybe", 400, "only_detections"),
        ("/cameras/%2e%2e%2fdoor/snapshot.jpg", 404, "door"),
        ("/cameras/door%00/snapshot.jpg", 404, "door"),
        ("/cameras/%ff/snapshot.jpg", 400, ""),
    ] {
        let answer = ask(&daemon, path, "");
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(field(&answer.head, "content-type").as_deref(), Some("application/problem+json"), "{path}");
        let problem: Value = serde_json::from_slice(&answer.bytes()).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(word), "{path}: {problem}");
    }
    let mut gone = ask(&daemon, "/cameras/yard/stream.mjpeg", "").chunked();
    gone.read_exact(&mut [0; 100]).unwrap();
    daemon.reconfigure(&config(&[camera("door", 30)]));
    std::io::copy(&mut gone, &mut std::io::sink()).unwrap();
    assert_eq!(ask(&daemon, "/cameras/yard/snapshot.jpg", "").status, 404);
    assert_eq!(ask(&daemon, "/cameras/door/snapshot.jpg", "").status, 200);
    assert!(daemon.terminate().status.success());
}
