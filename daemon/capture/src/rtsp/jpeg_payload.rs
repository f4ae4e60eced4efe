//! Assembles JPEG images from the payloads of RTP packets, by RFC 2435.
//!
//! A packet holds only a fragment of the image's scan: its size, sampling and quantisation are in the payload's own header, and the
//! Huffman tables are the standard ones. So the file around the scan is made here (appendices A and B). A side has at most 2040
//! pixels there. The size of a larger image is in an extension of the RTP header, which has segments of the original file (ONVIF
//! Streaming Specification, JPEG over RTP), or in the session's description.
//!
//! All input is untrusted. An image that lost a packet, or whose fragments contradict each other, is dropped and counted.

use std::mem;
use std::sync::Arc;

use visiond_frames::timestamp::Timestamp;

use super::access_unit::{Access, AccessUnit, Codec, Fate, MAX_UNIT_BYTES};

/// Why no image can be assembled, and the remedy.
const TOO_LARGE: &str =
    "JPEG frames above 2040 pixels without ONVIF's header extension: set the camera to a smaller size or to H.264";

/// Assembles the images of one stream.
#[derive(Debug, Default)]
pub struct JpegAssembler {
    /// The image so far: the head of a file, and the scan.
    picture: Vec<u8>,
    /// The parameters of its first fragment.
    header: Option<Header>,
    /// Bytes of `picture` before the scan.
    head_bytes: usize,
    /// Its RTP timestamp, and when it was captured.
    time: Option<(i64, Timestamp)>,
    is_broken: bool,
    /// The tables that arrived with a Q of 128 to 254, by Q: later images may leave them out.
    tables: Vec<(u8, Tables)>,
    /// Width and height from the session's description, for images too large for the payload header.
    described: Option<(u16, u16)>,
    damaged: u64,
    reason: Option<&'static str>,
}

/// The parameters that all fragments of an image share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// 0: chroma has half the width (4:2:2); 1: also half the height (4:2:0).
    kind: u8,
    q: u8,
    /// In units of 8 pixels.
    width: u8,
    height: u8,
    /// Units between restart markers; `None` without them.
    restart_interval: Option<u16>,
}

/// The quantisers of luma and chroma, in the order of a file (zigzag).
type Tables = [[u8; 64]; 2];

impl JpegAssembler {
    /// Creates an assembler; `described` is the width and height in the session's description, if there are any (`x-dimensions`,
    /// `framesize`).
    pub fn new(described: Option<(u16, u16)>) -> Self {
        Self { described, ..Self::default() }
    }

    /// Takes the payload of a packet; `lost` packets are missing before it. `extension` is its RTP header's, if it has one: the
    /// profile's number, and the data. Calls `give` with a complete image.
    pub fn push(
        &mut self,
        payload: &[u8],
        time: (i64, Timestamp),
        marker: bool,
        lost: u16,
        extension: Option<(u16, &[u8])>,
        give: impl FnOnce(AccessUnit),
    ) {
        if self.time.is_none_or(|(before, _)| before != time.0) {
            // The end of the previous image was lost.
            self.damaged += u64::from(self.time.is_some());
            self.begin(time);
        } else if lost > 0 {
            self.is_broken = true;
        }
        self.is_broken |= !self.is_broken && self.take(payload, extension).is_none();
        if marker {
            self.finish(give);
        }
    }

    /// Returns how many images were dropped since the last call because they were damaged.
    pub fn take_damaged(&mut self) -> u64 {
        mem::take(&mut self.damaged)
    }

    /// Returns why images are dropped although no packet is lost, if that is known: the camera's fault, and the remedy.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    fn begin(&mut self, time: (i64, Timestamp)) {
        self.picture = Vec::new();
        self.header = None;
        self.is_broken = false;
        self.time = Some(time);
    }

    /// Takes a fragment; `None` if it is damaged or does not follow the previous one.
    fn take(&mut self, payload: &[u8], extension: Option<(u16, &[u8])>) -> Option<()> {
        // The type-specific byte says which field of an interlaced image this is; each is decoded as an image.
        let (&[_, high, middle, low, kind, q, width, height], mut rest) = payload.split_first_chunk()?;
        let offset = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let restart_interval = match kind {
            0 | 1 => None,
            // The restart markers of a fragment matter only to decoders of partial images.
            64 | 65 => {
                let (&[high, low, _, _], behind) = rest.split_first_chunk()?;
                rest = behind;
                Some(u16::from_be_bytes([high, low]))
            }
            _ => return None,
        };
        let header = Header { kind: kind & 1, q, width, height, restart_interval };
        if offset == 0 && self.header.is_none() {
            let (tables, behind) = self.tables(q, rest)?;
            rest = behind;
            let segments = match extension {
                Some((0xFFD8 | 0xFFFF, data)) => Segments::of(data),
                _ => Segments::default(),
            };
            self.picture = match header.size(&segments, self.described) {
                Some(size) => header.file_head(size, &tables, &segments)?,
                None => {
                    self.reason = Some(TOO_LARGE);
                    return None;
                }
            };
            self.head_bytes = self.picture.len();
            self.header = Some(header);
        } else if self.header != Some(header) || offset != self.picture.len() - self.head_bytes {
            return None;
        }
        if self.picture.len() + rest.len() + END.len() > MAX_UNIT_BYTES {
            return None;
        }
        self.picture.extend_from_slice(rest);
        Some(())
    }

    /// Returns the quantisers of the image that begins with `payload`, and the data after them (section 3.1.8).
    fn tables<'p>(&mut self, q: u8, payload: &'p [u8]) -> Option<(Tables, &'p [u8])> {
        match q {
            1..=99 => return Some((standard_tables(q), payload)),
            0 | 100..=127 => return None,
            128.. => {}
        }
        let (&[_, precision, high, low], rest) = payload.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
        let known = self.tables.iter().position(|(other, _)| *other == q);
        if bytes.is_empty() {
            return Some((self.tables.get(known?)?.1, rest));
        }
        // Tables of 16 bits do not belong to this kind of JPEG (baseline).
        let (tables, _) = bytes.as_chunks::<64>();
        let tables = match (precision, tables) {
            (0, [luma]) => [*luma, *luma],
            (0, [luma, chroma, ..]) => [*luma, *chroma],
            _ => return None,
        };
        match known {
            // With 255 they may change with every image, so each image has them.
            _ if q == 255 => {}
            Some(at) => self.tables[at].1 = tables,
            None => self.tables.push((q, tables)),
        }
        Some((tables, rest))
    }

    fn finish(&mut self, give: impl FnOnce(AccessUnit)) {
        let mut data = mem::take(&mut self.picture);
        let is_whole = self.header.take().is_some() && !mem::take(&mut self.is_broken) && data.len() > self.head_bytes;
        let Some((presentation, captured)) = self.time.take().filter(|_| is_whole) else {
            self.damaged += 1;
            return;
        };
        if !data.ends_with(&END) {
            data.extend_from_slice(&END);
        }
        // It may wait.
        data.shrink_to_fit();
        self.reason = None;
        give(AccessUnit {
            codec: Codec::Jpeg,
            data: Arc::new(data),
            access: Access::Key,
            follows_loss: false,
            position: None,
            fate: Fate::Published,
            presentation,
            captured,
            generation: 0,
        });
    }
}

/// End of image.
const END: [u8; 2] = [0xFF, 0xD9];

impl Header {
    /// Returns width and height. A side of more than 2040 pixels is 0 here.
    fn size(self, segments: &Segments<'_>, described: Option<(u16, u16)>) -> Option<(u16, u16)> {
        let own = (u16::from(self.width) * 8, u16::from(self.height) * 8);
        let is_size = |size: &(u16, u16)| size.0 > 0 && size.1 > 0;
        segments.size().filter(is_size).or(Some(own).filter(is_size)).or(described.filter(is_size))
    }

    /// Makes the head of a JFIF file, up to the scan (appendix B). Values from the extension take precedence. `None` if no readable
    /// image results.
    fn file_head(self, size: (u16, u16), tables: &Tables, segments: &Segments<'_>) -> Option<Vec<u8>> {
        // Start of image, and JFIF 1.1 with square pixels, so that the colours are YCbCr.
        let mut out = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 16, b'J', b'F', b'I', b'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0];
        if segments.quantisers.is_empty() {
            for (number, table) in tables.iter().enumerate() {
                segment(&mut out, 0xDB, &[&[number as u8], &table[..]]);
            }
        }
        segments.quantisers.iter().for_each(|body| segment(&mut out, 0xDB, &[body]));
        match (self.restart_interval, segments.restart) {
            (Some(interval), _) => segment(&mut out, 0xDD, &[&interval.to_be_bytes()]),
            (None, Some(body)) => segment(&mut out, 0xDD, &[body]),
            (None, None) => {}
        }
        // Each component with its number, its sampling and its table.
        let sampling = if self.kind == 0 { 0x21 } else { 0x22 };
        let mut components = vec![[1, sampling, 0], [2, 0x11, 1], [3, 0x11, 1]];
        if let Some(frame) = segments.frame {
            let (own, rest) = frame.get(6..)?.as_chunks::<3>();
            if !matches!(own.len(), 1 | 3) || !rest.is_empty() || frame.first() != Some(&8) {
                return None;
            }
            components = own.to_vec();
            if segments.quantisers.is_empty() {
                components.iter_mut().enumerate().for_each(|(n, component)| component[2] = u8::from(n > 0));
            }
        }
        let [width, height] = [size.0, size.1].map(u16::to_be_bytes);
        // Baseline, 8 bits.
        let count = [components.len() as u8];
        segment(&mut out, 0xC0, &[&[8], &height, &width, &count, components.as_flattened()]);
        if segments.huffman.is_empty() {
            for (number, lengths, symbols) in [
                (0x00, &DC_LUMA_LENGTHS, DC_SYMBOLS.as_slice()),
                (0x10, &AC_LUMA_LENGTHS, AC_LUMA_SYMBOLS.as_slice()),
                (0x01, &DC_CHROMA_LENGTHS, DC_SYMBOLS.as_slice()),
                (0x11, &AC_CHROMA_LENGTHS, AC_CHROMA_SYMBOLS.as_slice()),
            ] {
                segment(&mut out, 0xC4, &[&[number], lengths, symbols]);
            }
        }
        segments.huffman.iter().for_each(|body| segment(&mut out, 0xC4, &[body]));
        // Start of scan: each component with its Huffman tables.
        let scanned: Vec<_> = components
            .iter()
            .enumerate()
            .map(|(n, component)| [component[0], if n == 0 { 0x00 } else { 0x11 }])
            .collect();
        segment(&mut out, 0xDA, &[&count, scanned.as_flattened(), &[0, 63, 0]]);
        Some(out)
    }
}

/// Appends a segment of a JPEG file. Its body, less than 64 KiB, comes in parts.
fn segment(out: &mut Vec<u8>, marker: u8, body: &[&[u8]]) {
    let bytes = 2 + body.iter().map(|part| part.len()).sum::<usize>();
    out.extend([0xFF, marker]);
    out.extend((bytes as u16).to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// The bodies of the original file's segments, from an extension of the RTP header.
#[derive(Debug, Default)]
struct Segments<'e> {
    /// Start of frame, baseline or extended: precision, height, width, and the components.
    frame: Option<&'e [u8]>,
    quantisers: Vec<&'e [u8]>,
    huffman: Vec<&'e [u8]>,
    /// The restart interval.
    restart: Option<&'e [u8]>,
}

impl<'e> Segments<'e> {
    /// Reads an extension's data up to the first invalid segment; it may be filled with 0xFF.
    fn of(mut data: &'e [u8]) -> Self {
        let mut this = Self::default();
        loop {
            let at = data.iter().position(|&byte| byte != 0xFF).unwrap_or(data.len());
            let Some((&marker, rest)) = data.get(at..).and_then(<[u8]>::split_first).filter(|_| at > 0) else {
                return this;
            };
            // Start of image has no length.
            if marker == 0xD8 {
                data = rest;
                continue;
            }
            let Some((&length, behind)) = rest.split_first_chunk() else { return this };
            let length = usize::from(u16::from_be_bytes(length));
            let Some((body, behind)) = length.checked_sub(2).and_then(|length| behind.split_at_checked(length)) else {
                return this;
            };
            data = behind;
            match marker {
                0xC0 | 0xC1 => this.frame = Some(body),
                0xDB => this.quantisers.push(body),
                0xC4 => this.huffman.push(body),
                0xDD => this.restart = Some(body),
                _ => {}
            }
        }
    }

    /// Returns width and height.
    fn size(&self) -> Option<(u16, u16)> {
        let (&[_, high, low, wide, narrow], _) = self.frame?.split_first_chunk()?;
        Some((u16::from_be_bytes([wide, narrow]), u16::from_be_bytes([high, low])))
    }
}

/// Returns the quantisers of a Q from 1 to 99 (appendix A).
fn standard_tables(q: u8) -> Tables {
    let q = u32::from(q.clamp(1, 99));
    let scale = if q < 50 { 5000 / q } else { 200 - 2 * q };
    [LUMA, CHROMA].map(|table| table.map(|value| ((u32::from(value) * scale + 50) / 100).clamp(1, 255) as u8))
}

/// Tables K.1 and K.2 of the JPEG standard (ITU-T T.81) in zigzag order, as in appendix A.
const LUMA: [u8; 64] = [
    16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58, 51, 61,
    60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87, 95, 98, 103, 104, 103, 62, 77, 113,
    121, 112, 100, 120, 92, 101, 103, 99,
];
const CHROMA: [u8; 64] = [
    17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99,
];

/// Tables K.3 to K.6 of the JPEG standard: how many codes have each length, and their symbols, as in appendix B.
const DC_LUMA_LENGTHS: [u8; 16] = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
const DC_CHROMA_LENGTHS: [u8; 16] = [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0];
const DC_SYMBOLS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const AC_LUMA_LENGTHS: [u8; 16] = [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D];
const AC_CHROMA_LENGTHS: [u8; 16] = [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77];
#[rustfmt::skip]
const AC_LUMA_SYMBOLS: [u8; 162] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32,
    0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16,
    0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45,
    0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
    0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94,
    0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6,
    0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8,
    0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8,
    0xF9, 0xFA,
];
#[rustfmt::skip]
const AC_CHROMA_SYMBOLS: [u8; 162] = [
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81,
    0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34,
    0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44,
    0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92,
    0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4,
    0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6,
    0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8,
    0xF9, 0xFA,
];

#[cfg(test)]
mod tests;
