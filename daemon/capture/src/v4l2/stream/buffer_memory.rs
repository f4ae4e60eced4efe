//! The memory of one buffer: one range of addresses, whoever made it and in however many pieces the driver fills it.

use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, slice};

use v4l::v4l2;
use visiond_flow::frame::DriverMemory;
use visiond_kernels::buffer::{BufferError, Memory, RegisteredPages, UnifiedBuffer};
use visiond_kernels::cuda::{CudaError, Device, DeviceAddress};

use super::ioctl::{MemoryType, RawBuffer};
use crate::v4l2::device::{MAX_MEMORY_PLANES, Node};

/// Where the pieces of a buffer's memory stand in its range: each at the start of a page, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlanes {
    count: usize,
    starts: [usize; MAX_MEMORY_PLANES],
    lengths: [usize; MAX_MEMORY_PLANES],
}

impl MemoryPlanes {
    /// Of the first `count` of `lengths`, in bytes. `None`: there is none, one is empty, or they are more than 2 GiB.
    pub fn new(lengths: [usize; MAX_MEMORY_PLANES], count: usize) -> Option<Self> {
        let mut pieces = Self { count, starts: [0; MAX_MEMORY_PLANES], lengths: [0; MAX_MEMORY_PLANES] };
        let page = page_bytes();
        let mut end = 0;
        for (index, length) in lengths.into_iter().enumerate().take(count) {
            if length == 0 || length > i32::MAX as usize {
                return None;
            }
            (pieces.starts[index], pieces.lengths[index]) = (end, length);
            end += length.next_multiple_of(page);
        }
        (count > 0 && count <= MAX_MEMORY_PLANES && end <= i32::MAX as usize).then_some(pieces)
    }

    /// Where each starts.
    pub fn starts(&self) -> &[usize; MAX_MEMORY_PLANES] {
        &self.starts
    }

    /// Bytes of a piece.
    pub fn length(&self, piece: usize) -> usize {
        self.lengths[piece]
    }

    /// Bytes of all of them, whole pages.
    pub fn total(&self) -> usize {
        let last = self.count - 1;
        self.starts[last] + self.lengths[last].next_multiple_of(page_bytes())
    }
}

/// A buffer's memory.
#[derive(Debug)]
pub struct BufferMemory {
    block: Block,
    start: NonNull<u8>,
    pieces: MemoryPlanes,
}

// SAFETY: `start` points into `block`, which this value alone owns; nothing about the memory is tied to a thread.
unsafe impl Send for BufferMemory {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for BufferMemory {}

/// Who owns a buffer's memory. What the GPU was told of it goes before it does.
#[derive(Debug)]
enum Block {
    /// The driver's, mapped here, and registered with CUDA where the GPU reads it in place.
    Mapped { registered: Option<RegisteredPages>, _mapping: Mapping },
    /// Ours, of the kind of memory that the network reads.
    Unified(UnifiedBuffer),
    /// Ours, ordinary memory that was registered with CUDA.
    Registered { pages: RegisteredPages, _buffer: UnifiedBuffer },
}

// SAFETY: the memory is mapped or allocated once, initialised (by the kernel, or zeroed), and freed with the buffer.
unsafe impl DriverMemory for BufferMemory {
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the range is that long, readable and initialised (by the kernel, or zeroed when it was made), and lives as
        // long as `self`; that nobody writes is the caller's promise.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.pieces.total()) }
    }

    fn device_address(&self) -> Option<DeviceAddress> {
        match &self.block {
            Block::Mapped { registered, .. } => registered.as_ref().map(RegisteredPages::device_address),
            Block::Unified(buffer) => buffer.device_address(),
            Block::Registered { pages, .. } => Some(pages.device_address()),
        }
    }

    fn buffer(&self) -> Option<&UnifiedBuffer> {
        match &self.block {
            Block::Unified(buffer) => Some(buffer),
            _ => None,
        }
    }
}

impl BufferMemory {
    /// Maps the driver's buffer `index` of `pieces`.
    pub fn mapped(node: &Node, index: u32, pieces: MemoryPlanes) -> io::Result<Self> {
        let places = RawBuffer::new(node, MemoryType::Mmap, index).query(node)?;
        let mapping = Mapping::reserve(pieces.total())?;
        for (piece, (offset, length)) in places.into_iter().enumerate().take(pieces.count) {
            mapping.fill(node, pieces.starts[piece], length.min(pieces.lengths[piece]), offset)?;
        }
        let start = mapping.start;
        Ok(Self { block: Block::Mapped { registered: None, _mapping: mapping }, start, pieces })
    }

    /// New memory of `memory`'s kind.
    pub fn unified(memory: &Memory, pieces: MemoryPlanes) -> Result<Self, BufferError> {
        let buffer = memory.allocate(pieces.total())?;
        Ok(Self { start: buffer.start(), block: Block::Unified(buffer), pieces })
    }

    /// New ordinary memory, registered with CUDA.
    pub fn pinned(device: &Arc<Device>, pieces: MemoryPlanes) -> Result<Self, PinnedError> {
        let buffer = UnifiedBuffer::host(pieces.total())?;
        let start = buffer.start();
        // SAFETY: the range is the buffer's, readable and writable; it is freed after the registration was undone, by the order
        // of the fields. GPU work on it is over when a frame is dropped, and a frame keeps the buffer.
        let pages = unsafe { RegisteredPages::new(device, start, pieces.total()) }?;
        Ok(Self { block: Block::Registered { pages, _buffer: buffer }, start, pieces })
    }

    /// Makes a mapped buffer visible to the GPU; of other memory it is or cannot be.
    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        let length = self.pieces.total();
        if let Block::Mapped { registered, .. } = &mut self.block {
            // SAFETY: the range is the mapping, readable and writable; the registration is undone before it is unmapped, by the
            // order of the fields. GPU work on it is over when a frame is dropped, and a frame keeps the buffer.
            *registered = Some(unsafe { RegisteredPages::new(device, self.start, length) }?);
        }
        Ok(())
    }

    /// Where the pieces stand.
    pub fn pieces(&self) -> &MemoryPlanes {
        &self.pieces
    }

    /// Tells a USERPTR buffer where its memory is.
    pub fn point(&self, raw: &mut RawBuffer) {
        for piece in 0..self.pieces.count {
            raw.point(piece, self.start.as_ptr() as usize + self.pieces.starts[piece], self.pieces.lengths[piece]);
        }
    }
}

/// Memory for the GPU could not be made of ordinary memory.
#[derive(Debug, thiserror::Error)]
pub enum PinnedError {
    /// No memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// CUDA refused it.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// A range of addresses, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// A range of zeros, whole pages.
    fn reserve(length: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; the result is checked.
        let start = unsafe { v4l2::mmap(ptr::null_mut(), length, access, flags, -1, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length })
    }

    /// Puts `length` bytes of the node's memory at `offset` to the range's byte `at`, which starts a page.
    fn fill(&self, node: &Node, at: usize, length: usize, offset: u32) -> io::Result<()> {
        if at.saturating_add(length) > self.length {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // Some drivers refuse a mapping that is not writable, says mmap's page in V4L2's documentation.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = node.file.as_raw_fd();
        // SAFETY: the pages from `at` on are this value's own claim (checked above), that nobody refers to yet.
        let place = unsafe { self.start.as_ptr().add(at).cast() };
        // SAFETY: as above: what the fixed mapping takes the place of is this claim.
        unsafe { v4l2::mmap(place, length, access, flags, fd, libc::off_t::from(offset))? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `reserve` made; whoever read it borrowed the buffer that holds this.
        if let Err(error) = unsafe { v4l2::munmap(self.start.as_ptr().cast(), self.length) } {
            log::warn!("a camera's buffer could not be unmapped: {error}");
        }
    }
}

/// Bytes of a page of memory.
fn page_bytes() -> usize {
    // SAFETY: no pointer is passed.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(64 * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pieces_stand_on_pages_of_their_own() {
        let page = page_bytes();
        let pieces = MemoryPlanes::new([page + 1, 10, 2 * page], 3).unwrap();
        assert_eq!((pieces.starts(), pieces.total()), (&[0, 2 * page, 3 * page], 5 * page));
        assert_eq!(MemoryPlanes::new([page, 10, 0], 1).unwrap().total(), page);
        assert_eq!(MemoryPlanes::new([0; 3], 1), None);
        assert_eq!(MemoryPlanes::new([usize::MAX; 3], 3), None);
        assert_eq!(MemoryPlanes::new([1; 3], 0), None);
    }

    #[test]
    fn a_slot_of_ours_is_one_zeroed_range() {
        let buffer = BufferMemory::unified(&Memory::host(), MemoryPlanes::new([5000, 100, 0], 2).unwrap()).unwrap();
        // SAFETY: no driver knows of it.
        assert!(unsafe { buffer.bytes() }.iter().all(|&byte| byte == 0));
        assert_eq!(buffer.device_address(), None);
        assert!(buffer.buffer().is_some());
    }
}
