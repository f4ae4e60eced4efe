//! The GPU's own memory, and memory that CPU and GPU share.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use super::driver::flags;
use super::{CudaError, CudaStream, Device, DeviceAddress};

/// Memory that only the GPU can access.
pub struct DeviceBuffer {
    device: Arc<Device>,
    address: CUdeviceptr,
    len_bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `len_bytes` uninitialised bytes, which may be 0.
    pub fn new(device: &Arc<Device>, len_bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let mut address = 0;
        // SAFETY: `address` outlives the call; the context is current. CUDA refuses 0 bytes, so this asks for at least 1.
        unsafe { device.driver.alloc(&mut address, len_bytes.max(1)) }?;
        Ok(Self { device: device.clone(), address, len_bytes })
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> DeviceAddress {
        DeviceAddress(self.address)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Queues filling with zeros on `stream` and returns without waiting. The buffer must outlive that work: dropping it waits
    /// for the GPU.
    pub fn zero(&mut self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: the range is this buffer's; `cuMemFree` waits for work on the memory before it frees it.
        unsafe { stream.fill(self.address(), 0, self.len_bytes) }
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes)", self.len_bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let freed = self.device.bind().and_then(|()| {
            // SAFETY: allocated by `new` and freed once, here; the context is current.
            unsafe { self.device.driver.free(self.address) }
        });
        if let Err(error) = freed {
            log::warn!("{error}");
        }
    }
}

/// Memory from `cuMemHostAlloc` or `cuMemAllocManaged`: one host pointer and one device address.
pub(crate) struct SharedPages {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: DeviceAddress,
    managed: bool,
    /// Whether the memory is attached to the host or to one stream at a time.
    lent: bool,
}

// SAFETY: only this value uses the pages; portable pinned and managed memory is not tied to a thread.
unsafe impl Send for SharedPages {}
// SAFETY: shared access only reads.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Allocates zeroed pinned host memory that the GPU reads in place: portable, mapped, cached (not write-combined, which the
    /// CPU reads at a hundredth of the speed).
    pub(crate) fn mapped(device: &Arc<Device>, len_bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let mut start: *mut c_void = ptr::null_mut();
        let wanted = flags::MEMHOSTALLOC_PORTABLE | flags::MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: `start` outlives the call; the context is current; at least 1 byte, as CUDA wants.
        unsafe { device.driver.alloc_host(&mut start, len_bytes.max(1), wanted) }?;
        let start = valid(start)?;
        let mut pages = Self { device: device.clone(), start, address: DeviceAddress(0), managed: false, lent: false };
        let mut address = 0;
        // SAFETY: `address` outlives the call; the block was allocated as mapped in this context.
        unsafe { device.driver.host_address(&mut address, start.as_ptr().cast(), 0) }?;
        pages.address = DeviceAddress(address);
        pages.zero(len_bytes);
        Ok(pages)
    }

    /// Allocates zeroed managed memory. With `lent`, it starts attached to the host and is attached to one stream at a time:
    /// required if the CPU must not access it while the GPU works, and allowed everywhere.
    pub(crate) fn managed(device: &Arc<Device>, len_bytes: usize, lent: bool) -> Result<Self, CudaError> {
        device.bind()?;
        let attached = if lent { flags::MEM_ATTACH_HOST } else { flags::MEM_ATTACH_GLOBAL };
        let mut address = 0;
        // SAFETY: `address` outlives the call; the context is current; at least 1 byte, as CUDA wants.
        unsafe { device.driver.alloc_managed(&mut address, len_bytes.max(1), attached) }?;
        let start = valid(DeviceAddress(address).as_ptr())?;
        let mut pages = Self { device: device.clone(), start, address: DeviceAddress(address), managed: true, lent };
        pages.zero(len_bytes);
        Ok(pages)
    }

    fn zero(&mut self, len_bytes: usize) {
        // SAFETY: the block has at least `len_bytes` bytes, is new, and the host may write it: no GPU work refers to it yet.
        unsafe { self.start.as_ptr().write_bytes(0, len_bytes) }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Whether the memory must be attached to a stream before the GPU may read it, and detached before the host may.
    pub(crate) fn needs_attaching(&self) -> bool {
        self.lent
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        let freed = self.device.bind().and_then(|()| {
            if self.managed {
                // SAFETY: allocated by `managed` and freed once, here; the context is current.
                unsafe { self.device.driver.free(self.address.0) }
            } else {
                // SAFETY: allocated by `mapped` and freed once, here; the context is current.
                unsafe { self.device.driver.free_host(self.start.as_ptr().cast()) }
            }
        });
        if let Err(error) = freed {
            log::warn!("{error}");
        }
    }
}

/// Foreign pages, such as a capture driver's, that the GPU reads in place while this value lives.
pub struct RegisteredPages {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: DeviceAddress,
}

// SAFETY: the value only undoes the registration, which any thread may do.
unsafe impl Send for RegisteredPages {}
// SAFETY: it only returns an address.
unsafe impl Sync for RegisteredPages {}

impl RegisteredPages {
    /// Makes `len_bytes` bytes from `start` on visible to the GPU.
    ///
    /// The driver refuses pages that it cannot pin, such as a device's own memory mapped into the process; copy those.
    ///
    /// # Safety
    /// The pages stay mapped, readable and writable until the value is dropped, and no GPU work reads them after that.
    pub unsafe fn new(device: &Arc<Device>, start: NonNull<u8>, len_bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let wanted = flags::MEMHOSTREGISTER_PORTABLE | flags::MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range is mapped (the caller's promise); the context is current; undone once, in `drop`.
        unsafe { device.driver.register(start.as_ptr().cast(), len_bytes, wanted) }?;
        let mut pages = Self { device: device.clone(), start, address: DeviceAddress(0) };
        let mut address = 0;
        // SAFETY: `address` outlives the call; the range was just registered as mapped.
        unsafe { device.driver.host_address(&mut address, start.as_ptr().cast(), 0) }?;
        pages.address = DeviceAddress(address);
        Ok(pages)
    }

    /// Returns the address of the first page on the GPU.
    pub fn device_address(&self) -> DeviceAddress {
        self.address
    }
}

impl fmt::Debug for RegisteredPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisteredPages({:p} at {:#x})", self.start, self.address.0)
    }
}

impl Drop for RegisteredPages {
    fn drop(&mut self) {
        let undone = self.device.bind().and_then(|()| {
            // SAFETY: registered by `new` and undone once, here; the pages are still mapped (the promise to `new`).
            unsafe { self.device.driver.unregister(self.start.as_ptr().cast()) }
        });
        if let Err(error) = undone {
            log::warn!("{error}");
        }
    }
}

/// Checks a pointer from CUDA. CUDA never returns null with success; if it does, that is an error and not a crash.
fn valid(start: *mut c_void) -> Result<NonNull<u8>, CudaError> {
    NonNull::new(start.cast()).ok_or_else(|| CudaError {
        call: "allocating",
        code: 0,
        name: "success with a null pointer".into(),
    })
}
