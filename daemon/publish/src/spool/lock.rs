//! Locks a spool's folder, so that only one sink uses it. The lock ends with the process, even after a crash.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use visiond_system::outage::explain;
use visiond_system::preflight::{Certainty, Resource, is_locked};

use super::files;

/// The folders that this process has locked.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

#[derive(Debug)]
pub struct Lock {
    directory: PathBuf,
    file: File,
}

/// Why a spool cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Temporary, while one sink takes over from another.
    #[error("another sink of this process holds it")]
    HeldByThisProcess,
    #[error("it is in use by another process: end that process, or set another folder")]
    HeldByOtherProcess,
    #[error("{}", explain(.0))]
    Io(#[from] io::Error),
    #[error("{}: {}", path.display(), explain(error))]
    File { path: PathBuf, error: io::Error },
}

impl OpenError {
    pub fn is_full_disk(&self) -> bool {
        let (Self::Io(error) | Self::File { error, .. }) = self else { return false };
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns whether the service would also fail to open `directory`.
    pub fn certainty(&self, directory: &Path) -> Certainty {
        match self {
            Self::HeldByThisProcess | Self::HeldByOtherProcess => {
                Certainty::InUse(Resource::Lock(directory.join(FILE)))
            }
            Self::Io(error) | Self::File { error, .. } => Certainty::of(error, directory),
        }
    }
}

/// The file in a folder that is locked.
pub const FILE: &str = "lock";

impl Lock {
    /// Checks whether another process has locked `directory`, without locking it.
    pub fn check(directory: &Path) -> Result<(), OpenError> {
        if is_locked(&directory.join(FILE)) { Err(OpenError::HeldByOtherProcess) } else { Ok(()) }
    }

    /// Locks `directory`, which must exist.
    pub fn take(directory: &Path) -> Result<Self, OpenError> {
        let directory = directory.canonicalize()?;
        let mut held = HELD.lock();
        if held.contains(&directory) {
            return Err(OpenError::HeldByThisProcess);
        }
        let path = directory.join(FILE);
        let file = files::open(&path, OpenOptions::new().write(true).create(true).truncate(false))
            .map_err(|error| OpenError::File { path, error })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::HeldByOtherProcess),
            Err(TryLockError::Error(error)) => return Err(OpenError::Io(error)),
        }
        held.insert(directory.clone());
        Ok(Self { directory, file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would unlock it only after this function; until then another sink would take it for the lock of
        // another process.
        let mut held = HELD.lock();
        let _ = self.file.unlock();
        held.remove(&self.directory);
    }
}
