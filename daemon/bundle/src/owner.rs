//! Whether others could change a file or folder that root relies on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path};

use rustix::process::geteuid;

use super::error::BundleError;

/// Permissions to write of the group and of everybody, and the bit that keeps users of a folder from each other's files.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Checks, as root, that only root can change `path` or what leads to it, as far as it exists. Other users install only for
/// themselves.
///
/// # Errors
/// [`BundleError::Foreign`], with the folder or link that somebody else could change.
pub fn check(path: &Path) -> Result<(), BundleError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let absolute = path::absolute(path).map_err(BundleError::io("find", path))?;
    for part in absolute.ancestors() {
        let found = match fs::symlink_metadata(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(BundleError::io("read", part))?,
        };
        let is_shared = found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0;
        // A link of root's to a folder of root's would do, but then that folder can be named.
        if found.uid() != 0 || found.is_symlink() || is_shared {
            return Err(BundleError::Foreign(part.to_owned()));
        }
    }
    Ok(())
}
