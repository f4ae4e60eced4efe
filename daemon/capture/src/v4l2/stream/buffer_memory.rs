//! The memory of one buffer: one address range, from the driver or from visiond, with any number of memory planes.

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

/// Where a buffer's memory planes are in its range: one after the other, each at the start of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlanes {
    count: usize,
    /// The offset of each plane.
    pub starts: [usize; MAX_MEMORY_PLANES],
    /// The length of each plane in bytes.
    pub lengths: [usize; MAX_MEMORY_PLANES],
}

impl MemoryPlanes {
    /// Lays out the first `count` of `lengths`, in bytes. `None` if there are none, one is empty, or they exceed 2 GiB.
    pub fn new(lengths: [usize; MAX_MEMORY_PLANES], count: usize) -> Option<Self> {
        let mut planes = Self { count, starts: [0; MAX_MEMORY_PLANES], lengths: [0; MAX_MEMORY_PLANES] };
        let page = page_bytes();
        let mut end = 0;
        for (index, length) in lengths.into_iter().enumerate().take(count) {
            if length == 0 || length > i32::MAX as usize {
                return None;
            }
            (planes.starts[index], planes.lengths[index]) = (end, length);
            end += length.next_multiple_of(page);
        }
        (count > 0 && count <= MAX_MEMORY_PLANES && end <= i32::MAX as usize).then_some(planes)
    }

    /// Returns the length of the range: whole pages.
    pub fn total(&self) -> usize {
        let last = self.count - 1;
        self.starts[last] + self.lengths[last].next_multiple_of(page_bytes())
    }
}

/// A buffer's memory. Fields drop in order: the GPU's registration before the memory.
#[derive(Debug)]
pub struct BufferMemory {
    /// Of memory that the GPU could not read otherwise.
    registered: Option<RegisteredPages>,
    owner: MemoryOwner,
    start: NonNull<u8>,
    pub planes: MemoryPlanes,
}

// SAFETY: `start` points into `owner`, which this value alone has; nothing about the memory is tied to a thread.
unsafe impl Send for BufferMemory {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for BufferMemory {}

/// Who owns a buffer's memory.
#[derive(Debug)]
enum MemoryOwner {
    /// The driver; the memory is mapped.
    Driver { _mapping: MmapRange },
    /// visiond.
    Ours(UnifiedBuffer),
}

// SAFETY: the memory is mapped or allocated once, initialised (by the kernel, or zeroed), and freed with the buffer.
unsafe impl DriverMemory for BufferMemory {
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the range is that long, readable and initialised (by the kernel, or zeroed when it was made), and lives as
        // long as `self`; that nothing writes is the caller's promise.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.planes.total()) }
    }

    fn device_address(&self) -> Option<DeviceAddress> {
        let registered = self.registered.as_ref().map(RegisteredPages::device_address);
        registered.or_else(|| self.buffer()?.device_address())
    }

    fn buffer(&self) -> Option<&UnifiedBuffer> {
        match (&self.registered, &self.owner) {
            (None, MemoryOwner::Ours(buffer)) => Some(buffer),
            _ => None,
        }
    }
}

impl BufferMemory {
    /// Maps the driver's buffer `index`.
    pub fn mapped(node: &Node, index: u32, planes: MemoryPlanes) -> io::Result<Self> {
        let places = RawBuffer::new(node, MemoryType::Mmap, index).query(node)?;
        let mapping = MmapRange::reserve(planes.total())?;
        for (plane, (offset, length)) in places.into_iter().enumerate().take(planes.count) {
            mapping.fill(node, planes.starts[plane], length.min(planes.lengths[plane]), offset)?;
        }
        let start = mapping.start;
        Ok(Self { registered: None, owner: MemoryOwner::Driver { _mapping: mapping }, start, planes })
    }

    /// Allocates memory of this kind.
    pub fn unified(memory: &Memory, planes: MemoryPlanes) -> Result<Self, BufferError> {
        let buffer = memory.allocate(planes.total())?;
        Ok(Self { registered: None, start: buffer.start(), owner: MemoryOwner::Ours(buffer), planes })
    }

    /// Registers the buffer with the GPU: mapped memory, or ordinary memory.
    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        // SAFETY: the range is the owner's, readable and writable; the registration is undone before the owner frees it, by the
        // order of the fields. GPU work on it is over when a frame is dropped, and a frame keeps the buffer.
        self.registered = Some(unsafe { RegisteredPages::new(device, self.start, self.planes.total()) }?);
        Ok(())
    }

    /// Sets the addresses of a USERPTR buffer.
    pub fn point(&self, raw: &mut RawBuffer) {
        for plane in 0..self.planes.count {
            raw.point(plane, self.start.as_ptr() as usize + self.planes.starts[plane], self.planes.lengths[plane]);
        }
    }
}

/// An address range, unmapped when dropped.
#[derive(Debug)]
struct MmapRange {
    start: NonNull<u8>,
    length: usize,
}

impl MmapRange {
    /// Reserves a range of zeros, whole pages.
    fn reserve(length: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; the result is checked.
        let start = unsafe { v4l2::mmap(ptr::null_mut(), length, access, flags, -1, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length })
    }

    /// Maps `length` bytes of the node's memory at `offset` to byte `at` of the range, which starts a page.
    fn fill(&self, node: &Node, at: usize, length: usize, offset: u32) -> io::Result<()> {
        if at.saturating_add(length) > self.length {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // Some drivers refuse a read-only mapping, according to the mmap page of V4L2's documentation.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = node.file.as_raw_fd();
        // SAFETY: the pages from `at` on are this value's own reservation (checked above), which nothing refers to yet.
        let place = unsafe { self.start.as_ptr().add(at).cast() };
        // SAFETY: as above: what the fixed mapping takes the place of is this reservation.
        unsafe { v4l2::mmap(place, length, access, flags, fd, libc::off_t::from(offset))? };
        Ok(())
    }
}

impl Drop for MmapRange {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `reserve` made; a reader of it borrows the buffer that holds this.
        if let Err(error) = unsafe { v4l2::munmap(self.start.as_ptr().cast(), self.length) } {
            log::warn!("cannot unmap a camera's buffer: {error}");
        }
    }
}

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
    fn memory_planes_start_on_pages_of_their_own() {
        let page = page_bytes();
        let planes = MemoryPlanes::new([page + 1, 10, 2 * page], 3).unwrap();
        assert_eq!((planes.starts, planes.total()), ([0, 2 * page, 3 * page], 5 * page));
        assert_eq!(MemoryPlanes::new([page, 10, 0], 1).unwrap().total(), page);
        assert_eq!(MemoryPlanes::new([0; 3], 1), None);
        assert_eq!(MemoryPlanes::new([usize::MAX; 3], 3), None);
        assert_eq!(MemoryPlanes::new([1; 3], 0), None);
    }

    #[test]
    fn memory_of_ours_is_one_zeroed_range() {
        let buffer = BufferMemory::unified(&Memory::host(), MemoryPlanes::new([5000, 100, 0], 2).unwrap()).unwrap();
        // SAFETY: no driver has this memory.
        assert!(unsafe { buffer.bytes() }.iter().all(|&byte| byte == 0));
        assert_eq!(buffer.device_address(), None);
        assert!(buffer.buffer().is_some());
    }
}
