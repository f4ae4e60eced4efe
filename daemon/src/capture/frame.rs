//! A captured frame, and the pool that its buffer goes back to.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use visiond_kernels::buffer::{BufferError, MemoryKind, UnifiedBuffer};
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};

/// Which instant of a frame its timestamp marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// The first line's exposure began (`V4L2_BUF_FLAG_TSTAMP_SRC_SOE`).
    StartOfExposure,
    /// The last byte was received (`V4L2_BUF_FLAG_TSTAMP_SRC_EOF`, V4L2's default, and every source that is no camera).
    EndOfFrame,
}

/// When a frame was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// The same instant on CLOCK_REALTIME, nanoseconds since 1970 UTC.
    pub realtime_ns: u64,
    /// What it marks.
    pub instant: Instant,
}

/// One frame: its bytes, what they mean, and when they were taken.
///
/// Dropping it gives its buffer back to whoever fills buffers.
#[derive(Debug)]
pub struct Frame {
    /// Pixel format, size, planes, colours.
    pub layout: FrameLayout,
    /// The bytes.
    pub buffer: PooledBuffer,
    /// The driver's number, or the source's own count from 0; a gap is a frame that the source lost.
    pub sequence: u64,
    /// When it was taken.
    pub timestamp: Timestamp,
    /// What the frame is called where it has a name of its own (a picture's path).
    pub name: Option<std::sync::Arc<str>>,
}

impl Frame {
    /// The pixels.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        self.layout.view(self.buffer.as_slice())
    }
}

/// Buffers that go round between a source and the lane; none is made after the pool.
#[derive(Debug)]
pub struct FramePool {
    free: Receiver<UnifiedBuffer>,
    home: Sender<UnifiedBuffer>,
}

impl FramePool {
    /// A pool of `count` buffers of `bytes` each.
    pub fn new(kind: MemoryKind, count: usize, bytes: usize) -> Result<Self, BufferError> {
        let (home, free) = channel();
        for _ in 0..count {
            // The receiver is in this function, so the send cannot fail.
            let _ = home.send(UnifiedBuffer::new(kind, bytes)?);
        }
        Ok(Self { free, home })
    }

    /// A free buffer, or `None` while all are on their way.
    pub fn take(&self) -> Option<PooledBuffer> {
        match self.free.try_recv() {
            Ok(buffer) => Some(PooledBuffer { buffer: Some(buffer), home: self.home.clone() }),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

/// A buffer that goes back to its pool when dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    /// `None` only inside `drop`.
    buffer: Option<UnifiedBuffer>,
    home: Sender<UnifiedBuffer>,
}

impl PooledBuffer {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], UnifiedBuffer::as_slice)
    }

    /// The bytes, to fill.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], UnifiedBuffer::as_mut_slice)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // A pool that is gone wants no buffer back; it is freed here.
            let _ = self.home.send(buffer);
        }
    }
}
