//! A node's stream of buffers: filled by the driver, read here or by the GPU, queued again.
//!
//! A buffer is in one of two hands. The driver has it from QBUF to DQBUF; then it is a [`Filled`] or a [`DriverBuffer`], neither of
//! which can be copied, and goes back when that one is given back or dropped. So it is never read after it was queued.

mod buffer_memory;
pub mod io_support;
pub mod ioctl;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{fmt, io, mem};

use v4l::v4l2::vidioc;
use visiond_flow::frame::{DriverBuffer, DriverMemory};
use visiond_kernels::buffer::{BufferError, Memory};
use visiond_kernels::cuda::{CudaError, Device};

use self::buffer_memory::{BufferMemory, MemoryPlanes, PinnedError};
use self::ioctl::{Granted, MemoryType, RawBuffer, Used};
use super::device::{MAX_MEMORY_PLANES, Node};

/// A buffer that the driver filled, out of its hands until [`Stream::give_back`].
#[derive(Debug)]
pub struct Filled {
    index: u32,
    /// Of each piece of its memory what is the picture.
    pub used: [Used; MAX_MEMORY_PLANES],
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
        Self { index: 0, used: Default::default(), flags, sequence: 0, timestamp_ns }
    }
}

/// Whose memory the driver fills.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The driver's own.
    Driver,
    /// Ours, of this kind.
    Ours(&'a Memory),
    /// Ours, ordinary memory registered with CUDA.
    Registered(&'a Arc<Device>),
}

/// Why a stream cannot be made in some way.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The driver does not do it.
    #[error("{call}: {error}")]
    Driver {
        /// The call.
        call: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The GPU does not.
    #[error(transparent)]
    Gpu(#[from] CudaError),
    /// There is no such memory.
    #[error(transparent)]
    Memory(#[from] BufferError),
    /// The driver's buffers have no size.
    #[error("the driver's buffers have no size, or more than 2 GiB")]
    Size,
}

impl Refusal {
    fn of(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Driver { call, error }
    }
}

impl From<PinnedError> for Refusal {
    fn from(error: PinnedError) -> Self {
        match error {
            PinnedError::Buffer(error) => error.into(),
            PinnedError::Cuda(error) => error.into(),
        }
    }
}

/// A node that streams. Dropping it ends the stream and frees the driver's side of its buffers.
pub struct Stream {
    buffers: Vec<Arc<BufferMemory>>,
    node: Arc<Node>,
    memory: MemoryType,
    home: Sender<u32>,
    returned: Receiver<u32>,
    /// Buffers that are lent.
    away: usize,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} buffers, {:?})", self.buffers.len(), self.memory)
    }
}

impl Stream {
    /// Has the driver take about `count` buffers from `source`, of pieces of `lengths` bytes, and gives it all of them. They
    /// are filled from [`start`](Self::start) on.
    pub fn new(
        node: &Arc<Node>,
        source: Source<'_>,
        count: u32,
        lengths: [usize; MAX_MEMORY_PLANES],
        memories: usize,
    ) -> Result<Self, Refusal> {
        let memory = match source {
            Source::Driver => MemoryType::Mmap,
            Source::Ours(_) | Source::Registered(_) => MemoryType::UserPtr,
        };
        let Granted { count, .. } = ioctl::request(node, memory, count).map_err(Refusal::of("REQBUFS"))?;
        let (home, returned) = channel();
        // From here on its drop frees what was granted.
        let mut stream = Self { buffers: Vec::new(), node: Arc::clone(node), memory, home, returned, away: 0 };
        let lengths = match source {
            Source::Driver => {
                let places = RawBuffer::new(node, memory, 0).query(node).map_err(Refusal::of("QUERYBUF"))?;
                places.map(|(_, length)| length)
            }
            _ => lengths,
        };
        let pieces = MemoryPlanes::new(lengths, memories).ok_or(Refusal::Size)?;
        for index in 0..count {
            let buffer = match source {
                Source::Driver => BufferMemory::mapped(node, index, pieces).map_err(Refusal::of("mmap"))?,
                Source::Ours(kind) => BufferMemory::unified(kind, pieces)?,
                Source::Registered(device) => BufferMemory::pinned(device, pieces)?,
            };
            stream.buffers.push(Arc::new(buffer));
            stream.queue(index).map_err(Refusal::of("QBUF"))?;
        }
        Ok(stream)
    }

    /// Makes every buffer visible to the GPU.
    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        // Nobody else holds a buffer: none was lent yet.
        self.buffers.iter_mut().filter_map(Arc::get_mut).try_for_each(|buffer| buffer.register(device))
    }

    /// Has the driver begin.
    pub fn start(&mut self) -> io::Result<()> {
        let mut kind = self.node.api().buffer_type() as libc::c_int;
        // SAFETY: STREAMON reads an int.
        unsafe { self.node.ioctl(vidioc::VIDIOC_STREAMON, &mut kind) }
    }

    /// Where the pieces of a buffer's memory stand.
    pub fn pieces(&self) -> Option<&MemoryPlanes> {
        self.buffers.first().map(|buffer| buffer.pieces())
    }

    /// Hands a buffer out, without a copy; it is queued again by [`reclaim`](Self::reclaim) after it was dropped.
    pub fn lend(&mut self, filled: Filled) -> Option<DriverBuffer> {
        let buffer = self.buffers.get(filled.index as usize)?;
        self.away += 1;
        let memory: Arc<dyn DriverMemory> = Arc::<BufferMemory>::clone(buffer);
        // SAFETY: the driver has a buffer only while it is queued; this one is queued when its number comes home.
        Some(unsafe { DriverBuffer::new(memory, filled.index, self.home.clone()) })
    }

    /// Queues the buffers that came back. Where the driver has none, waits `timeout` for one; `false`: it still has none.
    pub fn reclaim(&mut self, timeout: Duration) -> io::Result<bool> {
        while let Ok(index) = self.returned.try_recv() {
            self.away -= 1;
            self.queue(index)?;
        }
        if self.away == 0 || self.away < self.buffers.len() {
            return Ok(true);
        }
        match self.returned.recv_timeout(timeout) {
            Ok(index) => {
                self.away -= 1;
                self.queue(index)?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// How many buffers there are.
    pub fn buffer_count(&self) -> usize {
        self.buffers.len()
    }

    /// Takes a filled buffer; `None` while there is none.
    pub fn take(&mut self) -> io::Result<Option<Filled>> {
        let mut raw = RawBuffer::new(&self.node, self.memory, 0);
        let buffer = match raw.dequeue(&self.node) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => *result?,
        };
        let seconds = u64::try_from(buffer.timestamp.tv_sec).unwrap_or(0);
        let micros = u64::try_from(buffer.timestamp.tv_usec).unwrap_or(0);
        Ok(Some(Filled {
            index: buffer.index,
            used: raw.used(),
            flags: buffer.flags,
            sequence: buffer.sequence,
            timestamp_ns: seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000)),
        }))
    }

    /// The picture's bytes in a piece of its memory.
    pub fn bytes(&self, filled: &Filled, piece: usize) -> &[u8] {
        let Some(buffer) = self.buffers.get(filled.index as usize) else { return &[] };
        let (pieces, used) = (buffer.pieces(), filled.used[piece]);
        let end = used.end.min(pieces.length(piece));
        // SAFETY: the driver has a buffer only while it is queued; this one is not: a `Filled` comes from `take` alone, cannot
        // be copied, and `give_back`, which queues it, takes it away, so it is not borrowed then.
        let bytes = unsafe { buffer.bytes() };
        let start = pieces.starts()[piece];
        bytes.get(start + used.start.min(end)..start + end).unwrap_or(&[])
    }

    /// Hands the buffer to the driver to be filled again.
    pub fn give_back(&mut self, filled: Filled) -> io::Result<()> {
        self.queue(filled.index)
    }

    fn queue(&mut self, index: u32) -> io::Result<()> {
        let mut raw = RawBuffer::new(&self.node, self.memory, index);
        if let (MemoryType::UserPtr, Some(buffer)) = (self.memory, self.buffers.get(index as usize)) {
            buffer.point(&mut raw);
        }
        // SAFETY: what it points at is the buffer's memory, which is freed after `drop` has had the driver give everything back;
        // it is read through a `Filled` or a `DriverBuffer` alone, of which there is none for a buffer that is queued.
        match unsafe { raw.queue(&self.node) } {
            // A driver may refuse once for a reason that passes.
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                log::debug!("a buffer was not taken (QBUF: {error}), trying again");
                // SAFETY: as above.
                unsafe { raw.queue(&self.node) }
            }
            result => result,
        }
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
        // What is mapped and not lent is unmapped first: older kernels do not free what is mapped. Memory of ours the driver has
        // given back by STREAMOFF.
        if self.memory == MemoryType::Mmap {
            self.buffers.clear();
        }
        if let Err(error) = ioctl::request(&self.node, self.memory, 0) {
            // Gone; or a frame on its way still holds a mapping, and the kernel frees the buffers with it. Memory of ours that
            // the driver was not made to give back stays until it has: at the latest when the node is closed.
            log::debug!("a camera's buffers could not be freed (REQBUFS): {error}");
            self.node.keep(mem::take(&mut self.buffers));
        }
    }
}

#[cfg(test)]
mod tests;
