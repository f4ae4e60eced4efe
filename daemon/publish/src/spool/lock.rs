//! Locks a spool's folder, so that only one sink uses it. The lock ends with the process, even after a crash.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The folders that this process has locked.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The lock on a spool's folder, held until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    directory: PathBuf,
    file: File,
}

/// Why a spool cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another sink of this process holds the lock: for a moment, while one sink takes over from another.
    HeldByThisProcess,
    /// Another process holds the lock.
    HeldByOtherProcess,
    /// The folder or a file in it cannot be opened.
    Io(io::Error),
}

impl Lock {
    /// Locks `directory`, which must exist.
    pub fn take(directory: &Path) -> Result<Self, OpenError> {
        let directory = directory.canonicalize().map_err(OpenError::Io)?;
        let mut held = HELD.lock();
        if held.contains(&directory) {
            return Err(OpenError::HeldByThisProcess);
        }
        let path = directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(OpenError::Io)?;
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
        // The file is closed, and with it unlocked, when this is over; who comes between finds it locked by "another
        // process", so it is unlocked here.
        let mut held = HELD.lock();
        let _ = self.file.unlock();
        held.remove(&self.directory);
    }
}
