//! NanoDet and NanoDet-Plus: class scores and distance distributions on grids.
//!
//! Reads one output `[1, N, classes + 4 * (reg_max + 1)]`, f32 or f16, or two outputs per stride, `[1, n, classes]` and `[1, n,
//! 4 * (reg_max + 1)]`, or two outputs for all strides (KerasCV's YOLOv8), or two maps per stride, `[1, classes, h, w]` and
//! `[1, 4 * (reg_max + 1), h, w]` (MIT YOLO, which are copied from the GPU and decoded on the CPU). N is the number of cells
//! in the grids of all strides (ceil of size by stride), row by row. Scores are after the sigmoid, unless the card sets
//! `sigmoid = true`. The distance of a side is the expected bin of the softmax over `reg_max + 1` logits, times the stride;
//! left, top, right, bottom, from `(x + 0.5) * stride` (`cell_centre = true`: NanoDet, NanoDet-g) or from `x * stride`
//! (NanoDet-Plus). With `reg_max = 0` the four numbers are the distances in cells. Boxes are clipped to the input.
//!
//! A cell is a candidate for every class whose score passes, as in NanoDet's Python code; with `multi_label = false` for its best
//! class, as in NanoDet's C++ demos.
//!
//! Source: `get_bboxes` in `nanodet/model/head/gfl_head.py` and `nanodet_plus_head.py` of RangiLyu/nanodet, and `multiclass_nms` in
//! `nanodet/model/module/nms.py`; `decode_regression_to_boxes`, `get_anchors` and `dist2bbox` in keras_cv
//! `models/object_detection/yolo_v8/yolo_v8_detector.py`; `Vec2Box` in MultimediaTechLab/YOLO `yolo/utils/bounding_box_utils.py`.
//!
//! A frame costs one pass over the scores, eight at a time; boxes are computed only for rows that pass.

use std::borrow::Cow;

use visiond_kernels::filter::{BoxCode, Choice, FilterSpec, Grid, Table, Values};

use super::decoded::Decoded;
use super::gpu_filter::{best_of, rows_of, score_code, table};
use super::head::{Decoder, HeadInput};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, Roles, check_cells, classes_in, may_be};
use super::raw_numbers::{Numbers, not_logits, not_probabilities};
use super::rows::{best_class, expected_bin, logit_floor, sigmoid};
use super::spec::{Activation, NanodetSpec};

pub(super) struct Nanodet {
    pub(super) class_count: usize,
    pub(super) spec: NanodetSpec,
}

pub(super) enum NanodetLayout {
    /// One output for all strides.
    Joint { output: usize, width: usize, classes: usize },
    /// A pair of scores and distances per stride.
    Split { outputs: Vec<(usize, usize)>, classes: usize },
    /// A pair of scores and distances for all strides.
    Pair { scores: usize, distances: usize, classes: usize },
    /// A pair of maps of scores and distances per stride.
    Maps { outputs: Vec<(usize, usize)>, classes: usize },
}

/// Returns the cells of a grid along x and y.
fn cells(input_size: (u32, u32), stride: u32) -> (usize, usize) {
    let stride = stride.max(1);
    (input_size.0.div_ceil(stride) as usize, input_size.1.div_ceil(stride) as usize)
}

impl Nanodet {
    fn bins(&self) -> usize {
        self.spec.reg_max + 1
    }

    fn split(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<NanodetLayout> {
        let mut roles = Roles::new(outputs);
        let mut take = |width: usize, rows: usize| {
            let fits = |[n, w]: [Option<usize>; 2]| may_be(w, width) && may_be(n, rows);
            roles.any(|index| outputs.shape(index).last::<2>().is_some_and(fits))
        };
        let mut pairs = Vec::new();
        for &stride in &self.spec.strides {
            let (w, h) = cells(input_size, stride);
            pairs.push((take(self.class_count, w * h)?, take(4 * self.bins(), w * h)?));
        }
        Some(NanodetLayout::Split { outputs: pairs, classes: self.class_count })
    }

    /// Finds maps of scores and distances, the first of each grid.
    fn maps(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<NanodetLayout> {
        let mut roles = Roles::new(outputs);
        let mut take = |planes: usize, columns: usize, lines: usize| {
            let fits = |[c, h, w]: [Option<usize>; 3]| c == Some(planes) && may_be(h, lines) && may_be(w, columns);
            let is_map = |index: usize| outputs.shape(index).has_rank(4);
            roles.any(|index| is_map(index) && outputs.shape(index).last::<3>().is_some_and(fits))
        };
        let mut pairs = Vec::new();
        for &stride in &self.spec.strides {
            let (columns, lines) = cells(input_size, stride);
            pairs.push((take(self.class_count, columns, lines)?, take(4 * self.bins(), columns, lines)?));
        }
        Some(NanodetLayout::Maps { outputs: pairs, classes: self.class_count })
    }

    /// Decodes maps, in which the numbers of a cell are not adjacent.
    fn decode_maps(&self, outputs: &[(usize, usize)], classes: usize, input: &HeadInput<'_>, out: &mut Decoded) {
        let bins = self.bins();
        let (mut scores, mut distances) = (Vec::new(), Vec::new());
        let threshold = self.floor(input.score_threshold);
        let mut first_row = 0;
        for (&stride, &(of_scores, of_distances)) in self.spec.strides.iter().zip(outputs) {
            let (columns, lines) = cells(input.input_size, stride);
            let count = columns * lines;
            let read = |index: usize| input.outputs[index].tensor.to_f32();
            let (score_map, distance_map) = (read(of_scores), read(of_distances));
            let gather = |map: &[f32], planes: usize, cell: usize, row: &mut Vec<f32>| {
                row.clear();
                row.extend((0..planes).filter_map(|plane| map.get(plane * count + cell)));
            };
            for cell in 0..count {
                gather(&score_map, classes, cell, &mut scores);
                gather(&distance_map, 4 * bins, cell, &mut distances);
                self.add(
                    (first_row + cell, cell % columns, cell / columns),
                    stride,
                    (&scores, &distances),
                    threshold,
                    input,
                    out,
                );
            }
            first_row += count;
        }
    }

    /// Returns the smallest raw score that may pass.
    fn floor(&self, score_threshold: f32) -> f32 {
        if self.spec.sigmoid { logit_floor(score_threshold) } else { score_threshold }
    }

    /// Adds the candidates of a cell, given its row number, column and line.
    #[inline]
    fn add(
        &self,
        (row, column, line): (usize, usize, usize),
        stride: u32,
        (scores, distances): (&[f32], &[f32]),
        threshold: f32,
        input: &HeadInput<'_>,
        out: &mut Decoded,
    ) {
        let (bins, stride) = (self.bins(), stride as f32);
        let Some((class, best)) = best_class(scores, threshold) else { return };
        let score_of = |raw: f32| if self.spec.sigmoid { sigmoid(raw) } else { raw };
        let Some(distances) = distances.get(..4 * bins) else { return };
        if score_of(best) < input.score_threshold {
            return;
        }
        let distance = |side: usize| match bins {
            1 => distances[side] * stride,
            _ => expected_bin(&distances[side * bins..(side + 1) * bins]) * stride,
        };
        let centre = if self.spec.cell_centre { 0.5 } else { 0.0 };
        let (x, y) = ((column as f32 + centre) * stride, (line as f32 + centre) * stride);
        let corners = [x - distance(0), y - distance(1), x + distance(2), y + distance(3)];
        if !self.spec.multi_label {
            out.push(row, class, score_of(best), corners);
            return;
        }
        for (class, &raw) in scores.iter().enumerate().filter(|&(_, &raw)| raw >= threshold) {
            let score = score_of(raw);
            if score >= input.score_threshold {
                out.push(row, class as u32, score, corners);
            }
        }
    }

    /// Finds the distances of all cells in one output and the scores in the other.
    fn pair(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Option<NanodetLayout>, Misfit> {
        let table = |index: usize| outputs.shape(index).last::<2>();
        let [Some([rows, first]), Some([others, second])] = [table(0), table(1)] else { return Ok(None) };
        let is_distances = |width: Option<usize>| width == Some(4 * self.bins());
        let named = |index: usize| outputs.name(index).to_ascii_lowercase().contains("box");
        let distances = match (is_distances(first), is_distances(second)) {
            (true, true) => usize::from(named(1)),
            (true, false) => 0,
            (false, true) => 1,
            (false, false) => return Ok(None),
        };
        let (scores, width) = if distances == 0 { (1, second) } else { (0, first) };
        for rows in [rows, others] {
            check_cells(rows, |stride| cells(input_size, stride), &self.spec.strides, input_size)
                .map_err(|problem| format!("`{}` {problem}", outputs.name(distances)))?;
        }
        let classes = classes_in(width, 0, self.class_count, "rows")
            .map_err(|problem| format!("`{}` {problem}", outputs.name(scores)))?;
        Ok(Some(NanodetLayout::Pair { scores, distances, classes: classes.unwrap_or(0) }))
    }
}

impl Decoder for Nanodet {
    type Layout = NanodetLayout;

    fn reads(&self) -> &'static str {
        "one output [1, cells of all grids, classes + 4 * (reg_max + 1)], or two a stride or for all, [1, cells, classes] and [1, cells, 4 * (reg_max + 1)], or two maps a stride"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<NanodetLayout, Misfit> {
        if outputs.count() >= 2 * self.spec.strides.len()
            && self.class_count > 0
            && let Some(layout) = self.split(outputs, input_size).or_else(|| self.maps(outputs, input_size))
        {
            return Ok(layout);
        }
        if outputs.count() == 2
            && let Some(layout) = self.pair(outputs, input_size)?
        {
            return Ok(layout);
        }
        outputs.table(|output, [rows, width]| {
            let classes = classes_in(width, 4 * self.bins(), self.class_count, "rows")
                .map_err(|problem| format!("{problem} (reg_max = {})", self.spec.reg_max))?;
            check_cells(rows, |stride| cells(input_size, stride), &self.spec.strides, input_size)?;
            Ok(NanodetLayout::Joint { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &NanodetLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        if let NanodetLayout::Maps { outputs, classes } = layout {
            return self.decode_maps(outputs, *classes, input, out);
        }
        let threshold = self.floor(input.score_threshold);
        let (bins, read) = (self.bins(), |index: usize| input.outputs[index].tensor.to_f32());
        let joint = match layout {
            &NanodetLayout::Joint { output, .. } => read(output),
            &NanodetLayout::Pair { scores, .. } => read(scores),
            NanodetLayout::Split { .. } | NanodetLayout::Maps { .. } => Cow::default(),
        };
        let apart = match layout {
            &NanodetLayout::Pair { distances, .. } => read(distances),
            _ => Cow::default(),
        };
        let mut first_row = 0;
        for (level, &stride) in self.spec.strides.iter().enumerate() {
            let (columns, lines) = cells(input.input_size, stride);
            let split;
            let (classes, scores, score_step, distances, distance_step) = match layout {
                &NanodetLayout::Joint { width, classes, .. } => {
                    let rows = joint.get(first_row * width..).unwrap_or(&[]);
                    (classes, rows, width.max(1), rows.get(classes..).unwrap_or(&[]), width.max(1))
                }
                &NanodetLayout::Pair { classes, .. } => {
                    let scores = joint.get(first_row * classes..).unwrap_or(&[]);
                    let distances = apart.get(first_row * 4 * bins..).unwrap_or(&[]);
                    (classes, scores, classes.max(1), distances, 4 * bins)
                }
                // Decoded above.
                NanodetLayout::Maps { .. } => return,
                NanodetLayout::Split { outputs, classes } => {
                    split = (read(outputs[level].0), read(outputs[level].1));
                    (*classes, &*split.0, (*classes).max(1), &*split.1, 4 * bins)
                }
            };
            let rows = scores.chunks(score_step).zip(distances.chunks(distance_step));
            for (cell, (scores, distances)) in rows.take(columns * lines).enumerate() {
                let Some(scores) = scores.get(..classes) else { continue };
                let place = (first_row + cell, cell % columns, cell / columns);
                self.add(place, stride, (scores, distances), threshold, input, out);
            }
            first_row += columns * lines;
        }
    }

    fn doubt(&self, layout: &NanodetLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const KEY: &str = "head.sigmoid";
        let read = |index: usize| input.outputs[index].tensor.to_f32();
        let scores: Vec<f32> = match layout {
            &NanodetLayout::Joint { output, width, classes } => {
                read(output).chunks_exact(width.max(1)).flat_map(|row| &row[..classes]).copied().collect()
            }
            &NanodetLayout::Pair { scores, .. } => read(scores).into_owned(),
            NanodetLayout::Split { outputs, .. } | NanodetLayout::Maps { outputs, .. } => {
                outputs.iter().flat_map(|(scores, _)| read(*scores).into_owned()).collect()
            }
        };
        let scores = Numbers::of(&scores);
        if self.spec.sigmoid {
            not_logits(scores, KEY, "write `sigmoid = false` under [head]")
        } else {
            not_probabilities(scores, KEY, "write `sigmoid = true` under [head]")
        }
    }

    fn filter(&self, layout: &NanodetLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        // The filter applies a softmax over the bins.
        if self.spec.reg_max == 0 {
            return None;
        }
        let grid = |stride: u32| {
            let (columns, lines) = cells(input_size, stride);
            let offset = if self.spec.cell_centre { 0.5 } else { 0.0 };
            Grid { columns, lines, stride: stride as f32, offset, ..Grid::default() }
        };
        let mut tables = Vec::with_capacity(self.spec.strides.len());
        let mut first_row = 0;
        let mut add = |rows: usize, grid: Grid, scores: Values, boxes: Values| {
            tables.push(Table { first_row, grid, ..table(rows, scores, boxes) });
            first_row += rows;
            first_row
        };
        let classes = match layout {
            &NanodetLayout::Joint { output, classes, .. } => {
                let (mut values, ..) = rows_of(outputs, output)?;
                for grid in self.spec.strides.iter().map(|&stride| grid(stride)) {
                    let rows = grid.columns * grid.lines;
                    add(rows, grid, values, values.from_column(classes));
                    values = values.from_row(rows);
                }
                classes
            }
            &NanodetLayout::Pair { scores, distances, classes } => {
                let (mut scores, ..) = rows_of(outputs, scores)?;
                let (mut boxes, ..) = rows_of(outputs, distances)?;
                for grid in self.spec.strides.iter().map(|&stride| grid(stride)) {
                    let rows = grid.columns * grid.lines;
                    add(rows, grid, scores, boxes);
                    (scores, boxes) = (scores.from_row(rows), boxes.from_row(rows));
                }
                classes
            }
            // The filter reads rows.
            NanodetLayout::Maps { .. } => return None,
            NanodetLayout::Split { outputs: pairs, classes } => {
                for (&stride, &(scores, boxes)) in self.spec.strides.iter().zip(pairs) {
                    let (scores, rows, _) = rows_of(outputs, scores)?;
                    let (boxes, ..) = rows_of(outputs, boxes)?;
                    add(rows, grid(stride), scores, boxes);
                }
                *classes
            }
        };
        let activation = if self.spec.sigmoid { Activation::Sigmoid } else { Activation::None };
        let boxes = BoxCode::Distances { bins: self.bins() };
        let choice = if self.spec.multi_label { Choice::Every { peaks: false, row_step: 0 } } else { Choice::BestRaw };
        Some(FilterSpec { scores: score_code(activation), choice, ..best_of(tables, 0..classes, boxes) })
    }

    fn clips(&self) -> bool {
        true
    }
}
