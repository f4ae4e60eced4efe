//! End-to-end models, which return final boxes, scores and classes in separate outputs; several families read them. Boxes and
//! scores may share one output, as in MMDeploy and OpenVINO: `[1, N, 5]`.

use std::borrow::Cow;

use visiond_kernels::filter::{FilterSpec, LabelCode, Table, Values};
use visiond_kernels::tensor::DType;

use super::decoded::Decoded;
use super::finished_rows::{RowCheck, are_all_cells};
use super::gpu_filter::{best_of, plain_box, rows_of, table};
use super::head::HeadInput;
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, OutputShape, Roles, four_columns, may_agree, may_be};
use super::raw_numbers::{wrong_format, wrong_labels, wrong_unit};
use super::rows::{class_number, class_of, corners, four};
use super::spec::{Background, BoxFormat, BoxUnit, BoxesSpec};

/// The outputs of an end-to-end model: final boxes, classes and scores, and how many of them are valid.
pub(super) struct EndToEndOutputs {
    pub(super) boxes: usize,
    pub(super) labels: usize,
    scores: usize,
    /// Whether the score is the fifth number of a box, in the same output.
    joint: bool,
    pub(super) count: Option<usize>,
}

/// The encoding of such a model's numbers.
#[derive(Clone, Copy)]
pub(super) struct OutputEncoding {
    pub(super) format: BoxFormat,
    pub(super) unit: BoxUnit,
    pub(super) background: Background,
    /// The number of named classes; 0 if unknown.
    pub(super) class_count: usize,
}

impl OutputEncoding {
    /// Describes to the GPU's filter which class a label is.
    pub(super) fn label_code(self) -> LabelCode {
        match (self.background, u32::try_from(self.class_count)) {
            (Background::First, _) => LabelCode::FromOne,
            (Background::Last, Ok(count @ 1..)) => LabelCode::Below(count),
            _ => LabelCode::Plain,
        }
    }

    pub(super) fn check(self, score_threshold: f32, input_size: (u32, u32)) -> RowCheck {
        let Self { background, class_count, .. } = self;
        RowCheck { score_threshold, background, class_count, input_size }
    }
}

/// The correction if the numbers of an output do not fit its role.
pub(super) const ROLES: &str =
    "write the names of the right outputs as `boxes`, `scores` and `labels` under [head], or correct `family`";

/// Rejects one row per cell, because then nothing has removed the duplicates.
pub(super) fn not_all_cells(
    name: &str,
    rows: Option<usize>,
    input_size: (u32, u32),
    remedy: &str,
) -> Result<(), Misfit> {
    let Some(rows) = rows.filter(|&rows| are_all_cells(rows, input_size)) else { return Ok(()) };
    let problem = format!(
        "`{name}` has {rows} rows, as many as its grids have cells, so nothing has removed the boxes of the same object"
    );
    Err(Misfit::at("head.nms", problem, remedy))
}

/// Returns N of a shape `[1, N]`, `[N]` or `[1, N, 1]`.
fn rows_of_one_number(shape: OutputShape) -> Option<Option<usize>> {
    match (shape.last::<1>(), shape.last::<2>()) {
        (Some([rows]), _) | (None, Some([rows, Some(1)])) => Some(rows),
        _ => None,
    }
}

fn one_number_a_row(shape: OutputShape) -> bool {
    rows_of_one_number(shape).is_some()
}

/// Whether a shape is `[1, N, 5]`.
fn five_columns(shape: OutputShape) -> bool {
    shape.last::<2>().is_some_and(|[_, width]| width == Some(5))
}

/// Whether numbers may be classes by their type.
fn are_integers(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::U8)
}

impl EndToEndOutputs {
    /// Finds the outputs of an end-to-end model; `None` if they do not look like one. `names` has those that the card names.
    pub(super) fn find(outputs: ModelOutputs<'_>, names: &BoxesSpec) -> Result<Option<Self>, Misfit> {
        if let Some(found) = Self::find_joint(outputs, names)? {
            return Ok(Some(found));
        }
        if outputs.count() < 3 && names.labels.is_none() {
            return Ok(None);
        }
        let mut roles = Roles::new(outputs);
        let boxes = roles.find("boxes", names.boxes.as_deref(), &["box", "dets"], four_columns)?;
        let Some(boxes) = boxes else { return Ok(None) };
        let hints = ["label", "class", "cls"];
        let labels = roles.by_name("labels", names.labels.as_deref(), &hints, one_number_a_row)?;
        let labels = labels.or_else(|| roles.any(|index| outputs.dtype(index) == DType::I64));
        let Some(labels) = labels.filter(|&index| one_number_a_row(outputs.shape(index))) else { return Ok(None) };
        // Find the count before the scores, because the count of a single row has the same shape as its scores.
        let one = |shape: OutputShape| shape.vector().is_some_and(|n| may_be(n, 1));
        let count = roles.by_name("count", names.count.as_deref(), &["num"], one)?;
        let [rows, _] = outputs.rows_and_columns(boxes);
        let fits = |shape: OutputShape| rows_of_one_number(shape).is_some_and(|n| may_agree(n, rows));
        let scores = roles.find("scores", names.scores.as_deref(), &["score", "conf", "prob"], fits)?;
        let Some(scores) = scores else { return Ok(None) };
        if !fits(outputs.shape(labels)) {
            let [boxes, labels] = [boxes, labels].map(|index| outputs.name(index));
            return Err(format!("`{boxes}` and `{labels}` have different numbers of rows").into());
        }
        Ok(Some(Self { boxes, labels, scores, joint: false, count }))
    }

    /// Finds boxes with their scores, and labels, in two outputs.
    fn find_joint(outputs: ModelOutputs<'_>, names: &BoxesSpec) -> Result<Option<Self>, Misfit> {
        let others = [&names.scores, &names.count].iter().any(|name| name.is_some());
        if outputs.count() != 2 || others || !(0..2).any(|index| five_columns(outputs.shape(index))) {
            return Ok(None);
        }
        let mut roles = Roles::new(outputs);
        let boxes = roles.find("boxes", names.boxes.as_deref(), &["box", "dets"], five_columns)?;
        let labels = roles.by_name("labels", names.labels.as_deref(), &["label", "class", "cls"], one_number_a_row)?;
        let is_label = |index: usize| are_integers(outputs.dtype(index)) && one_number_a_row(outputs.shape(index));
        let labels = labels.or_else(|| roles.any(is_label));
        let (Some(boxes), Some(labels)) = (boxes, labels) else { return Ok(None) };
        let [rows, _] = outputs.rows_and_columns(boxes);
        let agree = rows_of_one_number(outputs.shape(labels)).is_some_and(|n| may_agree(n, rows));
        Ok(agree.then_some(Self { boxes, labels, scores: boxes, joint: true, count: None }))
    }

    /// Returns the error for rows whose duplicates were not removed.
    pub(super) fn check_chosen(
        &self,
        outputs: ModelOutputs<'_>,
        input_size: (u32, u32),
        remedy: &str,
    ) -> Result<(), Misfit> {
        let [rows, _] = outputs.rows_and_columns(self.boxes);
        not_all_cells(outputs.name(self.boxes), rows, input_size, remedy)
    }

    /// Returns the numbers of a box and those of a score, and where a score is among them.
    fn steps(&self) -> (usize, usize, usize) {
        if self.joint { (5, 5, 4) } else { (4, 1, 0) }
    }

    /// Returns every row of a frame: score, label and the four numbers of its box.
    fn rows<'v>(
        &self,
        boxes: &'v [f32],
        scores: &'v [f32],
        labels: &'v [f32],
        valid: f32,
    ) -> impl Iterator<Item = (f32, f32, [f32; 4])> + Clone + use<'v> {
        let (box_step, score_step, score_at) = self.steps();
        let scores = scores.iter().skip(score_at).step_by(score_step);
        let boxes = boxes.chunks_exact(box_step).filter_map(|numbers| four(numbers, 0));
        let rows = scores.zip(labels).zip(boxes).enumerate();
        // If the count is NaN, no row passes.
        rows.take_while(move |(row, _)| (*row as f32) < valid)
            .map(|(_, ((&score, &label), numbers))| (score, label, numbers))
    }

    /// Returns the first row that contradicts the card.
    pub(super) fn contradiction(&self, encoding: OutputEncoding, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = |index: usize| -> Cow<'_, [f32]> { input.outputs[index].tensor.to_f32() };
        let (boxes, labels, scores) = (values(self.boxes), values(self.labels), values(self.scores));
        let valid = self.count.and_then(|count| values(count).first().copied()).unwrap_or(f32::INFINITY);
        let check = encoding.check(input.score_threshold, input.input_size);
        let corners = |numbers| corners(numbers, encoding.format, encoding.unit, input.input_size);
        let fault = check.first_fault(self.rows(&boxes, &scores, &labels, valid), corners)?;
        Some(check.misfit(input.outputs[self.boxes].name, fault, ROLES.to_owned()))
    }

    /// Whether an output is one of these.
    pub(super) fn reads(&self, output: usize) -> bool {
        [self.boxes, self.labels, self.scores].contains(&output) || self.count == Some(output)
    }

    /// Adds the rows that pass the threshold.
    pub(super) fn decode(&self, encoding: OutputEncoding, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = |index: usize| -> Cow<'_, [f32]> { input.outputs[index].tensor.to_f32() };
        let (boxes, labels, scores) = (values(self.boxes), values(self.labels), values(self.scores));
        let valid = self.count.and_then(|count| values(count).first().copied()).unwrap_or(f32::INFINITY);
        for (row, (score, label, numbers)) in self.rows(&boxes, &scores, &labels, valid).enumerate() {
            if score.is_nan() || score < input.score_threshold {
                continue;
            }
            let class = class_number(label).and_then(|n| class_of(n, encoding.background, encoding.class_count));
            let Some(class) = class else { continue };
            out.push(row, class, score, corners(numbers, encoding.format, encoding.unit, input.input_size));
        }
    }

    /// Returns a doubt about the numbers of a run; `unit_key` is the card's key for the unit.
    pub(super) fn doubt(
        &self,
        encoding: OutputEncoding,
        unit_key: &'static str,
        input: &HeadInput<'_>,
    ) -> Option<Misfit> {
        let values = |index: usize| input.outputs[index].tensor.to_f32();
        let (boxes, labels, scores) = (values(self.boxes), values(self.labels), values(self.scores));
        let valid = self.count.and_then(|count| values(count).first().copied()).unwrap_or(f32::INFINITY);
        let rows = self.rows(&boxes, &scores, &labels, valid);
        let first = u32::from(encoding.background == Background::First);
        let found = rows.clone().map(|(score, label, _)| (score, label));
        // Unused rows may hold any boxes, but their scores are not above 0.
        let boxes: Vec<[f32; 4]> = rows.filter(|(score, ..)| *score > 0.0).map(|(.., numbers)| numbers).collect();
        wrong_labels(found, first, encoding.class_count, input.score_threshold)
            .or_else(|| wrong_unit(&boxes, encoding.unit, unit_key))
            .or_else(|| wrong_format(&boxes, encoding.format, encoding.unit, input.input_size))
    }

    /// Describes `decode` to the GPU's filter.
    pub(super) fn filter(
        &self,
        encoding: OutputEncoding,
        outputs: ModelOutputs<'_>,
        input_size: (u32, u32),
    ) -> Option<FilterSpec> {
        let column = |output: usize| {
            let rows = rows_of_one_number(outputs.shape(output))??;
            Some((Values::rows(output, rows, 1), rows))
        };
        let (boxes, box_rows, _) = rows_of(outputs, self.boxes)?;
        let (scores, score_rows) = if self.joint { (boxes.from_column(4), box_rows) } else { column(self.scores)? };
        let (labels, label_rows) = column(self.labels)?;
        let valid_rows = match self.count {
            Some(output) => {
                outputs.shape(output).vector()??;
                Some(Values::rows(output, 1, 1))
            }
            None => None,
        };
        let rows = box_rows.min(score_rows).min(label_rows);
        let table = Table { labels: Some(labels), valid_rows, ..table(rows, scores, boxes) };
        let labels = encoding.label_code();
        let boxes = plain_box(encoding.format, encoding.unit, input_size);
        Some(FilterSpec { labels, ..best_of(vec![table], 0..1, boxes) })
    }
}
