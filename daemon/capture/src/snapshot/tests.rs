#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use image::{ExtendedColorType, ImageEncoder};
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::Frame;
use visiond_kernels::jpeg::JpegEncoder;
use visiond_system::testing::{EVER, HANG, while_it_waits};

use super::*;
use crate::http_client::tests::{Server, answer, closing, write};

const SECOND: u64 = 1_000_000_000;

pub(crate) fn config(url: &str) -> SnapshotConfig {
    SnapshotConfig { url: url.to_owned(), timeout: HANG, ..SnapshotConfig::default() }
}

fn jpeg(level: u8) -> Vec<u8> {
    JpegEncoder::new(90).unwrap().encode_rgb(&[level; 16 * 16 * 3], 16, 16).unwrap()
}

fn png(level: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(&[level; 8 * 4 * 3], 8, 4, ExtendedColorType::Rgb8).unwrap();
    file
}

/// A source whose clock moves only while it waits for the next request.
fn open(config: &SnapshotConfig) -> (SnapshotSource, Arc<SimulatedClock>) {
    let clock = Arc::new(SimulatedClock::default());
    (SnapshotSource::open(config, &Buffers::host(3), Arc::<SimulatedClock>::clone(&clock)).unwrap(), clock)
}

fn next(source: &mut SnapshotSource) -> Result<Next, SourceError> {
    source.next(&Stop::new().unwrap())
}

fn frame(source: &mut SnapshotSource) -> Frame {
    match next(source) {
        Ok(Next::Frame(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_interval_gives_a_frame_over_one_connection_also_of_the_same_picture() {
    let server = Server::start(|_, client| answer(client, "200 OK", "Content-Type: image/jpeg\r\n", &jpeg(77)));
    let (mut source, _) = open(&SnapshotConfig { interval: Duration::from_millis(250), ..config(&server.url("/")) });
    for number in 0..20 {
        let frame = frame(&mut source);
        // Deadlines do not drift.
        assert_eq!((frame.sequence, frame.timestamp.monotonic_ns), (number, number * SECOND / 4));
        assert_eq!((frame.layout.width(), frame.layout.height(), frame.buffer.as_slice()[0]), (16, 16, 77));
    }
    assert_eq!((server.connections(), server.requests.lock().len()), (1, 20));
}

#[test]
fn other_formats_and_sizes_are_read_and_every_end_of_a_body() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_, client| match count.fetch_add(1, Ordering::SeqCst) {
        0 => answer(client, "200 OK", "", &png(10)),
        1 => closing(write(client, &[b"HTTP/1.0 200 OK\r\n\r\n", &jpeg(20)[..]].concat())),
        // Line ends come first.
        2 => answer(client, "200 OK", "", &[b"\r\n\n", &jpeg(30)[..]].concat()),
        _ => closing(answer(client, "200 OK", "Content-Type: nonsense\r\nConnection: close\r\n", &jpeg(40))),
    });
    let (mut source, _) = open(&config(&server.url("/")));
    for (width, level) in [(8, 10), (16, 20), (16, 30), (16, 40)] {
        let frame = frame(&mut source);
        assert_eq!((frame.layout.width(), frame.buffer.as_slice()[0]), (width, level));
    }
}

#[test]
fn a_picture_that_has_not_changed_is_no_frame_where_the_camera_says_so() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, client| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let known = request.header("if-none-match") == Some("\"a b\"") && request.header("if-modified-since").is_none();
        let validators = "ETag: \"a b\"\r\nLast-Modified: Sat, 29 Oct 1994 19:43:31 GMT\r\n";
        match (known, number) {
            (true, 1..=3) => write(client, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 700\r\n\r\n"),
            _ => answer(client, "200 OK", validators, &jpeg(number as u8 * 10)),
        }
    });
    // Longer than the timeout: an answer is not silence.
    let timeout = Duration::from_secs(1);
    let (mut source, _) = open(&SnapshotConfig { timeout: timeout.max(HANG), ..config(&server.url("/")) });
    assert_eq!(frame(&mut source).timestamp.monotonic_ns, 0);
    let second = frame(&mut source);
    assert_eq!((second.sequence, second.timestamp.monotonic_ns, second.buffer.as_slice()[0]), (1, 4 * SECOND, 40));
    assert_eq!((server.connections(), server.requests.lock().len()), (1, 5));
}

#[test]
fn the_date_of_a_picture_is_sent_back_only_where_it_tells_it_from_the_next() {
    let server = Server::start(|request, client| {
        let (modified, date) = match request.path() {
            "/old" => ("Sat, 29 Oct 1994 19:43:31 GMT", "Sat, 29 Oct 1994 19:43:33 GMT"),
            "/new" => ("Sat, 29 Oct 1994 19:43:31 GMT", "Sat, 29 Oct 1994 19:43:32 GMT"),
            "/later" => ("Sat, 29 Oct 1994 19:43:31 GMT", "Sat, 29 Oct 1994 19:43:01 GMT"),
            "/odd" => ("yesterday", "Sat, 29 Oct 1994 19:43:31 GMT"),
            _ => ("Sat, 29 Oct 1994 19:43:31 GMT", "never"),
        };
        answer(client, "200 OK", &format!("Last-Modified: {modified}\r\nDate: {date}\r\n"), &jpeg(9))
    });
    for (path, expected) in [
        ("/old", Some("Sat, 29 Oct 1994 19:43:31 GMT")),
        ("/new", None),
        ("/later", None),
        ("/odd", None),
        ("/none", None),
    ] {
        let (mut source, _) = open(&config(&server.url(path)));
        frame(&mut source);
        frame(&mut source);
        let last = server.requests.lock().last().unwrap().clone();
        assert_eq!(last.header("if-modified-since"), expected, "{path}");
    }
}

#[test]
fn a_validator_with_a_control_character_is_not_sent_back() {
    let server = Server::start(|_, client| answer(client, "200 OK", "ETag: \"a\rX-Evil: 1\"\r\n", &jpeg(9)));
    let (mut source, _) = open(&config(&server.url("/")));
    frame(&mut source);
    frame(&mut source);
    let sent: Vec<_> = server.requests.lock().iter().flat_map(|request| request.0.clone()).collect();
    assert!(sent.iter().all(|line| !line.contains("Evil")) && source.validator.is_none(), "{sent:?}");
}

#[test]
fn a_failed_request_is_said_and_counted_once_and_the_next_is_at_its_time() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, client| match count.fetch_add(1, Ordering::SeqCst) {
        0 => answer(client, "200 OK", "ETag: x\r\n", &jpeg(9)),
        1 => {
            assert_eq!(request.header("if-none-match"), Some("x"));
            answer(client, "503 Busy", "", b"")
        }
        2 => answer(client, "200 OK", "ETag: y\r\n", b"no picture"),
        3 => false,
        4 => closing(write(client, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")),
        _ => {
            assert_eq!(request.header("if-none-match"), None, "the next picture must come whole");
            answer(client, "200 OK", "ETag: x\r\n", &jpeg(9))
        }
    });
    let (mut source, clock) = open(&SnapshotConfig { interval: Duration::from_secs(2), ..config(&server.url("/")) });
    frame(&mut source);
    let Ok(Next::Waiting { reason }) = next(&mut source) else { panic!("a reason") };
    assert!(reason.contains("cannot get an image from http://127.0.0.1:") && reason.contains("(503)"), "{reason}");
    // The third has two attempts, because a connection that was kept may have been closed before it was asked.
    for _ in 0..3 {
        let lost = next(&mut source).unwrap();
        assert!(matches!(lost, Next::Lost { frames: 1, cause: LossCause::Driver }), "{lost:?}");
    }
    let back = frame(&mut source);
    assert_eq!((back.sequence, back.timestamp.monotonic_ns, clock.monotonic_ns()), (4, 8 * SECOND, 8 * SECOND));
}

#[test]
fn the_source_ends_when_it_fails_at_the_start_for_too_long_or_for_good() {
    let count = Arc::new(AtomicUsize::new(1));
    let asked = Arc::clone(&count);
    let server = Server::start(move |request, client| match (request.path(), asked.fetch_add(1, Ordering::SeqCst)) {
        (_, 0) => answer(client, "200 OK", "", &jpeg(9)),
        ("/busy", _) => answer(client, "503 Busy", "", b""),
        ("/login", _) => answer(client, "401 No", "", b""),
        _ => answer(client, "200 OK", "", &[0; 1 << 20]),
    });
    for (path, words) in
        [("/busy", "(503)"), ("/login", "set `login`"), ("/large", "the answer has more than 1048575 bytes")]
    {
        let clock = Arc::new(SimulatedClock::default());
        let limited = Buffers { max_picture_bytes: (1 << 20) - 1, ..Buffers::host(3) };
        let mut source = SnapshotSource::open(&config(&server.url(path)), &limited, clock).unwrap();
        let error = next(&mut source).unwrap_err();
        assert!(error.to_string().contains(words) && error.may_pass(), "{path}: {error}");
    }
    // After an image, a camera has the timeout, or two intervals.
    count.store(0, Ordering::SeqCst);
    let camera = SnapshotConfig { interval: 2 * HANG, ..config(&server.url("/busy")) };
    let (mut source, clock) = open(&camera);
    frame(&mut source);
    assert!(matches!(next(&mut source), Ok(Next::Waiting { .. })));
    assert!(matches!(next(&mut source), Ok(Next::Lost { frames: 1, .. })));
    assert!(next(&mut source).unwrap_err().to_string().contains("(503)"));
    assert_eq!(clock.monotonic_ns(), 4 * HANG.as_nanos() as u64);
    // Without its login, it is not asked again.
    count.store(0, Ordering::SeqCst);
    let (mut source, _) = open(&config(&server.url("/login")));
    frame(&mut source);
    assert!(next(&mut source).unwrap_err().to_string().contains("set `login`"));
}

#[test]
fn other_content_is_named_with_what_to_do() {
    let server = Server::start(|request, client| {
        let (kind, body): (_, &[u8]) = match request.path() {
            "/stream" | "/untyped-stream" => {
                let kind = if request.path() == "/stream" { "multipart/x-mixed-replace; boundary=b" } else { "a/b" };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n");
                let part = [b"--b\r\n\r\n", &jpeg(1)[..], b"\r\n"].concat();
                write(client, &[head.as_bytes(), &part.repeat(3)].concat());
                // Neither ends.
                std::thread::sleep(EVER);
                return false;
            }
            "/page" => ("text/html", b"<html>"),
            "/untyped-page" => ("", b"<!DOCTYPE html>"),
            "/hls" => ("application/vnd.apple.mpegurl", b"#EXTM3U"),
            "/flv" => ("video/x-flv", b"FLV\x01\x05"),
            "/json" => ("application/json", b"{\"error\": \"no such channel\"}\n"),
            "/text" => ("text/plain; charset=utf-8", b"token=hush is \x7f\xc3"),
            "/broken" => ("image/jpeg", b"\xff\xd8\xff\xe0\x00"),
            "/words" => ("image/jpeg", "caméra absente".as_bytes()),
            _ => ("image/jpeg", b""),
        };
        answer(client, "200 OK", &format!("Content-Type: {kind}\r\n"), body)
    });
    for (path, words) in [
        ("/stream", "sends a stream and no single image: set `type = \"mjpeg\"`"),
        ("/untyped-stream", "sends a stream and no single image: set `type = \"mjpeg\"`"),
        ("/page", "the camera sends a page (HTML) and no image: correct the path in `url`"),
        ("/untyped-page", "the camera sends a page (HTML or XML) and no image"),
        ("/hls", "the camera sends a playlist (HLS) and no image: set `type = \"video\"`"),
        ("/flv", "the camera sends FLV and no image: set `type = \"video\"`"),
        ("/json", "application/json: \"{\"error\": \"no such channel\"}\" and no image: correct the path"),
        ("/text", "the answer is not an image: not a supported image"),
        ("/broken", "the answer is not an image: "),
        ("/words", "the camera sends image/jpeg: \"caméra absente\" and no image"),
        ("/empty", "the camera's answer is empty: it may be starting; check the path in `url`"),
    ] {
        let url = server.url(path);
        let error =
            visiond_system::testing::finishes("the answer", move || next(&mut open(&config(&url)).0).unwrap_err());
        assert!(error.to_string().contains(words) && error.may_pass(), "{path}: {error}");
    }
}

#[test]
fn a_picture_that_is_whole_before_its_stated_length_is_read() {
    let server = Server::start(|request, client| {
        let mut jpeg = jpeg(9);
        let stated = jpeg.len() + 7;
        if request.path() == "/cut" {
            jpeg.truncate(jpeg.len() - 2);
        }
        write(client, &[format!("HTTP/1.1 200 OK\r\nContent-Length: {stated}\r\n\r\n").as_bytes(), &jpeg].concat());
        false
    });
    let (mut source, _) = open(&config(&server.url("/")));
    for sequence in 0..2 {
        assert_eq!(frame(&mut source).sequence, sequence);
    }
    let error = next(&mut open(&config(&server.url("/cut"))).0).unwrap_err();
    assert!(error.to_string().contains("in the middle of the image"), "{error}");
}

#[test]
fn a_picture_with_a_smaller_copy_behind_it_is_no_stream() {
    let both = [jpeg(5), jpeg(5)].concat();
    let server =
        Server::start(move |_, client| closing(write(client, &[b"HTTP/1.0 200 OK\r\n\r\n", &both[..]].concat())));
    assert_eq!(frame(&mut open(&config(&server.url("/"))).0).buffer.as_slice()[0], 5);
}

#[test]
fn a_camera_that_was_slow_is_asked_once_for_the_deadlines_that_passed() {
    let clock = Arc::new(SimulatedClock::default());
    let (camera, count) = (Arc::clone(&clock), AtomicUsize::new(0));
    let server = Server::start(move |_, client| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            camera.advance(Duration::from_millis(3500));
        }
        answer(client, "200 OK", "", &jpeg(9))
    });
    let mut source = SnapshotSource::open(&config(&server.url("/")), &Buffers::host(9), clock).unwrap();
    // Those of 1, 2 and 3 s passed.
    let times: Vec<_> = (0..4).map(|_| frame(&mut source).timestamp.monotonic_ns / 100_000_000).collect();
    assert_eq!(times, [35, 35, 40, 50]);
}

#[test]
fn a_reader_without_buffers_loses_by_overload_and_gets_the_same_picture_later() {
    let server = Server::start(|request, client| match request.header("if-none-match") {
        Some(_) => write(client, b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        None => answer(client, "200 OK", "ETag: x\r\n", &jpeg(9)),
    });
    let (mut source, _) = open(&config(&server.url("/")));
    let held: Vec<_> = std::iter::from_fn(|| source.pool.take()).collect();
    assert!(matches!(next(&mut source), Ok(Next::Lost { frames: 1, cause: LossCause::Overload })));
    drop(held);
    assert_eq!(frame(&mut source).sequence, 1);
}

#[test]
fn a_stop_ends_the_wait_for_an_answer_and_for_the_next_request() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_, client| {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            std::thread::sleep(EVER);
        }
        answer(client, "200 OK", "", &jpeg(9))
    });
    let camera = SnapshotConfig { interval: Duration::from_secs(3600), ..config(&server.url("/")) };
    let clock = Arc::new(visiond_frames::clock::SystemClock);
    let mut source = SnapshotSource::open(&camera, &Buffers::host(3), clock).unwrap();
    frame(&mut source);
    let ended = while_it_waits(move |stop| source.next(stop).unwrap(), Stop::raise);
    assert!(matches!(ended, Next::Stopped));
    let (mut source, _) = open(&camera);
    let ended = while_it_waits(move |stop| source.next(stop).unwrap(), Stop::raise);
    assert!(matches!(ended, Next::Stopped));
}
