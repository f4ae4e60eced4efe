//! A model that has been read and is ready for a backend.

use std::path::{Path, PathBuf};

use crate::backend::TensorInfo;

/// A model that was read and checked, and is ready for a backend.
pub(super) struct OnnxModel<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: Vec<u8>,
    pub(super) inputs: &'a [TensorInfo],
    pub(super) outputs: &'a [TensorInfo],
    /// The files with weights, named as in the model.
    pub(super) external_files: Vec<PathBuf>,
}

impl OnnxModel<'_> {
    /// Returns the directory that external files are relative to.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}
