//! Which source pixels make a destination pixel: tables for one frame size, made once.

use super::PreprocessSpec;
use crate::geometry::Mapping;

/// Row buffers are a multiple of this long, so that loops over them have no tail.
pub(super) const LANES: usize = 16;

/// Frame sizes whose tables are kept; cameras of one lane rarely have more.
const KEPT_PLANS: usize = 8;

/// A weight this close to a whole pixel is one: it saves a tap and shifts no value by more than 255e-6.
const SNAP: f64 = 1e-6;

/// The two source positions of every destination position along one axis.
pub(super) struct Axis {
    /// The left or upper pixel.
    pub(super) low: Vec<u32>,
    /// The right or lower pixel; `low` where the weight is 0.
    pub(super) high: Vec<u32>,
    /// How much of `high` there is, 0 to 1.
    pub(super) weight: Vec<f32>,
    /// Whether every weight is 0, so that `high` need not be read: an odd whole scale, say 1920 to 640.
    pub(super) single: bool,
}

impl Axis {
    /// `count` destination pixels over `seen` source pixels that begin at `origin`, in a source of `size` pixels whose
    /// edges repeat. The tables are filled up with the last position to `padded` entries.
    fn new(count: u32, origin: f64, seen: f64, size: u32, padded: usize) -> Self {
        let step = seen / f64::from(count);
        let last = f64::from(size - 1);
        let mut axis = Self {
            low: Vec::with_capacity(padded),
            high: Vec::with_capacity(padded),
            weight: Vec::with_capacity(padded),
            single: true,
        };
        for i in 0..count {
            let position = ((f64::from(i) + 0.5) * step + origin - 0.5).clamp(0.0, last);
            let nearest = position.round();
            let position = if (position - nearest).abs() < SNAP { nearest } else { position };
            let weight = position - position.floor();
            let low = position.floor() as u32;
            axis.low.push(low);
            axis.high.push(low + u32::from(weight > 0.0));
            axis.weight.push(weight as f32);
            axis.single &= weight == 0.0;
        }
        let end = count as usize - 1;
        axis.low.resize(padded, axis.low[end]);
        axis.high.resize(padded, axis.high[end]);
        axis.weight.resize(padded, axis.weight[end]);
        axis
    }
}

/// All that depends on the frame's size.
pub(super) struct Plan {
    /// Where the frame lands.
    pub(super) mapping: Mapping,
    /// Columns, filled up to a multiple of [`LANES`].
    pub(super) columns: Axis,
    /// Rows.
    pub(super) rows: Axis,
}

impl Plan {
    fn new(spec: &PreprocessSpec, source: (u32, u32)) -> Self {
        let mapping = Mapping::new(spec.fit, source, (spec.width, spec.height));
        let [x, y, width, height] = mapping.seen();
        let [_, _, placed_width, placed_height] = mapping.placed();
        let padded = (placed_width as usize).next_multiple_of(LANES);
        Self {
            mapping,
            columns: Axis::new(placed_width, x, width, source.0, padded),
            rows: Axis::new(placed_height, y, height, source.1, placed_height as usize),
        }
    }

    /// Length of a horizontally resampled row, padding included.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}

/// The plans of the last frame sizes.
#[derive(Default)]
pub(super) struct PlanCache {
    /// Most recently used last.
    plans: Vec<Plan>,
}

impl PlanCache {
    /// The plan of a frame size, made when it is not there. Allocates only then.
    pub(super) fn get(&mut self, spec: &PreprocessSpec, source: (u32, u32)) -> &Plan {
        let last = match self.plans.iter().position(|plan| plan.mapping.source() == source) {
            Some(found) => {
                self.plans[found..].rotate_left(1);
                self.plans.len() - 1
            }
            None => {
                if self.plans.len() == KEPT_PLANS {
                    self.plans.remove(0);
                }
                self.plans.push(Plan::new(spec, source));
                self.plans.len() - 1
            }
        };
        &self.plans[last]
    }
}
