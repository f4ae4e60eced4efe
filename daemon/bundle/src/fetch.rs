//! Fetches a published bundle into the store, part by part, and continues where the last attempt ended.
//!
//! The bytes that are here are a file that only grows. Each part is compared with its hash once it is whole and then synced, and
//! all of them are compared again when a later process continues. So what a cut costs is the bytes that were under way.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::error::BundleError;
use super::following::Following;
use super::index::Index;
use super::read::hex;
use super::source::{BundleSource, Piece, SourceError};
use super::store::check_space;

/// Attempts in a row that may bring next to nothing before the source counts as away.
const ATTEMPTS: u32 = 3;

/// The fewest bytes of an attempt that brought something.
const FEWEST_BYTES: u64 = 64 << 10;

/// The pause after a connection that was cut; after each further one that brought next to nothing, twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// How a bundle is fetched.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// The most bytes in a second; `None`: no limit.
    pub max_rate_bytes_s: Option<u64>,
    /// When to give up for now.
    pub deadline: Instant,
}

/// Why a bundle is not fetched, or not yet.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The source is away, or has other contents than its index says.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The store cannot take it.
    #[error(transparent)]
    Store(#[from] BundleError),
    /// The deadline came before the end.
    #[error("cannot fetch {path} in one turn: {have} of {bytes} bytes are here; run the command again")]
    Unfinished {
        /// The file in the source.
        path: String,
        /// Bytes that are here.
        have: u64,
        /// Bytes of the bundle.
        bytes: u64,
    },
}

/// Fetches the bundle of `index`, continues what an earlier call has begun, and returns the file once every part is here. `progress`
/// gets the percentage that is here, whenever it grows, and may break the fetch
/// off for now.
///
/// # Errors
/// If the source or the store fails, or the deadline comes. What is here stays for the next call.
pub fn fetch(
    source: &mut dyn BundleSource,
    index: &Index,
    following: &Following,
    limits: &FetchLimits,
    progress: &mut dyn FnMut(u8) -> ControlFlow<()>,
) -> Result<PathBuf, FetchError> {
    let path = following.bundle(&index.sha256);
    following.keep_only(Some(&path))?;
    let mut fetched = Fetched::open(path, index)?;
    let (mut pace, mut shown) = (Pace::new(limits.max_rate_bytes_s), None);
    let (mut in_vain, mut wrong) = (0, 0);
    loop {
        if fetched.have == index.bytes {
            return Ok(fetched.path);
        }
        check_space(following.folder(), index.bytes - fetched.have)?;
        let before = fetched.have;
        let (mut failed, mut is_broken_off) = (Ok(()), false);
        let read = source.read_range(&index.path(), before..index.bytes, &mut |piece| {
            let read = match piece {
                Piece::Bytes(bytes) => {
                    failed = fetched.add(bytes, following);
                    bytes.len()
                }
                Piece::Skipped(bytes) => bytes,
            };
            let percent = (u128::from(fetched.have) * 100 / u128::from(index.bytes)) as u8;
            if failed.is_ok() && shown != Some(percent) {
                shown = Some(percent);
                is_broken_off = progress(percent).is_break();
            }
            pace.wait(read);
            if failed.is_err() || is_broken_off || Instant::now() >= limits.deadline {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match failed {
            Err(FetchError::Source(error)) => {
                wrong += 1;
                // Once may be a fault of the network.
                if wrong == 2 {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        if fetched.have == index.bytes {
            continue;
        }
        if is_broken_off || Instant::now() >= limits.deadline {
            let (path, have, bytes) = (index.path(), fetched.have, index.bytes);
            return Err(FetchError::Unfinished { path, have, bytes });
        }
        in_vain = if fetched.have >= before + FEWEST_BYTES { 0 } else { in_vain + 1 };
        if let Err(error) = read
            && in_vain >= ATTEMPTS
        {
            return Err(error.into());
        }
        thread::sleep(PAUSE * 2_u32.pow(in_vain.min(ATTEMPTS)));
    }
}

/// The part of a bundle that is here.
struct Fetched<'a> {
    path: PathBuf,
    file: File,
    index: &'a Index,
    have: u64,
    /// Of the part that is not whole yet.
    hash: Sha256,
}

impl<'a> Fetched<'a> {
    /// Opens what an earlier attempt has left, and drops what has other contents than the index says.
    fn open(path: PathBuf, index: &'a Index) -> Result<Self, FetchError> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(BundleError::io("write", &path))?;
        let mut it = Self { path, file, index, have: 0, hash: Sha256::new() };
        let mut buffer = vec![0; 1 << 16];
        loop {
            let most = usize::try_from(it.left_of_part()).unwrap_or(usize::MAX).min(buffer.len());
            match it.file.read(&mut buffer[..most]) {
                Ok(0) => break,
                Ok(read) => {
                    // The rest of the file goes with the first part that differs.
                    if it.count(&buffer[..read]).is_err() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BundleError::io("read", &it.path)(error).into()),
            }
        }
        it.cut()?;
        Ok(it)
    }

    /// Bytes that the current part lacks; 0 at the end of the bundle.
    fn left_of_part(&self) -> u64 {
        let [_, end] = self.index.part(self.part());
        end.saturating_sub(self.have)
    }

    fn part(&self) -> usize {
        usize::try_from(self.have / super::index::PART_BYTES).unwrap_or(usize::MAX)
    }

    /// Adds bytes that have arrived.
    fn add(&mut self, mut bytes: &[u8], following: &Following) -> Result<(), FetchError> {
        while !bytes.is_empty() && self.left_of_part() > 0 {
            let most = usize::try_from(self.left_of_part()).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at(most);
            self.file.write_all(now).map_err(BundleError::io("write", &self.path))?;
            bytes = rest;
            let is_whole = match self.count(now) {
                Ok(is_whole) => is_whole,
                Err(error) => {
                    self.cut()?;
                    return Err(error.into());
                }
            };
            if is_whole {
                self.file.sync_data().map_err(BundleError::io("sync", &self.path))?;
                check_space(following.folder(), self.index.bytes - self.have)?;
            }
        }
        Ok(())
    }

    /// Counts bytes of the current part, and returns whether it is whole now. If its contents are wrong, it begins again.
    fn count(&mut self, bytes: &[u8]) -> Result<bool, SourceError> {
        let (part, is_last) = (self.part(), bytes.len() as u64 == self.left_of_part());
        self.hash.update(bytes);
        self.have += bytes.len() as u64;
        if !is_last {
            return Ok(false);
        }
        let hash = hex(&std::mem::take(&mut self.hash).finalize());
        if self.index.parts.get(part) == Some(&hash) {
            return Ok(true);
        }
        [self.have, _] = self.index.part(part);
        Err(SourceError::Contents { path: self.index.path(), part: part + 1 })
    }

    /// Drops what lies after the bytes that count.
    fn cut(&mut self) -> Result<(), FetchError> {
        let cut = self.file.set_len(self.have).and_then(|()| self.file.seek(SeekFrom::Start(self.have)));
        cut.map_err(BundleError::io("write", &self.path))?;
        Ok(())
    }
}

/// Keeps to a rate.
struct Pace {
    bytes_s: Option<u64>,
    free_at: Instant,
}

impl Pace {
    fn new(bytes_s: Option<u64>) -> Self {
        Self { bytes_s, free_at: Instant::now() }
    }

    /// Waits as long as these bytes take.
    fn wait(&mut self, bytes: usize) {
        let Some(bytes_s) = self.bytes_s else { return };
        let now = Instant::now();
        let takes = Duration::from_secs_f64(bytes as f64 / bytes_s.max(1) as f64);
        // Time in which nothing arrived is not made up for.
        self.free_at = self.free_at.max(now) + takes;
        thread::sleep(self.free_at - now);
    }
}

#[cfg(test)]
mod tests;
