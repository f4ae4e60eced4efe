//! The GPU's own memory, and memory that CPU and GPU share.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemAttach_flags};

use super::{CudaError, CudaStream, Device, DeviceAddress};

/// Memory that only the GPU can access.
#[derive(Debug)]
pub struct DeviceBuffer {
    device: Arc<Device>,
    address: DeviceAddress,
    len_bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `len_bytes` uninitialised bytes, which may be 0.
    pub fn new(device: &Arc<Device>, len_bytes: usize) -> Result<Self, CudaError> {
        let mut address = 0;
        // SAFETY: `address` outlives the call; the context is current. CUDA refuses 0 bytes, so this asks for at least 1.
        unsafe { device.driver()?.alloc(&mut address, len_bytes.max(1)) }?;
        Ok(Self { device: device.clone(), address: DeviceAddress(address), len_bytes })
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> DeviceAddress {
        self.address
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
        unsafe { stream.fill(self.address, 0, self.len_bytes) }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` and freed once, here; the context is current.
        self.device.release(|driver| unsafe { driver.free(self.address.0) });
    }
}

/// The origin of shared pages, which determines how to free them.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// `cuMemHostAlloc`.
    Mapped,
    /// `cuMemAllocManaged`; `lent` if the memory is attached to the host or to one stream at a time.
    Managed { lent: bool },
    /// Foreign memory and `cuMemHostRegister`.
    Registered,
}

/// Memory of the host that the GPU can access: one host pointer and one device address.
#[derive(Debug)]
pub(crate) struct SharedPages {
    device: Arc<Device>,
    start: NonNull<u8>,
    address: DeviceAddress,
    origin: Origin,
}

// SAFETY: the value only returns addresses and gives the pages back; pinned, managed and registered memory is not tied to a
// thread.
unsafe impl Send for SharedPages {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Allocates zeroed pinned host memory that the GPU reads in place: portable, mapped, cached (not write-combined, which the
    /// CPU reads at a hundredth of the speed).
    pub(crate) fn mapped(device: &Arc<Device>, len_bytes: usize) -> Result<Self, CudaError> {
        let mut start = ptr::null_mut();
        let wanted = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: `start` outlives the call; the context is current; at least 1 byte, as CUDA wants.
        unsafe { device.driver()?.alloc_host(&mut start, len_bytes.max(1), wanted) }?;
        let mut pages = Self::at_host_pointer(device, valid(start)?, Origin::Mapped)?;
        pages.zero(len_bytes);
        Ok(pages)
    }

    /// Allocates zeroed managed memory. With `lent`, it starts attached to the host and is attached to one stream at a time:
    /// required if the CPU must not access it while the GPU works, and allowed everywhere.
    pub(crate) fn managed(device: &Arc<Device>, len_bytes: usize, lent: bool) -> Result<Self, CudaError> {
        let attached =
            if lent { CUmemAttach_flags::CU_MEM_ATTACH_HOST } else { CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL };
        let mut address = 0;
        // SAFETY: `address` outlives the call; the context is current; at least 1 byte, as CUDA wants.
        unsafe { device.driver()?.alloc_managed(&mut address, len_bytes.max(1), attached as u32) }?;
        let address = DeviceAddress(address);
        let start = valid(address.as_ptr())?;
        let mut pages = Self { device: device.clone(), start, address, origin: Origin::Managed { lent } };
        pages.zero(len_bytes);
        Ok(pages)
    }

    /// Takes ownership of pages that were just allocated or registered as mapped, and queries their address on the GPU.
    fn at_host_pointer(device: &Arc<Device>, start: NonNull<u8>, origin: Origin) -> Result<Self, CudaError> {
        let mut pages = Self { device: device.clone(), start, address: DeviceAddress(0), origin };
        // SAFETY: the address outlives the call; the pages are mapped in this context.
        unsafe { device.driver()?.host_address(&mut pages.address.0, start.as_ptr().cast(), 0) }?;
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
        matches!(self.origin, Origin::Managed { lent: true })
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        self.device.release(|driver| match self.origin {
            // SAFETY: allocated by `mapped` and freed once, here; the context is current.
            Origin::Mapped => unsafe { driver.free_host(start) },
            // SAFETY: allocated by `managed` and freed once, here; the context is current.
            Origin::Managed { .. } => unsafe { driver.free(self.address.0) },
            // SAFETY: registered by `RegisteredPages::new` and undone once, here; the pages are still mapped (the promise to it).
            Origin::Registered => unsafe { driver.unregister(start) },
        });
    }
}

/// Foreign pages, such as a capture driver's, that the GPU reads in place while this value lives.
#[derive(Debug)]
pub struct RegisteredPages(SharedPages);

impl RegisteredPages {
    /// Makes `len_bytes` bytes from `start` on visible to the GPU.
    ///
    /// The driver refuses pages that it cannot pin, such as a device's own memory mapped into the process; copy those.
    ///
    /// # Safety
    /// The pages stay mapped, readable and writable until the value is dropped, and no GPU work reads them after that.
    pub unsafe fn new(device: &Arc<Device>, start: NonNull<u8>, len_bytes: usize) -> Result<Self, CudaError> {
        let wanted = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range is mapped (the caller's promise); the context is current; undone once, when the pages are dropped.
        unsafe { device.driver()?.register(start.as_ptr().cast(), len_bytes, wanted) }?;
        Ok(Self(SharedPages::at_host_pointer(device, start, Origin::Registered)?))
    }

    /// Returns the address of the first page on the GPU.
    pub fn device_address(&self) -> DeviceAddress {
        self.0.address
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
