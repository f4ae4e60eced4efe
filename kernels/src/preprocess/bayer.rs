//! Raw sensor mosaics: demosaics one row bilinearly, then resamples it.
//!
//! Each missing colour is the mean of its two or four nearest samples. Beyond the edges the frame is mirrored without its
//! outermost pixel (OpenCV's `BORDER_REFLECT_101`), which keeps the mosaic's phase. A frame that is one pixel wide or high has
//! no neighbour there and repeats its only one.

use super::number::Number;
use super::plan::{Axis, LANES};
use super::simd::{Isa, SliceLoop};
use super::transposed::{TransposedPlan, TransposedRows};
use crate::frame::{BayerDepth, BayerOrder, FrameView};

/// Where a mosaic's rows come from.
pub(super) enum MosaicRows<'a> {
    /// They are the frame's.
    Frame(&'a FrameView<'a>),
    /// They are columns of the frame. So a mosaic is turned, and then demosaiced.
    Transposed(&'a FrameView<'a>, &'a TransposedPlan, &'a mut TransposedRows),
}

impl<'a> MosaicRows<'a> {
    pub(super) fn new(
        frame: &'a FrameView<'a>,
        plan: Option<&'a TransposedPlan>,
        rows: &'a mut TransposedRows,
    ) -> Self {
        match plan {
            Some(plan) => Self::Transposed(frame, plan, rows),
            None => Self::Frame(frame),
        }
    }

    fn size(&self) -> (usize, usize) {
        let (width, height) = match self {
            Self::Frame(frame) => (frame.width(), frame.height()),
            Self::Transposed(frame, ..) => frame.view().picture_size(),
        };
        (width as usize, height as usize)
    }

    /// Returns the column and row of the first red sample.
    fn first_red(&self, order: BayerOrder) -> (usize, usize) {
        let (red_x, red_y) = order.first_red();
        let Self::Transposed(frame, ..) = self else { return (red_x, red_y) };
        let (width, height) = self.size();
        let mirrored = frame.view().orientation().mirrored;
        let along = |first: usize, side: usize, mirrored: bool| if mirrored { (side - 1 + first) % 2 } else { first };
        (along(red_y, width, mirrored[0]), along(red_x, height, mirrored[1]))
    }

    /// Converts the samples of row `y`, from the second of `out` on.
    fn decode<N: Number>(&mut self, isa: Isa, y: usize, depth: BayerDepth, out: &mut [N]) {
        match self {
            Self::Frame(frame) => {
                let row = &frame.planes()[0].row(y)[..frame.format().row_bytes(0, frame.width())];
                isa.run(Decode { row, depth, out: &mut out[1..] });
            }
            Self::Transposed(frame, plan, rows) => {
                let width = frame.view().picture_size().0 as usize;
                let row = &rows.row(isa, plan, frame, y as u32)[..width];
                isa.run(DecodeWords { row, depth, out: &mut out[1..] });
            }
        }
    }
}

/// The row buffers for demosaicing.
#[derive(Default)]
pub(super) struct Mosaic<N> {
    /// The rows above, at and below, as 0 to 255, with one mirrored pixel on the left and at least one on the right.
    samples: [Vec<N>; 3],
    /// Red, green and blue of the whole row.
    colors: [Vec<N>; 3],
}

impl<N: Number> Mosaic<N> {
    /// Makes room for frames of this width.
    pub(super) fn reserve(&mut self, width: u32) {
        let padded = (width as usize).next_multiple_of(LANES);
        for samples in &mut self.samples {
            samples.resize(samples.len().max(padded + 2), N::NONE);
        }
        for color in &mut self.colors {
            color.resize(color.len().max(padded), N::NONE);
        }
    }

    /// Resamples row `y` of a mosaic into as many planes as there are (one of luma, or red, green and blue).
    ///
    /// Reads three rows of samples; takes about 2 ns per pixel of the frame's width.
    pub(super) fn resample(
        &mut self,
        isa: Isa,
        mut rows: MosaicRows<'_>,
        pattern: (BayerOrder, BayerDepth),
        y: usize,
        columns: &Axis<N>,
        planes: &mut [Vec<N>],
    ) {
        let (order, depth) = pattern;
        let (width, height) = rows.size();
        for (samples, y) in self.samples.iter_mut().zip([mirrored(y, -1, height), y, mirrored(y, 1, height)]) {
            rows.decode(isa, y, depth, samples);
            samples[0] = samples[1 + mirrored(0, -1, width)];
            samples[1 + width] = samples[1 + mirrored(width - 1, 1, width)];
        }

        let (red_x, red_y) = rows.first_red(order);
        let padded = width.next_multiple_of(LANES);
        let red_row = y % 2 == red_y;
        let [red, green, blue] = self.colors.each_mut().map(|color| &mut color[..padded]);
        let (own, other) = if red_row { (red, blue) } else { (blue, red) };
        let [above, at, below] = self.samples.each_ref().map(|samples| &samples[..padded + 2]);
        let own_x = if red_row { red_x } else { 1 - red_x };
        isa.run(Demosaic { above, at, below, own_x, own, green, other });

        match planes {
            [luma] => {
                let [red, green, blue] = self.colors.each_mut().map(|color| &mut color[..padded]);
                isa.run(ToLuma { red, green, blue });
                isa.run(Resample { columns, row: red, out: luma });
            }
            _ => {
                for (row, out) in self.colors.iter().zip(planes) {
                    isa.run(Resample { columns, row: &row[..padded], out });
                }
            }
        }
    }
}

/// Returns `position + step`, mirrored at the edges of `0..count` without the edge itself.
fn mirrored(position: usize, step: isize, count: usize) -> usize {
    match position.checked_add_signed(step) {
        Some(moved) if moved < count => moved,
        // Beyond either end: the neighbour on the other side, or the only pixel.
        _ => position.checked_add_signed(-step).filter(|&moved| moved < count).unwrap_or(position),
    }
}

/// Converts samples to 0 to 255.
struct Decode<'a, N> {
    row: &'a [u8],
    depth: BayerDepth,
    out: &'a mut [N],
}

impl<N: Number> SliceLoop for Decode<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { row, depth, out } = self;
        // One loop per depth, so that each is compiled with its own constants.
        match depth {
            BayerDepth::Bits8 => {
                for (out, &raw) in out.iter_mut().zip(row) {
                    *out = N::sample(u16::from(raw), BayerDepth::Bits8);
                }
            }
            BayerDepth::Bits10 => shorts(row, out, |raw| N::sample(raw, BayerDepth::Bits10)),
            BayerDepth::Bits12 => shorts(row, out, |raw| N::sample(raw, BayerDepth::Bits12)),
            BayerDepth::Bits16 => shorts(row, out, |raw| N::sample(raw, BayerDepth::Bits16)),
        }
    }
}

/// Converts samples that were read as words.
struct DecodeWords<'a, N> {
    row: &'a [u32],
    depth: BayerDepth,
    out: &'a mut [N],
}

impl<N: Number> SliceLoop for DecodeWords<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { row, depth, out } = self;
        for (out, &raw) in out.iter_mut().zip(row) {
            *out = N::sample(raw as u16, depth);
        }
    }
}

#[inline(always)]
fn shorts<N>(row: &[u8], out: &mut [N], sample: impl Fn(u16) -> N) {
    for (out, &raw) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = sample(u16::from_le_bytes(raw));
    }
}

/// Computes all colours of one row. The row's own colour (red or blue) is in the columns of parity `own_x`, green in the
/// others.
struct Demosaic<'a, N> {
    above: &'a [N],
    at: &'a [N],
    below: &'a [N],
    own_x: usize,
    own: &'a mut [N],
    green: &'a mut [N],
    other: &'a mut [N],
}

impl<N: Number> SliceLoop for Demosaic<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let own_lanes: [bool; LANES] = std::array::from_fn(|lane| lane % 2 == self.own_x);
        let (own, _) = self.own.as_chunks_mut::<LANES>();
        let (green, _) = self.green.as_chunks_mut::<LANES>();
        let (other, _) = self.other.as_chunks_mut::<LANES>();
        for (i, ((own, green), other)) in own.iter_mut().zip(green).zip(other).enumerate() {
            let window = i * LANES..(i + 1) * LANES + 2;
            let (above, at, below) = (&self.above[window.clone()], &self.at[window.clone()], &self.below[window]);
            let mut block = [[N::NONE; LANES]; 3];
            for lane in 0..LANES {
                let (left, centre, right) = (at[lane], at[lane + 1], at[lane + 2]);
                let (over, under) = (above[lane + 1], below[lane + 1]);
                let cross = N::mean_of_4([left, right, over, under]);
                let corners = N::mean_of_4([above[lane], above[lane + 2], below[lane], below[lane + 2]]);
                let own_site = own_lanes[lane];
                block[0][lane] = if own_site { centre } else { N::mean_of_2([left, right]) };
                block[1][lane] = if own_site { cross } else { centre };
                block[2][lane] = if own_site { corners } else { N::mean_of_2([over, under]) };
            }
            [*own, *green, *other] = block;
        }
    }
}

/// Computes luma, in red's place.
struct ToLuma<'a, N> {
    red: &'a mut [N],
    green: &'a mut [N],
    blue: &'a mut [N],
}

impl<N: Number> SliceLoop for ToLuma<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((red, green), blue) in self.red.iter_mut().zip(self.green).zip(self.blue) {
            *red = N::narrow(N::luma::<FMA>([*red, *green, *blue].map(N::channel)));
        }
    }
}

/// Resamples a row at the columns that are needed.
struct Resample<'a, N> {
    columns: &'a Axis<N>,
    row: &'a [N],
    out: &'a mut [N],
}

impl<N: Number> SliceLoop for Resample<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { columns: Axis { low, high, weights, single, .. }, row, out } = self;
        let at = |x: u32| N::channel(row[x as usize]);
        if *single {
            for (out, &low) in out.iter_mut().zip(low) {
                *out = N::whole(at(low));
            }
            return;
        }
        let weights = weights[0].iter().zip(&weights[1]);
        for (out, ((&low, &high), (&low_weight, &high_weight))) in out.iter_mut().zip(low.iter().zip(high).zip(weights))
        {
            *out = N::mixed::<FMA>([at(low), at(high)], [low_weight, high_weight]);
        }
    }
}
