//! The spool: keeps messages on disk, in order, until they are acknowledged.
//!
//! ```text
//! DIR/lock                      locked by the one process that uses the spool
//! DIR/cursor                    the number up to which everything is acknowledged
//! DIR/0000000000000001.spool    records from number 1 on
//! DIR/00000000000004c3.spool    the newest segment, which is appended to
//! ```
//! Only the cursor is changed in place. Segments are appended to, and deleted when everything in them is acknowledged or the
//! spool is full. A start never appends to an old segment. Reading skips what a crash, a power cut or a disk fault damaged, at
//! the end of a segment or anywhere in it. `docs/spool.md` explains to users what follows from this.

mod cursor;
mod lock;
mod record;
mod segment;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::broker::QueuedMessage;
use cursor::AckCursor;
use lock::Lock;
use segment::{Segment, SegmentReader, SegmentWriter};
use visiond_system::preflight::{may_make, may_open_or_create};

pub use lock::OpenError;

/// About how many segments a full spool has. When it is full, the oldest segment is deleted.
const SEGMENTS: u64 = 32;
/// The longest segment in bytes, unless one batch is longer.
const LONGEST_SEGMENT: u64 = 8 << 20;

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
    unsynced: Unsynced,
    /// Last, so that the lock is released after everything else.
    _lock: Lock,
}

/// Files that a power cut could still damage.
#[derive(Debug, Default)]
pub struct Unsynced {
    segments: Vec<Arc<File>>,
    /// The folder, if file names in it are new.
    directory: Option<PathBuf>,
    cursor: Option<Arc<File>>,
}

/// The file of the [`AckCursor`].
const CURSOR: &str = "cursor";

impl Spool {
    /// Finds out whether [`Spool::open`] would fail, without touching `directory`.
    pub fn check(directory: &Path) -> Result<(), OpenError> {
        may_make(directory)?;
        if directory.exists() {
            [lock::FILE, CURSOR].iter().try_for_each(|name| may_open_or_create(&directory.join(name)))?;
        }
        Lock::check(directory)
    }

    /// Opens the spool in `directory`, and creates it if it is missing. Opens whatever it finds there, and reads what is
    /// readable.
    pub fn open(directory: &Path, limit_bytes: u64) -> Result<Self, OpenError> {
        fs::create_dir_all(directory)?;
        let lock = Lock::take(directory)?;
        let cursor = AckCursor::open(&directory.join(CURSOR))?;
        let mut segments: VecDeque<_> = Segment::list(directory)?.into();
        let mut next_number = cursor.number + 1;
        // A segment without a whole record is useless, and would be in the way of a new segment of its name.
        while let Some(newest) = segments.back() {
            next_number = next_number.max(newest.first);
            match newest.last(directory)? {
                Some(last) => {
                    next_number = next_number.max(last + 1);
                    if last <= cursor.number {
                        segments.drain(..).try_for_each(|old| remove(&old.path(directory)))?;
                    }
                    break;
                }
                None => {
                    remove(&newest.path(directory))?;
                    segments.pop_back();
                }
            }
        }
        let mut spool = Self {
            directory: directory.to_owned(),
            limit_bytes,
            segments,
            writer: None,
            reader: None,
            next_to_read: cursor.number + 1,
            next_number,
            cursor,
            dropped: 0,
            damaged: 0,
            unsynced: Unsynced::default(),
            _lock: lock,
        };
        spool.forget_acknowledged();
        spool.next_to_read = spool.segments.front().map_or(next_number, |oldest| spool.next_to_read.max(oldest.first));
        Ok(spool)
    }

    /// Returns the next message's number, or a larger one.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Appends messages: all of them or, after an error, none. When the spool is full, deletes its oldest segments.
    ///
    /// One write(2) into the page cache for all of them: a killed process loses none, a power cut may lose those that are not
    /// synced yet. 64 messages of 1 KB take about 30 us.
    pub fn append<'a>(&mut self, messages: impl Iterator<Item = &'a QueuedMessage>) -> io::Result<()> {
        let mut records = Vec::new();
        let mut numbers: Option<(u64, u64)> = None;
        for message in messages {
            if record::encode(message, &mut records) {
                numbers = Some((numbers.map_or(message.number, |(first, _)| first), message.number));
            }
        }
        let Some((first, last)) = numbers else { return Ok(()) };
        let bytes = records.len() as u64;
        let segment_bytes = (self.limit_bytes / SEGMENTS).min(LONGEST_SEGMENT);
        if self.writer.as_ref().is_some_and(|writer| !writer.is_empty() && writer.bytes + bytes > segment_bytes) {
            self.writer = None;
        }
        while self.segments.len() > usize::from(self.writer.is_some()) && self.bytes() + bytes > self.limit_bytes {
            self.drop_oldest(first);
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let writer = match SegmentWriter::create(&self.directory, first) {
                    // The folder was deleted.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        fs::create_dir_all(&self.directory)?;
                        SegmentWriter::create(&self.directory, first)
                    }
                    other => other,
                }?;
                self.segments.push_back(Segment { first, bytes: writer.bytes });
                self.unsynced.directory = Some(self.directory.clone());
                none.insert(writer)
            }
        };
        if let Err(error) = writer.append(&records) {
            if writer.is_empty()
                && let Some(empty) = self.segments.pop_back()
            {
                let _ = remove(&empty.path(&self.directory));
            }
            self.writer = None;
            return Err(error);
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes = writer.bytes;
        }
        if !self.unsynced.segments.iter().any(|known| Arc::ptr_eq(known, &writer.file)) {
            self.unsynced.segments.push(Arc::clone(&writer.file));
        }
        self.next_number = last + 1;
        Ok(())
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

    /// Returns the next message, in the order of the numbers; `None` if everything was read. After an error, reading continues
    /// with the next segment.
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
            match found {
                Ok(Some(message)) if message.number < self.next_to_read => {}
                Ok(Some(message)) => {
                    self.next_to_read = message.number + 1;
                    return Ok(Some(message));
                }
                Ok(None) => self.leave(at),
                Err(error) => {
                    self.damaged += 1;
                    self.leave(at);
                    return Err(error);
                }
            }
        }
        Ok(None)
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

    /// Takes what a power cut could still damage, for a thread that may wait.
    pub fn unsynced(&mut self) -> Option<Unsynced> {
        if self.writer.as_ref().is_some_and(SegmentWriter::is_deleted) {
            self.writer = None;
        }
        let Unsynced { segments, directory, cursor } = &self.unsynced;
        let some = !segments.is_empty() || directory.is_some() || cursor.is_some();
        some.then(|| std::mem::take(&mut self.unsynced))
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the number of unacknowledged messages, if none is damaged.
    pub fn records(&self) -> u64 {
        let oldest = self.segments.front().map_or(self.next_number, |oldest| oldest.first);
        self.next_number - (self.cursor.number + 1).max(oldest).min(self.next_number)
    }

    pub fn unread(&self) -> u64 {
        self.next_number.saturating_sub(self.next_to_read)
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
            let unread_from = self.next_to_read.max(oldest.first);
            self.dropped += next.min(self.next_number).saturating_sub(unread_from);
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

    fn remove(&self, segment: Segment) {
        let path = segment.path(&self.directory);
        if let Err(error) = remove(&path) {
            log::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

impl Unsynced {
    /// Syncs all of it to disk: the data before what refers to it.
    pub fn sync(self) -> io::Result<()> {
        self.segments.iter().try_for_each(|file| file.sync_data())?;
        if let Some(directory) = self.directory {
            File::open(directory)?.sync_all()?;
        }
        self.cursor.map_or(Ok(()), |cursor| cursor.sync_data())
    }
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
