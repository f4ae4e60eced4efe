//! End-to-end models, which return final boxes, scores and classes in separate outputs; several families read them.

use std::borrow::Cow;

use super::decoded::Decoded;
use super::head::HeadInput;
use super::roles::EndToEndOutputs;
use super::rows::{class_number, corners, four};
use super::spec::{Background, BoxFormat, BoxUnit};

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

/// Adds the rows that pass the threshold.
pub(super) fn decode(found: &EndToEndOutputs, encoding: OutputEncoding, input: &HeadInput<'_>, out: &mut Decoded) {
    let values = |index: usize| -> Cow<'_, [f32]> { input.outputs[index].tensor.to_f32() };
    let (boxes, labels, scores) = (values(found.boxes), values(found.labels), values(found.scores));
    let valid = found.count.and_then(|count| values(count).first().copied()).unwrap_or(f32::INFINITY);
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
