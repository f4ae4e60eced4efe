//! Memory that a camera writes once and a kernel reads once.
//!
//! A [`UnifiedBuffer`] owns one page-aligned block, and its [`MemoryKind`] says who can access it; a [`Memory`] allocates
//! buffers. Everything above uses slices and device addresses, so another kind of memory is one variant here and changes
//! nothing elsewhere. [`RegisteredPages`] makes foreign memory, such as a capture driver's, visible to the GPU.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::cuda::RegisteredPages;
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, SharedPages};

/// The alignment of host memory: a page, so that a driver can map it and a GPU can register it.
///
/// 64 KiB is the largest base page of the supported kernels (aarch64 can be built with 4, 16 or 64 KiB pages).
pub const PAGE_BYTES: usize = 64 * 1024;

/// A buffer for frames of varying size keeps up to this much, 4K in RGB, after a smaller frame.
pub const KEPT_BYTES: usize = 32 << 20;

/// Who can access a buffer's bytes, and at what cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum MemoryKind {
    /// Ordinary memory of the process, page-aligned; no GPU can access it.
    #[default]
    Host,
    /// Pinned host memory that the GPU reads in place: over the bus, or directly on an integrated GPU.
    Mapped,
    /// Memory that the driver moves to whichever processor accesses it.
    Managed,
}

impl MemoryKind {
    /// Returns the name used in the configuration, the log and `probe`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a buffer cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// The system has too little memory.
    #[error("cannot allocate {0} bytes of host memory: free memory, or lower the frame size or the number of buffers")]
    OutOfMemory(usize),
    /// CUDA cannot allocate the block.
    #[error("cannot allocate {bytes} bytes of {kind} memory: {error}")]
    Cuda {
        /// The requested size.
        bytes: usize,
        /// The requested kind.
        kind: MemoryKind,
        /// The error from CUDA.
        #[source]
        error: CudaError,
    },
    /// The GPU, named with its SM, does not support this kind.
    #[error("{0} has no {1} memory: choose `auto`")]
    Unsupported(String, MemoryKind),
}

/// Allocates buffers of one kind for one GPU.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    kind: MemoryKind,
    device: Option<Arc<Device>>,
    /// Whether managed memory is attached to the host or to one stream at a time.
    lent: bool,
}

impl Memory {
    /// Returns memory that no GPU can access.
    pub fn host() -> Self {
        Self::default()
    }

    /// Returns memory of `kind` for `device`; host memory is for no GPU.
    pub fn on(device: &Arc<Device>, kind: MemoryKind) -> Result<Self, BufferError> {
        let facts = device.facts();
        let supported = match kind {
            MemoryKind::Host => true,
            MemoryKind::Mapped => facts.can_map_host_memory,
            MemoryKind::Managed => facts.managed_memory,
        };
        if !supported {
            return Err(BufferError::Unsupported(facts.label(), kind));
        }
        let lent = kind == MemoryKind::Managed && !facts.concurrent_managed_access;
        Ok(Self { kind, device: Some(device.clone()), lent })
    }

    /// Returns managed memory that must be attached to a stream, on any GPU, although only GPUs without concurrent access need
    /// it. With this, a check can follow a Jetson's path of frames on another GPU.
    pub fn lent(device: &Arc<Device>) -> Result<Self, BufferError> {
        Ok(Self { lent: true, ..Self::on(device, MemoryKind::Managed)? })
    }

    /// Returns who can access the bytes.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns the GPU, if there is one.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }

    /// Whether its buffers need attaching: [`UnifiedBuffer::needs_attaching`].
    pub fn needs_attaching(&self) -> bool {
        self.lent
    }

    /// Allocates a zeroed buffer of `len_bytes` bytes, which may be 0.
    pub fn allocate(&self, len_bytes: usize) -> Result<UnifiedBuffer, BufferError> {
        let shared = match (self.kind, &self.device) {
            (MemoryKind::Mapped, Some(device)) => Some(SharedPages::mapped(device, len_bytes)),
            (MemoryKind::Managed, Some(device)) => Some(SharedPages::managed(device, len_bytes, self.lent)),
            // `on` and `lent` are the only ways to kinds other than host, and both set a device.
            (MemoryKind::Host, _) | (_, None) => None,
        };
        let cuda = |error| BufferError::Cuda { bytes: len_bytes, kind: self.kind, error };
        let pages = match shared {
            Some(pages) => Pages::Shared(pages.map_err(cuda)?),
            None => Pages::Host(HostPages::new(len_bytes).ok_or(BufferError::OutOfMemory(len_bytes))?),
        };
        Ok(UnifiedBuffer { memory: self.clone(), pages, len_bytes })
    }
}

/// One page-aligned block of memory, zeroed when allocated, freed when dropped.
///
/// If the GPU can access it, the owner ensures the order: after queuing GPU work on [`device_address`](Self::device_address),
/// wait for that work before the bytes are written again or the buffer is dropped.
#[derive(Debug)]
pub struct UnifiedBuffer {
    memory: Memory,
    pages: Pages,
    len_bytes: usize,
}

/// The owner of the bytes.
#[derive(Debug)]
enum Pages {
    Host(HostPages),
    Shared(SharedPages),
}

impl UnifiedBuffer {
    /// Allocates a zeroed buffer of host memory.
    pub fn host(len_bytes: usize) -> Result<Self, BufferError> {
        Memory::host().allocate(len_bytes)
    }

    /// Returns the memory that the buffer is from.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns who can access the bytes.
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Replaces the buffer, and loses its content, if it has less than `len_bytes`, or is so large that it should be freed.
    ///
    /// For frames of varying size. One large image must not hold its memory forever, and images of a similar size must not allocate
    /// each time: a buffer stays up to twice the size, or twice [`KEPT_BYTES`]. The old one is freed first.
    ///
    /// # Errors
    /// The memory cannot be allocated; the buffer may be empty then.
    pub fn refit(&mut self, len_bytes: usize) -> Result<(), BufferError> {
        if self.len_bytes < len_bytes || self.len_bytes / 2 > len_bytes.max(KEPT_BYTES) {
            *self = self.memory.allocate(0)?;
            *self = self.memory.allocate(len_bytes)?;
        }
        Ok(())
    }

    /// Returns the address of the first byte, for a capture driver that fills the buffer.
    ///
    /// The caller ensures that nothing reads the bytes while they are written.
    pub fn start(&self) -> NonNull<u8> {
        match &self.pages {
            Pages::Host(pages) => pages.start,
            Pages::Shared(pages) => pages.start(),
        }
    }

    /// Returns the first byte's address on the GPU; none for host memory.
    pub fn device_address(&self) -> Option<DeviceAddress> {
        match &self.pages {
            Pages::Host(_) => None,
            Pages::Shared(pages) => Some(pages.address()),
        }
    }

    /// Whether GPU work on the buffer must be between [`attach`](Self::attach) and [`detach`](Self::detach): for managed memory
    /// that the CPU must not access while the GPU works.
    pub fn needs_attaching(&self) -> bool {
        matches!(&self.pages, Pages::Shared(pages) if pages.needs_attaching())
    }

    /// Attaches the bytes to `stream`, for work that is queued from now on. Does nothing if
    /// [`needs_attaching`](Self::needs_attaching) is false. Not allowed within a capture.
    ///
    /// # Safety
    /// The host does not access the bytes until [`detach`](Self::detach) was called and `stream` has reached it.
    pub unsafe fn attach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.hand_over(stream, false)
    }

    /// Returns the bytes to the host when `stream` reaches this point. Does nothing if attaching did nothing.
    pub fn detach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.hand_over(stream, true)
    }

    fn hand_over(&self, stream: &CudaStream, to_host: bool) -> Result<(), CudaError> {
        match &self.pages {
            // SAFETY: the block is managed and its owner keeps it until the work is done (the type's own rule); the caller of
            // `attach` promised that the host does not access it.
            Pages::Shared(pages) if pages.needs_attaching() => unsafe { stream.attach(pages.address(), to_host) },
            _ => Ok(()),
        }
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `pages` owns at least `len_bytes` initialised (zeroed) bytes that live as long as `self`; `&self` excludes
        // writers.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len_bytes) }
    }

    /// Returns the bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len_bytes) }
    }
}

/// Page-aligned memory from the global allocator.
#[derive(Debug)]
struct HostPages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pages belong to this value alone; nothing about them is tied to a thread.
unsafe impl Send for HostPages {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostPages {}

impl HostPages {
    fn new(len_bytes: usize) -> Option<Self> {
        // At least one byte, because the allocator's contract excludes empty layouts.
        let layout = Layout::from_size_align(len_bytes.max(1), PAGE_BYTES).ok()?;
        // SAFETY: the layout's size is at least 1.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_buffer_is_zeroed_aligned_and_writable() {
        let mut buffer = UnifiedBuffer::host(70_000).unwrap();
        assert_eq!(buffer.as_slice().as_ptr() as usize % PAGE_BYTES, 0);
        assert!(buffer.as_slice().iter().all(|&b| b == 0));
        buffer.as_mut_slice()[69_999] = 7;
        assert_eq!(buffer.as_slice()[69_999], 7);
        assert_eq!(buffer.kind(), MemoryKind::Host);
    }

    #[test]
    fn a_buffer_follows_the_frames_size_and_is_kept_for_a_similar_one() {
        let mut buffer = UnifiedBuffer::host(0).unwrap();
        let mut after = |len_bytes| {
            buffer.refit(len_bytes).unwrap();
            buffer.len()
        };
        assert_eq!([100, 70, 200].map(&mut after), [100, 100, 200]);
        let large = 2 * KEPT_BYTES;
        assert_eq!([large, 1, 2 * large, large, 1].map(&mut after), [large, large, 2 * large, 2 * large, 1]);
    }

    #[test]
    fn an_impossible_size_is_an_error_that_names_it() {
        let error = UnifiedBuffer::host(usize::MAX).unwrap_err();
        assert!(error.to_string().contains(&usize::MAX.to_string()), "{error}");
    }

    #[test]
    fn an_empty_buffer_is_allowed() {
        assert!(UnifiedBuffer::host(0).unwrap().is_empty());
    }
}
