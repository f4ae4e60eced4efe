//! YOLOv8, YOLOv9, YOLO11, YOLO12 without NMS inside: no objectness.
//!
//! Reads one output `[1, 4 + classes (+ keypoints) (+ masks), N]`, f32 or f16, or its transpose, `[1, N, 4 + ...]`: centre x,
//! centre y, width, height in pixels of the input, then one score per class, after the sigmoid. A candidate has its best class.
//! Pose models add `x, y` or `x, y, score` per keypoint in pixels of the input; segmentation models add mask coefficients for
//! the prototypes in a second output ([`super::masks`]). Oriented models end with the angle of the box in radians,
//! clockwise about its centre.
//!
//! The dimension with the card's width decides the orientation; without named classes the shorter dimension is the width.
//!
//! Source: `non_max_suppression` in ultralytics `utils/nms.py`, one class per box; `OBB` in ultralytics `nn/modules/head.py`.

use visiond_kernels::filter::{FilterSpec, Table, Values};
use visiond_kernels::mask::MaskSpec;
use visiond_kernels::nms::Overlap;

use super::decoded::{Decoded, InputKeypoint};
use super::gpu_filter::{ANGLE, best_of, known, plain_box, plain_points, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::masks;
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, classes_in, may_be};
use super::raw_numbers::{Numbers, no_pixels, not_probabilities, not_radians, wrong_unit};
use super::rows::{best_class, corners};
use super::spec::{BoxFormat, BoxUnit, Keypoints};

pub(super) struct Yolov8 {
    pub(super) class_count: usize,
    pub(super) keypoints: Option<Keypoints>,
    pub(super) masks: usize,
    pub(super) oriented: bool,
}

pub(super) struct Yolov8Layout {
    output: usize,
    /// The number of candidates.
    rows: usize,
    /// The numbers per candidate.
    width: usize,
    classes: usize,
    /// Whether a candidate's numbers are `rows` apart, as exported, and not adjacent.
    planes: bool,
}

impl Yolov8Layout {
    /// Returns where the candidates' numbers are, and how many candidates there are; `None` if the shape is unknown.
    fn table(&self, outputs: ModelOutputs<'_>) -> Option<(Values, usize)> {
        let [a, b] = known(outputs.shape(self.output))?;
        Some(match self.planes {
            true => (Values::planes(self.output, a, b), b),
            false => (Values::rows(self.output, a, b), a),
        })
    }
}

/// Anchors per block: their best scores and classes stay in the first-level cache.
const BLOCK: usize = 512;

/// Rejects the rows of YOLOv5: three anchors for each cell of its grids, where YOLOv8 has one candidate.
fn check_anchors(rows: Option<usize>, (width, height): (u32, u32)) -> Result<(), String> {
    const GRIDS: [&[u32]; 2] = [&[8, 16, 32], &[8, 16, 32, 64]];
    let cells =
        |strides: &[u32]| -> usize { strides.iter().map(|s| (width / s) as usize * (height / s) as usize).sum() };
    match (rows, GRIDS.iter().map(|grid| cells(grid)).find(|&cells| cells > 0 && rows == Some(3 * cells))) {
        (Some(rows), Some(cells)) => {
            Err(format!("has {rows} candidates, three anchors for each of {cells} cells as YOLOv5 has"))
        }
        _ => Ok(()),
    }
}

impl Yolov8 {
    fn other_numbers(&self) -> usize {
        4 + self.masks + self.keypoints.map_or(0, |k| k.values()) + usize::from(self.oriented)
    }

    fn add(
        &self,
        layout: &Yolov8Layout,
        values: &[f32],
        row: usize,
        (class, score): (u32, f32),
        input: &HeadInput<'_>,
        out: &mut Decoded,
    ) {
        let (start, step) = if layout.planes { (row, layout.rows) } else { (row * layout.width, 1) };
        let number = |column: usize| values[start + column * step];
        let numbers = [number(0), number(1), number(2), number(3)];
        let added = out.push(row, class, score, corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size));
        if added && self.oriented {
            out.push_angle(row, number(layout.width - 1));
        } else if let (true, Some(points)) = (added, self.keypoints) {
            let first = 4 + layout.classes;
            let each = points.values() / points.count;
            out.push_keypoints(
                row,
                (0..points.count).map(|k| InputKeypoint {
                    x: number(first + k * each),
                    y: number(first + k * each + 1),
                    score: points.scored.then(|| number(first + k * each + 2)),
                }),
            );
        }
    }
}

impl Decoder for Yolov8 {
    type Layout = Yolov8Layout;

    fn reads(&self) -> &'static str {
        if self.oriented {
            "one output [1, 4 + classes + 1, N] or its transpose, [1, N, 4 + ...]"
        } else {
            "one output [1, 4 + classes + 2 or 3 a keypoint, N] or its transpose, [1, N, 4 + ...]"
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Yolov8Layout, Misfit> {
        let others = self.other_numbers();
        let wanted = others + self.class_count;
        outputs.table(|output, [a, b]| {
            let planes = if self.class_count > 0 && may_be(a, wanted) != may_be(b, wanted) {
                may_be(a, wanted)
            } else {
                // Both may be the width, or neither: assume the exported orientation, unless the other dimension is clearly
                // shorter.
                !matches!((a, b), (Some(a), Some(b)) if b < a)
            };
            let (width, rows) = if planes { (a, b) } else { (b, a) };
            let what = if planes { "columns" } else { "rows" };
            let classes = classes_in(width, others, self.class_count, what)?;
            check_anchors(rows, input_size)?;
            Ok(Yolov8Layout {
                output,
                rows: rows.unwrap_or(0),
                width: width.unwrap_or(0),
                classes: classes.unwrap_or(0),
                planes,
            })
        })
    }

    fn decode(&mut self, layout: &Yolov8Layout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        if !layout.planes {
            for (row, numbers) in values.chunks_exact(layout.width.max(1)).enumerate() {
                if let Some(best) = best_class(&numbers[4..4 + layout.classes], input.score_threshold) {
                    self.add(layout, &values, row, best, input, out);
                }
            }
            return;
        }
        let (mut scores, mut classes) = ([0.0_f32; BLOCK], [0_u32; BLOCK]);
        for start in (0..layout.rows).step_by(BLOCK) {
            let length = BLOCK.min(layout.rows - start);
            let (scores, classes) = (&mut scores[..length], &mut classes[..length]);
            scores.fill(f32::NEG_INFINITY);
            classes.fill(0);
            for class in 0..layout.classes {
                let at = (4 + class) * layout.rows + start;
                let plane = &values[at..at + length];
                for ((best, best_class), &score) in scores.iter_mut().zip(classes.iter_mut()).zip(plane) {
                    let better = score > *best;
                    *best = if better { score } else { *best };
                    *best_class = if better { class as u32 } else { *best_class };
                }
            }
            for (offset, (&score, &class)) in scores.iter().zip(classes.iter()).enumerate() {
                if score >= input.score_threshold {
                    self.add(layout, &values, start + offset, (class, score), input, out);
                }
            }
        }
    }

    fn doubt(&self, layout: &Yolov8Layout, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[layout.output].tensor.to_f32();
        let (start, step) = if layout.planes { (1, layout.rows) } else { (layout.width, 1) };
        let numbers = |columns: std::ops::Range<usize>| {
            let values = &values;
            (0..layout.rows)
                .flat_map(move |row| columns.clone().map(move |column| &values[row * start + column * step]))
        };
        let scores = Numbers::of(numbers(4..4 + layout.classes));
        let boxes: Vec<f32> = numbers(0..4).copied().collect();
        not_probabilities(scores, FAMILY, "export the model with its last sigmoid, or correct `family`")
            .or_else(|| wrong_unit(boxes.as_chunks().0, BoxUnit::Pixels, FAMILY).map(|_| no_pixels()))
            .or_else(|| not_radians(numbers(layout.width - 1..layout.width).filter(|_| self.oriented)))
    }

    fn masks(&self, layout: &Yolov8Layout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<MaskSpec> {
        let (values, _) = layout.table(outputs)?;
        let first = self.other_numbers() + layout.classes - self.masks;
        masks::of_prototypes(outputs, self.masks, values.from_column(first))
    }

    fn filter(&self, layout: &Yolov8Layout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (values, rows) = layout.table(outputs)?;
        let points = match self.keypoints {
            _ if self.oriented => Some((layout.width - 1, ANGLE)),
            keypoints => keypoints.map(|k| (4 + layout.classes, plain_points(k, BoxUnit::Pixels, input_size))),
        };
        let table = Table {
            points: points.map(|(column, _)| values.from_column(column)),
            ..table(rows, values.from_column(4), values)
        };
        let boxes = plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
        Some(FilterSpec { points: points.map(|(_, points)| points), ..best_of(vec![table], 0..layout.classes, boxes) })
    }

    fn suppression(&self, _layout: &Yolov8Layout) -> Suppression {
        if self.oriented { Suppression::Oriented } else { Suppression::Best(Overlap::Points) }
    }

    fn keypoints(&self, _layout: &Yolov8Layout) -> Option<usize> {
        Some(self.keypoints.map_or(0, |points| points.count))
    }
}
