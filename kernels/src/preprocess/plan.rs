//! Which source pixels make a destination pixel: tables for one frame size, made once.

use super::number::{Along, Number};
use super::spec::PreprocessSpec;
use crate::letterbox::Mapping;

/// Row buffers are a multiple of this long, so that loops over them have no tail.
pub(super) const LANES: usize = 8;

/// Frame sizes whose tables are kept; cameras of one lane rarely have more.
const KEPT_PLANS: usize = 8;

/// The two source positions of every destination position along one axis.
pub(super) struct Axis<N> {
    /// The left or upper pixel.
    pub(super) low: Vec<u32>,
    /// The right or lower pixel.
    pub(super) high: Vec<u32>,
    /// How much of each there is.
    pub(super) weights: [Vec<N>; 2],
    /// Whether `high` has no weight anywhere and need not be read: an odd whole scale, say 1920 to 640.
    pub(super) single: bool,
}

impl<N: Number> Axis<N> {
    /// `count` destination pixels over `seen` source pixels that begin at `origin`, in a source of `size` pixels whose
    /// edges repeat. The tables are filled up with the last position to `padded` entries.
    fn new(along: Along, count: u32, (origin, seen): (f64, f64), size: u32, padded: usize) -> Self {
        // The inverse of the inverse: the last bit of OpenCV's scale.
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
            // Both are pixels of the frame, thus fit.
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

/// All that depends on the frame's size.
pub(super) struct PreprocessPlan<N> {
    /// Where the frame lands.
    pub(super) mapping: Mapping,
    /// Columns, filled up to a multiple of [`LANES`].
    pub(super) columns: Axis<N>,
    /// Rows.
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

    /// Length of a horizontally resampled row, padding included.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}

/// The plans of the last frame sizes.
pub(super) struct PlanCache<N> {
    /// Most recently used last.
    plans: Vec<PreprocessPlan<N>>,
}

impl<N: Number> PlanCache<N> {
    pub(super) fn new() -> Self {
        Self { plans: Vec::with_capacity(KEPT_PLANS) }
    }

    /// The plan of a frame size, made when it is not there. Allocates only then.
    pub(super) fn get(&mut self, spec: &PreprocessSpec, source: (u32, u32)) -> &PreprocessPlan<N> {
        match self.plans.iter().position(|plan| plan.mapping.source() == source) {
            Some(found) => self.plans[found..].rotate_left(1),
            None => {
                if self.plans.len() == KEPT_PLANS {
                    self.plans.remove(0);
                }
                self.plans.push(PreprocessPlan::new(spec, source));
            }
        }
        &self.plans[self.plans.len() - 1]
    }
}
