//! The spool: keeps messages on disk, in order, until they are acknowledged.
//!
//! ```text
//! DIR/lock                      locked by the one process that uses the spool
//! DIR/cursor                    the number up to which everything is acknowledged
//! DIR/0000000000000001.spool    records from number 1 on
//! DIR/00000000000004c3.spool    the newest segment, which is appended to
//! ```
//! Only the cursor is changed in place. Segments are appended to, and deleted when everything in them is acknowledged or the
//! spool is full. A start never appends to an old segment. Reading skips records that a crash, a power cut or a disk fault
//! damaged, at the end of a segment or anywhere in it. A file that cannot be read is renamed to `NAME.unreadable`, and the
//! spool continues without it. After a failed sync, its messages are written again. `docs/spool.md` explains the consequences
//! to users.

mod cursor;
mod files;
mod lock;
mod record;
mod segment;

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::broker::QueuedMessage;
use cursor::AckCursor;
use record::Records;
use segment::{Segment, SegmentReader, SegmentWriter};
use visiond_system::preflight::{may_make, may_open_or_create};

pub use files::{create_folder, is_passing, open, rename_aside, set_aside, sync_folder};
pub use lock::{Lock, OpenError};
pub use record::MOST_BYTES;

/// The approximate number of segments of a full spool. When it is full, the oldest segment is deleted.
const SEGMENTS: u64 = 32;
/// The longest segment in bytes, unless one batch is longer.
const LONGEST_SEGMENT: u64 = 8 << 20;
/// How many bytes may wait for a sync. They are kept in memory.
const MOST_UNSYNCED: usize = 16 << 20;
/// How many bytes of messages are reread at once, plus one message.
const READ_AGAIN_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    /// The limit on disk.
    pub limit_bytes: u64,
    /// Oldest first; the last is appended to while there is a writer.
    segments: VecDeque<Segment>,
    writer: Option<SegmentWriter>,
    /// Reads the segment that has `next_to_read`; opened when needed.
    reader: Option<SegmentReader>,
    next_to_read: u64,
    next_number: u64,
    cursor: AckCursor,
    /// Unread messages that a full spool has dropped.
    pub dropped: u64,
    /// Places where no record could be read.
    pub damaged: u64,
    /// Files that could not be read, and were set aside.
    pub unreadable: u64,
    unsynced: Unsynced,
    /// Last, so that the lock is released after everything else.
    _lock: Lock,
}

/// The writes that a power cut could still undo.
#[derive(Debug, Default)]
pub struct Unsynced {
    records: Vec<UnsyncedRecords>,
    /// Folders with new names.
    folders: BTreeSet<PathBuf>,
    cursor: Option<Arc<File>>,
    /// A sync failed. Linux then forgets what it could not write, and the next sync succeeds without it.
    failed: bool,
}

/// Records of a segment, kept until they are synced.
#[derive(Debug)]
struct UnsyncedRecords {
    /// The first number of the segment.
    first: u64,
    file: Arc<File>,
    /// Where they begin in the file.
    start: u64,
    records: Records,
}

/// The file of the [`AckCursor`].
const CURSOR: &str = "cursor";

impl Spool {
    /// Checks whether [`Spool::open`] would fail, without touching `directory`.
    pub fn check(directory: &Path) -> Result<(), OpenError> {
        may_make(directory)?;
        if directory.exists() {
            [lock::FILE, CURSOR].iter().try_for_each(|name| may_open_or_create(&directory.join(name)))?;
        }
        Lock::check(directory)
    }

    /// Opens the spool in `directory`, and creates it if it is missing. Reads only the newest segment, so that it takes no longer
    /// with a full spool. Sets aside what cannot be read.
    pub fn open(directory: &Path, limit_bytes: u64) -> Result<Self, OpenError> {
        let folders = files::create_folder(directory)?.into_iter().collect();
        let (lock_path, cursor_path) = (directory.join(lock::FILE), directory.join(CURSOR));
        let in_file = |path: &Path, error| OpenError::File { path: path.to_owned(), error };
        let mut unreadable = 0;
        if fs::symlink_metadata(&lock_path).is_ok_and(|found| !found.is_file()) {
            files::set_aside(&lock_path, &files::not_a_file())?;
            unreadable += 1;
        }
        let lock = Lock::take(directory)?;
        let cursor = match AckCursor::open(&cursor_path) {
            Err(error) if !files::is_passing(&error) && fs::symlink_metadata(&cursor_path).is_ok() => {
                // Without the cursor, messages are sent again.
                files::set_aside(&cursor_path, &error)?;
                unreadable += 1;
                AckCursor::open(&cursor_path)
            }
            other => other,
        };
        let cursor = cursor.map_err(|error| in_file(&cursor_path, error))?;
        let mut spool = Self {
            directory: directory.to_owned(),
            limit_bytes,
            segments: VecDeque::new(),
            writer: None,
            reader: None,
            next_to_read: cursor.number + 1,
            next_number: cursor.number + 1,
            cursor,
            dropped: 0,
            damaged: 0,
            unreadable,
            unsynced: Unsynced { folders, ..Unsynced::default() },
            _lock: lock,
        };
        for first in Segment::list(directory)? {
            match Segment::find(directory, first) {
                Ok(segment) => spool.segments.push_back(segment),
                Err(error) => spool.set_aside(first, error)?,
            }
        }
        spool.read_newest()?;
        spool.forget_acknowledged();
        let next_firsts: Vec<_> = spool.segments.iter().skip(1).map(|next| next.first).collect();
        spool.segments.iter_mut().zip(next_firsts).for_each(|(segment, next_first)| segment.estimate(next_first));
        let next_number = spool.next_number;
        spool.next_to_read = spool.segments.front().map_or(next_number, |oldest| spool.next_to_read.max(oldest.first));
        Ok(spool)
    }

    /// Determines the next message's number. Removes or sets aside the newest segments if they have no readable record,
    /// because a new segment would need the same name.
    fn read_newest(&mut self) -> Result<(), OpenError> {
        while let Some(newest) = self.segments.back_mut() {
            self.next_number = self.next_number.max(newest.first);
            let counted = newest.count(&self.directory);
            let newest = *newest;
            match counted {
                Ok(Some(last)) => {
                    self.next_number = self.next_number.max(last + 1);
                    if last <= self.cursor.number {
                        std::mem::take(&mut self.segments).into_iter().for_each(|old| self.remove(old));
                    }
                    return Ok(());
                }
                Ok(None) => self.remove(newest),
                Err(error) => self.set_aside(newest.first, error)?,
            }
            self.segments.pop_back();
        }
        Ok(())
    }

    /// Returns the next message's number, or a larger one.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Appends messages: all of them or, after an error, none. When the spool is full, deletes its oldest segments.
    ///
    /// They are written into the page cache: a killed process loses none, a power cut may lose those that are not synced yet.
    /// Until then they also stay in memory, where long lines are shared with the messages. 64 messages of 1 KB take one
    /// write(2) and about 30 us.
    pub fn append<'a>(&mut self, messages: impl Iterator<Item = &'a QueuedMessage>) -> io::Result<()> {
        let mut records = Records::default();
        let mut numbers: Option<(u64, u64)> = None;
        let mut count = 0;
        for message in messages {
            if records.push(message) {
                count += 1;
                numbers = Some((numbers.map_or(message.number, |(first, _)| first), message.number));
            }
        }
        let Some((first, last)) = numbers else { return Ok(()) };
        let unsynced = self.unsynced_bytes();
        if unsynced > 0 && unsynced + records.bytes() > MOST_UNSYNCED {
            let mib = MOST_UNSYNCED >> 20;
            return Err(io::Error::other(format!("the disk has not synced the last {mib} MiB; check that disk")));
        }
        let bytes = records.bytes() as u64;
        let segment_bytes = (self.limit_bytes / SEGMENTS).min(LONGEST_SEGMENT);
        if self.writer.as_ref().is_some_and(|writer| !writer.is_empty() && writer.bytes + bytes > segment_bytes) {
            self.writer = None;
        }
        while self.segments.len() > usize::from(self.writer.is_some()) && self.bytes() + bytes > self.limit_bytes {
            self.drop_oldest(first);
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.create_segment(first)?,
        };
        let start = writer.bytes;
        if let Err(error) = writer.append(&records) {
            if writer.is_empty()
                && let Some(empty) = self.segments.pop_back()
            {
                self.remove(empty);
            }
            return Err(error);
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes = writer.bytes;
            (segment.records, segment.last) = (segment.records + count, last);
            self.unsynced.add(segment.first, &writer.file, start, records);
        }
        self.writer = Some(writer);
        self.next_number = last + 1;
        Ok(())
    }

    /// Begins a segment whose first record will have the number `first`.
    fn create_segment(&mut self, first: u64) -> io::Result<SegmentWriter> {
        let writer = match SegmentWriter::create(&self.directory, first) {
            // The folder was deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.unsynced.folders.extend(files::create_folder(&self.directory)?);
                SegmentWriter::create(&self.directory, first)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.set_aside(first, error)?;
                SegmentWriter::create(&self.directory, first)
            }
            other => other,
        }?;
        self.segments.push_back(Segment { first, bytes: writer.bytes, ..Segment::default() });
        self.unsynced.folders.insert(self.directory.clone());
        let mut head = Records::default();
        head.push_bytes(Bytes::from_static(segment::HEAD));
        self.unsynced.add(first, &writer.file, 0, head);
        Ok(writer)
    }

    /// Notes that the numbers below `next_number` belong to messages that are not written.
    pub fn skip_numbers(&mut self, next_number: u64) {
        if self.is_read() {
            self.next_to_read = self.next_to_read.max(next_number);
        }
        self.next_number = self.next_number.max(next_number);
    }

    pub fn is_read(&self) -> bool {
        self.next_to_read >= self.next_number
    }

    /// Returns the next message, in the order of the numbers; `None` if everything was read. A segment that cannot be read is set
    /// aside. After an error, the same message can be read later.
    pub fn read(&mut self) -> io::Result<Option<QueuedMessage>> {
        while !self.is_read() {
            // The last segment that begins at or before the number, otherwise the first.
            let at = self.segments.partition_point(|segment| segment.first <= self.next_to_read).saturating_sub(1);
            let Some(&segment) = self.segments.get(at) else {
                self.next_to_read = self.next_number;
                break;
            };
            let reader = match &mut self.reader {
                Some(reader) if reader.first == segment.first => Ok(reader),
                other => SegmentReader::open(&self.directory, segment).map(|reader| other.insert(reader)),
            };
            let found = reader.and_then(|reader| {
                let found = reader.next(segment.bytes);
                self.damaged += std::mem::take(&mut reader.damaged);
                found
            });
            // A larger number belongs to a later segment, and would hide the messages there.
            let end = self.segments.get(at + 1).map_or(self.next_number, |next| next.first);
            match found {
                Ok(Some(message)) if !(self.next_to_read..end).contains(&message.number) => {}
                Ok(Some(message)) => {
                    self.next_to_read = message.number + 1;
                    return Ok(Some(message));
                }
                Ok(None) => self.leave(at),
                Err(error) => self.give_up(at, error)?,
            }
        }
        Ok(None)
    }

    /// Rereads the messages with the first of the ascending `numbers`. Returns the messages that it found, and how many of
    /// the numbers it has handled: messages missing among these are lost. A segment that cannot be read is set aside.
    pub fn read_again(&mut self, numbers: &[u64]) -> io::Result<(Vec<QueuedMessage>, usize)> {
        let Some(first) = numbers.first() else { return Ok((Vec::new(), 0)) };
        let after = self.segments.partition_point(|segment| segment.first <= *first);
        let end = self.segments.get(after).map_or(self.next_number, |next| next.first);
        let mut settled = numbers.partition_point(|number| *number < end);
        let at = after.saturating_sub(1);
        let mut found = Vec::new();
        if let Some(&segment) = self.segments.get(at).filter(|_| after > 0) {
            match self.find(segment, &numbers[..settled], &mut found) {
                Ok(through) => settled = through,
                // The rest of it is lost.
                Err(error) => self.give_up(at, error)?,
            }
        }
        Ok((found, settled))
    }

    /// Finds messages with these numbers in a segment, a limited amount at once; returns how many of the numbers it has
    /// handled.
    fn find(&self, segment: Segment, numbers: &[u64], found: &mut Vec<QueuedMessage>) -> io::Result<usize> {
        let mut reader = SegmentReader::open(&self.directory, segment)?;
        let mut bytes = 0;
        while let Some(message) = reader.next(segment.bytes)? {
            let is_next = found.last().is_none_or(|last| last.number < message.number);
            let Some(at) = numbers.binary_search(&message.number).ok().filter(|_| is_next) else { continue };
            bytes += message.line.len();
            found.push(message);
            if bytes >= READ_AGAIN_BYTES || at + 1 == numbers.len() {
                return Ok(at + 1);
            }
        }
        Ok(numbers.len())
    }

    /// Returns the first number of the oldest segment.
    pub fn first_number(&self) -> Option<u64> {
        self.segments.front().map(|segment| segment.first)
    }

    /// Continues without the segment at this index, which cannot be read because of `error`.
    fn give_up(&mut self, at: usize, error: io::Error) -> io::Result<()> {
        let Some(&segment) = self.segments.get(at) else { return Ok(()) };
        self.set_aside(segment.first, error)?;
        self.leave(at);
        self.reader = None;
        if at + 1 == self.segments.len() {
            self.writer = None;
        }
        self.segments.remove(at);
        Ok(())
    }

    /// Renames the segment with this first number, which cannot be read because of `error`. Fails if it should be read again
    /// later.
    fn set_aside(&mut self, first: u64, error: io::Error) -> io::Result<()> {
        if files::is_passing(&error) {
            return Err(error);
        }
        let path = Segment { first, ..Segment::default() }.path(&self.directory);
        match files::set_aside(&path, &error) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                log::error!("cannot read {}: {error}; its messages are lost", path.display());
            }
            // A disk that refuses this refuses more than one file.
            other => other?,
        }
        self.unreadable += 1;
        self.next_number = self.next_number.max(first.saturating_add(1));
        Ok(())
    }

    /// Marks everything as read, because it is sent from memory.
    pub fn pass_over(&mut self) {
        self.next_to_read = self.next_number;
        self.reader = self.segments.back().map(|newest| SegmentReader::behind(&self.directory, *newest));
    }

    /// Notes that everything up to `number` is acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        self.cursor.number = self.cursor.number.max(number);
        self.forget_acknowledged();
    }

    /// Writes the acknowledged number; returns whether it was new.
    pub fn write_cursor(&mut self) -> io::Result<bool> {
        let written = self.cursor.write()?;
        if written {
            self.unsynced.cursor = Some(Arc::clone(&self.cursor.file));
        }
        Ok(written)
    }

    /// Takes the data that a power cut could still damage, for a thread that may wait.
    pub fn unsynced(&mut self) -> Option<Unsynced> {
        if self.writer.as_ref().is_some_and(SegmentWriter::is_deleted) {
            self.writer = None;
        }
        let Unsynced { records, folders, cursor, .. } = &self.unsynced;
        let some = !records.is_empty() || !folders.is_empty() || cursor.is_some();
        some.then(|| std::mem::take(&mut self.unsynced))
    }

    /// Takes back the data that could not be synced. The next sync first writes it again; new messages go into a new segment.
    pub fn not_synced(&mut self, mut failed: Unsynced) {
        self.writer = None;
        // Others were deleted meanwhile.
        failed.records.retain(|records| self.segments.iter().any(|segment| segment.first == records.first));
        failed.records.append(&mut self.unsynced.records);
        if failed.cursor.take().is_some() {
            self.cursor.write_again();
        }
        failed.folders.append(&mut self.unsynced.folders);
        self.unsynced = Unsynced { cursor: self.unsynced.cursor.take(), failed: true, ..failed };
    }

    /// Returns how many bytes of records wait for a sync that has not begun.
    pub fn unsynced_bytes(&self) -> usize {
        self.unsynced.records.iter().map(|of_segment| of_segment.records.bytes()).sum()
    }

    /// Whether a sync should start before it is due.
    pub fn should_sync(&self) -> bool {
        self.unsynced_bytes() > MOST_UNSYNCED / 4
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the number of unacknowledged messages; those of an earlier run are estimated. While the broker refuses a
    /// camera, acknowledged messages of other cameras since then also count.
    pub fn records(&self) -> u64 {
        self.records_from(self.cursor.number + 1)
    }

    /// Returns the known number of unread messages: 0 does not mean that everything was read.
    pub fn unread(&self) -> u64 {
        self.records_from(self.next_to_read)
    }

    fn records_from(&self, number: u64) -> u64 {
        self.segments.iter().map(|segment| segment.records_from(number)).sum()
    }

    /// Moves on from the segment at this index, which was read to its end.
    fn leave(&mut self, at: usize) {
        match self.segments.get(at + 1) {
            Some(next) => {
                self.next_to_read = self.next_to_read.max(next.first);
                self.reader = None;
            }
            // The reader stays at the end of the newest segment.
            None => self.next_to_read = self.next_number,
        }
    }

    /// Deletes the oldest segment to make room; a new one would begin with `next_first`.
    fn drop_oldest(&mut self, next_first: u64) {
        let Some(oldest) = self.segments.pop_front() else { return };
        let next = self.segments.front().map_or(next_first, |next| next.first);
        if self.next_to_read < next {
            self.dropped += oldest.records_from(self.next_to_read);
            self.next_to_read = next;
        }
        if self.reader.as_ref().is_some_and(|reader| reader.first == oldest.first) {
            self.reader = None;
        }
        self.remove(oldest);
    }

    /// Deletes the segments in which everything is acknowledged, except the one that is appended to.
    fn forget_acknowledged(&mut self) {
        while self.segments.get(1).is_some_and(|next| next.first <= self.cursor.number + 1) {
            let Some(oldest) = self.segments.pop_front() else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, segment: Segment) {
        self.unsynced.records.retain(|records| records.first != segment.first);
        let path = segment.path(&self.directory);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("cannot remove {}: {error}", path.display());
            }
            _ => {}
        }
    }
}

impl Unsynced {
    fn add(&mut self, first: u64, file: &Arc<File>, start: u64, records: Records) {
        match self.records.last_mut() {
            Some(last) if last.first == first => last.records.append(records),
            _ => self.records.push(UnsyncedRecords { first, file: Arc::clone(file), start, records }),
        }
    }

    /// Syncs everything to disk, data before the names and cursor that refer to it. After an error, none of it counts as
    /// synced.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = self.try_sync();
        self.failed = synced.is_err();
        synced
    }

    fn try_sync(&self) -> io::Result<()> {
        if self.failed {
            let write = |UnsyncedRecords { file, start, records, .. }: &_| records.write_at(file, *start);
            self.records.iter().try_for_each(write)?;
        }
        self.records.iter().try_for_each(|records| records.file.sync_data())?;
        self.folders.iter().try_for_each(|folder| files::sync_folder(folder))?;
        self.cursor.as_ref().map_or(Ok(()), |cursor| cursor.sync_data())
    }
}

#[cfg(test)]
mod tests;
