//! Queries: DETR, RT-DETR, D-FINE, RF-DETR.
//!
//! Reads one of, Q being the number of queries:
//! - boxes `[1, Q, 4]` and logits `[1, Q, classes (+ 1)]`: DETR and RT-DETR of Hugging Face (`pred_boxes`, `logits`), RF-DETR
//!   (`dets`, `labels`). Boxes are centre and size as parts of the input. With `activation = "sigmoid"` (the default: RT-DETR,
//!   D-FINE, RF-DETR) a query stands for every class that passes, and of all pairs the best Q stay, as in the official
//!   post-processors; with `"softmax"` (DETR) the last class is none and a query stands for its best other class.
//! - labels `[1, Q]`, boxes `[1, Q, 4]`, scores `[1, Q]`: RT-DETR and D-FINE as exported for deployment. Boxes are corners in
//!   pixels of what was fed as `orig_target_sizes`: give that as `"input-size"` under `[extra_inputs]`.
//! - one output `[1, Q, 4 + classes]`: RT-DETR of Ultralytics: centre and size as parts of the input, scores with their
//!   sigmoid; a query stands for its best class.
//!
//! Nothing is suppressed.
//!
//! Source: `post_process_object_detection` of transformers (DetrImageProcessor, RTDetrImageProcessor);
//! `rtdetr_postprocessor.py` of lyuwenyu/RT-DETR and Peterande/D-FINE; `PostProcess` of roboflow/rf-detr;
//! ultralytics `models/rtdetr/predict.py`.

use visiond_kernels::filter::{Choice, FilterSpec, Table};

use super::classes::{class_columns, classes_in, classes_with_background};
use super::decoded::Decoded;
use super::decoder::Decoder;
use super::end_to_end::{self, OutputEncoding, class_of};
use super::gpu_filter;
use super::head::HeadInput;
use super::roles::{EndToEndNames, EndToEndOutputs, Roles, find_end_to_end, four_columns};
use super::rows::{best_class, corners, four, logit_floor, max_of, sigmoid, softmax};
use super::shapes::{Outputs, Shape, may_agree};
use super::spec::{Activation, Background, BoxFormat, BoxUnit, DetrSpec, Family};

pub(super) struct Detr {
    class_count: usize,
    spec: DetrSpec,
    /// The scores of one query; the memory is reused.
    scores: Vec<f32>,
}

pub(super) enum OutputLayout {
    EndToEnd(EndToEndOutputs),
    Logits { boxes: usize, scores: usize, width: usize },
    Joint { output: usize, width: usize },
}

/// Where a query's numbers are, and what they mean.
struct Queries<'a> {
    boxes: &'a [f32],
    box_step: usize,
    scores: &'a [f32],
    score_step: usize,
    /// Where a query's scores begin.
    score_offset: usize,
    activation: Activation,
    background: Background,
    multi_label: bool,
}

impl Detr {
    pub(super) fn new(class_count: usize, spec: DetrSpec) -> Self {
        Self { class_count, spec, scores: Vec::new() }
    }

    fn background(&self, activation: Activation) -> Background {
        let last = activation == Activation::Softmax;
        self.spec.background.unwrap_or(if last { Background::Last } else { Background::None })
    }

    fn queries(&mut self, queries: &Queries<'_>, input: &HeadInput<'_>, out: &mut Decoded) {
        let format = self.spec.format.unwrap_or(BoxFormat::Cxcywh);
        let unit = self.spec.unit.unwrap_or(BoxUnit::Normalized);
        let threshold = input.score_threshold;
        let floor = if queries.activation == Activation::Sigmoid { logit_floor(threshold) } else { threshold };
        let count = queries.scores.len() / queries.score_step;
        for (query, row) in queries.scores.chunks_exact(queries.score_step).enumerate() {
            let raw = &row[queries.score_offset..];
            let classes = class_columns(queries.background, raw.len());
            if queries.activation != Activation::Softmax {
                let best = max_of(&raw[classes.clone()]);
                if best.is_nan() || best < floor {
                    continue;
                }
            }
            let scored: &[f32] = match queries.activation {
                Activation::None => raw,
                Activation::Sigmoid => {
                    self.scores.clear();
                    self.scores.extend(raw.iter().map(|&x| sigmoid(x)));
                    &self.scores
                }
                Activation::Softmax => {
                    softmax(raw, &mut self.scores);
                    &self.scores
                }
            };
            let Some(numbers) = four(queries.boxes, query * queries.box_step) else { continue };
            let corners = corners(numbers, format, unit, input.input_size);
            let first = classes.start;
            let mut add = |column: usize, score: f32| {
                if let Some(class) = class_of(column as u32, queries.background, 0) {
                    out.push(query, class, score, corners);
                }
            };
            if queries.multi_label {
                for column in classes {
                    if scored[column] >= threshold {
                        add(column, scored[column]);
                    }
                }
            } else if let Some((class, score)) = best_class(&scored[classes], threshold) {
                add(first + class as usize, score);
            }
        }
        if out.candidates.len() > count {
            out.candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
            out.candidates.truncate(count);
        }
    }
}

impl Decoder for Detr {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Detr;
    const READS: &'static str = "boxes [1, Q, 4] and logits [1, Q, classes], or labels [1, Q], boxes [1, Q, 4] and scores [1, Q], or one output [1, Q, 4 + classes]";

    fn layout(&self, outputs: &impl Outputs, _input_size: (u32, u32)) -> Result<OutputLayout, String> {
        let names = EndToEndNames {
            boxes: self.spec.boxes.as_deref(),
            labels: self.spec.labels.as_deref(),
            scores: self.spec.scores.as_deref(),
            count: None,
        };
        if outputs.count() == 1 {
            return outputs.table(|output, [_, width]| {
                classes_in(width, 4, self.class_count, "rows")?;
                Ok(OutputLayout::Joint { output, width: width.unwrap_or(0) })
            });
        }
        if let Some(found) = find_end_to_end(outputs, &names)? {
            return Ok(OutputLayout::EndToEnd(found));
        }
        let mut roles = Roles::new(outputs);
        let boxes =
            roles.find("boxes", names.boxes, &["box", "dets"], four_columns)?.ok_or("no output is [1, Q, 4]")?;
        let rows = outputs.shape(boxes).last::<2>().and_then(|[rows, _]| rows);
        let table = |shape: Shape| shape.last::<2>().is_some_and(|[n, _]| may_agree(n, rows));
        let scores = roles
            .find("scores", names.scores, &["logit", "score", "label", "class", "cls"], table)?
            .ok_or_else(|| format!("no output has logits for each row of `{}`", outputs.name(boxes)))?;
        let width = outputs.shape(scores).last::<2>().and_then(|[_, width]| width);
        let background = self.background(self.spec.activation.unwrap_or(Activation::Sigmoid));
        classes_with_background(width, background, self.class_count)
            .map_err(|problem| format!("`{}` {problem}", outputs.name(scores)))?;
        Ok(OutputLayout::Logits { boxes, scores, width: width.unwrap_or(0) })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        match layout {
            OutputLayout::EndToEnd(found) => {
                let encoding = OutputEncoding {
                    format: self.spec.format.unwrap_or(BoxFormat::Xyxy),
                    unit: self.spec.unit.unwrap_or(BoxUnit::Pixels),
                    background: self.spec.background.unwrap_or_default(),
                    class_count: self.class_count,
                };
                end_to_end::decode(found, encoding, input, out);
            }
            &OutputLayout::Logits { boxes, scores, width } => {
                let (boxes, scores) = (input.outputs[boxes].tensor.to_f32(), input.outputs[scores].tensor.to_f32());
                let activation = self.spec.activation.unwrap_or(Activation::Sigmoid);
                let queries = Queries {
                    boxes: &boxes,
                    box_step: 4,
                    scores: &scores,
                    score_step: width.max(1),
                    score_offset: 0,
                    activation,
                    background: self.background(activation),
                    multi_label: self.spec.multi_label.unwrap_or(activation != Activation::Softmax),
                };
                self.queries(&queries, input, out);
            }
            &OutputLayout::Joint { output, width } => {
                let values = input.outputs[output].tensor.to_f32();
                let activation = self.spec.activation.unwrap_or(Activation::None);
                let queries = Queries {
                    boxes: &values,
                    box_step: width,
                    scores: &values,
                    score_step: width.max(4),
                    score_offset: 4,
                    activation,
                    background: Background::None,
                    multi_label: self.spec.multi_label.unwrap_or(false),
                };
                self.queries(&queries, input, out);
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
        let boxes = |format: BoxFormat, unit: BoxUnit| {
            gpu_filter::plain_box(spec.format.unwrap_or(format), spec.unit.unwrap_or(unit), input_size)
        };
        let queries =
            |table: Table, width: usize, activation: Activation, background: Background, multi_label: bool| {
                let classes = class_columns(background, width);
                let rows = table.rows;
                let boxes = boxes(BoxFormat::Cxcywh, BoxUnit::Normalized);
                let every = Choice::Every { peaks: false, row_step: 0 };
                FilterSpec {
                    score_columns: width,
                    scores: gpu_filter::score_code(activation, score_threshold),
                    choice: if multi_label { every } else { Choice::BestScore },
                    keep_best: Some(rows),
                    ..gpu_filter::best_of(vec![table], classes, boxes, input_size, score_threshold)
                }
            };
        match layout {
            OutputLayout::EndToEnd(found) => {
                let table = gpu_filter::end_to_end_table(outputs, found)?;
                let boxes = boxes(BoxFormat::Xyxy, BoxUnit::Pixels);
                Some(FilterSpec {
                    labels: gpu_filter::label_code(spec.background.unwrap_or_default(), self.class_count),
                    ..gpu_filter::best_of(vec![table], 0..1, boxes, input_size, score_threshold)
                })
            }
            &OutputLayout::Logits { boxes, scores, .. } => {
                let (scores, rows, width) = gpu_filter::rows_of(outputs, scores)?;
                let (boxes, ..) = gpu_filter::rows_of(outputs, boxes)?;
                let activation = spec.activation.unwrap_or(Activation::Sigmoid);
                let multi_label = spec.multi_label.unwrap_or(activation != Activation::Softmax);
                let table = gpu_filter::table(rows, scores, boxes);
                Some(queries(table, width, activation, self.background(activation), multi_label))
            }
            &OutputLayout::Joint { output, .. } => {
                let (values, rows, width) = gpu_filter::rows_of(outputs, output)?;
                let activation = spec.activation.unwrap_or(Activation::None);
                let multi_label = spec.multi_label.unwrap_or(false);
                let table = gpu_filter::table(rows, values.from_column(4), values);
                Some(queries(table, width.checked_sub(4)?, activation, Background::None, multi_label))
            }
        }
    }

    fn needs_nms(_plan: &OutputLayout) -> bool {
        false
    }
}
