//! A node's stream of buffers: the driver fills them, the CPU or the GPU reads them, and they are queued again.
//!
//! A buffer has one owner. The driver has it from QBUF to DQBUF. Then it is a [`FilledBuffer`] or a [`DriverBuffer`], neither of
//! which can be copied; it goes back to the driver when that value is given back or dropped. So nothing reads a buffer after it
//! was queued.

mod buffer_memory;
pub mod io_support;
pub(super) mod ioctl;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{fmt, io, mem};

use v4l::v4l2::vidioc;
use visiond_frames::frame::{DriverBuffer, DriverMemory};
use visiond_kernels::buffer::{BufferError, Memory};
use visiond_kernels::cuda::{CudaError, Device};

use self::buffer_memory::{BufferMemory, MemoryPlanes};
use self::ioctl::{MemoryType, RawBuffer, Used};
use super::device::{MAX_MEMORY_PLANES, Node};

/// A buffer that the driver has filled and does not own until [`Stream::give_back`].
#[derive(Debug)]
pub(super) struct FilledBuffer {
    index: u32,
    /// The bytes of the frame in each memory plane.
    pub used: [Used; MAX_MEMORY_PLANES],
    /// `V4L2_BUF_FLAG_*`.
    pub flags: u32,
    pub sequence: u32,
    /// The driver's timestamp, on the clock that the flags name.
    pub timestamp_ns: u64,
}

#[cfg(test)]
impl FilledBuffer {
    /// Creates a buffer that belongs to no stream.
    pub fn simulated(flags: u32, timestamp_ns: u64) -> Self {
        Self { index: 0, used: Default::default(), flags, sequence: 0, timestamp_ns }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum BufferOrigin<'a> {
    Driver,
    Ours(&'a Memory),
    /// visiond's ordinary memory, registered with CUDA.
    Registered(&'a Arc<Device>),
}

/// Why an I/O method does not work.
#[derive(Debug, thiserror::Error)]
pub enum IoRefusal {
    /// The driver refuses it.
    #[error("{call}: {error}")]
    Driver {
        /// The ioctl.
        call: &'static str,
        /// The driver's error.
        error: io::Error,
    },
    /// The GPU refuses it.
    #[error(transparent)]
    Gpu(#[from] CudaError),
    /// There is no such memory.
    #[error(transparent)]
    Memory(#[from] BufferError),
    /// The driver's buffers are empty or too large.
    #[error("the driver's buffers have no size, or more than 2 GiB")]
    Size,
}

impl IoRefusal {
    fn of(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Driver { call, error }
    }
}

/// A streaming node. Dropping it ends the stream and frees the driver's buffers.
pub(super) struct Stream {
    buffers: Vec<Arc<BufferMemory>>,
    node: Arc<Node>,
    memory: MemoryType,
    return_queue: Sender<u32>,
    returned: Receiver<u32>,
    /// How many buffers are lent.
    lent_count: usize,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} buffers, {:?})", self.buffers.len(), self.memory)
    }
}

impl Stream {
    /// Requests about `count` buffers from the driver, with memory from `origin` and memory planes of `lengths` bytes. Queues
    /// all of them. The driver fills them from [`start`](Self::start) on.
    pub fn new(
        node: &Arc<Node>,
        origin: BufferOrigin<'_>,
        count: u32,
        lengths: [usize; MAX_MEMORY_PLANES],
        memory_plane_count: usize,
    ) -> Result<Self, IoRefusal> {
        let memory = match origin {
            BufferOrigin::Driver => MemoryType::Mmap,
            BufferOrigin::Ours(_) | BufferOrigin::Registered(_) => MemoryType::UserPtr,
        };
        let count = ioctl::request(node, memory, count).map_err(IoRefusal::of("REQBUFS"))?.count;
        let (return_queue, returned) = channel();
        // From here on, dropping the stream frees the driver's buffers.
        let mut stream =
            Self { buffers: Vec::new(), node: Arc::clone(node), memory, return_queue, returned, lent_count: 0 };
        let lengths = match origin {
            BufferOrigin::Driver => {
                let places = RawBuffer::new(node, memory, 0).query(node).map_err(IoRefusal::of("QUERYBUF"))?;
                places.map(|(_, length)| length)
            }
            _ => lengths,
        };
        let planes = MemoryPlanes::new(lengths, memory_plane_count).ok_or(IoRefusal::Size)?;
        for index in 0..count {
            let buffer = match origin {
                BufferOrigin::Driver => BufferMemory::mapped(node, index, planes).map_err(IoRefusal::of("mmap"))?,
                BufferOrigin::Ours(kind) => BufferMemory::unified(kind, planes)?,
                BufferOrigin::Registered(device) => {
                    let mut buffer = BufferMemory::unified(&Memory::host(), planes)?;
                    buffer.register(device)?;
                    buffer
                }
            };
            stream.buffers.push(Arc::new(buffer));
            stream.queue(index).map_err(IoRefusal::of("QBUF"))?;
        }
        Ok(stream)
    }

    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        // The stream is the only owner of the buffers: none was lent yet.
        self.buffers.iter_mut().filter_map(Arc::get_mut).try_for_each(|buffer| buffer.register(device))
    }

    pub fn start(&mut self) -> io::Result<()> {
        self.switch(vidioc::VIDIOC_STREAMON)
    }

    fn switch(&self, request: vidioc::_IOC_TYPE) -> io::Result<()> {
        let kind = self.node.api() as libc::c_int;
        // SAFETY: callers pass only STREAMON and STREAMOFF, which read an int.
        unsafe { self.node.query(request, |raw| *raw = kind) }.map(drop)
    }

    pub fn memory_planes(&self) -> Option<&MemoryPlanes> {
        self.buffers.first().map(|buffer| &buffer.planes)
    }

    /// Lends a buffer without a copy. When the `DriverBuffer` is dropped, [`reclaim`](Self::reclaim) queues the buffer again.
    pub fn lend(&mut self, filled: FilledBuffer) -> Option<DriverBuffer> {
        let buffer = self.buffers.get(filled.index as usize)?;
        self.lent_count += 1;
        let memory: Arc<dyn DriverMemory> = Arc::<BufferMemory>::clone(buffer);
        // SAFETY: the driver has a buffer only while it is queued; this one is queued only after its number came back.
        Some(unsafe { DriverBuffer::new(memory, filled.index, self.return_queue.clone()) })
    }

    /// Queues the returned buffers. If all are lent, waits `timeout` for one; returns `false` if there still is none.
    pub fn reclaim(&mut self, timeout: Duration) -> io::Result<bool> {
        while let Ok(index) = self.returned.try_recv() {
            self.lent_count -= 1;
            self.queue(index)?;
        }
        if self.lent_count == 0 || self.lent_count < self.buffers.len() {
            return Ok(true);
        }
        let Ok(index) = self.returned.recv_timeout(timeout) else { return Ok(false) };
        self.lent_count -= 1;
        self.queue(index)?;
        Ok(true)
    }

    pub fn buffer_count(&self) -> usize {
        self.buffers.len()
    }

    /// Dequeues a filled buffer; `None` if there is none.
    pub fn take(&mut self) -> io::Result<Option<FilledBuffer>> {
        let mut raw = RawBuffer::new(&self.node, self.memory, 0);
        let buffer = match raw.dequeue(&self.node) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => *result?,
        };
        Ok(Some(FilledBuffer {
            index: buffer.index,
            used: raw.used(),
            flags: buffer.flags,
            sequence: buffer.sequence,
            timestamp_ns: nanoseconds(buffer.timestamp.tv_sec, buffer.timestamp.tv_usec),
        }))
    }

    /// Returns the frame's bytes in a memory plane.
    pub fn bytes(&self, filled: &FilledBuffer, plane: usize) -> &[u8] {
        let Some(buffer) = self.buffers.get(filled.index as usize) else { return &[] };
        let used = filled.used[plane];
        let end = used.end.min(buffer.planes.lengths[plane]);
        // SAFETY: the driver has a buffer only while it is queued, and this one is not. Only `take` creates a `FilledBuffer`,
        // which cannot be copied, and `give_back`, which queues it, consumes it, so it is not borrowed then.
        let bytes = unsafe { buffer.bytes() };
        let start = buffer.planes.starts[plane];
        bytes.get(start + used.start.min(end)..start + end).unwrap_or(&[])
    }

    pub fn give_back(&mut self, filled: FilledBuffer) -> io::Result<()> {
        self.queue(filled.index)
    }

    fn queue(&mut self, index: u32) -> io::Result<()> {
        let mut raw = RawBuffer::new(&self.node, self.memory, index);
        if let (MemoryType::UserPtr, Some(buffer)) = (self.memory, self.buffers.get(index as usize)) {
            buffer.point(&mut raw);
        }
        // SAFETY: it points at the buffer's memory, which is freed after `drop` has made the driver return all buffers. Only
        // a `FilledBuffer` or a `DriverBuffer` reads it, and neither exists for a queued buffer.
        match unsafe { raw.queue(&self.node) } {
            // A driver may refuse once for a reason that passes.
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                log::debug!("the driver refused a buffer, trying again (QBUF: {error})");
                // SAFETY: as above.
                unsafe { raw.queue(&self.node) }
            }
            result => result,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        match self.switch(vidioc::VIDIOC_STREAMOFF) {
            // ENODEV: the camera was unplugged, and its stream ended with it.
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                log::warn!("cannot end a camera's stream (STREAMOFF): {error}");
            }
            _ => {}
        }
        // Mappings that are not lent are unmapped first, because older kernels do not free mapped buffers. STREAMOFF has
        // returned visiond's own memory.
        if self.memory == MemoryType::Mmap {
            self.buffers.clear();
        }
        if let Err(error) = ioctl::request(&self.node, self.memory, 0) {
            // The camera was unplugged; or a lent frame still holds a mapping, and the kernel frees the buffers with it.
            // visiond's memory that the driver may still use is kept until the node is closed.
            log::debug!("cannot free a camera's buffers (REQBUFS): {error}");
            self.node.keep(mem::take(&mut self.buffers));
        }
    }
}

/// Returns the time of a buffer, which the driver states in seconds and microseconds.
fn nanoseconds(seconds: i64, micros: i64) -> u64 {
    let [seconds, micros] = [seconds, micros].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000))
}

#[cfg(test)]
pub(super) mod tests;
