//! A V4L2 node and its buffers: the raw calls, each a safe function that returns the system's error.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/v4l2.html>

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, mem, ptr, slice};

use v4l::v4l_sys as sys;
use v4l::v4l2::{self, vidioc};
use visiond_kernels::buffer::RegisteredPages;
use visiond_kernels::cuda::{CudaError, Device, DeviceAddress};

use super::fourcc::FourCc;

const CAPTURE: u32 = sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE;

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
    file: File,
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
    unsafe fn ioctl<T>(&self, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
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

/// Text that ends at a zero byte, where one is.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A buffer that the driver filled, out of its hands until [`Stream::give_back`].
#[derive(Debug)]
pub struct Filled {
    index: u32,
    /// Bytes of it that are the picture.
    pub used_bytes: u32,
    /// `V4L2_BUF_FLAG_*`.
    pub flags: u32,
    /// The driver's number of the frame.
    pub sequence: u32,
    /// When it was taken, on the clock that the flags name.
    pub timestamp_ns: u64,
}

#[cfg(test)]
impl Filled {
    /// A buffer of no stream.
    pub fn simulated(flags: u32, timestamp_ns: u64) -> Self {
        Self { index: 0, used_bytes: 0, flags, sequence: 0, timestamp_ns }
    }
}

/// A driver's buffer on its way through the pipeline; it goes back to the stream when dropped.
#[derive(Debug)]
pub struct Lent {
    mapping: Arc<Mapping>,
    length: usize,
    index: u32,
    home: Sender<u32>,
}

impl Lent {
    /// The picture's bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `length` is at most the mapping's, which is readable and lives as long as `self` holds it. The driver
        // writes to a buffer only while it is queued; this one is queued when its number came home, which `drop` sends.
        unsafe { slice::from_raw_parts(self.mapping.start.cast(), self.length) }
    }

    /// Where the GPU sees the first byte.
    pub fn device_address(&self) -> Option<DeviceAddress> {
        self.mapping.registered.as_ref().map(RegisteredPages::device_address)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A stream that has ended wants no buffer back; the last one that holds the mapping unmaps it.
        let _ = self.home.send(self.index);
    }
}

/// A node that streams into buffers mapped here. Dropping it ends the stream and closes the node.
#[derive(Debug)]
pub struct Stream {
    // Unmapped before the node is closed, but for those that are lent.
    buffers: Vec<Arc<Mapping>>,
    node: Node,
    home: Sender<u32>,
    returned: Receiver<u32>,
    /// Buffers that are lent.
    away: usize,
}

impl Stream {
    /// Has the driver make about `count` buffers, maps them, and gives it all of them. They are filled from [`start`] on.
    ///
    /// [`start`]: Self::start
    pub fn new(node: Node, count: u32) -> io::Result<Self> {
        // SAFETY: as in `Node::capabilities`.
        let mut request: sys::v4l2_requestbuffers = unsafe { mem::zeroed() };
        request.count = count;
        request.type_ = CAPTURE;
        request.memory = sys::v4l2_memory_V4L2_MEMORY_MMAP;
        // SAFETY: REQBUFS reads and writes a v4l2_requestbuffers.
        unsafe { node.ioctl(vidioc::VIDIOC_REQBUFS, &mut request)? };
        let (home, returned) = channel();
        let mut stream = Self { buffers: Vec::new(), node, home, returned, away: 0 };
        for index in 0..request.count {
            let mut buffer = describe(index);
            // SAFETY: QUERYBUF reads and writes a v4l2_buffer; MMAP buffers of one plane use no pointer in it.
            unsafe { stream.node.ioctl(vidioc::VIDIOC_QUERYBUF, &mut buffer)? };
            // SAFETY: the kernel wrote `offset`, since the memory is MMAP.
            let offset = unsafe { buffer.m.offset };
            stream.buffers.push(Arc::new(Mapping::new(&stream.node, buffer.length as usize, offset)?));
            stream.queue(index)?;
        }
        Ok(stream)
    }

    /// Makes every buffer visible to the GPU, or none.
    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        for buffer in &mut self.buffers {
            // Nobody else holds a mapping: none was lent yet.
            let Some(mapping) = Arc::get_mut(buffer) else { continue };
            let Some(start) = NonNull::new(mapping.start.cast()) else { continue };
            // SAFETY: the range is the mapping, readable and writable; the registration is undone before it is unmapped
            // (`Mapping::drop`). GPU work on it is over when a frame is dropped, and a `Lent` keeps the mapping.
            match unsafe { RegisteredPages::new(device, start, mapping.length) } {
                Ok(pages) => mapping.registered = Some(pages),
                Err(error) => {
                    self.buffers.iter_mut().filter_map(Arc::get_mut).for_each(|mapping| mapping.registered = None);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Has the driver begin.
    pub fn start(&mut self) -> io::Result<()> {
        let mut kind = CAPTURE as libc::c_int;
        // SAFETY: STREAMON reads an int.
        unsafe { self.node.ioctl(vidioc::VIDIOC_STREAMON, &mut kind) }
    }

    /// Hands a buffer out, without a copy; it is queued again by [`reclaim`](Self::reclaim) after it was dropped.
    pub fn lend(&mut self, filled: Filled) -> Option<Lent> {
        let mapping = self.buffers.get(filled.index as usize)?;
        let length = mapping.length.min(filled.used_bytes as usize);
        self.away += 1;
        Some(Lent { mapping: Arc::clone(mapping), length, index: filled.index, home: self.home.clone() })
    }

    /// Queues the buffers that came back. Where the driver has none, waits `patience` for one; `false`: it still has none.
    pub fn reclaim(&mut self, patience: Duration) -> io::Result<bool> {
        while let Ok(index) = self.returned.try_recv() {
            self.away -= 1;
            self.queue(index)?;
        }
        if self.away == 0 || self.away < self.buffers.len() {
            return Ok(true);
        }
        match self.returned.recv_timeout(patience) {
            Ok(index) => {
                self.away -= 1;
                self.queue(index)?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Becomes readable with a filled buffer, and when the stream breaks.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.node.file.as_fd()
    }

    /// How many buffers the driver made.
    pub fn buffer_count(&self) -> usize {
        self.buffers.len()
    }

    /// Bytes of the smallest buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.length).min().unwrap_or(0)
    }

    /// Takes a filled buffer; `None` while there is none.
    pub fn take(&mut self) -> io::Result<Option<Filled>> {
        let mut buffer = describe(0);
        // SAFETY: DQBUF reads and writes a v4l2_buffer; MMAP buffers of one plane use no pointer in it.
        match unsafe { self.node.ioctl(vidioc::VIDIOC_DQBUF, &mut buffer) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        }
        let seconds = u64::try_from(buffer.timestamp.tv_sec).unwrap_or(0);
        let micros = u64::try_from(buffer.timestamp.tv_usec).unwrap_or(0);
        Ok(Some(Filled {
            index: buffer.index,
            used_bytes: buffer.bytesused,
            flags: buffer.flags,
            sequence: buffer.sequence,
            timestamp_ns: seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000)),
        }))
    }

    /// The picture's bytes.
    pub fn bytes(&self, filled: &Filled) -> &[u8] {
        let Some(mapping) = self.buffers.get(filled.index as usize) else { return &[] };
        let length = mapping.length.min(filled.used_bytes as usize);
        // SAFETY: the mapping is that long and readable, and lives as long as `self`. The driver writes to a buffer only
        // while it is queued; this one is not: a `Filled` comes from `take` alone, cannot be copied, and `give_back`, which
        // queues it, takes it away, so it is not borrowed then.
        unsafe { slice::from_raw_parts(mapping.start.cast(), length) }
    }

    /// Hands the buffer to the driver to be filled again.
    pub fn give_back(&mut self, filled: Filled) -> io::Result<()> {
        self.queue(filled.index)
    }

    fn queue(&mut self, index: u32) -> io::Result<()> {
        let mut buffer = describe(index);
        // SAFETY: QBUF reads and writes a v4l2_buffer; MMAP buffers of one plane use no pointer in it.
        unsafe { self.node.ioctl(vidioc::VIDIOC_QBUF, &mut buffer) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut kind = CAPTURE as libc::c_int;
        // SAFETY: STREAMOFF reads an int.
        match unsafe { self.node.ioctl(vidioc::VIDIOC_STREAMOFF, &mut kind) } {
            Ok(()) => {}
            // The camera is gone, and its stream with it.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => log::warn!("a camera's stream could not be ended (STREAMOFF): {error}"),
        }
    }
}

/// A v4l2_buffer that names a buffer of ours.
fn describe(index: u32) -> sys::v4l2_buffer {
    // SAFETY: integers, and unions of integers with a raw pointer; zeros are values of all.
    let mut buffer: sys::v4l2_buffer = unsafe { mem::zeroed() };
    buffer.index = index;
    buffer.type_ = CAPTURE;
    buffer.memory = sys::v4l2_memory_V4L2_MEMORY_MMAP;
    buffer
}

/// A driver's buffer in our address space.
#[derive(Debug)]
struct Mapping {
    start: *mut libc::c_void,
    length: usize,
    /// Set where the GPU reads it in place.
    registered: Option<RegisteredPages>,
}

// SAFETY: memory that any thread may read; the pointer is this struct's alone.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access reads the pointer and the length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(node: &Node, length: usize, offset: u32) -> io::Result<Self> {
        // Some drivers refuse a mapping that is not writable, says mmap's page in V4L2's documentation.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = node.file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; the result is checked.
        let start =
            unsafe { v4l2::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, fd, libc::off_t::from(offset))? };
        Ok(Self { start, length, registered: None })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.registered = None;
        // SAFETY: exactly the mapping that `new` made; whoever read it borrowed the stream or a `Lent` that holds this.
        if let Err(error) = unsafe { v4l2::munmap(self.start, self.length) } {
            log::warn!("a camera's buffer could not be unmapped: {error}");
        }
    }
}
