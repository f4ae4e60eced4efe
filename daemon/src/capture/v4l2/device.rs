//! A V4L2 node: the raw calls, each a safe function that returns the system's error.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/v4l2.html>

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{io, mem, ptr};

use v4l::v4l_sys as sys;
use v4l::v4l2::{self, vidioc};

use super::fourcc::FourCc;

pub(super) const CAPTURE: u32 = sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE;

/// Who and what a node is.
#[derive(Debug)]
pub struct Capabilities {
    /// "uvcvideo".
    pub driver: String,
    /// "HD Webcam".
    pub card: String,
    /// "usb-0000:00:14.0-1".
    pub bus: String,
    /// `V4L2_CAP_*` of this node.
    pub flags: u32,
}

/// A picture's format, as `v4l2_pix_format` has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct PixFormat {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format.
    pub fourcc: FourCc,
    /// `V4L2_FIELD_*`.
    pub field: u32,
    /// From one row of the first plane to the next.
    pub pitch_bytes: u32,
    /// Bytes of a picture at most.
    pub size_bytes: u32,
    /// `V4L2_COLORSPACE_*`.
    pub colorspace: u32,
    /// `V4L2_YCBCR_ENC_*`.
    pub ycbcr_encoding: u32,
    /// `V4L2_QUANTIZATION_*`.
    pub quantization: u32,
}

/// Seconds from one frame to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Seconds times `denominator`.
    pub numerator: u32,
    /// What divides them.
    pub denominator: u32,
}

/// An open node.
#[derive(Debug)]
pub struct Node {
    pub(super) file: File,
}

impl Node {
    /// Opens it so that no call waits. Programs started later do not inherit it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(Self { file })
    }

    /// Who it is and what it does.
    pub fn capabilities(&self) -> io::Result<Capabilities> {
        // SAFETY: a struct of integers and arrays of them, for which zeros are values.
        let mut raw: sys::v4l2_capability = unsafe { mem::zeroed() };
        // SAFETY: QUERYCAP writes a v4l2_capability.
        unsafe { self.ioctl(vidioc::VIDIOC_QUERYCAP, &mut raw)? };
        let has_own = raw.capabilities & sys::V4L2_CAP_DEVICE_CAPS != 0;
        Ok(Capabilities {
            driver: text(&raw.driver),
            card: text(&raw.card),
            bus: text(&raw.bus_info),
            flags: if has_own { raw.device_caps } else { raw.capabilities },
        })
    }

    /// The pixel formats that it offers.
    pub fn formats(&self) -> io::Result<Vec<FourCc>> {
        let mut formats = Vec::new();
        loop {
            // SAFETY: as in `capabilities`.
            let mut raw: sys::v4l2_fmtdesc = unsafe { mem::zeroed() };
            // No driver has so many formats that the number does not fit.
            raw.index = formats.len() as u32;
            raw.type_ = CAPTURE;
            // SAFETY: ENUM_FMT reads and writes a v4l2_fmtdesc.
            match unsafe { self.ioctl(vidioc::VIDIOC_ENUM_FMT, &mut raw) } {
                Ok(()) => formats.push(raw.pixelformat.to_le_bytes()),
                // The end of the list.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(formats),
                Err(error) => return Err(error),
            }
        }
    }

    /// The highest rate of a format and size, in frames per second; `None` where the driver does not tell.
    pub fn highest_rate(&self, fourcc: FourCc, width: u32, height: u32) -> Option<f64> {
        let mut highest: Option<f64> = None;
        for index in 0.. {
            // SAFETY: as in `capabilities`.
            let mut raw: sys::v4l2_frmivalenum = unsafe { mem::zeroed() };
            raw.index = index;
            raw.pixel_format = u32::from_le_bytes(fourcc);
            (raw.width, raw.height) = (width, height);
            // SAFETY: ENUM_FRAMEINTERVALS reads and writes a v4l2_frmivalenum. The end of the list is an error, too.
            if unsafe { self.ioctl(vidioc::VIDIOC_ENUM_FRAMEINTERVALS, &mut raw) }.is_err() {
                break;
            }
            let is_list = raw.type_ == sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_DISCRETE;
            // SAFETY: the type tells which of the two the driver wrote; both are integers, for which any bits are values.
            let shortest =
                unsafe { if is_list { raw.__bindgen_anon_1.discrete } else { raw.__bindgen_anon_1.stepwise.min } };
            let interval = Interval { numerator: shortest.numerator, denominator: shortest.denominator };
            highest = highest.into_iter().chain(interval.rate()).reduce(f64::max);
            if !is_list {
                // A range is one entry.
                break;
            }
        }
        highest
    }

    /// The current format.
    pub fn format(&self) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_G_FMT, &PixFormat::default())
    }

    /// What the driver would make of `wanted`.
    pub fn try_format(&self, wanted: &PixFormat) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_TRY_FMT, wanted)
    }

    /// Sets the format; returns what the driver made of it.
    pub fn set_format(&self, wanted: &PixFormat) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_S_FMT, wanted)
    }

    fn format_call(&self, request: vidioc::_IOC_TYPE, wanted: &PixFormat) -> io::Result<PixFormat> {
        // SAFETY: a union of structs of integers, and of pointers that VIDEO_CAPTURE does not use; zeros are values of all.
        let mut raw: sys::v4l2_format = unsafe { mem::zeroed() };
        raw.type_ = CAPTURE;
        raw.fmt.pix = sys::v4l2_pix_format {
            width: wanted.width,
            height: wanted.height,
            pixelformat: u32::from_le_bytes(wanted.fourcc),
            field: wanted.field,
            bytesperline: wanted.pitch_bytes,
            sizeimage: wanted.size_bytes,
            colorspace: wanted.colorspace,
            // Says that the fields behind it are meant.
            priv_: sys::V4L2_PIX_FMT_PRIV_MAGIC,
            flags: 0,
            __bindgen_anon_1: sys::v4l2_pix_format__bindgen_ty_1 { ycbcr_enc: wanted.ycbcr_encoding },
            quantization: wanted.quantization,
            xfer_func: 0,
        };
        // SAFETY: G_FMT, TRY_FMT and S_FMT, which alone are passed here, read and write a v4l2_format.
        unsafe { self.ioctl(request, &mut raw)? };
        // SAFETY: of a format of type VIDEO_CAPTURE `pix` is what the kernel wrote.
        let pix = unsafe { raw.fmt.pix };
        Ok(PixFormat {
            width: pix.width,
            height: pix.height,
            fourcc: pix.pixelformat.to_le_bytes(),
            field: pix.field,
            pitch_bytes: pix.bytesperline,
            size_bytes: pix.sizeimage,
            colorspace: pix.colorspace,
            // SAFETY: both fields of the union are the same integer.
            ycbcr_encoding: unsafe { pix.__bindgen_anon_1.ycbcr_enc },
            quantization: pix.quantization,
        })
    }

    /// The time between frames; `None` where the driver does not tell.
    pub fn interval(&self) -> Option<Interval> {
        self.parameters()
            .ok()
            .map(|raw| Interval { numerator: raw.timeperframe.numerator, denominator: raw.timeperframe.denominator })
    }

    /// Asks for a time between frames; returns what the driver made of it.
    pub fn set_interval(&self, wanted: Interval) -> io::Result<Interval> {
        let mut capture = self.parameters()?;
        if capture.capability & sys::V4L2_CAP_TIMEPERFRAME == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        capture.timeperframe = sys::v4l2_fract { numerator: wanted.numerator, denominator: wanted.denominator };
        let set = self.parameters_call(vidioc::VIDIOC_S_PARM, capture)?;
        Ok(Interval { numerator: set.timeperframe.numerator, denominator: set.timeperframe.denominator })
    }

    fn parameters(&self) -> io::Result<sys::v4l2_captureparm> {
        // SAFETY: as in `capabilities`.
        self.parameters_call(vidioc::VIDIOC_G_PARM, unsafe { mem::zeroed() })
    }

    fn parameters_call(
        &self,
        request: vidioc::_IOC_TYPE,
        capture: sys::v4l2_captureparm,
    ) -> io::Result<sys::v4l2_captureparm> {
        // SAFETY: a union of structs of integers and bytes; zeros are values of all.
        let mut raw: sys::v4l2_streamparm = unsafe { mem::zeroed() };
        raw.type_ = CAPTURE;
        raw.parm.capture = capture;
        // SAFETY: G_PARM and S_PARM, which alone are passed here, read and write a v4l2_streamparm.
        unsafe { self.ioctl(request, &mut raw)? };
        // SAFETY: of parameters of type VIDEO_CAPTURE `capture` is what the kernel wrote.
        Ok(unsafe { raw.parm.capture })
    }

    /// Passes `argument` to the driver, again where a signal came in between.
    ///
    /// # Safety
    ///
    /// `T` must be the struct that `request` reads and writes; a pointer in it must be null or valid for that request.
    pub(super) unsafe fn ioctl<T>(&self, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open as long as `self.file`; `argument` is what the request takes, says the caller.
            match unsafe { v4l2::ioctl(self.file.as_raw_fd(), request, ptr::from_mut(argument).cast()) } {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
impl Node {
    /// A file in a node's place.
    pub(super) fn of(file: File) -> Self {
        Self { file }
    }
}

impl Interval {
    /// Frames per second; `None` of a time that is none.
    pub fn rate(self) -> Option<f64> {
        (self.numerator > 0 && self.denominator > 0).then(|| f64::from(self.denominator) / f64::from(self.numerator))
    }
}

/// Text that ends at a zero byte, where one is.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
