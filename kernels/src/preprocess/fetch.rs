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
/// The columns are in rising order, so the processor's prefetcher follows. Mosaics are left to [`super::bayer`].
pub(super) fn fetch(frame: &FrameView<'_>, y: usize, columns: &[u32], out: &mut [u32]) {
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy => {
            let (pairs, _) = row(frame, 0, y).as_chunks::<4>();
            each(columns, out, |x| u32::from_le_bytes(pairs[x / 2]));
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 => {
            let luma = row(frame, 0, y);
            let (chroma, _) = row(frame, 1, y / 2).as_chunks::<2>();
            each(columns, out, |x| u32::from(luma[x]) | u32::from(u16::from_le_bytes(chroma[x / 2])) << 8);
        }
        PixelFormat::I420 => {
            let (luma, cb, cr) = (row(frame, 0, y), row(frame, 1, y / 2), row(frame, 2, y / 2));
            each(columns, out, |x| u32::from_le_bytes([luma[x], cb[x / 2], cr[x / 2], 0]));
        }
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let (pixels, _) = row(frame, 0, y).as_chunks::<3>();
            each(columns, out, |x| {
                let [a, b, c] = pixels[x];
                u32::from_le_bytes([a, b, c, 0])
            });
        }
        PixelFormat::Rgba | PixelFormat::Bgra => {
            let (pixels, _) = row(frame, 0, y).as_chunks::<4>();
            each(columns, out, |x| u32::from_le_bytes(pixels[x]));
        }
        PixelFormat::Grey => {
            let luma = row(frame, 0, y);
            each(columns, out, |x| u32::from(luma[x]));
        }
        PixelFormat::Bayer(..) => {}
    }
}

/// Columns this close to the right edge are read one by one, because [`fetch_pairs`] reads 8 bytes from a column on.
const EDGE: usize = 4;

/// Reads row `y` of a frame at `columns` and at each one's right neighbour (the column itself at the right edge).
///
/// One load of each plane brings both pixels: about half the time of two [`fetch`]es.
pub(super) fn fetch_pairs(frame: &FrameView<'_>, y: usize, columns: &[u32], low: &mut [u32], high: &mut [u32]) {
    let width = frame.width() as usize;
    let inner = columns.partition_point(|&x| x as usize + EDGE <= width);
    let (columns, edge) = columns.split_at(inner);
    let (low, low_edge) = low.split_at_mut(inner);
    let (high, high_edge) = high.split_at_mut(inner);
    for ((&x, low), high) in edge.iter().zip(low_edge).zip(high_edge) {
        fetch(frame, y, &[x], std::slice::from_mut(low));
        fetch(frame, y, &[(x + 1).min(frame.width() - 1)], std::slice::from_mut(high));
    }
    // The chroma of the right neighbour is the next one where the column is odd.
    let odd = |x: usize| (x & 1) as u32;
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy => {
            let row = row(frame, 0, y);
            each_pair(columns, low, high, |x| {
                let two = u64::from_le_bytes(read(row, x / 2 * 4));
                [two as u32, (two >> (odd(x) * 32)) as u32]
            });
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 => {
            let (luma, chroma) = (row(frame, 0, y), row(frame, 1, y / 2));
            each_pair(columns, low, high, |x| {
                let luma = u32::from(u16::from_le_bytes(read(luma, x)));
                let two = u32::from_le_bytes(read(chroma, x / 2 * 2));
                [luma & 0xff | (two & 0xffff) << 8, luma >> 8 | (two >> (odd(x) * 16) & 0xffff) << 8]
            });
        }
        PixelFormat::I420 => {
            let (luma, cb, cr) = (row(frame, 0, y), row(frame, 1, y / 2), row(frame, 2, y / 2));
            let two = |row: &[u8], x: usize| u32::from(u16::from_le_bytes(read(row, x)));
            each_pair(columns, low, high, |x| {
                let (luma, cb, cr) = (two(luma, x), two(cb, x / 2), two(cr, x / 2));
                let shift = odd(x) * 8;
                [
                    luma & 0xff | (cb & 0xff) << 8 | (cr & 0xff) << 16,
                    luma >> 8 | (cb >> shift & 0xff) << 8 | (cr >> shift & 0xff) << 16,
                ]
            });
        }
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let row = row(frame, 0, y);
            each_pair(columns, low, high, |x| {
                let two = u64::from_le_bytes(read(row, x * 3));
                [two as u32, (two >> 24) as u32]
            });
        }
        PixelFormat::Rgba | PixelFormat::Bgra => {
            let row = row(frame, 0, y);
            each_pair(columns, low, high, |x| {
                let two = u64::from_le_bytes(read(row, x * 4));
                [two as u32, (two >> 32) as u32]
            });
        }
        PixelFormat::Grey => {
            let row = row(frame, 0, y);
            each_pair(columns, low, high, |x| {
                let [low, high] = read(row, x);
                [u32::from(low), u32::from(high)]
            });
        }
        PixelFormat::Bayer(..) => {}
    }
}

/// A row of a plane, without its padding.
fn row<'a>(frame: &FrameView<'a>, plane: usize, y: usize) -> &'a [u8] {
    &frame.planes()[plane].row(y)[..frame.format().row_bytes(plane, frame.width())]
}

#[inline(always)]
fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut read = [0; N];
    read.copy_from_slice(&bytes[at..at + N]);
    read
}

#[inline(always)]
fn each(columns: &[u32], out: &mut [u32], word: impl Fn(usize) -> u32) {
    for (out, &x) in out.iter_mut().zip(columns) {
        *out = word(x as usize);
    }
}

#[inline(always)]
fn each_pair(columns: &[u32], low: &mut [u32], high: &mut [u32], words: impl Fn(usize) -> [u32; 2]) {
    for ((low, high), &x) in low.iter_mut().zip(high).zip(columns) {
        [*low, *high] = words(x as usize);
    }
}
