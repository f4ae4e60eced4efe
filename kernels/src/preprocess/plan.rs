//! Tables for one frame size, made once: which source pixels contribute to each destination pixel.

use super::number::{Along, Number};
use super::spec::PreprocessSpec;
use crate::letterbox::Mapping;

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
    /// Maps `count` destination pixels to `seen` source pixels from `origin` on, in a source of `size` pixels with repeated
    /// edges. The tables are extended to `padded` entries with the last position.
    fn new(along: Along, count: u32, (origin, seen): (f64, f64), size: u32, padded: usize) -> Self {
        // The inverse of the inverse has the last bit of OpenCV's scale.
        let step = 1.0 / (f64::from(count) / seen);
        let last = i64::from(size) - 1;
        let mut axis = Self {
            low: Vec::with_capacity(padded),
            high: Vec::with_capacity(padded),
            weights: [Vec::with_capacity(padded), Vec::with_capacity(padded)],
            single: true,
        };
        for i in (0..count).chain(std::iter::repeat(count - 1)).take(padded) {
            let position = (f64::from(i) + 0.5) * step + origin - 0.5;
            let (low, weights) = N::taps(position, size, along);
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
        let mapping = Mapping::new(spec.fit, source, (spec.width, spec.height));
        let [x, y, seen_width, seen_height] = mapping.seen();
        let [_, _, width, height] = mapping.placed();
        let padded = (width as usize).next_multiple_of(LANES);
        Self {
            mapping,
            columns: Axis::new(Along::X, width, (x, seen_width), source.0, padded),
            rows: Axis::new(Along::Y, height, (y, seen_height), source.1, height as usize),
        }
    }

    /// Returns the length of a horizontally resampled row, including padding.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}
