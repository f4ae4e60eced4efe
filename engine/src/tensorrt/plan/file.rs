//! Reads an engine file without TensorRT and without a GPU.

use std::io::Read;
use std::path::Path;

use super::build_command::{has_plan_name, rebuild_command};
use super::error::PlanError;
use super::header::{HEADER_BYTES, MOST_METADATA, Plan, PlanHeader, is_plan};
use crate::backend::{EngineError, ModelFile, open_model_file};

/// Reads the engine file at `path` into memory.
///
/// It is never mapped: if another program truncates a mapped file, the next read ends the process with SIGBUS, even inside
/// TensorRT's parser. In memory, the bytes that were hashed are also the ones that run.
pub(crate) fn read_plan(path: &Path) -> Result<Vec<u8>, EngineError> {
    let unreadable = |error| EngineError::Unreadable(path.to_owned(), error);
    let (mut file, len) = open_model_file(path)?;
    let mut bytes = Vec::new();
    // One byte more than expected, so that reading to the end does not allocate again.
    bytes.try_reserve_exact(len.saturating_add(1)).map_err(|error| unreadable(error.into()))?;
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.is_empty() {
        true if has_plan_name(path) => Err(PlanError::Empty(path.to_owned(), rebuild_command(path)).into()),
        true => Err(EngineError::Empty(path.to_owned())),
        false => Ok(bytes),
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
        // Only a file that begins like an engine is read completely.
        if open_model_file(path)?.1 > 0 && !is_plan_file(path) {
            return Ok(None);
        }
        let bytes = match read_plan(path) {
            Err(EngineError::Empty { .. }) => return Ok(None),
            bytes => bytes?,
        };
        check_length(path, &bytes)?;
        let Some(plan) = Plan::parse(&bytes) else {
            let command = rebuild_command(path);
            return Err(PlanError::NotAPlan(path.to_owned(), command).into());
        };
        Ok(Some(Self { file: ModelFile::new(path, &bytes), plan }))
    }
}

/// Whether the file at `path` is an engine; false if it cannot be read.
pub fn is_plan_file(path: &Path) -> bool {
    let Ok((mut file, _)) = open_model_file(path) else { return false };
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

/// Rejects a file that is shorter than its header states.
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

    use std::fs::File;

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

    #[test]
    fn an_engine_file_that_is_cut_off_while_it_is_loaded_stays_whole_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.engine");
        let engine = vec![7; 1 << 20];
        std::fs::write(&path, &engine).unwrap();
        let bytes = read_plan(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert!(bytes == engine);
    }
}
