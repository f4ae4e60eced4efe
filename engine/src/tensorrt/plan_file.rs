//! An engine's file looked at without TensorRT and without a GPU.

use std::path::Path;

use super::file::PlanBytes;
use super::plan::{Plan, check_length, has_plan_name, is_plan};
use super::plan::{PlanError, rebuild_command};
use crate::engine::{EngineError, ModelFile};

/// An engine's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFile {
    /// Path, size and SHA-256.
    pub file: ModelFile,
    /// Its header, and the notes around the engine.
    pub plan: Plan,
}

impl PlanFile {
    /// Reads the file at `path`; `None` where its content is no engine's, and its name neither.
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
            return Err(PlanError::NotAPlan { path: path.to_owned(), command }.into());
        };
        Ok(Some(Self { file: bytes.model_file(path), plan }))
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
        assert!(error.contains("is cut off") && error.contains("visiond build"), "{error}");
    }
}
