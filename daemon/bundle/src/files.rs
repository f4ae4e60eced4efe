//! Folders that every user can read, files that need not exist, and files that somebody else may have put there.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::error::BundleError;

/// Creates a folder that every user can read.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(folder)?;
    // The mask of this process may have taken some of it.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// Creates a folder that every user can read, unless it exists.
pub(crate) fn create_if_missing(folder: PathBuf) -> Result<PathBuf, BundleError> {
    match create_folder(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(BundleError::io("create", &folder)(error)),
        _ => Ok(folder),
    }
}

/// Removes a file or link that need not exist.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), BundleError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BundleError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Opens a regular file, and nothing that could block, never end, or act when it is opened.
///
/// # Errors
/// The path leads to something else, or the file cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let check = |metadata: fs::Metadata| match metadata {
        it if it.is_file() => Ok(()),
        it if it.is_dir() => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: put one there")),
    };
    // Opening a device may already do something.
    check(fs::metadata(path)?)?;
    // By now it may be a FIFO.
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    check(file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes, whatever its size is said to be.
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it has more than the {most} bytes of such a file: put the right one there");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Reads a regular file of text, of at most `most` bytes.
pub(crate) fn read_bounded_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read_bounded(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8: put the right file there"))
}
