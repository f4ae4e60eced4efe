//! A segment of the spool: an append-only file of records, named by its first record's number.
//!
//! Reading finds every whole record even in a damaged file: after damage, it searches for the next record.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files;
use super::record::{self, DecodedRecord, Records};
use crate::broker::QueuedMessage;

/// The first bytes of a segment, which show people what the file is.
pub const HEAD: &[u8; 16] = b"visiond spool 1\n";
/// The end of its name.
const SUFFIX: &str = ".spool";
const CHUNK: usize = 256 << 10;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// No number in it is smaller.
    pub first: u64,
    /// Its length up to the end of the last record.
    pub bytes: u64,
    /// The number of whole records, and the number of the last one; may be an estimate, see [`Segment::estimate`].
    pub records: u64,
    pub last: u64,
}

impl Segment {
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{:016x}{SUFFIX}", self.first))
    }

    /// Lists the first numbers of all entries in `directory` that have a segment's name, oldest first.
    pub fn list(directory: &Path) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).filter(|digits| digits.len() == 16);
            let first = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            found.extend(first.filter(|first| *first <= record::LARGEST_NUMBER));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Finds the segment whose first number is `first`.
    pub fn find(directory: &Path, first: u64) -> io::Result<Self> {
        let mut segment = Self { first, ..Self::default() };
        let found = fs::symlink_metadata(segment.path(directory))?;
        segment.bytes = found.len();
        if found.is_file() { Ok(segment) } else { Err(files::not_a_file()) }
    }

    /// Counts its records; returns the largest number in it, or `None` if it has no whole record.
    pub fn count(&mut self, directory: &Path) -> io::Result<Option<u64>> {
        let mut reader = SegmentReader::open(directory, *self)?;
        (self.records, self.last) = (0, 0);
        while let Some(message) = reader.next(self.bytes)? {
            self.records += 1;
            self.last = self.last.max(message.number);
        }
        Ok((self.records > 0).then_some(self.last))
    }

    /// Estimates its records without reading it, from its length and the first number of the segment after it: reading a full
    /// spool takes an SD card many seconds. Missing numbers count, up to the number of records that fit into the file.
    pub fn estimate(&mut self, next_first: u64) {
        let room = self.bytes.saturating_sub(HEAD.len() as u64) / record::SHORTEST as u64;
        self.records = next_first.saturating_sub(self.first).min(room);
        self.last = next_first.saturating_sub(1);
    }

    /// Returns how many of its records have a number of at least `from`. Numbers may be missing.
    pub fn records_from(&self, from: u64) -> u64 {
        (self.last + 1).saturating_sub(from.max(self.first)).min(self.records)
    }
}

#[derive(Debug)]
pub struct SegmentWriter {
    pub file: Arc<File>,
    pub bytes: u64,
}

impl SegmentWriter {
    /// Creates a segment whose first record will have the number `first`.
    pub fn create(directory: &Path, first: u64) -> io::Result<Self> {
        let segment = Segment { first, bytes: HEAD.len() as u64, ..Segment::default() };
        let path = segment.path(directory);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        if let Err(error) = file.write_all_at(HEAD, 0) {
            // Otherwise the file would block the next attempt.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Self { file: Arc::new(file), bytes: segment.bytes })
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == HEAD.len() as u64
    }

    /// Appends whole records. After an error, nothing more may be appended.
    pub fn append(&mut self, records: &Records) -> io::Result<()> {
        if let Err(error) = records.write_at(&self.file, self.bytes) {
            // This only frees the space: a partial record does no harm.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += records.bytes() as u64;
        Ok(())
    }

    /// Whether its file was deleted, so that written records are lost.
    pub fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() == 0)
    }
}

/// Reads a segment from its start to its end.
#[derive(Debug)]
pub struct SegmentReader {
    /// The first number of the segment.
    pub first: u64,
    path: PathBuf,
    /// Open while there is something to read.
    file: Option<File>,
    /// Where `buffer` starts in the file.
    start: u64,
    buffer: Vec<u8>,
    /// How much of it was read.
    at: usize,
    /// How many places had no record.
    pub damaged: u64,
    /// The last bytes were not a record.
    in_damage: bool,
}

impl SegmentReader {
    /// Reads a whole segment.
    pub fn open(directory: &Path, segment: Segment) -> io::Result<Self> {
        let mut reader = Self::behind(directory, Segment { bytes: HEAD.len() as u64, ..segment });
        reader.file = Some(files::open(&reader.path, OpenOptions::new().read(true))?);
        Ok(reader)
    }

    /// Creates a reader for records that are appended to a segment from now on.
    pub fn behind(directory: &Path, segment: Segment) -> Self {
        let path = segment.path(directory);
        let (file, start, buffer) = (None, segment.bytes, Vec::new());
        Self { first: segment.first, path, file, start, buffer, at: 0, damaged: 0, in_damage: false }
    }

    /// Returns the next whole record before `end`, the end of the valid data.
    pub fn next(&mut self, end: u64) -> io::Result<Option<QueuedMessage>> {
        loop {
            let here = self.start + self.at as u64;
            if here >= end {
                self.rest();
                return Ok(None);
            }
            let left = end - here;
            let unread = (self.buffer.len() - self.at) as u64;
            match record::decode(&self.buffer[self.at..]) {
                DecodedRecord::Record(message, bytes) => {
                    self.at += bytes;
                    self.in_damage = false;
                    return Ok(Some(message));
                }
                DecodedRecord::Incomplete(bytes) if unread < left.min(bytes as u64) => {
                    if !self.fill(bytes, end)? {
                        // The file is shorter than before: nothing readable is left.
                        (self.start, self.at, self.buffer) = (end, 0, Vec::new());
                    }
                }
                // At least one byte is unread, so this makes progress.
                DecodedRecord::Incomplete(_) | DecodedRecord::Damaged => {
                    if !std::mem::replace(&mut self.in_damage, true) {
                        self.damaged += 1;
                    }
                    self.at = record::search(&self.buffer, self.at + 1);
                }
            }
        }
    }

    /// Reads more of the file until `bytes` are unread, but nothing beyond `end`.
    fn fill(&mut self, bytes: usize, end: u64) -> io::Result<bool> {
        self.buffer.drain(..self.at);
        self.start += std::mem::take(&mut self.at) as u64;
        let had = self.buffer.len();
        let from = self.start + had as u64;
        let room = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        self.buffer.resize(had + bytes.max(CHUNK).min(room), 0);
        let file = match &mut self.file {
            Some(file) => file,
            closed => closed.insert(files::open(&self.path, OpenOptions::new().read(true))?),
        };
        let read = loop {
            match file.read_at(&mut self.buffer[had..], from) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Releases the file and the buffer while there is nothing to read.
    fn rest(&mut self) {
        self.start += self.at as u64;
        (self.at, self.buffer, self.file) = (0, Vec::new(), None);
    }
}
