//! YOLOv5, YOLOv7 and YOLOX: one row per candidate, with an objectness.
//!
//! Reads one output `[1, N, 5 + classes (+ keypoints) (+ masks)]`, f32 or f16: x, y, width, height, objectness, then one score per
//! class, after the sigmoid. A score is objectness times the best class's score. Mask coefficients at the end of a row (YOLOv5-seg: 32) are
//! for the prototypes in another output ([`super::masks`]). Keypoints are in pixels of the input: x and y of each between
//! objectness and classes (YOLOv5-face: 5 points), or x, y and score of each after the classes (YOLOv7-pose, YOLOv5-pose: 17).
//!
//! YOLOv5, YOLOv7 and YOLOX with `decoded = true` (exported with `--decode_in_inference`) output centre and size in pixels of
//! the input; the N rows of YOLOv5 are the anchors of the three grids in sequence. In a plain export of YOLOX, N is the
//! number of cells in the grids of stride 8, 16 and 32, row by row; a box has its centre at `(x + cell) * stride` and the
//! size `exp(w) * stride`.
//!
//! Sources: `non_max_suppression` in ultralytics/yolov5 `utils/general.py`, one class per box (`multi_label=False`);
//! `non_max_suppression_face` in deepcam-cn/yolov5-face `utils/general.py`; `non_max_suppression` with `kpt_label` in
//! `utils/general.py` of WongKinYiu/yolov7, branch `pose`, and of TexasInstruments/edgeai-yolov5;
//! `demo_postprocess` in Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py`, `postprocess` in `boxes.py`.

use std::ops::Range;

use visiond_kernels::filter::{BoxCode, FilterSpec, Grid, Table};
use visiond_kernels::mask::MaskSpec;

use super::decoded::{Decoded, InputKeypoint};
use super::gpu_filter::{best_of, plain_box, plain_points, rows_of, table};
use super::head::{Decoder, HeadInput};
use super::masks;
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, check_cells, classes_in};
use super::raw_numbers::{Numbers, are_many, no_pixels, not_probabilities, wrong_unit};
use super::rows::{best_class, corners, four};
use super::spec::{BoxFormat, BoxUnit, Keypoints};

pub(super) struct Yolov5 {
    pub(super) class_count: usize,
    pub(super) keypoints: Option<Keypoints>,
    pub(super) masks: usize,
    /// The grids that boxes are relative to; `None` if they are decoded.
    pub(super) strides: Option<Vec<u32>>,
    /// Whether the card states `decoded`.
    pub(super) is_yolox: bool,
}

/// Larger than the logarithm of any size in cells.
const LARGEST_LOGARITHM: f32 = 12.0;

/// The cells of the smallest input (64 pixels) whose grids show whether boxes are decoded.
const ENOUGH_CELLS: usize = 84;

pub(super) struct Yolov5Layout {
    output: usize,
    width: usize,
    /// The columns of the classes' scores.
    classes: Range<usize>,
    /// The columns of the keypoints; empty without any.
    points: Range<usize>,
}

/// Returns the cells of a grid along x and y.
fn cells(input_size: (u32, u32), stride: u32) -> (usize, usize) {
    let stride = stride.max(1);
    ((input_size.0 / stride) as usize, (input_size.1 / stride) as usize)
}

/// Whether nearly every centre lies within two cells of the middle of its row's own cell, in pixels, as with decoded boxes.
/// Offsets within a cell are that close only in the first cells of a grid.
fn are_on_grid(boxes: &[[f32; 4]], strides: &[u32], input_size: (u32, u32)) -> bool {
    let middles = strides.iter().flat_map(|&stride| {
        let (columns, lines) = cells(input_size, stride);
        let middle = move |index: usize| (index as f32 + 0.5) * stride as f32;
        (0..columns * lines).map(move |cell| (middle(cell % columns), middle(cell / columns), 2.0 * stride as f32))
    });
    let near = |(&[x, y, ..], (u, v, margin)): (&[f32; 4], (f32, f32, f32))| {
        (x - u).abs() <= margin && (y - v).abs() <= margin
    };
    let count = boxes.iter().zip(middles).filter(|pair| near(*pair)).count();
    boxes.len() >= ENOUGH_CELLS && 10 * count >= 9 * boxes.len()
}

/// Whether nearly every centre lies within 16 pixels of the input's top left corner, like offsets within a cell. The centres
/// of decoded boxes are spread over the input.
fn are_near_corner(boxes: &[[f32; 4]], (width, height): (u32, u32)) -> bool {
    const NEAR: f32 = 16.0;
    // Rows of zeros are padding of a decoded export; no offset is exactly 0.
    let used = || boxes.iter().filter(|numbers| numbers.iter().any(|number| *number != 0.0));
    let count = used().filter(|[x, y, ..]| x.abs() <= NEAR && y.abs() <= NEAR).count();
    let is_large = width >= 64 && height >= 64;
    is_large && used().count() >= ENOUGH_CELLS && 10 * count >= 9 * used().count()
}

impl Decoder for Yolov5 {
    type Layout = Yolov5Layout;

    fn reads(&self) -> &'static str {
        match self.strides {
            None if self.keypoints.is_some() => "one output [1, N, 5 + classes + numbers of keypoints]",
            None => "one output [1, N, 5 + classes]",
            Some(_) => "one output [1, cells of all grids, 5 + classes]",
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Yolov5Layout, Misfit> {
        outputs.table(|output, [rows, width]| {
            let numbers = self.keypoints.map_or(0, Keypoints::values);
            let classes = classes_in(width, 5 + numbers + self.masks, self.class_count, "rows")?.unwrap_or(0);
            let points_first = self.keypoints.is_some_and(|points| !points.scored);
            let (classes, points) = if points_first {
                (5 + numbers..5 + numbers + classes, 5..5 + numbers)
            } else {
                (5..5 + classes, 5 + classes..5 + classes + numbers)
            };
            if let Some(strides) = &self.strides {
                check_cells(rows, |stride| cells(input_size, stride), strides, input_size)?;
            }
            Ok(Yolov5Layout { output, width: width.unwrap_or(0), classes, points })
        })
    }

    fn decode(&mut self, layout: &Yolov5Layout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let mut add = |index: usize, row: &[f32], cell: Option<(usize, usize, u32)>| {
            let Some((class, best)) = best_class(&row[layout.classes.clone()], 0.0) else { return };
            let score = row[4] * best;
            let Some([x, y, w, h]) = four(row, 0) else { return };
            if score >= input.score_threshold {
                let numbers = match cell {
                    None => [x, y, w, h],
                    Some((column, line, stride)) => {
                        let stride = stride as f32;
                        [(x + column as f32) * stride, (y + line as f32) * stride, w.exp() * stride, h.exp() * stride]
                    }
                };
                let corners = corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size);
                if out.push(index, class, score, corners)
                    && let Some(points) = self.keypoints
                {
                    let each = row[layout.points.clone()].chunks_exact(if points.scored { 3 } else { 2 });
                    let point = |p: &[f32]| InputKeypoint { x: p[0], y: p[1], score: p.get(2).copied() };
                    out.push_keypoints(index, each.map(point));
                }
            }
        };
        // Like the published code, first drop rows by objectness alone: a score cannot be higher.
        let passes = |row: &[f32]| row[4] >= input.score_threshold;
        let mut rows = values.chunks_exact(layout.width.max(1)).enumerate();
        let Some(strides) = &self.strides else {
            return rows.filter(|(_, row)| passes(row)).for_each(|(index, row)| add(index, row, None));
        };
        for &stride in strides {
            let (columns, lines) = cells(input.input_size, stride);
            let cells = rows.by_ref().take(columns * lines).enumerate();
            for (cell, (index, row)) in cells.filter(|(_, (_, row))| passes(row)) {
                add(index, row, Some((cell % columns, cell / columns, stride)));
            }
        }
    }

    fn doubt(&self, layout: &Yolov5Layout, input: &HeadInput<'_>) -> Option<Misfit> {
        const DECODED: &str = "head.decoded";
        let values = input.outputs[layout.output].tensor.to_f32();
        let rows = || values.chunks_exact(layout.width.max(6));
        let scores = rows().flat_map(|row| row[4..5].iter().chain(&row[layout.classes.clone()]));
        let scores = Numbers::of(scores);
        if let Some(doubt) =
            not_probabilities(scores, FAMILY, "export the model with its last sigmoid, or correct `family`")
        {
            return Some(doubt);
        }
        let boxes: Vec<[f32; 4]> = rows().filter_map(|row| four(row, 0)).collect();
        match &self.strides {
            // exp(x) of this value is a million pixels.
            Some(strides) => (are_many(&boxes, |&[_, _, w, h]| w > LARGEST_LOGARITHM || h > LARGEST_LOGARITHM)
                || are_on_grid(&boxes, strides, input.input_size))
            .then(|| {
                let problem = "its boxes are already in pixels";
                Misfit::at(DECODED, problem, "write `decoded = true` under [head]")
            }),
            None if self.is_yolox => {
                let problem = if are_many(&boxes, |&[_, _, w, h]| w < 0.0 || h < 0.0) {
                    "many of its boxes have a negative size, so they are not decoded"
                } else if are_near_corner(&boxes, input.input_size) {
                    "its boxes all lie in the first cells of the input, so they are not decoded"
                } else {
                    return None;
                };
                Some(Misfit::at(DECODED, problem, "write `decoded = false` under [head]"))
            }
            None => wrong_unit(&boxes, BoxUnit::Pixels, FAMILY).map(|_| no_pixels()),
        }
    }

    fn masks(&self, layout: &Yolov5Layout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<MaskSpec> {
        let (values, _, _) = rows_of(outputs, layout.output)?;
        masks::of_prototypes(outputs, self.masks, values.from_column(layout.classes.end.max(layout.points.end)))
    }

    fn filter(&self, layout: &Yolov5Layout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (values, rows, _) = rows_of(outputs, layout.output)?;
        let part = |first_row: usize, rows: usize, grid: Grid| {
            let values = values.from_row(first_row);
            let objectness = Some(values.from_column(4));
            let points = self.keypoints.map(|_| values.from_column(layout.points.start));
            let scores = values.from_column(layout.classes.start);
            Table { first_row, objectness, points, grid, ..table(rows, scores, values) }
        };
        let classes = 0..layout.classes.len();
        let Some(strides) = &self.strides else {
            let boxes = plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
            let points = self.keypoints.map(|points| plain_points(points, BoxUnit::Pixels, input_size));
            return Some(FilterSpec { points, ..best_of(vec![part(0, rows, Grid::default())], classes, boxes) });
        };
        let mut first_row = 0;
        let mut of_stride = |&stride: &u32| {
            let (columns, lines) = cells(input_size, stride);
            let grid = Grid { columns, lines, stride: stride as f32, ..Grid::default() };
            first_row += columns * lines;
            part(first_row - columns * lines, columns * lines, grid)
        };
        Some(best_of(strides.iter().map(&mut of_stride).collect(), classes, BoxCode::CellExp))
    }

    fn keypoints(&self, _layout: &Yolov5Layout) -> Option<usize> {
        Some(self.keypoints.map_or(0, |points| points.count))
    }
}
