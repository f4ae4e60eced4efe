//! A V4L2 node: the ioctls, each as a safe function that returns the system's error.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/v4l2.html>

#[cfg(test)]
pub(crate) mod fake_camera;

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

/// The V4L2 API that a node uses for frames: the `V4L2_BUF_TYPE_*` of every call about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Api {
    /// Single-planar: a frame is in one memory plane.
    Single = sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE,
    /// Multi-planar: a frame is in one or more memory planes.
    Multi = sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE,
}

/// A node cannot be opened as a V4L2 device.
#[derive(Debug)]
pub enum NodeError {
    /// The system cannot open it.
    Unopened(io::Error),
    /// The node does not answer QUERYCAP.
    Unknown(io::Error),
}

/// The driver, card and capabilities of a node.
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
    /// Returns the API for captured frames, the single-planar one if the node has both; `None` if it captures nothing.
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

/// A frame's format, as in `v4l2_pix_format`.
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
    /// The frame's memory planes; one in the single-planar API.
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

/// The most memory planes of any format that visiond reads.
pub const MAX_MEMORY_PLANES: usize = 3;

/// One memory plane of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPlaneFormat {
    /// Bytes from one row of its first colour plane to the next.
    pub pitch_bytes: u32,
    /// Its largest size in bytes.
    pub size_bytes: u32,
}

impl PixFormat {
    /// Returns the frame's memory planes.
    pub fn memories(&self) -> &[MemoryPlaneFormat] {
        &self.memories[..self.memory_count.min(MAX_MEMORY_PLANES)]
    }
}

/// An open node.
#[derive(Debug)]
pub struct Node {
    pub(super) file: File,
    path: PathBuf,
    capabilities: Capabilities,
    api: Api,
    /// Memory that the driver may still write to. Dropped after `file` is closed.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    /// Answers in place of a driver.
    #[cfg(test)]
    pub(crate) fake: Option<Mutex<fake_camera::FakeCamera>>,
}

impl Node {
    /// Opens the node in non-blocking mode, and queries what it is. Child processes do not inherit it.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(NodeError::Unopened)?;
        let mut node = Self::of(file, path);
        node.capabilities = node.ask().map_err(NodeError::Unknown)?;
        // A node that captures nothing is never asked for frames.
        node.api = node.capabilities.api().unwrap_or(Api::Single);
        Ok(node)
    }

    /// Wraps a file whose capabilities were not queried yet.
    pub(super) fn of(file: File, path: &Path) -> Self {
        let (capabilities, api) = (Capabilities::default(), Api::Single);
        Self {
            file,
            path: path.to_owned(),
            capabilities,
            api,
            kept: Mutex::default(),
            #[cfg(test)]
            fake: None,
        }
    }

    /// Returns the node's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps memory that the driver may still write to until the node is closed.
    pub(super) fn keep(&self, memory: impl Any + Send) {
        self.kept.lock().push(Box::new(memory));
    }

    /// Returns the node's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether the node's driver has this quirk.
    pub fn has(&self, quirk: Quirk) -> bool {
        quirks::has(&self.capabilities.driver, quirk)
    }

    /// Returns the API for captured frames.
    pub fn api(&self) -> Api {
        self.api
    }

    fn ask(&self) -> io::Result<Capabilities> {
        // SAFETY: QUERYCAP writes a v4l2_capability, integers and arrays of them.
        let raw: sys::v4l2_capability = unsafe { self.query(vidioc::VIDIOC_QUERYCAP, |_| ())? };
        let has_own = raw.capabilities & sys::V4L2_CAP_DEVICE_CAPS != 0;
        Ok(Capabilities {
            driver: text(&raw.driver),
            card: text(&raw.card),
            bus: text(&raw.bus_info),
            flags: if has_own { raw.device_caps } else { raw.capabilities },
        })
    }

    /// Returns the current format.
    pub fn format(&self) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_G_FMT, &PixFormat::default())
    }

    /// Returns what the driver would make of `wanted`.
    pub fn try_format(&self, wanted: &PixFormat) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_TRY_FMT, wanted)
    }

    /// Sets the format; returns what the driver made of it.
    pub fn set_format(&self, wanted: &PixFormat) -> io::Result<PixFormat> {
        self.format_call(vidioc::VIDIOC_S_FMT, wanted)
    }

    fn format_call(&self, request: vidioc::_IOC_TYPE, wanted: &PixFormat) -> io::Result<PixFormat> {
        let fill = |raw: &mut sys::v4l2_format| {
            raw.type_ = self.api as u32;
            match self.api {
                Api::Single => raw.fmt.pix = single(wanted),
                Api::Multi => raw.fmt.pix_mp = multi(wanted),
            }
        };
        // SAFETY: callers pass only G_FMT, TRY_FMT and S_FMT, which read and write a v4l2_format: a union of structs of
        // integers, and of pointers that captured frames do not use.
        let raw = unsafe { self.query(request, fill)? };
        Ok(match self.api {
            // SAFETY: for a format of type VIDEO_CAPTURE, the kernel wrote `pix`.
            Api::Single => of_single(unsafe { raw.fmt.pix }),
            // SAFETY: for a format of type VIDEO_CAPTURE_MPLANE, the kernel wrote `pix_mp`.
            Api::Multi => of_multi(unsafe { raw.fmt.pix_mp }),
        })
    }

    /// Returns the frames per second; `None` if the driver does not say.
    pub fn rate(&self) -> Option<f64> {
        rate(self.parameters(vidioc::VIDIOC_G_PARM, |_| ()).ok()?.timeperframe)
    }

    /// Requests a time between frames; returns the frames per second that the driver made of it.
    pub fn set_interval(&self, wanted: sys::v4l2_fract) -> io::Result<Option<f64>> {
        let mut capture = self.parameters(vidioc::VIDIOC_G_PARM, |_| ())?;
        if capture.capability & sys::V4L2_CAP_TIMEPERFRAME == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        capture.timeperframe = wanted;
        Ok(rate(self.parameters(vidioc::VIDIOC_S_PARM, |raw| raw.parm.capture = capture)?.timeperframe))
    }

    fn parameters(
        &self,
        request: vidioc::_IOC_TYPE,
        fill: impl FnOnce(&mut sys::v4l2_streamparm),
    ) -> io::Result<sys::v4l2_captureparm> {
        let fill = |raw: &mut sys::v4l2_streamparm| {
            raw.type_ = self.api as u32;
            fill(raw);
        };
        // SAFETY: callers pass only G_PARM and S_PARM, which read and write a v4l2_streamparm: a union of structs of integers
        // and bytes.
        let raw = unsafe { self.query(request, fill)? };
        // SAFETY: for parameters of type VIDEO_CAPTURE, the kernel wrote `capture`.
        Ok(unsafe { raw.parm.capture })
    }

    /// Passes the driver a zeroed struct in which `fill` sets fields; returns the driver's version of it.
    ///
    /// # Safety
    ///
    /// `T` must be the struct that `request` reads and writes, all zeros must be valid for it, and `fill` must set no
    /// pointer.
    pub(super) unsafe fn query<T>(&self, request: vidioc::_IOC_TYPE, fill: impl FnOnce(&mut T)) -> io::Result<T> {
        // SAFETY: the caller guarantees that zeros are valid.
        let mut raw: T = unsafe { mem::zeroed() };
        fill(&mut raw);
        // SAFETY: the caller guarantees that the request takes `raw` and that every pointer in it is null.
        unsafe { self.ioctl(request, &mut raw)? };
        Ok(raw)
    }

    /// Passes `argument` to the driver; repeats the call if a signal interrupted it.
    ///
    /// # Safety
    ///
    /// `T` must be the struct that `request` reads and writes; a pointer in it must be null or valid for that request.
    pub(super) unsafe fn ioctl<T>(&self, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
        #[cfg(test)]
        if let Some(camera) = &self.fake {
            return camera.lock().answer(request, ptr::from_mut(argument).cast());
        }
        loop {
            // SAFETY: the descriptor is open as long as `self.file`; the caller guarantees that the request takes `argument`.
            match unsafe { v4l2::ioctl(self.file.as_raw_fd(), request, ptr::from_mut(argument).cast()) } {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// Returns frames per second; `None` if the interval is not valid.
pub(super) fn rate(interval: sys::v4l2_fract) -> Option<f64> {
    let is_valid = interval.numerator > 0 && interval.denominator > 0;
    is_valid.then(|| f64::from(interval.denominator) / f64::from(interval.numerator))
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
        // Marks the fields after it as valid.
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
    // The field is the low byte; its values fit.
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

/// Converts text that may end with a zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
