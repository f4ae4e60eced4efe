//! The ledger's files: two, written in turn.
//!
//! Each line is the CRC-32 of an entry, a space and the entry as JSON. A file begins with a copy of the whole ledger, up to the entry
//! `complete`, and goes on with changes. A copy is written into the other file, so one whole copy is on disk at any time. A file whose copy
//! is not complete does not count; a damaged line is skipped, because totals are absolute.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use visiond_message::{EventMessage, RuleTotals};
use visiond_system::outage::explain;

use super::open_event::OpenEvent;
use crate::spool::{Lock, OpenError, create_folder, is_passing, open, rename_aside, set_aside, sync_folder};

/// The names of the files.
const NAMES: [&str; 2] = ["events.0", "events.1"];
/// A longer file is not read: no ledger has so many bytes.
const MOST_BYTES: u64 = 256 << 20;
/// A copy of the ledger is written once the changes have this many bytes, and four times those of the last copy.
const CHANGES_BYTES: u64 = 1 << 20;
/// Digits of the CRC-32 and the space.
const HEAD: usize = 9;

/// A line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first line: the file with the larger number is newer.
    Copy(u64),
    /// The copy ends here.
    Complete,
    /// The totals of a rule.
    Totals { camera: Arc<str>, rule: Arc<str>, kind: Box<str>, totals: RuleTotals },
    /// The rule is gone.
    Forgotten { camera: Arc<str>, rule: Arc<str>, kind: Box<str> },
    /// An event that is under way.
    Open(OpenEvent),
    /// A message, by its number, that every sink should get.
    Message(u64, Arc<EventMessage>),
    /// The messages of these numbers need not be sent again.
    Done(Vec<u64>),
}

impl Entry {
    /// Appends the line of an entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[b' '; HEAD]);
        #[expect(
            clippy::expect_used,
            reason = "an entry has no map with other keys than texts, and writing to a Vec cannot fail"
        )]
        serde_json::to_writer(&mut *out, self).expect("an entry is always JSON");
        let crc = format!("{:08x}", crc32fast::hash(&out[start + HEAD..]));
        out[start..start + HEAD - 1].copy_from_slice(crc.as_bytes());
        out.push(b'\n');
    }

    /// Reads a line without its end; `None` if it is damaged.
    fn read(line: &[u8]) -> Option<Self> {
        let (crc, json) = (line.get(..HEAD - 1)?, line.get(HEAD..)?);
        let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
        if crc32fast::hash(json) != crc { None } else { serde_json::from_slice(json).ok() }
    }
}

/// The open files of a ledger.
#[derive(Debug)]
pub struct LedgerFile {
    folder: PathBuf,
    /// The file to append to; `None` until the first copy is written.
    current: Option<File>,
    /// The index of its name.
    place: usize,
    /// The number of its copy.
    copy: u64,
    copy_bytes: u64,
    bytes: u64,
    /// Whether the folder's new names may not be on disk.
    unsynced: Vec<PathBuf>,
    _lock: Lock,
}

impl LedgerFile {
    /// Opens the ledger in `folder`, which is created if it is missing; returns it with its entries. The caller then writes a copy.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Entry>), OpenError> {
        let mut unsynced = create_folder(folder)?;
        unsynced.push(folder.to_owned());
        let lock = Lock::take(folder)?;
        let mut found: Option<(u64, usize, Vec<Entry>)> = None;
        let mut damaged = Vec::new();
        for (place, name) in NAMES.iter().enumerate() {
            let path = folder.join(name);
            match read(&path) {
                Ok(Some((copy, entries))) => {
                    if found.as_ref().is_none_or(|(newest, ..)| copy > *newest) {
                        found = Some((copy, place, entries));
                    }
                }
                Ok(None) => damaged.push((path, None)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if is_passing(&error) => return Err(OpenError::File { path, error }),
                Err(error) => damaged.push((path, Some(error))),
            }
        }
        if found.is_some() {
            for (path, error) in damaged {
                match error {
                    Some(error) => set_aside(&path, &error)?,
                    // A crash leaves such a file while it writes a copy.
                    None => log::info!("{} is not complete: totals go on from the other file", path.display()),
                }
            }
        } else if !damaged.is_empty() {
            begin_again(&damaged)?;
        }
        let (copy, place, entries) = found.unwrap_or((0, NAMES.len() - 1, Vec::new()));
        let folder = folder.to_owned();
        let file = Self { folder, current: None, place, copy, copy_bytes: 0, bytes: 0, unsynced, _lock: lock };
        Ok((file, entries))
    }

    /// Whether to write a copy before the next changes.
    pub fn wants_copy(&self) -> bool {
        self.current.is_none() || self.bytes - self.copy_bytes > CHANGES_BYTES.max(4 * self.copy_bytes)
    }

    /// Appends changes, and with `sync` waits until they are on disk. After an error, the next write must be a copy.
    pub fn append(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        // After a failed sync, the file's content is unknown.
        let file = self.current.take().ok_or(io::ErrorKind::NotConnected)?;
        file.write_all_at(lines, self.bytes)?;
        if sync {
            file.sync_data()?;
        }
        self.bytes += lines.len() as u64;
        self.current = Some(file);
        Ok(())
    }

    /// Writes a copy of the whole ledger into the other file, and waits until it is on disk.
    pub fn write_copy(&mut self, lines: &[u8]) -> io::Result<()> {
        let (place, copy) = (1 - self.place, self.copy + 1);
        let file = open(&self.folder.join(NAMES[place]), OpenOptions::new().write(true).create(true).truncate(true))?;
        let mut all = Vec::with_capacity(lines.len() + 64);
        Entry::Copy(copy).write(&mut all);
        all.extend_from_slice(lines);
        Entry::Complete.write(&mut all);
        file.write_all_at(&all, 0)?;
        file.sync_all()?;
        self.unsynced.iter().try_for_each(|folder| sync_folder(folder))?;
        self.unsynced.clear();
        (self.current, self.place, self.copy) = (Some(file), place, copy);
        (self.copy_bytes, self.bytes) = (all.len() as u64, all.len() as u64);
        Ok(())
    }
}

/// Sets the damaged files aside, none of which has a whole copy, and logs what that costs.
fn begin_again(damaged: &[(PathBuf, Option<io::Error>)]) -> io::Result<()> {
    let mut what = Vec::new();
    for (path, error) in damaged {
        let reason = error.as_ref().map_or_else(|| "damaged".to_owned(), explain);
        what.push(format!("{} ({reason}), renamed to {}", path.display(), rename_aside(path)?.display()));
    }
    log::warn!(
        "cannot read the totals of lines and zones: they begin at 0, and events that were under way have no end: {}: check the disk with \
         dmesg",
        what.join("; ")
    );
    Ok(())
}

/// Whether a folder has a ledger's files.
pub fn has_files(folder: &Path) -> bool {
    NAMES.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
}

/// Reads a file; returns the number of its copy, and its entries. `None` if the copy is not complete.
fn read(path: &Path) -> io::Result<Option<(u64, Vec<Entry>)>> {
    let file = open(path, OpenOptions::new().read(true))?;
    if file.metadata()?.len() > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {} MiB: remove the renamed file", MOST_BYTES >> 20),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

/// Reads the bytes of a file, as [`read`].
pub(super) fn parse(bytes: &[u8]) -> Option<(u64, Vec<Entry>)> {
    let mut entries = bytes.split(|byte| *byte == b'\n').filter_map(Entry::read);
    let Some(Entry::Copy(copy)) = entries.next() else { return None };
    let entries: Vec<_> = entries.collect();
    entries.iter().any(|entry| matches!(entry, Entry::Complete)).then_some((copy, entries))
}
