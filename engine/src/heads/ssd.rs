//! Boxes and scores: SSD, UltraFace, torchvision's detectors, TensorFlow's detection API.
//!
//! Reads one of
//! - boxes `[1, N, 4]` and scores `[1, N, classes (+ 1)]`, decoded but not suppressed (UltraFace, SSD exports without their
//!   last layer). As SSD does, a box is a candidate for every class whose score passes. Numbers, unit, activation and the
//!   place of the class that is none are the card's; boxes are parts of the input unless it says `unit = "pixels"`.
//! - boxes `[N, 4]`, labels `[N]`, scores `[N]` (torchvision; with a batch dimension and a count `[1]`: TensorFlow's
//!   `detection_boxes`, `detection_classes`, `detection_scores`, `num_detections`). Suppressed already; boxes are pixels
//!   unless the card says `unit = "normalized"`; `background = "first"` says that labels count from 1.
//!
//! Outputs are found by the card's names, else by theirs (boxes, labels or classes, scores, num), else by shape.
//!
//! Source: torchvision `models/detection/ssd.py` and `transform.py`; tensorflow/models
//! `object_detection/exporter_lib_v2.py`; Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB
//! `vision/ssd/predictor.py`.

use visiond_kernels::filter::{Choice, FilterSpec};

use super::classes::{class_columns, classes_with_background};
use super::decoded::Decoded;
use super::decoder::Decoder;
use super::end_to_end::{self, OutputEncoding, class_of};
use super::gpu_filter;
use super::head::HeadInput;
use super::roles::{EndToEndNames, EndToEndOutputs, Roles, find_end_to_end, four_columns};
use super::rows::{corners, four, logit_floor, max_of, sigmoid, softmax};
use super::shapes::{Outputs, may_agree};
use super::spec::{Activation, BoxUnit, Family, SsdSpec};

pub(super) struct Ssd {
    class_count: usize,
    spec: SsdSpec,
    /// The scores of one row; the memory is reused.
    scores: Vec<f32>,
}

pub(super) enum OutputLayout {
    Raw { boxes: usize, scores: usize, width: usize },
    EndToEnd(EndToEndOutputs),
}

impl Ssd {
    pub(super) fn new(class_count: usize, spec: SsdSpec) -> Self {
        Self { class_count, spec, scores: Vec::new() }
    }
}

impl Decoder for Ssd {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Ssd;
    const READS: &'static str =
        "boxes [1, N, 4] and scores [1, N, classes], or boxes [N, 4], labels [N] and scores [N]";

    fn layout(&self, outputs: &impl Outputs, _input_size: (u32, u32)) -> Result<OutputLayout, String> {
        let names = EndToEndNames {
            boxes: self.spec.boxes.as_deref(),
            labels: self.spec.labels.as_deref(),
            scores: self.spec.scores.as_deref(),
            count: self.spec.count.as_deref(),
        };
        if let Some(found) = find_end_to_end(outputs, &names)? {
            return Ok(OutputLayout::EndToEnd(found));
        }
        let mut roles = Roles::new(outputs);
        let boxes = roles.find("boxes", names.boxes, &["box", "loc"], four_columns)?.ok_or("no output is [1, N, 4]")?;
        let rows = outputs.shape(boxes).last::<2>().and_then(|[rows, _]| rows);
        let table = |shape: super::shapes::Shape| shape.last::<2>().is_some_and(|[n, _]| may_agree(n, rows));
        let scores = roles
            .find("scores", names.scores, &["score", "conf", "prob", "class", "cls"], table)?
            .ok_or_else(|| format!("no output has scores for each row of `{}`", outputs.name(boxes)))?;
        let width = outputs.shape(scores).last::<2>().and_then(|[_, width]| width);
        classes_with_background(width, self.spec.background, self.class_count)
            .map_err(|problem| format!("`{}` {problem}", outputs.name(scores)))?;
        Ok(OutputLayout::Raw { boxes, scores, width: width.unwrap_or(0) })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let spec = &self.spec;
        let (boxes, scores, width) = match layout {
            OutputLayout::EndToEnd(found) => {
                let encoding = OutputEncoding {
                    format: spec.format,
                    unit: spec.unit.unwrap_or(BoxUnit::Pixels),
                    background: spec.background,
                    class_count: self.class_count,
                };
                return end_to_end::decode(found, encoding, input, out);
            }
            &OutputLayout::Raw { boxes, scores, width } => (boxes, scores, width.max(1)),
        };
        let unit = spec.unit.unwrap_or(BoxUnit::Normalized);
        let classes = class_columns(spec.background, width);
        let (boxes, scores) = (input.outputs[boxes].tensor.to_f32(), input.outputs[scores].tensor.to_f32());
        let threshold = input.score_threshold;
        let floor = logit_floor(threshold);
        for (row, raw) in scores.chunks_exact(width).enumerate() {
            let best = max_of(&raw[classes.clone()]);
            let scored: &[f32] = match spec.activation {
                Activation::None if best >= threshold => raw,
                Activation::Sigmoid if best >= floor => {
                    self.scores.clear();
                    self.scores.extend(raw.iter().map(|&x| sigmoid(x)));
                    &self.scores
                }
                // A softmax is at most exp(x - maximum): most rows are background and end here.
                Activation::Softmax if (best - max_of(raw)).exp() >= threshold => {
                    softmax(raw, &mut self.scores);
                    &self.scores
                }
                _ => continue,
            };
            for column in classes.clone() {
                let score = scored[column];
                if score >= threshold {
                    let class = class_of(column as u32, spec.background, 0);
                    let (Some(class), Some(numbers)) = (class, four(&boxes, row * 4)) else { continue };
                    out.push(row, class, score, corners(numbers, spec.format, unit, input.input_size));
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
        let spec = &self.spec;
        let boxes = |unit: BoxUnit| gpu_filter::plain_box(spec.format, unit, input_size);
        match layout {
            OutputLayout::EndToEnd(found) => {
                let table = gpu_filter::end_to_end_table(outputs, found)?;
                let boxes = boxes(spec.unit.unwrap_or(BoxUnit::Pixels));
                Some(FilterSpec {
                    labels: gpu_filter::label_code(spec.background, self.class_count),
                    ..gpu_filter::best_of(vec![table], 0..1, boxes, input_size, score_threshold)
                })
            }
            &OutputLayout::Raw { boxes: box_output, scores, .. } => {
                let (scores, rows, width) = gpu_filter::rows_of(outputs, scores)?;
                let (numbers, ..) = gpu_filter::rows_of(outputs, box_output)?;
                let classes = class_columns(spec.background, width);
                let boxes = boxes(spec.unit.unwrap_or(BoxUnit::Normalized));
                let tables = vec![gpu_filter::table(rows, scores, numbers)];
                Some(FilterSpec {
                    score_columns: width,
                    scores: gpu_filter::score_code(spec.activation, score_threshold),
                    choice: Choice::Every { peaks: false, row_step: 0 },
                    ..gpu_filter::best_of(tables, classes, boxes, input_size, score_threshold)
                })
            }
        }
    }

    fn needs_nms(layout: &OutputLayout) -> bool {
        matches!(layout, OutputLayout::Raw { .. })
    }
}
