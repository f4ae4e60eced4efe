//! The file of a model.

use std::path::PathBuf;

/// The network's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it was read.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256 of its bytes, in lower-case hexadecimal.
    pub sha256: String,
}
