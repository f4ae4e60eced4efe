//! What a camera offers: pixel formats, their sizes, the rates of those. For people to choose from; nothing is set.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/vidioc-enum-framesizes.html>

use std::{io, mem};

use v4l::v4l_sys as sys;
use v4l::v4l2::vidioc;

use super::device::{Interval, Node};
use super::fourcc::FourCc;

/// Sizes and rates at most that are asked for: a driver that goes round would be asked for ever.
const MAX_ENTRIES: u32 = 1024;

/// A pixel format with its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportedFormat {
    /// The driver's four characters.
    pub fourcc: FourCc,
    /// What the driver calls it.
    pub description: String,
    /// Largest first; none where the driver takes any or does not tell.
    pub sizes: Vec<SupportedSize>,
}

/// A size, or a range of sizes, with its rates.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportedSize {
    /// The size; of a range the largest.
    pub largest: (u32, u32),
    /// Of a range: the smallest size, and the steps between.
    pub range: Option<((u32, u32), (u32, u32))>,
    /// The rates at the largest size.
    pub rates: FrameRates,
}

/// Frames per second, to a hundredth.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameRates {
    /// These, highest first; none where the driver does not tell.
    List(Vec<f64>),
    /// Any between.
    Range {
        /// The lowest.
        lowest: f64,
        /// The highest.
        highest: f64,
    },
}

/// What `node` offers, in the driver's order.
pub fn list(node: &Node) -> io::Result<Vec<SupportedFormat>> {
    let mut formats = Vec::new();
    for index in 0..MAX_ENTRIES {
        // SAFETY: a struct of integers and arrays of them, for which zeros are values.
        let mut raw: sys::v4l2_fmtdesc = unsafe { mem::zeroed() };
        raw.index = index;
        raw.type_ = node.api().buffer_type();
        // SAFETY: ENUM_FMT reads and writes a v4l2_fmtdesc.
        match unsafe { node.ioctl(vidioc::VIDIOC_ENUM_FMT, &mut raw) } {
            Ok(()) => {}
            // The end of the list.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
        let end = raw.description.iter().position(|&byte| byte == 0).unwrap_or(raw.description.len());
        formats.push(SupportedFormat {
            fourcc: raw.pixelformat.to_le_bytes(),
            description: String::from_utf8_lossy(&raw.description[..end]).into_owned(),
            sizes: sizes(node, raw.pixelformat),
        });
    }
    Ok(formats)
}

fn sizes(node: &Node, fourcc: u32) -> Vec<SupportedSize> {
    let mut sizes = Vec::new();
    for index in 0..MAX_ENTRIES {
        // SAFETY: integers, and a union of structs of integers; zeros are values of all.
        let mut raw: sys::v4l2_frmsizeenum = unsafe { mem::zeroed() };
        raw.index = index;
        raw.pixel_format = fourcc;
        // SAFETY: ENUM_FRAMESIZES reads and writes a v4l2_frmsizeenum. The end of the list is an error, too.
        if unsafe { node.ioctl(vidioc::VIDIOC_ENUM_FRAMESIZES, &mut raw) }.is_err() {
            break;
        }
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
        sizes.push(SupportedSize { largest, range, rates: rates(node, fourcc, largest) });
        if !is_list {
            // A range is one entry.
            break;
        }
    }
    sizes.sort_by_key(|size: &SupportedSize| {
        let (width, height) = size.largest;
        std::cmp::Reverse((u64::from(width) * u64::from(height), width))
    });
    sizes.dedup();
    sizes
}

fn rates(node: &Node, fourcc: u32, size: (u32, u32)) -> FrameRates {
    let mut list: Vec<f64> = Vec::new();
    let hundredth = |rate: f64| (rate * 100.0).round() / 100.0;
    let rate = |interval: sys::v4l2_fract| {
        Interval { numerator: interval.numerator, denominator: interval.denominator }.rate().map(hundredth)
    };
    for index in 0..MAX_ENTRIES {
        // SAFETY: integers, and a union of structs of integers; zeros are values of all.
        let mut raw: sys::v4l2_frmivalenum = unsafe { mem::zeroed() };
        raw.index = index;
        raw.pixel_format = fourcc;
        (raw.width, raw.height) = size;
        // SAFETY: ENUM_FRAMEINTERVALS reads and writes a v4l2_frmivalenum. The end of the list is an error, too.
        if unsafe { node.ioctl(vidioc::VIDIOC_ENUM_FRAMEINTERVALS, &mut raw) }.is_err() {
            break;
        }
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
    list.dedup();
    FrameRates::List(list)
}
