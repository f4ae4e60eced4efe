//! End-to-end models, which return final boxes, scores and classes in separate outputs; several families read them.

use std::borrow::Cow;

use visiond_kernels::filter::{FilterSpec, LabelCode, Table, Values};
use visiond_kernels::tensor::DType;

use super::decoded::Decoded;
use super::gpu_filter::{best_of, known, plain_box, rows_of, table};
use super::head::HeadInput;
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, OutputShape, Roles, four_columns, may_agree, may_be};
use super::raw_numbers::{wrong_format, wrong_labels, wrong_unit};
use super::rows::{class_number, corners, four};
use super::spec::{Background, BoxFormat, BoxUnit, BoxesSpec};

/// The outputs of an end-to-end model: final boxes, classes and scores, and how many of them are valid.
pub(super) struct EndToEndOutputs {
    pub(super) boxes: usize,
    pub(super) labels: usize,
    scores: usize,
    pub(super) count: Option<usize>,
}

/// How the numbers of such a model are encoded.
#[derive(Clone, Copy)]
pub(super) struct OutputEncoding {
    pub(super) format: BoxFormat,
    pub(super) unit: BoxUnit,
    pub(super) background: Background,
    /// The number of named classes; 0 if unknown.
    pub(super) class_count: usize,
}

/// Returns the class for a number from the model; `None` for the background.
pub(super) fn class_of(number: u32, background: Background, class_count: usize) -> Option<u32> {
    match background {
        Background::None => Some(number),
        Background::First => number.checked_sub(1),
        Background::Last => (class_count == 0 || (number as usize) < class_count).then_some(number),
    }
}

/// Whether a shape is `[1, N]` or `[N]`.
fn one_number_a_row(shape: OutputShape) -> bool {
    shape.last::<1>().is_some()
}

impl EndToEndOutputs {
    /// Finds the outputs of an end-to-end model; `None` if they do not look like one. `names` has those that the card names.
    pub(super) fn find(outputs: ModelOutputs<'_>, names: &BoxesSpec) -> Result<Option<Self>, Misfit> {
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
        // Find the count before the scores: both have one number per row, and the count of one row looks like them.
        let one = |shape: OutputShape| shape.vector().is_some_and(|n| may_be(n, 1));
        let count = roles.by_name("count", names.count.as_deref(), &["num"], one)?;
        let [rows, _] = outputs.rows_and_columns(boxes);
        let fits = |shape: OutputShape| shape.last::<1>().is_some_and(|[n]| may_agree(n, rows));
        let scores = roles.find("scores", names.scores.as_deref(), &["score", "conf", "prob"], fits)?;
        let Some(scores) = scores else { return Ok(None) };
        if !fits(outputs.shape(labels)) {
            let [boxes, labels] = [boxes, labels].map(|index| outputs.name(index));
            return Err(format!("`{boxes}` and `{labels}` have different numbers of rows").into());
        }
        Ok(Some(Self { boxes, labels, scores, count }))
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
        for (row, (&score, &label)) in scores.iter().zip(labels.iter()).enumerate() {
            // If the count is NaN, no row passes.
            let counted = (row as f32) < valid;
            if !counted || score.is_nan() || score < input.score_threshold {
                continue;
            }
            let class = class_number(label).and_then(|n| class_of(n, encoding.background, encoding.class_count));
            let (Some(class), Some(numbers)) = (class, four(&boxes, row * 4)) else { continue };
            out.push(row, class, score, corners(numbers, encoding.format, encoding.unit, input.input_size));
        }
    }

    /// Doubts the numbers of a run; `unit_key` is the card's key for the unit.
    pub(super) fn doubt(
        &self,
        encoding: OutputEncoding,
        unit_key: &'static str,
        input: &HeadInput<'_>,
    ) -> Option<Misfit> {
        let values = |index: usize| input.outputs[index].tensor.to_f32();
        let (boxes, labels, scores) = (values(self.boxes), values(self.labels), values(self.scores));
        let valid = self.count.and_then(|count| values(count).first().copied()).unwrap_or(f32::INFINITY);
        let rows = scores.len().min(labels.len()).min(boxes.len() / 4);
        let rows = (0..rows).take_while(|&row| (row as f32) < valid);
        let first = u32::from(encoding.background == Background::First);
        let found = rows.clone().map(|row| (scores[row], labels[row]));
        // Whatever fills the boxes of unused rows, their scores are not above 0.
        let used = rows.filter(|&row| scores[row] > 0.0);
        let boxes: Vec<[f32; 4]> = used.filter_map(|row| four(&boxes, row * 4)).collect();
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
            let [rows] = known(outputs.shape(output))?;
            Some((Values::rows(output, rows, 1), rows))
        };
        let (boxes, box_rows, _) = rows_of(outputs, self.boxes)?;
        let (scores, score_rows) = column(self.scores)?;
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
        let labels = match (encoding.background, u32::try_from(encoding.class_count)) {
            (Background::First, _) => LabelCode::FromOne,
            (Background::Last, Ok(count @ 1..)) => LabelCode::Below(count),
            _ => LabelCode::Plain,
        };
        let boxes = plain_box(encoding.format, encoding.unit, input_size);
        Some(FilterSpec { labels, ..best_of(vec![table], 0..1, boxes) })
    }
}
