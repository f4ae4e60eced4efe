//! Up to which number everything is acknowledged, in a file of two places that are written in turn: what a power cut or a
//! fault leaves of one, the other makes good by an older number, which costs messages sent twice and none lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// How a place begins.
const MARK: [u8; 8] = *b"vsr ack\n";
/// Mark, number, CRC-32 of both.
const PLACE: usize = 20;
/// Where the two begin: in different sectors of a disk.
const PLACES: [u64; 2] = [0, 4096];

/// The cursor.
#[derive(Debug)]
pub struct Cursor {
    file: Arc<File>,
    /// The place that is written next: the one with the older number.
    next: usize,
    number: u64,
    written: u64,
}

impl Cursor {
    /// Reads the cursor, makes it where it is missing; 0 where no place of it is whole.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let [first, second] = PLACES.map(|place| read(&file, place));
        let number = first.max(second).unwrap_or(0);
        let next = usize::from(first > second);
        Ok(Self { file: Arc::new(file), next, number, written: number })
    }

    /// Everything up to it is acknowledged.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Everything up to `number` is acknowledged, which [`Cursor::write`] writes down.
    pub fn advance(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    /// Writes what is new, 20 bytes; tells whether there was something.
    pub fn write(&mut self) -> io::Result<bool> {
        if self.written == self.number {
            return Ok(false);
        }
        let mut bytes = [0; PLACE];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&bytes, PLACES[self.next])?;
        self.next = 1 - self.next;
        self.written = self.number;
        Ok(true)
    }

    /// For who makes it safe from a power cut.
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }
}

fn read(file: &File, place: u64) -> Option<u64> {
    let mut bytes = [0; PLACE];
    file.read_exact_at(&mut bytes, place).ok()?;
    let crc = u32::from_le_bytes(bytes[16..].try_into().ok()?);
    let number = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    (bytes[..8] == MARK && crc == crc32fast::hash(&bytes[..16])).then_some(number)
}
