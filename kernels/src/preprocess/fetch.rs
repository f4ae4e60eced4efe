//! Reads a frame's row at the needed columns: one 32-bit word per pixel, or two words per pair of neighbours.
//!
//! Only loads and stores raw bytes and computes nothing: scattered loads do not vectorise, and everything after them does. This
//! file defines the layout of the words, and [`super::convert`] reads them. Grey of more than 8 bits is the exception: each sample
//! becomes a byte here, in less than 1 ns, and the frame is like `grey` from then on.

use std::ops::Range;

use crate::color::LevelMap;
use crate::frame::{BayerDepth, FrameView, PixelFormat};

/// The positions of a pixel's three components in the word that [`fetch`] makes, as shifts in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WordLayout {
    /// Y, red or grey. For packed 4:2:2, whose words hold two pixels, that of an even column; an odd column's is 16 bits
    /// higher.
    pub(super) first: u32,
    /// Cb or green.
    pub(super) second: u32,
    /// Cr or blue.
    pub(super) third: u32,
}

/// Returns the layout of the words for a format. (A mosaic's word is its sample.)
pub(super) fn words(format: PixelFormat) -> WordLayout {
    let (first, second, third) = match format {
        PixelFormat::Yuyv => (0, 8, 24),
        PixelFormat::Uyvy => (8, 0, 16),
        PixelFormat::Yvyu => (0, 24, 8),
        PixelFormat::Vyuy => (8, 16, 0),
        PixelFormat::Nv21 | PixelFormat::Nv61 => (0, 16, 8),
        PixelFormat::Bgr | PixelFormat::Bgra => (16, 8, 0),
        _ => (0, 8, 16),
    };
    WordLayout { first, second, third }
}

/// Reads row `y` of a frame at `columns` into `out`; as many as the shorter of the two has.
///
/// About 0.6 ns per column; they are in rising or falling order, so the processor's prefetcher follows. A mosaic's word is its sample.
pub(super) fn fetch(frame: &FrameView<'_>, y: usize, columns: &[u32], out: &mut [u32]) {
    let rows_each = frame.format().rows_per_chroma_row();
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => {
            let (pairs, _) = row(frame, 0, y).as_chunks::<4>();
            each(columns, out, |x| u32::from_le_bytes(pairs[x / 2]));
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 => {
            let luma = row(frame, 0, y);
            let (chroma, _) = row(frame, 1, y / rows_each).as_chunks::<2>();
            each(columns, out, |x| u32::from(luma[x]) | u32::from(u16::from_le_bytes(chroma[x / 2])) << 8);
        }
        PixelFormat::P010 => {
            let (luma, chroma) = (row(frame, 0, y), row(frame, 1, y / rows_each).as_chunks::<4>().0);
            each(columns, out, |x| u32::from_le_bytes([luma[2 * x + 1], chroma[x / 2][1], chroma[x / 2][3], 0]));
        }
        PixelFormat::I420 => {
            let (luma, cb, cr) = (row(frame, 0, y), row(frame, 1, y / rows_each), row(frame, 2, y / rows_each));
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
        PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
            let (samples, map) = (row(frame, 0, y).as_chunks::<2>().0, frame.level_map());
            each(columns, out, |x| level(map, samples[x]));
        }
        PixelFormat::Bayer(_, BayerDepth::Bits8) => {
            let samples = row(frame, 0, y);
            each(columns, out, |x| u32::from(samples[x]));
        }
        PixelFormat::Bayer(..) => {
            let (samples, _) = row(frame, 0, y).as_chunks::<2>();
            each(columns, out, |x| u32::from(u16::from_le_bytes(samples[x])));
        }
    }
}

/// Reads row `y` of a frame from column `from` on, which is even, into `out`: the same words.
pub(super) fn fetch_row(frame: &FrameView<'_>, y: usize, from: usize, out: &mut [u32]) {
    let rows_each = frame.format().rows_per_chroma_row();
    let chroma_from = from / 2;
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => {
            let (pairs, _) = row(frame, 0, y).as_chunks::<4>();
            each_two(out, &pairs[chroma_from..], |&pair, _| u32::from_le_bytes(pair));
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 => {
            let luma = &row(frame, 0, y)[from..];
            let (chroma, _) = row(frame, 1, y / rows_each).as_chunks::<2>();
            each_two(out, &chroma[chroma_from..], |&chroma, x| {
                u32::from(luma[x]) | u32::from(u16::from_le_bytes(chroma)) << 8
            });
        }
        PixelFormat::P010 => {
            let (luma, chroma) = (row(frame, 0, y).as_chunks::<2>().0, row(frame, 1, y / rows_each).as_chunks::<4>().0);
            each_two(out, &chroma[chroma_from..], |&[_, cb, _, cr], x| {
                u32::from_le_bytes([luma[from + x][1], cb, cr, 0])
            });
        }
        PixelFormat::I420 => {
            let luma = &row(frame, 0, y)[from..];
            let cb = &row(frame, 1, y / rows_each)[chroma_from..];
            let cr = &row(frame, 2, y / rows_each)[chroma_from..];
            for (x, out) in out.iter_mut().enumerate() {
                *out = u32::from_le_bytes([luma[x], cb[x / 2], cr[x / 2], 0]);
            }
        }
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let row = &row(frame, 0, y)[3 * from..];
            // One load takes four bytes, which the last pixel does not have.
            for (out, pixel) in out.iter_mut().zip(row.windows(4).step_by(3)) {
                *out = u32::from_le_bytes([pixel[0], pixel[1], pixel[2], pixel[3]]) & 0xff_ffff;
            }
            if let (Some(last), Some(&[a, b, c])) = (out.get_mut(row.len() / 3 - 1), row.last_chunk()) {
                *last = u32::from_le_bytes([a, b, c, 0]);
            }
        }
        PixelFormat::Rgba | PixelFormat::Bgra => {
            let (pixels, _) = row(frame, 0, y).as_chunks::<4>();
            for (out, &pixel) in out.iter_mut().zip(&pixels[from..]) {
                *out = u32::from_le_bytes(pixel);
            }
        }
        PixelFormat::Grey => {
            for (out, &luma) in out.iter_mut().zip(&row(frame, 0, y)[from..]) {
                *out = u32::from(luma);
            }
        }
        PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
            let (samples, map) = (row(frame, 0, y).as_chunks::<2>().0, frame.level_map());
            for (out, &sample) in out.iter_mut().zip(&samples[from..]) {
                *out = level(map, sample);
            }
        }
        PixelFormat::Bayer(_, BayerDepth::Bits8) => {
            for (out, &sample) in out.iter_mut().zip(&row(frame, 0, y)[from..]) {
                *out = u32::from(sample);
            }
        }
        PixelFormat::Bayer(..) => {
            for (out, &sample) in out.iter_mut().zip(&row(frame, 0, y).as_chunks::<2>().0[from..]) {
                *out = u32::from(u16::from_le_bytes(sample));
            }
        }
    }
}

/// Columns this close to the right edge need care, because [`fetch_pairs`] reads 8 bytes from a column on.
const EDGE: usize = 4;

/// Reads row `y` of a frame at `columns` and their right neighbours: two words per pair.
///
/// - Packed 4:2:2: the column's four bytes, and the next four.
/// - NV12, NV21, NV16, NV61, P010: two bytes of luma; two chroma pairs, from the column's on.
/// - I420: two bytes of luma and, above them, two of Cb; two of Cr.
/// - Others: the column's word, its neighbour's word.
///
/// Bytes beyond the right edge are 0 and must have no weight. Columns rise, or fall if `falling` says so. One load per plane: about
/// 0.7 ns per pair.
pub(super) fn fetch_pairs(frame: &FrameView<'_>, y: usize, columns: &[u32], falling: bool, out: [&mut [u32]; 2]) {
    let is_inner = |&x: &u32| x as usize + EDGE <= frame.width() as usize;
    let inner = if falling {
        columns.partition_point(|x| !is_inner(x))..columns.len()
    } else {
        0..columns.partition_point(is_inner)
    };
    let rows_each = frame.format().rows_per_chroma_row();
    match frame.format() {
        PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => {
            let row = row(frame, 0, y);
            each_pair(columns, &inner, out, |x, inner| halves(read(row, x / 2 * 4, inner)));
        }
        PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 => {
            let (luma, chroma) = (row(frame, 0, y), row(frame, 1, y / rows_each));
            each_pair(columns, &inner, out, |x, inner| {
                [short(luma, x, inner), u32::from_le_bytes(read(chroma, x / 2 * 2, inner))]
            });
        }
        PixelFormat::P010 => {
            let (luma, chroma) = (row(frame, 0, y), row(frame, 1, y / rows_each));
            each_pair(columns, &inner, out, |x, inner| {
                let [_, first, _, second] = read(luma, 2 * x, inner);
                let [_, cb, _, cr, _, next_cb, _, next_cr] = read(chroma, x / 2 * 4, inner);
                [u32::from_le_bytes([first, second, 0, 0]), u32::from_le_bytes([cb, cr, next_cb, next_cr])]
            });
        }
        PixelFormat::I420 => {
            let (luma, cb, cr) = (row(frame, 0, y), row(frame, 1, y / rows_each), row(frame, 2, y / rows_each));
            each_pair(columns, &inner, out, |x, inner| {
                [short(luma, x, inner) | short(cb, x / 2, inner) << 16, short(cr, x / 2, inner)]
            });
        }
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let row = row(frame, 0, y);
            each_pair(columns, &inner, out, |x, inner| {
                let two = u64::from_le_bytes(read(row, x * 3, inner));
                [two as u32, (two >> 24) as u32]
            });
        }
        PixelFormat::Rgba | PixelFormat::Bgra => {
            let row = row(frame, 0, y);
            each_pair(columns, &inner, out, |x, inner| halves(read(row, x * 4, inner)));
        }
        PixelFormat::Grey => {
            let row = row(frame, 0, y);
            each_pair(columns, &inner, out, |x, inner| read::<2>(row, x, inner).map(u32::from));
        }
        PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
            let (row, map) = (row(frame, 0, y), frame.level_map());
            each_pair(columns, &inner, out, |x, inner| {
                let [low, high, next_low, next_high] = read(row, 2 * x, inner);
                [level(map, [low, high]), level(map, [next_low, next_high])]
            });
        }
        PixelFormat::Bayer(..) => {}
    }
}

/// Returns a row of a plane without its padding.
fn row<'a>(frame: &FrameView<'a>, plane: usize, y: usize) -> &'a [u8] {
    &frame.planes()[plane].row(y)[..frame.format().row_bytes(plane, frame.width())]
}

/// Returns `N` bytes of a row from `at` on, with zeros beyond the edge.
#[inline(always)]
fn read<const N: usize>(row: &[u8], at: usize, inner: bool) -> [u8; N] {
    let mut bytes = [0; N];
    if inner {
        bytes.copy_from_slice(&row[at..at + N]);
    } else {
        for (byte, &from) in bytes.iter_mut().zip(&row[at..]) {
            *byte = from;
        }
    }
    bytes
}

/// Returns the byte of a grey sample of more than 8 bits.
#[inline(always)]
fn level(map: LevelMap, sample: [u8; 2]) -> u32 {
    u32::from(map.byte(u16::from_le_bytes(sample)))
}

#[inline(always)]
fn short(row: &[u8], at: usize, inner: bool) -> u32 {
    u32::from(u16::from_le_bytes(read(row, at, inner)))
}

#[inline(always)]
fn halves(bytes: [u8; 8]) -> [u32; 2] {
    let two = u64::from_le_bytes(bytes);
    [two as u32, (two >> 32) as u32]
}

#[inline(always)]
fn each(columns: &[u32], out: &mut [u32], word: impl Fn(usize) -> u32) {
    for (out, &x) in out.iter_mut().zip(columns) {
        *out = word(x as usize);
    }
}

/// Two pixels for each of `pairs`; the last one may have one.
#[inline(always)]
fn each_two<T>(out: &mut [u32], pairs: &[T], word: impl Fn(&T, usize) -> u32) {
    let (whole, last) = out.as_chunks_mut::<2>();
    for (i, (out, pair)) in whole.iter_mut().zip(pairs).enumerate() {
        *out = [word(pair, 2 * i), word(pair, 2 * i + 1)];
    }
    if let ([last], Some(pair)) = (last, pairs.get(whole.len())) {
        *last = word(pair, 2 * whole.len());
    }
}

/// The `inner` columns are far enough from the edge to be read without care.
#[inline(always)]
fn each_pair(columns: &[u32], inner: &Range<usize>, out: [&mut [u32]; 2], words: impl Fn(usize, bool) -> [u32; 2]) {
    let [first, second] = out;
    for (range, is_inner) in [(0..inner.start, false), (inner.clone(), true), (inner.end..columns.len(), false)] {
        let out = first[range.clone()].iter_mut().zip(&mut second[range.clone()]);
        for (&x, (first, second)) in columns[range].iter().zip(out) {
            [*first, *second] = words(x as usize, is_inner);
        }
    }
}
