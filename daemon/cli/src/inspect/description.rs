//! The parts that the descriptions of an ONNX file and of a TensorRT engine share.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde_json::{Value, json};
use visiond_config::units::format_size;
use visiond_engine::card::Card;
use visiond_engine::engine::{Dim, ModelFile, TensorInfo};
use visiond_engine::heads::HeadGuess;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

/// The model card that visiond would use, or why there is none.
#[derive(Debug, Default, Serialize)]
pub struct CardDescription {
    pub found: bool,
    pub origin: Option<String>,
    pub head: Option<&'static str>,
    pub classes: usize,
    pub error: Option<String>,
}

impl CardDescription {
    /// Describes `card`. A wrong card is an error only if the command line names it; otherwise the description shows it.
    pub fn of<E: Display>(card: Result<Card, E>, is_named: bool) -> Result<Self, ExitError> {
        match card {
            Ok(card) => {
                let head = Some(card.head.family().name());
                Ok(Self { found: true, origin: Some(card.origin), head, classes: card.classes.len(), error: None })
            }
            Err(error) if is_named => Err(ExitError::new(Exit::Config, error)),
            Err(error) => Ok(Self { error: Some(error.to_string()), ..Self::default() }),
        }
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

/// Formats a line of a description.
pub fn line(name: &str, value: impl Display) -> String {
    format!("{name:10} {}\n", escape(&value.to_string()))
}

pub fn file_lines(file: &ModelFile) -> String {
    let bytes = file.size_bytes;
    let size =
        if bytes < 10_000 { format_size(bytes) } else { format!("{:.1} MB ({bytes} bytes)", bytes as f64 / 1e6) };
    line("file", file.path.display()) + &line("size", size) + &line("sha256", &file.sha256)
}

pub fn metadata_lines(metadata: &BTreeMap<String, String>) -> String {
    let lines = metadata.iter().map(|(name, note)| {
        let cut: String = note.chars().take(NOTE_CHARACTERS).collect();
        let more = if cut.len() < note.len() { format!("... ({} bytes)", note.len()) } else { String::new() };
        line("metadata", format!("{name} = {cut}{more}"))
    });
    lines.collect()
}

pub fn card_lines(card: &CardDescription) -> String {
    match (&card.origin, &card.head) {
        (Some(origin), Some(head)) => {
            let classes = visiond_config::diagnostics::count(card.classes, "class name");
            line("card", format!("{origin}: head {head}, {classes}"))
        }
        _ => {
            // The message may have several lines, each of them an error.
            let lines = card.error.as_deref().unwrap_or("none").lines().enumerate();
            lines.map(|(index, part)| line(if index == 0 { "card" } else { "" }, part)).collect()
        }
    }
}

pub fn fit_lines(guesses: &[HeadGuess]) -> String {
    if guesses.is_empty() {
        return line("fits", "no head of visiond fits outputs of these shapes");
    }
    guesses.iter().map(|guess| line("fits", format!("{}: {}", guess.family.name(), guess.reason))).collect()
}
