//! YOLOv5, YOLOv7 and YOLOX: one row per candidate, with an objectness.
//!
//! Reads one output `[1, N, 5 + classes (+ masks)]`, f32 or f16: x, y, width, height, objectness, then one score per class, after
//! the sigmoid. A score is objectness times the best class's score. Mask coefficients at the end of a row (YOLOv5-seg: 32) are
//! ignored.
//!
//! YOLOv5, YOLOv7 and YOLOX with `decoded = true` (exported with `--decode_in_inference`) give centre and size in pixels of the
//! input; the N rows of YOLOv5 are the anchors of the three grids in sequence. In a plain export of YOLOX, N counts the cells of
//! the grids of stride 8, 16 and 32, row by row; a box has its centre at `(x + cell) * stride` and the size `exp(w) * stride`.
//!
//! Sources: `non_max_suppression` in ultralytics/yolov5 `utils/general.py`, one class per box (`multi_label=False`);
//! `demo_postprocess` in Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py`, `postprocess` in `boxes.py`.

use visiond_kernels::filter::{BoxCode, FilterSpec, Grid, Table};

use super::decoded::Decoded;
use super::gpu_filter::{best_of, plain_box, rows_of, table};
use super::head::{Decoder, HeadInput};
use super::outputs::{ModelOutputs, check_cells, classes_in};
use super::rows::{best_class, corners, four};
use super::spec::{BoxFormat, BoxUnit};

pub(super) struct Yolov5 {
    pub(super) class_count: usize,
    pub(super) masks: usize,
    /// The grids that boxes are relative to; `None` if they are decoded.
    pub(super) strides: Option<Vec<u32>>,
}

pub(super) struct Yolov5Layout {
    output: usize,
    width: usize,
    classes: usize,
}

/// Returns the cells of a grid along x and y.
fn cells(input_size: (u32, u32), stride: u32) -> (usize, usize) {
    let stride = stride.max(1);
    ((input_size.0 / stride) as usize, (input_size.1 / stride) as usize)
}

impl Decoder for Yolov5 {
    type Layout = Yolov5Layout;

    fn reads(&self) -> &'static str {
        match self.strides {
            None => "one output [1, N, 5 + classes]",
            Some(_) => "one output [1, cells of all grids, 5 + classes]",
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Yolov5Layout, String> {
        outputs.table(|output, [rows, width]| {
            let classes = classes_in(width, 5 + self.masks, self.class_count, "rows")?;
            if let Some(strides) = &self.strides {
                check_cells(rows, |stride| cells(input_size, stride), strides, input_size)?;
            }
            Ok(Yolov5Layout { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &Yolov5Layout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let mut add = |index: usize, row: &[f32], cell: Option<(usize, usize, u32)>| {
            let Some((class, best)) = best_class(&row[5..5 + layout.classes], 0.0) else { return };
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
                out.push(index, class, score, corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size));
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

    fn filter(&self, layout: &Yolov5Layout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (values, rows, _) = rows_of(outputs, layout.output)?;
        let part = |first_row: usize, rows: usize, grid: Grid| {
            let values = values.from_row(first_row);
            let objectness = Some(values.from_column(4));
            Table { first_row, objectness, grid, ..table(rows, values.from_column(5), values) }
        };
        let Some(strides) = &self.strides else {
            let boxes = plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
            return Some(best_of(vec![part(0, rows, Grid::default())], 0..layout.classes, boxes));
        };
        let mut first_row = 0;
        let mut of_stride = |&stride: &u32| {
            let (columns, lines) = cells(input_size, stride);
            let grid = Grid { columns, lines, stride: stride as f32, ..Grid::default() };
            first_row += columns * lines;
            part(first_row - columns * lines, columns * lines, grid)
        };
        Some(best_of(strides.iter().map(&mut of_stride).collect(), 0..layout.classes, BoxCode::CellExp))
    }
}
