//! The file of a model.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::EngineError;

/// The file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The SHA-256 of its bytes, in lower-case hexadecimal.
    pub sha256: String,
}

impl ModelFile {
    /// Describes the file at `path`, whose content is `bytes`.
    pub(crate) fn new(path: &Path, bytes: &[u8]) -> Self {
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: path.to_owned(), size_bytes: bytes.len() as u64, sha256 }
    }

    /// Refuses a file whose SHA-256 is not the configured one.
    pub(crate) fn check_sha256(&self, pinned: Option<&str>) -> Result<(), EngineError> {
        match pinned {
            Some(pinned) if !pinned.eq_ignore_ascii_case(&self.sha256) => Err(EngineError::OtherSha256 {
                path: self.path.clone(),
                found: self.sha256.clone(),
                pinned: pinned.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Opens a model's file and returns its size in bytes. Refuses devices and pipes: they may have no end, or wait for a writer.
pub(crate) fn open_model_file(path: &Path) -> Result<(File, usize), EngineError> {
    let unreadable = |error| EngineError::Unreadable(path.to_owned(), error);
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => EngineError::Missing(path.to_owned()),
        _ => unreadable(error),
    })?;
    if metadata.is_dir() {
        return Err(EngineError::Directory(path.to_owned()));
    }
    if !metadata.is_file() {
        return Err(unreadable(Error::new(
            ErrorKind::InvalidInput,
            "it is a device or a pipe, not a file; copy it into one",
        )));
    }
    let len = usize::try_from(metadata.len()).map_err(|_| unreadable(ErrorKind::FileTooLarge.into()))?;
    Ok((File::open(path).map_err(unreadable)?, len))
}
