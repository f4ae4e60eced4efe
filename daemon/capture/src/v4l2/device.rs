//! A V4L2 node: the raw calls, each a safe function that returns the system's error.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/v4l2.html>

use parking_lot::Mutex;
use std::any::Any;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{io, mem, ptr};

use v4l::v4l_sys as sys;
use v4l::v4l2::{self, vidioc};

use super::fourcc::FourCc;
use super::quirks::{self, Quirk};

/// Which of V4L2's two ways to describe a picture a node speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// A picture is one piece of memory.
    Single,
    /// A picture is one or more pieces of memory, one for each of its planes.
    Multi,
}

impl Api {
    /// The `V4L2_BUF_TYPE_*` that every call about pictures carries.
    pub fn buffer_type(self) -> u32 {
        match self {
            Self::Single => sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE,
            Self::Multi => sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE,
        }
    }
}

/// A node could not be opened as a V4L2 device.
#[derive(Debug)]
pub enum NodeError {
    /// The system does not open it.
    Unopened(io::Error),
    /// It does not say what it is (QUERYCAP).
    Unknown(io::Error),
}

/// Who and what a node is.
#[derive(Debug, Clone, Default)]
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

impl Capabilities {
    /// The API by which it hands out pictures, the single-planar one where it has both; `None`: it hands out none.
    pub fn api(&self) -> Option<Api> {
        if self.flags & sys::V4L2_CAP_VIDEO_CAPTURE != 0 {
            Some(Api::Single)
        } else if self.flags & sys::V4L2_CAP_VIDEO_CAPTURE_MPLANE != 0 {
            Some(Api::Multi)
        } else {
            None
        }
    }
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
    /// The pieces of memory that a picture comes in; one of the single-planar API.
    pub memories: [MemoryPlaneFormat; MAX_MEMORY_PLANES],
    /// How many of them are used.
    pub memory_count: usize,
    /// `V4L2_COLORSPACE_*`.
    pub colorspace: u32,
    /// `V4L2_YCBCR_ENC_*`.
    pub ycbcr_encoding: u32,
    /// `V4L2_QUANTIZATION_*`.
    pub quantization: u32,
}

/// The most pieces of memory that a picture of a format we read comes in.
pub const MAX_MEMORY_PLANES: usize = 3;

/// A piece of memory of a picture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPlaneFormat {
    /// From one row of its first plane to the next.
    pub pitch_bytes: u32,
    /// Its bytes at most.
    pub size_bytes: u32,
}

impl PixFormat {
    /// The pieces of memory that a picture comes in.
    pub fn memories(&self) -> &[MemoryPlaneFormat] {
        &self.memories[..self.memory_count.min(MAX_MEMORY_PLANES)]
    }
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
    path: PathBuf,
    capabilities: Capabilities,
    api: Api,
    /// Dropped after `file` is closed.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Node {
    /// Opens it so that no call waits, and asks what it is. Programs started later do not inherit it.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(NodeError::Unopened)?;
        let mut node = Self::of(file, path);
        node.capabilities = node.ask().map_err(NodeError::Unknown)?;
        // Nobody asks a node for pictures that hands out none.
        node.api = node.capabilities.api().unwrap_or(Api::Single);
        Ok(node)
    }

    /// A file that has not told what it is.
    pub(super) fn of(file: File, path: &Path) -> Self {
        let (capabilities, api) = (Capabilities::default(), Api::Single);
        Self { file, path: path.to_owned(), capabilities, api, kept: Mutex::default() }
    }

    /// Its place in the file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps memory that the driver may still write to until the node is closed.
    pub(super) fn keep(&self, memory: impl Any + Send) {
        self.kept.lock().push(Box::new(memory));
    }

    /// Who it is and what it does.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether its driver departs from V4L2 so.
    pub fn has(&self, quirk: Quirk) -> bool {
        quirks::has(&self.capabilities.driver, quirk)
    }

    /// How it describes pictures.
    pub fn api(&self) -> Api {
        self.api
    }

    fn ask(&self) -> io::Result<Capabilities> {
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
            // SAFETY: as in `ask`.
            let mut raw: sys::v4l2_fmtdesc = unsafe { mem::zeroed() };
            // No driver has so many formats that the number does not fit.
            raw.index = formats.len() as u32;
            raw.type_ = self.api.buffer_type();
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
            // SAFETY: as in `ask`.
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
        // SAFETY: a union of structs of integers, and of pointers that captured pictures do not use; zeros are values of all.
        let mut raw: sys::v4l2_format = unsafe { mem::zeroed() };
        raw.type_ = self.api.buffer_type();
        match self.api {
            Api::Single => raw.fmt.pix = single(wanted),
            Api::Multi => raw.fmt.pix_mp = multi(wanted),
        }
        // SAFETY: G_FMT, TRY_FMT and S_FMT, which alone are passed here, read and write a v4l2_format.
        unsafe { self.ioctl(request, &mut raw)? };
        Ok(match self.api {
            // SAFETY: of a format of type VIDEO_CAPTURE `pix` is what the kernel wrote.
            Api::Single => of_single(unsafe { raw.fmt.pix }),
            // SAFETY: of a format of type VIDEO_CAPTURE_MPLANE `pix_mp` is what the kernel wrote.
            Api::Multi => of_multi(unsafe { raw.fmt.pix_mp }),
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
        // SAFETY: as in `ask`.
        self.parameters_call(vidioc::VIDIOC_G_PARM, unsafe { mem::zeroed() })
    }

    fn parameters_call(
        &self,
        request: vidioc::_IOC_TYPE,
        capture: sys::v4l2_captureparm,
    ) -> io::Result<sys::v4l2_captureparm> {
        // SAFETY: a union of structs of integers and bytes; zeros are values of all.
        let mut raw: sys::v4l2_streamparm = unsafe { mem::zeroed() };
        raw.type_ = self.api.buffer_type();
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

impl Interval {
    /// Frames per second; `None` of a time that is none.
    pub fn rate(self) -> Option<f64> {
        (self.numerator > 0 && self.denominator > 0).then(|| f64::from(self.denominator) / f64::from(self.numerator))
    }
}

fn single(wanted: &PixFormat) -> sys::v4l2_pix_format {
    sys::v4l2_pix_format {
        width: wanted.width,
        height: wanted.height,
        pixelformat: u32::from_le_bytes(wanted.fourcc),
        field: wanted.field,
        bytesperline: wanted.memories[0].pitch_bytes,
        sizeimage: wanted.memories[0].size_bytes,
        colorspace: wanted.colorspace,
        // Says that the fields behind it are meant.
        priv_: sys::V4L2_PIX_FMT_PRIV_MAGIC,
        flags: 0,
        __bindgen_anon_1: sys::v4l2_pix_format__bindgen_ty_1 { ycbcr_enc: wanted.ycbcr_encoding },
        quantization: wanted.quantization,
        xfer_func: 0,
    }
}

fn of_single(pix: sys::v4l2_pix_format) -> PixFormat {
    let mut memories = [MemoryPlaneFormat::default(); MAX_MEMORY_PLANES];
    memories[0] = MemoryPlaneFormat { pitch_bytes: pix.bytesperline, size_bytes: pix.sizeimage };
    PixFormat {
        width: pix.width,
        height: pix.height,
        fourcc: pix.pixelformat.to_le_bytes(),
        field: pix.field,
        memories,
        memory_count: 1,
        colorspace: pix.colorspace,
        // SAFETY: both fields of the union are the same integer.
        ycbcr_encoding: unsafe { pix.__bindgen_anon_1.ycbcr_enc },
        quantization: pix.quantization,
    }
}

fn multi(wanted: &PixFormat) -> sys::v4l2_pix_format_mplane {
    // SAFETY: a packed struct of integers, for which zeros are values.
    let mut pix: sys::v4l2_pix_format_mplane = unsafe { mem::zeroed() };
    (pix.width, pix.height) = (wanted.width, wanted.height);
    pix.pixelformat = u32::from_le_bytes(wanted.fourcc);
    pix.field = wanted.field;
    pix.colorspace = wanted.colorspace;
    for (plane, memory) in wanted.memories().iter().enumerate() {
        pix.plane_fmt[plane].bytesperline = memory.pitch_bytes;
        pix.plane_fmt[plane].sizeimage = memory.size_bytes;
    }
    // At most MAX_MEMORY_PLANES.
    pix.num_planes = wanted.memories().len() as u8;
    // The low byte is the field; its values fit.
    pix.__bindgen_anon_1.ycbcr_enc = wanted.ycbcr_encoding as u8;
    pix.quantization = wanted.quantization as u8;
    pix
}

fn of_multi(pix: sys::v4l2_pix_format_mplane) -> PixFormat {
    let planes = pix.plane_fmt;
    PixFormat {
        width: pix.width,
        height: pix.height,
        fourcc: pix.pixelformat.to_le_bytes(),
        field: pix.field,
        memories: std::array::from_fn(|plane| MemoryPlaneFormat {
            pitch_bytes: planes[plane].bytesperline,
            size_bytes: planes[plane].sizeimage,
        }),
        memory_count: usize::from(pix.num_planes),
        colorspace: pix.colorspace,
        // SAFETY: both fields of the union are the same byte.
        ycbcr_encoding: u32::from(unsafe { pix.__bindgen_anon_1.ycbcr_enc }),
        quantization: u32::from(pix.quantization),
    }
}

/// Text that ends at a zero byte, where one is.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
