//! A frame's row, at the columns that are needed, into one 32-bit word a pixel.
//!
//! One load a pixel for packed formats, two for NV12 and NV21, three for I420; nothing is computed here. What stands in
//! which byte of the word is said by [`Words`].

use crate::frame::{FrameView, PixelFormat};

/// Where a pixel's three components stand in its word, as shifts in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    /// Y, red or grey, of an even column.
    pub(super) first: u32,
    /// Cb or green.
    pub(super) second: u32,
    /// Cr or blue.
    pub(super) third: u32,
}

/// The words that [`fetch`] makes of a format. (A mosaic has none.)
pub(super) fn words(format: PixelFormat) -> Words {
    let (first, second, third) = match format {
        // A word holds two pixels; an odd column's Y is 16 bits further up.
        PixelFormat::Yuyv => (0, 8, 24),
        PixelFormat::Uyvy => (8, 0, 16),
        PixelFormat::Nv21 => (0, 16, 8),
        PixelFormat::Bgr | PixelFormat::Bgra => (16, 8, 0),
        _ => (0, 8, 16),
    };
    Words { first, second, third }
}

/// Reads row `y` of a frame at `columns` into `out`; as many as the shorter of the two has.
///
/// About one nanosecond for three words, more when the row is not in the cache: the columns are in rising order, so the
/// processor's prefetcher follows. Mosaics are left to [`super::bayer`].
pub(super) fn fetch(frame: &FrameView<'_>, y: usize, columns: &[u32], out: &mut [u32]) {
    let planes = frame.planes();
    let row = |plane: usize, y: usize| {
        let row = planes[plane].row(y);
        &row[..frame.format().row_bytes(plane, frame.width())]
    };
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy => {
            let (pairs, _) = row(0, y).as_chunks::<4>();
            each(columns, out, |x| u32::from_le_bytes(pairs[x / 2]));
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 => {
            let luma = row(0, y);
            let (chroma, _) = row(1, y / 2).as_chunks::<2>();
            each(columns, out, |x| u32::from(luma[x]) | u32::from(u16::from_le_bytes(chroma[x / 2])) << 8);
        }
        PixelFormat::I420 => {
            let (luma, cb, cr) = (row(0, y), row(1, y / 2), row(2, y / 2));
            each(columns, out, |x| u32::from_le_bytes([luma[x], cb[x / 2], cr[x / 2], 0]));
        }
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let (pixels, _) = row(0, y).as_chunks::<3>();
            each(columns, out, |x| {
                let [a, b, c] = pixels[x];
                u32::from_le_bytes([a, b, c, 0])
            });
        }
        PixelFormat::Rgba | PixelFormat::Bgra => {
            let (pixels, _) = row(0, y).as_chunks::<4>();
            each(columns, out, |x| u32::from_le_bytes(pixels[x]));
        }
        PixelFormat::Grey => {
            let luma = row(0, y);
            each(columns, out, |x| u32::from(luma[x]));
        }
        PixelFormat::Bayer(..) => {}
    }
}

#[inline(always)]
fn each(columns: &[u32], out: &mut [u32], word: impl Fn(usize) -> u32) {
    for (out, &x) in out.iter_mut().zip(columns) {
        *out = word(x as usize);
    }
}
