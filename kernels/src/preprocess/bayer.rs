//! Raw sensor mosaics: demosaics one row bilinearly, then resamples it.
//!
//! Each missing colour is the mean of its two or four nearest samples. Beyond the edges the frame is mirrored without its
//! outermost pixel (OpenCV's `BORDER_REFLECT_101`), which keeps the mosaic's phase. A frame that is one pixel wide or high has
//! no neighbour there and repeats its only one.

use std::ops::Range;

use super::axis::{Axis, LANES};
use super::convert::PixelsOf;
use super::number::Number;
use super::simd::{Isa, SliceLoop};
use crate::frame::{BayerDepth, BayerOrder, FrameView};

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
        frame: &FrameView<'_>,
        pattern: (BayerOrder, BayerDepth),
        y: usize,
        columns: &Axis<N>,
        planes: &mut [Vec<N>],
    ) {
        self.demosaic(isa, frame, pattern, y, 0..frame.width() as usize, planes.len() == 1);
        for (row, out) in self.colors.iter().zip(planes) {
            isa.run(Resample { columns, row, out });
        }
    }

    /// Reads row `y` at these columns, which rise, into the planes from `at` on.
    pub(super) fn read(
        &mut self,
        isa: Isa,
        frame: &FrameView<'_>,
        pattern: (BayerOrder, BayerDepth),
        y: usize,
        (columns, of): (&[u32], PixelsOf),
        (planes, at): (&mut [Vec<N>], usize),
    ) {
        let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { return };
        let from = first as usize & !1;
        self.demosaic(isa, frame, pattern, y, from..last as usize + 1, planes.len() == 1);
        for (row, out) in self.colors.iter().zip(planes) {
            for (out, &x) in out[at..].iter_mut().zip(columns) {
                *out = of.number(N::channel(row[x as usize - from]));
            }
        }
    }

    /// Makes the colours of row `y` in these columns, the first of which is even; luma in red's place.
    fn demosaic(
        &mut self,
        isa: Isa,
        frame: &FrameView<'_>,
        (order, depth): (BayerOrder, BayerDepth),
        y: usize,
        columns: Range<usize>,
        luma: bool,
    ) {
        let (width, height) = (frame.width() as usize, frame.height() as usize);
        // A sample more on either side, mirrored at the frame's edges. They are counted from the one on the left.
        let read = columns.start.saturating_sub(1)..(columns.end + 1).min(width);
        let place = |x: usize| x + 1 - columns.start;
        for (samples, y) in self.samples.iter_mut().zip([mirrored(y, -1, height), y, mirrored(y, 1, height)]) {
            let bytes = depth.sample_bytes();
            let row = &frame.planes()[0].row(y)[read.start * bytes..read.end * bytes];
            isa.run(Decode { row, depth, out: &mut samples[place(read.start)..] });
            if columns.start == 0 {
                samples[0] = samples[place(mirrored(0, -1, width))];
            }
            if columns.end == width {
                samples[place(width)] = samples[place(mirrored(width - 1, 1, width))];
            }
        }

        let (red_x, red_y) = order.first_red();
        let padded = columns.len().next_multiple_of(LANES);
        let red_row = y % 2 == red_y;
        let [red, green, blue] = self.colors.each_mut().map(|color| &mut color[..padded]);
        let (own, other) = if red_row { (&mut *red, &mut *blue) } else { (&mut *blue, &mut *red) };
        let [above, at, below] = self.samples.each_ref().map(|samples| &samples[..padded + 2]);
        let own_x = if red_row { red_x } else { 1 - red_x };
        let transposed = frame.view().orientation().transposed;
        isa.run(Demosaic { above, at, below, own_x, transposed, own, green: &mut *green, other });
        if luma {
            isa.run(ToLuma { red, green, blue });
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
    /// Whether the picture's rows are columns of the frame: sums are made in the picture's order.
    transposed: bool,
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
                let [right_above, left_below] =
                    if self.transposed { [below[lane], above[lane + 2]] } else { [above[lane + 2], below[lane]] };
                let corners = N::mean_of_4([above[lane], right_above, left_below, below[lane + 2]]);
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
