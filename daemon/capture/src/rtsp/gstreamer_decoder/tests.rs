//! Plays streams of `tests/rtsp/server.py` through the real GStreamer, with software elements in place of NVIDIA's, and through
//! programs that fail as NVIDIA's elements may.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use h264_reader::nal::sps::SeqParameterSet;
use h264_reader::rbsp::{BitReader, decode_nal};
use tempfile::TempDir;
use visiond_config::types::{FfmpegConfig, RtspConfig, StreamDecoding};
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::Frame;
use visiond_system::find_program::find_program;
use visiond_system::testing::{finishes, skip};

use super::super::super::buffers::Buffers;
use super::super::super::source::{Next, Source};
use super::super::RtspSource;
use super::super::access_unit::nals;
use super::super::tests::{Server, assert_frames, config, decoded, key_frames, stream};
use super::*;

/// Runs the pipeline with software elements in place of NVIDIA's two.
const SOFTWARE: &str = r#"case "$*" in *h265parse*) decoder=avdec_h265 ;; *) decoder=avdec_h264 ;; esac
for argument; do
  shift
  case $argument in
    nvv4l2decoder) set -- "$@" $decoder max-threads=1 ;;
    disable-dpb=true) ;;
    nvvidconv) echo NvMMLiteOpen; set -- "$@" videoconvert ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec gst-launch-1.0 "$@"
"#;

/// The lines that NVIDIA's decoder prints.
const BANNER: &str = "echo 'Opening in BLOCKING MODE'; echo 'NvMMLiteOpen : Block : BlockType = 261'\n";

fn program(folder: &TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("gst-launch-1.0");
    fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A stand-in that notes each run in the file `runs`. It must not be confined, because it writes.
fn noting(folder: &TempDir, script: &str) -> PathBuf {
    // The run that lists the plugins does not count.
    program(
        folder,
        &format!("case \"$*\" in *fakesrc*) exit 1 ;; esac\necho >>{}\n{script}", folder.path().join("runs").display()),
    )
}

fn unconfined(url: &str) -> RtspConfig {
    RtspConfig { ffmpeg: FfmpegConfig { confined: false, ..FfmpegConfig::default() }, ..config(url) }
}

fn runs(folder: &TempDir) -> usize {
    fs::read_to_string(folder.path().join("runs")).unwrap_or_default().lines().count()
}

/// Skips the test without GStreamer and the elements that it needs.
fn has_elements() -> bool {
    let inspect = |element: &str| {
        let mut command = std::process::Command::new("gst-inspect-1.0");
        command.arg(element).output().is_ok_and(|output| output.status.success())
    };
    let elements = ["h264parse", "h265parse", "avdec_h264", "avdec_h265", "videoconvert", "gdppay"];
    let missing = elements.iter().find(|element| find_program(Path::new(PROGRAM)).is_none() || !inspect(element));
    missing.inspect(|element| skip(&format!("GStreamer or its element {element} is missing"))).is_none()
}

fn open(config: &RtspConfig, name: &str, gstreamer: PathBuf) -> RtspSource {
    let clock = Arc::new(SimulatedClock::default());
    RtspSource::open_with(config, name, &Buffers::host(200), clock, Some(gstreamer)).unwrap()
}

/// Everything that a source returns up to its end.
struct Played {
    frames: Vec<Frame>,
    lost: u64,
    described: Vec<String>,
    error: String,
}

/// Reads to the end of the stream. The clock is stopped, so that no frame is old, however slow the machine is.
fn play(config: &RtspConfig, name: &'static str, gstreamer: PathBuf) -> Played {
    let config = config.clone();
    finishes("the stream", move || {
        let (stop, mut source) = (Stop::new().unwrap(), open(&config, name, gstreamer));
        let mut played = Played { frames: Vec::new(), lost: 0, described: Vec::new(), error: String::new() };
        loop {
            match source.next(&stop) {
                Ok(Next::Frame(frame)) => {
                    let described = source.describe();
                    if played.described.last() != Some(&described) {
                        played.described.push(described);
                    }
                    played.frames.push(frame);
                }
                Ok(Next::Lost { frames, .. }) => played.lost += frames,
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    played.error = error.to_string();
                    return played;
                }
            }
        }
    })
}

#[test]
fn gstreamer_returns_the_frames_that_ffmpeg_decodes_from_the_file() {
    if !has_elements() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let software = program(&folder, SOFTWARE);
    for (name, size, b_frames) in [
        ("plain.h264", "64x48", 0),
        ("ordered.h264", "130x74", 2),
        ("plain.h265", "128x72", 0),
        ("ordered.h265", "128x72", 2),
    ] {
        let file = stream(&folder, name, size, b_frames);
        let server = Server::start(&[&file], &["--fps", "100", "--at-end", "close"]);
        let played = play(&config(&server.url()), "frames", software.clone());
        assert_eq!(played.lost, 0, "{name}: {}", played.error);
        let (width, height) = size.split_once('x').unwrap();
        assert_frames(&played.frames, &decoded(&file, width.parse().unwrap(), height.parse().unwrap()), name);
        let [described] = &played.described[..] else { panic!("{:?}", played.described) };
        assert!(described.contains(&format!("yuv420p, {size}, by GStreamer as nv12, live")), "{described}");
    }
}

#[test]
fn gstreamer_holds_no_frame_back_until_the_next_one() {
    if !has_elements() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let software = program(&folder, SOFTWARE);
    for (name, key_frames_only) in
        [("plain.h264", false), ("plain.h265", false), ("ordered.h264", true), ("ordered.h265", true)]
    {
        let file = stream(&folder, name, "64x48", if key_frames_only { 2 } else { 0 });
        let shown = decoded(&file, 64, 48).into_iter().zip(key_frames(&file));
        let expected: Vec<_> = shown.filter(|(_, key)| *key || !key_frames_only).map(|(frame, _)| frame).collect();
        // The server sends nothing more and stays connected, so a frame that the program holds back would never arrive.
        let server = Server::start(&[&file], &["--fps", "100"]);
        let config = RtspConfig { key_frames_only, ..config(&server.url()) };
        let (program, count) = (software.clone(), expected.len());
        let frames = finishes("every frame", move || {
            let (stop, mut source) = (Stop::new().unwrap(), open(&config, "held", program));
            let mut frame = || match source.next(&stop).unwrap() {
                Next::Frame(frame) => frame,
                other => panic!("{other:?}"),
            };
            let frames: Vec<_> = (0..count).map(|_| frame()).collect();
            assert_eq!(source.decoder(), Some("gstreamer"));
            frames
        });
        assert_frames(&frames, &expected, name);
    }
}

#[test]
fn a_stream_that_changes_its_size_gets_another_gstreamer_in_the_same_session() {
    if !has_elements() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (small, large) = (stream(&folder, "small.h264", "64x48", 2), stream(&folder, "large.h264", "128x72", 0));
    let server = Server::start(&[&small, &large], &["--fps", "100", "--at-end", "close"]);
    let config = RtspConfig { decoder: StreamDecoding::Gstreamer, ..config(&server.url()) };
    let played = play(&config, "sizes", program(&folder, SOFTWARE));
    assert_eq!(played.lost, 0, "{}", played.error);
    assert_frames(&played.frames, &[decoded(&small, 64, 48), decoded(&large, 128, 72)].concat(), &played.error);
    assert!(played.described.iter().all(|described| described.contains("by GStreamer")), "{:?}", played.described);
    assert_eq!(server.heard("PLAY"), 1);
}

/// A header of a frame of this many bytes, as `printf` writes it.
fn header(bytes: u32) -> String {
    let size: String = bytes.to_be_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("printf '\\001\\000\\001\\000\\000\\001{size}'; head -c 52 /dev/zero")
}

#[test]
fn a_gstreamer_that_fails_leaves_every_frame_to_ffmpeg_and_is_not_tried_again() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let frame = header(64 * 48 * 3 / 2);
    let missing = "echo 'WARNING: erroneous pipeline: no element \"nvv4l2decoder\"' >&2; exit 1";
    let failing =
        "head -c 100 >/dev/null; echo 'ERROR: from element /nvv4l2decoder0: Failed to open' >&2; echo Bye; exit 1";
    for (name, script, reason) in [
        ("missing", missing.to_owned(), "exited with status 1 after 0 frames: WARNING: erroneous pipeline: no element"),
        (
            "failing",
            format!("{BANNER}{failing}"),
            "exited with status 1 after 0 frames: ERROR: from element /nvv4l2decoder0",
        ),
        (
            "hanging",
            format!("{BANNER}exec sleep 3600"),
            "(GStreamer on trial; its last line: NvMMLiteOpen : Block : BlockType = 261)",
        ),
        ("deaf", format!("{BANNER}exec 3>&-; exec sleep 3600"), "closed its output and did not exit after 0 frames"),
        ("half", format!("({frame}; head -c 1000 /dev/zero) >&3"), "exited with status 0 after 0 frames"),
        ("other-size", format!("({}) >&3; exec sleep 3600", header(4096)), "a frame of 4096 bytes instead of 4608"),
        ("text", "(cat /proc/cpuinfo; sleep 3600) >&3".to_owned(), "GStreamer returned something other than frames"),
    ] {
        let folder = TempDir::new().unwrap();
        let gstreamer = noting(&folder, &script);
        let server = Server::start(&[&file], &["--fps", "100", "--at-end", "close"]);
        // The others end by themselves.
        let timeout = Duration::from_secs(if name == "hanging" { 5 } else { 120 });
        let auto = RtspConfig { timeout, ..unconfined(&server.url()) };
        let played = play(&auto, name, gstreamer.clone());
        assert_eq!(played.lost, 0, "{name}: {}", played.error);
        assert_frames(&played.frames, &decoded(&file, 64, 48), name);
        assert!(played.described[0].contains("by ffmpeg"), "{name}: {:?}", played.described);
        assert_eq!((server.heard("PLAY"), runs(&folder)), (1, 1), "{name}");
        // A connection later, ffmpeg decodes at once.
        assert_frames(&play(&auto, name, gstreamer.clone()).frames, &decoded(&file, 64, 48), name);
        assert_eq!(runs(&folder), 1, "{name}");
        // With `decoder = "gstreamer"`, it must decode.
        let must = RtspConfig { decoder: StreamDecoding::Gstreamer, ..auto };
        let played = play(&must, name, gstreamer);
        assert!(played.frames.is_empty() && played.error.contains(reason), "{name}: {}", played.error);
        assert!(played.error.ends_with("`decoder = \"auto\"` leaves it to ffmpeg"), "{name}: {}", played.error);
        assert_eq!(runs(&folder), 2, "{name}");
    }
}

#[test]
fn a_gstreamer_that_fails_after_its_first_frame_twice_leaves_the_stream_to_ffmpeg() {
    let folder = TempDir::new().unwrap();
    let file = stream(&folder, "plain.h264", "64x48", 0);
    let frame = header(64 * 48 * 3 / 2);
    let script = format!("({frame}; head -c 4608 /dev/zero) >&3; echo 'ERROR: engine lost' >&2; exit 1");
    let gstreamer = noting(&folder, &script);
    let server = Server::start(&[&file], &["--fps", "100"]);
    for run in 1..=2 {
        let played = play(&unconfined(&server.url()), "later", gstreamer.clone());
        assert_eq!((played.frames.len(), runs(&folder)), (1, run));
        assert!(
            played.error.ends_with("GStreamer exited with status 1 after 1 frames: ERROR: engine lost"),
            "{}",
            played.error
        );
    }
    // The camera stays, so this does not play to the end.
    let config = unconfined(&server.url());
    let decoder = finishes("a frame", move || {
        let mut source = open(&config, "later", gstreamer);
        assert!(matches!(source.next(&Stop::new().unwrap()), Ok(Next::Frame(_))));
        source.decoder()
    });
    assert_eq!((decoder, runs(&folder)), (Some("ffmpeg"), 2));
}

/// Takes out of the stream's parameter sets how far frames are reordered, as in many cameras' streams: the flag is 0, and the set
/// ends there.
fn without_order(stream: &[u8]) -> Vec<u8> {
    let parse = |set: &[u8]| {
        let payload = decode_nal(set).ok()?;
        SeqParameterSet::from_bits(BitReader::new(&payload[..])).ok()
    };
    let mut out = Vec::new();
    for nal in nals(stream) {
        out.extend([0, 0, 0, 1]);
        if nal[0] & 0x1F != 7 {
            out.extend(nal);
            continue;
        }
        let mut wanted = parse(nal).unwrap();
        wanted.vui_parameters.as_mut().unwrap().bitstream_restrictions = None;
        let cut = |bits: usize| {
            let mut set = nal[..bits / 8 + 1].to_vec();
            // The flag, and the bit that ends the set, which may be the next byte's first.
            set.push(0);
            let put = |set: &mut Vec<u8>, at: usize, bit: u8| {
                set[at / 8] = set[at / 8] & !(0xFF >> (at % 8)) | bit << (7 - at % 8);
            };
            put(&mut set, bits, 0);
            put(&mut set, bits + 1, 1);
            set.truncate((bits + 1) / 8 + 1);
            set
        };
        let is_wanted = |set: &Vec<u8>| parse(set).is_some_and(|parsed| format!("{parsed:?}") == format!("{wanted:?}"));
        out.extend((8..nal.len() * 8 - 8).rev().map(cut).find(is_wanted).unwrap());
    }
    out
}

/// H.264 whose key frame does not say that B-frames follow: ffprobe reports none, and with `disable-dpb` NVIDIA's decoder would
/// return them in decoding order.
#[test]
fn a_stream_that_turns_out_to_have_b_frames_is_left_to_ffmpeg_at_the_first() {
    let folder = TempDir::new().unwrap();
    let with = stream(&folder, "bframes.h264", "64x48", 2);
    let silent = folder.path().join("silent.h264").to_str().unwrap().to_owned();
    fs::write(&silent, without_order(&fs::read(with).unwrap())).unwrap();
    let server = Server::start(&[&silent], &["--fps", "100", "--at-end", "close"]);
    let frame = header(64 * 48 * 3 / 2);
    let gstreamer = noting(&folder, &format!("({frame}; head -c 4608 /dev/zero) >&3; exec cat >/dev/null"));
    let played = play(&unconfined(&server.url()), "silent", gstreamer);
    assert!(played.described.last().unwrap().contains("by ffmpeg"), "{:?}, {}", played.described, played.error);
    assert_eq!(runs(&folder), 1);
}

#[test]
fn a_stream_that_the_engine_does_not_take_starts_no_gstreamer() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("full.h264");
    let source = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:d=1:r=10", "-pix_fmt", "yuv444p"];
    let mut made = std::process::Command::new("ffmpeg");
    made.args(source).args(["-c:v", "libx264", "-f", "h264"]).arg(&path);
    assert!(made.status().expect("these tests need ffmpeg").success());
    let server = Server::start(&[path.to_str().unwrap()], &["--fps", "100", "--at-end", "close"]);
    let played = play(&unconfined(&server.url()), "full", noting(&folder, "exit 1"));
    assert_eq!((played.frames.len(), runs(&folder)), (10, 0), "{}", played.error);
}

#[test]
fn a_decoder_whose_frames_need_no_reordering_is_told_so() {
    let info = |held_back| VideoInfo {
        width: 1920,
        height: 1080,
        pixel_format: "yuv420p".to_owned(),
        fps: None,
        frames: None,
        hides_frames: false,
        duration: None,
        codec: "hevc".to_owned(),
        container: "hevc".to_owned(),
        held_back,
        color: ColorDescription::default(),
        color_space: String::new(),
        chroma_location: String::new(),
        demuxer: None,
        has_fps_mode: true,
    };
    let line = |codec, held_back| arguments(codec, &info(held_back)).join(" ");
    assert_eq!(
        line(Codec::H265, 0),
        "-q fdsrc fd=0 blocksize=65536 ! h265parse ! nvv4l2decoder disable-dpb=true ! nvvidconv ! \
         video/x-raw,format=NV12,width=1920,height=1080 ! gdppay ! fdsink fd=3 sync=false"
    );
    assert!(line(Codec::H264, 2).contains("! h264parse ! nvv4l2decoder ! nvvidconv !"));
}
