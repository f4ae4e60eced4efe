//! Guesses the heads with whole-frame values. Many other models have the same shapes, so the names or the last operators must
//! indicate them.

use std::collections::BTreeMap;

use super::outputs::ModelOutputs;
use super::spec::{Activation, AttributeKind, AttributeSpec, DepthSpec, HeadSpec};
use crate::backend::{Dim, TensorInfo};
use crate::card::MAX_NAME_CHARS;
use crate::onnx::OutputTail;

/// An image map is not smaller than this.
const LEAST_SIDE: usize = 16;

/// More labels than a card lists individually for an attribute.
const MOST_LABELS: usize = 100;

/// Returns the words of an output's name.
fn words(name: &str) -> Vec<String> {
    name.to_ascii_lowercase().split(|c: char| !c.is_ascii_alphabetic()).map(str::to_owned).collect()
}

fn has_word(name: &str, known: &[&str]) -> bool {
    words(name).iter().any(|word| known.contains(&word.as_str()))
}

/// Returns the heads of values that fit, with the reasons. `is_alone` says whether no other head is likely.
pub(super) fn guess_values(
    outputs: &[TensorInfo],
    tails: &BTreeMap<String, OutputTail>,
    is_alone: bool,
) -> Vec<(HeadSpec, String)> {
    let tail = |name: &str| tails.get(name).cloned().unwrap_or_default();
    // Rows of several objects begin with their count.
    let is_one = |dims: &Vec<Dim>| !matches!(dims.first(), Some(Dim::Fixed(2..)));
    let of_one = outputs.iter().all(|output| output.shape.as_ref().is_some_and(is_one));
    let outputs = ModelOutputs::Declared(outputs);
    let found = match outputs.count() {
        0 => [None, None],
        1 => [embedding(outputs, &tail(outputs.name(0))), depth(outputs).filter(|_| is_alone)],
        _ => [attributes(outputs, tail).filter(|_| of_one), None],
    };
    found.into_iter().flatten().collect()
}

/// Whether an output's name indicates landmarks or an embedding: only the name shows that these are not classes.
pub(super) fn named_like_no_scores(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["landmark", "keypoint", "kpt", "kps", "embed", "descriptor", "vertices"];
    let words = ["lm", "lms", "lmk", "lmks", "pts", "points", "emb", "feature", "features", "feat", "bbox", "box"];
    let mut split = name.split(|c: char| !c.is_ascii_alphabetic());
    parts.iter().any(|part| name.contains(part)) || split.any(|word| words.contains(&word))
}

/// A row of numbers that the graph normalises, or that is named as an embedding.
fn embedding(outputs: ModelOutputs<'_>, tail: &OutputTail) -> Option<(HeadSpec, String)> {
    let Some(Some(length @ 16..)) = outputs.shape(0).vector() else { return None };
    let named = has_word(outputs.name(0), &["embed", "embedding", "embeddings", "emb", "descriptor"]);
    let spec = HeadSpec::Embedding { output: None, normalize: true };
    let fits = !tail.softmax && !tail.sigmoid && (tail.embedded || named);
    fits.then(|| (spec, format!("one row of {length} numbers, an embedding")))
}

/// A one-channel map named depth or disparity: masks and heat maps have the same shape.
fn depth(outputs: ModelOutputs<'_>) -> Option<(HeadSpec, String)> {
    let sides = match outputs.shape(0).last::<3>() {
        Some([height, width, Some(1)]) => [height, width],
        _ => outputs.rows_and_columns(0),
    };
    let is_map = sides.iter().all(|side| side.is_none_or(|side| side >= LEAST_SIDE));
    let named = has_word(outputs.name(0), &["depth", "disparity", "disp"]);
    let spec = HeadSpec::Depth(DepthSpec::default());
    (named && is_map).then(|| (spec, "a map of one channel, named as depth".to_owned()))
}

/// Several rows of numbers, each of which ends in scores or is named like an attribute.
fn attributes(outputs: ModelOutputs<'_>, tail: impl Fn(&str) -> OutputTail) -> Option<(HeadSpec, String)> {
    const NAMES: [&str; 16] = [
        "age",
        "gender",
        "sex",
        "race",
        "ethnicity",
        "emotion",
        "emotions",
        "expression",
        "color",
        "colour",
        "type",
        "make",
        "brand",
        "glasses",
        "hat",
        "mask",
    ];
    let mut attributes = Vec::new();
    for index in 0..outputs.count() {
        let name = outputs.name(index);
        let Some(Some(width @ 1..=MOST_LABELS)) = outputs.shape(index).vector() else { return None };
        // The card puts it in quotation marks.
        let plain = !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.escape_debug().eq(name.chars());
        let tail = tail(name);
        let scored = tail.softmax || tail.sigmoid;
        if !plain || named_like_no_scores(name) || tail.embedded || !(scored || has_word(name, &NAMES)) {
            return None;
        }
        let is_yes = width == 1 && tail.sigmoid && !has_word(name, &["age"]);
        let several = width > 1 && tail.sigmoid;
        let labels = |names: Vec<String>| AttributeKind::Labels {
            names,
            activation: match (scored, tail.known) {
                (true, _) => Some(Activation::None),
                (false, true) => Some(Activation::Softmax),
                (false, false) => None,
            },
            multi_label: several,
        };
        let kind = match width {
            1 if is_yes => labels(vec!["no".to_owned(), "yes".to_owned()]),
            1 => AttributeKind::Number { scale: 1.0, offset: 0.0 },
            _ => labels((0..width).map(|label| format!("class {label}")).collect()),
        };
        attributes.push(AttributeSpec { name: name.to_owned(), output: name.to_owned(), column: None, kind });
    }
    let labelled = attributes.iter().any(|attribute| matches!(attribute.kind, AttributeKind::Labels { .. }));
    let reason = format!("{} rows of scores or numbers of the whole frame", attributes.len());
    labelled.then_some((HeadSpec::Attributes(attributes), reason))
}
