//! Darknet's YOLO before the decoding of boxes: YOLOv2, YOLOv3, YOLOv4 and their tiny variants.
//!
//! Reads one map per grid, `[1, anchors * (5 + classes), h, w]` or `[1, anchors, h, w, 5 + classes]`: for each anchor x, y,
//! width, height, objectness and the scores of the classes, all straight from the last convolution. The card lists the
//! anchors of all grids in pixels of the input, starting with the grid of the smallest cells, and for YOLOv4 the `scale_x_y`
//! of each grid. A box has its centre at `(cell + sigmoid(x) * scale - (scale - 1) / 2)` cells and the size `anchor *
//! exp(w)`. A box is a candidate for every class whose product of objectness and score passes; YOLOv2 uses `activation =
//! "softmax"`.
//!
//! With `style = "yolov5"` the centre is at `(cell + 2 * sigmoid(x) - 0.5)` cells, the size is `anchor * (2 * sigmoid(w))^2`, and a box has
//! its best class: the layers of YOLOv5 and YOLOv7.
//!
//! Source: AlexeyAB/darknet `src/yolo_layer.c` (`forward_yolo_layer`, `get_yolo_box`, `get_yolo_detections`) and `region_layer.c`;
//! `Detect` in ultralytics/yolov5 `models/yolo.py`.

use visiond_kernels::filter::{self, BoxCode, Choice, FilterSpec, MAX_TABLES, Table, Values};

use super::decoded::Decoded;
use super::gpu_filter::{best_of, score_code, table};
use super::head::{Decoder, HeadInput};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, classes_in};
use super::raw_numbers::{Numbers, not_logits};
use super::rows::{best_class, corners, logit_floor, sigmoid, softmax};
use super::spec::{Activation, BoxFormat, BoxUnit, DarknetSpec, GridStyle};

pub(super) struct Darknet {
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
    pub(super) spec: DarknetSpec,
}

struct GridMap {
    output: usize,
    lines: usize,
    columns: usize,
    /// Whether the numbers of a cell are adjacent, as opposed to in planes.
    in_rows: bool,
}

impl GridMap {
    fn cells(&self) -> usize {
        self.lines * self.columns
    }

    /// Returns the offset of a cell's first number, and the distance between its numbers, within one anchor's numbers.
    fn place(&self, cell: usize, width: usize) -> (usize, usize) {
        if self.in_rows { (cell * width, 1) } else { (cell, self.cells()) }
    }
}

pub(super) struct DarknetLayout {
    /// The grid of the smallest cells first.
    grids: Vec<GridMap>,
    anchors: usize,
    classes: usize,
}

impl Darknet {
    /// Returns the range of a grid's centres, in cells.
    fn centre_scale(&self, level: usize) -> f32 {
        let usual = if self.spec.style == GridStyle::Yolov5 { 2.0 } else { 1.0 };
        self.spec.scale_x_y.get(level).copied().unwrap_or(usual)
    }
}

impl Decoder for Darknet {
    type Layout = DarknetLayout;

    fn reads(&self) -> &'static str {
        "a map of each grid, [1, anchors * (5 + classes), h, w] or [1, anchors, h, w, 5 + classes]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<DarknetLayout, Misfit> {
        const KEY: &str = "head.anchors";
        // Planes, lines, columns, and whether a cell's numbers are adjacent; the planes are anchors times numbers.
        let map = |index: usize| {
            let shape = outputs.shape(index);
            if let Some([planes, lines, columns]) = shape.last::<3>().filter(|_| !shape.has_rank(5)) {
                return Some((index, [planes, lines, columns], false));
            }
            let [anchors, lines, columns, width] = shape.last::<4>()?;
            let planes = anchors.zip(width).map(|(anchors, width)| anchors.saturating_mul(width));
            Some((index, [planes, lines, columns], true))
        };
        let maps: Vec<(usize, [Option<usize>; 3], bool)> = (0..outputs.count()).filter_map(map).collect();
        let Some((first, [planes, ..], _)) = maps.first().copied() else {
            return Err("no output is [1, anchors * (5 + classes), h, w]".into());
        };
        let all = self.spec.anchors.len();
        let anchors = all / maps.len();
        if anchors == 0 || !all.is_multiple_of(maps.len()) {
            let problem = format!("the card has {all} anchors for {} grids", maps.len());
            return Err(Misfit::at(KEY, problem, "write as many pairs of width and height for each grid"));
        }
        if let Some((other, ..)) = maps.iter().find(|(_, [other, ..], _)| other.is_some() && *other != planes) {
            let [one, other] = [first, *other].map(|index| outputs.name(index));
            return Err(format!("`{one}` and `{other}` have different numbers of planes").into());
        }
        if let Some(planes) = planes.filter(|planes| !planes.is_multiple_of(anchors)) {
            let problem =
                format!("`{}` has {planes} planes, which {anchors} anchors cannot share", outputs.name(first));
            return Err(Misfit::at(KEY, problem, "write the anchors of the model's .cfg, as many for each grid"));
        }
        let of_rows = |(index, _, in_rows): &(usize, [Option<usize>; 3], bool)| {
            let own = outputs.shape(*index).last::<4>().and_then(|[own, ..]| own).filter(|_| *in_rows)?;
            (own != anchors).then_some((*index, own))
        };
        if let Some((index, own)) = maps.iter().find_map(of_rows) {
            let problem = format!("`{}` has {own} anchors, but the card {anchors} for each grid", outputs.name(index));
            return Err(Misfit::at(KEY, problem, "write as many pairs of width and height for each grid"));
        }
        let classes = classes_in(planes.map(|planes| planes / anchors), 5, self.class_count, "anchors")
            .map_err(|problem| format!("`{}` {problem}", outputs.name(first)))?;
        let grid = |(output, [_, lines, columns], in_rows): (usize, [Option<usize>; 3], bool)| GridMap {
            output,
            lines: lines.unwrap_or(0),
            columns: columns.unwrap_or(0),
            in_rows,
        };
        let mut grids: Vec<GridMap> = maps.into_iter().map(grid).collect();
        grids.sort_by_key(|grid| std::cmp::Reverse(grid.lines.saturating_mul(grid.columns)));
        Ok(DarknetLayout { grids, anchors, classes: classes.unwrap_or(0) })
    }

    fn decode(&mut self, layout: &DarknetLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let &DarknetLayout { ref grids, anchors, classes } = layout;
        let (floor, threshold) = (logit_floor(input.score_threshold), input.score_threshold);
        let mut first_row = 0;
        let (mut raw, mut scores) = (Vec::new(), Vec::new());
        for (level, grid) in grids.iter().enumerate() {
            let values = input.outputs[grid.output].tensor.to_f32();
            let cells = grid.cells();
            let scale = self.centre_scale(level);
            let cell_size = [
                input.input_size.0 as f32 / grid.columns.max(1) as f32,
                input.input_size.1 as f32 / grid.lines.max(1) as f32,
            ];
            let own = self.spec.anchors.iter().skip(level * anchors).take(anchors);
            let planes = values.chunks_exact(((5 + classes) * cells).max(1));
            for (&[anchor_w, anchor_h], planes) in own.zip(planes) {
                for cell in 0..cells {
                    let (at, step) = grid.place(cell, 5 + classes);
                    let number = |plane: usize| planes[at + plane * step];
                    let row = first_row + cell;
                    let objectness = number(4);
                    if objectness.is_nan() || objectness < floor || sigmoid(objectness) < threshold {
                        continue;
                    }
                    let objectness = sigmoid(objectness);
                    raw.clear();
                    raw.extend((5..5 + classes).map(number));
                    if self.spec.activation == Activation::Softmax {
                        softmax(&raw, &mut scores);
                    } else {
                        scores.clear();
                        scores.extend(raw.iter().map(|&raw| sigmoid(raw)));
                    }
                    let centre = |plane: usize, at: usize, side: f32| {
                        (at as f32 + sigmoid(number(plane)) * scale - (scale - 1.0) / 2.0) * side
                    };
                    let size = |plane: usize, anchor: f32| match self.spec.style {
                        GridStyle::Darknet => number(plane).exp() * anchor,
                        GridStyle::Yolov5 => (2.0 * sigmoid(number(plane))).powi(2) * anchor,
                    };
                    let numbers = [
                        centre(0, cell % grid.columns, cell_size[0]),
                        centre(1, cell / grid.columns, cell_size[1]),
                        size(2, anchor_w),
                        size(3, anchor_h),
                    ];
                    let corners = corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size);
                    if self.spec.style == GridStyle::Yolov5 {
                        scores.iter_mut().for_each(|score| *score *= objectness);
                        if let Some((class, score)) = best_class(&scores, threshold) {
                            out.push(row, class, score, corners);
                        }
                        continue;
                    }
                    for (class, score) in scores.iter().map(|score| score * objectness).enumerate() {
                        if score >= threshold {
                            out.push(row, class as u32, score, corners);
                        }
                    }
                }
                first_row += cells;
            }
        }
    }

    fn doubt(&self, layout: &DarknetLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let mut found = Vec::new();
        for grid in &layout.grids {
            let values = input.outputs[grid.output].tensor.to_f32();
            let cells = grid.cells();
            for planes in values.chunks_exact(((5 + layout.classes) * cells).max(1)) {
                let width = 5 + layout.classes;
                found.extend((0..cells).map(|cell| grid.place(cell, width)).map(|(at, step)| planes[at + 4 * step]));
            }
        }
        not_logits(Numbers::of(&found), FAMILY, "export the model without the sigmoids after its last layers")
    }

    fn filter(&self, layout: &DarknetLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        let &DarknetLayout { ref grids, anchors, classes } = layout;
        let is_open = classes == 0 || grids.iter().any(|grid| grid.cells() == 0);
        if is_open || grids.len().saturating_mul(anchors) > MAX_TABLES {
            return None;
        }
        let (width, mut first_row, mut tables) = (5 + classes, 0, Vec::new());
        for (level, grid) in grids.iter().enumerate() {
            let (output, cells) = (grid.output, grid.cells());
            let own = self.spec.anchors.iter().skip(level * anchors).take(anchors);
            for (at, &anchor) in own.enumerate() {
                let (row_step, column_step) = if grid.in_rows { (width, 1) } else { (1, cells) };
                let frame_len = anchors * width * cells;
                let values = Values { output, offset: at * width * cells, row_step, column_step, frame_len };
                tables.push(Table {
                    first_row,
                    objectness: Some(values.from_column(4)),
                    grid: filter::Grid { columns: grid.columns, lines: grid.lines, ..filter::Grid::default() },
                    anchor,
                    centre_scale: self.centre_scale(level),
                    ..table(cells, values.from_column(5), values)
                });
                first_row += cells;
            }
        }
        let (boxes, choice) = match self.spec.style {
            GridStyle::Darknet => (BoxCode::AnchorExp, Choice::Every { peaks: false, row_step: 0 }),
            GridStyle::Yolov5 => (BoxCode::AnchorSquare, Choice::BestScore),
        };
        let activation = match self.spec.activation {
            Activation::Softmax => Activation::Softmax,
            _ => Activation::Sigmoid,
        };
        Some(FilterSpec { scores: score_code(activation), choice, ..best_of(tables, 0..classes, boxes) })
    }
}
