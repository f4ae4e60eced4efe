//! Draws the test pattern for a given sequence number.
//!
//! The bars do not move, because moving them would touch every row of the frame, whose cache lines the CPU would have to fetch.
//! Every row of them is a slice of one prepared row. Positions are even, so that a 2x2 group has one colour and every format
//! draws the same frame.

use std::ops::Range;

use visiond_kernels::color::{ColorDescription, ColorMatrix};
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameError, FrameLayout, PixelFormat};

/// The number of cells for the frame's number: one per bit, the lowest first.
pub const COUNTER_BITS: usize = 32;

/// Colour bars at 75 % as in SMPTE EG 1, and black.
const BARS: [[u8; 3]; 8] =
    [[191, 191, 191], [191, 191, 0], [0, 191, 191], [0, 191, 0], [191, 0, 191], [191, 0, 0], [0, 0, 191], [0, 0, 0]];

const BOX: [u8; 3] = [255, 128, 0];
const WHITE: [u8; 3] = [255, 255, 255];
const BLACK: [u8; 3] = [0, 0, 0];

pub struct Painter {
    layout: FrameLayout,
    /// Columns of 2x2 groups.
    pairs: usize,
    /// By plane.
    bars: Vec<Bars>,
}

/// The bars in one plane.
struct Bars {
    /// Bytes of a group in a row.
    pair_bytes: usize,
    /// Indexed by the row's parity.
    rows: [Vec<u8>; 2],
}

/// A rectangle in groups of 2x2 pixels.
#[derive(Clone, Copy)]
struct Cells {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Painter {
    pub fn new(format: PixelFormat, width: u32, height: u32) -> Result<Self, FrameError> {
        let layout = FrameLayout::packed(format, width, height, ColorDescription::default())?;
        let pairs = width.div_ceil(2) as usize;
        let row = |plane, parity| -> Vec<u8> {
            let pairs = (0..pairs).map(|pair| Pair::of(format, plane, parity, BARS[pair * BARS.len() / pairs]));
            pairs.flat_map(|pair| pair.bytes.into_iter().take(pair.len)).collect()
        };
        let bars = (0..format.plane_count()).map(|plane| Bars {
            pair_bytes: Pair::of(format, plane, 0, BLACK).len,
            rows: [row(plane, 0), row(plane, 1)],
        });
        Ok(Self { layout, pairs, bars: bars.collect() })
    }

    pub fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    pub fn draw(&self, sequence: u64, out: &mut [u8]) {
        self.draw_bars(Cells { x: 0, y: 0, width: self.pairs, height: self.groups() }, out);
        self.draw_box_and_number(sequence, out);
    }

    /// Draws frame `sequence` over frame `before`, which `out` holds: moves the box and changes the number.
    pub fn redraw(&self, before: u64, sequence: u64, out: &mut [u8]) {
        self.draw_bars(self.moving_box(before), out);
        self.draw_box_and_number(sequence, out);
    }

    fn groups(&self) -> usize {
        self.layout.height().div_ceil(2) as usize
    }

    fn moving_box(&self, sequence: u64) -> Cells {
        let side = (self.pairs.min(self.groups()) / 6).max(1);
        let swing = |span: usize, speed: u64| -> usize {
            let span = (span - side.min(span)).max(1) as u64;
            let phase = sequence * speed % (2 * span);
            phase.min(2 * span - phase) as usize
        };
        Cells { x: swing(self.pairs, 2), y: swing(self.groups(), 1), width: side, height: side }
    }

    fn draw_box_and_number(&self, sequence: u64, out: &mut [u8]) {
        self.fill(self.moving_box(sequence), BOX, out);
        let cell = (self.pairs / 64).max(1);
        for bit in 0..COUNTER_BITS {
            let color = if sequence >> bit & 1 == 1 { WHITE } else { BLACK };
            self.fill(Cells { x: bit * cell, y: 0, width: cell, height: cell }, color, out);
        }
    }

    fn draw_bars(&self, cells: Cells, out: &mut [u8]) {
        for (plane, row, parity) in self.rows(cells.y..cells.y + cells.height) {
            let bars = &self.bars[plane];
            let [start, end] = [cells.x, cells.x + cells.width].map(|x| (x * bars.pair_bytes).min(row.len()));
            out[row.start + start..row.start + end].copy_from_slice(&bars.rows[parity][start..end]);
        }
    }

    /// Fills the part of a rectangle that lies in the frame.
    fn fill(&self, cells: Cells, color: [u8; 3], out: &mut [u8]) {
        let format = self.layout.format();
        // For each parity, the row that the others are copied from.
        let mut first: [Option<Range<usize>>; 2] = [None, None];
        let mut plane_before = 0;
        for (plane, row, parity) in self.rows(cells.y..cells.y + cells.height) {
            if std::mem::replace(&mut plane_before, plane) != plane {
                first = [None, None];
            }
            let pair_bytes = self.bars[plane].pair_bytes;
            let [start, end] = [cells.x, cells.x + cells.width].map(|x| (x * pair_bytes).min(row.len()));
            let piece = row.start + start..row.start + end;
            if let Some(drawn) = first[parity].clone() {
                out.copy_within(drawn, piece.start);
                continue;
            }
            let pair = Pair::of(format, plane, parity, color);
            for chunk in out[piece.clone()].chunks_mut(pair.len) {
                chunk.copy_from_slice(&pair.bytes[..chunk.len()]);
            }
            first[parity] = Some(piece);
        }
    }

    /// Returns the rows of every plane within these rows of groups: plane, bytes, parity.
    fn rows(&self, groups: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>, usize)> + use<'_> {
        let (format, width, height) = (self.layout.format(), self.layout.width(), self.layout.height());
        self.layout.planes().iter().enumerate().flat_map(move |(plane, place)| {
            let row_bytes = format.row_bytes(plane, width);
            // Rows of the plane in one group.
            let group = if plane > 0 { 2 / format.rows_per_chroma_row() } else { 2 };
            let end = (groups.end * group).min(format.plane_rows(plane, height));
            (groups.start * group..end).map(move |y| {
                let at = place.offset_bytes + y * place.pitch_bytes;
                (plane, at..at + row_bytes, y % 2)
            })
        })
    }
}

/// The bytes of two neighbouring pixels of one colour in one plane.
struct Pair {
    bytes: [u8; 8],
    len: usize,
}

impl Pair {
    fn of(format: PixelFormat, plane: usize, row_parity: usize, rgb: [u8; 3]) -> Self {
        let [r, g, b] = rgb;
        let [y, cb, cr] = to_yuv(rgb);
        match (format, plane) {
            (PixelFormat::Yuyv, _) => Self::new(&[y, cb, y, cr]),
            (PixelFormat::Uyvy, _) => Self::new(&[cb, y, cr, y]),
            (PixelFormat::Yvyu, _) => Self::new(&[y, cr, y, cb]),
            (PixelFormat::Vyuy, _) => Self::new(&[cr, y, cb, y]),
            (PixelFormat::Nv12 | PixelFormat::Nv16, 1) => Self::new(&[cb, cr]),
            (PixelFormat::Nv21 | PixelFormat::Nv61, 1) => Self::new(&[cr, cb]),
            (PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61, _) => Self::new(&[y, y]),
            // Each sample in both of its bytes.
            (PixelFormat::P010, 0) => Self::new(&[y, y, y, y]),
            (PixelFormat::P010, _) => Self::new(&[cb, cb, cr, cr]),
            (PixelFormat::I420 | PixelFormat::Grey, 0) => Self::new(&[y, y]),
            (PixelFormat::I420, 1) => Self::new(&[cb]),
            (PixelFormat::I420 | PixelFormat::Grey, _) => Self::new(&[cr]),
            (PixelFormat::Grey10, _) => Self::samples([y, y], BayerDepth::Bits10),
            (PixelFormat::Grey12, _) => Self::samples([y, y], BayerDepth::Bits12),
            (PixelFormat::Grey16, _) => Self::samples([y, y], BayerDepth::Bits16),
            (PixelFormat::Rgb, _) => Self::new(&[r, g, b, r, g, b]),
            (PixelFormat::Bgr, _) => Self::new(&[b, g, r, b, g, r]),
            (PixelFormat::Rgba, _) => Self::new(&[r, g, b, 255, r, g, b, 255]),
            (PixelFormat::Bgra, _) => Self::new(&[b, g, r, 255, b, g, r, 255]),
            (PixelFormat::Bayer(order, depth), _) => {
                let samples = match (order, row_parity) {
                    (BayerOrder::Rggb, 0) | (BayerOrder::Gbrg, 1) => [r, g],
                    (BayerOrder::Rggb, _) | (BayerOrder::Gbrg, _) => [g, b],
                    (BayerOrder::Grbg, 0) | (BayerOrder::Bggr, 1) => [g, r],
                    (BayerOrder::Grbg, _) | (BayerOrder::Bggr, _) => [b, g],
                };
                Self::samples(samples, depth)
            }
        }
    }

    fn samples(samples: [u8; 2], depth: BayerDepth) -> Self {
        if depth == BayerDepth::Bits8 {
            return Self::new(&samples);
        }
        // 255 becomes the largest value of the depth.
        let [a, b] = samples.map(|v| ((u32::from(v) * ((1 << depth.bits()) - 1) + 127) / 255) as u16);
        let ([a0, a1], [b0, b1]) = (a.to_le_bytes(), b.to_le_bytes());
        Self::new(&[a0, a1, b0, b1])
    }

    fn new(of: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes[..of.len()].copy_from_slice(of);
        Self { bytes, len: of.len() }
    }
}

/// Converts to BT.601 limited range, the default of `ColorDescription`.
fn to_yuv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (kr, kb) = ColorMatrix::Bt601.luma_weights();
    let [r, g, b] = [r, g, b].map(|v| f64::from(v) / 255.0);
    let y = kr * r + (1.0 - kr - kb) * g + kb * b;
    let cb = (b - y) / (2.0 * (1.0 - kb));
    let cr = (r - y) / (2.0 * (1.0 - kr));
    [16.0 + 219.0 * y, 128.0 + 224.0 * cb, 128.0 + 224.0 * cr].map(|v| v.round() as u8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn drawn_over_any_other_picture_it_equals_a_full_drawing() {
        // Neighbouring numbers, distant ones, a step backwards, and the point where the box turns.
        let numbers =
            [0, 1, 2, 5, 4, 63, 64, 319, 320, 321, 330, 7, 8, 1_000_000, 1_000_003, 31, 33, 959, 960, 962, 958];
        for format in PixelFormat::all() {
            for (width, height) in [(1, 1), (2, 3), (65, 33), (127, 40), (640, 480)] {
                let painter = Painter::new(format, width, height).unwrap();
                let mut over = vec![0xa5; painter.layout().size_bytes()];
                let mut full = over.clone();
                painter.draw(numbers[0], &mut over);
                for pair in numbers.windows(2) {
                    painter.redraw(pair[0], pair[1], &mut over);
                    painter.draw(pair[1], &mut full);
                    assert!(over == full, "{format} {width}x{height}: {} over {}", pair[1], pair[0]);
                }
            }
        }
    }

    #[test]
    fn colours_are_those_of_bt_601() {
        // The bars of ITU-R BT.601 in 8 bits, full amplitude.
        for (rgb, yuv) in [
            ([255, 255, 255], [235, 128, 128]),
            ([255, 255, 0], [210, 16, 146]),
            ([0, 255, 255], [170, 166, 16]),
            ([0, 255, 0], [145, 54, 34]),
            ([255, 0, 255], [106, 202, 222]),
            ([255, 0, 0], [81, 90, 240]),
            ([0, 0, 255], [41, 240, 110]),
            ([0, 0, 0], [16, 128, 128]),
        ] {
            assert_eq!(to_yuv(rgb), yuv, "{rgb:?}");
        }
    }

    #[test]
    fn grey_of_more_bits_has_the_luma_of_grey_in_its_own_scale() {
        let words = |format| {
            let pair = Pair::of(format, 0, 0, WHITE);
            pair.bytes[..pair.len].as_chunks::<2>().0.iter().map(|&word| u16::from_le_bytes(word)).collect::<Vec<_>>()
        };
        // 235 of 255.
        assert_eq!(
            [PixelFormat::Grey10, PixelFormat::Grey12, PixelFormat::Grey16].map(words),
            [[943; 2], [3774; 2], [60_395; 2]]
        );
    }

    #[test]
    fn a_mosaic_has_its_colours_in_its_order() {
        let bytes = |order, parity| -> Vec<u8> {
            let pair = Pair::of(PixelFormat::Bayer(order, BayerDepth::Bits8), 0, parity, [1, 2, 3]);
            pair.bytes[..pair.len].to_vec()
        };
        assert_eq!((bytes(BayerOrder::Rggb, 0), bytes(BayerOrder::Rggb, 1)), (vec![1, 2], vec![2, 3]));
        assert_eq!((bytes(BayerOrder::Grbg, 0), bytes(BayerOrder::Grbg, 1)), (vec![2, 1], vec![3, 2]));
        assert_eq!((bytes(BayerOrder::Gbrg, 0), bytes(BayerOrder::Gbrg, 1)), (vec![2, 3], vec![1, 2]));
        assert_eq!((bytes(BayerOrder::Bggr, 0), bytes(BayerOrder::Bggr, 1)), (vec![3, 2], vec![2, 1]));
    }
}
