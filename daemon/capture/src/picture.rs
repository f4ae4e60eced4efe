//! Reads a picture file into an RGB frame, with the pixels that OpenCV's `imread(IMREAD_COLOR)` gives.
//!
//! The content decides the format, not the file's extension. EXIF orientation is applied, alpha is dropped (not blended),
//! 16-bit samples lose their low byte, grey becomes three equal channels. Compared with OpenCV 5.0 on 69 files of every format,
//! depth and orientation: equal, except TIFF with alpha or 16 bits a channel, JPEG inside TIFF, transparent GIF, and PGM whose
//! maximum is not 255 (scaled here, not there).

use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};
use visiond_flow::clock::{self, SystemClock};
use visiond_flow::frame::{Frame, FramePool, PooledBuffer};
use visiond_kernels::buffer::Memory;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, MAX_SIDE, PixelFormat};
use visiond_kernels::jpeg::{self, JpegDecoder};
use visiond_system::preflight::Certainty;

use super::source::SourceError;

/// The most pixels of a picture: 384 MiB of RGB. A larger picture is a mistake or an attack.
const MAX_PIXELS: u64 = 128 << 20;
const MAX_FILE_BYTES: u64 = 512 << 20;

/// How much a decoder may allocate for the picture in its own format.
const MAX_DECODER_BYTES: u64 = 8 * MAX_PIXELS;

/// Why a picture cannot be read, as text alone: it becomes a part of the [`SourceError`].
type Reason = Box<dyn std::error::Error>;

/// Reads one picture into `memory`.
pub fn load(path: &Path, memory: &Memory) -> Result<Frame, SourceError> {
    let pool = FramePool::new(memory, 1, 0).map_err(|e| SourceError::transient(e.to_string()))?;
    // The pool has one buffer, and it is free.
    let buffer = pool.take().ok_or_else(|| SourceError::transient("the picture's buffer is gone"))?;
    Loader::default().load(path, 0, buffer)
}

/// Finds out whether `path` can be read and begins as a picture does, without decoding it.
pub(crate) fn check(path: &Path) -> Result<(), (SourceError, Certainty)> {
    let mut loader = Loader::default();
    loader.read_file(path).and_then(|()| loader.format().map(drop)).map_err(|reason| {
        let certainty = reason.downcast_ref().map_or(Certainty::Certain, Certainty::of_reading);
        (cannot_read(path, &*reason), certainty)
    })
}

fn cannot_read(path: &Path, reason: &dyn std::error::Error) -> SourceError {
    SourceError::permanent(format!("cannot read the picture {}: {reason}", path.display()))
}

/// Reads pictures one after the other into reused memory.
#[derive(Default)]
pub(crate) struct Loader {
    jpeg: JpegDecoder,
    file: Vec<u8>,
    copied_bytes: u64,
}

impl Loader {
    /// Returns how many bytes of pictures were decoded elsewhere and then copied: all but upright JPEG.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Reads a picture into `buffer`, which grows as needed.
    pub fn load(&mut self, path: &Path, sequence: u64, mut buffer: PooledBuffer) -> Result<Frame, SourceError> {
        let fail = |reason: Reason| cannot_read(path, &*reason);
        self.read_file(path).map_err(fail)?;
        let timestamp = clock::now(&SystemClock);
        let layout = self.decode(&mut buffer).map_err(fail)?;
        let name = Some(Arc::from(path.to_string_lossy()));
        Ok(Frame { layout, buffer: buffer.into(), sequence, timestamp, name })
    }

    fn read_file(&mut self, path: &Path) -> Result<(), Reason> {
        self.file.clear();
        let file = fs::File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err("it is a folder".into());
        }
        match file.take(MAX_FILE_BYTES + 1).read_to_end(&mut self.file)? as u64 {
            0 => Err("the file is empty".into()),
            read if read > MAX_FILE_BYTES => {
                Err(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20).into())
            }
            _ => Ok(()),
        }
    }

    fn format(&self) -> Result<ImageFormat, Reason> {
        let format = image::guess_format(&self.file);
        format.map_err(|_| "not a supported picture (PNG, JPEG, BMP, GIF, TIFF, WebP, PNM)".into())
    }

    fn decode(&mut self, buffer: &mut PooledBuffer) -> Result<FrameLayout, Reason> {
        let decoded = match self.format()? {
            ImageFormat::Jpeg => {
                let (width, height) = self.jpeg.header(&self.file)?;
                let needed = rgb_bytes(width, height)?;
                let orientation = jpeg::exif(&self.file).and_then(Orientation::from_exif_chunk);
                let orientation = orientation.unwrap_or(Orientation::NoTransforms);
                if orientation == Orientation::NoTransforms {
                    buffer.grow(needed)?;
                    return Ok(self.jpeg.decode(&self.file, buffer.as_mut_slice())?);
                }
                let mut pixels = vec![0; needed];
                self.jpeg.decode(&self.file, &mut pixels)?;
                let picture = RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8);
                // The vector has exactly the bytes of this size.
                let mut picture = picture.ok_or("its size does not fit its bytes")?;
                picture.apply_orientation(orientation);
                picture
            }
            other => decode_with_image(&self.file, other)?,
        };
        let (width, height) = (decoded.width(), decoded.height());
        buffer.grow(rgb_bytes(width, height)?)?;
        let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
        write_rgb(&decoded, &mut buffer.as_mut_slice()[..layout.size_bytes()])?;
        self.copied_bytes += layout.size_bytes() as u64;
        Ok(layout)
    }
}

/// Decodes every format but JPEG, and applies the EXIF orientation.
fn decode_with_image(file: &[u8], format: ImageFormat) -> Result<DynamicImage, Reason> {
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| sentence(&error))?;
    let (width, height) = decoder.dimensions();
    rgb_bytes(width, height)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| sentence(&error))?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Checks the size; returns the bytes of the frame.
fn rgb_bytes(width: u32, height: u32) -> Result<usize, Reason> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MAX_PIXELS {
        return Err(format!("it has {pixels} pixels ({width}x{height}), visiond reads at most {MAX_PIXELS}").into());
    }
    Ok(layout.size_bytes())
}

/// Writes three bytes a pixel, as `imread` does.
fn write_rgb(picture: &DynamicImage, out: &mut [u8]) -> Result<(), Reason> {
    fn pixels<T: Copy, const N: usize>(samples: &[T], out: &mut [u8], rgb: impl Fn(&[T; N]) -> [u8; 3]) {
        let (samples, _) = samples.as_chunks::<N>();
        let (out, _) = out.as_chunks_mut::<3>();
        for (pixel, out) in samples.iter().zip(out) {
            *out = rgb(pixel);
        }
    }
    let high = |sample: u16| (sample >> 8) as u8;
    match picture {
        DynamicImage::ImageRgb8(p) => out.copy_from_slice(p.as_raw()),
        DynamicImage::ImageRgba8(p) => pixels(p.as_raw(), out, |&[r, g, b, _]| [r, g, b]),
        DynamicImage::ImageLuma8(p) => pixels(p.as_raw(), out, |&[y]| [y; 3]),
        DynamicImage::ImageLumaA8(p) => pixels(p.as_raw(), out, |&[y, _]| [y; 3]),
        DynamicImage::ImageRgb16(p) => pixels(p.as_raw(), out, |p: &[u16; 3]| p.map(high)),
        DynamicImage::ImageRgba16(p) => pixels(p.as_raw(), out, |&[r, g, b, _]| [high(r), high(g), high(b)]),
        DynamicImage::ImageLuma16(p) => pixels(p.as_raw(), out, |&[y]| [high(y); 3]),
        DynamicImage::ImageLumaA16(p) => pixels(p.as_raw(), out, |&[y, _]| [high(y); 3]),
        _ => return Err("it has floating-point samples: save it with 8 or 16 bits".into()),
    }
    Ok(())
}

/// Returns the image library's error as one line.
fn sentence(error: &image::ImageError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
