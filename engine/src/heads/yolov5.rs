//! YOLOv5 and YOLOv7: one row a candidate, with an objectness.
//!
//! Reads one output `[1, N, 5 + classes (+ masks)]`, f32 or f16: centre x, centre y, width, height in pixels of the input,
//! objectness, then a score a class; all decoded, sigmoid already taken. A score is objectness times the best class's.
//! Mask coefficients at a row's end (YOLOv5-seg: 32) are not read. Rows of N: the three grids' anchors one after another.
//!
//! Source: `non_max_suppression` in ultralytics/yolov5 `utils/general.py`, one class a box (`multi_label=False`).

use visiond_kernels::filter::{FilterSpec, Table};

use super::filtered;
use super::rows::{best_class, corners, four};
use super::shapes::Outputs;
use super::spec::{BoxFormat, BoxUnit};
use super::{Decoded, Decoder, Family, HeadInput, classes_in};

pub(super) struct Yolov5 {
    pub(super) class_count: usize,
    pub(super) masks: usize,
}

pub(super) struct Plan {
    output: usize,
    width: usize,
    classes: usize,
}

impl Decoder for Yolov5 {
    type Plan = Plan;

    const FAMILY: Family = Family::Yolov5;
    const READS: &'static str = "one output [1, N, 5 + classes]";

    fn plan(&self, outputs: &impl Outputs, _input_size: (u32, u32)) -> Result<Plan, String> {
        outputs.table(|output, [_, width]| {
            let classes = classes_in(width, 5 + self.masks, self.class_count, "rows")?;
            Ok(Plan { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, plan: &Plan, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[plan.output].tensor.to_f32();
        for (index, row) in values.chunks_exact(plan.width.max(1)).enumerate() {
            // The published code drops rows by objectness alone first: a score cannot be more.
            let objectness = row[4];
            if objectness >= input.score_threshold {
                let Some((class, best)) = best_class(&row[5..5 + plan.classes], 0.0) else { continue };
                let score = objectness * best;
                if score >= input.score_threshold {
                    let Some(numbers) = four(row, 0) else { continue };
                    out.push(
                        index,
                        class,
                        score,
                        corners(numbers, BoxFormat::Cxcywh, BoxUnit::Pixels, input.input_size),
                    );
                }
            }
        }
    }

    fn filter(
        &self,
        plan: &Plan,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec> {
        let (values, rows, _) = filtered::rows_of(outputs, plan.output)?;
        let objectness = Some(values.from_column(4));
        let table = Table { objectness, ..filtered::table(rows, values.from_column(5), values) };
        let boxes = filtered::plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
        Some(filtered::best_of(vec![table], 0..plan.classes, boxes, input_size, score_threshold))
    }
}
