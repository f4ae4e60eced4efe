//! Where bundles are published: a folder here, a web server in the program.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// A place that has bundles and their indexes, by paths with slashes. What it returns is not trusted.
pub trait BundleSource {
    /// Returns the contents of a file that has at most `most` bytes.
    ///
    /// # Errors
    /// If it cannot be read, or is larger; not more than `most` bytes are kept of it.
    fn read_small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, SourceError>;

    /// Gives bytes of a file to `take`, from the range's begin on, in order, until its end or until `take` breaks. Bytes before the
    /// range that had to be read are [`Piece::Skipped`].
    ///
    /// # Errors
    /// If the file cannot be read, or ends before the range does. `take` got the bytes before that.
    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError>;
}

/// What a source has read of a file.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// The next bytes of the range.
    Bytes(&'a [u8]),
    /// So many bytes before the range.
    Skipped(usize),
}

/// Takes the bytes of a range, piece by piece, as long as it continues.
pub type Take<'a> = dyn FnMut(Piece<'_>) -> ControlFlow<()> + 'a;

/// Why a source gives no bundle. A later attempt may succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The file's path or URL.
        path: String,
        /// Why, and what to do if there is something.
        reason: String,
    },
    /// A file does not exist, in a source that can be read.
    #[error("cannot read {path}: {reason}")]
    Missing {
        /// The file's path or URL.
        path: String,
        /// Why, and what to do if there is something.
        reason: String,
    },
    /// There is no index of this name.
    #[error("the source has no bundle named {name}: check the name, or publish it ({path} does not exist)")]
    NotPublished {
        /// The bundle's name.
        name: String,
        /// The path or URL of its index.
        path: String,
    },
    /// A file is not an index.
    #[error("{path} is no index of bundles: {reason}; publish the bundle again")]
    Index {
        /// The file in the source.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The bundle's file has other contents than the index says.
    #[error("part {part} of {path} has other contents than its index says: publish the bundle again")]
    Contents {
        /// The file in the source.
        path: String,
        /// Number of the part, from 1.
        part: usize,
    },
}

/// A folder that `visiond bundle publish` writes: on a USB stick, on NFS, anywhere in the file system.
#[derive(Debug, Clone)]
pub struct FolderSource(pub PathBuf);

impl FolderSource {
    fn open(&self, path: &str) -> Result<File, SourceError> {
        // Opening a pipe without a writer would never end.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(self.0.join(path));
        let file = file.map_err(|error| match unreadable(&self.0, path, &error) {
            SourceError::Unreadable { path, reason } if error.kind() == io::ErrorKind::NotFound && self.0.is_dir() => {
                SourceError::Missing { path, reason }
            }
            other => other,
        })?;
        match file.metadata() {
            Ok(found) if found.is_file() => Ok(file),
            Ok(_) => Err(unreadable(
                &self.0,
                path,
                &io::Error::other("it is not a file: name the folder that `visiond bundle publish` wrote"),
            )),
            Err(error) => Err(unreadable(&self.0, path, &error)),
        }
    }
}

impl BundleSource for FolderSource {
    fn read_small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, SourceError> {
        let mut contents = Vec::new();
        let read = self.open(path)?.take(most + 1).read_to_end(&mut contents);
        read.map_err(|error| unreadable(&self.0, path, &error))?;
        if contents.len() as u64 > most {
            return Err(unreadable(
                &self.0,
                path,
                &io::Error::other(format!(
                    "it has more than {most} bytes, so it is no index: publish the bundle again"
                )),
            ));
        }
        Ok(contents)
    }

    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
        let mut file = self.open(path)?;
        let failed = |error: io::Error| unreadable(&self.0, path, &error);
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        let (mut left, mut buffer) = (range.end.saturating_sub(range.start), vec![0; 1 << 16]);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match file.read(&mut buffer[..most]) {
                Ok(0) => return Err(failed(io::Error::other(format!("it ends {left} bytes early: publish it again")))),
                Ok(read) => {
                    left -= read as u64;
                    if take(Piece::Bytes(&buffer[..read])).is_break() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn unreadable(folder: &Path, path: &str, error: &io::Error) -> SourceError {
    SourceError::Unreadable { path: folder.join(path).display().to_string(), reason: error.to_string() }
}
