#![allow(clippy::unwrap_used)]

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::PixelFormat;

use super::*;
use crate::capture::clock::simulated::SimulatedClock;
use crate::config::types::CameraName;

fn at(path: impl Into<PathBuf>) -> V4l2Config {
    V4l2Config { device: CameraName::Node(path.into()), ..V4l2Config::default() }
}

fn refusal(config: &V4l2Config) -> SourceError {
    let clock = Arc::new(SimulatedClock::default());
    V4l2Source::open(config, "door", &Buffers::default(), clock).err().unwrap()
}

#[test]
fn a_camera_that_is_away_may_come() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(&at(folder.path().join("video0")));
    assert!(error.to_string().contains("is not there: plug the camera in") && error.retry, "{error}");
}

#[test]
fn a_file_is_no_camera() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refusal(&at(file.path()));
    assert!(error.to_string().contains("is no V4L2 device") && !error.retry, "{error}");
}

#[test]
fn a_user_who_may_not_is_told_the_group() {
    let error = errors::unopened(Path::new("/dev/video0"), &io::Error::from_raw_os_error(libc::EACCES));
    assert!(error.to_string().contains("group `video`") && error.retry, "{error}");
}

#[test]
fn nodes_of_another_kind_are_refused_with_what_to_do() {
    let of = |flags| {
        let capabilities = device::Capabilities { driver: "d".into(), card: "c".into(), bus: "b".into(), flags };
        open::check(Path::new("/dev/video0"), &capabilities)
    };
    assert!(of(sys::V4L2_CAP_VIDEO_CAPTURE | sys::V4L2_CAP_STREAMING).is_ok());
    let refused = |flags| {
        let error = of(flags).unwrap_err();
        assert!(!error.retry);
        error.to_string()
    };
    assert!(refused(sys::V4L2_CAP_VIDEO_CAPTURE).contains("only read()"));
    assert!(refused(sys::V4L2_CAP_VIDEO_CAPTURE_MPLANE | sys::V4L2_CAP_STREAMING).contains("multi-planar"));
    assert!(refused(sys::V4L2_CAP_META_CAPTURE | sys::V4L2_CAP_STREAMING).contains("hands out no pictures"));
}

#[test]
fn the_last_rows_padding_may_be_missing() {
    let layout = |format, pitches: &[usize]| {
        FrameLayout::with_pitches(format, 6, 4, pitches, ColorDescription::default()).unwrap()
    };
    assert_eq!(least_bytes(&layout(PixelFormat::Grey, &[16])), 16 * 3 + 6);
    assert_eq!(least_bytes(&layout(PixelFormat::Nv12, &[16, 16])), 16 * 5 + 6);
    assert_eq!(least_bytes(&layout(PixelFormat::I420, &[16, 8, 8])), 16 * 4 + 8 * 3 + 3);
}

#[test]
fn a_time_on_another_clock_is_not_believed() {
    let clock = SimulatedClock::default();
    clock.advance(Duration::from_secs(10));
    let of = |flags| stamp(&Filled::simulated(flags, 9_000_000_000), &clock);
    let monotonic = sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
    let start = of(monotonic | sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE);
    assert_eq!((start.monotonic_ns, start.instant), (9_000_000_000, Instant::StartOfExposure));
    assert_eq!(start.realtime_ns, SimulatedClock::EPOCH_NS + 9_000_000_000);
    assert_eq!(of(monotonic).instant, Instant::EndOfFrame);
    assert_eq!(of(sys::V4L2_BUF_FLAG_TIMESTAMP_UNKNOWN).monotonic_ns, 10_000_000_000);
    assert_eq!(of(sys::V4L2_BUF_FLAG_TIMESTAMP_COPY).monotonic_ns, 10_000_000_000);
}

#[test]
fn damaged_and_short_buffers_are_no_frames() {
    let layout = FrameLayout::with_pitches(PixelFormat::Grey, 6, 4, &[8], ColorDescription::default()).unwrap();
    let bytes: Vec<u8> = (0..64).collect();
    let mut out = vec![0; layout.size_bytes()];
    assert_eq!(copy(&bytes, 0, &layout, &mut out).unwrap(), 32);
    assert_eq!(out, bytes[..32]);
    assert_eq!(copy(&bytes[..30], 0, &layout, &mut out).unwrap(), 30);
    assert!(copy(&bytes[..29], 0, &layout, &mut out).unwrap_err().contains("29 bytes of 30"));
    let damaged = copy(&bytes, sys::V4L2_BUF_FLAG_ERROR, &layout, &mut out);
    assert!(damaged.unwrap_err().contains("marks it"));
}

#[test]
fn jpeg_becomes_rgb_and_half_a_picture_nothing() {
    let mut bytes = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 95);
    image::ImageEncoder::write_image(encoder, &[200; 16 * 16 * 3], 16, 16, image::ExtendedColorType::Rgb8).unwrap();
    let layout = |side| FrameLayout::packed(PixelFormat::Rgb, side, side, ColorDescription::default()).unwrap();
    let mut jpeg = JpegDecoder::new();
    let mut out = vec![0; layout(32).size_bytes()];
    decode(&bytes, 0, &layout(16), &mut jpeg, &mut out).unwrap();
    assert!(out[..16 * 16 * 3].iter().all(|&value| value.abs_diff(200) <= 2));
    // A driver may leave zeros behind the picture.
    let padded = [&bytes[..], &[0; 100]].concat();
    decode(&padded, 0, &layout(16), &mut jpeg, &mut out).unwrap();
    assert!(decode(&bytes[..bytes.len() / 2], 0, &layout(16), &mut jpeg, &mut out).is_err());
    assert!(decode(&bytes, 0, &layout(32), &mut jpeg, &mut out).unwrap_err().contains("16x16"));
}
