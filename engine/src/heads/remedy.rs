//! The correction for a card whose head does not fit the outputs, from the guess of which heads would fit.

use std::collections::BTreeMap;

use super::build::build;
use super::exports::{Export, recognise};
use super::guess::{HeadProposal, proposals};
use super::head::HeadError;
use super::misfit::FAMILY;
use super::model_facts::ModelFacts;
use super::outputs::classes_text;
use super::spec::HeadSpec;
use crate::backend::TensorInfo;

/// More classes than any detection data set in common use.
const MOST_CLASSES: usize = 2_000;

/// The options that decide which shapes a head reads, with their keys in the card.
const SHAPING: [(&str, &str); 10] = [
    ("keypoints", "head.keypoints"),
    ("masks", "head.masks"),
    ("oriented", "head.oriented"),
    ("strides", "head.strides"),
    ("reg_max", "head.reg_max"),
    ("decoded", "head.decoded"),
    ("style", "head.style"),
    ("min_sizes", "head.min_sizes"),
    ("stride", "head.stride"),
    ("background", "head.background"),
];

/// Completes the error of a head that does not fit: the wrong key, and the correction.
///
/// `named` is the number of classes in the card.
pub(crate) fn with_remedy(
    error: HeadError,
    spec: &HeadSpec,
    named: usize,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
    size: (u32, u32),
) -> HeadError {
    // If the card names the output, the head's own error is best.
    if error.key != FAMILY {
        return error;
    }
    let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
    let facts = ModelFacts { inputs, outputs, metadata: &metadata, tails: &tails };
    if let Some(export) = recognise(facts).filter(Export::is_refused) {
        return error.remedied(FAMILY, format!("no head reads such outputs: {}", export.sentence()));
    }
    let fitting = |named| proposals(facts, Some(size), named);
    let (mut hinted, free) = (fitting(named), fitting(0));
    hinted.retain(|other| named > 0 && other.classes == Some(named));
    let same = |other: &&HeadProposal| other.spec.family() == spec.family();
    // If a head reads several outputs and only the number of classes differs, another family would fit only by chance.
    let only_classes = outputs.len() > 1 && build(spec, outputs, size, 0).is_ok();
    // Prefer options or a family that fit the classes, then classes that fit the options, then any heads that fit.
    let by_options =
        hinted.iter().find(same).or(hinted.first().filter(|_| !only_classes)).map(|other| changes(spec, &other.spec));
    let by_classes = free.iter().filter(same).find(|other| changes(spec, &other.spec).is_empty());
    // The card's own options determine which numbers are not classes.
    let by_classes = by_classes.filter(|_| named > 0).and_then(|other| room_for(spec, outputs, size).or(other.classes));
    let by_classes = by_classes.filter(|&classes| classes != named);
    let (key, remedy) = match (by_options.filter(|changes| !changes.is_empty()), by_classes) {
        (Some(changes), Some(classes)) => {
            (changes[0].key, format!("{}, or name {}", Change::text(&changes), classes_text(classes)))
        }
        (Some(changes), None) => (changes[0].key, Change::text(&changes)),
        (None, Some(classes)) => {
            ("classes", format!("name {} under [classes], or remove the names", classes_text(classes)))
        }
        (None, None) => match free.iter().find(same).or(free.first()) {
            Some(other) => {
                let changes = changes(spec, &other.spec);
                let count = other.classes.filter(|&classes| named > 0 && classes != named);
                let classes = count.map(|count| format!(", and name {}", classes_text(count))).unwrap_or_default();
                (changes.first().map_or(FAMILY, |change| change.key), Change::text(&changes) + &classes)
            }
            None => (
                FAMILY,
                "no head reads such outputs: export the model in one of the forms of docs/models.md".to_owned(),
            ),
        },
    };
    error.remedied(key, remedy)
}

/// Returns the number of classes with which a card's head fits the outputs; `None` if none fits, or several do.
fn room_for(spec: &HeadSpec, outputs: &[TensorInfo], size: (u32, u32)) -> Option<usize> {
    let fits = |classes: usize| build(spec, outputs, size, classes).is_ok();
    // An open shape fits any number.
    if !fits(0) || fits(MOST_CLASSES + 1) {
        return None;
    }
    (1..=MOST_CLASSES).find(|&classes| fits(classes))
}

/// A change to `[head]`.
struct Change {
    /// The key, including its table.
    key: &'static str,
    name: &'static str,
    /// The value to write; `None` removes the key.
    value: Option<String>,
}

impl Change {
    /// Returns the changes as an imperative.
    fn text(changes: &[Self]) -> String {
        let written: Vec<String> = changes
            .iter()
            .filter_map(|change| Some(format!("`{} = {}`", change.name, change.value.as_ref()?)))
            .collect();
        let removed: Vec<String> =
            changes.iter().filter(|change| change.value.is_none()).map(|change| format!("`{}`", change.name)).collect();
        let write = (!written.is_empty()).then(|| format!("write {} under [head]", written.join(", ")));
        let remove = (!removed.is_empty()).then(|| format!("remove {} under [head]", removed.join(", ")));
        let parts: Vec<String> = write.into_iter().chain(remove).collect();
        if parts.is_empty() { "correct [head] and [classes]".to_owned() } else { parts.join(" and ") }
    }
}

/// Returns the changes that make a card's head read the shapes that `right` reads.
fn changes(card: &HeadSpec, right: &HeadSpec) -> Vec<Change> {
    let (said, right_options) = (card.options(), right.options());
    let value = |options: &[(&'static str, String)], key: &str| {
        options.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    };
    let is_other = card.family() != right.family();
    let family = Change { key: FAMILY, name: "family", value: Some(format!("{:?}", right.family().name())) };
    let mut changes: Vec<Change> = is_other.then_some(family).into_iter().collect();
    for (name, key) in SHAPING {
        let (is, should) = (value(&said, name), value(&right_options, name));
        // Another family does not have the keys of this one; reading the card reports that.
        if should != is && (should.is_some() || !is_other) {
            changes.push(Change { key, name, value: should });
        }
    }
    changes
}
