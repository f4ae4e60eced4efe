//! A JPEG picture (a file, or a frame of an MJPEG camera) into a frame.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;

use crate::color::ColorDescription;
use crate::frame::{FrameError, FrameLayout, MAX_SIDE, PixelFormat};

/// A JPEG picture cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// The data is damaged, cut off, or of a kind that is not read.
    #[error("the JPEG data is damaged or cut off: {reason}")]
    Damaged {
        /// What the decoder found.
        reason: String,
    },
    /// The picture has a size that no frame has.
    #[error(transparent)]
    Size(#[from] FrameError),
    /// The buffer is too small for the picture.
    #[error("the picture needs {needed} bytes, the buffer has {given}")]
    BufferTooSmall {
        /// Bytes of the picture.
        needed: usize,
        /// Bytes of the buffer.
        given: usize,
    },
}

/// Decodes JPEG pictures one after the other.
#[derive(Debug, Default)]
pub struct JpegDecoder {}

impl JpegDecoder {
    /// A decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Width and height in pixels, without decoding.
    pub fn header(&mut self, bytes: &[u8]) -> Result<(u32, u32), JpegError> {
        let mut decoder = open(bytes);
        decoder.decode_headers().map_err(damaged)?;
        size(&decoder)
    }

    /// Decodes into packed RGB at the start of `out`.
    pub fn decode(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<FrameLayout, JpegError> {
        let mut decoder = open(bytes);
        decoder.decode_headers().map_err(damaged)?;
        let (width, height) = size(&decoder)?;
        let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
        let needed = layout.size_bytes();
        let given = out.len();
        let out = out.get_mut(..needed).ok_or(JpegError::BufferTooSmall { needed, given })?;
        decoder.decode_into(out).map_err(damaged)?;
        Ok(layout)
    }
}

fn open(bytes: &[u8]) -> zune_jpeg::JpegDecoder<ZCursor<&[u8]>> {
    let options = DecoderOptions::default()
        .set_max_width(MAX_SIDE as usize)
        .set_max_height(MAX_SIDE as usize)
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn size(decoder: &zune_jpeg::JpegDecoder<ZCursor<&[u8]>>) -> Result<(u32, u32), JpegError> {
    let info = decoder.info().ok_or_else(|| JpegError::Damaged { reason: "it has no frame header".to_owned() })?;
    Ok((u32::from(info.width), u32::from(info.height)))
}

fn damaged(error: zune_jpeg::errors::DecodeErrors) -> JpegError {
    JpegError::Damaged { reason: error.to_string() }
}

/// The EXIF block (from its TIFF header on) of a JPEG picture, if it has one.
pub fn exif(bytes: &[u8]) -> Option<&[u8]> {
    const APP1: u8 = 0xE1;
    Segments::new(bytes)
        .find(|segment| segment.marker == APP1 && segment.payload.starts_with(b"Exif\0\0"))
        .map(|segment| &segment.payload[6..])
}

/// A marker with its payload.
struct Segment<'a> {
    marker: u8,
    payload: &'a [u8],
}

/// The segments of a picture from its start up to the first scan's header, that one included.
struct Segments<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Segments<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes.strip_prefix(&[0xFF, 0xD8]) }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        const SOS: u8 = 0xDA;
        let mut rest = self.rest.take()?.strip_prefix(&[0xFF])?;
        // Any number of fill bytes may stand before a marker.
        while let [0xFF, more @ ..] = rest {
            rest = more;
        }
        let [marker, high, low, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let payload = rest.get(3..1 + length)?;
        if marker != SOS {
            self.rest = rest.get(1 + length..);
        }
        Some(Segment { marker, payload })
    }
}
