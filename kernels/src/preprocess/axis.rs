//! The columns and rows of a picture: which source pixels contribute to each destination pixel along an axis.

use super::number::{Along, Number};
use crate::frame::FrameView;
use crate::placement::AxisMap;
use crate::view::Orientation;

/// Row buffers have a multiple of this length, so that loops over them have no tail.
pub(super) const LANES: usize = 8;

/// A row of padding.
pub(super) const PAD: u32 = u32::MAX;

/// What tables are made for: they serve all frames that have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlanKey {
    /// Width and height of the picture.
    pub(super) size: (u32, u32),
    pub(super) orientation: Orientation,
}

impl PlanKey {
    pub(super) fn of(frame: &FrameView<'_>) -> Self {
        Self { size: frame.view().picture_size(), orientation: frame.view().orientation() }
    }

    /// Returns the frame's row of a row of the picture, unless it transposes.
    pub(super) fn frame_row(&self, row: u32) -> u32 {
        if self.orientation.mirrored[1] && !self.orientation.transposed { self.size.1 - 1 - row } else { row }
    }
}

/// How the two pixels of an axis' positions are read, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// `high` is right of `low`.
    Rising,
    /// `high` is left of `low`, since the frame is mirrored.
    Falling,
}

/// The two source positions of every destination position along one axis.
pub(super) struct Axis<N> {
    /// The left or upper pixel.
    pub(super) low: Vec<u32>,
    /// The right or lower pixel.
    pub(super) high: Vec<u32>,
    /// The weights of both.
    pub(super) weights: [Vec<N>; 2],
    /// Whether `high` has no weight anywhere and need not be read: for an odd whole scale, such as 1920 to 640.
    pub(super) single: bool,
    pub(super) pairs: Pairs,
}

impl<N: Number> Axis<N> {
    /// Finds the source pixels of an axis with repeated edges. The tables are extended to `padded` entries with the last
    /// position.
    pub(super) fn new(along: Along, map: &AxisMap, padded: usize) -> Self {
        let mut axis = Self::empty(padded);
        for i in positions(map, padded) {
            let (pixels, weights) = pixel_pair(along, map, i);
            axis.push(pixels, weights);
            axis.single &= weights[1] == N::NONE;
        }
        axis
    }

    pub(super) fn empty(padded: usize) -> Self {
        Self {
            low: Vec::with_capacity(padded),
            high: Vec::with_capacity(padded),
            weights: [Vec::with_capacity(padded), Vec::with_capacity(padded)],
            single: true,
            pairs: Pairs::Rising,
        }
    }

    /// Makes columns of the picture those of a frame that is `width` pixels wide, mirrored. Weights stay with their pixels, so that
    /// sums are the same to the last bit.
    pub(super) fn mirror(&mut self, width: u32) {
        let [low_weights, high_weights] = &mut self.weights;
        let weights = low_weights.iter_mut().zip(high_weights);
        for ((low, high), (low_weight, high_weight)) in self.low.iter_mut().zip(&mut self.high).zip(weights) {
            *low = width - 1 - *low;
            if self.single {
                *high = *low;
                continue;
            }
            // The pixel left of the lower one has no weight if it is not the upper one. Where there is none, the frame's first two
            // are read, and the first takes the other's place.
            *high = low.saturating_sub(1);
            if *low == 0 {
                *low = 1.min(width - 1);
                std::mem::swap(low_weight, high_weight);
            }
        }
        self.pairs = Pairs::Falling;
    }

    /// Returns the left pixel of each pair.
    pub(super) fn left(&self) -> &[u32] {
        if self.pairs == Pairs::Falling && !self.single { &self.high } else { &self.low }
    }

    pub(super) fn push(&mut self, [low, high]: [u32; 2], weights: [N; 2]) {
        self.low.push(low);
        self.high.push(high);
        self.weights.iter_mut().zip(weights).for_each(|(all, weight)| all.push(weight));
    }
}

/// Returns the source pixels of position `i` of an axis with repeated edges, and their weights.
#[inline(always)]
pub(super) fn pixel_pair<N: Number>(along: Along, map: &AxisMap, i: u32) -> ([u32; 2], [N; 2]) {
    // Sides are far below 2^31, and signed numbers become floats in fewer instructions.
    let last = map.source as i32 - 1;
    let position = (f64::from((map.first + i) as i32) + 0.5) * map.step + map.from - 0.5;
    let (low, weights) = N::taps(position, map.source, along);
    // Both are pixels of the frame, so they fit.
    let high = if weights[1] == N::NONE { low } else { low + 1 };
    ([low, high].map(|pixel| pixel.clamp(0, last) as u32), weights)
}

/// The positions of an axis, extended to `padded` with the last.
pub(super) fn positions(map: &AxisMap, padded: usize) -> impl Iterator<Item = u32> {
    (0..map.count).chain(std::iter::repeat(map.count - 1)).take(padded)
}

/// The padding that a warp mixes with pixels, as rows' values.
pub(super) struct Padding<N> {
    /// Its part in each column.
    pub(super) columns: Vec<N>,
    /// A pixel of it.
    pub(super) whole: N,
}
