//! Streams: queues of work on the GPU.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUmemAttach_flags, CUstream, CUstream_flags};

use super::device::{Device, DeviceAddress};
use super::driver::Driver;
use super::error::CudaError;

/// How a GPU orders the work of streams that wait for it.
///
/// The GPU starts waiting blocks of a kernel in a stream of high priority first. It does not interrupt blocks that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamPriority {
    /// The default, which is the lowest.
    #[default]
    Normal,
    /// The highest that the GPU has.
    High,
}

/// A queue of work, which runs in order and concurrently with other streams. It does not wait for the legacy default stream.
#[derive(Debug)]
pub struct CudaStream {
    device: Arc<Device>,
    pub(super) handle: CUstream,
}

// SAFETY: the driver allows a stream on any thread and locks it.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// Makes a stream of normal priority.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::with_priority(device, StreamPriority::Normal)
    }

    /// Makes a stream. A graph has the priority of the stream that it is launched in.
    pub fn with_priority(device: &Arc<Device>, priority: StreamPriority) -> Result<Self, CudaError> {
        let driver = device.driver()?;
        // The greatest priority has the lowest number; both are 0 on a GPU without priorities.
        let (mut normal, mut greatest) = (0, 0);
        // SAFETY: both numbers outlive the call; the context is current.
        unsafe { driver.stream_priorities(&mut normal, &mut greatest) }?;
        let number = match priority {
            StreamPriority::Normal => normal,
            StreamPriority::High => greatest,
        };
        let mut handle = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `handle` outlives the call; the context is current.
        unsafe { driver.stream_create(&mut handle, flags, number) }?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Returns the GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the `CUstream`, which is also the `cudaStream_t` of CUDA's runtime.
    pub fn raw(&self) -> *mut c_void {
        self.handle.cast()
    }

    /// Waits until all queued work is done, without spinning.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is alive; the context is current.
        unsafe { self.device.driver()?.stream_synchronize(self.handle) }
    }

    /// Queues a copy from the host; returns without waiting if `from` is pinned memory.
    ///
    /// # Safety
    /// `to` has room for the bytes; both stay alive, and `from` unchanged, until the copy is done, and for every launch of a
    /// captured graph.
    pub unsafe fn copy_to_device(&self, from: &[u8], to: DeviceAddress) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.queue(from.len(), |driver| unsafe {
            driver.copy_to_device(to.0, from.as_ptr().cast(), from.len(), self.handle)
        })
    }

    /// Queues a copy to the host; returns without waiting if `to` is pinned memory.
    ///
    /// # Safety
    /// `from` holds that many bytes; both stay alive, and `to` is not accessed, until the copy is done, and for every launch of
    /// a captured graph.
    pub unsafe fn copy_to_host(&self, from: DeviceAddress, to: &mut [u8]) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.queue(to.len(), |driver| unsafe {
            driver.copy_to_host(to.as_mut_ptr().cast(), from.0, to.len(), self.handle)
        })
    }

    /// Queues a copy within the GPU's memory.
    ///
    /// # Safety
    /// Both ranges are of that length, do not overlap, and stay alive until the copy is done.
    pub unsafe fn copy_on_device(&self, from: DeviceAddress, to: DeviceAddress, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.queue(bytes, |driver| unsafe { driver.copy_on_device(to.0, from.0, bytes, self.handle) })
    }

    /// Queues filling `bytes` bytes with `value`.
    ///
    /// # Safety
    /// The range has that length and stays alive until it is filled.
    pub unsafe fn fill(&self, to: DeviceAddress, value: u8, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.queue(bytes, |driver| unsafe { driver.fill(to.0, value, bytes, self.handle) })
    }

    /// Calls the driver for `bytes` bytes, unless there are none.
    fn queue(&self, bytes: usize, call: impl FnOnce(&Driver) -> Result<(), CudaError>) -> Result<(), CudaError> {
        if bytes == 0 { Ok(()) } else { call(self.device.driver()?) }
    }

    /// Attaches managed memory to this stream, or back to the host, in the stream's order.
    ///
    /// # Safety
    /// `base` is the start of a block of managed memory that outlives the work; after attaching it, the host does not access it
    /// until it was attached back and that is done.
    pub(crate) unsafe fn attach(&self, base: DeviceAddress, to_host: bool) -> Result<(), CudaError> {
        let owner =
            if to_host { CUmemAttach_flags::CU_MEM_ATTACH_HOST } else { CUmemAttach_flags::CU_MEM_ATTACH_SINGLE };
        // SAFETY: the caller's promise; length 0 means the whole block.
        unsafe { self.device.driver()?.stream_attach(self.handle, base.0, 0, owner as u32) }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once, here; the driver finishes the remaining work.
        self.device.release(|driver| unsafe { driver.stream_destroy(self.handle) });
    }
}
