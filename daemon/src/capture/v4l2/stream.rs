//! A node's stream of buffers, mapped here: filled by the driver, read here or by the GPU, queued again.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, mem, slice};

use v4l::v4l_sys as sys;
use v4l::v4l2::{self, vidioc};
use visiond_kernels::buffer::RegisteredPages;
use visiond_kernels::cuda::{CudaError, Device, DeviceAddress};

use super::device::Node;

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
        request.type_ = node.api().buffer_type();
        request.memory = sys::v4l2_memory_V4L2_MEMORY_MMAP;
        // SAFETY: REQBUFS reads and writes a v4l2_requestbuffers.
        unsafe { node.ioctl(vidioc::VIDIOC_REQBUFS, &mut request)? };
        let (home, returned) = channel();
        let mut stream = Self { buffers: Vec::new(), node, home, returned, away: 0 };
        for index in 0..request.count {
            let mut buffer = describe(&stream.node, index);
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
        let mut kind = self.node.api().buffer_type() as libc::c_int;
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
        let mut buffer = describe(&self.node, 0);
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
        let mut buffer = describe(&self.node, index);
        // SAFETY: QBUF reads and writes a v4l2_buffer; MMAP buffers of one plane use no pointer in it.
        unsafe { self.node.ioctl(vidioc::VIDIOC_QBUF, &mut buffer) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut kind = self.node.api().buffer_type() as libc::c_int;
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
fn describe(node: &Node, index: u32) -> sys::v4l2_buffer {
    // SAFETY: integers, and unions of integers with a raw pointer; zeros are values of all.
    let mut buffer: sys::v4l2_buffer = unsafe { mem::zeroed() };
    buffer.index = index;
    buffer.type_ = node.api().buffer_type();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    use super::*;

    /// A stream whose buffers are a memory file's pages. No driver answers behind it.
    fn stream(pages: usize) -> Stream {
        // SAFETY: the name is a C string; the call makes a descriptor, which is checked.
        let fd = unsafe { libc::memfd_create(c"buffers".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a new descriptor that nobody else owns.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(&(0..pages).flat_map(|page| [page as u8 + 1; 4096]).collect::<Vec<_>>()).unwrap();
        let node = Node::of(file);
        let mapping = |page: usize| Arc::new(Mapping::new(&node, 4096, page as u32 * 4096).unwrap());
        let buffers = (0..pages).map(mapping).collect();
        let (home, returned) = channel();
        Stream { buffers, node, home, returned, away: 0 }
    }

    fn filled(index: u32) -> Filled {
        Filled { index, ..Filled::simulated(0, 0) }
    }

    #[test]
    fn a_lent_buffer_can_be_read_after_its_stream_has_ended() {
        let mut stream = stream(2);
        let lent = stream.lend(Filled { used_bytes: 10, ..filled(1) }).unwrap();
        drop(stream);
        assert_eq!(lent.as_slice(), [2; 10]);
        assert_eq!(lent.device_address(), None);
    }

    #[test]
    fn a_picture_is_never_longer_than_its_buffer() {
        let mut stream = stream(1);
        assert_eq!(stream.lend(Filled { used_bytes: u32::MAX, ..filled(0) }).unwrap().as_slice().len(), 4096);
        assert!(stream.lend(filled(7)).is_none());
    }

    #[test]
    fn buffers_that_come_back_are_queued_again_and_none_is_waited_for_while_the_driver_has_one() {
        let mut stream = stream(2);
        let patience = Duration::from_millis(20);
        assert!(stream.reclaim(patience).unwrap());
        let first = stream.lend(filled(0)).unwrap();
        assert!(stream.reclaim(patience).unwrap());
        let second = stream.lend(filled(1)).unwrap();
        assert!(!stream.reclaim(patience).unwrap());
        drop(first);
        // Queueing is tried: what stands in for the driver refuses it.
        assert_eq!(stream.reclaim(patience).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(stream.away, 1);
        drop(second);
    }
}
