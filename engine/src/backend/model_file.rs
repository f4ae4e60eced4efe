//! The file of a model.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::EngineError;

/// The size limit of files other than the model: cards, class names, sidecars.
const MOST_SMALL_BYTES: u64 = 16 << 20;

/// The file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// The size of this file; weights in other files do not count.
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

    /// Rejects a file whose SHA-256 is not the configured one.
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

/// Opens a model's file and returns its size in bytes.
pub(crate) fn open_model_file(path: &Path) -> Result<(File, usize), EngineError> {
    let unreadable = |error| EngineError::Unreadable(path.to_owned(), error);
    let (file, len) = open_file(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => EngineError::Missing(path.to_owned()),
        ErrorKind::IsADirectory => EngineError::Directory(path.to_owned()),
        _ => unreadable(error),
    })?;
    Ok((file, usize::try_from(len).map_err(|_| unreadable(ErrorKind::FileTooLarge.into()))?))
}

/// Reads a text file that belongs to a model, such as its card.
pub(crate) fn read_small_text(path: &Path) -> io::Result<String> {
    let not_text = |_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text; save it as UTF-8");
    String::from_utf8(read_small_file(path)?).map_err(not_text)
}

/// Reads a file that belongs to a model but is not the model: at most [`MOST_SMALL_BYTES`].
pub(crate) fn read_small_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.0.take(MOST_SMALL_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_SMALL_BYTES {
        let reason = format!("it has more than {} MiB; name the right file", MOST_SMALL_BYTES >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Opens a file and returns its size in bytes. Rejects devices and pipes: they may be endless or block.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a directory; name a file in it"));
    }
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is a device or a pipe, not a file; copy it into one"));
    }
    Ok((File::open(path)?, metadata.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_small_file_is_a_file_of_text_and_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.txt");
        let read = || read_small_text(&path).map_err(|error| error.to_string());
        std::fs::write(&path, "a\nb\n").unwrap();
        assert_eq!(read(), Ok("a\nb\n".to_owned()));
        std::fs::write(&path, b"a\xff").unwrap();
        assert!(read().unwrap_err().contains("save it as UTF-8"));
        // A sparse file at the size limit, then one byte more.
        for (bytes, is_read) in [(MOST_SMALL_BYTES, true), (MOST_SMALL_BYTES + 1, false), (1 << 40, false)] {
            File::create(&path).unwrap().set_len(bytes).unwrap();
            assert_eq!(read().is_ok(), is_read, "{bytes}");
        }
        assert!(read().unwrap_err().contains("more than 16 MiB; name the right file"));
        for device in ["/dev/zero", "/dev/null"] {
            let error = read_small_file(Path::new(device)).unwrap_err().to_string();
            assert!(error.contains("a device or a pipe"), "{error}");
        }
        assert_eq!(read_small_file(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_small_file(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
