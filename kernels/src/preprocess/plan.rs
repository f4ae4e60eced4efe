//! Tables for one frame size, made once: which source pixels contribute to each destination pixel.

use super::number::{Along, Number};
use super::spec::PreprocessSpec;
use super::taps::TapTables;
use super::transposed::TransposedPlan;
use crate::frame::{FrameView, PixelFormat};
use crate::placement::{AxisMap, Mapping};
use crate::view::Orientation;

/// Row buffers have a multiple of this length, so that loops over them have no tail.
pub(super) const LANES: usize = 8;

/// A row of padding.
pub(super) const PAD: u32 = u32::MAX;

/// How many frame sizes and orientations keep their tables.
///
/// The views of a camera are of at most five kinds: the whole, and tiles, whose last column and row may be a pixel longer. With more kinds
/// than are kept, cameras that take turns would make the tables of each frame.
pub(super) const KEPT_PLANS: usize = 64;

/// What tables are made for: they serve all frames that have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlanKey {
    /// Width and height of the picture.
    pub(super) size: (u32, u32),
    pub(super) orientation: Orientation,
    /// Whether rows are read for a mosaic's samples, of which all are needed; only where the orientation transposes.
    pub(super) transposes_mosaic: bool,
}

impl PlanKey {
    pub(super) fn of(frame: &FrameView<'_>) -> Self {
        let view = frame.view();
        let orientation = view.orientation();
        let is_mosaic = matches!(frame.format(), PixelFormat::Bayer(..));
        Self { size: view.picture_size(), orientation, transposes_mosaic: orientation.transposed && is_mosaic }
    }

    /// Returns the frame's row of a row of the picture, unless it transposes.
    pub(super) fn frame_row(&self, row: u32) -> u32 {
        if self.orientation.mirrored[1] && !self.orientation.transposed { self.size.1 - 1 - row } else { row }
    }

    /// Returns how to read all samples of a mosaic.
    pub(super) fn samples(&self) -> TransposedPlan {
        let (width, height) = self.size;
        // A row is demosaiced with the one above, and edges are mirrored.
        TransposedPlan::new(self.orientation, self.size, 0..height, &(0..width).collect::<Vec<_>>(), 2)
    }
}

/// How the two pixels of an axis' positions are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Together: `high` is right of `low`.
    Rising,
    /// Together: `high` is left of `low`, since the frame is mirrored.
    Falling,
    /// One by one, since they are in different rows of the frame.
    Apart,
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
    fn new(along: Along, map: &AxisMap, padded: usize) -> Self {
        let mut axis = Self::empty(padded);
        for i in positions(map, padded) {
            let (pixels, weights) = pixel_pair(along, map, i);
            axis.push(pixels, weights);
            axis.single &= weights[1] == N::NONE;
        }
        axis
    }

    fn empty(padded: usize) -> Self {
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
    fn mirror(&mut self, width: u32) {
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

    fn push(&mut self, [low, high]: [u32; 2], weights: [N; 2]) {
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
fn positions(map: &AxisMap, padded: usize) -> impl Iterator<Item = u32> {
    (0..map.count).chain(std::iter::repeat(map.count - 1)).take(padded)
}

/// The padding that a warp mixes with pixels, as rows' values.
pub(super) struct Padding<N> {
    /// Its part in each column.
    pub(super) columns: Vec<N>,
    /// A pixel of it.
    pub(super) whole: N,
}

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
    /// How rows are read, if they are columns of the frame.
    pub(super) transposed: Option<TransposedPlan>,
}

impl<N: Number> PreprocessPlan<N> {
    pub(super) fn new(spec: &PreprocessSpec, key: PlanKey) -> Self {
        let mut plan = Self::of_picture(spec, key);
        let PlanKey { size, orientation, transposes_mosaic } = key;
        if transposes_mosaic {
            plan.transposed = Some(key.samples());
        } else if orientation.transposed {
            let rows = plan.rows.low.iter().chain(&plan.rows.high).copied().filter(|&row| row != PAD);
            let Axis { low, high, single, .. } = &mut plan.columns;
            let words = if *single { low.clone() } else { [&low[..], &high[..]].concat() };
            plan.transposed = Some(TransposedPlan::new(orientation, size, rows, &words, 0));
            // Words are as of an even column.
            low.fill(0);
            plan.columns.pairs = Pairs::Apart;
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
            transposed: None,
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
        Self { key, mapping, columns, rows, padding: Some(padding), transposed: None }
    }

    /// Returns the length of a horizontally resampled row, including padding.
    pub(super) fn padded_width(&self) -> usize {
        self.columns.low.len()
    }
}
