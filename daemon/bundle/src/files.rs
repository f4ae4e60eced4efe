//! Folders that every user can read, and files that need not exist.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
