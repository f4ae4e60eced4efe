//! Decodes a JPEG picture into a frame.

use turbojpeg::{Colorspace, DecompressHeader, Decompressor, Image};

use crate::color::ColorDescription;
use crate::frame::{FrameError, FrameLayout, PixelFormat};

/// The maximum number of scans of a progressive picture; encoders write about ten, an attack thousands.
const MAX_SCANS: u32 = 100;

/// Why a JPEG picture cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// It does not begin like a JPEG.
    #[error("it is not a JPEG picture")]
    NotJpeg,
    /// The data contradicts itself, is truncated, or is of a kind that libjpeg does not support.
    #[error("the JPEG data is damaged, truncated or of an unsupported kind: {0}")]
    Damaged(String),
    /// The size of the picture is out of range.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The buffer is too small for the picture.
    #[error("the picture needs {needed} bytes, but the buffer has {given}")]
    BufferTooSmall {
        /// The bytes of the picture.
        needed: usize,
        /// The bytes of the buffer.
        given: usize,
    },
}

/// Decodes JPEG pictures one after the other.
#[derive(Debug, Default)]
pub struct JpegDecoder {
    /// Made for the first picture.
    library: Option<Decompressor>,
    /// The picture with the end marker added.
    mended: Vec<u8>,
    /// The four components before the conversion to RGB.
    cmyk: Vec<u8>,
}

impl JpegDecoder {
    /// Makes a decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns width and height in pixels without decoding.
    pub fn header(&mut self, bytes: &[u8]) -> Result<(u32, u32), JpegError> {
        let header = read_header(library(&mut self.library)?, bytes)?;
        let layout = layout(&header)?;
        Ok((layout.width(), layout.height()))
    }

    /// Decodes into packed RGB at the start of `out`, whose content is lost even after an error.
    pub fn decode(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<FrameLayout, JpegError> {
        let library = library(&mut self.library)?;
        let header = read_header(library, bytes)?;
        let layout = layout(&header)?;
        let (needed, given) = (layout.size_bytes(), out.len());
        let out = out.get_mut(..needed).ok_or(JpegError::BufferTooSmall { needed, given })?;
        // A progressive picture may lack whole scans if the marker is missing.
        let bytes = if header.is_progressive || has_end(bytes) {
            bytes
        } else {
            self.mended.clear();
            self.mended.extend_from_slice(bytes);
            self.mended.extend_from_slice(&END);
            &self.mended
        };
        let (width, height) = (header.width, header.height);
        if matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK) {
            self.cmyk.resize(width * height * 4, 0);
            let pixels = self.cmyk.as_mut_slice();
            let format = turbojpeg::PixelFormat::CMYK;
            let image = Image { pixels, width, pitch: width * 4, height, format };
            library.decompress(bytes, image).map_err(damaged)?;
            cmyk_to_rgb(&self.cmyk, out);
        } else {
            let image = Image { pixels: out, width, pitch: width * 3, height, format: turbojpeg::PixelFormat::RGB };
            library.decompress(bytes, image).map_err(damaged)?;
        }
        Ok(layout)
    }
}

/// Returns the EXIF block (from its TIFF header on) of a JPEG picture, if it has one.
pub fn exif(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(&[0xFF, 0xD8])?;
    // Segments follow each other up to the first scan: marker, length (including itself), payload.
    while let [0xFF, marker, high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let payload = rest.get(4..2 + length)?;
        match marker {
            APP1 if payload.starts_with(b"Exif\0\0") => return Some(&payload[6..]),
            SOS => return None,
            _ => rest = &rest[2 + length..],
        }
    }
    None
}

const START: [u8; 3] = [0xFF, 0xD8, 0xFF];
const END: [u8; 2] = [0xFF, 0xD9];
const SOS: u8 = 0xDA;
const APP1: u8 = 0xE1;

fn library(library: &mut Option<Decompressor>) -> Result<&mut Decompressor, JpegError> {
    Ok(match library {
        Some(made) => made,
        none => {
            let mut made = Decompressor::new().map_err(damaged)?;
            made.set_scan_limit(MAX_SCANS).map_err(damaged)?;
            none.insert(made)
        }
    })
}

fn read_header(library: &mut Decompressor, bytes: &[u8]) -> Result<DecompressHeader, JpegError> {
    if !bytes.starts_with(&START) {
        return Err(JpegError::NotJpeg);
    }
    library.read_header(bytes).map_err(damaged)
}

fn layout(header: &DecompressHeader) -> Result<FrameLayout, JpegError> {
    let [width, height] = [header.width, header.height].map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    Ok(FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?)
}

/// Whether the picture has its end marker, even if a camera padded the frame with zeros.
fn has_end(bytes: &[u8]) -> bool {
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes[..length].ends_with(&END)
}

/// Converts like OpenCV, for the inverted values that Adobe and all other programs write.
fn cmyk_to_rgb(cmyk: &[u8], out: &mut [u8]) {
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (rgb, &[c, m, y, k]) in pixels.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        let k = i32::from(k);
        *rgb = [c, m, y].map(|ink| (k - (((255 - i32::from(ink)) * k) >> 8)) as u8);
    }
}

/// Returns the library's message without the name of its function.
fn damaged(error: turbojpeg::Error) -> JpegError {
    let reason = match error {
        turbojpeg::Error::TurboJpegError(words) => words.rsplit("(): ").next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    JpegError::Damaged(reason)
}

#[cfg(test)]
mod tests;
