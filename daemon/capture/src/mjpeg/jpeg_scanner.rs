//! Finds JPEG images in a stream of bytes by their own structure, whatever is between them.
//!
//! Cameras disagree about the boundaries of parts: the separator, whether parts have a length, and whether it is right. A JPEG
//! image itself shows where it ends: markers, segments with their lengths, and scans, in which a 0 follows 0xff (ITU T.81, B.1).
//! So its end is known when its last byte arrives. A length in the lines before an image counts only if the image lacks the end
//! marker.

use memchr::memchr;
use visiond_frames::frame::LossCause;
use visiond_frames::timestamp::Timestamp;

/// The most bytes of an image.
pub const MOST_JPEG_BYTES: usize = 16 << 20;

/// The most bytes to read of a line between images.
const MOST_LINE_BYTES: usize = 256;

/// How many image starts to try in bytes that were already scanned, so that hostile bytes do not take long.
const MOST_TRIES: u32 = 8;

/// How far before an image to look for its part's boundary, if the previous image has no end marker.
const MOST_BORDER_BYTES: usize = 1024;

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;

/// A complete image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJpeg {
    pub data: Vec<u8>,
    /// When its first byte arrived.
    pub began: Timestamp,
}

/// The position of the next byte in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before an image.
    Between,
    /// At a marker.
    Marker,
    /// In a scan, or at its end.
    Scan,
}

/// Finds images. Holds the bytes of an incomplete one, and the newest complete one.
#[derive(Debug)]
pub struct JpegScanner {
    /// The bytes that have arrived and are still needed.
    data: Vec<u8>,
    place: Place,
    /// Where the image begins in `data`.
    start: usize,
    /// Where the first byte that was not scanned is in `data`.
    at: usize,
    began: Option<Timestamp>,
    /// Whether the image has a scan; without one it is not an image.
    has_scan: bool,
    /// The end of the bytes that were scanned as an image in vain, and how often that happened.
    tried: (usize, u32),
    line: Vec<u8>,
    /// The length stated in the lines before the next image.
    length: Option<usize>,
    /// The stated length of the image, if there is one.
    stated: Option<usize>,
    /// Whether an image differed from its stated length, so that lengths do not count.
    has_wrong_lengths: bool,
    newest: Option<FoundJpeg>,
    /// The memory of an image that is no longer needed.
    spare: Vec<u8>,
    overload: u64,
    corrupt: u64,
    found: u64,
}

impl Default for JpegScanner {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            place: Place::Between,
            start: 0,
            at: 0,
            began: None,
            has_scan: false,
            tried: (0, 0),
            line: Vec::new(),
            length: None,
            stated: None,
            has_wrong_lengths: false,
            newest: None,
            spare: Vec::new(),
            overload: 0,
            corrupt: 0,
            found: 0,
        }
    }
}

impl JpegScanner {
    /// Takes the next bytes, received at `now`. A complete image replaces the previous one, which is then lost by overload.
    pub fn push(&mut self, bytes: &[u8], now: Timestamp) {
        self.data.extend_from_slice(bytes);
        while self.step(now) {}
        // Remove used bytes once for all images in these bytes.
        let done = if self.place == Place::Between { self.at } else { self.start };
        self.data.drain(..done);
        (self.start, self.at) = (self.start.saturating_sub(done), self.at - done);
        self.tried.0 = self.tried.0.saturating_sub(done);
        if self.place != Place::Between && self.data.len() > MOST_JPEG_BYTES {
            self.corrupt += 1;
            self.data = Vec::new();
            self.tried = (0, 0);
            self.begin_between(0);
        }
    }

    /// Notes that no more bytes have arrived yet. An image without end marker is complete if it has the stated length.
    pub fn rest(&mut self) {
        let Some(length) = self.stated.filter(|_| self.place == Place::Scan && !self.has_wrong_lengths) else { return };
        let end = self.start.saturating_add(length);
        let is_end = end <= self.at && matches!(self.data.get(end), None | Some(b'\r' | b'\n' | b'-'));
        if is_end {
            self.finish(end);
            self.begin_between(end);
        }
    }

    /// Returns the newest complete image.
    pub fn take(&mut self) -> Option<FoundJpeg> {
        self.newest.take()
    }

    /// Takes back the memory of an image.
    pub fn reuse(&mut self, picture: FoundJpeg) {
        self.spare = picture.data;
    }

    /// Returns how many images were lost since the last call, with the cause.
    pub fn take_loss(&mut self) -> Option<(u64, LossCause)> {
        for (count, cause) in [(&mut self.corrupt, LossCause::Corrupt), (&mut self.overload, LossCause::Overload)] {
            let lost = std::mem::take(count);
            if lost > 0 {
                return Some((lost, cause));
            }
        }
        None
    }

    /// Returns how many complete images have arrived.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Scans the next bytes; returns whether there may be more to do.
    fn step(&mut self, now: Timestamp) -> bool {
        match self.place {
            Place::Between => self.between(now),
            Place::Marker => self.marker(),
            Place::Scan => self.scan(),
        }
    }

    /// Reads lines up to the start of the next image: SOI and the 0xff of the next marker.
    fn between(&mut self, now: Timestamp) -> bool {
        let Some(rest) = self.data.get(self.at..).filter(|rest| !rest.is_empty()) else { return false };
        let found = memchr::memmem::find(rest, &[0xff, SOI, 0xff]);
        // The last two bytes may be its beginning.
        let end = match (found, rest) {
            (Some(found), _) => found,
            (None, [.., 0xff, SOI]) => rest.len() - 2,
            (None, [.., 0xff]) => rest.len() - 1,
            (None, _) => rest.len(),
        };
        let lines = rest.get(..end).unwrap_or_default();
        // Only the last few lines before an image matter.
        let recent = lines.get(lines.len().saturating_sub(16 << 10)..).unwrap_or_default();
        if recent.len() < lines.len() {
            (self.length, self.line) = (None, Vec::new());
        }
        for part in recent.split_inclusive(|&byte| byte == b'\n') {
            let room = MOST_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
            if part.ends_with(b"\n") {
                self.length = length_of(&self.line).or(self.length);
                self.line.clear();
            }
        }
        self.at += end;
        if found.is_none() {
            return false;
        }
        // A length applies to the bytes that directly follow its lines.
        self.stated = self.length.take().filter(|_| self.line.is_empty());
        self.line.clear();
        self.start = self.at;
        self.began = Some(now);
        self.has_scan = false;
        self.at += 2;
        self.place = Place::Marker;
        true
    }

    /// Skips the next segment.
    fn marker(&mut self) -> bool {
        let Some(rest) = self.data.get(self.at..) else { return false };
        let [first, marker, ..] = *rest else { return false };
        if first != 0xff {
            return self.give_up(self.at);
        }
        match marker {
            // Any number of these may come before a marker.
            0xff => self.at += 1,
            SOI => return self.give_up(self.at),
            EOI if self.has_scan => {
                self.at += 2;
                self.end_at_marker();
            }
            // Segments for frames, tables, restart intervals, hierarchical images, comments and application data.
            0xc0..=0xcf | SOS..=0xdf | 0xe0..=0xef | 0xfe => {
                let [_, _, high, low, ..] = *rest else { return false };
                let length = usize::from(u16::from_be_bytes([high, low]));
                if length < 2 {
                    return self.give_up(self.at);
                }
                if rest.len() < 2 + length {
                    return false;
                }
                self.at += 2 + length;
                if marker == SOS {
                    self.has_scan = true;
                    self.place = Place::Scan;
                }
            }
            _ => return self.give_up(self.at),
        }
        true
    }

    /// Skips the data of a scan, up to a marker that is not part of it.
    fn scan(&mut self) -> bool {
        let Some(rest) = self.data.get(self.at..) else { return false };
        let Some(found) = memchr(0xff, rest) else {
            self.at = self.data.len();
            return false;
        };
        self.at += found;
        let Some(&marker) = rest.get(found + 1) else { return false };
        match marker {
            // A byte of data, or a restart.
            0 | 0xd0..=0xd7 => self.at += 2,
            0xff => self.at += 1,
            EOI => {
                self.at += 2;
                self.end_at_marker();
            }
            // The next image, if this one has no end marker, even if its third byte has not arrived.
            SOI => {
                let end = self.border_before(self.at);
                self.finish(end);
                self.begin_between(end);
            }
            // Tables, another scan, the number of lines, a comment.
            0xc4 | SOS..=0xdd | 0xfe => self.place = Place::Marker,
            _ => return self.give_up(self.at),
        }
        true
    }

    /// Ends the image whose end marker has just arrived.
    fn end_at_marker(&mut self) {
        if self.stated.is_some_and(|stated| stated != self.at - self.start) {
            self.has_wrong_lengths = true;
        }
        self.finish(self.at);
        self.begin_between(self.at);
    }

    /// Returns where an image without end marker ends, if the next begins at `at`: before the lines between them.
    fn border_before(&self, at: usize) -> usize {
        let from = self.start.max(at.saturating_sub(MOST_BORDER_BYTES));
        let near = self.data.get(from..at).unwrap_or_default();
        match memchr::memmem::rfind(near, b"\n--") {
            Some(found) => {
                let end = from + found;
                if self.data.get(..end).is_some_and(|before| before.ends_with(b"\r")) { end - 1 } else { end }
            }
            None => at,
        }
    }

    /// Keeps the image that ends before `end`.
    fn finish(&mut self, end: usize) {
        let (Some(picture), Some(began)) = (self.data.get(self.start..end), self.began.take()) else { return };
        let mut data = match self.newest.take() {
            Some(older) => {
                self.overload += 1;
                older.data
            }
            None => std::mem::take(&mut self.spare),
        };
        data.clear();
        data.extend_from_slice(picture);
        self.newest = Some(FoundJpeg { data, began });
        self.found += 1;
    }

    fn begin_between(&mut self, at: usize) {
        self.place = Place::Between;
        (self.start, self.at) = (at, at);
        (self.stated, self.length) = (None, None);
        self.line.clear();
    }

    /// Looks for another image after the start of one that is damaged at `at`.
    fn give_up(&mut self, at: usize) -> bool {
        let (until, tries) = self.tried;
        let tries = if self.start < until { tries + 1 } else { 0 };
        self.tried = (until.max(at), tries);
        // An image found within the bytes of another one may be false.
        self.corrupt += u64::from(tries == 0);
        let next = if tries < MOST_TRIES { self.start + 2 } else { self.tried.0.max(self.start + 2) };
        self.begin_between(next);
        true
    }
}

/// Reads a line `Content-Length: NUMBER`.
fn length_of(line: &[u8]) -> Option<usize> {
    let (name, value) = line.split_at_checked(memchr(b':', line)?)?;
    let is_length = name.trim_ascii().eq_ignore_ascii_case(b"content-length");
    let value = value.get(1..).filter(|_| is_length)?.trim_ascii();
    str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
