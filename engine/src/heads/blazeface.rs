//! BlazeFace and MediaPipe's other detectors with anchors of one size: boxes and points are offsets from anchors.
//!
//! Reads scores `[1, N, 1]` (logits of the one class) and boxes `[1, N, 4 + 2 * points]`: dx, dy, width, height, then x, y of
//! each point. All are pixels of the input; centre and points are relative to the anchor's centre. The N rows are in one pair
//! of outputs, or in one pair per grid. Outputs are found by their shapes.
//!
//! Each stride names a layer, and consecutive layers of equal stride share a grid of ceil(size / stride) cells. Rows go cell by
//! cell, and within a cell layer by layer, with two anchors per layer, or one if N is half as large. A cell's anchors all lie
//! at its centre, `(x + 0.5) / columns` of the input's width. BlazeFace's strides, which the card need not name, are `[8, 16,
//! 16, 16]` for 128x128 pixels (front camera, short range) and `[16, 32, 32, 32]` for 256x256 (back camera): a grid of 16x16
//! cells with 2 anchors each, then one of 8x8 with 6. Its six points are the right eye, the left eye, the tip of the nose, the
//! middle of the mouth, the right ear and the left ear, from the person's own point of view.
//!
//! Source: MediaPipe's `face_detection_short_range_common.pbtxt`, `face_detection_back_desktop_live.pbtxt` and
//! `face_detection_full_range.pbtxt`, `ssd_anchors_calculator.cc` (`fixed_anchor_size`) and
//! `tensors_to_detections_calculator.cc`. MediaPipe first clips logits to +-100, which makes no difference in f32.
//! Overlapping boxes are blended by their scores, as in `non_max_suppression_calculator.cc` (`WEIGHTED`).

use visiond_kernels::filter::{self, BoxCode, FilterSpec, PointCode, Points, Table};

use super::decoded::{Decoded, InputKeypoint};
use super::gpu_filter::{best_of, rows_of, score_code, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, OutputShape, Roles, classes_text, may_agree, may_be};
use super::raw_numbers::{Numbers, not_logits};
use super::rows::{logit_floor, sigmoid};
use super::spec::{Activation, BlazefaceSpec};

pub(super) struct Blazeface {
    pub(super) class_count: usize,
    pub(super) spec: BlazefaceSpec,
}

/// The cells along x and y, and how many layers share them.
#[derive(Clone, Copy)]
struct Grid {
    columns: usize,
    lines: usize,
    layers: usize,
}

impl Grid {
    fn rows(&self, anchors: usize) -> usize {
        self.columns * self.lines * self.layers * anchors
    }
}

/// Two outputs and the grids that they hold in sequence.
struct Part {
    scores: usize,
    boxes: usize,
    grids: Vec<Grid>,
}

pub(super) struct BlazefaceLayout {
    parts: Vec<Part>,
    /// Anchors per cell and layer.
    anchors: usize,
    /// Numbers per box, including its points.
    width: usize,
}

/// Anchors per cell and layer: MediaPipe adds one of an interpolated size, unless configured otherwise.
const ANCHORS: [usize; 2] = [2, 1];

/// Returns the strides of both of BlazeFace's sizes: the grids have 16 and 8 cells per line.
fn usual_strides(width: u32) -> Vec<u32> {
    let (fine, coarse) = (width / 16, width / 8);
    vec![fine, coarse, coarse, coarse]
}

impl Blazeface {
    fn strides(&self, input_size: (u32, u32)) -> Vec<u32> {
        self.spec.strides.clone().unwrap_or_else(|| usual_strides(input_size.0))
    }
}

fn grids(strides: &[u32], (width, height): (u32, u32)) -> Vec<Grid> {
    let grid = |layers: &[u32]| {
        let stride = layers[0].max(1);
        let cells = |side: u32| side.div_ceil(stride) as usize;
        Grid { columns: cells(width), lines: cells(height), layers: layers.len() }
    };
    strides.chunk_by(|a, b| a == b).map(grid).collect()
}

fn total(grids: &[Grid], anchors: usize) -> usize {
    grids.iter().map(|grid| grid.rows(anchors)).sum()
}

/// Finds two outputs for each of `groups`; `None` if any is missing.
fn find(outputs: ModelOutputs<'_>, groups: &[&[Grid]], anchors: usize) -> Option<BlazefaceLayout> {
    let mut roles = Roles::new(outputs);
    let mut parts = Vec::with_capacity(groups.len());
    let mut box_width = None;
    for grids in groups {
        let rows = total(grids, anchors);
        let table = |shape: OutputShape| shape.last::<2>().filter(|[n, _]| may_be(*n, rows));
        let one_score = |shape| table(shape).is_some_and(|[_, width]| may_be(width, 1));
        let fits = |width: Option<usize>| may_agree(width, box_width) && width.is_none_or(|w| w >= 4 && w % 2 == 0);
        let alike = |shape| table(shape).is_some_and(|[_, width]| fits(width));
        let scores = roles.find("scores", None, &["score", "class", "conf"], one_score).ok()??;
        let boxes = roles.find("boxes", None, &["box", "reg", "loc"], alike).ok()??;
        box_width = box_width.or(outputs.rows_and_columns(boxes)[1]);
        parts.push(Part { scores, boxes, grids: grids.to_vec() });
    }
    Some(BlazefaceLayout { parts, anchors, width: box_width.unwrap_or(4) })
}

impl Decoder for Blazeface {
    type Layout = BlazefaceLayout;

    fn reads(&self) -> &'static str {
        "scores [1, anchors, 1] and boxes [1, anchors, 4 + 2 a keypoint], for all grids or for each"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<BlazefaceLayout, Misfit> {
        if self.class_count > 1 {
            return Err(format!("the card names {} instead of one", classes_text(self.class_count)).into());
        }
        let strides = self.strides(input_size);
        let grids = grids(&strides, input_size);
        let each: Vec<&[Grid]> = grids.chunks(1).collect();
        for anchors in ANCHORS {
            if let Some(layout) = find(outputs, &[&grids], anchors).or_else(|| find(outputs, &each, anchors)) {
                return Ok(layout);
            }
        }
        let rows: Vec<usize> = grids.iter().map(|grid| grid.rows(ANCHORS[0])).collect();
        let all = total(&grids, ANCHORS[0]);
        Err(format!(
            "no such pair has the {all} rows (or {rows:?} of each grid, or half as many) of strides {strides:?} \
             over {}x{} pixels",
            input_size.0, input_size.1
        )
        .into())
    }

    fn decode(&mut self, layout: &BlazefaceLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let floor = logit_floor(input.score_threshold);
        let (input_w, input_h) = (input.input_size.0 as f32, input.input_size.1 as f32);
        let mut first_row = 0;
        for part in &layout.parts {
            let scores = input.outputs[part.scores].tensor.to_f32();
            let boxes = input.outputs[part.boxes].tensor.to_f32();
            let mut rows = scores.iter().zip(boxes.chunks_exact(layout.width));
            for grid in &part.grids {
                let count = grid.rows(layout.anchors);
                for (index, (&logit, numbers)) in rows.by_ref().take(count).enumerate() {
                    if logit.is_nan() || logit < floor {
                        continue;
                    }
                    let score = sigmoid(logit);
                    let &[dx, dy, w, h, ref points @ ..] = numbers else { continue };
                    // The model may return negative sizes, which MediaPipe also drops.
                    if score < input.score_threshold || w < 0.0 || h < 0.0 {
                        continue;
                    }
                    let cell = index / (grid.layers * layout.anchors);
                    let centre_x = ((cell % grid.columns) as f32 + 0.5) / grid.columns as f32 * input_w;
                    let centre_y = ((cell / grid.columns) as f32 + 0.5) / grid.lines as f32 * input_h;
                    let (x, y) = (centre_x + dx, centre_y + dy);
                    let corners = [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0];
                    let row = first_row + index;
                    if out.push(row, 0, score, corners) {
                        let (points, _) = points.as_chunks::<2>();
                        let point = |[x, y]: &[f32; 2]| InputKeypoint { x: centre_x + x, y: centre_y + y, score: None };
                        out.push_keypoints(row, points.iter().map(point));
                    }
                }
                first_row += count;
            }
        }
    }

    fn doubt(&self, layout: &BlazefaceLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let scores: Vec<_> = layout.parts.iter().map(|part| input.outputs[part.scores].tensor.to_f32()).collect();
        let scores = Numbers::of(scores.iter().flat_map(|part| part.iter()));
        not_logits(scores, FAMILY, "export the model without its last sigmoid, or correct `family`")
    }

    fn filter(
        &self,
        layout: &BlazefaceLayout,
        outputs: ModelOutputs<'_>,
        _input_size: (u32, u32),
    ) -> Option<FilterSpec> {
        let mut tables = Vec::new();
        let mut first_row = 0;
        for part in &layout.parts {
            let (mut scores, ..) = rows_of(outputs, part.scores)?;
            let (mut boxes, ..) = rows_of(outputs, part.boxes)?;
            for grid in &part.grids {
                let rows = grid.rows(layout.anchors);
                let cells = filter::Grid {
                    columns: grid.columns,
                    lines: grid.lines,
                    rows_per_cell: grid.layers * layout.anchors,
                    ..filter::Grid::default()
                };
                let points = Some(boxes.from_column(4));
                tables.push(Table { first_row, grid: cells, points, ..table(rows, scores, boxes) });
                first_row += rows;
                (scores, boxes) = (scores.from_row(rows), boxes.from_row(rows));
            }
        }
        let count = layout.width.saturating_sub(4) / 2;
        Some(FilterSpec {
            scores: score_code(Activation::Sigmoid),
            points: (count > 0).then_some(Points { count, code: PointCode::Anchor }),
            ..best_of(tables, 0..1, BoxCode::Anchor)
        })
    }

    fn suppression(&self, _layout: &BlazefaceLayout) -> Suppression {
        Suppression::Blend
    }

    fn keypoints(&self, layout: &BlazefaceLayout) -> Option<usize> {
        // An open width is treated as 4.
        Some(layout.width.saturating_sub(4) / 2).filter(|count| *count > 0)
    }
}
