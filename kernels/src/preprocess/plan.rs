//! Tables for one frame size, made once: which source pixels contribute to each destination pixel.

use super::number::{Along, Number};
use super::spec::PreprocessSpec;
use crate::letterbox::{AxisMap, Mapping};

/// Row buffers have a multiple of this length, so that loops over them have no tail.
pub(super) const LANES: usize = 8;

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
}

impl<N: Number> Axis<N> {
    /// Finds the source pixels of an axis with repeated edges. The tables are extended to `padded` entries with the last
    /// position.
    fn new(along: Along, map: &AxisMap, padded: usize) -> Self {
        let last = i64::from(map.source) - 1;
        let mut axis = Self {
            low: Vec::with_capacity(padded),
            high: Vec::with_capacity(padded),
            weights: [Vec::with_capacity(padded), Vec::with_capacity(padded)],
            single: true,
        };
        for i in (0..map.count).chain(std::iter::repeat(map.count - 1)).take(padded) {
            let position = (f64::from(map.first + i) + 0.5) * map.step + map.from - 0.5;
            let (low, weights) = N::taps(position, map.source, along);
            // Both are pixels of the frame, so they fit.
            let high = if weights[1] == N::NONE { low } else { low + 1 };
            axis.low.push(low.clamp(0, last) as u32);
            axis.high.push(high.clamp(0, last) as u32);
            axis.weights[0].push(weights[0]);
            axis.weights[1].push(weights[1]);
            axis.single &= weights[1] == N::NONE;
        }
        axis
    }
}

/// Everything that depends on the frame's size.
pub(super) struct PreprocessPlan<N> {
    /// Where the frame is placed.
    pub(super) mapping: Mapping,
    /// The columns, extended to a multiple of [`LANES`].
    pub(super) columns: Axis<N>,
    /// The rows.
    pub(super) rows: Axis<N>,
}

impl<N: Number> PreprocessPlan<N> {
    pub(super) fn new(spec: &PreprocessSpec, source: (u32, u32)) -> Self {
        let mapping = Mapping::new(spec.placement, source, (spec.width, spec.height));
        let [columns, rows] = mapping.axes();
        let padded = (columns.count as usize).next_multiple_of(LANES);
        Self {
            mapping,
            columns: Axis::new(Along::X, columns, padded),
            rows: Axis::new(Along::Y, rows, rows.count as usize),
        }
    }

    /// Returns the length of a horizontally resampled row, including padding.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}
