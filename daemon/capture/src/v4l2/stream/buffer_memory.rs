//! The memory of one buffer: one address range, from the driver or from visiond, with any number of memory planes.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{io, slice};

use visiond_frames::frame::DriverMemory;
use visiond_kernels::buffer::{BufferError, Memory, RegisteredPages, UnifiedBuffer};
use visiond_kernels::cuda::{CudaError, Device, DeviceAddress};

use super::ioctl::{MemoryType, RawBuffer};
use crate::mapping::Mapping;
use crate::v4l2::device::{MAX_MEMORY_PLANES, Node};

/// How often to try to find address space for a buffer's memory planes.
const ATTEMPTS: usize = 8;

/// The positions of a buffer's memory planes in its range: consecutive, each at the start of a page.
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

    /// Returns the start of each plane, and its length in whole pages.
    fn whole_pages(&self) -> impl Iterator<Item = (usize, usize)> {
        let page = page_bytes();
        (0..self.count).map(move |plane| (self.starts[plane], self.lengths[plane].next_multiple_of(page)))
    }

    /// Returns the length of the range: whole pages.
    pub fn total(&self) -> usize {
        self.whole_pages().last().map_or(0, |(start, length)| start + length)
    }
}

/// A buffer's memory. Fields drop in order: the GPU's registration before the memory.
#[derive(Debug)]
pub struct BufferMemory {
    /// Present for memory that the GPU could not read otherwise.
    registered: Option<RegisteredPages>,
    owner: MemoryOwner,
    start: NonNull<u8>,
    pub planes: MemoryPlanes,
}

// SAFETY: `start` points into `owner`, which only this value owns; the memory is not tied to a thread.
unsafe impl Send for BufferMemory {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for BufferMemory {}

/// Who owns a buffer's memory.
#[derive(Debug)]
enum MemoryOwner {
    /// The driver; the memory is mapped, plane by plane.
    Driver { _mappings: Vec<Mapping> },
    /// visiond.
    Ours(UnifiedBuffer),
}

// SAFETY: the memory is mapped for reads and writes, or allocated, once; it is initialised (by the kernel, or zeroed), and freed with
// the buffer. `start` is its first byte.
unsafe impl DriverMemory for BufferMemory {
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the range is that long, readable and initialised (by the kernel, or zeroed when it was made), and lives as
        // long as `self`; the caller guarantees that nothing writes to it.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.planes.total()) }
    }

    fn start(&self) -> NonNull<u8> {
        self.start
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
        let mappings = map(&node.file, &planes, &places)?;
        let start = mappings.first().map(Mapping::start).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { registered: None, owner: MemoryOwner::Driver { _mappings: mappings }, start, planes })
    }

    /// Allocates memory of this kind.
    pub fn unified(memory: &Memory, planes: MemoryPlanes) -> Result<Self, BufferError> {
        let buffer = memory.allocate(planes.total())?;
        Ok(Self { registered: None, start: buffer.start(), owner: MemoryOwner::Ours(buffer), planes })
    }

    /// Registers the buffer with the GPU: mapped memory, or ordinary memory.
    pub fn register(&mut self, device: &Arc<Device>) -> Result<(), CudaError> {
        // SAFETY: the range belongs to the owner and is readable and writable; the order of the fields undoes the
        // registration before the owner frees it. GPU work on it is over when a frame is dropped, and a frame keeps the
        // buffer.
        self.registered = Some(unsafe { RegisteredPages::new(device, self.start, self.planes.total()) }?);
        Ok(())
    }

    /// Sets the addresses of a USERPTR buffer, with lengths of whole pages: drivers that use DMA refuse a length that ends within a
    /// line of the cache (`vb2_dc_get_userptr` in videobuf2-dma-contig.c), as RAW10 frames of 1332x990 pixels would.
    pub fn point(&self, raw: &mut RawBuffer) {
        for (plane, (start, length)) in self.planes.whole_pages().enumerate() {
            raw.point(plane, self.start.as_ptr() as usize + start, length);
        }
    }
}

/// Maps the memory planes of a buffer contiguously, each of them whole: the range of `planes` has no hole. `places` are their
/// offsets in `file` and their lengths.
fn map(file: &File, planes: &MemoryPlanes, places: &[(u32, usize); MAX_MEMORY_PLANES]) -> io::Result<Vec<Mapping>> {
    // The planes were laid out by the first buffer's lengths.
    if (0..planes.count).any(|plane| places[plane].1 < planes.lengths[plane]) {
        return Err(io::Error::other("the driver's buffers differ in size"));
    }
    let plane = |index: usize, place| Mapping::new(place, planes.lengths[index], Some((file, places[index].0)));
    if planes.count == 1 {
        return Ok(vec![plane(0, None)?]);
    }
    for _ in 0..ATTEMPTS {
        // An address with enough room now. Not MAP_FIXED into a reservation: before Linux 6.12, a driver that refuses leaves
        // a hole in it, and another thread may have mapped memory there by the time the reservation is unmapped.
        let room = Mapping::new(None, planes.total(), None)?.start();
        let mapped: io::Result<Vec<_>> =
            (0..planes.count).map(|index| plane(index, Some(room.addr().get() + planes.starts[index]))).collect();
        match mapped {
            // Another thread was faster.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            mapped => return mapped,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}

fn page_bytes() -> usize {
    // SAFETY: no pointer is passed.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(64 * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A driver's memory: a page of each letter.
    fn memory(letters: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        letters.iter().for_each(|&letter| file.write_all(&vec![letter; page_bytes()]).unwrap());
        file
    }

    /// How many mappings of the file the process has.
    fn mappings_of(file: &File) -> usize {
        let inode = file.metadata().unwrap().ino().to_string();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        // Address, access, offset, device, inode.
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
    }

    #[test]
    fn the_planes_of_a_driver_are_one_range_without_a_hole() {
        let page = page_bytes();
        let (file, planes) = (memory(b"abc"), MemoryPlanes::new([page, page - 7, page], 3).unwrap());
        let offset = |pages: usize| (pages * page) as u32;
        let places = [(offset(2), page), (offset(0), page - 7), (offset(1), page)];
        let mappings = map(&file, &planes, &places).unwrap();
        // SAFETY: three contiguous mappings of a page each, which stay mapped; nothing writes to the file.
        let bytes = unsafe { slice::from_raw_parts(mappings[0].start().as_ptr(), planes.total()) };
        assert_eq!([bytes[0], bytes[page], bytes[2 * page], bytes[3 * page - 1]], *b"cabb");
        let alone = map(&file, &MemoryPlanes::new([page, 0, 0], 1).unwrap(), &places).unwrap();
        // SAFETY: as above, for one page.
        assert_eq!(unsafe { *alone[0].start().as_ptr() }, b'c');
    }

    #[test]
    fn a_plane_that_the_driver_refuses_leaves_nothing_mapped_and_another_buffer_is_not_shorter() {
        let page = page_bytes();
        let (file, planes) = (memory(b"ab"), MemoryPlanes::new([page, page, 0], 2).unwrap());
        // Every offset is a page boundary.
        assert!(map(&file, &planes, &[(0, page), (1, page), (0, 0)]).is_err());
        assert_eq!(mappings_of(&file), 0);
        let error = map(&file, &planes, &[(0, page), (page as u32, page - 1), (0, 0)]).unwrap_err();
        assert!(error.to_string().contains("differ in size"), "{error}");
    }

    #[test]
    fn a_mapping_takes_the_place_of_no_other_and_unmaps_itself_alone() {
        let (page, file) = (page_bytes(), memory(b"ab"));
        let other = Mapping::new(None, page, None).unwrap();
        // SAFETY: the page is mapped and belongs to this value.
        unsafe { *other.start().as_ptr() = 7 };
        let refused = Mapping::new(Some(other.start().addr().get()), page, Some((&file, 0))).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
        // SAFETY: as above.
        assert_eq!(unsafe { *other.start().as_ptr() }, 7);
        let own = Mapping::new(None, page, Some((&file, 0))).unwrap();
        assert_eq!(mappings_of(&file), 1);
        drop(own);
        assert_eq!(mappings_of(&file), 0);
    }

    #[test]
    fn memory_planes_start_on_pages_of_their_own() {
        let page = page_bytes();
        let planes = MemoryPlanes::new([page + 1, 10, 2 * page], 3).unwrap();
        assert_eq!((planes.starts, planes.total()), ([0, 2 * page, 3 * page], 5 * page));
        assert_eq!(planes.whole_pages().collect::<Vec<_>>(), [(0, 2 * page), (2 * page, page), (3 * page, 2 * page)]);
        assert_eq!(MemoryPlanes::new([page, 10, 0], 1).unwrap().total(), page);
        // RAW10 of 1332x990 and 2028x1080 pixels, in 16-bit words.
        for length in [1332 * 990 * 2, 2028 * 1080 * 2] {
            let planes = MemoryPlanes::new([length, 0, 0], 1).unwrap();
            assert!(length % 128 != 0 && planes.whole_pages().all(|(_, length)| length % 128 == 0));
        }
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
