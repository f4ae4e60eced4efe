//! The content coding of a body (RFC 9110, 8.4.1). Some cameras compress their responses although visiond does not ask for it.

use std::io::Write;

use flate2::write::{GzDecoder, ZlibDecoder};

/// How many compressed bytes to decode at once. They may expand a thousandfold.
const PIECE_BYTES: usize = 512;

const BROKEN: &str =
    "the camera's compressed answer (gzip or deflate) is damaged: switch HTTP compression off in the camera";

/// The part of a compressed body that has arrived. The first byte shows the format: some cameras state the wrong one.
pub enum ContentCoding {
    Begin,
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl ContentCoding {
    /// Returns the coding of a header's value in lower case; `None` if it is not known, or none.
    pub fn of(name: &str) -> Option<Self> {
        matches!(name.trim(), "gzip" | "x-gzip" | "deflate").then_some(Self::Begin)
    }

    /// Decodes `bytes`, the next ones received; `take` gets the content. Bytes after the end are ignored.
    pub fn decode(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), &'static str> {
        if let (Self::Begin, Some(&first)) = (&self, bytes.first()) {
            *self = match first {
                0x1F => Self::Gzip(GzDecoder::new(Vec::new())),
                _ => Self::Deflate(ZlibDecoder::new(Vec::new())),
            };
        }
        for piece in bytes.chunks(PIECE_BYTES) {
            match self {
                Self::Begin => {}
                Self::Gzip(decoder) => {
                    decode_piece(decoder, piece)?;
                    take_all(decoder.get_mut(), &mut take);
                }
                Self::Deflate(decoder) => {
                    decode_piece(decoder, piece)?;
                    take_all(decoder.get_mut(), &mut take);
                }
            }
        }
        Ok(())
    }
}

fn decode_piece(decoder: &mut impl Write, mut piece: &[u8]) -> Result<(), &'static str> {
    while !piece.is_empty() {
        match decoder.write(piece).map_err(|_| BROKEN)? {
            0 => return Ok(()),
            taken => piece = piece.get(taken..).unwrap_or_default(),
        }
    }
    decoder.flush().map_err(|_| BROKEN)
}

fn take_all(decoded: &mut Vec<u8>, take: &mut impl FnMut(&[u8])) {
    if !decoded.is_empty() {
        take(decoded);
        decoded.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn decoded(compressed: &[u8], piece: usize) -> Result<Vec<u8>, &'static str> {
        let (mut coding, mut content) = (ContentCoding::of("gzip").unwrap(), Vec::new());
        for bytes in compressed.chunks(piece) {
            coding.decode(bytes, |bytes| content.extend_from_slice(bytes))?;
        }
        Ok(content)
    }

    #[test]
    fn both_formats_are_decoded_in_pieces_of_any_size_and_what_follows_is_ignored() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (mut gzip, mut zlib) =
            (GzEncoder::new(Vec::new(), Compression::fast()), ZlibEncoder::new(Vec::new(), Compression::fast()));
        gzip.write_all(&content).unwrap();
        zlib.write_all(&content).unwrap();
        for compressed in [gzip.finish().unwrap(), zlib.finish().unwrap()] {
            for piece in [1, 7, 511, compressed.len()] {
                assert!(decoded(&compressed, piece) == Ok(content.clone()), "{piece}");
            }
            assert!(decoded(&[&compressed[..], b"more"].concat(), 1000) == Ok(content.clone()));
        }
    }

    #[test]
    fn content_comes_as_soon_as_the_camera_has_flushed_it() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"a part of a stream").unwrap();
        gzip.flush().unwrap();
        assert_eq!(decoded(gzip.get_ref(), 10).unwrap(), b"a part of a stream");
    }

    #[test]
    fn damage_is_an_error() {
        assert_eq!(decoded(b"no compression", 5), Err(BROKEN));
        assert_eq!(decoded(&[b"\x1F\x8B\x08\0\0\0\0\0\0\0", &[0xFF; 99][..]].concat(), 5), Err(BROKEN));
        assert!(ContentCoding::of("identity").is_none() && ContentCoding::of("br").is_none());
    }
}
