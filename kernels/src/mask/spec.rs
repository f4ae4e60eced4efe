//! The location of a model's masks, and the part of its prototypes that shows the frame.

use crate::filter::Values;
use crate::placement::Mapping;

/// The maximum number of channels; models have 32.
const MAX_CHANNELS: usize = 1024;

/// The maximum columns or rows of prototypes; models have a quarter of their input's size.
pub(super) const MAX_SIDE: usize = 8192;

/// The most words of all masks of a frame: 64 MiB, sixteen objects that fill an 8K frame or sixty-four that fill a 4K frame.
pub(super) const MAX_WORDS: usize = 16 * 1024 * 1024;

/// The factors by which the cells may be refined so that the padding ends between two of them.
const FACTORS: [u32; 3] = [1, 2, 4];

/// How a model gives its masks, and where in its outputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskSpec {
    /// The planes of cells: a row for each cell, line by line, and a column for each plane.
    pub planes: Values,
    /// The lines of a plane.
    pub height: usize,
    /// The cells of a line.
    pub width: usize,
    /// Which planes an object's mask is made of.
    pub parts: MaskParts,
}

/// Which planes an object's mask is made of, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaskParts {
    /// All of them: the prototypes, each times a coefficient of the candidate. A pixel belongs to the object if it is inside its
    /// box and the sum there is above 0. YOLACT and Ultralytics' models.
    Prototypes {
        /// How many prototypes there are, and coefficients per candidate.
        channels: usize,
        /// The coefficients: `channels` columns in the row of the candidate.
        coefficients: Values,
    },
    /// The plane with the number of the candidate's row. A pixel belongs to the object if the number there is above the
    /// threshold, wherever its box is. RF-DETR, torchvision's Mask R-CNN.
    OwnPlane {
        /// How many planes there are.
        count: usize,
        /// Logits have 0, probabilities 0.5.
        threshold: f32,
    },
}

/// Why no masks can be computed by a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MaskSpecError(String);

impl MaskSpec {
    /// Checks that the prototypes lie inside their output and have a sensible size.
    pub fn check(&self) -> Result<(), MaskSpecError> {
        let Self { width, height, planes, parts } = *self;
        let (count, most, coefficients) = match parts {
            MaskParts::Prototypes { channels, coefficients } => (channels, MAX_CHANNELS, Some(coefficients)),
            MaskParts::OwnPlane { count, .. } => (count, usize::MAX, None),
        };
        let sides = 1..=MAX_SIDE;
        if !(1..=most).contains(&count) || !sides.contains(&width) || !sides.contains(&height) {
            let text = format!(
                "masks cannot be made of {count} planes of {width} x {height} cells: correct [head] in its model card"
            );
            return Err(MaskSpecError(text));
        }
        let planes = ("the planes of masks", planes, width * height);
        let coefficients = coefficients.map(|values| ("mask coefficients", values, 1));
        for (what, values, rows) in [Some(planes), coefficients].into_iter().flatten() {
            if last_index(&values, rows - 1, count).is_none() || u32::try_from(values.frame_len).is_err() {
                let Values { output, frame_len, .. } = values;
                return Err(MaskSpecError(format!(
                    "{what} lie beyond the {frame_len} numbers of output {output}: correct [head] in its model card"
                )));
            }
        }
        Ok(())
    }

    /// Whether the row has its coefficients inside the output, or its plane.
    pub fn has_row(&self, row: u32) -> bool {
        match self.parts {
            MaskParts::Prototypes { channels, coefficients } => {
                last_index(&coefficients, row as usize, channels).is_some()
            }
            MaskParts::OwnPlane { count, .. } => (row as usize) < count,
        }
    }

    /// Returns the pixels of a frame that may belong to the object: left, top, right, bottom. Nothing if `left >= right`, or so
    /// below.
    pub(super) fn pixels(&self, frame: &MaskFrame, job: &MaskJob) -> [u32; 4] {
        match self.parts {
            MaskParts::Prototypes { .. } => frame.pixels(job.box_in_source),
            MaskParts::OwnPlane { .. } => frame.pixels([0.0, 0.0, f32::INFINITY, f32::INFINITY]),
        }
    }
}

/// Returns the index of a row's last column, if it is inside the frame.
fn last_index(values: &Values, row: usize, columns: usize) -> Option<usize> {
    let row = row.checked_mul(values.row_step)?;
    let column = columns.checked_sub(1)?.checked_mul(values.column_step)?;
    row.checked_add(column)?.checked_add(values.offset).filter(|&last| last < values.frame_len)
}

/// An object to compute the mask of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskJob {
    /// The row of the candidate in the model's outputs.
    pub row: u32,
    /// The box x1, y1, x2, y2 in pixels of the frame.
    pub box_in_source: [f32; 4],
}

/// Which cells of the prototypes show the frame along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskAxis {
    /// The cells of the prototypes.
    pub cells: u32,
    /// The first cell that shows the frame, after the refinement.
    pub first: u32,
    /// How many do, after the refinement.
    pub count: u32,
    /// The pixels of the frame.
    pub source: u32,
    /// Refined cells per pixel.
    pub step: f32,
    /// Where the frame begins, in refined cells from `first` on.
    pub origin: f32,
    /// The first pixel that the model saw, and the one after the last.
    pub seen: [u32; 2],
}

/// Two neighbours and their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tap {
    pub at: [u32; 2],
    pub weight: [f32; 2],
}

impl Tap {
    /// Returns the two elements that contribute to the centre of element `index` when `size` elements are resized, `step` of them
    /// to one.
    ///
    /// PyTorch's `area_pixel_compute_source_index` with `align_corners=False` and `guard_index_and_lambda`
    /// (aten/src/ATen/native/UpSample.h), in its order of operations; `origin` is ours and 0 but for crops and warps.
    pub(super) fn new(index: u32, step: f32, origin: f32, size: u32) -> Self {
        let last = size.saturating_sub(1);
        let at = step * (index as f32 + 0.5) - 0.5 + origin;
        let at = at.max(0.0).min(last as f32);
        let first = at as u32;
        let second = (at - first as f32).clamp(0.0, 1.0);
        Self { at: [first, (first + 1).min(last)], weight: [1.0 - second, second] }
    }
}

/// Cells along an axis, from `first` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub first: u32,
    pub count: u32,
}

impl Span {
    fn of(first: Tap, last: Tap) -> Self {
        Self { first: first.at[0], count: last.at[1] - first.at[0] + 1 }
    }
}

impl MaskAxis {
    /// Returns the pixels from `low` to `high` that the model saw: those with `low <= index < high`.
    ///
    /// Ultralytics' `crop_mask` compares the same in f32.
    pub(super) fn pixels(&self, low: f32, high: f32) -> [u32; 2] {
        if low.is_nan() || high.is_nan() {
            return [0, 0];
        }
        // A conversion to an integer saturates.
        [(low.ceil() as u32).max(self.seen[0]), (high.ceil() as u32).min(self.seen[1])]
    }

    /// Returns the refined cells, from `first` on, that a pixel is made of.
    pub(super) fn tap(&self, pixel: u32) -> Tap {
        Tap::new(pixel, self.step, self.origin, self.count)
    }

    /// Returns the cells that a refined cell, from `first` on, is made of.
    pub(super) fn refined(&self, index: u32, factor: u32) -> Tap {
        Tap::new(self.first + index, 1.0 / factor as f32, 0.0, self.cells)
    }
}

/// Which part of the prototypes shows the frame, and the frame's size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskFrame {
    /// By how much the prototypes are refined before the padding is cut off: 1, 2 or 4.
    pub factor: u32,
    /// Columns, rows.
    pub axes: [MaskAxis; 2],
}

impl MaskFrame {
    /// Returns the part of prototypes with `prototype_size` cells (width, height) that shows the frame.
    ///
    /// Where the frame was resized to whole pixels of the input, its cells are cut out and resized to the frame. If its edges
    /// lie inside cells, these are first refined by 2 or 4, bilinearly: Ultralytics' `process_mask_native` since 8.4.174 and
    /// its `scale_masks`. Where the frame was cropped or warped, each pixel is sampled where it lies in the input.
    pub fn new(mapping: &Mapping, prototype_size: (usize, usize)) -> Self {
        let cells = [prototype_size.0, prototype_size.1].map(|cells| cells.min(MAX_SIDE) as u32);
        let (input, source, axes) = (mapping.input(), mapping.source(), mapping.axes());
        let (input, source) = ([input.0, input.1], [source.0, source.1]);
        let whole = axes.iter().all(|axis| {
            !axis.warped
                && axis.lead == 0
                && axis.canvas == axis.source
                && axis.first == 0
                && axis.count == axis.resized
                && axis.from == 0.0
                && axis.extent == f64::from(axis.source)
        });
        if !whole {
            return Self::sampled(mapping, prototype_size);
        }
        // Cells of `pixels` of the input, times the input's size.
        let fits = |factor: u32| {
            (0..2).all(|i| {
                let scaled = |pixels: u32| u64::from(pixels) * u64::from(cells[i]) * u64::from(factor);
                let size = u64::from(input[i].max(1));
                scaled(axes[i].at).is_multiple_of(size) && scaled(axes[i].count).is_multiple_of(size)
            })
        };
        let factor = FACTORS.into_iter().find(|&factor| fits(factor)).unwrap_or(4);
        let axis = |i: usize| {
            let (axis, refined) = (&axes[i], cells[i] * factor);
            let cells_per_pixel = f64::from(refined) / f64::from(input[i].max(1));
            let first =
                ((f64::from(axis.at) * cells_per_pixel).round_ties_even() as u32).min(refined.saturating_sub(1));
            let count = (f64::from(axis.count) * cells_per_pixel).round_ties_even() as u32;
            let count = count.max(1).min(refined - first);
            MaskAxis {
                cells: cells[i],
                first,
                count,
                source: source[i],
                step: count as f32 / source[i].max(1) as f32,
                origin: 0.0,
                seen: [0, if refined == 0 { 0 } else { source[i] }],
            }
        };
        Self { factor, axes: [axis(0), axis(1)] }
    }

    /// Returns the same with every pixel sampled where its middle lies in the input, whatever the fit.
    pub fn sampled(mapping: &Mapping, size: (usize, usize)) -> Self {
        let cells = [size.0, size.1].map(|cells| cells.min(MAX_SIDE) as u32);
        let (input, source) = (mapping.input(), mapping.source());
        let (input, source) = ([input.0, input.1], [source.0, source.1]);
        let (left, top) = mapping.to_input(0.0, 0.0);
        let (right, bottom) = mapping.to_input(f64::from(source[0]), f64::from(source[1]));
        let shown = [[left, right], [top, bottom]];
        let axis = |i: usize| {
            let ([from, to], cells) = (shown[i], cells[i]);
            let cells_per_pixel = f64::from(cells) / f64::from(input[i].max(1));
            let step = (to - from) / f64::from(source[i].max(1));
            let last = if cells == 0 { 0 } else { source[i] };
            // Pixels whose middle is inside the input.
            let pixel = |x: f64| ((x - from) / step - 0.5).ceil() as u32;
            MaskAxis {
                cells,
                first: 0,
                count: cells,
                source: source[i],
                step: (step * cells_per_pixel) as f32,
                origin: (from * cells_per_pixel) as f32,
                seen: [pixel(0.0).min(last), pixel(f64::from(input[i])).min(last)],
            }
        };
        Self { factor: 1, axes: [axis(0), axis(1)] }
    }

    /// Returns the refined cells, from the first on that shows the frame, and the cells of the model that the pixels from `first`
    /// to `last` along an axis are made of.
    pub(super) fn cells(&self, axis: usize, first: u32, last: u32) -> (Span, Span) {
        let axis = &self.axes[axis];
        let refined = Span::of(axis.tap(first), axis.tap(last));
        let cells = if self.factor == 1 {
            Span { first: axis.first + refined.first, ..refined }
        } else {
            let last = refined.first + refined.count - 1;
            Span::of(axis.refined(refined.first, self.factor), axis.refined(last, self.factor))
        };
        (refined, cells)
    }

    /// Returns the pixels inside a box that the model saw: left, top, right, bottom. Nothing if `left >= right`, or so below.
    pub(super) fn pixels(&self, [x1, y1, x2, y2]: [f32; 4]) -> [u32; 4] {
        let ([left, right], [top, bottom]) = (self.axes[0].pixels(x1, x2), self.axes[1].pixels(y1, y2));
        if left < right && top < bottom { [left, top, right, bottom] } else { [0; 4] }
    }
}
