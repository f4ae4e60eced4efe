//! Plays streams of `tests/rtsp/server.py`. Needs ffmpeg and Python, as the other tests do.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use tempfile::TempDir;
use visiond_config::types::{DamagedFrames, FfmpegConfig, RtspTransport, VideoPixels};
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::{Frame, LossCause};
use visiond_system::testing::{HANG, finishes, wait_until, while_it_waits};

use super::*;
use crate::tests::bgr;

/// A server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    said: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start(files: &[&str], args: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rtsp/server.py");
        let mut command = Command::new("python3");
        let mut child =
            command.arg(script).args(files).args(args).stdout(Stdio::piped()).spawn().expect("these tests need Python");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.next().unwrap().strip_prefix("port ").unwrap().parse().unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&said);
        std::thread::spawn(move || lines.for_each(|line| kept.lock().push(line)));
        Self { child, port, said }
    }

    pub(crate) fn url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/live", self.port)
    }

    pub(crate) fn heard(&self, line: &str) -> usize {
        self.said.lock().iter().filter(|said| *said == line).count()
    }

    fn wait_for(&self, line: &str) {
        wait_until(line, || self.said.lock().iter().any(|said| said == line));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes 30 frames of a stream in Annex B, with a key frame every 10.
pub(crate) fn stream(folder: &TempDir, name: &str, size: &str, b_frames: usize) -> String {
    let path = folder.path().join(name);
    let source = format!("testsrc2=s={size}:d=3:r=10");
    let codec: Vec<String> = if name.ends_with("h265") {
        let parameters = format!("log-level=none:keyint=10:min-keyint=10:bframes={b_frames}:open-gop=0");
        vec!["-c:v".into(), "libx265".into(), "-x265-params".into(), parameters, "-f".into(), "hevc".into()]
    } else {
        let numbers = ["-g", "10", "-bf", &b_frames.to_string(), "-c:v", "libx264", "-f", "h264"];
        numbers.map(str::to_owned).into()
    };
    let args = ["-v", "error", "-f", "lavfi", "-i", &source, "-pix_fmt", "yuv420p", "-preset", "fast"];
    let status = Command::new("ffmpeg").args(args).args(codec).arg(&path).status();
    assert!(status.expect("these tests need ffmpeg").success());
    path.to_str().unwrap().to_owned()
}

/// ffmpeg's own decoding of a file, frame by frame.
pub(crate) fn decoded(file: &str, width: usize, height: usize) -> Vec<Vec<u8>> {
    let args = ["-v", "error", "-flags", "bitexact", "-i", file, "-f", "rawvideo", "-pix_fmt", "bgr24", "-"];
    let output = Command::new("ffmpeg").args(args).output().unwrap();
    output.stdout.chunks(width * height * 3).map(<[u8]>::to_vec).collect()
}

/// Which frames of a file are key frames, in the order in which they are shown.
pub(crate) fn key_frames(file: &str) -> Vec<bool> {
    let args = ["-v", "error", "-show_entries", "frame=key_frame", "-of", "csv=p=0", file];
    let output = Command::new("ffprobe").args(args).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.starts_with('1'))
        .collect()
}

pub(crate) fn config(url: &str) -> RtspConfig {
    RtspConfig {
        url: url.to_owned(),
        preview_url: None,
        login: None,
        require_digest: false,
        ca: None,
        fingerprint: None,
        insecure: false,
        transport: RtspTransport::Tcp,
        key_frames_only: false,
        damaged: DamagedFrames::Drop,
        decoder: StreamDecoding::Auto,
        ffmpeg: FfmpegConfig::default(),
        pixels: VideoPixels::Bgr,
        color_matrix: None,
        color_range: None,
        timeout: HANG,
    }
}

/// Reads to the end of the stream. The clock is stopped, so that no frame is old, however slow the machine is.
fn read_all(config: &RtspConfig) -> (Vec<Frame>, u64, String) {
    let config = config.clone();
    finishes("the stream", move || {
        let stop = Stop::new().unwrap();
        let clock = Arc::new(SimulatedClock::default());
        let mut source = RtspSource::open(&config, "test", &Buffers::host(200), clock).unwrap();
        let (mut frames, mut lost) = (Vec::new(), 0);
        loop {
            match source.next(&stop) {
                Ok(Next::Frame(frame)) => frames.push(frame),
                Ok(Next::Lost { frames, .. }) => lost += frames,
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(error.may_pass(), "{error}");
                    return (frames, lost, error.to_string());
                }
            }
        }
    })
}

pub(crate) fn assert_frames(frames: &[Frame], expected: &[Vec<u8>], what: &str) {
    assert_eq!(frames.len(), expected.len(), "{what}");
    for (n, (frame, one)) in frames.iter().zip(expected).enumerate() {
        let pixels = bgr(frame);
        let place = || expected.iter().position(|other| *other == pixels);
        assert!(pixels == *one, "frame {n} of {what} is frame {:?}", place());
        assert_eq!(frame.sequence, n as u64, "{what}");
    }
}

#[test]
fn frames_are_those_that_ffmpeg_decodes_from_the_file() {
    let folder = TempDir::new().unwrap();
    let plain = stream(&folder, "plain.h264", "64x48", 0);
    let ordered = stream(&folder, "ordered.h264", "128x72", 2);
    let newer = stream(&folder, "newer.h265", "128x72", 2);
    for (file, width, height, sets) in [
        (&plain, 64, 48, "in-band"),
        (&ordered, 128, 72, "sdp"),
        (&newer, 128, 72, "in-band"),
        (&newer, 128, 72, "sdp"),
    ] {
        let server = Server::start(&[file], &["--fps", "100", "--at-end", "close", "--sets", sets]);
        let (frames, lost, error) = read_all(&config(&server.url()));
        assert_eq!(lost, 0, "{file}");
        assert!(error.ends_with("the camera closed the connection"), "{error}");
        assert_frames(&frames, &decoded(file, width, height), file);
    }
}

#[test]
fn udp_brings_the_same_frames() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let server = Server::start(&[&file], &["--fps", "100"]);
    let mut source = RtspSource::open(
        &RtspConfig { transport: RtspTransport::Udp, ..config(&server.url()) },
        "test",
        &Buffers::host(3),
        Arc::new(SimulatedClock::default()),
    )
    .unwrap();
    let stop = Stop::new().unwrap();
    let expected = decoded(&file, 64, 48);
    // The kernel may drop a datagram on a busy machine, and with it a frame.
    let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("a frame") };
    assert!(expected.contains(&bgr(&frame)));
    server.wait_for("SETUP udp");
    assert!(
        source.describe().contains("over udp, h264 yuv420p, 64x48, by ffmpeg as i420, live"),
        "{}",
        source.describe()
    );
}

#[test]
fn only_key_frames_are_decoded_and_none_waits_for_the_next() {
    let folder = TempDir::new().unwrap();
    for name in ["ordered.h264", "ordered.h265"] {
        let file = stream(&folder, name, "64x48", 2);
        let is_key = key_frames(&file);
        assert_eq!(is_key.iter().filter(|&&key| key).count(), 3);
        let mut all = decoded(&file, 64, 48).into_iter().zip(is_key);
        let expected: Vec<_> = std::iter::from_fn(|| all.find(|(_, key)| *key)).map(|(frame, _)| frame).collect();
        // The server sends nothing more and stays connected, so a frame that the decoder holds back would never arrive.
        let server = Server::start(&[&file], &["--fps", "100"]);
        let only = RtspConfig { key_frames_only: true, ..config(&server.url()) };
        let frames = finishes("three key frames", move || {
            let clock = Arc::new(SimulatedClock::default());
            let mut source = RtspSource::open(&only, "test", &Buffers::host(100), clock).unwrap();
            let stop = Stop::new().unwrap();
            let mut frame = || match source.next(&stop).unwrap() {
                Next::Frame(frame) => frame,
                other => panic!("{other:?}"),
            };
            [frame(), frame(), frame()]
        });
        assert_frames(&frames, &expected, name);
    }
}

#[test]
fn a_stream_that_changes_its_size_goes_on_without_another_session() {
    let folder = TempDir::new().unwrap();
    let (small, large) = (stream(&folder, "small.h264", "64x48", 2), stream(&folder, "large.h264", "128x72", 0));
    let server = Server::start(&[&small, &large], &["--fps", "100", "--at-end", "close"]);
    let (frames, lost, _) = read_all(&config(&server.url()));
    assert_eq!(lost, 0);
    assert_frames(&frames, &[decoded(&small, 64, 48), decoded(&large, 128, 72)].concat(), "both");
    let sizes: Vec<_> = [0, 29, 30, 59].map(|n: usize| (frames[n].layout.width(), frames[n].layout.height())).into();
    assert_eq!(sizes, [(64, 48), (64, 48), (128, 72), (128, 72)]);
    assert_eq!(server.heard("PLAY"), 1);
}

/// Makes 30 frames of a stream of JPEG; returns its path, and what the decoder makes of each frame, as BGR.
fn jpeg_stream(folder: &TempDir, size: &str, sampling: &str) -> (String, Vec<Vec<u8>>) {
    let path = folder.path().join(format!("{size}-{sampling}.mjpeg"));
    let source = format!("testsrc2=s={size}:d=3:r=10");
    let args =
        ["-v", "error", "-f", "lavfi", "-i", &source, "-pix_fmt", sampling, "-c:v", "mjpeg", "-huffman", "default"];
    let status = Command::new("ffmpeg").args(args).args(["-q:v", "2", "-f", "mjpeg"]).arg(&path).status();
    assert!(status.expect("these tests need ffmpeg").success());
    let data = fs::read(&path).unwrap();
    let start = |from: usize| (from..data.len() - 1).find(|&at| data[at..].starts_with(&[0xFF, 0xD8, 0xFF]));
    let mut pictures = Vec::new();
    let mut next = Some(0);
    while let Some(at) = next {
        next = start(at + 3);
        let mut pixels = vec![0; 4 << 20];
        let picture = &data[at..next.unwrap_or(data.len())];
        let layout = visiond_kernels::jpeg::JpegDecoder::new().decode(picture, &mut pixels).unwrap();
        pixels.truncate(layout.size_bytes());
        pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.reverse());
        pictures.push(pixels);
    }
    assert_eq!(pictures.len(), 30);
    (path.to_str().unwrap().to_owned(), pictures)
}

#[test]
fn jpeg_is_decoded_here_as_the_same_pictures_from_a_file() {
    let folder = TempDir::new().unwrap();
    for (size, sampling, q) in [("64x48", "yuvj420p", "255"), ("320x240", "yuvj420p", "130")] {
        let (file, expected) = jpeg_stream(&folder, size, sampling);
        let server = Server::start(&[&file], &["--fps", "100", "--at-end", "close", "--jpeg-q", q]);
        // No program is needed.
        let config = RtspConfig {
            ffmpeg: FfmpegConfig { program: "/nonexistent/ffmpeg".into(), ..FfmpegConfig::default() },
            ..config(&server.url())
        };
        let (frames, lost, error) = read_all(&config);
        assert_eq!(lost, 0, "{size}");
        assert!(error.ends_with("the camera closed the connection"), "{error}");
        assert_frames(&frames, &expected, size);
    }
}

#[test]
fn what_came_while_the_cameras_thread_was_busy_is_known_to_be_old() {
    let folder = TempDir::new().unwrap();
    let (file, _) = jpeg_stream(&folder, "64x48", "yuvj420p");
    let server = Server::start(&[&file], &["--fps", "100", "--at-end", "loop"]);
    let config = config(&server.url());
    let lost = finishes("a loss", move || {
        let (stop, clock) = (Stop::new().unwrap(), Arc::new(SimulatedClock::default()));
        let mut source =
            RtspSource::open(&config, "test", &Buffers::host(3), Arc::<SimulatedClock>::clone(&clock)).unwrap();
        // Ten frames arrive for each that is taken.
        loop {
            if let Next::Lost { frames, cause } = source.next(&stop).unwrap() {
                return (frames > 1, cause);
            }
            std::thread::sleep(Duration::from_millis(100));
            clock.advance(Duration::from_millis(500));
        }
    });
    assert_eq!(lost, (true, LossCause::Overload));
}

#[test]
fn a_session_works_on_while_the_cameras_thread_does_something_long() {
    let folder = TempDir::new().unwrap();
    let (file, _) = jpeg_stream(&folder, "64x48", "yuvj420p");
    let server = Server::start(&[&file], &["--fps", "100", "--at-end", "loop"]);
    let config = config(&server.url());
    finishes("the frames", move || {
        let (stop, clock) = (Stop::new().unwrap(), Arc::new(SimulatedClock::default()));
        let mut source = RtspSource::open(&config, "test", &Buffers::host(3), clock).unwrap();
        for _ in 0..3 {
            assert!(matches!(source.next(&stop).unwrap(), Next::Frame(_)));
            let queue = &source.stream.queue;
            while queue.is_behind() {
                let _ = source.session.take(0, Instant::now(), || false);
            }
            source.session.work_beside(|| wait_until("a picture", || queue.is_behind()));
        }
    });
}

#[test]
fn jpegs_with_a_lost_packet_are_counted_and_a_new_size_goes_on() {
    let folder = TempDir::new().unwrap();
    let (small, few) = jpeg_stream(&folder, "64x48", "yuvj420p");
    let (large, many) = jpeg_stream(&folder, "640x480", "yuvj420p");
    let server = Server::start(&[&small, &large], &["--fps", "100", "--at-end", "close"]);
    let (frames, lost, _) = read_all(&config(&server.url()));
    assert_eq!(lost, 0);
    assert_frames(&frames, &[few, many.clone()].concat(), "both");
    let server = Server::start(&[&large], &["--fps", "100", "--trick", "missing"]);
    let config = config(&server.url());
    let whole: Vec<_> = many.into_iter().enumerate().filter(|(n, _)| n % 3 != 2).map(|(_, picture)| picture).collect();
    let pictures = whole.len();
    let (frames, lost) = finishes("the frames", move || {
        let mut source =
            RtspSource::open(&config, "test", &Buffers::host(100), Arc::new(SimulatedClock::default())).unwrap();
        let stop = Stop::new().unwrap();
        let (mut frames, mut lost) = (Vec::new(), 0);
        while frames.len() < pictures {
            match source.next(&stop).unwrap() {
                Next::Frame(frame) => frames.push(frame),
                Next::Lost { frames, .. } => lost += frames as usize,
                other => panic!("{other:?}"),
            }
        }
        assert!(
            source.describe().contains("over tcp, jpeg, 640x480, by libjpeg-turbo as rgb, live"),
            "{}",
            source.describe()
        );
        (frames, lost)
    });
    // The last frame is a lost one, and may not have been sent yet.
    assert!((9..=10).contains(&lost), "{lost}");
    for (frame, picture) in frames.iter().zip(&whole) {
        assert!(bgr(frame) == *picture);
    }
}

#[test]
fn a_camera_whose_every_picture_is_damaged_is_opened_again_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let (small, _) = jpeg_stream(&folder, "64x48", "yuvj420p");
    let (large, _) = jpeg_stream(&folder, "640x480", "yuvj420p");
    let timeout = Duration::from_secs(2);
    // From the start, and after good frames. The simulated clock brings the timeout of the latter.
    for (files, trick, pictures) in [(&[&large[..]][..], "spoilt", 0), (&[&small, &large], "spoils", 30)] {
        let server = Server::start(files, &["--fps", "100", "--trick", trick, "--at-end", "loop"]);
        let config = RtspConfig { timeout, ..config(&server.url()) };
        let (frames, error) = finishes(trick, move || {
            let (stop, clock) = (Stop::new().unwrap(), Arc::new(SimulatedClock::default()));
            let mut source =
                RtspSource::open(&config, "test", &Buffers::host(100), Arc::<SimulatedClock>::clone(&clock)).unwrap();
            let mut frames = 0;
            loop {
                match source.next(&stop) {
                    Ok(Next::Frame(_)) => frames += 1,
                    Ok(Next::Lost { cause, .. }) => {
                        assert_eq!(cause, LossCause::Corrupt);
                        clock.advance(Duration::from_millis(500));
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => return (frames, error),
                }
            }
        });
        assert_eq!(frames, pictures, "{trick}");
        let text = error.to_string();
        assert!(error.may_pass() && text.starts_with("no usable frame from rtsp://127.0.0.1:"), "{trick}: {text}");
        assert!(
            text.ends_with("for 2 s: every frame is damaged: restart the camera, or update its firmware"),
            "{text}"
        );
    }
}

#[test]
fn a_login_answers_as_the_camera_requests_and_a_wrong_one_is_named_but_not_shown() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let login = |text: &str| {
        let path = folder.path().join("login");
        fs::write(&path, text).unwrap();
        Some(path)
    };
    for auth in ["digest", "basic"] {
        let args = ["--fps", "100", "--at-end", "close", "--auth", auth, "--user", "gate", "--password", "s3cret:w@rd"];
        let server = Server::start(&[&file], &args);
        let of = |login| RtspConfig { login, ..config(&server.url()) };
        let (frames, ..) = read_all(&of(login("gate:s3cret:w@rd\n")));
        assert_eq!(frames.len(), 30, "{auth}");
        let (_, _, error) = read_all(&of(login("gate:wr0ng")));
        assert!(error.contains("refuses the user or password (401): correct `login`"), "{error}");
        assert!(!error.contains("wr0ng"), "{error}");
        let (_, _, error) = read_all(&of(None));
        assert!(error.contains("requires a user and password (401): set `login`"), "{error}");
        let strict = RtspConfig { require_digest: true, ..of(login("gate:s3cret:w@rd")) };
        let (frames, _, error) = read_all(&strict);
        let wanted = if auth == "digest" { 30 } else { 0 };
        assert_eq!(frames.len(), wanted, "{auth}: {error}");
        assert_eq!(
            error.contains("the camera offers no digest authentication, which `require_digest`"),
            wanted == 0,
            "{error}"
        );
        let with_user = server.url().replace("//", "//gate:s3cret%3Aw%40rd@");
        let (frames, _, error) = read_all(&config(&with_user));
        assert_eq!(frames.len(), 30, "{auth}: {error}");
        assert!(error.contains("rtsp://***@127.0.0.1") && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_camera_that_closes_the_connection_after_a_401_or_announces_a_body_that_never_comes_gets_the_login() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    for (trick, auth) in [("shuts", "basic"), ("bodiless", "digest"), ("abrupt", "basic"), ("drops", "basic")] {
        let login = ["--auth", auth, "--user", "gate", "--password", "hush", "--trick", trick];
        let server = Server::start(&[&file], &[&["--fps", "100", "--at-end", "close"][..], &login].concat());
        let (frames, _, error) = read_all(&config(&server.url().replace("//", "//gate:hush@")));
        assert_eq!(frames.len(), 30, "{trick}: {error}");
        let (_, _, error) = read_all(&config(&server.url().replace("//", "//gate:wr0ng@")));
        assert!(error.contains("refuses the user or password (401)"), "{trick}: {error}");
    }
    // Each connection has its own nonce: no login is ever right.
    let login = ["--auth", "digest", "--user", "gate", "--password", "hush", "--trick", "shuts"];
    let server = Server::start(&[&file], &login);
    let (_, _, error) = read_all(&config(&server.url().replace("//", "//gate:hush@")));
    assert!(error.contains("refuses the user or password (401)"), "{error}");
    let refused = || server.said.lock().iter().filter(|line| line.ends_with("refused")).count();
    wait_until("both connections' lines", || refused() >= 2);
    assert_eq!(refused(), 2, "two connections");
}

#[test]
fn a_server_that_refuses_or_offers_nothing_to_read_is_explained() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    for (args, words) in [
        (["--status", "404"], "the camera has no such stream (404): correct the path in its URL"),
        (["--status", "403"], "forbids this stream to this user (403)"),
        (["--status", "453"], "serves too many clients already"),
        (["--status", "500"], "the camera refuses DESCRIBE: 500 No"),
        (["--trick", "vp8"], "the camera offers video/vp8, and only H.264, H.265 and JPEG are read: change its codec"),
        (["--trick", "sdp"], "DESCRIBE"),
    ] {
        let server = Server::start(&[&file], &args);
        let (frames, lost, error) = read_all(&config(&server.url()));
        assert_eq!((frames.len(), lost), (0, 0));
        assert!(error.contains(words) && error.starts_with("cannot play rtsp://127.0.0.1"), "{args:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let gone = Server::start(&[&file], &[]).url();
    assert!(
        read_all(&config(&gone)).2.contains(": cannot connect: Connection refused (os error 111); check the address")
    );
}

#[test]
fn silence_is_a_timeout() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    // A silent server has to answer three times before.
    for (trick, timeout_ms, words) in
        [("mute", 300, "no answer from rtsp://"), ("silent", 5000, "no video from rtsp://")]
    {
        let server = Server::start(&[&file], &["--trick", trick]);
        let timeout = Duration::from_millis(timeout_ms);
        let (_, _, error) = read_all(&RtspConfig { timeout, ..config(&server.url()) });
        assert!(error.starts_with(words) && error.ends_with("check the camera and the network"), "{trick}: {error}");
    }
}

#[test]
fn a_port_that_takes_connections_and_does_not_answer_tls_is_said_before_the_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsps://{}/live", listener.local_addr().unwrap());
    let (_, _, error) = read_all(&RtspConfig { insecure: true, ..config(&url) });
    assert!(error.contains("no TLS at that port"), "{error}");
}

#[test]
fn a_port_of_tls_is_named_where_the_url_is_without() {
    // Some close the connection, others send an alert first.
    for alert in [&[][..], &[0x15, 3, 1, 0, 2, 2, 70]] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("rtsp://{}/live", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0]).unwrap();
            client.write_all(alert).unwrap();
        });
        let (_, _, error) = read_all(&config(&url));
        assert!(error.ends_with("if it speaks TLS there, use rtsps:// in `url`"), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn a_camera_that_falls_silent_and_cannot_be_reached_is_lost_before_the_timeout() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let server = Server::start(&[&file], &["--trick", "gone", "--fps", "10"]);
    // The timeout is so long that only the test's own end would come before it.
    let (frames, _, error) = read_all(&config(&server.url()));
    assert_eq!(frames.len(), 30);
    assert!(error.ends_with("sends nothing and cannot be reached; check its power and the network"), "{error}");
}

#[test]
fn a_camera_of_few_frames_that_serves_one_client_at_a_time_is_not_lost_between_them() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let server = Server::start(&[&file], &["--trick", "alone", "--fps", "0.7"]);
    let config = config(&server.url());
    let frames = finishes("three frames", move || {
        let clock = Arc::new(SimulatedClock::default());
        let mut source = RtspSource::open(&config, "test", &Buffers::host(100), clock).unwrap();
        let stop = Stop::new().unwrap();
        [(); 3].map(|()| source.next(&stop))
    });
    assert!(frames.iter().all(|next| matches!(next, Ok(Next::Frame(_)))), "{frames:?}");
}

#[test]
fn an_error_says_whether_the_camera_may_serve_again_at_any_moment() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let is_absent = |url: &str| {
        let mut source =
            RtspSource::open(&config(url), "test", &Buffers::host(3), Arc::new(SimulatedClock::default())).unwrap();
        source.next(&Stop::new().unwrap()).unwrap_err().is_absent()
    };
    // Some cameras lock out who logs in wrongly too often.
    for (args, expected) in [
        (["--status", "401"], false),
        (["--status", "453"], false),
        (["--status", "404"], true),
        (["--status", "503"], true),
        (["--trick", "vp8"], false),
        (["--trick", "headers"], false),
    ] {
        assert_eq!(is_absent(&Server::start(&[&file], &args).url()), expected, "{args:?}");
    }
    let gone = Server::start(&[&file], &[]).url();
    assert!(is_absent(&gone), "the connection is refused");
}

#[test]
fn answers_without_end_are_given_up_early() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    for trick in ["headers", "line", "body", "text"] {
        let server = Server::start(&[&file], &["--trick", trick]);
        let (_, _, error) = read_all(&config(&server.url()));
        assert!(
            error.ends_with("an answer of the server does not end: this is no camera, check its URL"),
            "{trick}: {error}"
        );
        assert!(!server.said.lock().iter().any(|line| line.starts_with("flooded")), "{trick}: everything was read");
    }
}

#[test]
fn an_answer_without_end_to_the_end_of_the_session_is_not_read() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let most = (256 << 20).to_string();
    let server = Server::start(&[&file], &["--trick", "farewell", "--most-sent", &most]);
    let config = config(&server.url());
    finishes("a frame and the end", move || {
        let clock = Arc::new(SimulatedClock::default());
        let mut source = RtspSource::open(&config, "test", &Buffers::host(100), clock).unwrap();
        assert!(matches!(source.next(&Stop::new().unwrap()), Ok(Next::Frame(_))));
        // Its end waits for an answer.
        drop(source);
    });
    let said = server.said.lock();
    assert!(!said.iter().any(|line| line.starts_with("flooded")), "everything was read");
}

/// Encodes 120 frames, each of which differs, with a key frame every 10 where `options` do not say otherwise.
fn film(folder: &TempDir, name: &str, options: &str) -> (String, Vec<Vec<u8>>) {
    let path = folder.path().join(name);
    let (codec, parameters, format) = match name.ends_with("h265") {
        true => ("libx265", "-x265-params", "hevc"),
        false => ("libx264", "-x264-params", "h264"),
    };
    let options = format!("keyint=10:min-keyint=10:scenecut=0:crf=22:{options}");
    let args =
        ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x240:d=12:r=10", "-pix_fmt", "yuv420p", "-preset", "fast"];
    let status =
        Command::new("ffmpeg").args(args).args(["-c:v", codec, parameters, &options, "-f", format]).arg(&path).status();
    assert!(status.expect("these tests need ffmpeg").success());
    if name.ends_with("h265") && options.contains("intra-refresh") {
        add_recovery_points(&path);
    }
    let path = path.to_str().unwrap().to_owned();
    let frames = decoded(&path, 320, 240);
    assert_eq!(frames.len(), 120, "{name}");
    (path, frames)
}

/// Adds a recovery point to each 10th frame of an H.265 file: frames from the 26th after it on are right. That includes one
/// more refresh, because x265 refreshes gradually without announcing it.
fn add_recovery_points(path: &Path) {
    /// Supplemental information: the recovery point is at an order count that is higher by 26, exactly.
    const POINT: &[u8] = &[0, 0, 0, 1, 0x4E, 1, 6, 2, 0x06, 0x94, 0x80];
    let data = fs::read(path).unwrap();
    let (mut out, mut pictures) = (Vec::new(), 0);
    for nal in access_unit::nals(&data) {
        if nal[0] >> 1 < 32 {
            if pictures % 10 == 0 && pictures > 0 {
                out.extend(POINT);
            }
            pictures += 1;
        }
        access_unit::put(&mut out, nal);
    }
    fs::write(path, out).unwrap();
}

/// Returns which frames of `expected` these are; `None` for one that is none of them.
fn places(frames: &[Frame], expected: &[Vec<u8>]) -> Vec<Option<usize>> {
    frames.iter().map(|frame| expected.iter().position(|one| *one == bgr(frame))).collect()
}

#[test]
fn no_frame_that_refers_to_a_lost_packet_is_published() {
    let folder = TempDir::new().unwrap();
    for (name, options) in [
        ("plain.h264", "bframes=0"),
        ("slices.h264", "bframes=0:slices=4"),
        ("ordered.h264", "bframes=3:b-pyramid=normal"),
        ("open.h264", "bframes=3:open-gop=1"),
        ("refresh.h264", "bframes=2:intra-refresh=1"),
        ("ordered.h265", "log-level=none:bframes=3:open-gop=0"),
        ("open.h265", "log-level=none:bframes=3:open-gop=1"),
    ] {
        let (file, expected) = film(&folder, name, options);
        for (share, seed) in [("0.001", "4"), ("0.01", "2"), ("0.1", "3")] {
            let what = format!("{name} with {share} lost");
            let args = ["--fps", "400", "--at-end", "close", "--lose", share, "--seed", seed];
            let (frames, lost, _) = read_all(&config(&Server::start(&[&file], &args).url()));
            let places = places(&frames, &expected);
            println!("{what}: {} published, {lost} counted as lost", frames.len());
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{what}: {places:?}");
            assert!(frames.len() as u64 + lost <= 120, "{what}");
            assert!(share == "0.1" || frames.len() > 20, "{what}");
        }
    }
}

#[test]
fn frames_after_a_loss_are_published_with_a_mark_if_wanted() {
    let folder = TempDir::new().unwrap();
    for (name, options, share) in [
        ("ordered.h264", "bframes=3:b-pyramid=normal", "0.03"),
        ("refresh.h264", "bframes=2:intra-refresh=1", "0.01"),
        ("ordered.h265", "log-level=none:bframes=3:open-gop=0", "0.03"),
    ] {
        let (file, expected) = film(&folder, name, options);
        let server = Server::start(&[&file], &["--fps", "400", "--at-end", "close", "--lose", share, "--seed", "3"]);
        let (frames, ..) = read_all(&RtspConfig { damaged: DamagedFrames::Mark, ..config(&server.url()) });
        let (marked, clean): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| frame.damaged);
        let shows_damage = places(&marked, &expected).iter().filter(|place| place.is_none()).count();
        println!("{name}: {} clean, {} marked, of which {shows_damage} show damage", clean.len(), marked.len());
        assert!(places(&clean, &expected).iter().all(Option::is_some), "{name}");
        assert!(!clean.is_empty() && shows_damage > 0, "{name}");
    }
}

#[test]
fn a_stream_without_key_frames_begins_at_a_recovery_point() {
    let folder = TempDir::new().unwrap();
    for (name, options, latest) in [
        ("refresh.h264", "bframes=0:intra-refresh=1", 30),
        ("refresh_ordered.h264", "bframes=2:intra-refresh=1", 60),
        ("open.h264", "bframes=3:open-gop=1", 13),
        ("open.h265", "log-level=none:bframes=3:open-gop=1", 13),
        ("refresh.h265", "log-level=none:bframes=0:intra-refresh=1", 70),
    ] {
        let (file, expected) = film(&folder, name, options);
        let server = Server::start(&[&file], &["--fps", "400", "--at-end", "close", "--begin", "3", "--sets", "sdp"]);
        let (frames, lost, error) = read_all(&config(&server.url()));
        let places: Vec<_> = places(&frames, &expected).into_iter().map(|place| place.unwrap_or(usize::MAX)).collect();
        println!("{name}: {lost} lost, from {}, {error}", places[0]);
        assert!(places.iter().copied().eq(places[0]..120), "{name}: {places:?}");
        assert!((places[0] <= latest), "{name}: {places:?}");
        assert_eq!(lost, 0, "what came before the first whole picture is no loss: {name}");
    }
}

#[test]
fn damage_between_good_pictures_is_not_published() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let expected = decoded(&file, 64, 48);
    for trick in ["lengths", "noise", "backwards"] {
        let server = Server::start(&[&file], &["--trick", trick, "--fps", "100", "--at-end", "loop"]);
        let config = config(&server.url());
        let outcome = finishes(trick, move || {
            let clock = Arc::new(SimulatedClock::default());
            let mut source = RtspSource::open(&config, "test", &Buffers::host(100), clock).unwrap();
            let stop = Stop::new().unwrap();
            let (mut frames, mut lost) = (Vec::new(), 0);
            while frames.len() < 20 {
                match source.next(&stop)? {
                    Next::Frame(frame) => frames.push(frame),
                    Next::Lost { frames, .. } => lost += frames,
                    other => panic!("{other:?}"),
                }
            }
            Ok::<_, SourceError>((frames, lost))
        });
        let (frames, lost) = match outcome {
            // Noise can look like a frame or like parameters, which no decoder accepts.
            Err(error) if trick == "noise" => {
                assert!(error.may_pass(), "{error}");
                continue;
            }
            outcome => outcome.unwrap(),
        };
        assert_eq!(lost > 0, trick != "backwards", "{trick}");
        if trick != "noise" {
            assert!(frames.iter().all(|frame| expected.contains(&bgr(frame))), "{trick}");
        }
    }
}

#[test]
fn a_camera_that_sends_requests_is_played_on() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let server = Server::start(&[&file], &["--trick", "asks", "--fps", "20", "--at-end", "loop"]);
    let config = RtspConfig { timeout: HANG * 2, ..config(&server.url()) };
    let frames = finishes("the frames", move || {
        let clock = Arc::new(SimulatedClock::default());
        let mut source = RtspSource::open(&config, "test", &Buffers::host(100), clock).unwrap();
        let stop = Stop::new().unwrap();
        (0..20).map(|_| source.next(&stop).unwrap()).collect::<Vec<_>>()
    });
    assert!(frames.iter().all(|next| matches!(next, Next::Frame(_))), "{frames:?}");
    assert_eq!(server.said.lock().iter().filter(|line| line.starts_with("PLAY")).count(), 1);
}

/// Every frame arrives, in one session, whatever the camera does wrong.
#[test]
fn what_a_camera_does_wrong_costs_no_frame_and_no_session() {
    let folder = TempDir::new().unwrap();
    // Key frames of many packets, and frames of one.
    let file = stream(&folder, "plain.h264", "320x240", 2);
    let expected = decoded(&file, 320, 240);
    for trick in ["session", "ssrc", "count", "restart", "swap", "shuffle", "double", "again", "junk", "muxed", "odd"] {
        let server = Server::start(&[&file], &["--trick", trick, "--fps", "100", "--at-end", "close"]);
        let (frames, lost, error) = read_all(&config(&server.url()));
        assert_eq!(lost, 0, "{trick}: {error}");
        assert!(error.ends_with("the camera closed the connection"), "{trick}: {error}");
        assert_frames(&frames, &expected, trick);
        assert_eq!(server.said.lock().iter().filter(|line| line.starts_with("PLAY")).count(), 1, "{trick}");
    }
}

#[test]
fn a_camera_that_answers_badly_to_what_keeps_the_session_is_played_on() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let login = folder.path().join("login");
    fs::write(&login, "me:secret").unwrap();
    let expected = decoded(&file, 64, 48);
    for trick in ["deaf", "numbers", "ages", "stale"] {
        let args = ["--trick", trick, "--fps", "12", "--at-end", "close", "--user", "me", "--password", "secret"];
        let server = Server::start(&[&file], &args);
        let with_login = RtspConfig { login: Some(login.clone()), ..config(&server.url()) };
        let (frames, lost, error) = read_all(&with_login);
        assert_eq!(lost, 0, "{trick}: {error}");
        assert_frames(&frames, &expected, trick);
        let said = server.said.lock();
        let count = |what: &str| said.iter().filter(|line| *line == what).count();
        assert_eq!(count("PLAY login"), 1, "{trick}: {said:?}");
        assert!(count("keeps login") > 0, "{trick}: {said:?}");
        assert_eq!(count("OPTIONS refused") > 1, matches!(trick, "ages" | "stale"), "{trick}: {said:?}");
    }
}

#[test]
fn a_redirect_takes_the_login_along_to_the_same_address_and_nowhere_else() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let login = folder.path().join("login");
    fs::write(&login, "me:secret").unwrap();
    for (address, name, frames) in [("127.0.0.1", "localhost", 30), ("127.0.0.2", "127.0.0.2", 0)] {
        let args = ["--address", address, "--user", "me", "--password", "secret", "--fps", "100", "--at-end", "close"];
        let camera = Server::start(&[&file], &args);
        let moved = format!("rtsp://other:wr0ng@{name}:{}/live", camera.port);
        let first = Server::start(&[&file], &["--moved", &moved]);
        let (found, _, error) = read_all(&RtspConfig { login: Some(login.clone()), ..config(&first.url()) });
        assert_eq!(found.len(), frames, "{error}");
        assert!(!error.contains("wr0ng") && !error.contains("secret"), "{error}");
        assert_eq!(error.contains("names another host, rtsp://127.0.0.2:"), frames == 0, "{error}");
        assert_eq!(camera.said.lock().iter().any(|line| line == "PLAY login"), frames > 0);
    }
}

#[test]
fn it_stops_while_it_waits_and_tears_the_session_down() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let server = Server::start(&[&file], &["--trick", "silent"]);
    let config = config(&server.url());
    let wait = move |stop: &Stop| {
        let mut source =
            RtspSource::open(&config, "test", &Buffers::host(3), Arc::new(SimulatedClock::default())).unwrap();
        source.next(stop).unwrap()
    };
    // A session at an earlier step has nothing to tear down.
    let next = while_it_waits(wait, |stop| {
        server.wait_for("PLAY");
        stop.raise();
    });
    assert!(matches!(next, Next::Stopped), "{next:?}");
    server.wait_for("TEARDOWN");
}

#[test]
fn check_knows_what_opening_would_refuse() {
    let login = Some(PathBuf::from("/nonexistent/login"));
    let preview_url = Some("rtsp://:554/2".to_owned());
    let ffmpeg = FfmpegConfig { program: "/nonexistent/ffmpeg".into(), ..FfmpegConfig::default() };
    let wrong = RtspConfig { login, preview_url, ffmpeg, ..config("rtsp://:554/") };
    let keys: Vec<_> = RtspSource::check(&wrong).iter().map(|fault| fault.key).collect();
    assert_eq!(keys, ["login", "url", "preview_url", "ffmpeg"]);
    assert!(RtspSource::check(&config("rtsp://10.0.0.1:554/1")).is_empty());
}
