//! Encodes a frame as a JPEG image for viewing, with libjpeg-turbo like the decoder.
//!
//! JPEG itself stores YUV in BT.601, so the planes of such a frame are used directly, stretched to full range if they are
//! limited, without a conversion to RGB. That saves about half of the work. Any other frame is passed as RGB.
//!
//! An image is encoded in stripes of some 65,000 pixels, a fifth of a millisecond on a fast core, so that more urgent work can
//! run in between.

use std::ops::Range;

use turbojpeg::{Compressor, Image, Subsamp, YuvPlanesImage};

use crate::color::{ColorMatrix, ColorRange};
use crate::frame::{FrameView, PixelFormat};

/// An image cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode the picture as JPEG: {0}")]
pub struct EncodeError(String);

/// The approximate number of pixels in a stripe.
const STRIPE_PIXELS: usize = 1 << 16;

/// Encodes one image after another and reuses its memory.
#[derive(Debug)]
pub struct JpegEncoder {
    library: Compressor,
    /// Called between two stripes.
    pause: fn(),
    /// The number of pixels in a stripe.
    stripe_pixels: usize,
    /// The file of one stripe.
    stripe: Vec<u8>,
    /// Y, Cb and Cr of the frame that was read.
    planes: [Vec<u8>; 3],
    width: usize,
    height: usize,
    /// The chroma subsampling of the planes: `Gray`, `Sub2x1` or `Sub2x2`.
    subsamp: Subsamp,
}

impl JpegEncoder {
    /// Creates an encoder for images of `quality`, 1 to 100.
    pub fn new(quality: u8) -> Result<Self, EncodeError> {
        let mut library = Compressor::new().map_err(failed)?;
        library.set_quality(i32::from(quality.clamp(1, 100))).map_err(failed)?;
        Ok(Self {
            library,
            pause: || {},
            stripe_pixels: STRIPE_PIXELS,
            stripe: Vec::new(),
            planes: Default::default(),
            width: 0,
            height: 0,
            subsamp: Subsamp::Gray,
        })
    }

    /// Calls `pause` repeatedly while a frame is read or an image encoded.
    pub fn pausing(self, pause: fn()) -> Self {
        Self { pause, ..self }
    }

    /// Reads the frame's planes for [`JpegEncoder::encode_read`]. Returns false if JPEG does not support its colours, or the frame
    /// is only in the GPU's memory; then convert it to RGB.
    pub fn read(&mut self, frame: &FrameView<'_>) -> bool {
        if !frame.is_on_host() {
            return false;
        }
        let format = frame.format();
        self.subsamp = match format {
            _ if format.is_grey() => Subsamp::Gray,
            PixelFormat::Yuyv
            | PixelFormat::Uyvy
            | PixelFormat::Yvyu
            | PixelFormat::Vyuy
            | PixelFormat::Nv16
            | PixelFormat::Nv61 => Subsamp::Sub2x1,
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::I420 => Subsamp::Sub2x2,
            _ => return false,
        };
        if self.subsamp != Subsamp::Gray && frame.color().matrix != ColorMatrix::Bt601 {
            return false;
        }
        (self.width, self.height) = (frame.width() as usize, frame.height() as usize);
        let (luma, chroma) = tables(frame.color().range);
        let (across, [columns, rows]) = (self.luma_pitch(), self.chroma_size());
        let stripe = self.stripe_rows(self.width);
        let [y, cb, cr] = &mut self.planes;
        y.clear();
        cb.clear();
        cr.clear();
        let (planes, levels) = (frame.planes(), frame.level_map());
        for row in 0..self.height {
            if row % stripe == stripe - 1 {
                (self.pause)();
            }
            let bytes = planes[0].row(row);
            match format {
                PixelFormat::Yuyv | PixelFormat::Yvyu => {
                    y.extend(bytes.iter().step_by(2).take(self.width).map(|&v| luma[usize::from(v)]));
                }
                PixelFormat::Uyvy | PixelFormat::Vyuy => {
                    y.extend(bytes.iter().skip(1).step_by(2).take(self.width).map(|&v| luma[usize::from(v)]));
                }
                PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
                    let samples = bytes.as_chunks::<2>().0[..self.width].iter();
                    y.extend(samples.map(|&sample| luma[usize::from(levels.byte(u16::from_le_bytes(sample)))]));
                }
                _ => y.extend(bytes[..self.width].iter().map(|&v| luma[usize::from(v)])),
            }
            // Repeat the last pixel if the library needs an even number.
            y.resize((row + 1) * across, y.last().copied().unwrap_or(0));
        }
        if self.subsamp == Subsamp::Sub2x2 && self.height % 2 == 1 {
            y.extend_from_within((self.height - 1) * across..);
        }
        for row in 0..rows {
            if row % stripe == stripe - 1 {
                (self.pause)();
            }
            // Group size in bytes, and the offsets of Cb and Cr in it: pairs, or the four bytes of two pixels.
            let (bytes, size, [b, r]) = match format {
                PixelFormat::I420 => {
                    cb.extend(planes[1].row(row)[..columns].iter().map(|&v| chroma[usize::from(v)]));
                    cr.extend(planes[2].row(row)[..columns].iter().map(|&v| chroma[usize::from(v)]));
                    continue;
                }
                PixelFormat::Nv12 | PixelFormat::Nv16 => (planes[1].row(row), 2, [0, 1]),
                PixelFormat::Nv21 | PixelFormat::Nv61 => (planes[1].row(row), 2, [1, 0]),
                PixelFormat::Uyvy => (planes[0].row(row), 4, [0, 2]),
                PixelFormat::Yvyu => (planes[0].row(row), 4, [3, 1]),
                PixelFormat::Vyuy => (planes[0].row(row), 4, [2, 0]),
                _ => (planes[0].row(row), 4, [1, 3]),
            };
            for group in bytes.chunks_exact(size).take(columns) {
                cb.push(chroma[usize::from(group[b])]);
                cr.push(chroma[usize::from(group[r])]);
            }
        }
        true
    }

    /// Encodes the frame that was read.
    pub fn encode_read(&mut self) -> Result<Vec<u8>, EncodeError> {
        let (across, [columns, _]) = (self.luma_pitch(), self.chroma_size());
        let (width, height, subsamp) = (self.width, self.height, self.subsamp);
        let planes = std::mem::take(&mut self.planes);
        let [y, cb, cr] = &planes;
        let luma = |rows: &Range<usize>| &y[rows.start * across..];
        let jpeg = self.encode([width, height], subsamp, |library, rows, out| {
            if subsamp == Subsamp::Gray {
                let format = turbojpeg::PixelFormat::GRAY;
                let image = Image { pixels: luma(&rows), width, pitch: across, height: rows.len(), format };
                return library.compress_to_slice(image, out);
            }
            let chroma = rows.start / subsamp.height() * columns;
            let image = YuvPlanesImage {
                y_plane: luma(&rows),
                u_plane: &cb[chroma..],
                v_plane: &cr[chroma..],
                width,
                height: rows.len(),
                y_stride: across,
                u_stride: columns,
                v_stride: columns,
                subsamp,
            };
            library.compress_yuv_planes_to_slice(&image, out)
        });
        self.planes = planes;
        jpeg
    }

    /// Encodes packed RGB.
    pub fn encode_rgb(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, EncodeError> {
        let (width, height) = (width as usize, height as usize);
        if pixels.len() < width * height * 3 {
            let needed = width * height * 3;
            return Err(EncodeError(format!("it needs {needed} bytes, and there are {}", pixels.len())));
        }
        self.encode([width, height], Subsamp::Sub2x2, |library, rows, out| {
            let (pixels, height) = (&pixels[rows.start * width * 3..], rows.len());
            let image = Image { pixels, width, pitch: width * 3, height, format: turbojpeg::PixelFormat::RGB };
            library.compress_to_slice(image, out)
        })
    }

    /// Encodes a whole image in stripes. `compress` encodes some rows as a file and returns its length.
    fn encode(
        &mut self,
        [width, height]: [usize; 2],
        subsamp: Subsamp,
        compress: impl Fn(&mut Compressor, Range<usize>, &mut [u8]) -> turbojpeg::Result<usize>,
    ) -> Result<Vec<u8>, EncodeError> {
        let rows = self.stripe_rows(width);
        let Self { library, pause, stripe, .. } = self;
        library.set_subsamp(subsamp).map_err(failed)?;
        stripe.resize(turbojpeg::compressed_buf_len(width, rows.min(height), subsamp).map_err(failed)?, 0);
        let length = compress(library, 0..rows.min(height), stripe).map_err(failed)?;
        if height <= rows {
            return Ok(stripe[..length].to_vec());
        }
        let (across, down) = subsamp.mcu_size();
        let too_large = |_| EncodeError(format!("{width}x{height} is too large for a JPEG file"));
        let mcus = u16::try_from(width.div_ceil(across) * (rows / down)).map_err(too_large)?;
        let mut jpeg = first_stripe(&stripe[..length], u16::try_from(height).map_err(too_large)?, mcus)?;
        for (index, begin) in (rows..height).step_by(rows).enumerate() {
            pause();
            let length = compress(library, begin..height.min(begin + rows), stripe).map_err(failed)?;
            let Headers { data, .. } = headers(&stripe[..length])?;
            // RST0 to RST7 in turn.
            jpeg.extend_from_slice(&[0xff, 0xd0 + (index % 8) as u8]);
            jpeg.extend_from_slice(&stripe[data]);
        }
        jpeg.extend_from_slice(&EOI);
        Ok(jpeg)
    }

    /// Returns the rows of a stripe: a multiple of every MCU's height.
    fn stripe_rows(&self, width: usize) -> usize {
        (self.stripe_pixels / width.max(16)).max(16) / 16 * 16
    }

    /// Returns the width of the Y plane.
    fn luma_pitch(&self) -> usize {
        self.width.next_multiple_of(self.subsamp.width())
    }

    /// Returns width and height of the Cb and Cr planes.
    fn chroma_size(&self) -> [usize; 2] {
        match self.subsamp {
            Subsamp::Gray => [0, 0],
            subsamp => [self.width.div_ceil(subsamp.width()), self.height.div_ceil(subsamp.height())],
        }
    }
}

/// Returns the tables from the frame's values to JPEG's full range: for Y, and for Cb and Cr.
fn tables(range: ColorRange) -> ([u8; 256], [u8; 256]) {
    let stretched = |middle: f32, gain: f32, out: f32| {
        std::array::from_fn(|value| ((value as f32 - middle) * gain + out).round().clamp(0.0, 255.0) as u8)
    };
    match range {
        ColorRange::Full => (std::array::from_fn(|value| value as u8), std::array::from_fn(|value| value as u8)),
        ColorRange::Limited => (stretched(16.0, 255.0 / 219.0, 0.0), stretched(128.0, 255.0 / 224.0, 128.0)),
    }
}

fn failed(error: turbojpeg::Error) -> EncodeError {
    EncodeError(error.to_string())
}

const EOI: [u8; 2] = [0xff, 0xd9];
const SOS: u8 = 0xda;
const DRI: u8 = 0xdd;

/// Starts an image of `height` pixels with the complete file `first`, whose stripe has `mcus`.
///
/// A decoder restarts at a restart marker as at the start of an image. So the joined image consists of the first stripe's
/// headers, with the whole height and a restart interval of one stripe, and then the data of all stripes with a marker between
/// them (ITU-T T.81, B.2 and F.1.1.5.1). All stripes must have the same tables, and all but the last the same height, a multiple
/// of the MCU's.
fn first_stripe(first: &[u8], height: u16, mcus: u16) -> Result<Vec<u8>, EncodeError> {
    let Headers { frame, scan, data } = headers(first)?;
    let mut jpeg = Vec::with_capacity(first.len() * 2);
    jpeg.extend_from_slice(&first[..scan]);
    // Length and precision come before the height.
    jpeg[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    jpeg.extend_from_slice(&[0xff, DRI, 0, 4]);
    jpeg.extend_from_slice(&mcus.to_be_bytes());
    jpeg.extend_from_slice(&first[scan..data.end]);
    Ok(jpeg)
}

/// The positions of the frame marker (SOF0), the scan marker and the scan's data in a baseline file.
struct Headers {
    frame: usize,
    scan: usize,
    data: Range<usize>,
}

fn headers(jpeg: &[u8]) -> Result<Headers, EncodeError> {
    let odd = || EncodeError("the library wrote a file without the headers of a baseline picture".to_owned());
    let (mut at, mut frame) = (2, None);
    while let Some(&[0xff, marker, high, low]) = jpeg.get(at..at + 4) {
        let next = at + 2 + usize::from(u16::from_be_bytes([high, low]));
        match marker {
            0xc0 => frame = Some(at),
            SOS => {
                let end = jpeg.len() - EOI.len();
                let whole = jpeg.ends_with(&EOI) && next <= end;
                return frame
                    .filter(|_| whole)
                    .map(|frame| Headers { frame, scan: at, data: next..end })
                    .ok_or_else(odd);
            }
            _ => {}
        }
        at = next;
    }
    Err(odd())
}

#[cfg(test)]
mod tests;
