//! Guesses for finished rows whose graph does not show the order of their numbers: each documented order is one. A run on an image
//! in which the model finds something keeps those that its rows do not contradict.

use super::build::build;
use super::exports::{Export, recognise};
use super::finished_rows::{orders_of, written_order};
use super::guess::HeadGuess;
use super::guess_card::card_text;
use super::model_facts::{ModelFacts, likely_size};
use super::outputs::{ModelOutputs, two_dimensions};
use super::spec::{BoxUnit, Column, HeadSpec, RowsSpec};
use crate::backend::{TensorInfo, picture_size};

/// The maximum number of rows that a model chooses.
const MOST_ROWS: usize = 1_000;

/// Whether an output has one number, such as the count of valid rows.
fn is_one_number(outputs: &[TensorInfo], index: usize) -> bool {
    ModelOutputs::Declared(outputs).shape(index).vector().is_some_and(|length| length.is_none_or(|length| length == 1))
}

/// Returns a guess for each documented order of a model's finished rows, in pixels and in fractions of the input; none if its
/// outputs cannot be such rows. All guesses are equally likely until a run has produced a row.
pub fn guess_orders(facts: ModelFacts<'_>) -> Vec<HeadGuess> {
    let ModelFacts { inputs, outputs, .. } = facts;
    let table = |index: &usize| {
        let few = |rows: Option<usize>| rows.is_none_or(|rows| rows <= MOST_ROWS);
        two_dimensions(&outputs[*index]).is_some_and(|[rows, width]| few(rows) && matches!(width, Some(6 | 7)))
    };
    let mut tables = (0..outputs.len()).filter(table);
    let (Some(rows), None) = (tables.next(), tables.next()) else { return Vec::new() };
    if (0..outputs.len()).any(|index| index != rows && !is_one_number(outputs, index)) {
        return Vec::new();
    }
    let export = recognise(facts);
    if export.as_ref().is_some_and(Export::is_refused) {
        return Vec::new();
    }
    let width = two_dimensions(&outputs[rows]).and_then(|[_, width]| width).unwrap_or_default();
    let mut guesses = Vec::new();
    for unit in [BoxUnit::Pixels, BoxUnit::Normalized] {
        for columns in orders_of(width) {
            let rows = RowsSpec { columns: written_order(columns), ..RowsSpec::default() };
            let spec = HeadSpec::YoloNms { keypoints: None, unit, oriented: false, rows };
            let size = picture_size(inputs).unwrap_or_else(|| likely_size(&spec, inputs));
            if build(&spec, outputs, size, 0).is_err() {
                continue;
            }
            let of = if unit == BoxUnit::Pixels { "pixels" } else { "fractions of the input" };
            let reason = format!("rows of {} in {of}", Column::list(columns));
            let card = card_text(&spec, None, facts, None, export.as_ref());
            guesses.push(HeadGuess { family: spec.family(), class_count: None, reason, tied: true, card });
        }
    }
    guesses
}
