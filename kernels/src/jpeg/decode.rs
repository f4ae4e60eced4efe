//! Decodes a JPEG image into a frame.

use turbojpeg::{Colorspace, DecompressHeader, Decompressor, Image};

use crate::color::ColorDescription;
use crate::frame::{FrameError, FrameLayout, PixelFormat};

/// The maximum number of scans of a progressive image; encoders write about ten, an attack thousands.
const MAX_SCANS: u32 = 100;

/// Why a JPEG image cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// It does not begin like a JPEG.
    #[error("it is not a JPEG picture")]
    NotJpeg,
    /// The data contradicts itself, is truncated, or is of a kind that libjpeg does not support.
    #[error("the JPEG data is damaged, truncated or of an unsupported kind: {0}")]
    Damaged(String),
    /// The size of the image is out of range.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The image differs in size from the camera's frames.
    #[error("its picture has {0}x{1} pixels")]
    OtherSize(u32, u32),
    /// The buffer is too small for the image.
    #[error("the picture needs {needed} bytes, but the buffer has {given}")]
    BufferTooSmall {
        /// The size of the image in bytes.
        needed: usize,
        /// The size of the buffer in bytes.
        given: usize,
    },
}

/// The size of an image, and the memory to decode it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegHeader {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The most bytes that decoding allocates in addition to the file and the pixels.
    pub working_bytes: u64,
}

/// Decodes one JPEG image after another.
#[derive(Debug, Default)]
pub struct JpegDecoder {
    /// A copy of a camera's image, or an image with the end marker added.
    copy: Vec<u8>,
    /// The four components before the conversion to RGB.
    cmyk: Vec<u8>,
}

impl JpegDecoder {
    /// Makes a decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the size and the memory to decode it, without decoding.
    pub fn header(&mut self, bytes: &[u8]) -> Result<JpegHeader, JpegError> {
        let header = read_header(&mut library()?, bytes)?;
        let layout = layout(&header)?;
        let (width, height) = (layout.width(), layout.height());
        Ok(JpegHeader { width, height, working_bytes: working_bytes(&header, bytes) })
    }

    /// Decodes into packed RGB at the start of `out`, whose content is lost even after an error.
    pub fn decode(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<FrameLayout, JpegError> {
        let mut library = library()?;
        let header = read_header(&mut library, bytes)?;
        let layout = layout(&header)?;
        let bytes = if lacks_end(&header, bytes) {
            self.copy.clear();
            self.copy.extend_from_slice(bytes);
            self.copy.extend_from_slice(&END);
            &self.copy
        } else {
            bytes
        };
        decompress(&mut library, &header, bytes, &layout, &mut self.cmyk, out)?;
        Ok(layout)
    }

    /// Decodes a camera's image into `layout`, packed RGB, at the start of `out`. `shared` may change meanwhile.
    ///
    /// A driver's buffer is mapped memory that another process may write to (v4l2loopback). The library reads the header more
    /// than once, and a size that grew in between would overflow `out`. So the image is copied first: 0.2 to 0.5 MB at 1080p,
    /// which costs little compared with decoding.
    pub fn decode_shared(&mut self, shared: &[u8], layout: &FrameLayout, out: &mut [u8]) -> Result<(), JpegError> {
        let mut library = library()?;
        self.copy.clear();
        self.copy.extend_from_slice(shared);
        let header = read_header(&mut library, &self.copy)?;
        let found = self::layout(&header)?;
        if (found.width(), found.height()) != (layout.width(), layout.height()) {
            return Err(JpegError::OtherSize(found.width(), found.height()));
        }
        if lacks_end(&header, &self.copy) {
            self.copy.extend_from_slice(&END);
        }
        decompress(&mut library, &header, &self.copy, &found, &mut self.cmyk, out)
    }
}

/// Decodes `bytes`, which have the header `header`, into the start of `out`.
fn decompress(
    library: &mut Decompressor,
    header: &DecompressHeader,
    bytes: &[u8],
    layout: &FrameLayout,
    cmyk: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), JpegError> {
    let (needed, given) = (layout.size_bytes(), out.len());
    let out = out.get_mut(..needed).ok_or(JpegError::BufferTooSmall { needed, given })?;
    let (width, height) = (header.width, header.height);
    if has_four_inks(header) {
        cmyk.resize(width * height * 4, 0);
        let image = Image {
            pixels: cmyk.as_mut_slice(),
            width,
            pitch: width * 4,
            height,
            format: turbojpeg::PixelFormat::CMYK,
        };
        library.decompress(bytes, image).map_err(damaged)?;
        cmyk_to_rgb(cmyk, out);
    } else {
        let image = Image { pixels: out, width, pitch: width * 3, height, format: turbojpeg::PixelFormat::RGB };
        library.decompress(bytes, image).map_err(damaged)?;
    }
    Ok(())
}

/// Returns the most bytes that decoding allocates in addition to the file and the pixels: the copy of a file that lacks its end
/// marker, the four inks, and, for an image in several scans, its coefficients, one 16-bit number per sample.
fn working_bytes(header: &DecompressHeader, bytes: &[u8]) -> u64 {
    // Sampling factors are at most 4, so a row or column of units has at most 32 pixels.
    let padded = |side: usize| side.next_multiple_of(32) as u64;
    let samples = padded(header.width) * padded(header.height);
    let components = match header.colorspace {
        Colorspace::Gray => 1,
        Colorspace::CMYK | Colorspace::YCCK => 4,
        _ => 3,
    };
    let coefficients = if header.is_progressive || has_several_scans(bytes) { samples * components * 2 } else { 0 };
    let inks = if has_four_inks(header) { header.width as u64 * header.height as u64 * 4 } else { 0 };
    let copy = if lacks_end(header, bytes) { (bytes.len() + END.len()) as u64 } else { 0 };
    coefficients + inks + copy
}

fn has_four_inks(header: &DecompressHeader) -> bool {
    matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK)
}

/// Returns the EXIF block (from its TIFF header on) of a JPEG image, if it has one.
pub fn exif(bytes: &[u8]) -> Option<&[u8]> {
    segments(bytes)
        .take_while(|(marker, _)| *marker != SOS)
        .find(|(marker, payload)| *marker == APP1 && payload.starts_with(b"Exif\0\0"))
        .map(|(_, payload)| &payload[6..])
}

/// Whether the first scan lacks components, as in a progressive image. Then the library keeps the coefficients of the whole
/// image. Also true if it is unknown.
fn has_several_scans(bytes: &[u8]) -> bool {
    let mut components = None;
    for (marker, payload) in segments(bytes) {
        match marker {
            // Start of frame, all kinds of it; the others are tables.
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => components = payload.get(5).copied(),
            SOS => return components.is_none() || components != payload.first().copied(),
            _ => {}
        }
    }
    true
}

/// Returns the segments up to the first scan's, each with its marker and its payload.
fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes.strip_prefix(&[0xFF, 0xD8]).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let [0xFF, marker, high, low, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // The length includes itself.
        let payload = rest.get(4..2 + length)?;
        rest = if marker == SOS { &[] } else { &rest[2 + length..] };
        Some((marker, payload))
    })
}

const START: [u8; 3] = [0xFF, 0xD8, 0xFF];
const END: [u8; 2] = [0xFF, 0xD9];
const SOS: u8 = 0xDA;
const APP1: u8 = 0xE1;

/// Creates the library's object, which takes 0.2 us. Each image gets its own: otherwise an image without tables would be decoded
/// with those of the previous one.
fn library() -> Result<Decompressor, JpegError> {
    let mut library = Decompressor::new().map_err(damaged)?;
    library.set_scan_limit(MAX_SCANS).map_err(damaged)?;
    Ok(library)
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

/// Whether the end marker must be added. A progressive image may lack whole scans if the marker is missing.
fn lacks_end(header: &DecompressHeader, bytes: &[u8]) -> bool {
    // A camera may pad the frame with zeros.
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    !header.is_progressive && !bytes[..length].ends_with(&END)
}

/// Converts like OpenCV, for the inverted values that Adobe and all other programs write.
fn cmyk_to_rgb(cmyk: &[u8], out: &mut [u8]) {
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (rgb, &[c, m, y, k]) in pixels.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        let k = i32::from(k);
        *rgb = [c, m, y].map(|ink| (k - (((255 - i32::from(ink)) * k) >> 8)) as u8);
    }
}

/// Returns the library's message without the function name.
fn damaged(error: turbojpeg::Error) -> JpegError {
    let reason = match error {
        turbojpeg::Error::TurboJpegError(words) => words.rsplit("(): ").next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    JpegError::Damaged(reason)
}

#[cfg(test)]
mod tests;
