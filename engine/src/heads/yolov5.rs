//! YOLOv5 and YOLOv7: one row per candidate, with an objectness.
//!
//! Reads one output `[1, N, 5 + classes (+ masks)]`, f32 or f16: centre x, centre y, width, height in pixels of the input,
//! objectness, then one score per class; all decoded, after the sigmoid. A score is objectness times the best class's score.
//! Mask coefficients at the end of a row (YOLOv5-seg: 32) are ignored. The N rows are the anchors of the three grids in
//! sequence.
//!
//! Source: `non_max_suppression` in ultralytics/yolov5 `utils/general.py`, one class per box (`multi_label=False`).

use visiond_kernels::filter::{FilterSpec, Table};

use super::classes::classes_in;
use super::decoded::Decoded;
use super::decoder::Decoder;
use super::gpu_filter;
use super::head::HeadInput;
use super::rows::{best_class, corners, four};
use super::shapes::Outputs;
use super::spec::{BoxFormat, BoxUnit, Family};

pub(super) struct Yolov5 {
    pub(super) class_count: usize,
    pub(super) masks: usize,
}

pub(super) struct OutputLayout {
    output: usize,
    width: usize,
    classes: usize,
}

impl Decoder for Yolov5 {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Yolov5;
    const READS: &'static str = "one output [1, N, 5 + classes]";

    fn layout(&self, outputs: &impl Outputs, _input_size: (u32, u32)) -> Result<OutputLayout, String> {
        outputs.table(|output, [_, width]| {
            let classes = classes_in(width, 5 + self.masks, self.class_count, "rows")?;
            Ok(OutputLayout { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        for (index, row) in values.chunks_exact(layout.width.max(1)).enumerate() {
            // Like the published code, first drop rows by objectness alone: a score cannot be higher.
            let objectness = row[4];
            if objectness >= input.score_threshold {
                let Some((class, best)) = best_class(&row[5..5 + layout.classes], 0.0) else { continue };
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
        layout: &OutputLayout,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec> {
        let (values, rows, _) = gpu_filter::rows_of(outputs, layout.output)?;
        let objectness = Some(values.from_column(4));
        let table = Table { objectness, ..gpu_filter::table(rows, values.from_column(5), values) };
        let boxes = gpu_filter::plain_box(BoxFormat::Cxcywh, BoxUnit::Pixels, input_size);
        Some(gpu_filter::best_of(vec![table], 0..layout.classes, boxes, input_size, score_threshold))
    }
}
