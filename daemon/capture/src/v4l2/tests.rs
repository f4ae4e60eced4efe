#![allow(clippy::unwrap_used)]

use std::io;
use std::path::{Path, PathBuf};

use v4l::v4l_sys as sys;
use visiond_config::types::CameraName;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::jpeg::JpegDecoder;

use super::*;
use visiond_config::types::SourceConfig;

fn at(path: impl Into<PathBuf>) -> V4l2Config {
    V4l2Config { device: CameraName::Node(path.into()), ..V4l2Config::default() }
}

fn refusal(config: &V4l2Config) -> SourceError {
    crate::open(&SourceConfig::V4l2(config.clone()), Vec::new(), "door", &Buffers::default()).err().unwrap()
}

#[test]
fn a_camera_that_is_away_may_come() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(&at(folder.path().join("video0")));
    assert!(error.to_string().contains("is missing: plug the camera in") && error.may_pass(), "{error}");
}

#[test]
fn a_file_is_no_camera() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refusal(&at(file.path()));
    assert!(error.to_string().contains("is not a V4L2 device") && !error.may_pass(), "{error}");
}

#[test]
fn a_user_who_may_not_is_told_the_group() {
    let error = errors::unopened(Path::new("/dev/video0"), &io::Error::from_raw_os_error(libc::EACCES));
    assert!(error.to_string().contains("to the `video` group") && error.may_pass(), "{error}");
}

#[test]
fn nodes_of_another_kind_are_refused_with_what_to_do() {
    let of = |flags| {
        let capabilities = device::Capabilities { driver: "d".into(), card: "c".into(), bus: "b".into(), flags };
        open::check(Path::new("/dev/video0"), &capabilities)
    };
    assert!(of(sys::V4L2_CAP_VIDEO_CAPTURE | sys::V4L2_CAP_STREAMING).is_ok());
    assert!(of(sys::V4L2_CAP_VIDEO_CAPTURE_MPLANE | sys::V4L2_CAP_STREAMING).is_ok());
    let refused = |flags| {
        let error = of(flags).unwrap_err();
        assert!(!error.may_pass());
        error.to_string()
    };
    assert!(refused(sys::V4L2_CAP_VIDEO_CAPTURE).contains("only read()"));
    assert!(refused(sys::V4L2_CAP_META_CAPTURE | sys::V4L2_CAP_STREAMING).contains("does not capture frames"));
}

#[test]
fn jpeg_becomes_rgb_and_half_a_picture_nothing() {
    let mut bytes = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 95);
    image::ImageEncoder::write_image(encoder, &[200; 16 * 16 * 3], 16, 16, image::ExtendedColorType::Rgb8).unwrap();
    let layout = |side| FrameLayout::packed(PixelFormat::Rgb, side, side, ColorDescription::default()).unwrap();
    let mut jpeg = JpegDecoder::new();
    let mut out = vec![0; layout(32).size_bytes()];
    extract::decode(&bytes, 0, &layout(16), &mut jpeg, &mut out).unwrap();
    assert!(out[..16 * 16 * 3].iter().all(|&value| value.abs_diff(200) <= 2));
    // A driver may leave zeros after the image.
    let padded = [&bytes[..], &[0; 100]].concat();
    extract::decode(&padded, 0, &layout(16), &mut jpeg, &mut out).unwrap();
    assert!(extract::decode(&bytes[..bytes.len() / 2], 0, &layout(16), &mut jpeg, &mut out).is_err());
    assert!(extract::decode(&bytes, 0, &layout(32), &mut jpeg, &mut out).unwrap_err().to_string().contains("16x16"));
    let marked = extract::decode(&bytes, sys::V4L2_BUF_FLAG_ERROR, &layout(16), &mut jpeg, &mut out).unwrap_err();
    assert_eq!(marked.to_string(), "the driver marks it as damaged");
}
