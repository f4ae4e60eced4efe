//! An engine's file in memory.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use sha2::{Digest, Sha256};

use super::plan::{PlanError, has_plan_name, rebuild_command};
use crate::engine::{EngineError, ModelFile};

/// The bytes of an engine's file.
pub(crate) enum PlanBytes {
    /// Mapped: TensorRT reads them where they lie in the page cache.
    Mapped(Mapping),
    /// Read into memory of our own, which nobody can change between the hash and the use.
    Read(Vec<u8>),
}

impl PlanBytes {
    /// The file at `path`, mapped, or read where its bytes are to be compared with a hash.
    pub(crate) fn open(path: &Path, read: bool) -> Result<Self, EngineError> {
        let unreadable = |error| EngineError::Unreadable { path: path.to_owned(), error };
        let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => EngineError::Missing { path: path.to_owned() },
            _ => unreadable(error),
        })?;
        if metadata.is_dir() {
            return Err(EngineError::Directory { path: path.to_owned() });
        }
        if !metadata.is_file() {
            return Err(unreadable(std::io::Error::new(
                ErrorKind::InvalidInput,
                "it is a device or a pipe, not a file",
            )));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let len = usize::try_from(metadata.len()).map_err(|_| unreadable(ErrorKind::FileTooLarge.into()))?;
        if len == 0 {
            return Err(if has_plan_name(path) {
                PlanError::Empty { path: path.to_owned(), command: rebuild_command(path) }.into()
            } else {
                EngineError::Empty { path: path.to_owned() }
            });
        }
        if read {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len + 1).map_err(|error| unreadable(error.into()))?;
            file.read_to_end(&mut bytes).map_err(unreadable)?;
            return Ok(Self::Read(bytes));
        }
        Mapping::new(&file, len).map(Self::Mapped).map_err(unreadable)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.as_slice(),
            Self::Read(bytes) => bytes,
        }
    }

    /// Path, size and SHA-256.
    pub(crate) fn model_file(&self, path: &Path) -> ModelFile {
        let bytes = self.as_slice();
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        ModelFile { path: path.to_owned(), size_bytes: bytes.len() as u64, sha256 }
    }
}

/// A file mapped for reading.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read alone, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the `len` bytes of `file`, at least 1.
    fn new(file: &File, len: usize) -> std::io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the system's choice; the descriptor is open during the call and not needed
        // after it.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `len` readable bytes and lives as long as `self`. Engines are replaced by renaming
        // (`visiond build` does), which leaves a mapped file as it is; whoever writes into an engine's file while it is being
        // loaded breaks the load, as with a program's file.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
