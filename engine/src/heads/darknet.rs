//! Darknet's YOLO before the decoding of boxes: YOLOv2, YOLOv3, YOLOv4 and their tiny ones.
//!
//! Reads one map per grid, `[1, anchors * (5 + classes), h, w]`: for each anchor x, y, width, height, objectness and the scores of
//! the classes, all as they come from the last convolution. The card has the anchors of all grids, in pixels of the input, beginning
//! with the grid of the smallest cells, and for YOLOv4 the `scale_x_y` of each grid. A box has its centre at `(cell + sigmoid(x) *
//! scale - (scale - 1) / 2)` cells and the size `anchor * exp(w)`. A box is a candidate for every class of which the product of
//! objectness and score passes; `activation = "softmax"` is YOLOv2's.
//!
//! The GPU's filter takes no logarithm of an objectness, so these outputs are copied and decoded on the CPU: 3.6 MB per frame of
//! YOLOv3 at 416x416.
//!
//! Source: AlexeyAB/darknet `src/yolo_layer.c` (`forward_yolo_layer`, `get_yolo_box`, `get_yolo_detections`) and `region_layer.c`.

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::head::{Decoder, HeadInput};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, classes_in};
use super::raw_numbers::{Numbers, not_logits};
use super::rows::{corners, logit_floor, sigmoid, softmax};
use super::spec::{Activation, BoxFormat, BoxUnit, DarknetSpec};

pub(super) struct Darknet {
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
    pub(super) spec: DarknetSpec,
}

struct GridMap {
    output: usize,
    lines: usize,
    columns: usize,
}

pub(super) struct DarknetLayout {
    /// The grid of the smallest cells first.
    grids: Vec<GridMap>,
    anchors: usize,
    classes: usize,
}

impl Decoder for Darknet {
    type Layout = DarknetLayout;

    fn reads(&self) -> &'static str {
        "a map of each grid, [1, anchors * (5 + classes), h, w]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<DarknetLayout, Misfit> {
        const KEY: &str = "head.anchors";
        let maps: Vec<(usize, [Option<usize>; 3])> =
            (0..outputs.count()).filter_map(|index| Some((index, outputs.shape(index).last::<3>()?))).collect();
        let Some((first, [planes, ..])) = maps.first().copied() else {
            return Err("no output is [1, anchors * (5 + classes), h, w]".into());
        };
        let all = self.spec.anchors.len();
        let anchors = all / maps.len();
        if anchors == 0 || !all.is_multiple_of(maps.len()) {
            let problem = format!("the card has {all} anchors for {} grids", maps.len());
            return Err(Misfit::at(KEY, problem, "write as many pairs of width and height for each grid"));
        }
        if let Some((other, _)) = maps.iter().find(|(_, [other, ..])| other.is_some() && *other != planes) {
            let [one, other] = [first, *other].map(|index| outputs.name(index));
            return Err(format!("`{one}` and `{other}` have different numbers of planes").into());
        }
        if let Some(planes) = planes.filter(|planes| !planes.is_multiple_of(anchors)) {
            let problem =
                format!("`{}` has {planes} planes, which {anchors} anchors cannot share", outputs.name(first));
            return Err(Misfit::at(KEY, problem, "write the anchors of the model's .cfg, as many for each grid"));
        }
        let classes = classes_in(planes.map(|planes| planes / anchors), 5, self.class_count, "anchors")
            .map_err(|problem| format!("`{}` {problem}", outputs.name(first)))?;
        let grid = |(output, [_, lines, columns]): (usize, [Option<usize>; 3])| GridMap {
            output,
            lines: lines.unwrap_or(0),
            columns: columns.unwrap_or(0),
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
            let cells = grid.lines * grid.columns;
            let scale = self.spec.scale_x_y.get(level).copied().unwrap_or(1.0);
            let cell_size = [
                input.input_size.0 as f32 / grid.columns.max(1) as f32,
                input.input_size.1 as f32 / grid.lines.max(1) as f32,
            ];
            let own = self.spec.anchors.iter().skip(level * anchors).take(anchors);
            let planes = values.chunks_exact(((5 + classes) * cells).max(1));
            for (&[anchor_w, anchor_h], planes) in own.zip(planes) {
                for cell in 0..cells {
                    let number = |plane: usize| planes[plane * cells + cell];
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
                    let numbers = [
                        centre(0, cell % grid.columns, cell_size[0]),
                        centre(1, cell / grid.columns, cell_size[1]),
                        number(2).exp() * anchor_w,
                        number(3).exp() * anchor_h,
                    ];
                    let corners = corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size);
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
            let cells = grid.lines * grid.columns;
            for planes in values.chunks_exact(((5 + layout.classes) * cells).max(1)) {
                found.extend_from_slice(&planes[4 * cells..5 * cells]);
            }
        }
        not_logits(Numbers::of(&found), FAMILY, "export the model without the sigmoids after its last layers")
    }

    fn filter(&self, _: &DarknetLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }
}
