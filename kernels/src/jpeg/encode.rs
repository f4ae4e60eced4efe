//! A frame into a JPEG picture, for people: with libjpeg-turbo, as the decoder.
//!
//! A YUV frame in BT.601 is what JPEG stores itself: its planes are taken as they are, stretched to full range where they
//! are limited, and never become RGB. That spares about half of the work. Any other frame comes as RGB.

use turbojpeg::{Compressor, Image, Subsamp, YuvPlanesImage};

use crate::color::{ColorMatrix, ColorRange};
use crate::frame::{FrameView, PixelFormat};

/// A picture cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the picture cannot be encoded as JPEG: {0}")]
pub struct EncodeError(String);

/// Encodes pictures one after the other, with the same memory.
#[derive(Debug)]
pub struct JpegEncoder {
    library: Compressor,
    /// Y, Cb and Cr of the frame that was read.
    planes: [Vec<u8>; 3],
    width: usize,
    height: usize,
    kind: Kind,
}

/// How the planes stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Luma alone.
    Grey,
    /// A sample of colour for two pixels of a row.
    Half,
    /// A sample of colour for two by two pixels.
    Quarter,
}

impl JpegEncoder {
    /// An encoder for pictures of `quality`, 1 to 100.
    pub fn new(quality: u8) -> Result<Self, EncodeError> {
        let mut library = Compressor::new().map_err(failed)?;
        library.set_quality(i32::from(quality.clamp(1, 100))).map_err(failed)?;
        Ok(Self { library, planes: Default::default(), width: 0, height: 0, kind: Kind::Grey })
    }

    /// Reads the frame's planes, which [`JpegEncoder::encode_read`] then makes a picture of; `false`: JPEG has no such
    /// colours, make RGB of it.
    pub fn read(&mut self, frame: &FrameView<'_>) -> bool {
        let format = frame.format();
        self.kind = match format {
            PixelFormat::Grey => Kind::Grey,
            PixelFormat::Yuyv | PixelFormat::Uyvy => Kind::Half,
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::I420 => Kind::Quarter,
            _ => return false,
        };
        if self.kind != Kind::Grey && frame.color().matrix != ColorMatrix::Bt601 {
            return false;
        }
        (self.width, self.height) = (frame.width() as usize, frame.height() as usize);
        let (luma, chroma) = tables(frame.color().range);
        let ([across, _], [columns, rows]) = (self.luma_size(), self.chroma_size());
        let [y, cb, cr] = &mut self.planes;
        y.clear();
        cb.clear();
        cr.clear();
        let planes = frame.planes();
        for row in 0..self.height {
            let bytes = planes[0].row(row);
            match format {
                PixelFormat::Yuyv => y.extend(bytes.iter().step_by(2).take(self.width).map(|&v| luma[usize::from(v)])),
                PixelFormat::Uyvy => {
                    y.extend(bytes.iter().skip(1).step_by(2).take(self.width).map(|&v| luma[usize::from(v)]));
                }
                _ => y.extend(bytes[..self.width].iter().map(|&v| luma[usize::from(v)])),
            }
            // The last pixel again, where the library wants an even number.
            y.resize((row + 1) * across, y.last().copied().unwrap_or(0));
        }
        if self.kind == Kind::Quarter && self.height % 2 == 1 {
            y.extend_from_within((self.height - 1) * across..);
        }
        for row in 0..rows {
            // Of pairs, and of the four bytes of two pixels: where Cb and Cr stand.
            let (bytes, size, [b, r]) = match format {
                PixelFormat::I420 => {
                    cb.extend(planes[1].row(row)[..columns].iter().map(|&v| chroma[usize::from(v)]));
                    cr.extend(planes[2].row(row)[..columns].iter().map(|&v| chroma[usize::from(v)]));
                    continue;
                }
                PixelFormat::Nv12 => (planes[1].row(row), 2, [0, 1]),
                PixelFormat::Nv21 => (planes[1].row(row), 2, [1, 0]),
                PixelFormat::Uyvy => (planes[0].row(row), 4, [0, 2]),
                _ => (planes[0].row(row), 4, [1, 3]),
            };
            for group in bytes.chunks_exact(size).take(columns) {
                cb.push(chroma[usize::from(group[b])]);
                cr.push(chroma[usize::from(group[r])]);
            }
        }
        true
    }

    /// The frame that was read, as a JPEG file.
    pub fn encode_read(&mut self) -> Result<Vec<u8>, EncodeError> {
        let ([across, _], [columns, _]) = (self.luma_size(), self.chroma_size());
        let (width, height) = (self.width, self.height);
        let [y, cb, cr] = &self.planes;
        let subsamp = match self.kind {
            Kind::Grey => {
                self.library.set_subsamp(Subsamp::Gray).map_err(failed)?;
                let format = turbojpeg::PixelFormat::GRAY;
                let image = Image { pixels: y.as_slice(), width, pitch: across, height, format };
                return self.library.compress_to_vec(image).map_err(failed);
            }
            Kind::Half => Subsamp::Sub2x1,
            Kind::Quarter => Subsamp::Sub2x2,
        };
        let image = YuvPlanesImage {
            y_plane: y.as_slice(),
            u_plane: cb.as_slice(),
            v_plane: cr.as_slice(),
            width,
            height,
            y_stride: across,
            u_stride: columns,
            v_stride: columns,
            subsamp,
        };
        self.library.compress_yuv_planes_to_vec(&image).map_err(failed)
    }

    /// Packed RGB as a JPEG file.
    pub fn encode_rgb(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, EncodeError> {
        let (width, height) = (width as usize, height as usize);
        if pixels.len() < width * height * 3 {
            let needed = width * height * 3;
            return Err(EncodeError(format!("it needs {needed} bytes, and there are {}", pixels.len())));
        }
        self.library.set_subsamp(Subsamp::Sub2x2).map_err(failed)?;
        let image = Image { pixels, width, pitch: width * 3, height, format: turbojpeg::PixelFormat::RGB };
        self.library.compress_to_vec(image).map_err(failed)
    }

    /// Width and height of the plane of Y.
    fn luma_size(&self) -> [usize; 2] {
        let even = |n: usize| n.next_multiple_of(2);
        match self.kind {
            Kind::Grey => [self.width, self.height],
            Kind::Half => [even(self.width), self.height],
            Kind::Quarter => [even(self.width), even(self.height)],
        }
    }

    /// Width and height of the planes of Cb and Cr.
    fn chroma_size(&self) -> [usize; 2] {
        match self.kind {
            Kind::Grey => [0, 0],
            Kind::Half => [self.width.div_ceil(2), self.height],
            Kind::Quarter => [self.width.div_ceil(2), self.height.div_ceil(2)],
        }
    }
}

/// From the frame's numbers to JPEG's, which use the full range: of Y, and of Cb and Cr.
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

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
