#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use visiond_frames::clock::SystemClock;
use visiond_frames::frame::Frame;
use visiond_kernels::jpeg::JpegDecoder;
use visiond_system::testing::{EVER, HANG, finishes, while_it_waits};

use super::jpeg_scanner::tests::picture;
use super::*;
use crate::http_client::tests::{Server, answer, closing, write};

const MULTIPART: &str = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n";

pub(crate) fn config(url: &str) -> MjpegConfig {
    MjpegConfig { url: url.to_owned(), timeout: HANG, ..MjpegConfig::default() }
}

fn open(config: &MjpegConfig) -> MjpegSource {
    MjpegSource::open(config, None, &Buffers::host(100), Arc::new(SystemClock)).unwrap()
}

/// Reads until the stream ends: the frames, what was lost, and the error.
fn read_all(config: MjpegConfig) -> (Vec<Frame>, Vec<(u64, LossCause)>, SourceError) {
    finishes("the stream", move || {
        let (mut source, stop) = (open(&config), Stop::new().unwrap());
        let (mut frames, mut lost) = (Vec::new(), Vec::new());
        loop {
            match source.next(&stop) {
                Ok(Next::Frame(frame)) => frames.push(frame),
                Ok(Next::Lost { frames, cause }) => lost.push((frames, cause)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => return (frames, lost, error),
            }
        }
    })
}

fn decoded(picture: &[u8]) -> Vec<u8> {
    let header = JpegDecoder::new().header(picture).unwrap();
    let mut pixels = vec![0; (header.width * header.height * 3) as usize];
    JpegDecoder::new().decode(picture, &mut pixels).unwrap();
    pixels
}

fn pixels(frame: &Frame) -> &[u8] {
    &frame.buffer.as_slice()[..frame.layout.size_bytes()]
}

/// A camera that sends each piece on command, and closes the connection.
fn paced(head: &'static str, pieces: Vec<Vec<u8>>) -> (Server, Sender<()>) {
    let (go, wait): (_, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Server::start(move |_, client| {
        let sends = |piece: &Vec<u8>| wait.lock().recv().is_ok() && write(client, piece);
        let mut pieces = pieces.iter();
        let _ = write_head(head, sends, &mut pieces);
        false
    });
    (server, go)
}

/// The head goes with the first piece.
fn write_head<'a>(
    head: &str,
    mut sends: impl FnMut(&Vec<u8>) -> bool,
    pieces: &mut impl Iterator<Item = &'a Vec<u8>>,
) -> bool {
    let Some(first) = pieces.next() else { return true };
    sends(&[head.as_bytes(), first].concat()) && pieces.all(sends)
}

/// Each piece as a chunk of the chunked encoding.
fn chunked(pieces: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    pieces.into_iter().map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat()).collect()
}

#[test]
fn every_way_to_frame_the_parts_gives_each_picture_when_its_last_byte_came() {
    let pictures: Vec<_> = [10, 90, 200].map(|level| picture(level, 64, 48)).into();
    let parts = |before: &dyn Fn(&[u8]) -> String, behind: &str| -> Vec<Vec<u8>> {
        let part = |picture: &Vec<u8>| [before(picture).as_bytes(), picture, behind.as_bytes()].concat();
        pictures.iter().map(part).collect()
    };
    let usual =
        |picture: &[u8]| format!("--b\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", picture.len());
    let other = |line: &'static str| move |_: &[u8]| format!("--b\r\n{line}\r\n");
    let ways: Vec<(&'static str, Vec<Vec<u8>>)> = vec![
        (MULTIPART, parts(&usual, "\r\n")),
        // The border arrives only with the next part, so nothing after an image shows its end.
        (MULTIPART, parts(&|picture| format!("\r\n{}", usual(picture)), "")),
        ("HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=\"--b\"\r\n\r\n", parts(&usual, "\r\n")),
        ("HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed\r\nContent-Length: 0\r\n\r\n", parts(&usual, "\r\n")),
        (
            "HTTP/1.0 200 OK\nContent-Type: multipart/x-mixed-replace; boundary=another\n\n",
            parts(&|picture| usual(picture).replace('\r', ""), "\n"),
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", parts(&other("Content-Type: image/jpg\r\n"), "\r\n")),
        (MULTIPART, parts(&other("Content-Length: 7\r\n"), "\r\n")),
        (MULTIPART, parts(&other("Content-Length: 700000\r\n"), "\r\n")),
        (MULTIPART, parts(&other(""), "\0\0garbage ÿ\n")),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n", parts(&|_| String::new(), "")),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunked(parts(&usual, "\r\n")),
        ),
    ];
    for (number, (head, pieces)) in ways.into_iter().enumerate() {
        let (server, go) = paced(head, pieces);
        let url = server.url("/");
        let given = finishes("three frames", move || {
            let (mut source, stop) = (open(&config(&url)), Stop::new().unwrap());
            (0..3)
                .map(|_| {
                    // The camera sends the next part only once this frame is there.
                    go.send(()).unwrap();
                    match source.next(&stop) {
                        Ok(Next::Frame(frame)) => (frame.sequence, pixels(&frame).to_vec()),
                        other => panic!("way {number}: {other:?}"),
                    }
                })
                .collect::<Vec<_>>()
        });
        let expected: Vec<_> = (0..).zip(pictures.iter().map(|picture| decoded(picture))).collect();
        assert_eq!(given, expected, "way {number}");
    }
}

#[test]
fn a_reader_that_is_behind_gets_the_newest_picture_and_the_others_are_overload() {
    let pictures: Vec<_> = (0..5).map(|level| picture(level * 40, 32, 32)).collect();
    let all = [MULTIPART.as_bytes(), &pictures.concat()].concat();
    let server = Server::start(move |_, client| closing(write(client, &all)));
    let (frames, lost, error) = read_all(config(&server.url("/")));
    let skipped: u64 =
        lost.iter().map(|(frames, cause)| if *cause == LossCause::Overload { *frames } else { 99 }).sum();
    assert_eq!(skipped + frames.len() as u64, 5);
    let last = frames.last().unwrap();
    assert_eq!((pixels(last), last.sequence), (&decoded(&pictures[4])[..], 4));
    assert!(error.to_string().ends_with("the camera closed the connection") && error.is_absent(), "{error}");
}

#[test]
fn a_camera_that_sends_without_a_pause_gives_frames() {
    let jpegs = picture(7, 16, 16).repeat(5000);
    let server =
        Server::start(move |_, client| write(client, MULTIPART.as_bytes()) && (0..).all(|_| write(client, &jpegs)));
    let url = server.url("/");
    finishes("some frames", move || {
        let (mut source, stop) = (open(&config(&url)), Stop::new().unwrap());
        let (mut frames, mut expected) = (0, 0);
        while frames < 20 {
            match source.next(&stop).unwrap() {
                Next::Frame(frame) => {
                    assert_eq!(frame.sequence, expected);
                    (frames, expected) = (frames + 1, expected + 1);
                }
                Next::Lost { frames, cause: LossCause::Overload } => expected += frames,
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn damaged_pictures_are_counted_and_a_new_size_goes_on() {
    let (small, large) = (picture(10, 32, 32), picture(10, 64, 48));
    // The end of its scan is missing.
    let damaged = [&small[..small.len() - 40], b"\xff\xd9"].concat();
    let (server, go) = paced(MULTIPART, vec![small.clone(), damaged, large.clone(), small[..40].to_vec(), small]);
    let url = server.url("/");
    let events = finishes("the frames", move || {
        let (mut source, stop) = (open(&config(&url)), Stop::new().unwrap());
        let mut events = Vec::new();
        go.send(()).unwrap();
        while events.len() < 5 {
            match source.next(&stop).unwrap() {
                Next::Frame(frame) => events.push((frame.sequence, frame.layout.width())),
                Next::Lost { frames: 1, cause: LossCause::Corrupt } => events.push((99, 0)),
                other => panic!("{other:?}"),
            }
            // The fourth piece is lost only once the fifth comes.
            let pieces = if events.len() == 3 { 2 } else { 1 };
            (0..pieces).for_each(|_| go.send(()).unwrap_or_default());
        }
        assert!(source.describe().contains(", jpeg, 32x32, by libjpeg-turbo as rgb, live"), "{}", source.describe());
        events
    });
    assert_eq!(events, [(0, 32), (99, 0), (2, 64), (99, 0), (4, 32)]);
}

#[test]
fn nothing_but_damage_ends_the_source() {
    let broken = b"\xff\xd8\xff\xda\x00\x02\xff\xd9".repeat(3);
    let server = Server::start(move |_, client| {
        let mut goes_on = write(client, MULTIPART.as_bytes());
        while goes_on {
            goes_on = write(client, &broken);
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    let timeout = Duration::from_millis(100);
    let (frames, _, error) = read_all(MjpegConfig { timeout, ..config(&server.url("/")) });
    assert!(frames.is_empty());
    assert!(error.to_string().contains("every frame from http://127.0.0.1:") && error.is_absent(), "{error}");
}

#[test]
fn jpegs_that_the_camera_calls_a_page_are_played() {
    let part = [b"--b\r\n\r\n", &picture(1, 16, 16)[..], b"\r\n"].concat();
    let server = Server::start(move |_, client| {
        write(client, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n");
        write(client, &part);
        // An image at a time, because a newer one replaces one that waits.
        std::thread::sleep(EVER);
        false
    });
    let mut source = open(&config(&server.url("/")));
    let next = finishes("the picture", move || source.next(&Stop::new().unwrap()).unwrap());
    assert!(matches!(next, Next::Frame(_)), "{next:?}");
}

#[test]
fn other_content_is_named_with_what_to_do() {
    let jpeg = picture(1, 16, 16);
    let server = Server::start(move |request, client| {
        let (kind, body): (_, &[u8]) = match request.path() {
            "/page" => ("text/html; charset=utf-8", b"<html>"),
            "/untyped-page" => ("text/plain", b" <!DOCTYPE html><html>"),
            "/hls" => ("application/vnd.apple.mpegurl", b"#EXTM3U"),
            "/untyped-hls" => ("application/octet-stream", b"#EXTM3U\n"),
            "/h264" => ("application/octet-stream", b"\0\0\0\x01\x67"),
            "/multipart-h264" => ("multipart/x-mixed-replace", b"\0\0\x01\x67"),
            "/mp4" => ("video/mp4", b""),
            "/untyped-mp4" => ("application/octet-stream", b"\0\0\0\x18ftypisom"),
            "/ts" => ("application/octet-stream", b"\x47@\0"),
            "/text" => ("text/plain", b"no camera here"),
            "/bytes" => ("application/x-bytes", b"\x01\x02"),
            "/nothing" => ("multipart/x-mixed-replace", b""),
            "/no-body" => ("image/jpeg", b""),
            "/untyped-one" => ("", &jpeg),
            _ => ("image/jpeg", &jpeg),
        };
        closing(answer(client, "200 OK", &format!("Content-Type: {kind}\r\n"), body))
    });
    for (path, words) in [
        ("/page", "the camera sends a page (HTML) and no MJPEG: correct the path in `url`"),
        ("/untyped-page", "the camera sends a page (HTML or XML) and no MJPEG"),
        ("/hls", "the camera sends a playlist (HLS) and no MJPEG: set `type = \"video\"`"),
        ("/untyped-hls", "the camera sends a playlist (HLS) and no MJPEG: set `type = \"video\"`"),
        ("/h264", "the camera sends H.264 or H.265 and no MJPEG: set `type = \"video\"`"),
        ("/multipart-h264", "the camera sends H.264 or H.265 and no MJPEG"),
        ("/mp4", "the camera sends video/mp4 and no MJPEG: set `type = \"video\"`"),
        ("/untyped-mp4", "the camera sends MP4 and no MJPEG"),
        ("/ts", "the camera sends an MPEG transport stream and no MJPEG"),
        ("/text", "the camera sends text/plain: \"no camera here\" and no MJPEG: correct the path in `url`"),
        (
            "/bytes",
            "the camera closed the connection, and there is no JPEG in what the camera sent (application/x-bytes): correct the path",
        ),
        ("/nothing", "the camera's answer is empty: it may be starting; check the path in `url`"),
        ("/no-body", "the camera's answer is empty"),
        ("/one", "the camera sends one image and no stream: set `type = \"snapshot\"`"),
        ("/untyped-one", "the camera sends one image and no stream: set `type = \"snapshot\"`"),
    ] {
        let (frames, lost, error) = read_all(config(&server.url(path)));
        assert!(error.to_string().contains(words), "{path}: {error}");
        assert!(error.may_pass() && lost.is_empty() && frames.is_empty(), "{path}");
    }
}

#[test]
fn a_stream_that_says_it_is_one_picture_begins_with_the_second() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n";
    let pictures: Vec<_> = (0..4).map(|level| picture(level * 40, 32, 32)).collect();
    let all = [HEAD.as_bytes(), &pictures.concat()].concat();
    let server = Server::start(move |_, client| closing(write(client, &all)));
    let (frames, _, error) = read_all(config(&server.url("/")));
    assert_eq!(frames.last().map(|frame| frame.sequence), Some(3));
    assert!(error.to_string().ends_with("the camera closed the connection"), "{error}");
    // One image whose connection ends after it.
    let one = [HEAD.as_bytes(), &pictures[0]].concat();
    let server = Server::start(move |_, client| closing(write(client, &one)));
    let (frames, _, error) = read_all(config(&server.url("/")));
    assert!(frames.is_empty() && error.to_string().contains("set `type = \"snapshot\"`"), "{error}");
}

#[test]
fn an_answer_that_is_complete_is_followed_by_the_next_without_a_loss() {
    const KEPT: &str = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n";
    let part = |level: u8| {
        let jpeg = picture(level, 16, 16);
        [format!("--b\r\nContent-Length: {}\r\n\r\n", jpeg.len()).as_bytes(), &jpeg, b"\r\n"].concat()
    };
    let stated =
        |content: Vec<u8>| [format!("{KEPT}Content-Length: {}\r\n\r\n", content.len()).as_bytes(), &content].concat();
    let (parts, jpegs) = ([part(10), part(90)].concat(), [picture(10, 16, 16), picture(90, 16, 16)].concat());
    let chunk = [format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", parts.len()).as_bytes(), &parts].concat();
    let typed = format!("HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", jpegs.len());
    // The connection stays open after all but the last two.
    let ways = [
        stated([&parts[..], b"--b--\r\n"].concat()),
        stated(parts.clone()),
        [KEPT.as_bytes(), &chunk, b"\r\n0\r\n\r\n"].concat(),
        [typed.as_bytes(), &jpegs].concat(),
        [KEPT.as_bytes(), b"\r\n", &parts, b"--b--"].concat(),
        stated(parts),
    ];
    let last = ways.len() - 2;
    for (number, way) in ways.into_iter().enumerate() {
        let server = Server::start(move |_, client| write(client, &way) && number < last);
        let (url, requests) = (server.url("/"), Arc::clone(&server.requests));
        let frames = finishes("frames of three answers", move || {
            let (mut source, stop) = (open(&config(&url)), Stop::new().unwrap());
            let (mut expected, mut frames) = (0, 0);
            while requests.lock().len() < 3 {
                match source.next(&stop).unwrap() {
                    Next::Frame(frame) => {
                        assert_eq!(frame.sequence, expected, "way {number}");
                        (expected, frames) = (expected + 1, frames + 1);
                    }
                    // Both images of an answer may have come at once.
                    Next::Lost { frames, cause: LossCause::Overload } => expected += frames,
                    other => panic!("way {number}: {other:?}"),
                }
            }
            frames
        });
        assert!(frames >= 2, "way {number}: {frames}");
    }
}

#[test]
fn a_camera_that_states_the_length_of_its_first_part_goes_on() {
    let jpeg = picture(10, 16, 16);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed\r\nContent-Length: {}\r\n\r\n", jpeg.len());
    let all = [head.as_bytes(), &jpeg.repeat(3)].concat();
    let server = Server::start(move |_, client| closing(write(client, &all)));
    let (frames, _, error) = read_all(config(&server.url("/")));
    assert_eq!(frames.last().map(|frame| frame.sequence), Some(2));
    assert!(error.to_string().ends_with("the camera closed the connection"), "{error}");
}

#[test]
fn a_camera_that_sends_no_more_ends_the_source_and_a_stop_ends_the_wait() {
    let jpeg = picture(1, 16, 16);
    let server = Server::start(move |_, client| {
        write(client, &[MULTIPART.as_bytes(), &jpeg].concat());
        std::thread::sleep(EVER);
        false
    });
    let error = finishes("the stream", {
        let mut source = open(&config(&server.url("/")));
        move || {
            let stop = Stop::new().unwrap();
            assert!(matches!(source.next(&stop), Ok(Next::Frame(_))));
            source.config.timeout = Duration::from_millis(300);
            source.next(&stop).unwrap_err()
        }
    });
    assert!(error.to_string().ends_with("no image for 0.3 s; check the camera and the network"), "{error}");
    let mut source = open(&config(&server.url("/")));
    assert!(matches!(source.next(&Stop::new().unwrap()), Ok(Next::Frame(_))));
    let next = while_it_waits(move |stop| source.next(stop).unwrap(), Stop::raise);
    assert!(matches!(next, Next::Stopped), "{next:?}");
}

#[test]
fn a_camera_is_not_said_to_stream_before_its_first_picture() {
    let jpeg = picture(1, 16, 16);
    let server = Server::start(move |_, client| closing(write(client, &[MULTIPART.as_bytes(), &jpeg].concat())));
    let (camera, url) = (config(&server.url("/")), server.url("/"));
    let mut source =
        MjpegSource::open(&camera, Some("garden".into()), &Buffers::host(3), Arc::new(SystemClock)).unwrap();
    assert_eq!(source.describe(), format!("mjpeg {url}: connecting"));
    assert!(source.unannounced.is_some() && server.connections() == 0);
    let frame = source.next(&Stop::new().unwrap()).unwrap();
    assert!(matches!(frame, Next::Frame(_)) && source.unannounced.is_none(), "{frame:?}");
    assert_eq!(source.describe(), format!("mjpeg {url}, jpeg, 16x16, by libjpeg-turbo as rgb, live"));
}

#[test]
fn a_picture_larger_than_is_allowed_is_refused() {
    let jpeg = picture(1, 64, 64);
    let server = Server::start(move |_, client| closing(write(client, &[MULTIPART.as_bytes(), &jpeg].concat())));
    let limited = Buffers { max_pixels: 64 * 63, ..Buffers::host(3) };
    let mut source = MjpegSource::open(&config(&server.url("/")), None, &limited, Arc::new(SystemClock)).unwrap();
    let error = source.next(&Stop::new().unwrap()).unwrap_err().to_string();
    assert!(error.contains("it has 4096 pixels (64x64), more than 4032"), "{error}");
}

#[test]
fn secrets_of_the_url_are_in_no_message() {
    let server = Server::start(|_, client| answer(client, "403 No", "", b""));
    let url = server.url("/a?token=hush").replace("//", "//user:hush@");
    let source = open(&config(&url));
    assert!(!source.describe().contains("hush"), "{}", source.describe());
    let (_, _, error) = read_all(config(&url));
    assert!(error.to_string().contains("forbids") && !error.to_string().contains("hush"), "{error}");
}
