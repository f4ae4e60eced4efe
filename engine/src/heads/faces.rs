//! Faces with five landmarks on grids: SCRFD, YuNet and RetinaFace.
//!
//! A row stands for an anchor of a cell; rows go cell by cell, line by line. A grid has ceil(size / stride) cells. Outputs
//! are found by their shapes, or if the shapes are unknown by their order, as in InsightFace and OpenCV: all grids of one
//! kind, then the next kind.
//!
//! - `scrfd` (InsightFace): scores `[n, 1]`, boxes `[n, 4]` and perhaps points `[n, 10]` for each grid, with or without a batch
//!   dimension before them; one or two anchors a cell. A box is the distances to its left, top, right and bottom, and a point is
//!   an offset, both in strides, from `(x, y) * stride`.
//! - `yunet` (OpenCV Zoo, 2023mar): classes `[1, n, 1]`, objectness `[1, n, 1]`, boxes `[1, n, 4]` and points `[1, n, 10]` for each
//!   grid. The score is `sqrt(class * objectness)`. Centre and points are offsets from `(x, y) * stride`, in strides; a size is
//!   `exp(w) * stride`.
//! - `retinaface` (biubug6): boxes `[1, N, 4]`, scores `[1, N, 2]` of background and face after the softmax, and points `[1, N, 10]`
//!   for all grids. Each cell has a prior box for each of the grid's `min_sizes`, with its centre at `(x + 0.5, y + 0.5) * stride`.
//!   Centre and points are offsets in tenths of the prior box's size; a size is `exp(0.2 * w)` times that of the prior box.
//!
//! Sources: `forward`, `distance2bbox` and `distance2kps` in `python-package/insightface/model_zoo/scrfd.py` of
//! deepinsight/insightface; `postProcess` in `modules/objdetect/src/face_detect.cpp` of OpenCV; `PriorBox`, `decode` and
//! `decode_landm` in `layers/functions/prior_box.py` and `utils/box_utils.py` of biubug6/Pytorch_Retinaface.

use std::iter::zip;

use visiond_kernels::filter::{self, BoxCode, FilterSpec, PointCode, Points, Table};
use visiond_kernels::nms::Overlap;

use super::decoded::{Decoded, InputKeypoint};
use super::gpu_filter::{best_of, rows_of, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, Roles, classes_text, may_be};
use super::raw_numbers::{Numbers, not_probabilities};
use super::spec::{FacesSpec, FacesStyle};

pub(super) struct Faces {
    pub(super) class_count: usize,
    pub(super) spec: FacesSpec,
}

/// The right eye, the left eye, the nose, and the right and the left corner of the mouth.
const POINTS: usize = 5;

/// The variances of RetinaFace's prior boxes.
const CENTRE_VARIANCE: f32 = 0.1;
const SIZE_VARIANCE: f32 = 0.2;

struct Grid {
    columns: usize,
    lines: usize,
    /// Input pixels per cell.
    stride: f32,
    /// The side of each anchor of a cell in pixels of the input: the stride, or those of prior boxes.
    anchors: Vec<f32>,
}

impl Grid {
    fn rows(&self) -> usize {
        self.columns * self.lines * self.anchors.len()
    }
}

/// Outputs of equally many rows, and the grids that they hold in sequence.
struct Part {
    scores: usize,
    objectness: Option<usize>,
    boxes: usize,
    points: Option<usize>,
    grids: Vec<Grid>,
}

pub(super) struct FacesLayout {
    parts: Vec<Part>,
}

impl FacesLayout {
    fn has_points(&self) -> bool {
        self.parts.iter().all(|part| part.points.is_some())
    }
}

impl Faces {
    /// Returns the grids, with `anchors` anchors per cell unless the sizes of prior boxes determine the number.
    fn grids(&self, anchors: usize, (width, height): (u32, u32)) -> Vec<Grid> {
        let grid = |index: usize, stride: u32| {
            let stride = stride.max(1);
            let sizes = self.spec.min_sizes.get(index).map(Vec::as_slice).unwrap_or_default();
            let anchors = match self.spec.style {
                FacesStyle::Retinaface => sizes.iter().map(|&size| size as f32).collect(),
                FacesStyle::Scrfd | FacesStyle::Yunet => vec![stride as f32; anchors],
            };
            let cells = |side: u32| side.div_ceil(stride) as usize;
            Grid { columns: cells(width), lines: cells(height), stride: stride as f32, anchors }
        };
        self.spec.strides.iter().enumerate().map(|(index, &stride)| grid(index, stride)).collect()
    }

    /// Finds outputs for each grid.
    fn of_each_grid(&self, outputs: ModelOutputs<'_>, grids: Vec<Grid>) -> Option<FacesLayout> {
        let mut roles = Roles::new(outputs);
        let mut of_width = |width: usize| -> Option<Vec<usize>> {
            grids.iter().map(|grid| roles.any(|index| is_table(outputs, index, grid.rows(), width))).collect()
        };
        let is_yunet = self.spec.style == FacesStyle::Yunet;
        let scores = of_width(1)?;
        let objectness = if is_yunet { Some(of_width(1)?) } else { None };
        let boxes = of_width(4)?;
        let points = of_width(2 * POINTS);
        if is_yunet && points.is_none() {
            return None;
        }
        let at = |list: &Option<Vec<usize>>, index: usize| list.as_ref().and_then(|list| list.get(index).copied());
        let parts = zip(zip(scores, boxes), grids).enumerate().map(|(index, ((scores, boxes), grid))| Part {
            scores,
            objectness: at(&objectness, index),
            boxes,
            points: at(&points, index),
            grids: vec![grid],
        });
        Some(FacesLayout { parts: parts.collect() })
    }

    /// Finds outputs for all grids together.
    fn of_all_grids(outputs: ModelOutputs<'_>, grids: Vec<Grid>) -> Option<FacesLayout> {
        let rows = grids.iter().map(Grid::rows).sum();
        let mut roles = Roles::new(outputs);
        let mut of_width = |width: usize| roles.any(|index| is_table(outputs, index, rows, width));
        let (boxes, scores, points) = (of_width(4)?, of_width(2)?, of_width(2 * POINTS)?);
        Some(FacesLayout { parts: vec![Part { scores, objectness: None, boxes, points: Some(points), grids }] })
    }

    /// Returns a row's score; `None` if the row is missing.
    fn score(&self, scores: &[f32], objectness: Option<&[f32]>, row: usize) -> Option<f32> {
        match (self.spec.style, objectness) {
            (FacesStyle::Retinaface, _) => scores.get(2 * row + 1).copied(),
            (_, None) => scores.get(row).copied(),
            (_, Some(objectness)) => {
                Some((scores.get(row)?.clamp(0.0, 1.0) * objectness.get(row)?.clamp(0.0, 1.0)).sqrt())
            }
        }
    }

    /// Returns how an anchor of `side` pixels in a cell is decoded.
    fn anchor(&self, grid: &Grid, cell: usize, side: f32) -> Anchor {
        let (offset, scale, growth) = match self.spec.style {
            FacesStyle::Scrfd | FacesStyle::Yunet => (0.0, grid.stride, 1.0),
            FacesStyle::Retinaface => (0.5, CENTRE_VARIANCE * side, SIZE_VARIANCE),
        };
        let at = |index: usize| (index as f32 + offset) * grid.stride;
        Anchor { x: at(cell % grid.columns), y: at(cell / grid.columns), side, scale, growth }
    }
}

/// Whether an output may have this many rows and columns.
fn is_table(outputs: ModelOutputs<'_>, index: usize, rows: usize, width: usize) -> bool {
    outputs.shape(index).last::<2>().is_some_and(|[n, w]| may_be(n, rows) && may_be(w, width))
}

/// The origin of boxes and points, in pixels of the input.
struct Anchor {
    x: f32,
    y: f32,
    side: f32,
    /// The unit of offsets and distances.
    scale: f32,
    /// The factor of a size's logarithm.
    growth: f32,
}

impl Anchor {
    fn point(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        [self.x + x * self.scale, self.y + y * self.scale]
    }

    fn corners(&self, style: FacesStyle, [a, b, c, d]: [f32; 4]) -> [f32; 4] {
        if style == FacesStyle::Scrfd {
            let ([left, top], [right, bottom]) = (self.point([-a, -b]), self.point([c, d]));
            return [left, top, right, bottom];
        }
        let [x, y] = self.point([a, b]);
        let (w, h) = (self.side * (self.growth * c).exp(), self.side * (self.growth * d).exp());
        [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0]
    }
}

impl Decoder for Faces {
    type Layout = FacesLayout;

    fn reads(&self) -> &'static str {
        match self.spec.style {
            FacesStyle::Scrfd => {
                "scores [n, 1], boxes [n, 4] and perhaps points [n, 10] for each grid (style = \"scrfd\")"
            }
            FacesStyle::Yunet => {
                "classes [1, n, 1], objectness [1, n, 1], boxes [1, n, 4] and points [1, n, 10] for each grid \
                 (style = \"yunet\")"
            }
            FacesStyle::Retinaface => {
                "boxes [1, N, 4], scores [1, N, 2] and points [1, N, 10] (style = \"retinaface\")"
            }
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<FacesLayout, Misfit> {
        if self.class_count > 1 {
            return Err(format!("the card names {} instead of one", classes_text(self.class_count)).into());
        }
        let (style, strides) = (self.spec.style, &self.spec.strides);
        // YuNet's outputs would also fit SCRFD, except for the objectness, without which the scores are wrong.
        let (least, most) = (2 * strides.len(), 3 * strides.len());
        if style == FacesStyle::Scrfd && ![least, most].contains(&outputs.count()) {
            let count = outputs.count();
            return Err(
                format!("there are {count} outputs instead of {least} or {most} for strides {strides:?}").into()
            );
        }
        let anchors: &[usize] = if style == FacesStyle::Scrfd { &[2, 1] } else { &[1] };
        let found = anchors.iter().find_map(|&anchors| {
            let grids = self.grids(anchors, input_size);
            match style {
                FacesStyle::Retinaface => Self::of_all_grids(outputs, grids),
                FacesStyle::Scrfd | FacesStyle::Yunet => self.of_each_grid(outputs, grids),
            }
        });
        found.ok_or_else(|| {
            let has =
                |width: usize| (0..outputs.count()).any(|index| outputs.rows_and_columns(index)[1] == Some(width));
            let rows: Vec<usize> = self.grids(1, input_size).iter().map(Grid::rows).collect();
            let rows = match style {
                FacesStyle::Scrfd => format!("{rows:?} rows of each grid, or twice as many,"),
                FacesStyle::Yunet => format!("{rows:?} rows of each grid"),
                FacesStyle::Retinaface => format!("{} rows", rows.iter().sum::<usize>()),
            };
            let (width, height) = input_size;
            let problem =
                format!("no such outputs have the {rows} of strides {strides:?} over {width}x{height} pixels");
            // Boxes and scores alone would also fit an SSD.
            if style == FacesStyle::Retinaface && [4, 2, 2 * POINTS].into_iter().all(has) {
                let remedy = "write the `strides` and `min_sizes` that the model was trained with under [head] \
                              (`visiond inspect` shows the usual ones that fit)";
                return Misfit::at("head.min_sizes", problem, remedy);
            }
            problem.into()
        })
    }

    fn decode(&mut self, layout: &FacesLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let read = |index: usize| input.outputs[index].tensor.to_f32();
        let mut first_row = 0;
        for part in &layout.parts {
            let (scores, boxes) = (read(part.scores), read(part.boxes));
            let (objectness, points) = (part.objectness.map(read), part.points.map(read));
            let mut first = 0;
            for grid in &part.grids {
                for index in 0..grid.rows() {
                    let row = first + index;
                    let Some(score) = self.score(&scores, objectness.as_deref(), row) else { break };
                    // False for NaN.
                    let passes = score >= input.score_threshold;
                    let Some(&numbers) = boxes.as_chunks::<4>().0.get(row).filter(|_| passes) else { continue };
                    let count = grid.anchors.len();
                    let anchor = self.anchor(grid, index / count, grid.anchors[index % count]);
                    let row_of_all = first_row + row;
                    let corners = anchor.corners(self.spec.style, numbers);
                    if out.push(row_of_all, 0, score, corners)
                        && let Some(points) = &points
                        && let Some(points) = points.chunks_exact(2 * POINTS).nth(row)
                    {
                        let point = |&point: &[f32; 2]| {
                            let [x, y] = anchor.point(point);
                            InputKeypoint { x, y, score: None }
                        };
                        out.push_keypoints(row_of_all, points.as_chunks::<2>().0.iter().map(point));
                    }
                }
                first += grid.rows();
            }
            first_row += first;
        }
    }

    fn doubt(&self, layout: &FacesLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let scores = layout.parts.iter().flat_map(|part| [Some(part.scores), part.objectness]).flatten();
        let scores: Vec<_> = scores.map(|index| input.outputs[index].tensor.to_f32()).collect();
        let remedy = match self.spec.style {
            FacesStyle::Retinaface => "export the model with its softmax (`phase=\"test\"`), or correct `style`",
            FacesStyle::Scrfd | FacesStyle::Yunet => "export the model with its last sigmoid, or correct `style`",
        };
        not_probabilities(Numbers::of(scores.iter().flat_map(|part| part.iter())), FAMILY, remedy)
    }

    /// The filter's description has neither square roots nor prior boxes, so the outputs of YuNet and RetinaFace are copied: a
    /// megabyte at 640x640.
    fn filter(&self, layout: &FacesLayout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<FilterSpec> {
        if self.spec.style != FacesStyle::Scrfd {
            return None;
        }
        let (mut tables, mut first_row) = (Vec::new(), 0);
        for part in &layout.parts {
            let [grid] = &part.grids[..] else { return None };
            let values = |output: usize| rows_of(outputs, output).map(|(values, ..)| values);
            let points = match part.points {
                Some(points) => Some(values(points)?),
                None => None,
            };
            let &Grid { columns, lines, stride, ref anchors } = grid;
            let cells = filter::Grid { columns, lines, rows_per_cell: anchors.len(), stride, offset: 0.0 };
            let table = table(grid.rows(), values(part.scores)?, values(part.boxes)?);
            tables.push(Table { first_row, points, grid: cells, ..table });
            first_row += grid.rows();
        }
        let points = layout.has_points().then_some(Points { count: POINTS, code: PointCode::Cell });
        Some(FilterSpec { points, ..best_of(tables, 0..1, BoxCode::CellSides) })
    }

    fn suppression(&self, _layout: &FacesLayout) -> Suppression {
        Suppression::Best(match self.spec.style {
            FacesStyle::Yunet => Overlap::Points,
            FacesStyle::Scrfd | FacesStyle::Retinaface => Overlap::Pixels,
        })
    }

    fn keypoints(&self, layout: &FacesLayout) -> Option<usize> {
        Some(if layout.has_points() { POINTS } else { 0 })
    }
}
