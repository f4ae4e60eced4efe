//! A record of the spool: a message as bytes, with a checksum.
//!
//! ```text
//! mark  4  f5 "vsr"          UTF-8 text never has the byte f5, so no message looks like the start of a record
//! crc   4  CRC-32 of all that follows
//! len   4  bytes of the body
//! body     number 8, length of id 1, length of camera 2, id, camera, line
//! ```
//! Numbers are little-endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::{Buf, BufMut, Bytes};

use crate::broker::QueuedMessage;

const MARK: [u8; 4] = *b"\xf5vsr";
/// Bytes before the body.
const HEAD: usize = 12;
/// Bytes of the body before the texts.
const FIXED: usize = 11;
/// The fewest bytes of a record.
pub const SHORTEST: usize = HEAD + FIXED;
/// The largest number of a message. A larger one is damaged, and counting on from it would overflow.
pub const LARGEST_NUMBER: u64 = u64::MAX >> 1;
/// The longest body; anything longer is not a record.
const LONGEST_BODY: usize = 64 << 20;
/// The longest line of a message; the rest is for its other texts.
pub const MOST_BYTES: usize = LONGEST_BODY - (128 << 10);

/// The result of decoding bytes that should start with a record.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodedRecord {
    /// A whole record, and its length in bytes.
    Record(QueuedMessage, usize),
    /// Possibly a record that needs this many bytes.
    Incomplete(usize),
    Damaged,
}

/// Consecutive records of a file, in parts.
#[derive(Debug, Default)]
pub struct Records {
    parts: Vec<Bytes>,
    /// The bytes after the parts.
    last: Vec<u8>,
    bytes: usize,
}

/// From this length on, a line is shared with the message instead of copied.
const SHARED_BYTES: usize = 64 << 10;

impl Records {
    /// Appends a message; returns `false` if its texts do not fit into a record.
    pub fn push(&mut self, message: &QueuedMessage) -> bool {
        let before = self.last.len();
        if !encode_head(message, &mut self.last) {
            return false;
        }
        self.bytes += self.last.len() - before + message.line.len();
        if message.line.len() < SHARED_BYTES {
            self.last.extend_from_slice(&message.line);
        } else {
            self.end_part();
            self.parts.push(message.line.clone());
        }
        true
    }

    /// Appends bytes as a part of their own.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        self.end_part();
        self.bytes += bytes.len();
        self.parts.push(bytes);
    }

    /// Appends the records of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.end_part();
        other.end_part();
        self.bytes += other.bytes;
        self.parts.append(&mut other.parts);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the records into `file`, with one write(2) for each part unless the system cuts one short.
    pub fn write_at(&self, file: &File, mut at: u64) -> io::Result<()> {
        for part in self.parts.iter().map(|part| &**part).chain([&*self.last]).filter(|part| !part.is_empty()) {
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.iter().map(|part| &**part).chain([&*self.last]).flatten().copied().collect()
    }

    fn end_part(&mut self) {
        if !self.last.is_empty() {
            self.last.shrink_to_fit();
            self.parts.push(std::mem::take(&mut self.last).into());
        }
    }
}

/// Appends the record of a message to `out` without its line, which the caller appends. Returns `false` if its texts do not
/// fit into a record.
fn encode_head(message: &QueuedMessage, out: &mut Vec<u8>) -> bool {
    let (id, camera, line) = (message.id.as_bytes(), message.camera.as_bytes(), &message.line);
    let body = FIXED + id.len() + camera.len() + line.len();
    let (Ok(id_len), Ok(camera_len)) = (u8::try_from(id.len()), u16::try_from(camera.len())) else { return false };
    if body > LONGEST_BODY {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(&MARK);
    out.put_u32_le(0);
    out.put_u32_le(body as u32);
    out.put_u64_le(message.number);
    out.put_u8(id_len);
    out.put_u16_le(camera_len);
    [id, camera].into_iter().for_each(|text| out.extend_from_slice(text));
    let mut crc = crc32fast::Hasher::new();
    crc.update(&out[start + 8..]);
    crc.update(line);
    out[start + 4..start + 8].copy_from_slice(&crc.finalize().to_le_bytes());
    true
}

/// Decodes the record at the start of `bytes`.
pub fn decode(bytes: &[u8]) -> DecodedRecord {
    if !bytes.starts_with(&MARK[..bytes.len().min(4)]) {
        return DecodedRecord::Damaged;
    }
    let Some(mut head) = bytes.get(4..HEAD) else { return DecodedRecord::Incomplete(HEAD) };
    let (crc, len) = (head.get_u32_le(), head.get_u32_le() as usize);
    if !(FIXED..=LONGEST_BODY).contains(&len) {
        return DecodedRecord::Damaged;
    }
    let Some(checked) = bytes.get(8..HEAD + len) else { return DecodedRecord::Incomplete(HEAD + len) };
    if crc32fast::hash(checked) != crc {
        return DecodedRecord::Damaged;
    }
    match message(&checked[4..]) {
        Some(message) if message.number <= LARGEST_NUMBER => DecodedRecord::Record(message, HEAD + len),
        _ => DecodedRecord::Damaged,
    }
}

/// Returns where a record may begin at or after `from`, or the end if none does.
pub fn search(bytes: &[u8], from: usize) -> usize {
    let mut at = from.min(bytes.len());
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == MARK[0]) {
        at += found;
        if MARK.starts_with(&bytes[at..(at + 4).min(bytes.len())]) {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// Reads a body, which has at least the fixed bytes.
fn message(mut body: &[u8]) -> Option<QueuedMessage> {
    let (number, id_len, camera_len) = (body.get_u64_le(), body.get_u8().into(), body.get_u16_le().into());
    let mut text = |len: usize| {
        let text;
        (text, body) = body.split_at_checked(len)?;
        std::str::from_utf8(text).ok()
    };
    let (id, camera) = (text(id_len)?.into(), text(camera_len)?.into());
    Some(QueuedMessage { number, id, camera, line: Bytes::copy_from_slice(body) })
}
