//! Reads an image file into an RGB frame, with the pixels that OpenCV's `imread(IMREAD_COLOR)` returns.
//!
//! The content decides the format, not the file's extension. EXIF orientation is applied, alpha is dropped (TIFF: multiplied
//! in, as libtiff does), the transparent pixels of a GIF show its background, 16-bit samples lose their low byte (colour TIFF:
//! are rounded), grey becomes three equal channels. `golden.py` compares with OpenCV 5.0; the files that differ, and why, are
//! in `tests.rs`.
//!
//! An image may be a bomb: a small file that becomes gigabytes. So the header is checked before anything is decoded: the number of
//! pixels, and the most memory that this file's decoder can need. These limits come from the decoders' sources (image 0.25, png
//! 0.18, tiff 0.11, gif 0.14, image-webp 0.2, libjpeg-turbo 3.1); `tests.rs` measures them for each format.

use std::fs;
use std::io::{Cursor, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};
use tiff::tags::{CompressionMethod, Tag};
use visiond_frames::clock::{self, SystemClock};
use visiond_frames::frame::{Frame, FramePool, PooledBuffer};
use visiond_frames::timestamp::Timestamp;
use visiond_kernels::buffer::KEPT_BYTES;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameError, FrameLayout, MAX_SIDE, PixelFormat};
use visiond_kernels::jpeg::{self, JpegDecoder};
use visiond_system::preflight::Certainty;

use super::buffers::Buffers;
use super::source::SourceError;

/// How many leading bytes identify the format.
const HEAD_BYTES: u64 = 64;

/// The share of an image's memory limit that a PNG's decompressed profile and texts may take.
const PNG_METADATA_SHARE: u64 = 16;

/// Why an image cannot be read, as text: it becomes part of the [`SourceError`].
type Reason = Box<dyn std::error::Error>;

/// Reads one image into memory of the buffers' kind, within their limits.
pub fn load(path: &Path, buffers: &Buffers) -> Result<Frame, SourceError> {
    let pool = FramePool::new(&buffers.memory, 1, 0).map_err(|e| SourceError::transient(e.to_string()))?;
    // The pool has one buffer, and it is free.
    let buffer = pool.take().ok_or_else(|| SourceError::transient("the image's buffer is gone"))?;
    Loader::new(buffers).load(path, 0, buffer)
}

/// Checks whether `path` can be read and begins like an image, without decoding it.
pub(crate) fn check(path: &Path) -> Result<(), (SourceError, Certainty)> {
    let read = || -> Result<(), Reason> {
        let mut head = Vec::new();
        open(path)?.0.take(HEAD_BYTES).read_to_end(&mut head)?;
        format(&head).map(drop)
    };
    read().map_err(|reason| {
        let certainty = reason.downcast_ref().map_or(Certainty::Certain, Certainty::of_reading);
        (cannot_read(path, &*reason), certainty)
    })
}

fn cannot_read(path: &Path, reason: &dyn std::error::Error) -> SourceError {
    SourceError::permanent(format!("cannot read the image {}: {reason}", path.display()))
}

/// Opens a file; also returns its size. Rejects devices and pipes: they may be endless or block.
fn open(path: &Path) -> Result<(fs::File, u64), Reason> {
    // Without the flag, opening a pipe blocks until a writer opens it.
    let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err("it is a folder".into());
    }
    if !metadata.is_file() {
        return Err("it is a device or a pipe, not a file: copy it into one".into());
    }
    Ok((file, metadata.len()))
}

/// Returns the format that the first bytes of a file show.
fn format(head: &[u8]) -> Result<ImageFormat, Reason> {
    if head.is_empty() {
        return Err("the file is empty".into());
    }
    use ImageFormat::{Avif, Bmp, Gif, Jpeg, Png, Pnm, Tiff, WebP};
    match known_format(head) {
        Some(format @ (Png | Jpeg | Bmp | Gif | Tiff | WebP | Pnm)) => Ok(format),
        Some(Avif) => {
            Err("it is AVIF, which visiond does not read: convert it with `avifdec IMAGE.avif IMAGE.png`".into())
        }
        _ => Err("not a supported image (PNG, JPEG, BMP, GIF, TIFF, WebP, PNM)".into()),
    }
}

/// Returns the format that the first bytes show, if visiond reads it or says how to convert it.
fn known_format(head: &[u8]) -> Option<ImageFormat> {
    image::guess_format(head).ok().filter(|format| format.reading_enabled() || *format == ImageFormat::Avif)
}

/// Whether a file begins like an image that visiond reads, or says how to convert.
pub fn begins_as_image(head: &[u8]) -> bool {
    known_format(head).is_some()
}

/// Reads one image after another into reused memory.
pub(crate) struct Loader {
    limits: Buffers,
    jpeg: JpegDecoder,
    file: Vec<u8>,
    copied_bytes: u64,
}

impl Loader {
    /// Creates a loader that keeps the limits of `buffers`.
    pub fn new(buffers: &Buffers) -> Self {
        Self { limits: buffers.clone(), jpeg: JpegDecoder::new(), file: Vec::new(), copied_bytes: 0 }
    }

    /// Returns how many bytes of images were decoded elsewhere and then copied: all but upright JPEG.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Reads an image into `buffer`, which is resized to it.
    pub fn load(&mut self, path: &Path, sequence: u64, mut buffer: PooledBuffer) -> Result<Frame, SourceError> {
        let mut read = || {
            self.read_file(path)?;
            let timestamp = clock::now(&SystemClock);
            Ok((timestamp, self.decode(&mut buffer)?))
        };
        let read = read().map_err(|reason: Reason| cannot_read(path, &*reason));
        // One large image must not hold its memory forever.
        if self.file.capacity().max(buffer.as_slice().len()) > KEPT_BYTES {
            (self.file, self.jpeg) = (Vec::new(), JpegDecoder::new());
        }
        let (timestamp, layout) = read?;
        let name = Some(Arc::from(path.to_string_lossy()));
        Ok(Frame { layout, buffer: buffer.into(), sequence, timestamp, damaged: false, name })
    }

    /// Reads an image from the file contents `bytes` into `buffer`, which is resized to it; `timestamp` is the frame's time.
    pub fn load_bytes(
        &mut self,
        bytes: &mut Vec<u8>,
        sequence: u64,
        timestamp: Timestamp,
        mut buffer: PooledBuffer,
    ) -> Result<Frame, String> {
        std::mem::swap(&mut self.file, bytes);
        let decoded = self.decode(&mut buffer).map_err(|reason| reason.to_string());
        std::mem::swap(&mut self.file, bytes);
        if bytes.capacity().max(buffer.as_slice().len()) > KEPT_BYTES {
            (*bytes, self.jpeg) = (Vec::new(), JpegDecoder::new());
        }
        Ok(Frame { layout: decoded?, buffer: buffer.into(), sequence, timestamp, damaged: false, name: None })
    }

    fn read_file(&mut self, path: &Path) -> Result<(), Reason> {
        self.file.clear();
        let (file, bytes) = open(path)?;
        let most = self.limits.max_picture_bytes;
        if bytes > most {
            return Err(self.too_costly(bytes));
        }
        // Exactly as much as is needed, because the vector would double its size.
        self.file.try_reserve_exact(usize::try_from(bytes)?)?;
        let read = file.take(most.saturating_add(1)).read_to_end(&mut self.file)? as u64;
        if read > most { Err(self.too_costly(bytes.max(read))) } else { Ok(()) }
    }

    fn decode(&mut self, buffer: &mut PooledBuffer) -> Result<FrameLayout, Reason> {
        let turned = match format(&self.file)? {
            ImageFormat::Jpeg => {
                let header = self.jpeg.header(&self.file)?;
                let orientation = jpeg::exif(&self.file).and_then(Orientation::from_exif_chunk);
                let orientation = orientation.unwrap_or(Orientation::NoTransforms);
                let size = (header.width, header.height);
                let needed = self.frame_bytes(size, header.working_bytes, orientation)?;
                if orientation == Orientation::NoTransforms {
                    buffer.refit(needed)?;
                    return Ok(self.jpeg.decode(&self.file, buffer.as_mut_slice())?);
                }
                let mut pixels = vec![0; needed];
                self.jpeg.decode(&self.file, &mut pixels)?;
                turned(size, pixels, orientation)?
            }
            other => match self.decode_with_image(other, buffer)? {
                Decoded::Upright(layout) => {
                    self.copied_bytes += layout.size_bytes() as u64;
                    return Ok(layout);
                }
                Decoded::Turned(picture) => picture,
            },
        };
        let layout = rgb_layout((turned.width(), turned.height()))?;
        buffer.refit(layout.size_bytes())?;
        buffer.as_mut_slice()[..layout.size_bytes()].copy_from_slice(turned.as_raw());
        self.copied_bytes += layout.size_bytes() as u64;
        Ok(layout)
    }

    /// Decodes every format but JPEG: into `buffer`, unless the EXIF orientation rotates the image.
    fn decode_with_image(&self, format: ImageFormat, buffer: &mut PooledBuffer) -> Result<Decoded, Reason> {
        let mut reader = ImageReader::with_format(Cursor::new(&self.file[..]), format);
        let metadata_bytes = self.limits.max_picture_bytes / PNG_METADATA_SHARE;
        let mut limits = Limits::no_limits();
        limits.max_image_width = Some(MAX_SIDE);
        limits.max_image_height = Some(MAX_SIDE);
        // PNG's decoder takes its limit when it is created. The limit does not apply to the pixels.
        limits.max_alloc = Some(metadata_bytes);
        reader.limits(limits.clone());
        let mut decoder = reader.into_decoder().map_err(|error| sentence(&error))?;
        if matches!(decoder.color_type(), ColorType::Rgb32F | ColorType::Rgba32F) {
            return Err("it has floating-point samples: save it with 8 or 16 bits".into());
        }
        let size = decoder.dimensions();
        let (pixels, decoded) = (u64::from(size.0) * u64::from(size.1), decoder.total_bytes());
        let working_bytes = match format {
            ImageFormat::Png => decoded + metadata_bytes,
            // A frame, which is then composed onto the canvas.
            ImageFormat::Gif => decoded * 2,
            // The stored samples (four for CMYK instead of three) are copied.
            ImageFormat::Tiff => decoded + decoded / 3 * 4 + 4,
            // At most a frame and the canvas of an animation, the planes of a lossy image, and its alpha.
            ImageFormat::WebP => decoded + 16 * pixels,
            _ => decoded,
        };
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let needed = self.frame_bytes(size, working_bytes, orientation)?;
        if format == ImageFormat::Tiff && has_jpeg_inside(&self.file) {
            return Err("it is a TIFF with JPEG inside, whose size no header states: save it as JPEG".into());
        }
        // TIFF's decoder compares this with the packed data as well.
        let packed_bytes = self.file.len() as u64;
        limits.max_alloc = Some(if format == ImageFormat::Gif { decoded } else { working_bytes + packed_bytes });
        decoder.set_limits(limits).map_err(|error| sentence(&error))?;
        let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| sentence(&error))?;
        match format {
            ImageFormat::Gif => show_background(&mut picture, &self.file),
            ImageFormat::Tiff => convert_like_libtiff(&mut picture, &self.file),
            _ => {}
        }
        if orientation == Orientation::NoTransforms {
            buffer.refit(needed)?;
            write_rgb(&picture, &mut buffer.as_mut_slice()[..needed])?;
            return Ok(Decoded::Upright(rgb_layout(size)?));
        }
        let mut rgb = vec![0; needed];
        write_rgb(&picture, &mut rgb)?;
        drop(picture);
        Ok(Decoded::Turned(turned(size, rgb, orientation)?))
    }

    /// Checks the size of an image and the memory that it needs, `working_bytes` of it for the decoder; returns the bytes of the
    /// frame.
    fn frame_bytes(&self, size: (u32, u32), working_bytes: u64, orientation: Orientation) -> Result<usize, Reason> {
        let bytes = rgb_layout(size)?.size_bytes();
        self.limits.check_size(size.0, size.1)?;
        // A rotated image exists twice.
        let frames = if orientation == Orientation::NoTransforms { 1 } else { 2 };
        let needed = (self.file.len() as u64).saturating_add(working_bytes).saturating_add(frames * bytes as u64);
        if needed > self.limits.max_picture_bytes { Err(self.too_costly(needed)) } else { Ok(bytes) }
    }

    fn too_costly(&self, needed: u64) -> Reason {
        let most = self.limits.max_picture_bytes;
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        format!(
            "reading it may take {} MiB of memory, more than {}: make it smaller, or raise `max_picture_bytes` in `[buffers]` \
             (`--input-memory`)",
            mib(needed),
            mib(most)
        )
        .into()
    }
}

/// A decoded image.
enum Decoded {
    /// Into the frame's buffer.
    Upright(FrameLayout),
    Turned(RgbImage),
}

fn rgb_layout((width, height): (u32, u32)) -> Result<FrameLayout, FrameError> {
    FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())
}

/// Applies the orientation to the RGB pixels of an image.
fn turned((width, height): (u32, u32), rgb: Vec<u8>, orientation: Orientation) -> Result<RgbImage, Reason> {
    let picture = RgbImage::from_raw(width, height, rgb).map(DynamicImage::ImageRgb8);
    let mut picture = picture.ok_or("its size does not fit its bytes")?;
    picture.apply_orientation(orientation);
    Ok(picture.into_rgb8())
}

/// Returns the numbers of a tag of a TIFF's first image; empty without the tag.
fn tiff_tag(file: &[u8], tag: Tag) -> Vec<u16> {
    let numbers =
        tiff::decoder::Decoder::new(Cursor::new(file)).and_then(|mut decoder| decoder.find_tag_unsigned_vec(tag));
    numbers.ok().flatten().unwrap_or_default()
}

/// Whether a TIFF has JPEG data, whose own header may state any size: the decoder does not check it.
fn has_jpeg_inside(file: &[u8]) -> bool {
    let compression = tiff_tag(file, Tag::Compression).first().copied().unwrap_or(CompressionMethod::None.to_u16());
    matches!(
        CompressionMethod::from_u16_exhaustive(compression),
        CompressionMethod::JPEG | CompressionMethod::ModernJPEG
    )
}

/// Fills the pixels of a GIF that its first frame leaves transparent or does not cover with the file's background colour, or with
/// black if the file has none.
fn show_background(picture: &mut DynamicImage, file: &[u8]) {
    const HAS_TABLE: u8 = 0x80;
    // The screen descriptor: flags and the background's index; the colour table follows.
    let (flags, index) = (file[10], usize::from(file[11]));
    let entries = if flags & HAS_TABLE == 0 { 0 } else { 2 << (flags & 7) };
    let table = file[13..].as_chunks::<3>().0;
    let [r, g, b] = table.get(index).filter(|_| index < entries).copied().unwrap_or_default();
    if let DynamicImage::ImageRgba8(picture) = picture {
        picture.pixels_mut().filter(|pixel| pixel.0[3] == 0).for_each(|pixel| pixel.0 = [r, g, b, u8::MAX]);
    }
}

/// Converts the samples of a TIFF in colour as libtiff's `TIFFReadRGBAImage` does: rounds 16 bits to 8, and multiplies the
/// colours by an alpha that the file declares as not multiplied in yet.
fn convert_like_libtiff(picture: &mut DynamicImage, file: &[u8]) {
    /// The value of the tag ExtraSamples for such an alpha.
    const UNASSOCIATED_ALPHA: u16 = 2;
    let has_alpha = picture.color().has_alpha();
    if picture.color().has_color() && matches!(picture, DynamicImage::ImageRgb16(_) | DynamicImage::ImageRgba16(_)) {
        // Rounds to the nearest, as libtiff does.
        *picture = if has_alpha { picture.to_rgba8().into() } else { picture.to_rgb8().into() };
    }
    if has_alpha
        && tiff_tag(file, Tag::ExtraSamples).first() == Some(&UNASSOCIATED_ALPHA)
        && let DynamicImage::ImageRgba8(picture) = picture
    {
        for pixel in picture.pixels_mut() {
            let [r, g, b, a] = pixel.0;
            let times_alpha = |sample: u8| ((u32::from(sample) * u32::from(a) + 127) / 255) as u8;
            pixel.0 = [times_alpha(r), times_alpha(g), times_alpha(b), a];
        }
    }
}

/// Writes three bytes a pixel, like `imread`.
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
        // Floating-point samples were rejected earlier.
        _ => return Err("its samples are of an unknown kind: save it with 8 or 16 bits".into()),
    }
    Ok(())
}

/// Returns the image library's error as one line with the remedy.
fn sentence(error: &image::ImageError) -> String {
    let remedy = match error {
        image::ImageError::Limits(_) => "make it smaller",
        image::ImageError::Unsupported(_) => "save it as PNG",
        _ => "copy it again, or save it as PNG",
    };
    let said = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{said}; {remedy}")
}

#[cfg(test)]
mod tests;
