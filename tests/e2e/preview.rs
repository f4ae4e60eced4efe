//! A network camera with two streams, played by `tests/rtsp/server.py`: the model's, and a small one for people who watch.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use visiond_kernels::jpeg::{JpegDecoder, JpegHeader};
use visiond_tests::port::Port;
use visiond_tests::{Daemon, root, wait_until};

use crate::live::{Chunked, ask, field, head};
use crate::rtsp::Server;

/// The size of the model's stream, and of the preview, which also has another shape.
const MAIN: (u32, u32) = (384, 288);
const SMALL: (u32, u32) = (192, 108);

/// Two streams and their servers, which require a login.
struct Camera {
    folder: tempfile::TempDir,
    main: Server,
    port: Port,
}

impl Camera {
    /// The model's stream is grey with a green bar, which the model finds; the preview is black and has none.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bar = "drawbox=x=96:y=0:w=48:h=288:color=0x00ff00:t=fill";
        film(&folder.path().join("main.h264"), MAIN, "gray", bar);
        film(&folder.path().join("small.h264"), SMALL, "black", "null");
        fs::write(folder.path().join("login"), "gate:swordfish\n").unwrap();
        let main = serve(&folder.path().join("main.h264"), 0);
        Self { folder, main, port: Port::reserve() }
    }

    fn serve_preview(&self) -> Server {
        serve(&self.folder.path().join("small.h264"), self.port.number)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, has_preview: bool) -> String {
        let preview = format!("preview_url = \"rtsp://127.0.0.1:{}/small\"\n", self.port.number);
        format!(
            "[engine]\nbackend = \"rten\"\nthreads = 1\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\nmax_fps = 20.0\n\
             [[model]]\nname = \"tiny\"\npath = \"{}\"\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n\
             [[camera]]\nname = \"gate\"\n[camera.source]\ntype = \"rtsp\"\nurl = \"rtsp://127.0.0.1:{}/main\"\n\
             login = \"{}\"\n{}",
            root().join("tests/vm/tiny.onnx").display(),
            self.main.port,
            self.path("login").display(),
            if has_preview { &preview } else { "" },
        )
    }

    fn start(&self) -> Daemon {
        let mut daemon = Daemon::start(&self.config(true));
        daemon.wait_until("messages and the socket", |daemon| {
            daemon.count("out.jsonl") >= 3 && UnixStream::connect(daemon.path("http.sock")).is_ok()
        });
        daemon
    }
}

pub fn film(path: &Path, (width, height): (u32, u32), color: &str, filter: &str) {
    let input = format!("color={color}:size={width}x{height}:rate=10:duration=2");
    let mut made = Command::new("ffmpeg");
    made.args(["-v", "error", "-f", "lavfi", "-i", &input, "-vf", filter, "-pix_fmt", "yuv420p"]);
    made.args(["-c:v", "libx264", "-g", "5", "-bf", "0", "-f", "h264"]).arg(path);
    assert!(made.status().unwrap().success());
}

pub fn serve(file: &Path, port: u16) -> Server {
    let port = port.to_string();
    let login = ["--user", "gate", "--password", "swordfish"];
    Server::start(file, &[&["--port", &port, "--fps", "10", "--at-end", "loop"], &login[..]].concat())
}

/// An image's size, and its pixels as RGB.
fn decode(jpeg: &[u8]) -> ((u32, u32), Vec<u8>) {
    let mut decoder = JpegDecoder::new();
    let JpegHeader { width, height, .. } = decoder.header(jpeg).unwrap();
    let mut rgb = vec![0; (width * height * 3) as usize];
    decoder.decode(jpeg, &mut rgb).unwrap();
    ((width, height), rgb)
}

fn snapshot(daemon: &Daemon, query: &str) -> ((u32, u32), Vec<u8>) {
    let answer = ask(daemon, &format!("/cameras/gate/snapshot.jpg{query}"), "");
    assert_eq!(answer.status, 200, "{}\n{}", answer.head, daemon.log());
    decode(&answer.bytes())
}

fn watch(daemon: &Daemon) -> BufReader<Chunked> {
    BufReader::new(ask(daemon, "/cameras/gate/stream.mjpeg", "").chunked())
}

/// The size of a stream's next image.
fn next_size(parts: &mut BufReader<Chunked>) -> (u32, u32) {
    let mut line = String::new();
    parts.read_line(&mut line).unwrap();
    assert_eq!(line, "--picture\r\n");
    let mut jpeg = vec![0; field(&head(parts), "content-length").unwrap().parse().unwrap()];
    parts.read_exact(&mut jpeg).unwrap();
    parts.read_exact(&mut [0; 2]).unwrap();
    decode(&jpeg).0
}

fn status(daemon: &Daemon) -> Value {
    let status: Value = serde_json::from_slice(&ask(daemon, "/api/v1/status", "").bytes()).unwrap();
    status["cameras"][0].clone()
}

/// The columns in which the lower halves of two preview images differ; labels are in the upper half.
fn different_columns(a: &[u8], b: &[u8]) -> Vec<u32> {
    let (width, height) = SMALL;
    let differs = |x: u32, y: u32| {
        let at = ((y * width + x) * 3) as usize;
        (at..at + 3).any(|at| a[at].abs_diff(b[at]) > 60)
    };
    (0..width).filter(|&x| (height / 2..height - 4).all(|y| differs(x, y))).collect()
}

#[test]
fn people_see_the_preview_with_the_models_boxes_and_it_plays_only_while_they_watch() {
    let camera = Camera::new();
    let server = camera.serve_preview();
    let mut daemon = camera.start();
    assert_eq!(status(&daemon)["preview"], json!({ "phase": "idle", "reason": null, "width": 0, "height": 0 }));
    assert_eq!(server.heard("connected"), 0, "no client watches");

    let mut watched = watch(&daemon);
    wait_until("pictures of the preview", || next_size(&mut watched) == SMALL);
    assert_eq!(next_size(&mut watched), SMALL, "once it plays, it stays");
    let (size, plain) = snapshot(&daemon, "");
    let answer = ask(&daemon, "/cameras/gate/snapshot.jpg?overlay=1", "");
    let number: u64 = field(&answer.head, "x-visiond-sequence").unwrap().parse().unwrap();
    let (overlay_size, overlay) = decode(&answer.bytes());
    assert_eq!((size, overlay_size), (SMALL, SMALL));
    assert!(plain.iter().all(|&value| value < 30), "it is black");
    // The bar is at 96 to 144 of 384 columns.
    let columns = different_columns(&plain, &overlay);
    let (first, last) = (columns[0], *columns.last().unwrap());
    assert!(first.abs_diff(48) <= 1 && last.abs_diff(71) <= 1 && columns.len() < 8, "{columns:?}");
    daemon.wait_until("the message of the boxes", |daemon| {
        daemon.messages("out.jsonl").iter().any(|message| message["sequence"] == number)
    });
    let seen = status(&daemon);
    let expected = json!({ "phase": "streaming", "reason": null, "width": SMALL.0, "height": SMALL.1 });
    assert_eq!((&seen["preview"], &seen["watchers"]), (&expected, &json!(1)));
    assert_eq!((&seen["width"], &seen["height"]), (&json!(MAIN.0), &json!(MAIN.1)), "the model's frames");
    assert_eq!(server.heard("PLAY login"), 1, "one session for all who watch");

    drop(watched);
    daemon.wait_until("the end of the session", |_| server.heard("TEARDOWN login") == 1);
    daemon.wait_until("the preview to be closed", |daemon| status(daemon)["preview"]["phase"] == "idle");
    // Another client opens it again.
    wait_until("the preview", || snapshot(&daemon, "").0 == SMALL);
    assert_eq!(server.heard("PLAY login"), 2);

    let seen = status(&daemon);
    assert_eq!((&seen["errors"], &seen["restarts"], &seen["dropped"]["failed"]), (&json!(0), &json!(0), &json!(0)));
    // While the model's stream is away, people see the preview, and after some seconds no old boxes.
    drop(camera.main);
    let answer = || ask(&daemon, "/cameras/gate/snapshot.jpg?overlay=1", "");
    wait_until("a picture without a result", || field(&answer().head, "x-visiond-sequence").is_none());
    let (size, overlay) = decode(&answer().bytes());
    assert!(size == SMALL && different_columns(&plain, &overlay).is_empty());
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("swordfish") && !ended.log.contains("abandoned"), "{}", ended.log);
    wait_until("the end of the session", || server.heard("TEARDOWN login") == 2);
    // The model saw its own stream all the time.
    let messages = ended.daemon.messages("out.jsonl");
    for message in &messages {
        assert_eq!(message["frame"]["width"], MAIN.0);
        assert_eq!(message["detections"][0]["label"], "green", "{message}");
    }
    let number = |message: &Value| message["sequence"].as_u64().unwrap();
    let frames = number(messages.last().unwrap()) + 1 - number(&messages[0]);
    // A busy machine drops some. They are counted, and a few may have arrived since.
    let lost = seen["dropped"]["overload"].as_u64().unwrap() + 3;
    assert!(frames - messages.len() as u64 <= lost, "{frames} frames, {} messages, {lost} lost", messages.len());
}

#[test]
fn while_the_preview_cannot_be_played_people_see_the_models_frames_and_the_log_says_why() {
    let camera = Camera::new();
    let mut daemon = camera.start();
    let mut watched = watch(&daemon);
    assert_eq!(next_size(&mut watched), MAIN);
    daemon.wait_for_log("camera gate, preview: cannot play rtsp://127.0.0.1:");
    daemon.wait_for_log("the live page shows the model's frames; trying again in");
    let preview = &status(&daemon)["preview"];
    assert!(preview["reason"].as_str().is_some_and(|reason| reason.starts_with("cannot play rtsp://")), "{preview}");
    assert_eq!(snapshot(&daemon, "?overlay=1").0, MAIN);

    // It appears, disappears while a client watches, and appears again.
    let server = camera.serve_preview();
    wait_until("pictures of the preview", || next_size(&mut watched) == SMALL);
    drop(server);
    wait_until("pictures of the model's frames", || next_size(&mut watched) == MAIN);
    let server = camera.serve_preview();
    wait_until("pictures of the preview", || next_size(&mut watched) == SMALL);

    // A reload removes it and another adds it again; the client stays connected.
    daemon.reconfigure(&camera.config(false));
    wait_until("pictures of the model's frames", || next_size(&mut watched) == MAIN);
    daemon.wait_until("the end of the session", |_| server.heard("TEARDOWN login") == 1);
    assert!(status(&daemon)["preview"].is_null());
    daemon.reconfigure(&camera.config(true));
    wait_until("pictures of the preview", || next_size(&mut watched) == SMALL);

    let seen = status(&daemon);
    assert_eq!((&seen["errors"], &seen["dropped"]["failed"]), (&json!(0), &json!(0)));
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let why = ended.log.lines().filter(|line| line.contains("WARN") && line.contains("gate, preview"));
    assert!(why.count() <= 4, "one line for each reason: {}", ended.log);
}
