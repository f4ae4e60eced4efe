//! Which format, size and rate a camera is set to.

use std::io;

use v4l::v4l_sys as sys;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameError, FrameLayout, PixelFormat};

use super::color;
use super::device::{Interval, Node, PixFormat};
use super::fourcc::{self, FourCc};
use crate::capture::source::SourceError;
use crate::config::types::{CameraFormat, V4l2Config};

/// A rate this much below the one asked for counts as the same: drivers round their intervals.
const RATE_TOLERANCE: f64 = 0.01;

/// What camera and we agreed on.
#[derive(Debug)]
pub struct Agreed {
    /// What the camera sends.
    pub format: CameraFormat,
    /// The frames that come of it; RGB where the camera sends JPEG.
    pub layout: FrameLayout,
    /// Frames per second, where the driver tells.
    pub fps: Option<f64>,
}

/// What is asked of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The driver's name of the format.
    pub fourcc: FourCc,
    /// Ours.
    pub format: CameraFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// What is asked of `node`, by what is configured and what it offers. Changes nothing.
pub fn choose(node: &Node, config: &V4l2Config) -> Result<Choice, SourceError> {
    let failed = |what: &str, error: &io::Error| refused(config, what, error);
    let offered = node.formats().map_err(|error| failed("tell its formats (ENUM_FMT)", &error))?;
    let current = node.format().map_err(|error| failed("tell its format (G_FMT)", &error))?;
    let candidates = fourcc::by_cost(&offered, config.format);
    if candidates.is_empty() {
        return Err(SourceError::permanent(no_format(config, &offered)));
    }
    let (width, height) = (config.width.unwrap_or(current.width), config.height.unwrap_or(current.height));
    let choice = |&(fourcc, format): &(FourCc, CameraFormat)| Choice { fourcc, format, width, height };
    let has = |choice: &Choice| {
        let tried = node.try_format(&request(choice));
        let has_size = tried.is_ok_and(|pix| pix.fourcc == choice.fourcc && (pix.width, pix.height) == (width, height));
        let rate = config.fps.and_then(|fps| Some((fps, node.highest_rate(choice.fourcc, width, height)?)));
        has_size && rate.is_none_or(|(fps, highest)| highest >= fps * (1.0 - RATE_TOLERANCE))
    };
    // A webcam has its larger sizes and higher rates in MJPEG alone. Where no format has what is wanted, the first is as
    // good as any.
    let best = candidates.iter().map(choice).find(has);
    Ok(best.unwrap_or_else(|| choice(&candidates[0])))
}

fn request(choice: &Choice) -> PixFormat {
    PixFormat {
        width: choice.width,
        height: choice.height,
        fourcc: choice.fourcc,
        field: sys::v4l2_field_V4L2_FIELD_NONE,
        ..PixFormat::default()
    }
}

/// Sets `node` as chosen. `label` is for the log: what the driver made otherwise is a warning there.
pub fn set(node: &Node, config: &V4l2Config, choice: Choice, label: &str) -> Result<Agreed, SourceError> {
    let device = config.device.display();
    let Choice { fourcc: code, format, width, height } = choice;
    let set = node.set_format(&request(&choice)).map_err(|error| refused(config, "set its format (S_FMT)", &error))?;
    if set.fourcc != code {
        let (given, wanted) = (fourcc::text(set.fourcc), fourcc::text(code));
        return Err(SourceError::permanent(format!(
            "{device} offers the format {wanted} and sets {given} instead: choose another `format`, `visiond probe` \
             lists what it offers"
        )));
    }
    if let Some(fields) = interlaced(set.field) {
        return Err(SourceError::permanent(format!(
            "{device} sends interlaced pictures ({fields}), which are not read: set its input to a progressive mode, \
             or let a program deinterlace them and read it by `type = \"command\"`"
        )));
    }
    if (set.width, set.height) != (width, height) && (config.width.is_some() || config.height.is_some()) {
        let word = fourcc::word(format);
        log::warn!("{label}: the driver has no {width}x{height} in {word}, it gives {}x{}", set.width, set.height);
    }
    let fps = set_rate(node, config.fps, label);
    let layout = layout(&set, format, config).map_err(|error| {
        SourceError::permanent(format!("{device}: the driver describes its frames wrongly: {error}"))
    })?;
    Ok(Agreed { format, layout, fps })
}

/// Asks for the rate; returns the one that it is.
fn set_rate(node: &Node, wanted: Option<f64>, label: &str) -> Option<f64> {
    let Some(fps) = wanted else { return node.interval().and_then(Interval::rate) };
    match node.set_interval(interval(fps)) {
        Ok(set) => {
            let rate = set.rate();
            if let Some(rate) = rate.filter(|rate| (rate - fps).abs() > fps * RATE_TOLERANCE) {
                log::warn!("{label}: the driver has no {fps} frames per second at this size, it gives {rate:.2}");
            }
            rate
        }
        Err(error) => {
            log::warn!("{label}: the driver does not set a rate (S_PARM: {error}), `fps` has no effect");
            node.interval().and_then(Interval::rate)
        }
    }
}

/// The time between frames at `fps`; to a thousandth of a frame per second.
fn interval(fps: f64) -> Interval {
    let thousandths = (fps * 1000.0).round().max(1.0) as u32;
    if thousandths.is_multiple_of(1000) {
        Interval { numerator: 1, denominator: thousandths / 1000 }
    } else {
        Interval { numerator: 1000, denominator: thousandths }
    }
}

/// The frames' layout: the driver's pitch is honoured, the configuration's colours win.
fn layout(pix: &PixFormat, format: CameraFormat, config: &V4l2Config) -> Result<FrameLayout, FrameError> {
    let CameraFormat::Raw(format) = format else {
        return FrameLayout::packed(PixelFormat::Rgb, pix.width, pix.height, ColorDescription::default());
    };
    let said = color::description(pix);
    let color = ColorDescription {
        matrix: config.color_matrix.unwrap_or(said.matrix),
        range: config.color_range.unwrap_or(said.range),
    };
    if pix.memories[0].pitch_bytes == 0 {
        // An old driver that leaves the field out has no padding.
        return FrameLayout::packed(format, pix.width, pix.height, color);
    }
    FrameLayout::with_pitches(
        format,
        pix.width,
        pix.height,
        &pitches(format, pix.memories[0].pitch_bytes as usize),
        color,
    )
}

/// The pitches of all planes, of the first one's: V4L2 has one field for all planes in one buffer. Interleaved chroma has
/// the same pitch, separate chroma planes have half of it.
/// <https://docs.kernel.org/userspace-api/media/v4l/pixfmt-yuv-planar.html>
fn pitches(format: PixelFormat, first_bytes: usize) -> Vec<usize> {
    match format {
        PixelFormat::Nv12 | PixelFormat::Nv21 => vec![first_bytes; 2],
        PixelFormat::I420 => vec![first_bytes, first_bytes.div_ceil(2), first_bytes.div_ceil(2)],
        _ => vec![first_bytes],
    }
}

/// What kind of interlaced pictures those of a field order are; `None` of whole ones.
fn interlaced(field: u32) -> Option<&'static str> {
    match field {
        sys::v4l2_field_V4L2_FIELD_ANY | sys::v4l2_field_V4L2_FIELD_NONE => None,
        sys::v4l2_field_V4L2_FIELD_TOP | sys::v4l2_field_V4L2_FIELD_BOTTOM => Some("every second line alone"),
        sys::v4l2_field_V4L2_FIELD_ALTERNATE => Some("one field after the other"),
        sys::v4l2_field_V4L2_FIELD_SEQ_TB | sys::v4l2_field_V4L2_FIELD_SEQ_BT => {
            Some("both fields, one below the other")
        }
        _ => Some("both fields, line by line"),
    }
}

fn no_format(config: &V4l2Config, offered: &[FourCc]) -> String {
    let device = config.device.display();
    let mut readable: Vec<_> =
        fourcc::by_cost(offered, None).into_iter().map(|(_, format)| fourcc::word(format)).collect();
    readable.dedup();
    let readable = readable.join(", ");
    let all = offered.iter().map(|&code| fourcc::text(code)).collect::<Vec<_>>().join(", ");
    match config.format {
        _ if offered.is_empty() => {
            format!("{device} offers no pixel format: it may need its media pipeline set up first (media-ctl)")
        }
        Some(wanted) if !readable.is_empty() => {
            format!("{device} does not offer {}: it offers {readable}; correct `format`", fourcc::word(wanted))
        }
        _ => format!(
            "{device} offers no format that is read: it offers {all}; let a program convert it and read it by \
             `type = \"command\"`"
        ),
    }
}

/// A call for the format that the driver refused.
fn refused(config: &V4l2Config, what: &str, error: &io::Error) -> SourceError {
    let device = config.device.display();
    if error.raw_os_error() == Some(libc::EBUSY) {
        return SourceError::transient(format!("{device} is in use: another program streams from it, end that"));
    }
    SourceError::transient(format!("{device} does not {what}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::color::{ColorMatrix, ColorRange};

    use super::*;
    use crate::capture::v4l2::device::MemoryFormat;

    fn pix(width: u32, height: u32, pitch_bytes: u32) -> PixFormat {
        let memory = MemoryFormat { pitch_bytes, size_bytes: 0 };
        PixFormat { width, height, memories: [memory; 3], memory_count: 1, ..PixFormat::default() }
    }

    #[test]
    fn chroma_planes_follow_the_padded_luma() {
        let config = V4l2Config::default();
        let of = |format, pix| layout(&pix, CameraFormat::Raw(format), &config).unwrap();
        let nv12 = of(PixelFormat::Nv12, pix(600, 4, 640));
        assert_eq!((nv12.planes()[1].offset_bytes, nv12.planes()[1].pitch_bytes), (640 * 4, 640));
        let i420 = of(PixelFormat::I420, pix(600, 4, 640));
        assert_eq!((i420.planes()[2].offset_bytes, i420.planes()[2].pitch_bytes), (640 * 4 + 320 * 2, 320));
        assert_eq!(of(PixelFormat::Yuyv, pix(600, 4, 1280)).size_bytes(), 1280 * 4);
        assert_eq!(of(PixelFormat::Grey, pix(600, 4, 0)).size_bytes(), 600 * 4);
    }

    #[test]
    fn a_pitch_shorter_than_a_row_is_refused() {
        let config = V4l2Config::default();
        let error = layout(&pix(640, 4, 640), CameraFormat::Raw(PixelFormat::Yuyv), &config).unwrap_err();
        assert!(error.to_string().contains("at least 1280 bytes"), "{error}");
    }

    #[test]
    fn configured_colours_win_and_jpeg_becomes_rgb() {
        let config = V4l2Config { color_matrix: Some(ColorMatrix::Bt709), ..V4l2Config::default() };
        let yuyv = layout(&pix(64, 4, 128), CameraFormat::Raw(PixelFormat::Yuyv), &config).unwrap();
        assert_eq!(yuyv.color(), ColorDescription { matrix: ColorMatrix::Bt709, range: ColorRange::Limited });
        let jpeg = layout(&pix(64, 4, 0), CameraFormat::Mjpeg, &config).unwrap();
        assert_eq!((jpeg.format(), jpeg.size_bytes()), (PixelFormat::Rgb, 64 * 4 * 3));
    }

    #[test]
    fn rates_become_intervals() {
        assert_eq!(interval(30.0), Interval { numerator: 1, denominator: 30 });
        assert_eq!(interval(29.97), Interval { numerator: 1000, denominator: 29_970 });
        assert_eq!(interval(0.5), Interval { numerator: 1000, denominator: 500 });
        assert_eq!(interval(30.0).rate(), Some(30.0));
        assert_eq!(Interval { numerator: 0, denominator: 30 }.rate(), None);
    }

    #[test]
    fn a_format_that_the_camera_lacks_is_answered_with_those_it_has() {
        let config = V4l2Config { format: Some(CameraFormat::Mjpeg), ..V4l2Config::default() };
        let text = no_format(&config, &[*b"YUYV", *b"H264"]);
        assert!(text.contains("does not offer mjpeg: it offers yuyv; correct"), "{text}");
        assert!(no_format(&V4l2Config::default(), &[*b"H264"]).contains("type = \"command\""));
    }

    #[test]
    fn whole_pictures_alone_are_not_interlaced() {
        assert_eq!(interlaced(sys::v4l2_field_V4L2_FIELD_NONE), None);
        assert!(interlaced(sys::v4l2_field_V4L2_FIELD_INTERLACED).is_some());
        assert!(interlaced(sys::v4l2_field_V4L2_FIELD_ALTERNATE).is_some());
    }
}
