//! A captured frame, and the pool that its buffer returns to.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use visiond_kernels::buffer::{BufferError, KEPT_BYTES, Memory, UnifiedBuffer};
use visiond_kernels::cuda::DeviceAddress;
use visiond_kernels::frame::{FrameCopyError, FrameError, FrameLayout, FrameView};
use visiond_kernels::nvdec::Surface;
use visiond_system::stop::Stop;

use crate::timestamp::Timestamp;

/// How often a wait for a buffer checks stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// A frame: its bytes, their layout, and its time.
///
/// Dropping it returns its buffer to the pool or the driver.
#[derive(Debug)]
pub struct Frame {
    /// Pixel format, size, planes and colours.
    pub layout: FrameLayout,
    /// The pixels.
    pub buffer: FrameBytes,
    /// Number from the driver, or counted by the source from 0. A gap is a frame that the source lost.
    pub sequence: u64,
    /// Time of the frame.
    pub timestamp: Timestamp,
    /// Its time in the recording that it comes from; `None` for a frame that was captured now.
    pub recorded_at: Option<Duration>,
    /// Whether it may show damage, because a frame that it refers to was lost in transit.
    pub damaged: bool,
    /// Name of the frame, if it has one: the path of an image.
    pub name: Option<Arc<str>>,
}

/// The metadata of a frame.
#[derive(Debug, Clone)]
pub struct FrameFacts {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format, as in the configuration.
    pub format: &'static str,
    /// See [`Frame::sequence`].
    pub sequence: u64,
    /// Time of the frame.
    pub timestamp: Timestamp,
    /// See [`Frame::recorded_at`].
    pub recorded_at: Option<Duration>,
    /// See [`Frame::damaged`].
    pub damaged: bool,
    /// See [`Frame::name`].
    pub name: Option<Arc<str>>,
}

impl FrameFacts {
    /// Returns when the scene was as the frame shows it, for spans between the frames of a camera: the time in the recording, otherwise
    /// on CLOCK_MONOTONIC.
    pub fn time(&self) -> Duration {
        self.recorded_at.unwrap_or(Duration::from_nanos(self.timestamp.monotonic_ns))
    }
}

/// Why a source lost frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The driver or the program behind the source dropped them.
    Driver,
    /// The frames were damaged or truncated.
    Corrupt,
    /// No buffer was free.
    Overload,
    /// A privacy mask could not be applied.
    Unmasked,
}

impl Frame {
    /// Returns the frame's metadata.
    pub fn facts(&self) -> FrameFacts {
        FrameFacts {
            width: self.layout.width(),
            height: self.layout.height(),
            format: self.layout.format().name(),
            sequence: self.sequence,
            timestamp: self.timestamp,
            recorded_at: self.recorded_at,
            damaged: self.damaged,
            name: self.name.clone(),
        }
    }

    /// See [`FrameFacts::time`].
    pub fn time(&self) -> Duration {
        self.recorded_at.unwrap_or(Duration::from_nanos(self.timestamp.monotonic_ns))
    }

    /// Returns a view of the pixels.
    ///
    /// # Errors
    /// The buffer is too small for the layout.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        match &self.buffer {
            FrameBytes::Pooled(PooledBuffer { buffer: Some(buffer), .. }) => self.layout.view_of(buffer),
            FrameBytes::Pooled(PooledBuffer { buffer: None, .. }) => self.layout.view(&[]),
            FrameBytes::Driver(lent) => match lent.memory.buffer() {
                Some(buffer) => self.layout.view_of(buffer),
                None => self.layout.view_at(lent.as_slice(), lent.device_address()),
            },
            FrameBytes::Surface(surface) => Ok(self.layout.view_on_gpu(surface)),
        }
    }

    /// Returns the bytes; those of a surface are copied into `copy`.
    ///
    /// # Errors
    /// CUDA cannot copy from the GPU.
    pub fn bytes<'a>(&'a self, copy: &'a mut Vec<u8>) -> Result<&'a [u8], FrameCopyError> {
        match &self.buffer {
            FrameBytes::Surface(surface) => {
                surface.copy_to(copy)?;
                Ok(copy)
            }
            buffer => Ok(buffer.as_slice()),
        }
    }
}

/// Buffer of a frame, borrowed from a pool or a driver.
#[derive(Debug)]
pub enum FrameBytes {
    /// A buffer of a pool.
    Pooled(PooledBuffer),
    /// A buffer of the camera's driver, used in place.
    Driver(DriverBuffer),
    /// A surface of the GPU's video decoder, which the host cannot read.
    Surface(Surface),
}

impl FrameBytes {
    /// Returns the bytes that the host can read; none for a surface.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer.as_slice(),
            Self::Driver(lent) => lent.as_slice(),
            Self::Surface(_) => &[],
        }
    }
}

/// Memory that a camera's driver fills: mapped from the driver, or provided by the process.
///
/// # Safety
/// [`bytes`](Self::bytes) returns the same initialised memory for as long as the value lives, and [`start`](Self::start) its first
/// byte, for reads and writes.
pub unsafe trait DriverMemory: std::fmt::Debug + Send + Sync {
    /// Returns the bytes of the whole buffer.
    ///
    /// # Safety
    /// The driver does not write to the buffer while the slice lives.
    unsafe fn bytes(&self) -> &[u8];

    /// Returns the first byte of the buffer.
    fn start(&self) -> NonNull<u8>;

    /// Returns the GPU address of the first byte, if the GPU can access it.
    fn device_address(&self) -> Option<DeviceAddress>;

    /// Returns the buffer that holds the bytes, if it has the model's kind of memory.
    fn buffer(&self) -> Option<&UnifiedBuffer>;
}

/// A driver's buffer that the pipeline reads. Dropping it returns it to the stream, which queues it again.
#[derive(Debug)]
pub struct DriverBuffer {
    memory: Arc<dyn DriverMemory>,
    index: u32,
    return_queue: Sender<u32>,
}

impl DriverBuffer {
    /// Wraps buffer `index` of the stream; `return_queue` receives the index when this is dropped.
    ///
    /// # Safety
    /// Neither the driver nor anything else accesses `memory` until `return_queue` has received `index`.
    pub unsafe fn new(memory: Arc<dyn DriverMemory>, index: u32, return_queue: Sender<u32>) -> Self {
        Self { memory, index, return_queue }
    }

    /// Returns the bytes of the whole buffer.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the caller of `new` promised that the driver does not write to the memory until `drop` sends the index.
        unsafe { self.memory.bytes() }
    }

    /// Returns the bytes of the whole buffer for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let length = self.as_slice().len();
        // SAFETY: the trait promises that the memory is that long, initialised and writable, and lives as long as `self`. The caller
        // of `new` promised that nothing else accesses it until `drop` sends the index, and `&mut self` makes this the only view.
        unsafe { slice::from_raw_parts_mut(self.memory.start().as_ptr(), length) }
    }

    /// Returns the GPU address of the first byte, if the GPU can access it.
    pub fn device_address(&self) -> Option<DeviceAddress> {
        self.memory.device_address()
    }
}

impl Drop for DriverBuffer {
    fn drop(&mut self) {
        // Fails if the stream has ended; the last owner of the memory then frees it.
        let _ = self.return_queue.send(self.index);
    }
}

impl From<PooledBuffer> for FrameBytes {
    fn from(buffer: PooledBuffer) -> Self {
        Self::Pooled(buffer)
    }
}

/// A fixed set of buffers that circulate between a source and the lane.
#[derive(Debug)]
pub struct FramePool {
    free: Receiver<UnifiedBuffer>,
    return_queue: Sender<UnifiedBuffer>,
}

impl FramePool {
    /// Allocates `count` buffers of `bytes` each.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(memory: &Memory, count: usize, bytes: usize) -> Result<Self, BufferError> {
        let (return_queue, free) = channel();
        for _ in 0..count {
            // The receiver is in this function, so the send cannot fail.
            let _ = return_queue.send(memory.allocate(bytes)?);
        }
        Ok(Self { free, return_queue })
    }

    /// Returns a free buffer, or `None` if all are in use.
    pub fn take(&self) -> Option<PooledBuffer> {
        self.free.try_recv().ok().map(|buffer| self.lend(buffer))
    }

    /// Waits for a free buffer; returns `None` if stop is raised first.
    pub fn take_wait(&self, stop: &Stop) -> Option<PooledBuffer> {
        while !stop.is_raised() {
            stop.mark_progress();
            // An error is a time-out: `self.return_queue` is a sender, so the channel stays connected.
            if let Ok(buffer) = self.free.recv_timeout(STOP_CHECK) {
                return Some(self.lend(buffer));
            }
        }
        None
    }

    /// Empties the free buffers that are larger than [`KEPT_BYTES`]. For a pool of images while there are none to read.
    pub fn trim(&self) {
        let free: Vec<_> = self.free.try_iter().collect();
        for buffer in free {
            let emptied = if buffer.len() > KEPT_BYTES { buffer.memory().allocate(0).ok() } else { None };
            // The receiver is in this pool, so the send cannot fail.
            let _ = self.return_queue.send(emptied.unwrap_or(buffer));
        }
    }

    fn lend(&self, buffer: UnifiedBuffer) -> PooledBuffer {
        PooledBuffer { buffer: Some(buffer), return_queue: self.return_queue.clone() }
    }
}

/// A buffer that returns to its pool when dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    /// `None` only inside `drop`.
    buffer: Option<UnifiedBuffer>,
    return_queue: Sender<UnifiedBuffer>,
}

impl PooledBuffer {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], UnifiedBuffer::as_slice)
    }

    /// Returns the bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], UnifiedBuffer::as_mut_slice)
    }

    /// Gives the buffer at least `bytes` bytes, and loses its content: see [`UnifiedBuffer::refit`].
    ///
    /// For images, which differ in size; a camera's pool has the right size from the start.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn refit(&mut self, bytes: usize) -> Result<(), BufferError> {
        self.buffer.as_mut().map_or(Ok(()), |buffer| buffer.refit(bytes))
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // Fails if the pool is gone; that frees the buffer here.
            let _ = self.return_queue.send(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use visiond_system::testing::{stopped_while_it_waits, while_it_waits};

    #[test]
    fn a_dropped_buffer_wakes_a_waiting_source() {
        let pool = FramePool::new(&Memory::host(), 1, 16).unwrap();
        let lent = pool.take().unwrap();
        assert!(pool.take().is_none());
        let taken = while_it_waits(move |stop| pool.take_wait(stop).is_some(), |_| drop(lent));
        assert!(taken);
    }

    #[test]
    fn the_bytes_of_a_frame_in_memory_are_those_of_its_buffer_without_a_copy() {
        let frame = crate::testing::frame(&crate::testing::pool(1), 7).unwrap();
        let mut copy = Vec::new();
        assert_eq!(frame.bytes(&mut copy).unwrap(), [7; 8]);
        assert!(copy.is_empty());
    }

    /// Memory in place of a driver's.
    #[derive(Debug)]
    struct Mapped(UnifiedBuffer);

    // SAFETY: the buffer is never replaced.
    unsafe impl DriverMemory for Mapped {
        unsafe fn bytes(&self) -> &[u8] {
            self.0.as_slice()
        }

        fn start(&self) -> NonNull<u8> {
            self.0.start()
        }

        fn device_address(&self) -> Option<DeviceAddress> {
            None
        }

        fn buffer(&self) -> Option<&UnifiedBuffer> {
            None
        }
    }

    #[test]
    fn a_drivers_buffer_is_used_in_place_and_goes_back_when_its_frame_is_dropped() {
        let (send, back) = std::sync::mpsc::channel();
        let mut memory = Mapped(UnifiedBuffer::host(9).unwrap());
        memory.0.as_mut_slice().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // SAFETY: nothing else has the memory.
        let lent = unsafe { DriverBuffer::new(Arc::new(memory), 3, send) };
        assert!(lent.device_address().is_none());
        let mut frame =
            Frame { buffer: FrameBytes::Driver(lent), ..crate::testing::frame(&crate::testing::pool(1), 0).unwrap() };
        assert_eq!(frame.bytes(&mut Vec::new()).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let FrameBytes::Driver(lent) = &mut frame.buffer else { panic!("{frame:?}") };
        lent.as_mut_slice()[1] = 0;
        assert_eq!(frame.bytes(&mut Vec::new()).unwrap()[..3], [1, 0, 3]);
        assert_eq!((frame.view().unwrap().width(), frame.view().unwrap().height()), (4, 2));
        assert!(back.try_recv().is_err());
        drop(frame);
        assert_eq!(back.try_recv(), Ok(3));
    }

    #[test]
    fn stop_ends_the_wait_for_a_buffer() {
        let pool = FramePool::new(&Memory::host(), 0, 16).unwrap();
        assert!(stopped_while_it_waits(move |stop| pool.take_wait(stop).is_none()));
    }

    #[test]
    fn a_buffer_keeps_its_size_in_the_pool_until_that_is_trimmed() {
        let pool = FramePool::new(&Memory::host(), 2, 0).unwrap();
        let sizes = || {
            let buffers: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            buffers.iter().map(|buffer| buffer.as_slice().len()).collect::<Vec<_>>()
        };
        let (mut small, mut large) = (pool.take().unwrap(), pool.take().unwrap());
        small.refit(KEPT_BYTES).unwrap();
        large.refit(KEPT_BYTES + 1).unwrap();
        drop((small, large));
        assert_eq!(sizes(), [KEPT_BYTES, KEPT_BYTES + 1]);
        pool.trim();
        assert_eq!(sizes(), [KEPT_BYTES, 0]);
    }
}
