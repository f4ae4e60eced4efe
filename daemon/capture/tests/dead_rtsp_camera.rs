//! Thousands of attempts at an RTSP camera that is dead leave nothing behind: no memory, thread, descriptor or child process.
//!
//! In a day, visiond makes 20,000 to 200,000 attempts at a camera. Here they follow each other at once, and memory that grows by more
//! than a few bytes per attempt is a failure. This is a program of its own, because it counts what the whole process has.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;
use std::time::Duration;

use visiond_capture::{Buffers, opener};
use visiond_config::types::{Config, SourceConfig};
use visiond_system::process::ProcessFacts;
use visiond_system::stop::Stop;
use visiond_system::testing::wait_until;

/// The system's allocator, counted.
struct Counted;

/// Bytes of all threads.
static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: as in `alloc`; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Attempts at each kind of dead camera; there are four kinds.
const ATTEMPTS: usize = 1000;
/// Attempts after which everything that is made once is there.
const FIRST: usize = 100;

/// A session description that a camera sends before it dies.
const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                           a=control:track1\r\n";

/// Reads a request; returns its CSeq, or `None` at the end of the connection.
fn request(lines: &mut impl BufRead) -> Option<String> {
    let (mut number, mut line) = (None, String::new());
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        match line.trim() {
            "" => return number,
            text => number = text.strip_prefix("CSeq: ").map(str::to_owned).or(number),
        }
    }
}

/// Takes connections and serves each until the client leaves.
fn camera(serve: fn(TcpStream)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(serve));
    port
}

/// Says nothing until the client gives up.
fn silent(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Sends half an answer, and closes.
fn half_an_answer(mut stream: TcpStream) {
    let number = request(&mut BufReader::new(&stream)).unwrap_or_default();
    let _ = stream.write_all(format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\nContent-Len").as_bytes());
}

/// Describes its video, and closes at the next request.
fn dies_after_its_description(stream: TcpStream) {
    let mut lines = BufReader::new(&stream);
    while let Some(number) = request(&mut lines) {
        let head = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n");
        let length = DESCRIPTION.len();
        let text = match number.as_str() {
            "1" => format!("{head}Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n\r\n"),
            "2" => format!("{head}Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{DESCRIPTION}"),
            _ => return,
        };
        let _ = (&stream).write_all(text.as_bytes());
    }
}

fn config(url: &str, timeout: Duration) -> SourceConfig {
    let model = "[[model]]\nname = \"objects\"\npath = \"objects.onnx\"\n";
    let text = format!("{model}[[camera]]\nname = \"gate\"\n[camera.source]\ntype = \"rtsp\"\nurl = \"{url}\"\n");
    let config = Config::parse(&text, Path::new("v.toml")).map_err(|errors| errors.to_string()).unwrap();
    let SourceConfig::Rtsp(rtsp) = config.cameras[0].source.clone() else { panic!("an RTSP camera") };
    // Shorter than a configuration may set it.
    SourceConfig::Rtsp(visiond_config::types::RtspConfig { timeout, ..rtsp })
}

fn children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flatten().map(|task| of_task(task).split_whitespace().count()).sum()
}

#[test]
fn thousands_of_attempts_at_a_dead_camera_leave_no_memory_thread_descriptor_or_child() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = |port: u16| format!("rtsp://127.0.0.1:{port}/live");
    // By its name, so that attempts also look it up, on threads.
    let named = format!("rtsp://localhost:{refused}/live");
    let (long, short) = (Duration::from_secs(120), Duration::from_millis(2));
    let cameras = [
        ("refused", config(&named, long), "refused"),
        ("silent", config(&url(camera(silent)), short), "no answer"),
        ("half an answer", config(&url(camera(half_an_answer)), long), "closed"),
        ("a description", config(&url(camera(dies_after_its_description)), long), "closed"),
    ];
    let stop = Stop::new().unwrap();
    for (kind, config, reason) in &cameras {
        let mut opener = opener(config, Vec::new(), &Arc::from("gate"), &Buffers::host(4), None);
        let mut attempt =
            || -> String { opener.open().and_then(|mut source| source.next(&stop)).map(drop).unwrap_err().to_string() };
        let said = attempt();
        assert!(said.contains(reason), "{kind}: {said}");
        (0..FIRST).for_each(|_| drop(attempt()));
        let (before, bytes) = (ProcessFacts::now(), BYTES.load(Ordering::SeqCst));
        (0..ATTEMPTS).for_each(|_| drop(attempt()));
        wait_until("the threads of the last attempts", || {
            let now = ProcessFacts::now();
            now.threads <= before.threads && now.descriptors <= before.descriptors
        });
        let grown = BYTES.load(Ordering::SeqCst) - bytes;
        assert!(grown < ATTEMPTS as isize * 8, "{kind}: {ATTEMPTS} attempts left {grown} bytes");
        let resident = ProcessFacts::now().resident_bytes.saturating_sub(before.resident_bytes);
        assert!(resident < 4 << 20, "{kind}: {ATTEMPTS} attempts left {resident} resident bytes");
        assert_eq!(children(), 0, "{kind}");
    }
}
