//! NanoDet and NanoDet-Plus: class scores and distance distributions on grids.
//!
//! Reads one output `[1, N, classes + 4 * (reg_max + 1)]`, f32 or f16, or two outputs per stride, `[1, n, classes]` and `[1, n,
//! 4 * (reg_max + 1)]`. N counts the cells of the grids of all strides (ceil of size by stride), row by row. Scores are after
//! the sigmoid, unless the card sets `sigmoid = true`. The distance of a side is the expected bin of the softmax over `reg_max
//! + 1` logits, times the stride; left, top, right, bottom, from `(x + 0.5) * stride` (`cell_centre = true`: NanoDet,
//! NanoDet-g) or from `x * stride` (NanoDet-Plus). Boxes are not clipped to the input.
//!
//! Source: `nanodet/model/head/gfl_head.py` and `nanodet_plus_head.py` of RangiLyu/nanodet. There boxes are clipped to the
//! input before NMS; here they are clipped to the frame after it.
//!
//! A frame costs one pass over the scores, eight at a time; a box is computed only for a row that passes.

use std::borrow::Cow;

use visiond_kernels::filter::{self, BoxCode, FilterSpec, Table, Values};

use super::classes::{check_cells, classes_in};
use super::decoded::Decoded;
use super::decoder::Decoder;
use super::gpu_filter;
use super::head::HeadInput;
use super::rows::{best_class, expected_bin, logit_floor, sigmoid};
use super::shapes::{Outputs, may_be};
use super::spec::{Activation, Family, NanodetSpec};

pub(super) struct Nanodet {
    pub(super) class_count: usize,
    pub(super) spec: NanodetSpec,
}

pub(super) enum OutputLayout {
    /// One output for all strides.
    Joint { output: usize, width: usize, classes: usize },
    /// A pair of scores and distances per stride.
    Split { outputs: Vec<(usize, usize)>, classes: usize },
}

/// Returns the cells of a grid along x and y.
fn cells(input_size: (u32, u32), stride: u32) -> (usize, usize) {
    let stride = stride.max(1);
    (input_size.0.div_ceil(stride) as usize, input_size.1.div_ceil(stride) as usize)
}

/// The numbers of one grid: where a row's scores and distances are.
struct Grid<'a> {
    scores: &'a [f32],
    distances: &'a [f32],
    score_step: usize,
    distance_step: usize,
    classes: usize,
    columns: usize,
    cell_count: usize,
    stride: u32,
    first_row: usize,
}

impl Nanodet {
    fn bins(&self) -> usize {
        self.spec.reg_max + 1
    }

    fn split(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Option<OutputLayout> {
        let mut used = Vec::new();
        let mut take = |width: usize, rows: usize| {
            let found = (0..outputs.count()).find(|index| {
                let fits = |[n, w]: [Option<usize>; 2]| may_be(w, width) && may_be(n, rows);
                !used.contains(index) && outputs.shape(*index).last::<2>().is_some_and(fits)
            })?;
            used.push(found);
            Some(found)
        };
        let mut pairs = Vec::new();
        for &stride in &self.spec.strides {
            let (w, h) = cells(input_size, stride);
            pairs.push((take(self.class_count, w * h)?, take(4 * self.bins(), w * h)?));
        }
        Some(OutputLayout::Split { outputs: pairs, classes: self.class_count })
    }

    fn grid(&self, grid: &Grid<'_>, threshold: f32, input: &HeadInput<'_>, out: &mut Decoded) {
        let stride = grid.stride as f32;
        let offset = if self.spec.cell_centre { 0.5 } else { 0.0 };
        let rows = grid.scores.chunks(grid.score_step).zip(grid.distances.chunks(grid.distance_step));
        for (cell, (scores, distances)) in rows.take(grid.cell_count).enumerate() {
            let Some(scores) = scores.get(..grid.classes) else { continue };
            let Some((class, best)) = best_class(scores, threshold) else { continue };
            let score = if self.spec.sigmoid { sigmoid(best) } else { best };
            let Some(distances) = distances.get(..4 * self.bins()) else { continue };
            if score < input.score_threshold {
                continue;
            }
            let distance =
                |side: usize| expected_bin(&distances[side * self.bins()..(side + 1) * self.bins()]) * stride;
            let x = ((cell % grid.columns) as f32 + offset) * stride;
            let y = ((cell / grid.columns) as f32 + offset) * stride;
            let corners = [x - distance(0), y - distance(1), x + distance(2), y + distance(3)];
            out.push(grid.first_row + cell, class, score, corners);
        }
    }
}

impl Decoder for Nanodet {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Nanodet;
    const READS: &'static str = "one output [1, cells of all grids, classes + 4 * (reg_max + 1)], or two a stride, [1, cells, classes] and [1, cells, 4 * (reg_max + 1)]";

    fn layout(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<OutputLayout, String> {
        if outputs.count() >= 2 * self.spec.strides.len()
            && self.class_count > 0
            && let Some(layout) = self.split(outputs, input_size)
        {
            return Ok(layout);
        }
        let wanted: usize = self.spec.strides.iter().map(|&s| cells(input_size, s)).map(|(w, h)| w * h).sum();
        outputs.table(|output, [rows, width]| {
            let classes = classes_in(width, 4 * self.bins(), self.class_count, "rows")
                .map_err(|problem| format!("{problem} (reg_max = {})", self.spec.reg_max))?;
            check_cells(rows, wanted, &self.spec.strides, input_size)?;
            Ok(OutputLayout::Joint { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let threshold = if self.spec.sigmoid { logit_floor(input.score_threshold) } else { input.score_threshold };
        let joint: Cow<'_, [f32]> = match layout {
            OutputLayout::Joint { output, .. } => input.outputs[*output].tensor.to_f32(),
            OutputLayout::Split { .. } => Cow::Borrowed(&[]),
        };
        let mut first_row = 0;
        for (level, &stride) in self.spec.strides.iter().enumerate() {
            let (columns, lines) = cells(input.input_size, stride);
            let cell_count = columns * lines;
            let base = Grid {
                scores: &[],
                distances: &[],
                score_step: 1,
                distance_step: 1,
                classes: 0,
                columns: columns.max(1),
                cell_count,
                stride,
                first_row,
            };
            match layout {
                &OutputLayout::Joint { width, classes, .. } => {
                    let rows = joint.get(first_row * width..).unwrap_or(&[]);
                    let distances = rows.get(classes..).unwrap_or(&[]);
                    let step = width.max(1);
                    let grid = Grid { scores: rows, distances, score_step: step, distance_step: step, classes, ..base };
                    self.grid(&grid, threshold, input, out);
                }
                OutputLayout::Split { outputs, classes } => {
                    let (scores, distances) = outputs[level];
                    let scores = input.outputs[scores].tensor.to_f32();
                    let distances = input.outputs[distances].tensor.to_f32();
                    let grid = Grid {
                        scores: &scores,
                        distances: &distances,
                        score_step: (*classes).max(1),
                        distance_step: 4 * self.bins(),
                        classes: *classes,
                        ..base
                    };
                    self.grid(&grid, threshold, input, out);
                }
            }
            first_row += cell_count;
        }
    }

    fn filter(
        &self,
        layout: &OutputLayout,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec> {
        let grid = |stride: u32| {
            let (columns, lines) = cells(input_size, stride);
            let offset = if self.spec.cell_centre { 0.5 } else { 0.0 };
            filter::Grid { columns, lines, stride: stride as f32, offset, ..filter::Grid::default() }
        };
        let mut tables = Vec::with_capacity(self.spec.strides.len());
        let mut first_row = 0;
        let mut add = |rows: usize, grid: filter::Grid, scores: Values, boxes: Values| {
            tables.push(Table { first_row, grid, ..gpu_filter::table(rows, scores, boxes) });
            first_row += rows;
            first_row
        };
        let classes = match layout {
            &OutputLayout::Joint { output, classes, .. } => {
                let (mut values, ..) = gpu_filter::rows_of(outputs, output)?;
                for grid in self.spec.strides.iter().map(|&stride| grid(stride)) {
                    let rows = grid.columns * grid.lines;
                    add(rows, grid, values, values.from_column(classes));
                    values = values.from_row(rows);
                }
                classes
            }
            OutputLayout::Split { outputs: pairs, classes } => {
                for (&stride, &(scores, boxes)) in self.spec.strides.iter().zip(pairs) {
                    let (scores, rows, _) = gpu_filter::rows_of(outputs, scores)?;
                    let (boxes, ..) = gpu_filter::rows_of(outputs, boxes)?;
                    add(rows, grid(stride), scores, boxes);
                }
                *classes
            }
        };
        let activation = if self.spec.sigmoid { Activation::Sigmoid } else { Activation::None };
        Some(FilterSpec {
            scores: gpu_filter::score_code(activation, score_threshold),
            ..gpu_filter::best_of(
                tables,
                0..classes,
                BoxCode::Distances { bins: self.bins() },
                input_size,
                score_threshold,
            )
        })
    }
}
