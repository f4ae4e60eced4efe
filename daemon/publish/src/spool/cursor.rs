//! The cursor: the number up to which everything is acknowledged. The file has two copies that are written in turn. If a
//! power cut or a disk fault destroys one, the other has an older number, so some messages are sent twice but none is lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::files;
use super::record::LARGEST_NUMBER;

/// The first bytes of a copy.
const MARK: [u8; 8] = *b"vsr ack\n";
/// Mark, number, and CRC-32 of both.
const PLACE: usize = 20;
/// Where the two copies begin: in different sectors of a disk.
const PLACES: [u64; 2] = [0, 4096];

#[derive(Debug)]
pub struct AckCursor {
    pub file: Arc<File>,
    /// The copy to write next: the one with the older number.
    next: usize,
    /// Everything up to this number is acknowledged; [`AckCursor::write`] writes it to disk.
    pub number: u64,
    /// The number in the file, unless it must be written again.
    written: Option<u64>,
}

impl AckCursor {
    /// Opens the cursor, and creates it if it is missing; its number is 0 if no copy is whole.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = files::open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
        let (first, second) = (read(&file, PLACES[0])?, read(&file, PLACES[1])?);
        let number = first.max(second).unwrap_or(0);
        let next = usize::from(first > second);
        Ok(Self { file: Arc::new(file), next, number, written: Some(number) })
    }

    /// Writes a new number, 20 bytes; returns whether it was new.
    pub fn write(&mut self) -> io::Result<bool> {
        if self.written == Some(self.number) {
            return Ok(false);
        }
        let mut bytes = [0; PLACE];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&bytes, PLACES[self.next])?;
        self.next = 1 - self.next;
        self.written = Some(self.number);
        Ok(true)
    }

    /// Makes [`AckCursor::write`] write the number again, because it may not have reached the disk.
    pub fn write_again(&mut self) {
        self.written = None;
    }
}

/// Returns the number at `place`, or `None` if the copy there is not whole.
fn read(file: &File, place: u64) -> io::Result<Option<u64>> {
    let mut bytes = [0; PLACE];
    match file.read_exact_at(&mut bytes, place) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    Ok(number(&bytes))
}

fn number(bytes: &[u8; PLACE]) -> Option<u64> {
    let crc = u32::from_le_bytes(bytes[16..].try_into().ok()?);
    let number = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    let is_whole = bytes[..8] == MARK && crc == crc32fast::hash(&bytes[..16]);
    (is_whole && number <= LARGEST_NUMBER).then_some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_write_that_is_torn_costs_the_newest_number_alone_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        for restarts in [false, true] {
            let mut cursor = AckCursor::open(&path).unwrap();
            for _ in 0..5 {
                if restarts {
                    cursor = AckCursor::open(&path).unwrap();
                }
                let before = cursor.number;
                let was = PLACES.map(|place| read(&cursor.file, place).unwrap());
                cursor.number += 1;
                assert!(cursor.write().unwrap());
                let is = PLACES.map(|place| read(&cursor.file, place).unwrap());
                let torn = (0..2).find(|place| is[*place] == Some(before + 1)).unwrap();
                assert_eq!(is[1 - torn], was[1 - torn]);
                // The bytes that a torn write leaves.
                assert!(before == 0 || is[1 - torn] == Some(before), "{was:?} became {is:?}");
            }
        }
    }
}
