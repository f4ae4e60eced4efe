//! Videos that ffmpeg makes, read as a user's video is. Needs ffmpeg, as the source does.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use tempfile::TempDir;
use visiond_config::types::{FfmpegConfig, VideoPixels};
use visiond_frames::clock::SystemClock;
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_kernels::color::{ColorMatrix, ColorRange};
use visiond_kernels::frame::PixelFormat;
use visiond_system::testing::{EVER, HANG, stopped_while_it_waits};

use visiond_frames::frame::Frame;

use super::*;
use crate::tests::bgr;

fn make(folder: &TempDir, name: &str, args: &[&str]) -> String {
    let path = folder.path().join(name);
    let status = Command::new("ffmpeg").args(["-v", "error", "-y"]).args(args).arg(&path).status();
    assert!(status.expect("these tests need ffmpeg").success());
    path.to_str().unwrap().to_owned()
}

/// 20 frames at 10 frames per second.
fn sample(folder: &TempDir) -> String {
    make(folder, "sample.avi", &["-f", "lavfi", "-i", "testsrc2=s=64x48:d=2:r=10", "-c:v", "mpeg4", "-g", "5"])
}

fn config(url: &str) -> VideoConfig {
    VideoConfig {
        url: url.to_owned(),
        login: None,
        pace: Pace::Fastest,
        repeat: false,
        max_frames: None,
        input_args: Vec::new(),
        ffmpeg: FfmpegConfig::default(),
        pixels: VideoPixels::Bgr,
        color_matrix: None,
        color_range: None,
        timeout: HANG,
    }
}

fn open(config: &VideoConfig) -> Result<VideoSource, SourceError> {
    VideoSource::open(config, "test", &Buffers::host(3), Arc::new(SimulatedClock::default()))
}

/// Every outcome up to the end or an error.
fn read_all(config: &VideoConfig) -> (Vec<Frame>, u64, Option<SourceError>) {
    read_all_by(config, Arc::new(SystemClock))
}

fn read_all_by(config: &VideoConfig, clock: Arc<dyn Clock>) -> (Vec<Frame>, u64, Option<SourceError>) {
    let stop = Stop::new().unwrap();
    let count = Buffers::host(100);
    let mut source = VideoSource::open(config, "test", &count, clock).unwrap();
    let (mut frames, mut lost) = (Vec::new(), 0);
    loop {
        match source.next(&stop) {
            Ok(Next::Frame(frame)) => frames.push(frame),
            Ok(Next::Lost { frames, .. }) => lost += frames,
            Ok(Next::End) => return (frames, lost, None),
            Ok(Next::Waiting { .. }) => {}
            Ok(Next::Stopped) => panic!("stopped"),
            Err(error) => return (frames, lost, Some(error)),
        }
    }
}

#[test]
fn every_frame_of_a_file_comes_in_order_and_then_the_end() {
    let folder = TempDir::new().unwrap();
    let (frames, lost, error) = read_all(&config(&sample(&folder)));
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames.len(), lost), (20, 0));
    assert!(frames.iter().enumerate().all(|(i, frame)| frame.sequence == i as u64));
    // At ten a second, however fast they are read.
    let recorded_at = |i: usize| Some(Duration::from_millis(100 * i as u64));
    assert!(frames.iter().enumerate().all(|(i, frame)| frame.recorded_at == recorded_at(i)));
    assert!(frames.windows(2).all(|pair| pair[0].buffer.as_slice() != pair[1].buffer.as_slice()));
    assert_eq!(frames[0].layout.format(), PixelFormat::I420);
}

#[test]
fn a_repeated_file_goes_on_counting_until_max_frames() {
    let folder = TempDir::new().unwrap();
    let (frames, lost, error) =
        read_all(&VideoConfig { repeat: true, max_frames: Some(50), ..config(&sample(&folder)) });
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames.len(), lost), (50, 0));
    assert_eq!(frames[49].sequence, 49);
    assert_eq!(frames[3].buffer.as_slice(), frames[43].buffer.as_slice());
}

#[test]
fn in_real_time_frames_come_by_the_files_clock() {
    let folder = TempDir::new().unwrap();
    let config = VideoConfig { pace: Pace::Realtime, max_frames: Some(6), ..config(&sample(&folder)) };
    let (frames, lost, error) = read_all_by(&config, Arc::new(SimulatedClock::default()));
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames.len(), lost), (6, 0));
    let times_ms: Vec<_> = frames.iter().map(|frame| frame.timestamp.monotonic_ns / 1_000_000).collect();
    assert_eq!(times_ms, [0, 100, 200, 300, 400, 500]);
}

#[test]
fn in_real_time_frames_that_find_no_buffer_are_counted_and_the_next_ones_come() {
    let folder = TempDir::new().unwrap();
    let stop = Stop::new().unwrap();
    let mut source = open(&VideoConfig { pace: Pace::Realtime, ..config(&sample(&folder)) }).unwrap();
    let held: Vec<Next> = (0..3).map(|_| source.next(&stop).unwrap()).collect();
    assert!(held.iter().all(|next| matches!(next, Next::Frame(_))));
    assert!(matches!(source.next(&stop).unwrap(), Next::Lost { frames: 1, cause: LossCause::Overload }));
    drop(held);
    let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
    assert_eq!(frame.sequence, 4);
}

#[test]
fn a_video_that_is_to_be_shown_turned_is_turned() {
    let folder = TempDir::new().unwrap();
    let plain = make(&folder, "plain.mp4", &["-f", "lavfi", "-i", "testsrc2=s=64x48:d=1:r=5", "-c:v", "mpeg4"]);
    // The option with which ffmpeg writes a rotation differs between its versions, so the track's matrix (ISO/IEC 14496-12, 8.3.2) is
    // replaced: no rotation by 90 degrees.
    let mut bytes = std::fs::read(&plain).unwrap();
    let matrix = |numbers: [i32; 9]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let (one, w) = (1 << 16, 1 << 30);
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|window| window == what).unwrap();
    let track = find(&bytes, b"tkhd");
    let at = track + find(&bytes[track..], &matrix([one, 0, 0, 0, one, 0, 0, 0, w]));
    bytes[at..at + 36].copy_from_slice(&matrix([0, one, 0, -one, 0, 0, 48 * one, 0, w]));
    let turned = folder.path().join("turned.mp4");
    std::fs::write(&turned, bytes).unwrap();
    let (frames, _, error) = read_all(&config(turned.to_str().unwrap()));
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames[0].layout.width(), frames[0].layout.height()), (48, 64));
    assert_eq!(frames.len(), 5);
}

#[test]
fn native_planes_are_the_decoders_own() {
    let folder = TempDir::new().unwrap();
    for (pix_fmt, format, range) in [
        ("yuv420p", PixelFormat::I420, ColorRange::Limited),
        ("yuvj420p", PixelFormat::I420, ColorRange::Full),
        ("yuv422p", PixelFormat::Yuyv, ColorRange::Limited),
        ("yvyu422", PixelFormat::Yvyu, ColorRange::Limited),
        ("gray", PixelFormat::Grey, ColorRange::Full),
        ("yuv444p", PixelFormat::Bgr, ColorRange::Limited),
    ] {
        let codec = match pix_fmt {
            "yuvj420p" => "mjpeg",
            "yvyu422" => "rawvideo",
            _ => "ffv1",
        };
        let source = ["-f", "lavfi", "-i", "testsrc2=s=66x50:d=1:r=2", "-pix_fmt", pix_fmt, "-c:v", codec];
        let path = make(&folder, &format!("{pix_fmt}.mkv"), &source);
        let (frames, _, error) = read_all(&VideoConfig { pixels: VideoPixels::Native, ..config(&path) });
        assert!(error.is_none(), "{error:?}");
        let layout = frames[0].layout;
        assert_eq!((layout.format(), layout.color().range), (format, range), "{pix_fmt}");
        let wanted = if format == PixelFormat::Yuyv { "yuyv422" } else { pix_fmt };
        if format != PixelFormat::Bgr {
            let raw = make(&folder, "raw.yuv", &["-i", &path, "-f", "rawvideo", "-pix_fmt", wanted]);
            let raw = std::fs::read(raw).unwrap();
            assert_eq!(&raw[..layout.size_bytes()], frames[0].buffer.as_slice(), "{pix_fmt}");
        }
    }
}

#[test]
fn chroma_is_interpolated_from_where_the_file_says_it_lies() {
    let folder = TempDir::new().unwrap();
    for (location, options) in [
        ("unspecified", ""),
        ("center", ""),
        ("left", ":in_h_chr_pos=0"),
        ("topleft", ":in_h_chr_pos=0:in_v_chr_pos=0"),
        ("top", ":in_h_chr_pos=128:in_v_chr_pos=0"),
    ] {
        // An odd height: only then ffmpeg interpolates the chroma of 8 bits.
        let video = ["-f", "lavfi", "-i", "testsrc2=s=66x50:d=1:r=2", "-vf", "scale=66:49", "-pix_fmt", "yuv420p"];
        let video = [&video[..], &["-c:v", "ffv1", "-chroma_sample_location", location]].concat();
        let path = make(&folder, &format!("{location}.mkv"), &video);
        let (frames, _, error) = read_all(&config(&path));
        assert!(error.is_none(), "{error:?}");
        let filter = format!("scale=66:49{options}");
        let raw = ["-i", path.as_str(), "-vf", filter.as_str(), "-f", "rawvideo", "-pix_fmt", "bgr24"];
        let raw = std::fs::read(make(&folder, "raw.bgr", &raw)).unwrap();
        assert_eq!(&raw[..66 * 49 * 3], frames[0].buffer.as_slice(), "{location}");
    }
}

/// Frames of noise, which has every colour: ffmpeg's own conversion is the reference.
#[test]
fn pixels_are_those_that_ffmpeg_makes() {
    use ColorMatrix::{Bt709, Bt2020};
    let folder = TempDir::new().unwrap();
    let tags =
        [("bt709", "tv"), ("smpte170m", "pc"), ("bt2020nc", "tv"), ("fcc", "tv"), ("smpte240m", "tv"), ("", "tv")];
    let settings = [(None, None), (Some(Bt709), Some(ColorRange::Full)), (Some(Bt2020), Some(ColorRange::Limited))];
    for (n, (pix_fmt, size)) in
        [("yuv420p", "66x50"), ("yuv420p", "35x18"), ("yuv420p", "66x49"), ("yuv422p", "66x50"), ("yuv444p", "64x48")]
            .into_iter()
            .enumerate()
    {
        let (width, height) = size.split_once('x').unwrap();
        for (matrix, range) in tags {
            // `color` makes no odd sizes.
            let noise = format!("color=gray:s=66x50:d=1:r=1,noise=alls=100:all_seed={n},scale={width}:{height}");
            let tag = ["-colorspace", matrix, "-color_range", range];
            let tag = if matrix.is_empty() { &tag[2..] } else { &tag };
            let input = ["-f", "lavfi", "-i", &noise, "-c:v", "ffv1", "-pix_fmt", pix_fmt];
            let path = make(&folder, "noise.mkv", &[&input, tag].concat());
            for (color_matrix, color_range) in settings {
                let what = format!("{pix_fmt} {size} {matrix} {range} {color_matrix:?} {color_range:?}");
                let (frames, _, error) = read_all(&VideoConfig { color_matrix, color_range, ..config(&path) });
                assert!(error.is_none(), "{what}: {error:?}");
                let mut filter = format!("scale={width}:{height}");
                if let Some(matrix) = color_matrix {
                    filter.push_str(&format!(":in_color_matrix={}", matrix.name()));
                }
                if let Some(range) = color_range {
                    filter.push_str(if range == ColorRange::Full { ":in_range=pc" } else { ":in_range=tv" });
                }
                let raw = ["-i", &path, "-vf", &filter, "-f", "rawvideo", "-pix_fmt", "bgr24"];
                let raw = std::fs::read(make(&folder, "raw.bgr", &raw)).unwrap();
                assert!(raw == bgr(&frames[0]), "{what}");
            }
        }
    }
}

#[test]
fn what_is_no_video_gets_a_sentence_and_no_second_try() {
    let folder = TempDir::new().unwrap();
    let error = |config: &VideoConfig| open(config).err().expect("an error");
    let missing = error(&config("/nonexistent/film.mp4"));
    assert_eq!(missing.to_string(), "cannot open the video /nonexistent/film.mp4: there is no such file");
    assert!(!missing.may_pass());

    let text = folder.path().join("notes:1.txt");
    std::fs::write(&text, "not a video at all\n".repeat(100)).unwrap();
    let wrong = error(&config(text.to_str().unwrap()));
    assert!(wrong.to_string().contains("it is a text file") && !wrong.may_pass(), "{wrong}");

    let noise = folder.path().join("noise.mp4");
    std::fs::write(&noise, (0..4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>())
        .unwrap();
    let wrong = error(&config(noise.to_str().unwrap()));
    assert!(wrong.to_string().contains("not a video") && !wrong.may_pass(), "{wrong}");

    let sound = make(&folder, "sound.wav", &["-f", "lavfi", "-i", "sine=d=1"]);
    let silent = error(&config(&sound));
    assert!(silent.to_string().contains("no video in it") && !silent.may_pass(), "{silent}");

    let absent = error(&VideoConfig {
        ffmpeg: FfmpegConfig { program: "/nonexistent/ffmpeg".into(), ..FfmpegConfig::default() },
        ..config(&sound)
    });
    assert!(absent.to_string().contains("/nonexistent/ffprobe, which reads videos, is missing"), "{absent}");
    assert!(absent.to_string().contains("apt install ffmpeg") && !absent.may_pass(), "{absent}");
}

#[test]
fn a_file_that_was_cut_off_gives_what_is_there_and_counts_the_rest() {
    let folder = TempDir::new().unwrap();
    let whole = sample(&folder);
    let bytes = std::fs::read(&whole).unwrap();
    let cut = folder.path().join("cut.avi");
    std::fs::write(&cut, &bytes[..bytes.len() * 6 / 10]).unwrap();
    let (frames, lost, error) = read_all(&config(cut.to_str().unwrap()));
    assert!(error.is_none(), "{error:?}");
    assert!(frames.len() >= 5 && frames.len() < 20, "{}", frames.len());
    assert_eq!(frames.len() as u64 + lost, 20);
}

#[test]
fn a_file_whose_edit_list_hides_frames_is_whole_unless_it_was_cut_off() {
    let folder = TempDir::new().unwrap();
    let source = ["-f", "lavfi", "-i", "testsrc2=s=320x240:r=10:d=3", "-pix_fmt", "yuv420p"];
    for codec in [&["-c:v", "libx264", "-g", "100", "-bf", "2"][..], &["-c:v", "mpeg4", "-g", "100"]] {
        let long = make(&folder, "long.mp4", &[&source[..], codec].concat());
        for trim in [&["-ss", "1.55"][..], &["-ss", "0.35"], &["-ss", "2.6"], &["-ss", "0.55", "-t", "1"]] {
            let copy = ["-i", &long, "-c", "copy", "-movflags", "+faststart"];
            let path = make(&folder, "trim.mp4", &[trim, &copy].concat());
            let (frames, lost, error) = read_all(&config(&path));
            assert!(error.is_none(), "{error:?}");
            assert!(frames.len() < 30 && lost == 0, "{codec:?} {trim:?}: {} frames, {lost} lost", frames.len());
        }
        let path = make(&folder, "trim.mp4", &["-ss", "0.35", "-i", &long, "-c", "copy", "-movflags", "+faststart"]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() * 6 / 10]).unwrap();
        let (frames, lost, error) = read_all(&config(&path));
        assert!(error.is_none(), "{error:?}");
        assert!(!frames.is_empty() && frames.len() < 20 && lost > 0, "{} frames, {lost} lost", frames.len());
    }
}

#[test]
fn a_session_description_plays_what_its_sender_sends() {
    let folder = TempDir::new().unwrap();
    // Two ports that are free now: RTCP takes the second.
    let bind = |port| std::net::UdpSocket::bind(("127.0.0.1", port));
    let port = loop {
        let even = bind(0).unwrap().local_addr().unwrap().port() & !1;
        if bind(even).and(bind(even + 1)).is_ok() {
            break even;
        }
    };
    let sdp = format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video {port} RTP/AVP 26\r\n"
    );
    let path = folder.path().join("door.sdp");
    std::fs::write(&path, sdp).unwrap();
    let film = ["-re", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=20", "-c:v", "mjpeg", "-huffman", "default"];
    let target = format!("rtp://127.0.0.1:{port}");
    let rest = ["-pix_fmt", "yuvj420p", "-force_duplicated_matrix", "1", "-f", "rtp", &target];
    let mut sender = Command::new("ffmpeg").args(["-v", "quiet", "-nostdin"]).args(film).args(rest).spawn().unwrap();
    let (frames, _, error) = read_all(&VideoConfig { max_frames: Some(3), ..config(path.to_str().unwrap()) });
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames.len(), frames[0].layout.width()), (3, 64));
}

#[test]
fn a_part_of_a_file_is_whole() {
    let folder = TempDir::new().unwrap();
    let whole = sample(&folder);
    let input_args = ["-ss", "1"].map(str::to_owned).to_vec();
    let (frames, lost, error) = read_all(&VideoConfig { input_args, ..config(&whole) });
    assert!(error.is_none(), "{error:?}");
    assert!(!frames.is_empty() && frames.len() < 20 && lost == 0, "{} frames, {lost} lost", frames.len());
}

#[test]
fn stop_is_heard_while_ffmpeg_hangs() {
    let folder = TempDir::new().unwrap();
    let stub = folder.path().join("ffmpeg");
    let real = "#!/bin/sh\nexec sleep 3600\n";
    std::fs::write(&stub, real).unwrap();
    let probe = folder.path().join("ffprobe");
    std::fs::write(&probe, "#!/bin/sh\nexec ffprobe \"$@\"\n").unwrap();
    for script in [&stub, &probe] {
        std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let config = VideoConfig {
        ffmpeg: FfmpegConfig { program: stub, ..FfmpegConfig::default() },
        timeout: EVER,
        ..config(&sample(&folder))
    };
    let mut source = open(&config).unwrap();
    assert!(matches!(stopped_while_it_waits(move |stop| source.next(stop)).unwrap(), Next::Stopped));

    let mut source = open(&config).unwrap();
    source.config.timeout = Duration::from_millis(700);
    let error = source.next(&Stop::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("for 0.7 s") && error.may_pass(), "{error}");
}

/// Makes a part of a frame.
type Part = fn(&[u8]) -> Vec<u8>;

/// Serves JPEG parts, which `part` makes of an image, to each client; returns the URL.
fn camera_of_parts(folder: &TempDir, part: Part) -> String {
    let pattern = make(folder, "p%02d.jpg", &["-f", "lavfi", "-i", "testsrc2=s=64x48:d=2:r=10"]);
    let picture = |n: usize| std::fs::read(pattern.replace("%02d", &format!("{:02}", n + 1))).unwrap();
    camera_that_closes((0..20).flat_map(|n| part(&picture(n))).collect())
}

#[test]
fn parts_with_another_type_none_or_a_wrong_length_are_pictures() {
    let parts: [Part; 4] = [
        |it| part(&format!("Content-Type: image/jpg\r\nContent-Length: {}", it.len()), it),
        |it| part(&format!("Content-Length: {}", it.len()), it),
        |it| part("Content-Type: image/pjpeg", it),
        |it| part(&format!("Content-Type: image/jpeg\r\nContent-Length: {}", it.len() + 7), it),
    ];
    for (n, of) in parts.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let (frames, _, error) = read_all(&config(&camera_of_parts(&folder, of)));
        assert!(error.expect("the camera closes the connection").may_pass());
        // The image before the damage, and all images after a new connection.
        assert!(frames.len() >= 19, "{n}: {} frames", frames.len());
    }
}

fn part(head: &str, picture: &[u8]) -> Vec<u8> {
    [b"--ffmpeg\r\n" as &[u8], head.as_bytes(), b"\r\n\r\n", picture, b"\r\n"].concat()
}

/// Serves a camera's images to each client, and then closes the connection; returns the URL.
fn camera_that_closes(pictures: Vec<u8>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=ffmpeg\r\n\r\n";
            let mut request = [0; 4096];
            // A prober that has seen enough leaves.
            let _ = connection.read(&mut request);
            let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&pictures));
        }
    });
    format!("http://{address}/camera.mjpeg")
}

#[test]
fn a_camera_that_closes_its_stream_has_not_ended() {
    let folder = TempDir::new().unwrap();
    let name = make(&folder, "camera", &["-f", "lavfi", "-i", "testsrc2=s=64x48:d=2:r=10", "-f", "mpjpeg"]);
    let url = camera_that_closes(std::fs::read(name).unwrap());
    let (frames, _, error) = read_all(&config(&url));
    let error = error.expect("an error, after which the camera is opened again");
    assert!(error.may_pass(), "{error}");
    let said = format!("cannot continue to read the video {url}: the stream ended after 20 frames");
    assert!(error.to_string().starts_with(&said), "{error}");
    assert_eq!(frames.len(), 20);
}

#[test]
fn a_video_that_states_a_size_beyond_the_limit_is_refused_before_memory_is_taken() {
    let folder = TempDir::new().unwrap();
    let refusal = |width: u64, height: u64| {
        let answer = format!(r#"{{"streams":[{{"width":{width},"height":{height},"pix_fmt":"yuv420p"}}]}}"#);
        let (program, probe) = (folder.path().join("ffmpeg"), folder.path().join("ffprobe"));
        for (stub, script) in [(&program, "exit 1".to_owned()), (&probe, format!("echo '{answer}'"))] {
            std::fs::write(stub, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let ffmpeg = FfmpegConfig { program, ..FfmpegConfig::default() };
        let error = open(&VideoConfig { ffmpeg, ..config("a.mp4") }).err().unwrap();
        assert!(!error.may_pass() && error.to_string().starts_with("cannot read the video a.mp4: "), "{error}");
        error.to_string()
    };
    assert!(refusal(16_384, 16_384).contains("it has 268435456 pixels (16384x16384), more than 67108864: "));
    assert!(refusal(16_385, 2).contains("out of range"));
    assert!(refusal(u64::from(u32::MAX), u64::from(u32::MAX)).contains("pixels"));
    assert!(refusal(1 << 32, 2).contains("size is unknown"));
}

/// The packets of an MPEG-TS file that ffmpeg made (ISO/IEC 13818-1, 2.4.3), one unit for each frame.
fn transport_units(bytes: &[u8]) -> Vec<Vec<u8>> {
    const FIRST_STREAM: u16 = 256;
    let mut units = vec![Vec::new()];
    let mut has_frame = false;
    for packet in bytes.chunks(188) {
        let of_video = u16::from_be_bytes([packet[1] & 31, packet[2]]) == FIRST_STREAM;
        let starts = of_video && packet[1] & 0x40 != 0;
        if has_frame && (starts || !of_video) {
            units.push(Vec::new());
            has_frame = false;
        }
        has_frame |= of_video;
        units.last_mut().unwrap().extend(packet);
    }
    units
}

/// Serves a live stream; returns its URL. The first connection, ffprobe's, gets all at once. The second gets the first
/// `at_once` units, and unit N when `received` has said of N - `held_back` frames that they have come.
fn live_server(
    units: Vec<Vec<u8>>,
    head: &'static str,
    at_once: usize,
    held_back: usize,
    received: Receiver<()>,
) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let accept = || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 4096]);
            connection.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).unwrap();
            connection
        };
        // ffprobe leaves when it has seen enough.
        let _ = accept().write_all(&units.concat());
        let (mut connection, mut frames) = (accept(), 0);
        for (n, unit) in units.iter().enumerate() {
            while n >= at_once && frames + held_back < n {
                if received.recv().is_err() {
                    return;
                }
                frames += 1;
            }
            if connection.write_all(unit).is_err() {
                return;
            }
        }
    });
    format!("http://{address}/live")
}

const TRANSPORT_STREAM: &str = "Content-Type: video/mp2t";
const PARTS: &str = "Content-Type: multipart/x-mixed-replace;boundary=ffmpeg";

/// A server that waits for frames deadlocks with a decoder that holds back more than it must.
#[test]
fn a_live_frame_is_not_held_back_however_many_threads_the_decoder_has() {
    let folder = TempDir::new().unwrap();
    let source = ["-f", "lavfi", "-i", "testsrc2=s=320x240:d=4:r=10", "-pix_fmt", "yuv420p"];
    let video = |name: &str, codec: &[&str]| make(&folder, name, &[&source[..], codec].concat());
    // ffmpeg sees the end of a transport stream's frame at the start of the next one, twice: where it takes the stream apart, and
    // where it parses the frames.
    let h264 = ["-c:v", "libx264", "-g", "10", "-x264-params", "b-adapt=0", "-bf"];
    let films = [
        (video("plain.ts", &[&h264[..], &["0"]].concat()), 2),
        // Frames whose order needs others hold back one each.
        (video("b.ts", &[&h264[..], &["2"]].concat()), 4),
        (video("mpeg2.ts", &["-c:v", "mpeg2video", "-bf", "2"]), 3),
        (video("p%02d.jpg", &["-q:v", "4"]), 0),
    ];
    for (film, held_back) in films {
        let is_jpeg = film.ends_with("jpg");
        let units = if is_jpeg {
            let picture = |n: usize| std::fs::read(film.replace("%02d", &format!("{n:02}"))).unwrap();
            let parts = (1..=40)
                .map(picture)
                .map(|it| part(&format!("Content-Type: image/jpeg\r\nContent-Length: {}", it.len()), &it));
            parts.collect()
        } else {
            transport_units(&std::fs::read(&film).unwrap())
        };
        assert_eq!(units.len(), 40);
        let (came, received) = mpsc::channel();
        let url = live_server(units, if is_jpeg { PARTS } else { TRANSPORT_STREAM }, 10, held_back, received);
        let input_args = ["-threads", "12"].map(str::to_owned).to_vec();
        let config = VideoConfig { pace: Pace::Realtime, input_args, ..config(&url) };
        let (stop, mut source, mut frames) = (Stop::new().unwrap(), open(&config).unwrap(), Vec::new());
        let error = loop {
            match source.next(&stop) {
                Ok(Next::Frame(frame)) => frames.push(frame.buffer.as_slice().to_vec()),
                Ok(other) => panic!("{film}: {other:?}"),
                Err(error) => break error,
            }
            let _ = came.send(());
        };
        assert!(error.to_string().contains("the stream ended after 40 frames"), "{film}: {error}");
        let raw = make(&folder, "raw.yuv", &["-flags", "bitexact", "-i", &film, "-f", "rawvideo"]);
        assert!(std::fs::read(raw).unwrap() == frames.concat(), "{film}: other pixels than ffmpeg's");
    }
}

#[test]
fn a_burst_of_a_live_stream_is_spread_and_nothing_of_it_is_lost() {
    let folder = TempDir::new().unwrap();
    let film = ["-f", "lavfi", "-i", "testsrc2=s=64x48:d=4:r=10", "-c:v", "mpeg2video"];
    let film = make(&folder, "segment.ts", &film);
    let (_came, received) = mpsc::channel();
    let url = live_server(vec![std::fs::read(film).unwrap()], TRANSPORT_STREAM, 1, 0, received);
    let clock = Arc::new(SimulatedClock::default());
    let config = VideoConfig { pace: Pace::Realtime, ..config(&url) };
    let mut source = VideoSource::open(&config, "test", &Buffers::host(3), clock.clone()).unwrap();
    let (stop, mut held, mut times_ms) = (Stop::new().unwrap(), Vec::<Frame>::new(), Vec::new());
    let error = loop {
        match source.next(&stop) {
            Ok(Next::Frame(frame)) => {
                times_ms.push(frame.timestamp.monotonic_ns / 1_000_000);
                held.push(frame);
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        // A model that needs 150 ms for each frame, two at a time.
        let now_ns = clock.monotonic_ns();
        held.retain(|frame| now_ns < frame.timestamp.monotonic_ns + 150_000_000);
    };
    assert!(error.to_string().contains("the stream ended after 40 frames"), "{error}");
    assert!(times_ms.windows(2).all(|pair| (90..=100).contains(&(pair[1] - pair[0]))), "{times_ms:?}");
}

#[test]
fn a_live_decoder_gets_what_its_codec_and_container_allow() {
    let folder = TempDir::new().unwrap();
    let config =
        VideoConfig { input_args: vec!["-thread_type".to_owned(), "frame".to_owned()], ..config(&sample(&folder)) };
    let info = ffprobe::probe(&config, "test", &Stop::new().unwrap()).unwrap();
    let has = |codec: &str, container: &str, is_live, what: &str| {
        let (codec, container) = (codec.to_owned(), container.to_owned());
        arguments(&config, &VideoInfo { codec, container, ..info.clone() }, is_live).join(" ").contains(what)
    };
    // Other decoders would return B-frames in the wrong order.
    assert!(has("av1", "hls", true, "-flags bitexact+low_delay"));
    assert!(!has("av1", "matroska,webm", false, "low_delay") && !has("mpeg4", "mpegts", true, "low_delay"));
    // Sound that comes first would leave ffmpeg without video.
    assert!(has("h264", "mpegts", true, "-analyzeduration") && !has("h264", "flv", true, "-analyzeduration"));
    // The last counts.
    assert!(has("h264", "rtsp", true, "-thread_type slice -analyzeduration 1 -thread_type frame"));
    assert!(!has("h264", "mpegts", false, "slice"));
}

#[test]
fn a_stream_over_http_may_come_in_bursts_unless_it_is_pushed_frame_by_frame() {
    let folder = TempDir::new().unwrap();
    let info = ffprobe::probe(&config(&sample(&folder)), "test", &Stop::new().unwrap()).unwrap();
    for (url, codec, container, expected) in [
        ("https://cam/live.m3u8", "h264", "hls", true),
        ("HTTP://cam/live", "hevc", "mpegts", true),
        ("http://cam/live.flv", "h264", "flv", false),
        ("http://cam/video", "mjpeg", "mpjpeg", false),
        ("rtsp://cam/1", "h264", "rtsp", false),
        ("udp://239.1.1.1:5000", "h264", "mpegts", false),
    ] {
        let info = VideoInfo { codec: codec.to_owned(), container: container.to_owned(), ..info.clone() };
        assert_eq!(may_burst(url, &info), expected, "{url}");
    }
}
