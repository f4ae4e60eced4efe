//! A captured frame, and the pool that its buffer goes back to.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use visiond_kernels::buffer::{BufferError, Memory, UnifiedBuffer};
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};

use super::v4l2::Lent;
use crate::pipeline::stop::Stop;

/// How long a wait for a buffer lasts before stop is looked at again.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Which instant of a frame its timestamp marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// The first line's exposure began (`V4L2_BUF_FLAG_TSTAMP_SRC_SOE`).
    StartOfExposure,
    /// The first line was received.
    StartOfFrame,
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
    pub buffer: FrameBytes,
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
        match &self.buffer {
            FrameBytes::Pooled(PooledBuffer { buffer: Some(buffer), .. }) => self.layout.view_of(buffer),
            FrameBytes::Pooled(PooledBuffer { buffer: None, .. }) => self.layout.view(&[]),
            FrameBytes::Driver(lent) => match lent.buffer() {
                Some(buffer) => self.layout.view_of(buffer),
                None => self.layout.view_at(lent.as_slice(), lent.device_address()),
            },
        }
    }
}

/// Where a frame's bytes are, until they go back to whoever fills them.
#[derive(Debug)]
pub enum FrameBytes {
    /// In a buffer of a pool.
    Pooled(PooledBuffer),
    /// In a buffer that the camera's driver fills, read in place.
    Driver(Lent),
}

impl FrameBytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer.as_slice(),
            Self::Driver(lent) => lent.as_slice(),
        }
    }
}

impl From<PooledBuffer> for FrameBytes {
    fn from(buffer: PooledBuffer) -> Self {
        Self::Pooled(buffer)
    }
}

/// Buffers that go round between a source and the lane; none is made after the pool.
#[derive(Debug)]
pub struct FramePool {
    free: Receiver<UnifiedBuffer>,
    home: Sender<UnifiedBuffer>,
}

impl FramePool {
    /// A pool of `count` buffers of `memory`, `bytes` each.
    pub fn new(memory: &Memory, count: usize, bytes: usize) -> Result<Self, BufferError> {
        let (home, free) = channel();
        for _ in 0..count {
            // The receiver is in this function, so the send cannot fail.
            let _ = home.send(memory.allocate(bytes)?);
        }
        Ok(Self { free, home })
    }

    /// A free buffer, or `None` while all are on their way.
    pub fn take(&self) -> Option<PooledBuffer> {
        self.free.try_recv().ok().map(|buffer| self.lend(buffer))
    }

    /// A buffer, waiting until one comes back; `None` when stop came first.
    pub fn take_wait(&self, stop: &Stop) -> Option<PooledBuffer> {
        while !stop.is_raised() {
            match self.free.recv_timeout(STOP_CHECK) {
                Ok(buffer) => return Some(self.lend(buffer)),
                Err(RecvTimeoutError::Timeout) => {}
                // Cannot happen, `self.home` is a sender; if it did, nothing would ever come.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    fn lend(&self, buffer: UnifiedBuffer) -> PooledBuffer {
        PooledBuffer { buffer: Some(buffer), home: self.home.clone() }
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

    /// Makes it hold at least `bytes`: a larger block of the same kind takes its place, its content is lost.
    ///
    /// For pictures, each of which has its own size; a camera's pool is made in the right size.
    pub fn grow(&mut self, bytes: usize) -> Result<(), BufferError> {
        if let Some(buffer) = &mut self.buffer
            && buffer.len() < bytes
        {
            *buffer = buffer.memory().allocate(bytes)?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{stopped_while_it_waits, while_it_waits};

    #[test]
    fn a_dropped_buffer_wakes_who_waits_for_one() {
        let pool = FramePool::new(&Memory::host(), 1, 16).unwrap();
        let lent = pool.take().unwrap();
        assert!(pool.take().is_none());
        let taken = while_it_waits(move |stop| pool.take_wait(stop).is_some(), |_| drop(lent));
        assert!(taken);
    }

    #[test]
    fn stop_ends_the_wait_for_a_buffer() {
        let pool = FramePool::new(&Memory::host(), 0, 16).unwrap();
        assert!(stopped_while_it_waits(move |stop| pool.take_wait(stop).is_none()));
    }

    #[test]
    fn a_buffer_grows_once_and_keeps_its_size_in_the_pool() {
        let pool = FramePool::new(&Memory::host(), 1, 0).unwrap();
        let mut buffer = pool.take().unwrap();
        buffer.grow(100).unwrap();
        drop(buffer);
        assert_eq!(pool.take().unwrap().as_slice().len(), 100);
    }
}
