//! YOLOX: like YOLOv5, but relative to a grid.
//!
//! Reads one output `[1, N, 5 + classes]`, f32 or f16: x, y, w, h, objectness, one score per class (after the sigmoid). N
//! counts the cells of the grids of stride 8, 16 and 32, row by row. In a plain export, a box has its centre at `(x + cell) *
//! stride` and the size `exp(w) * stride`; with `decoded = true` (exported with `--decode_in_inference`) the four numbers are
//! pixels of the input. A score is objectness times the best class's score.
//!
//! Source: `demo_postprocess` in Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py`, `postprocess` in `boxes.py`.

use visiond_kernels::filter::{BoxCode, FilterSpec, Grid, Table};

use super::classes::{check_cells, classes_in};
use super::decoded::Decoded;
use super::decoder::Decoder;
use super::gpu_filter;
use super::head::HeadInput;
use super::rows::{best_class, corners, four};
use super::shapes::Outputs;
use super::spec::{BoxFormat, BoxUnit, Family, YoloxSpec};

pub(super) struct Yolox {
    pub(super) class_count: usize,
    pub(super) spec: YoloxSpec,
}

pub(super) struct OutputLayout {
    output: usize,
    width: usize,
    classes: usize,
}

/// Returns the cells of a grid along x and y.
fn cells(input_size: (u32, u32), stride: u32) -> (usize, usize) {
    let stride = stride.max(1);
    ((input_size.0 / stride) as usize, (input_size.1 / stride) as usize)
}

impl Decoder for Yolox {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Yolox;
    const READS: &'static str = "one output [1, cells of all grids, 5 + classes]";

    fn layout(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<OutputLayout, String> {
        let wanted: usize = self.spec.strides.iter().map(|&s| cells(input_size, s)).map(|(w, h)| w * h).sum();
        outputs.table(|output, [rows, width]| {
            let classes = classes_in(width, 5, self.class_count, "rows")?;
            if !self.spec.decoded {
                check_cells(rows, wanted, &self.spec.strides, input_size)?;
            }
            Ok(OutputLayout { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let width = layout.width.max(1);
        let mut add = |index: usize, row: &[f32], cell: Option<(usize, usize, u32)>| {
            let objectness = row[4];
            if objectness < input.score_threshold {
                return;
            }
            let Some((class, best)) = best_class(&row[5..5 + layout.classes], 0.0) else { return };
            let score = objectness * best;
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
        let mut rows = values.chunks_exact(width).enumerate();
        if self.spec.decoded {
            for (index, row) in rows {
                add(index, row, None);
            }
            return;
        }
        for &stride in &self.spec.strides {
            let (columns, lines) = cells(input.input_size, stride);
            for (cell, (index, row)) in rows.by_ref().take(columns * lines).enumerate() {
                add(index, row, Some((cell % columns, cell / columns, stride)));
            }
        }
    }

    fn filter(
        &self,
        layout: &OutputLayout,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec> {
        let (values, rows, _) = gpu_filter::rows_of(outputs, layout.output)?;
        let part = |first_row: usize, rows: usize, grid: Grid| {
            let values = values.from_row(first_row);
            let objectness = Some(values.from_column(4));
            Table { first_row, objectness, grid, ..gpu_filter::table(rows, values.from_column(5), values) }
        };
        let (tables, boxes) = if self.spec.decoded {
            let boxes = gpu_filter::plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
            (vec![part(0, rows, Grid::default())], boxes)
        } else {
            let mut first_row = 0;
            let mut of_stride = |&stride: &u32| {
                let (columns, lines) = cells(input_size, stride);
                let grid = Grid { columns, lines, stride: stride as f32, ..Grid::default() };
                let table = part(first_row, columns * lines, grid);
                first_row += table.rows;
                table
            };
            (self.spec.strides.iter().map(&mut of_stride).collect(), BoxCode::CellExp)
        };
        Some(gpu_filter::best_of(tables, 0..layout.classes, boxes, input_size, score_threshold))
    }
}
