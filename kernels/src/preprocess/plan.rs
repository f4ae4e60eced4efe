//! Tables for one frame size, made once: which source pixels contribute to each destination pixel.

use super::axis::{Axis, LANES, PAD, Padding, PlanKey, positions};
use super::number::{Along, Number};
use super::spec::PreprocessSpec;
use super::taps::TapTables;
use super::turned::TurnedPlan;
use crate::placement::Mapping;

/// How many frame sizes and orientations keep their tables.
///
/// The views of a camera are of at most five kinds: the whole, and tiles, whose last column and row may be a pixel longer. With more kinds
/// than are kept, cameras that take turns would make the tables of each frame.
pub(super) const KEPT_PLANS: usize = 64;

/// Everything that depends on the frame's size.
pub(super) struct PreprocessPlan<N> {
    pub(super) key: PlanKey,
    /// Where the frame is placed.
    pub(super) mapping: Mapping,
    /// The columns, extended to a multiple of [`LANES`].
    pub(super) columns: Axis<N>,
    /// The rows; [`PAD`] for the padding.
    pub(super) rows: Axis<N>,
    /// For OpenCV's warps, whose sums are exact.
    pub(super) padding: Option<Padding<N>>,
    /// How rows are made, if they are columns of the frame.
    pub(super) turned: Option<TurnedPlan<N>>,
}

impl<N: Number> PreprocessPlan<N> {
    pub(super) fn new(spec: &PreprocessSpec, key: PlanKey) -> Self {
        let mut plan = Self::of_picture(spec, key);
        let PlanKey { size, orientation } = key;
        if orientation.transposed {
            plan.turned = Some(TurnedPlan::new(key, &plan.columns, &plan.rows));
        } else if orientation.mirrored[0] {
            plan.columns.mirror(size.0);
        }
        plan
    }

    /// Makes the plan for a frame that is the picture.
    pub(super) fn of_picture(spec: &PreprocessSpec, key: PlanKey) -> Self {
        let mapping = Mapping::new(spec.placement, key.size, (spec.width, spec.height));
        let [columns, rows] = mapping.axes();
        let padded = (columns.count as usize).next_multiple_of(LANES);
        if spec.sampling.only_warps() {
            return Self::of_warp(spec, key, mapping, padded);
        }
        Self {
            key,
            mapping,
            columns: Axis::new(Along::X, columns, padded),
            rows: Axis::new(Along::Y, rows, rows.count as usize),
            padding: None,
            turned: None,
        }
    }

    fn of_warp(spec: &PreprocessSpec, key: PlanKey, mapping: Mapping, padded: usize) -> Self {
        let ((width, height), axes) = (mapping.source(), mapping.axes());
        let tables = TapTables::of_warp(axes, spec.sampling);
        let pad = N::wide(spec.pad.round_ties_even() as u32);
        let padding_of = |share: f32| N::mixed::<false>([pad, N::wide(0)], [N::weight(share), N::NONE]);
        let mut padding = Padding { columns: Vec::with_capacity(padded), whole: padding_of(1.0) };
        let (mut columns, mut rows) = (Axis::empty(padded), Axis::empty(axes[1].count as usize));
        for i in positions(&axes[0], padded) {
            let taps = tables.columns.pair(i as usize, width);
            // The padding is added to the row, so its weight is left out here, and a pixel of the frame comes first.
            let mut inside = taps.into_iter().filter_map(|(pixel, weight)| Some((pixel?, weight)));
            // Columns must rise.
            let (low, weight) = inside.next().unwrap_or_else(|| (columns.low.last().copied().unwrap_or(0), 0.0));
            let weights = [weight, inside.next().map_or(0.0, |(_, weight)| weight)];
            columns.push([low, (low + 1).min(width - 1)], weights.map(N::weight));
            columns.single &= weights == [1.0, 0.0];
            let outside = taps.iter().filter(|(pixel, _)| pixel.is_none());
            padding.columns.push(padding_of(outside.map(|(_, weight)| weight).sum()));
        }
        for i in positions(&axes[1], axes[1].count as usize) {
            let [(low, weight), (high, other)] = tables.rows.pair(i as usize, height);
            let low = low.unwrap_or(PAD);
            let high = if other == 0.0 { low } else { high.unwrap_or(PAD) };
            rows.push([low, high], [weight, other].map(N::weight));
        }
        Self { key, mapping, columns, rows, padding: Some(padding), turned: None }
    }

    /// Returns the length of a horizontally resampled row, including padding.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}
