//! Boxes and scores for each of them: SSD, UltraFace, torchvision's detectors and TensorFlow's detection API (family `ssd`), and
//! the queries of DETR, RT-DETR, D-FINE and RF-DETR (family `detr`).
//!
//! Reads one of, N being the number of boxes or queries:
//! - boxes `[1, N, 4]` (or `[1, N, 1, 4]`, as pytorch-YOLOv4 exports them) and scores `[1, N, classes (+ 1)]`. The card
//!   states the four numbers of a box, their unit, the activation and the background class.
//!   - `ssd`: decoded boxes before NMS (UltraFace, SSD exports without their last layer). As in SSD, a box is a candidate for
//!     every class whose score passes. Boxes are corners as fractions of the input unless the card says otherwise.
//!   - `detr`: DETR and RT-DETR of Hugging Face (`pred_boxes`, `logits`), RF-DETR (`dets`, `labels`). Boxes are centre and size as
//!     fractions of the input. With `activation = "sigmoid"` (the default: RT-DETR, D-FINE, RF-DETR) a query stands for every
//!     class that passes, and the best N of all pairs remain, as in the official post-processors; with `"softmax"` (DETR) the
//!     last class is the background and a query stands for its best other class.
//! - labels `[1, N]`, boxes `[1, N, 4]`, scores `[1, N]`, with or without the batch dimension, after the model's own NMS, or
//!   from a model that needs none. Boxes are corners in pixels unless the card says otherwise.
//!   - `ssd`: torchvision; with a count `[1]`: TensorFlow's `detection_boxes`, `detection_classes`, `detection_scores`,
//!     `num_detections`. With `background = "first"`, labels count from 1.
//!   - `detr`: RT-DETR and D-FINE as exported for deployment. Boxes are in pixels of the size passed as `orig_target_sizes`:
//!     set that to `"input-size"` under `[extra_inputs]`.
//! - `ssd`, one output `[1, 4 + classes, N]` or `[1, N, 4 + classes]`: a box and its scores (LibreYOLO's YOLOv9).
//! - `ssd` with `anchors`: boxes are offsets from these ([`super::anchors`]), and clipped to the input before NMS. Decoded on the
//!   CPU.
//! - `detr`, one output `[1, N, 4 + classes]`: RT-DETR of Ultralytics: centre and size as fractions of the input, scores after
//!   the sigmoid; a query stands for its best class.
//!
//! One more output may have masks: [`masks::of_own_planes`], logits beside logits and probabilities beside scores.
//!
//! Outputs are found by the card's names, otherwise by their own (boxes, labels or classes, scores, num), otherwise by shape. Only
//! boxes and scores of `ssd` need NMS.
//!
//! Sources: torchvision `models/detection/ssd.py` and `transform.py`; tensorflow/models `object_detection/exporter_lib_v2.py`;
//! Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB `vision/ssd/predictor.py`; `post_process_object_detection` of transformers
//! (DetrImageProcessor, RTDetrImageProcessor); `rtdetr_postprocessor.py` of lyuwenyu/RT-DETR and Peterande/D-FINE; `PostProcess`
//! of roboflow/rf-detr; ultralytics `models/rtdetr/predict.py`; Tianxiaomo/pytorch-YOLOv4 `tool/utils.py`, `post_processing`;
//! PaddleDetection `ppdet/modeling/heads/ppyoloe_head.py`, `post_process` with `exclude_nms`.

use std::borrow::Cow;

use visiond_kernels::filter::{Choice, FilterSpec, Record, Values};
use visiond_kernels::mask::MaskSpec;
use visiond_kernels::nms::Overlap;

use super::anchors::{self, Anchor};
use super::decoded::Decoded;
use super::end_to_end::{EndToEndOutputs, OutputEncoding, ROLES};
use super::gpu_filter::{best_of, known, plain_box, rows_of, score_code, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::masks;
use super::misfit::{FAMILY, Misfit};
use super::outputs::{
    ModelOutputs, OutputShape, Roles, class_columns, classes_in, classes_with_background, may_agree, may_be,
};
use super::raw_numbers::{wrong_activation, wrong_format, wrong_unit};
use super::rows::{best_class, class_of, corners, four, logit_floor, max_of, sigmoid, softmax};
use super::spec::{Activation, AnchorKind, Background, BoxFormat, BoxUnit, BoxesSpec};

/// The numbers of five points: a model with these detects faces, and its boxes may be offsets.
const LANDMARKS: usize = 10;

/// The input of EfficientDet-D7, which has the grids of D6 and larger anchors.
pub(super) const EFFICIENTDET_D7: (u32, u32) = (1536, 1536);

pub(super) struct BoxesAndScores {
    class_count: usize,
    spec: BoxesSpec,
    /// Whether the family is `detr`.
    queries: bool,
    /// The scores of one row; the memory is reused.
    scores: Vec<f32>,
    /// Transposed scores, row by row; the memory is reused.
    rows: Vec<f32>,
    /// The anchors, and the input's size that they belong to.
    anchors: (Vec<Anchor>, (u32, u32)),
}

pub(super) enum BoxesLayout {
    EndToEnd(EndToEndOutputs),
    Rows(Rows),
}

pub(super) struct Rows {
    boxes: usize,
    scores: usize,
    /// Numbers in a row of `scores`.
    width: usize,
    /// Whether a row holds a box and then its scores, in one output.
    joint: bool,
    /// Whether `scores` has a line for each class.
    transposed: bool,
}

/// Returns rows and columns of boxes: `[1, N, 4]` or `[1, N, 1, 4]`.
fn box_table(shape: OutputShape) -> Option<[Option<usize>; 2]> {
    match shape.last::<3>() {
        Some([rows, Some(1), width @ Some(4)]) if shape.has_rank(4) => Some([rows, width]),
        _ => shape.last::<2>(),
    }
}

/// Returns how many scores each of `rows` boxes has, and whether they are transposed.
fn score_table(shape: OutputShape, rows: Option<usize>) -> Option<(Option<usize>, bool)> {
    let [lines, columns] = shape.last::<2>()?;
    if may_agree(lines, rows) {
        return Some((columns, false));
    }
    // The two dimensions differ, and it is known which one counts boxes.
    (columns.is_some() && columns == rows).then_some((lines, true))
}

/// Writes the scores of `[classes, N]` to `out` row by row.
fn to_rows(values: &[f32], classes: usize, out: &mut Vec<f32>) {
    let count = values.len() / classes.max(1);
    out.clear();
    out.extend((0..count).flat_map(|row| values.iter().skip(row).step_by(count)));
}

impl BoxesAndScores {
    pub(super) fn new(class_count: usize, spec: BoxesSpec, queries: bool) -> Self {
        let anchors = (Vec::new(), (0, 0));
        Self { class_count, spec, queries, scores: Vec::new(), rows: Vec::new(), anchors }
    }

    fn encoding(&self) -> OutputEncoding {
        OutputEncoding {
            format: self.spec.format.unwrap_or_default(),
            unit: self.spec.unit.unwrap_or(BoxUnit::Pixels),
            background: self.spec.background.unwrap_or_default(),
            class_count: self.class_count,
        }
    }

    fn box_code(&self) -> (BoxFormat, BoxUnit) {
        let format = if self.queries { BoxFormat::Cxcywh } else { BoxFormat::Xyxy };
        (self.spec.format.unwrap_or(format), self.spec.unit.unwrap_or(BoxUnit::Normalized))
    }

    /// Returns why the numbers contradict the card, regardless of the model's other outputs.
    fn doubt_of_numbers(&self, layout: &BoxesLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const UNIT: &str = "head.unit";
        let &Rows { boxes, scores, width, joint, transposed } = match layout {
            BoxesLayout::EndToEnd(found) => return found.doubt(self.encoding(), UNIT, input),
            BoxesLayout::Rows(rows) => rows,
        };
        let mut values = input.outputs[scores].tensor.to_f32().into_owned();
        if transposed {
            let columns = std::mem::take(&mut values);
            to_rows(&columns, width, &mut values);
        }
        let (format, unit) = self.box_code();
        let (activation, ..) = self.score_rules(joint);
        let (boxes, scores): (Vec<[f32; 4]>, _) = if joint {
            let rows = || values.chunks_exact(width.max(5));
            let scores: Vec<f32> = rows().flat_map(|row| &row[4..]).copied().collect();
            (rows().filter_map(|row| four(row, 0)).collect(), (scores, width.saturating_sub(4)))
        } else {
            let boxes = input.outputs[boxes].tensor.to_f32();
            (boxes.as_chunks::<4>().0.to_vec(), (values, width))
        };
        if self.spec.anchors.is_some() {
            return wrong_activation(&scores.0, scores.1, activation);
        }
        wrong_activation(&scores.0, scores.1, activation)
            .or_else(|| wrong_unit(&boxes, unit, UNIT))
            .or_else(|| wrong_format(&boxes, format, unit, input.input_size))
    }

    /// Returns how a row's numbers become scores, and whether a row stands for every class that passes.
    fn score_rules(&self, joint: bool) -> (Activation, Background, bool) {
        let logits = self.queries && !joint;
        let activation = self.spec.activation.unwrap_or(if logits { Activation::Sigmoid } else { Activation::None });
        let softmax = logits && activation == Activation::Softmax;
        let background = self.spec.background.unwrap_or(if softmax { Background::Last } else { Background::None });
        let multi_label = self.spec.multi_label.unwrap_or(!(softmax || joint && self.queries));
        (activation, if joint { Background::None } else { background }, multi_label)
    }
}

impl Decoder for BoxesAndScores {
    type Layout = BoxesLayout;

    fn reads(&self) -> &'static str {
        if self.queries {
            "boxes [1, Q, 4] and logits [1, Q, classes], or labels [1, Q], boxes [1, Q, 4] and scores [1, Q], or one output \
             [1, Q, 4 + classes]"
        } else {
            "boxes [1, N, 4] and scores [1, N, classes] or [1, classes, N], or boxes [N, 4], labels [N] and scores [N], or one output \
             [1, 4 + classes, N] or its transpose"
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<BoxesLayout, Misfit> {
        if self.queries && outputs.count() == 1 {
            return outputs.table(|output, [_, width]| {
                classes_in(width, 4, self.class_count, "rows")?;
                let width = width.unwrap_or(0);
                Ok(BoxesLayout::Rows(Rows { boxes: output, scores: output, width, joint: true, transposed: false }))
            });
        }
        // A single row of numbers comes from a classifier.
        if outputs.count() == 1 && self.spec.anchors.is_none() && !outputs.is_vector(0) {
            return outputs.table(|output, [a, b]| {
                let wanted = 4 + self.class_count;
                let planes = if self.class_count > 0 && may_be(a, wanted) != may_be(b, wanted) {
                    may_be(a, wanted)
                } else {
                    !matches!((a, b), (Some(a), Some(b)) if b < a)
                };
                let width = if planes { a } else { b };
                classes_in(width, 4, self.class_count, if planes { "columns" } else { "rows" })?;
                let (boxes, width) = (output, width.unwrap_or(0));
                Ok(BoxesLayout::Rows(Rows { boxes, scores: output, width, joint: true, transposed: planes }))
            });
        }
        let end_to_end = match self.spec.anchors {
            None => EndToEndOutputs::find(outputs, &self.spec)?,
            Some(_) => None,
        };
        if let Some(found) = end_to_end {
            found.check_chosen(outputs, input_size, "write `family = \"yolo-nms\"` and `nms = true` under [head]")?;
            return Ok(BoxesLayout::EndToEnd(found));
        }
        let (box_hint, score_hints, scores_text): (_, &[&str], _) = if self.queries {
            ("dets", &["logit", "score", "label", "class", "cls"], "logits")
        } else {
            ("loc", &["score", "conf", "prob", "class", "cls"], "scores")
        };
        let mut roles = Roles::new(outputs);
        let boxes = roles
            .find("boxes", self.spec.boxes.as_deref(), &["box", box_hint], |shape| {
                box_table(shape).is_some_and(|[_, width]| may_be(width, 4))
            })?
            .ok_or(if self.queries { "no output is [1, Q, 4]" } else { "no output is [1, N, 4]" })?;
        let [rows, _] = box_table(outputs.shape(boxes)).unwrap_or_default();
        let table = |shape: OutputShape| score_table(shape, rows).is_some();
        let scores = roles
            .find("scores", self.spec.scores.as_deref(), score_hints, table)?
            .ok_or_else(|| format!("no output has {scores_text} for each row of `{}`", outputs.name(boxes)))?;
        if let Some(named) = self.spec.boxes.as_deref().filter(|_| self.spec.scores.is_none())
            && outputs.name(scores).to_ascii_lowercase().contains("box")
        {
            let problem =
                format!("`{}` is left for the scores, as the card names `{named}` as boxes", outputs.name(scores));
            return Err(Misfit::at(
                "head.boxes",
                problem,
                format!("write `boxes = {:?}`, or remove the key", outputs.name(scores)),
            ));
        }
        let (width, transposed) = score_table(outputs.shape(scores), rows).unwrap_or_default();
        if self.spec.anchors == Some(AnchorKind::EfficientDet) && input_size == EFFICIENTDET_D7 {
            let problem =
                "its input of 1536x1536 pixels is that of D7, whose anchors are larger than those of D0 to D6";
            return Err(Misfit::at("head.anchors", problem, "use an export with the decoding and NMS inside"));
        }
        if let Some((kind, rows)) = self.spec.anchors.zip(rows) {
            let wanted = anchors::count(kind, input_size);
            if rows != wanted {
                let (name, (w, h)) = (outputs.name(boxes), input_size);
                let problem = format!("`{name}` has {rows} rows instead of the {wanted} anchors of {w}x{h} pixels");
                return Err(Misfit::at("head.anchors", problem, "remove `anchors` under [head], or correct `family`"));
            }
        }
        let (_, background, _) = self.score_rules(false);
        classes_with_background(width, background, self.class_count)
            .map_err(|problem| format!("`{}` {problem}", outputs.name(scores)))?;
        Ok(BoxesLayout::Rows(Rows { boxes, scores, width: width.unwrap_or(0), joint: false, transposed }))
    }

    fn decode(&mut self, layout: &BoxesLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let &Rows { boxes, scores, width, joint, transposed } = match layout {
            BoxesLayout::EndToEnd(found) => return found.decode(self.encoding(), input, out),
            BoxesLayout::Rows(rows) => rows,
        };
        let mut values = input.outputs[scores].tensor.to_f32();
        if transposed {
            to_rows(&values, width, &mut self.rows);
            values = Cow::Borrowed(&self.rows);
        }
        let separate = (!joint).then(|| input.outputs[boxes].tensor.to_f32());
        let boxes = separate.as_deref().unwrap_or(&values);
        let (step, box_step, first_score) = if joint { (width.max(4), width, 4) } else { (width.max(1), 4, 0) };
        let (format, unit) = self.box_code();
        let (activation, background, multi_label) = self.score_rules(joint);
        let threshold = input.score_threshold;
        let floor = logit_floor(threshold);
        if let Some(kind) = self.spec.anchors.filter(|_| self.anchors.1 != input.input_size) {
            anchors::write(kind, input.input_size, &mut self.anchors.0);
            self.anchors.1 = input.input_size;
        }
        for (row, numbers) in values.chunks_exact(step).enumerate() {
            let raw = &numbers[first_score..];
            let classes = class_columns(background, raw.len());
            let best = max_of(&raw[classes.clone()]);
            let scored: &[f32] = match activation {
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
            let Some(numbers) = four(boxes, row * box_step) else { continue };
            let corners = match self.spec.anchors {
                None => corners(numbers, format, unit, input.input_size),
                Some(_) => {
                    let Some(anchor) = self.anchors.0.get(row) else { continue };
                    anchor.corners(numbers)
                }
            };
            let mut add = |column: usize, score: f32| {
                if let Some(class) = class_of(column as u32, background, 0) {
                    out.push(row, class, score, corners);
                }
            };
            let first = classes.start;
            if multi_label {
                classes.filter(|&column| scored[column] >= threshold).for_each(|column| add(column, scored[column]));
            } else if let Some((class, score)) = best_class(&scored[classes], threshold) {
                add(first + class as usize, score);
            }
        }
        let count = values.len() / step;
        if self.queries && out.candidates.len() > count {
            out.candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
            out.candidates.truncate(count);
        }
    }

    fn contradiction(&self, layout: &BoxesLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let BoxesLayout::EndToEnd(found) = layout else { return None };
        found.contradiction(self.encoding(), input)
    }

    fn contradiction_of_records(
        &self,
        layout: &BoxesLayout,
        outputs: ModelOutputs<'_>,
        (records, score_threshold, input_size): (&[Record], f32, (u32, u32)),
    ) -> Option<Misfit> {
        let BoxesLayout::EndToEnd(found) = layout else { return None };
        let check = self.encoding().check(score_threshold, input_size);
        let fault = check.fault_of_records(records)?;
        Some(check.misfit(outputs.name(found.boxes), fault, ROLES.to_owned()))
    }

    fn doubt(&self, layout: &BoxesLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let misfit = self.doubt_of_numbers(layout, input)?;
        let outputs = ModelOutputs::Real(input.outputs);
        let is_scores = |index: usize| matches!(layout, BoxesLayout::Rows(rows) if rows.scores == index);
        let is_points = |index: usize| outputs.rows_and_columns(index)[1] == Some(LANDMARKS) && !is_scores(index);
        if self.queries || !(0..outputs.count()).any(is_points) {
            return Some(misfit);
        }
        let other = misfit.remedy.map(|remedy| format!("; otherwise {remedy}")).unwrap_or_default();
        let faces = "write `family = \"faces\"` under [head] if nothing has decoded the boxes (`visiond inspect` shows its `style`)";
        Some(Misfit::at(FAMILY, misfit.problem, format!("{faces}{other}")))
    }

    fn filter(&self, layout: &BoxesLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let &Rows { boxes, scores, joint, transposed, .. } = match layout {
            BoxesLayout::EndToEnd(found) => return found.filter(self.encoding(), outputs, input_size),
            BoxesLayout::Rows(rows) => rows,
        };
        if self.spec.anchors.is_some() {
            return None;
        }
        let (scores, rows, width) = if transposed {
            let [width, rows] = known(outputs.shape(scores))?;
            (Values::planes(scores, width, rows), rows, width)
        } else {
            rows_of(outputs, scores)?
        };
        let boxes = if joint {
            scores
        } else {
            let [box_rows, width_of_box] = box_table(outputs.shape(boxes))?;
            Values::rows(boxes, box_rows?, width_of_box?)
        };
        let first_score = if joint { 4 } else { 0 };
        let score_columns = width.checked_sub(first_score)?;
        let (activation, background, multi_label) = self.score_rules(joint);
        let (format, unit) = self.box_code();
        let table = table(rows, scores.from_column(first_score), boxes);
        let classes = class_columns(background, score_columns);
        Some(FilterSpec {
            score_columns,
            scores: score_code(activation),
            choice: if multi_label { Choice::Every { peaks: false, row_step: 0 } } else { Choice::BestScore },
            keep_best: self.queries.then_some(rows),
            ..best_of(vec![table], classes, plain_box(format, unit, input_size))
        })
    }

    fn masks(&self, layout: &BoxesLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<MaskSpec> {
        let (boxes, threshold) = match layout {
            BoxesLayout::Rows(Rows { boxes, .. }) if self.queries => (*boxes, 0.0),
            BoxesLayout::Rows(Rows { boxes, .. }) => (*boxes, 0.5),
            BoxesLayout::EndToEnd(found) => (found.boxes, 0.5),
        };
        let [rows, _] = box_table(outputs.shape(boxes)).unwrap_or_default();
        masks::of_own_planes(outputs, rows?, threshold, input_size)
    }

    fn suppression(&self, layout: &BoxesLayout) -> Suppression {
        match layout {
            BoxesLayout::Rows(_) if !self.queries => Suppression::Best(Overlap::Points),
            _ => Suppression::None,
        }
    }

    fn clips(&self) -> bool {
        self.spec.anchors.is_some()
    }
}
