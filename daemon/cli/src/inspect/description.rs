//! What the descriptions of an ONNX file and of a TensorRT engine have in common.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use visiond_config::units::format_size;
use visiond_engine::card::{Card, CardError};
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::HeadGuess;

/// The model card that visiond would use.
#[derive(Debug, Serialize)]
pub struct CardFacts {
    pub found: bool,
    pub origin: Option<String>,
    pub head: Option<&'static str>,
    pub classes: usize,
    pub error: Option<String>,
}

impl CardFacts {
    pub fn of(card: Result<Card, CardError>) -> Self {
        match card {
            Ok(card) => Self {
                found: true,
                origin: Some(card.origin.clone()),
                head: Some(card.head.family().name()),
                classes: card.classes.len(),
                error: None,
            },
            Err(error) => Self::none(&error.to_string()),
        }
    }

    pub fn none(why: &str) -> Self {
        Self { found: false, origin: None, head: None, classes: 0, error: Some(why.to_owned()) }
    }
}

pub fn tensor_json(info: &TensorInfo) -> Value {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => json!(size),
        Dim::Dynamic(name) if name.is_empty() => Value::Null,
        Dim::Dynamic(name) => json!(name),
    };
    let shape = info.shape.as_ref().map(|dims| dims.iter().map(dim).collect::<Vec<_>>());
    json!({ "name": info.name, "dtype": info.dtype.name(), "shape": shape })
}

pub fn guess_json(guess: &HeadGuess) -> Value {
    json!({ "family": guess.family.name(), "classes": guess.class_count, "reason": guess.reason, "card": guess.card })
}

/// Maximum number of characters shown of a metadata value.
const NOTE_CHARACTERS: usize = 100;

pub fn metadata_lines(metadata: &BTreeMap<String, String>, line: &mut impl FnMut(&str, String)) {
    for (name, note) in metadata {
        let cut: String = note.chars().take(NOTE_CHARACTERS).collect();
        let more = if cut.len() < note.len() { format!("... ({} bytes)", note.len()) } else { String::new() };
        line("metadata", format!("{name} = {cut}{more}"));
    }
}

pub fn card_lines(card: &CardFacts, line: &mut impl FnMut(&str, String)) {
    match (&card.origin, &card.head) {
        (Some(origin), Some(head)) => {
            let classes = visiond_config::diagnostics::count(card.classes, "class name").replace("classs", "classes");
            line("card", format!("{origin}: head {head}, {classes}"));
        }
        _ => {
            // The message may have several lines, each of them an error.
            let error = card.error.as_deref().unwrap_or("none");
            for (index, part) in error.lines().enumerate() {
                line(if index == 0 { "card" } else { "" }, part.to_owned());
            }
        }
    }
}

pub fn fit_lines(guesses: &[HeadGuess], line: &mut impl FnMut(&str, String)) {
    for guess in guesses {
        line("fits", format!("{}: {}", guess.family.name(), guess.reason));
    }
    if guesses.is_empty() {
        line("fits", "no head of visiond fits outputs of these shapes".to_owned());
    }
}

pub fn size(bytes: u64) -> String {
    let exact = format_size(bytes);
    if bytes < 10_000 { exact } else { format!("{:.1} MB ({bytes} bytes)", bytes as f64 / 1e6) }
}
