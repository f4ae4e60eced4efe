//! Lists what a camera supports: pixel formats, their sizes, and frame rates. Sets nothing.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/vidioc-enum-framesizes.html>

use std::io;

use v4l::v4l_sys as sys;
use v4l::v4l2::vidioc;

use super::device::{Node, rate, text};
use super::fourcc::FourCc;

/// The most sizes and rates that are listed, because a faulty driver may never end its list.
const MAX_ENTRIES: u32 = 1024;

/// How far below the requested rate a rate still counts as equal, because drivers round their intervals.
pub(super) const RATE_TOLERANCE: f64 = 0.01;

/// A pixel format with its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportedFormat {
    /// The driver's four-character code.
    pub fourcc: FourCc,
    /// The driver's description.
    pub description: String,
    /// Largest first; empty if the driver accepts any size or has no list.
    pub sizes: Vec<SupportedSize>,
}

/// A size, or a range of sizes, with its rates.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportedSize {
    /// The size, or the largest of a range.
    pub largest: (u32, u32),
    /// For a range: the smallest size, and the step.
    pub range: Option<((u32, u32), (u32, u32))>,
    /// The frame rates at the largest size.
    pub rates: FrameRates,
}

/// Frames per second.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameRates {
    /// These rates, highest first; empty if the driver has no list.
    List(Vec<f64>),
    /// Any rate in a range.
    Range {
        /// The lowest.
        lowest: f64,
        /// The highest.
        highest: f64,
    },
}

impl FrameRates {
    /// Rounds to a hundredth for display.
    fn rounded(self) -> Self {
        let hundredth = |rate: f64| (rate * 100.0).round() / 100.0;
        match self {
            Self::List(rates) => {
                let mut rates: Vec<_> = rates.into_iter().map(hundredth).collect();
                rates.dedup();
                Self::List(rates)
            }
            Self::Range { lowest, highest } => Self::Range { lowest: hundredth(lowest), highest: hundredth(highest) },
        }
    }
}

/// Lists the formats that `node` supports with their sizes and rates, in the driver's order.
pub fn list(node: &Node) -> io::Result<Vec<SupportedFormat>> {
    let formats = pixel_formats(node)?.into_iter();
    let format = |(fourcc, description)| SupportedFormat { fourcc, description, sizes: sizes(node, fourcc) };
    Ok(formats.map(format).collect())
}

/// Lists the pixel formats that `node` supports, each with the driver's description.
pub fn pixel_formats(node: &Node) -> io::Result<Vec<(FourCc, String)>> {
    let mut formats = Vec::new();
    for index in 0..MAX_ENTRIES {
        let fill = |raw: &mut sys::v4l2_fmtdesc| (raw.index, raw.type_) = (index, node.api() as u32);
        // SAFETY: ENUM_FMT reads and writes a v4l2_fmtdesc, integers and arrays of them.
        match unsafe { node.query(vidioc::VIDIOC_ENUM_FMT, fill) } {
            Ok(raw) => formats.push((raw.pixelformat.to_le_bytes(), text(&raw.description))),
            // The end of the list.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(formats)
}

/// Returns the highest frame rate of a format and size; `None` if the driver has no list.
pub fn highest_rate(node: &Node, fourcc: FourCc, width: u32, height: u32) -> Option<f64> {
    match rates(node, fourcc, (width, height)) {
        FrameRates::List(rates) => rates.first().copied(),
        FrameRates::Range { highest, .. } => Some(highest),
    }
}

/// Whether the highest rate of a format or mode is the requested one, or more.
pub(super) fn is_fast_enough(highest: f64, fps: f64) -> bool {
    highest >= fps * (1.0 - RATE_TOLERANCE)
}

/// Lists the sizes of a format, largest first.
fn sizes(node: &Node, fourcc: FourCc) -> Vec<SupportedSize> {
    let mut sizes = sizes_in_order(node, fourcc);
    sizes.sort_by_key(|size: &SupportedSize| {
        let (width, height) = size.largest;
        std::cmp::Reverse((u64::from(width) * u64::from(height), width))
    });
    sizes.dedup();
    sizes
}

/// Lists the sizes of a format in the driver's order.
pub(super) fn sizes_in_order(node: &Node, fourcc: FourCc) -> Vec<SupportedSize> {
    let mut sizes = Vec::new();
    for index in 0..MAX_ENTRIES {
        let fill = |raw: &mut sys::v4l2_frmsizeenum| {
            (raw.index, raw.pixel_format) = (index, u32::from_le_bytes(fourcc));
        };
        // SAFETY: ENUM_FRAMESIZES reads and writes a v4l2_frmsizeenum: integers, and a union of structs of them. The end of
        // the list is also an error.
        let Ok(raw) = (unsafe { node.query(vidioc::VIDIOC_ENUM_FRAMESIZES, fill) }) else { break };
        let is_list = raw.type_ == sys::v4l2_frmsizetypes_V4L2_FRMSIZE_TYPE_DISCRETE;
        let (largest, range) = if is_list {
            // SAFETY: for this type, the driver wrote this member; any bits are valid integers.
            let size = unsafe { raw.__bindgen_anon_1.discrete };
            ((size.width, size.height), None)
        } else {
            // SAFETY: as above.
            let steps = unsafe { raw.__bindgen_anon_1.stepwise };
            let smallest = (steps.min_width, steps.min_height);
            ((steps.max_width, steps.max_height), Some((smallest, (steps.step_width, steps.step_height))))
        };
        sizes.push(SupportedSize { largest, range, rates: rates(node, fourcc, largest).rounded() });
        if !is_list {
            // A range is one entry.
            break;
        }
    }
    sizes
}

/// Enumerates the frame rates of a format and size, highest first.
fn rates(node: &Node, fourcc: FourCc, size: (u32, u32)) -> FrameRates {
    let mut list: Vec<f64> = Vec::new();
    for index in 0..MAX_ENTRIES {
        let fill = |raw: &mut sys::v4l2_frmivalenum| {
            (raw.index, raw.pixel_format) = (index, u32::from_le_bytes(fourcc));
            (raw.width, raw.height) = size;
        };
        // SAFETY: ENUM_FRAMEINTERVALS reads and writes a v4l2_frmivalenum: integers, and a union of structs of them. The end
        // of the list is also an error.
        let Ok(raw) = (unsafe { node.query(vidioc::VIDIOC_ENUM_FRAMEINTERVALS, fill) }) else { break };
        if raw.type_ == sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_DISCRETE {
            // SAFETY: for this type, the driver wrote this member; any bits are valid integers.
            list.extend(rate(unsafe { raw.__bindgen_anon_1.discrete }));
            continue;
        }
        // SAFETY: as above.
        let steps = unsafe { raw.__bindgen_anon_1.stepwise };
        if let (Some(highest), Some(lowest)) = (rate(steps.min), rate(steps.max)) {
            return FrameRates::Range { lowest, highest };
        }
        list.extend(rate(steps.min));
        break;
    }
    list.sort_by(|a, b| b.total_cmp(a));
    FrameRates::List(list)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::device::fake_camera::{FakeCamera, FakeFormat};
    use super::*;

    fn webcam() -> FakeCamera {
        let yuyv = vec![((640, 480), vec![30, 15, 30]), ((1920, 1080), vec![5]), ((640, 480), vec![30, 15, 30])];
        // 720x1280 has as many pixels as 1280x720.
        let mjpeg = vec![((720, 1280), vec![]), ((1280, 720), vec![25, 60]), ((1920, 1080), vec![30])];
        let formats = vec![FakeFormat { fourcc: *b"YUYV", sizes: yuyv }, FakeFormat { fourcc: *b"MJPG", sizes: mjpeg }];
        FakeCamera { formats, ..FakeCamera::default() }
    }

    #[test]
    fn each_format_has_its_sizes_largest_first_and_their_rates_highest_first() {
        let size =
            |largest, rates: &[f64]| SupportedSize { largest, range: None, rates: FrameRates::List(rates.into()) };
        let format = |fourcc: &FourCc, sizes| SupportedFormat {
            fourcc: *fourcc,
            description: String::from_utf8(fourcc.to_vec()).unwrap(),
            sizes,
        };
        assert_eq!(
            list(&webcam().node()).unwrap(),
            [
                format(b"YUYV", vec![size((1920, 1080), &[5.0]), size((640, 480), &[30.0, 15.0])]),
                format(
                    b"MJPG",
                    vec![size((1920, 1080), &[30.0]), size((1280, 720), &[60.0, 25.0]), size((720, 1280), &[])]
                ),
            ]
        );
        let orders = sizes_in_order(&webcam().node(), *b"MJPG").iter().map(|size| size.largest).collect::<Vec<_>>();
        assert_eq!(orders, [(720, 1280), (1280, 720), (1920, 1080)]);
    }

    #[test]
    fn a_range_of_sizes_or_rates_is_one_entry() {
        let size_range = Some([(32, 16), (3264, 2464), (4, 2)]);
        let camera = FakeCamera { size_range, rate_range: Some((1, 120)), ..webcam() };
        let rates = FrameRates::Range { lowest: 1.0, highest: 120.0 };
        let expected = SupportedSize { largest: (3264, 2464), range: Some(((32, 16), (4, 2))), rates };
        let node = camera.node();
        assert_eq!(list(&node).unwrap()[0].sizes, [expected]);
        assert_eq!(highest_rate(&node, *b"YUYV", 640, 480), Some(120.0));
    }

    #[test]
    fn the_highest_rate_is_that_of_the_format_and_size() {
        let node = webcam().node();
        let highest = |fourcc: &FourCc, width, height| highest_rate(&node, *fourcc, width, height);
        assert_eq!(highest(b"YUYV", 640, 480), Some(30.0));
        assert_eq!(highest(b"MJPG", 1280, 720), Some(60.0));
        assert_eq!([highest(b"MJPG", 640, 480), highest(b"H264", 640, 480)], [None, None]);
        // A hundredth less is the same rate: 29.97 is sold as 30.
        assert!(is_fast_enough(29.97, 30.0) && is_fast_enough(60.0, 30.0));
        assert!(!is_fast_enough(29.69, 30.0));
    }

    #[test]
    fn rates_are_read_to_a_hundredth() {
        let rates = FrameRates::List(vec![30.0, 29.999_9, 14.985_01, 7.5]).rounded();
        assert_eq!(rates, FrameRates::List(vec![30.0, 14.99, 7.5]));
        let range = FrameRates::Range { lowest: 0.999_9, highest: 59.940_06 }.rounded();
        assert_eq!(range, FrameRates::Range { lowest: 1.0, highest: 59.94 });
    }
}
