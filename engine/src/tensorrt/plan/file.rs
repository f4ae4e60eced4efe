//! Reads an engine file without TensorRT and without a GPU.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use super::build_command::{has_plan_name, rebuild_command};
use super::error::PlanError;
use super::header::{HEADER_BYTES, MOST_METADATA, Plan, PlanHeader, is_plan};
use crate::backend::{EngineError, ModelFile, open_model_file};

/// The bytes of an engine file.
pub(crate) enum PlanBytes {
    /// Mapped: TensorRT reads them in the page cache.
    Mapped(MappedFile),
    /// Read into our own memory, so that they cannot change between the hash and the use.
    Read(Vec<u8>),
}

impl PlanBytes {
    /// Maps the file at `path`, or reads it if its bytes are to be compared with a hash.
    pub(crate) fn open(path: &Path, read: bool) -> Result<Self, EngineError> {
        let unreadable = |error| EngineError::Unreadable(path.to_owned(), error);
        let (mut file, len) = open_model_file(path)?;
        if len == 0 {
            return Err(if has_plan_name(path) {
                PlanError::Empty(path.to_owned(), rebuild_command(path)).into()
            } else {
                EngineError::Empty(path.to_owned())
            });
        }
        if read {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len + 1).map_err(|error| unreadable(error.into()))?;
            file.read_to_end(&mut bytes).map_err(unreadable)?;
            return Ok(Self::Read(bytes));
        }
        MappedFile::new(&file, len).map(Self::Mapped).map_err(unreadable)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.as_slice(),
            Self::Read(bytes) => bytes,
        }
    }

    /// Returns path, size and SHA-256.
    pub(crate) fn model_file(&self, path: &Path) -> ModelFile {
        ModelFile::new(path, self.as_slice())
    }
}

/// A file mapped for reading.
pub(crate) struct MappedFile {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: any thread may read the mapping; nothing writes to it.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
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
        // SAFETY: the mapping is `len` readable bytes and lives as long as `self`. Engines are replaced by renaming (`visiond
        // build` does), which leaves a mapped file unchanged; writing into an engine file while it is being loaded breaks the
        // load, as with a program's file.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// An engine file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFile {
    /// Its path, size and SHA-256.
    pub file: ModelFile,
    /// Its header, and the metadata around the engine.
    pub plan: Plan,
}

impl PlanFile {
    /// Reads the file at `path`; `None` if neither its content nor its name is an engine's.
    pub fn read(path: &Path) -> Result<Option<Self>, EngineError> {
        let bytes = match PlanBytes::open(path, false) {
            Err(EngineError::Empty { .. }) if !has_plan_name(path) => return Ok(None),
            bytes => bytes?,
        };
        if !is_plan(bytes.as_slice()) {
            return Ok(None);
        }
        check_length(path, bytes.as_slice())?;
        let Some(plan) = Plan::parse(bytes.as_slice()) else {
            let command = rebuild_command(path);
            return Err(PlanError::NotAPlan(path.to_owned(), command).into());
        };
        Ok(Some(Self { file: bytes.model_file(path), plan }))
    }
}

/// Whether the file at `path` is an engine; false if it cannot be read.
pub fn is_plan_file(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    // A pipe may wait for a writer for ever.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut bytes = Vec::new();
    let mut read = |count: u64| file.by_ref().take(count).read_to_end(&mut bytes).is_ok();
    if !read(8) {
        return false;
    }
    if let (Some(len), Some(b'{')) = (bytes.first_chunk().map(|len| u32::from_le_bytes(*len)), bytes.get(4))
        && len as usize <= MOST_METADATA
    {
        let mut rest = Vec::new();
        if file.take(u64::from(len)).read_to_end(&mut rest).is_err() {
            return false;
        }
        bytes.extend(rest);
    }
    is_plan(&bytes)
}

/// Refuses a file that is shorter than its header says.
pub(crate) fn check_length(path: &Path, bytes: &[u8]) -> Result<(), PlanError> {
    let truncated = |expected: String| PlanError::Truncated {
        path: path.to_owned(),
        found: bytes.len() as u64,
        expected,
        command: rebuild_command(path),
    };
    match Plan::parse(bytes) {
        None => Err(truncated(format!("at least {HEADER_BYTES}"))),
        Some(Plan { header: PlanHeader::Rtx { size_bytes, .. }, offset, .. }) => {
            let expected = size_bytes.saturating_add(offset as u64);
            if (bytes.len() as u64) < expected { Err(truncated(expected.to_string())) } else { Ok(()) }
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn content_tells_an_engine_from_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.onnx");
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"ftrt");
        bytes[24..28].copy_from_slice(&[10, 3, 0, 1]);
        std::fs::write(&path, &bytes).unwrap();
        let read = PlanFile::read(&path).unwrap().unwrap();
        assert_eq!((read.plan.header.to_string().as_str(), read.file.size_bytes), ("TensorRT 10.3.0", 64));
        std::fs::write(&path, b"\x08\x07onnx").unwrap();
        assert_eq!(PlanFile::read(&path).unwrap(), None);
        std::fs::write(&path, b"").unwrap();
        assert_eq!(PlanFile::read(&path).unwrap(), None);
        let engine = folder.path().join("net.engine");
        std::fs::write(&engine, &bytes[..20]).unwrap();
        let error = PlanFile::read(&engine).unwrap_err().to_string();
        assert!(error.contains("is truncated") && error.contains("visiond build"), "{error}");
    }
}
