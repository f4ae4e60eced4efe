//! Memory that a camera writes once and a kernel reads once.
//!
//! A [`UnifiedBuffer`] owns one page-aligned block and tells by its [`MemoryKind`] who can reach it. Everything above deals
//! in slices, so that another kind of memory is one variant here and nothing elsewhere.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

/// Alignment of every buffer: a page, so that a driver can map it and a GPU can register it.
///
/// 64 KiB is the largest base page among the kernels we run on (aarch64 can be built with 4, 16 or 64 KiB pages).
pub const PAGE_BYTES: usize = 64 * 1024;

/// Who can reach a buffer's bytes, and at what cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary memory of the process, page-aligned; no GPU sees it.
    #[default]
    Host,
}

impl MemoryKind {
    /// The name used in the configuration, the log and `probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A buffer could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// The system has no such block.
    #[error(
        "cannot allocate {bytes} bytes of {kind} memory: free memory, or lower the frame size or the number of buffers"
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Kind asked for.
        kind: MemoryKind,
    },
}

/// One page-aligned block of memory, zeroed when made, freed when dropped.
pub struct UnifiedBuffer {
    memory: Memory,
    len_bytes: usize,
}

/// The owner of the bytes, by kind.
enum Memory {
    Host(HostPages),
}

impl UnifiedBuffer {
    /// Makes a zeroed buffer of `len_bytes` bytes. Zero bytes are allowed.
    pub fn new(kind: MemoryKind, len_bytes: usize) -> Result<Self, BufferError> {
        let memory = match kind {
            MemoryKind::Host => {
                Memory::Host(HostPages::new(len_bytes).ok_or(BufferError::OutOfMemory { bytes: len_bytes, kind })?)
            }
        };
        Ok(Self { memory, len_bytes })
    }

    /// Makes a zeroed buffer of host memory.
    pub fn host(len_bytes: usize) -> Result<Self, BufferError> {
        Self::new(MemoryKind::Host, len_bytes)
    }

    /// Who can reach the bytes.
    pub fn kind(&self) -> MemoryKind {
        match self.memory {
            Memory::Host(_) => MemoryKind::Host,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether the buffer holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: `pages` owns at least `len_bytes` initialised (zeroed) bytes that live as long as `self`; `&self`
            // keeps writers out.
            Memory::Host(pages) => unsafe { std::slice::from_raw_parts(pages.start.as_ptr(), self.len_bytes) },
        }
    }

    /// The bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `as_slice`; `&mut self` makes this the only view.
            Memory::Host(pages) => unsafe { std::slice::from_raw_parts_mut(pages.start.as_ptr(), self.len_bytes) },
        }
    }
}

impl fmt::Debug for UnifiedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnifiedBuffer({} bytes, {})", self.len_bytes, self.kind())
    }
}

/// Page-aligned memory from the global allocator.
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
    fn an_impossible_size_is_an_error_that_names_it() {
        let error = UnifiedBuffer::host(usize::MAX).unwrap_err();
        assert!(error.to_string().contains(&usize::MAX.to_string()), "{error}");
    }

    #[test]
    fn an_empty_buffer_is_allowed() {
        assert!(UnifiedBuffer::host(0).unwrap().is_empty());
    }
}
