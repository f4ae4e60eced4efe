//! Entry points for `tests/fuzz` to parsers that this crate keeps private.

use visiond_kernels::frame::FrameLayout;

pub use super::mjpeg::fuzz::mjpeg;
pub use super::onvif::fuzz::onvif;
pub use super::rtsp::fuzz::rtp;
use super::{ffprobe, y4m};

/// Reads ffprobe's answer about a video.
pub fn ffprobe(answer: &[u8]) {
    match ffprobe::parse(answer) {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(video) => {
            assert!(video.width > 0 && video.height > 0, "{video:?}");
            assert!(video.fps.is_none_or(|fps| fps.is_finite() && fps > 0.0), "{video:?}");
            assert!(video.duration.is_none_or(|seconds| seconds > 0.0), "{video:?}");
        }
    }
}

/// Reads the first line of a YUV4MPEG2 stream.
pub fn y4m(line: &[u8]) {
    match y4m::Y4mHeader::parse(line) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(header) => {
            assert!(header.width > 0 && header.height > 0, "{header:?}");
            assert!(header.fps.is_none_or(|fps| fps.is_finite() && fps > 0.0), "{header:?}");
            // This rejects sizes that are too large, before anything is allocated.
            let color = visiond_kernels::color::ColorDescription::default();
            let _ = FrameLayout::packed(header.format, header.width, header.height, color);
        }
    }
}
