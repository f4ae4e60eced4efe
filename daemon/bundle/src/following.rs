//! What a device keeps of a bundle that it follows: `street/follow/` in the [store](crate::store), for one process at a time.
//!
//! ```text
//! street/follow/SHA-256.visiond   what is here of the version that is fetched
//! street/follow/NAME.toml         what the process must know after a restart
//! street/follow/.lock             held by the process that follows the bundle
//! ```

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use visiond_ground::atomic_write::write_atomically_by;

use super::error::BundleError;
use super::files::remove_if_there;
use super::rollout::{ROLLOUT, Rollout};

/// The folder's name.
pub(crate) const FOLLOW: &str = "follow";

const ENDING: &str = "visiond";

/// The files by which a process follows a bundle. No other process follows it while this lives.
#[derive(Debug)]
pub struct Following {
    folder: PathBuf,
    _lock: File,
}

impl Following {
    /// Locks the folder, which exists.
    pub(crate) fn lock(folder: PathBuf) -> Result<Self, BundleError> {
        let path = folder.join(".lock");
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(BundleError::io("open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(BundleError::Followed(folder)),
            Err(error) => Err(BundleError::io("lock", &path)(error.into())),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file of a bundle that is fetched.
    pub(crate) fn bundle(&self, sha256: &str) -> PathBuf {
        self.folder.join(format!("{sha256}.{ENDING}"))
    }

    /// Removes fetched bundles, except for one.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn keep_only(&self, kept: Option<&Path>) -> Result<(), BundleError> {
        let read = |error| BundleError::io("read", &self.folder)(error);
        for entry in fs::read_dir(&self.folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|ending| ending == ENDING) && Some(path.as_path()) != kept {
                fs::remove_file(&path).map_err(BundleError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Returns what was written under this name; `None` if nothing was, or if it is broken.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        toml::from_str(&fs::read_to_string(self.folder.join(format!("{name}.toml"))).ok()?).ok()
    }

    /// Writes something to be read after a restart, whole or not at all; `None` removes it.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write<T: Serialize>(&self, name: &str, value: Option<&T>) -> Result<(), BundleError> {
        let path = self.folder.join(format!("{name}.toml"));
        match value {
            Some(value) => self.replace(&path, value),
            None => remove_if_there(&path),
        }
    }

    /// Returns what is known about the rollout.
    pub fn rollout(&self) -> Option<Rollout> {
        Rollout::read(self.folder.parent()?)
    }

    /// Writes what is known about the rollout, for every user.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write_rollout(&self, rollout: &Rollout) -> Result<(), BundleError> {
        self.replace(&self.folder.with_file_name(ROLLOUT), rollout)
    }

    /// Replaces a file. The temporary one is in this folder, where no installation removes it.
    fn replace<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), BundleError> {
        let cannot = |error| BundleError::io("write", path)(error);
        let text = toml::to_string(value).map_err(|error| cannot(std::io::Error::other(error)))?;
        write_atomically_by(&self.folder.join(".new"), path, text.as_bytes()).map_err(cannot)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(cannot)
    }
}
