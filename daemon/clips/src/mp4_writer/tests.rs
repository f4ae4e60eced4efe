//! Streams that ffmpeg makes, and the files of them as ffmpeg reads them.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::*;

/// The stream's clock, and the ticks between two frames at 25 per second.
const RATE_HZ: u32 = 90_000;
const STEP: i64 = 3600;

fn ffmpeg(args: &[&str]) -> Vec<u8> {
    let output =
        Command::new("ffmpeg").args(["-v", "error", "-y"]).args(args).output().expect("these tests need ffmpeg");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    output.stdout
}

/// The checksums of all frames of a video, in the order in which they are shown.
fn pictures(path: &Path, demuxer: &str) -> Vec<String> {
    let path = path.display().to_string();
    let input: &[&str] = if demuxer.is_empty() { &["-i", &path] } else { &["-f", demuxer, "-i", &path] };
    let sums = ffmpeg(&[input, &["-fps_mode", "passthrough", "-f", "framemd5", "-"]].concat());
    let lines = String::from_utf8(sums).unwrap();
    lines
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

/// What ffprobe says about a video's stream, and when its packets are decoded and shown.
fn facts(path: &Path) -> (String, Vec<(f64, f64)>) {
    let probe = |show: &str| {
        let output =
            Command::new("ffprobe").args(["-v", "error", "-of", "csv=p=0", "-show_entries", show]).arg(path).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let number = |text: &str| text.trim().parse().unwrap();
    let packets = probe("packet=dts_time,pts_time");
    let times = packets.lines().map(|line| {
        let (pts, dts) = line.trim_end_matches(',').split_once(',').unwrap();
        (number(dts), number(pts))
    });
    (probe("stream=codec_name,codec_tag_string,width,height").trim().trim_end_matches(',').to_owned(), times.collect())
}

/// Makes a stream in Annex B of 13 frames with delimiters, and splits it into its frames.
fn coded(folder: &Path, coding: Coding, b_frames: bool) -> Vec<Vec<u8>> {
    let path = folder.join("stream").display().to_string();
    let b_frames = if b_frames { "bframes=2" } else { "bframes=0" };
    let h264 = format!("{b_frames}:b-adapt=0:b-pyramid=0:scenecut=0:keyint=300:aud=1");
    let h265 = format!("{h264}:log-level=error");
    let source = ["-f", "lavfi", "-i", "testsrc2=size=320x184:rate=25", "-frames:v", "13", "-pix_fmt", "yuv420p"];
    let encoder: &[&str] = match coding {
        Coding::H265 => &["-c:v", "libx265", "-x265-params", &h265, "-f", "hevc"],
        Coding::H264 | Coding::Jpeg => &["-c:v", "libx264", "-x264-params", &h264, "-f", "h264"],
    };
    ffmpeg(&[&source, encoder, &[&path]].concat());
    let bytes = fs::read(&path).unwrap();
    let delimiter: &[u8] = if coding == Coding::H265 { &[0, 0, 0, 1, 0x46, 1] } else { &[0, 0, 0, 1, 0x09] };
    let starts: Vec<_> = memchr::memmem::find_iter(&bytes, delimiter).chain([bytes.len()]).collect();
    starts.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect()
}

/// The frames of a stream that are shown in this order.
fn frames(coding: Coding, units: Vec<Vec<u8>>, shown: &[i64]) -> Vec<CodedFrame> {
    assert_eq!(units.len(), shown.len());
    let frame = |(number, (data, shown)): (usize, (Vec<u8>, &i64))| CodedFrame {
        coding,
        data: Arc::new(data),
        role: if number == 0 { FrameRole::Entry } else { FrameRole::Inter },
        presentation: 1_000_000 + shown * STEP,
        rate_hz: RATE_HZ,
        time: Duration::from_millis(40 * number as u64),
    };
    units.into_iter().zip(shown).enumerate().map(frame).collect()
}

fn write(path: &Path, frames: &[CodedFrame]) -> Vec<Added> {
    let mut writer = Mp4Writer::new(File::create(path).unwrap()).unwrap();
    let added = frames.iter().map(|frame| writer.add(frame).unwrap()).collect();
    writer.finish().unwrap();
    added
}

#[test]
fn a_stream_is_the_same_frames_in_the_file_at_the_same_times() {
    let folder = tempfile::tempdir().unwrap();
    let in_order: Vec<i64> = (0..13).collect();
    // Each frame but the first is decoded before the two that are shown before it.
    let reordered: Vec<i64> =
        [0].into_iter().chain((0..4).flat_map(|group| [3, 1, 2].map(|at| 3 * group + at))).collect();
    for (coding, demuxer, tag) in [(Coding::H264, "h264", "h264,avc1"), (Coding::H265, "hevc", "hevc,hvc1")] {
        for shown in [&in_order, &reordered] {
            let units = coded(folder.path(), coding, shown == &reordered);
            let clip = folder.path().join("clip.mp4");
            let added = write(&clip, &frames(coding, units, shown));
            assert!(added.iter().all(|added| *added == Added::Taken));
            let sums = pictures(&clip, "");
            assert_eq!((sums.len(), &sums), (13, &pictures(&folder.path().join("stream"), demuxer)), "{tag}");
            let (stream, times) = facts(&clip);
            assert_eq!(stream, format!("{tag},320,184"));
            let first = times[0].1;
            for ((_, pts), shown) in times.iter().zip(shown) {
                assert!((pts - first - 0.04 * *shown as f64).abs() < 1e-5, "{times:?}");
            }
            assert!(times.windows(2).all(|pair| pair[1].0 > pair[0].0), "{times:?}");
        }
    }
}

#[test]
fn frames_that_a_decoder_cannot_use_at_the_start_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = frames(Coding::H264, coded(folder.path(), Coding::H264, false), &(0..13).collect::<Vec<_>>());
    for leading in &mut stream[1..3] {
        (leading.role, leading.data) = (FrameRole::Leading, Arc::new(vec![0, 0, 0, 1, 0x41, 0xFF]));
    }
    stream.truncate(3);
    let clip = folder.path().join("clip.mp4");
    write(&clip, &stream);
    assert_eq!(pictures(&clip, "").len(), 1);
}

#[test]
fn jpegs_are_a_video_of_one_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut encoder = visiond_kernels::jpeg::JpegEncoder::new(90).unwrap();
    let mut jpeg = |number: u8, width: u32, height: u32| {
        let pixels = vec![number * 20; (width * height * 3) as usize];
        let file = encoder.encode_rgb(&pixels, width, height).unwrap();
        CodedFrame::jpeg(Arc::new(file), Duration::from_millis(500 * u64::from(number)))
    };
    let mut stream: Vec<_> = (0..10).map(|number| jpeg(number, 322, 181)).collect();
    let clip = folder.path().join("clip.mp4");
    write(&clip, &stream);
    assert_eq!(pictures(&clip, "").len(), 10);
    let (facts, times) = facts(&clip);
    assert_eq!(facts, "mjpeg,mp4v,322,181");
    assert!(times.iter().enumerate().all(|(number, (_, pts))| (pts - 0.5 * number as f64).abs() < 1e-5), "{times:?}");
    stream.push(jpeg(10, 100, 100));
    assert_eq!(write(&clip, &stream).last(), Some(&Added::OtherParameters));
    assert_eq!(pictures(&clip, "").len(), 10, "the file is whole without it");
}

#[test]
fn other_parameters_and_another_codec_do_not_fit_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = frames(Coding::H264, coded(folder.path(), Coding::H264, false), &(0..13).collect::<Vec<_>>());
    let other_set = [&[0, 0, 0, 1, 0x67, 66, 0, 10, 1][..], &stream[12].data].concat();
    stream[12].data = Arc::new(other_set);
    let clip = folder.path().join("clip.mp4");
    assert_eq!(write(&clip, &stream)[11..], [Added::Taken, Added::OtherParameters]);
    stream[12].coding = Coding::H265;
    assert_eq!(write(&clip, &stream)[11..], [Added::Taken, Added::OtherParameters]);
    assert_eq!(pictures(&clip, "").len(), 12);
}

#[test]
fn what_is_no_video_is_an_error_that_says_what_to_do() {
    for (coding, data) in [(Coding::H264, vec![0, 0, 0, 1, 0x65, 1]), (Coding::Jpeg, vec![0xFF, 0xD8, 0xFF])] {
        let mut frame = CodedFrame::jpeg(Arc::new(data), Duration::ZERO);
        frame.coding = coding;
        let mut writer = Mp4Writer::new(io::Cursor::new(Vec::new())).unwrap();
        let error = writer.add(&frame).unwrap_err().to_string();
        assert!(error.starts_with("the camera's video cannot be stored as MP4: "), "{error}");
        assert!(error.ends_with("; set another codec or size in the camera"), "{error}");
        assert!(writer.finish().is_err());
    }
}
