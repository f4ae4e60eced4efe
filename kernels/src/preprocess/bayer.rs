//! Raw sensor mosaics: one row demosaiced bilinearly, then resampled.
//!
//! Each missing colour is the mean of its two or four nearest samples. Beyond the edges the frame is mirrored without its
//! outermost pixel (OpenCV's `BORDER_REFLECT_101`), which keeps the mosaic's phase. A frame one pixel wide or high has no
//! neighbour there and repeats its only one.

use super::convert::LUMA;
use super::plan::{Axis, LANES};
use super::simd::{Isa, Kernel};
use crate::frame::{BayerDepth, BayerOrder, FrameView};

/// The row buffers of a demosaic.
#[derive(Default)]
pub(super) struct Mosaic {
    /// The rows above, at and below, as 0 to 255, with one mirrored pixel on the left and at least one on the right.
    samples: [Vec<f32>; 3],
    /// Red, green and blue of the whole row.
    colors: [Vec<f32>; 3],
}

impl Mosaic {
    /// Makes room for frames of this width.
    pub(super) fn reserve(&mut self, width: u32) {
        let padded = (width as usize).next_multiple_of(LANES);
        for samples in &mut self.samples {
            samples.resize(samples.len().max(padded + 2), 0.0);
        }
        for color in &mut self.colors {
            color.resize(color.len().max(padded), 0.0);
        }
    }

    /// Row `y` of a mosaic, resampled into as many planes as there are (one of luma, or red, green and blue).
    ///
    /// Reads three rows of the frame; the work is about 4 ns for every 16 pixels of the frame's width.
    pub(super) fn resample(
        &mut self,
        isa: Isa,
        frame: &FrameView<'_>,
        pattern: (BayerOrder, BayerDepth),
        y: usize,
        columns: &Axis,
        planes: &mut [Vec<f32>],
    ) {
        let (order, depth) = pattern;
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        let plane = &frame.planes()[0];
        let row_bytes = frame.format().row_bytes(0, frame.width());
        for (samples, y) in self.samples.iter_mut().zip([mirrored(y, -1, height), y, mirrored(y, 1, height)]) {
            let row = &plane.row(y)[..row_bytes];
            decode(isa, row, depth, &mut samples[1..]);
            samples[0] = samples[1 + mirrored(0, -1, width)];
            samples[1 + width] = samples[1 + mirrored(width - 1, 1, width)];
        }

        let (red_x, red_y) = match order {
            BayerOrder::Rggb => (0, 0),
            BayerOrder::Grbg => (1, 0),
            BayerOrder::Gbrg => (0, 1),
            BayerOrder::Bggr => (1, 1),
        };
        let padded = width.next_multiple_of(LANES);
        let red_row = y % 2 == red_y;
        let [red, green, blue] = self.colors.each_mut().map(|color| &mut color[..padded]);
        let (own, other) = if red_row { (red, blue) } else { (blue, red) };
        let [above, at, below] = self.samples.each_ref().map(|samples| &samples[..padded + 2]);
        let own_x = if red_row { red_x } else { 1 - red_x };
        isa.run(Demosaic { above, at, below, own_x, own, green, other });

        let (low, high, weight) = (&columns.low[..], &columns.high[..], &columns.weight[..]);
        match planes {
            [luma] => {
                let [red, green, blue] = self.colors.each_mut().map(|color| &mut color[..padded]);
                isa.run(ToLuma { red, green, blue });
                isa.run(Mix { low, high, weight, row: red, out: luma });
            }
            _ => {
                for (row, out) in self.colors.iter().zip(planes) {
                    isa.run(Mix { low, high, weight, row: &row[..padded], out });
                }
            }
        }
    }
}

/// `position + step`, mirrored at the edges of `0..count` without the edge itself.
fn mirrored(position: usize, step: isize, count: usize) -> usize {
    match position.checked_add_signed(step) {
        Some(moved) if moved < count => moved,
        // Off either end: the neighbour on the other side, or the only pixel.
        _ => position.checked_add_signed(-step).filter(|&moved| moved < count).unwrap_or(position),
    }
}

/// Samples as 0 to 255.
fn decode(isa: Isa, row: &[u8], depth: BayerDepth, out: &mut [f32]) {
    let scale = (255.0 / f64::from((1_u32 << depth.bits()) - 1)) as f32;
    match depth {
        BayerDepth::Bits8 => isa.run(Bytes { row, out }),
        _ => isa.run(Shorts { row: row.as_chunks::<2>().0, scale, out }),
    }
}

struct Bytes<'a> {
    row: &'a [u8],
    out: &'a mut [f32],
}

impl Kernel for Bytes<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (out, &sample) in self.out.iter_mut().zip(self.row) {
            *out = f32::from(sample);
        }
    }
}

struct Shorts<'a> {
    row: &'a [[u8; 2]],
    scale: f32,
    out: &'a mut [f32],
}

impl Kernel for Shorts<'_> {
    /// Samples beyond their depth's range count as white.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (out, &sample) in self.out.iter_mut().zip(self.row) {
            *out = (f32::from(u16::from_le_bytes(sample)) * self.scale).min(255.0);
        }
    }
}

/// All colours of one row. The row's own colour (red or blue) stands in the columns of parity `own_x`, green in the others.
struct Demosaic<'a> {
    above: &'a [f32],
    at: &'a [f32],
    below: &'a [f32],
    own_x: usize,
    own: &'a mut [f32],
    green: &'a mut [f32],
    other: &'a mut [f32],
}

impl Kernel for Demosaic<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let own_lanes: [bool; LANES] = std::array::from_fn(|lane| lane % 2 == self.own_x);
        let (own, _) = self.own.as_chunks_mut::<LANES>();
        let (green, _) = self.green.as_chunks_mut::<LANES>();
        let (other, _) = self.other.as_chunks_mut::<LANES>();
        for (i, ((own, green), other)) in own.iter_mut().zip(green).zip(other).enumerate() {
            let window = i * LANES..(i + 1) * LANES + 2;
            let (above, at, below) = (&self.above[window.clone()], &self.at[window.clone()], &self.below[window]);
            let mut block = [[0.0; LANES]; 3];
            for lane in 0..LANES {
                let centre = at[lane + 1];
                let beside = 0.5 * (at[lane] + at[lane + 2]);
                let over = 0.5 * (above[lane + 1] + below[lane + 1]);
                let corners = 0.25 * ((above[lane] + above[lane + 2]) + (below[lane] + below[lane + 2]));
                let own_site = own_lanes[lane];
                block[0][lane] = if own_site { centre } else { beside };
                block[1][lane] = if own_site { 0.5 * (beside + over) } else { centre };
                block[2][lane] = if own_site { corners } else { over };
            }
            [*own, *green, *other] = block;
        }
    }
}

/// Luma, in red's place.
struct ToLuma<'a> {
    red: &'a mut [f32],
    green: &'a mut [f32],
    blue: &'a mut [f32],
}

impl Kernel for ToLuma<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((red, green), blue) in self.red.iter_mut().zip(self.green).zip(self.blue) {
            *red = LUMA[0] * *red + LUMA[1] * *green + LUMA[2] * *blue;
        }
    }
}

/// A row at the columns that are needed.
struct Mix<'a> {
    low: &'a [u32],
    high: &'a [u32],
    weight: &'a [f32],
    row: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Mix<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { low, high, weight, row, out } = self;
        for (((out, &low), &high), &weight) in out.iter_mut().zip(low).zip(high).zip(weight) {
            let (low, high) = (row[low as usize], row[high as usize]);
            *out = low + weight * (high - low);
        }
    }
}
