//! The headers that GStreamer's element `gdppay` writes before each buffer, its caps and its events. With them, a frame of
//! another size is an error; without, it would shift every later frame.
//!
//! GStreamer Data Protocol 1.0, as in gst/gdp/dataprotocol.c of GStreamer's plugins. All numbers are big-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0, 1 | version: 1, 0 |
//! | 4 to 5 | kind: 1 is a buffer, 2 caps, 64 and above an event |
//! | 6 to 9 | bytes that follow the header |

/// Bytes of a header.
pub const HEADER_BYTES: usize = 62;

/// The most bytes of caps or an event. They are text of some hundred bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The content that follows a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// A frame of this many bytes.
    Frame(usize),
    /// Something else of this many bytes.
    Other(usize),
}

/// Reads a header; `None` if these bytes are no header.
pub fn payload(header: &[u8; HEADER_BYTES]) -> Option<Payload> {
    let [1, 0, _, _, kind @ ..] = header else { return None };
    let &[high, low, a, b, c, d, ..] = kind;
    let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
    match u16::from_be_bytes([high, low]) {
        1 => Some(Payload::Frame(bytes)),
        2 | 64.. if bytes <= MAX_TEXT_BYTES => Some(Payload::Other(bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u16, bytes: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&[1, 0]);
        header[4..6].copy_from_slice(&kind.to_be_bytes());
        header[6..10].copy_from_slice(&bytes.to_be_bytes());
        header
    }

    #[test]
    fn a_header_says_what_follows_and_how_long_it_is() {
        assert_eq!(payload(&header(1, 3_110_400)), Some(Payload::Frame(3_110_400)));
        // Caps and an event, as GStreamer 1.22 writes them.
        assert_eq!(payload(&header(2, 188)), Some(Payload::Other(188)));
        assert_eq!(payload(&header(17_998, 327)), Some(Payload::Other(327)));
    }

    #[test]
    fn other_bytes_are_no_header() {
        assert_eq!(payload(&[b' '; HEADER_BYTES]), None);
        assert_eq!(payload(&[0; HEADER_BYTES]), None);
        assert_eq!(payload(&header(2, u32::MAX)), None);
        assert_eq!(payload(&header(0, 1)), None);
    }
}
