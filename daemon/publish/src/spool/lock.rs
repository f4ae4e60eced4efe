//! One spool, one user: a lock on a file in its folder that ends with the process, however that ends.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The folders that sinks of this process have.
static OURS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A spool's folder is this sink's, as long as this lives.
#[derive(Debug)]
pub struct Lock {
    directory: PathBuf,
    file: File,
}

/// Why it is not.
#[derive(Debug)]
pub enum Taken {
    /// Another sink of this process has it; while one takes over from another, for a moment.
    Ours,
    /// Another process has it.
    Theirs,
    /// The system does not allow it.
    Io(io::Error),
}

impl Lock {
    /// Takes the folder, which is there.
    pub fn take(directory: &Path) -> Result<Self, Taken> {
        let directory = directory.canonicalize().map_err(Taken::Io)?;
        let mut ours = ours();
        if ours.contains(&directory) {
            return Err(Taken::Ours);
        }
        let path = directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(Taken::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Taken::Theirs),
            Err(TryLockError::Error(error)) => return Err(Taken::Io(error)),
        }
        ours.insert(directory.clone());
        Ok(Self { directory, file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is closed, and with it unlocked, when this is over; who comes between finds it locked by "another
        // process", so it is unlocked here.
        let mut ours = ours();
        let _ = self.file.unlock();
        ours.remove(&self.directory);
    }
}

fn ours() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // A set of names is good whoever panicked.
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}
