//! A mapping of memory that something else fills: a driver, or another program.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use v4l::v4l2;

/// A mapping, unmapped when dropped. Nothing else is ever mapped where it is.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: only this value owns the mapping, which is not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access gives the address alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a file from an offset on, or zeros without a file: at `place`, which must be the start of a page, or
    /// anywhere. Fails with EEXIST if something is mapped there.
    pub fn new(place: Option<usize>, length: usize, file: Option<(&File, u32)>) -> io::Result<Self> {
        // Some drivers refuse a read-only mapping, according to the mmap page of V4L2's documentation.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
        let kind = file.map_or(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, |_| libc::MAP_SHARED);
        let flags = kind | place.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
        let address = ptr::without_provenance_mut(place.unwrap_or(0));
        // SAFETY: a new mapping replaces no other: the kernel chooses the address, or checks that nothing is mapped there.
        // The result is checked.
        let start = unsafe { v4l2::mmap(address, length, access, flags, fd, libc::off_t::from(offset))? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mapping = Self { start, length };
        // Linux before 4.17 does not know the flag, and uses another address if this one is taken.
        if place.is_some_and(|place| place != start.addr().get()) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(mapping)
    }

    /// Returns the first byte, for reads and writes.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the range that `new` mapped, in whole pages; every reader borrows the buffer that holds
        // this value.
        if let Err(error) = unsafe { v4l2::munmap(self.start.as_ptr().cast(), self.length) } {
            log::warn!("cannot unmap a camera's buffer: {error}");
        }
    }
}
