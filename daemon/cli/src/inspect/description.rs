//! The common parts of the descriptions of an ONNX file and a TensorRT engine.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde_json::{Value, json};
use visiond_config::units::format_size;
use visiond_engine::card::{Card, CardError};
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
    /// The names of the keypoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keypoints: Vec<String>,
    pub error: Option<String>,
    /// Whether the card is wrong, which makes the command fail.
    #[serde(skip)]
    wrong: bool,
}

impl CardDescription {
    /// Describes `card`; `check` compares it with the model and returns the names of the keypoints.
    pub fn of(card: Result<Card, CardError>, check: impl FnOnce(&Card) -> Result<Vec<String>, String>) -> Self {
        match card {
            Ok(card) => {
                let (keypoints, error) = match check(&card) {
                    Ok(keypoints) => (keypoints, None),
                    Err(error) => (Vec::new(), Some(error)),
                };
                let head = Some(card.head.family().name());
                let (origin, classes) = (Some(card.origin), card.classes.len());
                Self { found: true, origin, head, classes, keypoints, wrong: error.is_some(), error }
            }
            // The output continues with the heads that fit, and a card to start from.
            Err(CardError::Missing { beside, .. }) => {
                let error = Some(format!("none: {} does not exist", beside.display()));
                Self { error, ..Self::default() }
            }
            Err(error) => {
                let wrong = matches!(error, CardError::Read(..) | CardError::Invalid(_));
                Self { error: Some(error.to_string()), wrong, ..Self::default() }
            }
        }
    }

    /// Describes a missing card, with the reason `error`.
    pub fn unknown(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// Returns the error to exit with after the description is printed.
    pub fn outcome(&self) -> Result<(), ExitError> {
        match &self.error {
            Some(error) if self.wrong => Err(ExitError::new(Exit::Config, error)),
            _ => Ok(()),
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
    json!({ "family": guess.family.name(), "classes": guess.class_count, "reason": guess.reason, "tied": guess.tied, "card": guess.card })
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
            let wrong = if card.wrong { "; wrong, as the error says" } else { "" };
            let points = match &card.keypoints[..] {
                [] => String::new(),
                names => line("keypoints", names.join(", ")),
            };
            line("card", format!("{origin}: head {head}, {classes}{wrong}")) + &points
        }
        // The error follows on standard error.
        _ if card.wrong => line("card", "wrong, as the error says"),
        _ => {
            // The message may have several lines, one per error.
            let lines = card.error.as_deref().unwrap_or("none").lines().enumerate();
            lines.map(|(index, part)| line(if index == 0 { "card" } else { "" }, part)).collect()
        }
    }
}

pub fn fit_lines(guesses: &[HeadGuess], outputs: &[TensorInfo]) -> String {
    if guesses.is_empty() {
        let outputs = outputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
        return line("fits", format!("no head of visiond reads the outputs {outputs}"));
    }
    let fits = |guess: &HeadGuess| line("fits", format!("{}: {}", guess.family.name(), guess.reason));
    let mut lines: String = guesses.iter().map(fits).collect();
    let tied: Vec<&str> = guesses.iter().filter(|guess| guess.tied).map(|guess| guess.family.name()).collect();
    if let [first, others @ ..] = &tied[..]
        && !others.is_empty()
    {
        let is_one_family = others.iter().all(|other| other == first);
        let families = if is_one_family { format!("these ways to read {first}") } else { tied.join(" and ") };
        lines +=
            &line("tie", format!("{families} fit equally well: its documentation decides, or a test on a known image"));
    }
    lines
}
