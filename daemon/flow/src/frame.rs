//! A captured frame, and the pool that its buffer goes back to.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use visiond_kernels::buffer::{BufferError, Memory, UnifiedBuffer};
use visiond_kernels::cuda::DeviceAddress;
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};
use visiond_system::stop::Stop;

use crate::timestamp::Timestamp;

/// How long a wait for a buffer lasts before stop is looked at again.
const STOP_CHECK: Duration = Duration::from_millis(50);

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
    pub name: Option<Arc<str>>,
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
    Driver(DriverBuffer),
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

/// Memory that a camera's driver fills, mapped or handed to it by the process.
///
/// # Safety
/// [`bytes`](Self::bytes) returns the same initialised memory for as long as the value lives.
pub unsafe trait DriverMemory: std::fmt::Debug + Send + Sync {
    /// The bytes of the whole buffer.
    ///
    /// # Safety
    /// The driver does not write to the buffer while the slice lives.
    unsafe fn bytes(&self) -> &[u8];

    /// Where the GPU sees the first byte, if it does.
    fn device_address(&self) -> Option<DeviceAddress>;

    /// The buffer that the bytes stand in, where it is one of the model's kind of memory.
    fn buffer(&self) -> Option<&UnifiedBuffer>;
}

/// A driver's buffer that is read by the pipeline. Dropping it gives it back to the stream, which queues it again.
#[derive(Debug)]
pub struct DriverBuffer {
    memory: Arc<dyn DriverMemory>,
    index: u32,
    home: Sender<u32>,
}

impl DriverBuffer {
    /// Takes buffer `index` out of the stream; `home` receives the index when it is dropped.
    ///
    /// # Safety
    /// The driver does not write to `memory` until `home` has received `index`.
    pub unsafe fn new(memory: Arc<dyn DriverMemory>, index: u32, home: Sender<u32>) -> Self {
        Self { memory, index, home }
    }

    /// The bytes of all its memory.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the constructor's promise: the driver leaves the memory alone until `drop` sends the index.
        unsafe { self.memory.bytes() }
    }

    /// Where the GPU sees the first byte.
    pub fn device_address(&self) -> Option<DeviceAddress> {
        self.memory.device_address()
    }

    /// The buffer that the bytes stand in, where it is one of the model's kind of memory.
    pub fn buffer(&self) -> Option<&UnifiedBuffer> {
        self.memory.buffer()
    }
}

impl Drop for DriverBuffer {
    fn drop(&mut self) {
        // A stream that has ended wants no buffer back; the last owner of the memory frees it.
        let _ = self.home.send(self.index);
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
            stop.mark_progress();
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
    use visiond_system::testing::{stopped_while_it_waits, while_it_waits};

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
