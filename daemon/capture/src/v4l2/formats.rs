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

/// A rate this much below the requested one counts as equal, because drivers round their intervals.
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
    /// Rounds to a hundredth, as people read them.
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
        // SAFETY: ENUM_FRAMESIZES reads and writes a v4l2_frmsizeenum: integers, and a union of structs of them. The end of the
        // list is an error, too.
        let Ok(raw) = (unsafe { node.query(vidioc::VIDIOC_ENUM_FRAMESIZES, fill) }) else { break };
        let is_list = raw.type_ == sys::v4l2_frmsizetypes_V4L2_FRMSIZE_TYPE_DISCRETE;
        let (largest, range) = if is_list {
            // SAFETY: of this type the driver wrote this one; any bits are integers.
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
        // SAFETY: ENUM_FRAMEINTERVALS reads and writes a v4l2_frmivalenum: integers, and a union of structs of them. The end of
        // the list is an error, too.
        let Ok(raw) = (unsafe { node.query(vidioc::VIDIOC_ENUM_FRAMEINTERVALS, fill) }) else { break };
        if raw.type_ == sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_DISCRETE {
            // SAFETY: of this type the driver wrote this one; any bits are integers.
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
