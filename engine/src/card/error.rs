//! Errors in a card: each with its location, the line, and a suggestion.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::backend::one_line;
use crate::ultralytics::UltralyticsError;

/// How much of a line an error shows.
const MAX_LINE_CHARS: usize = 400;

/// One error in a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProblem {
    path: PathBuf,
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
    /// The text of the line, at most [`MAX_LINE_CHARS`] of it.
    text: String,
    /// How many characters to mark, at least 1.
    width: usize,
    /// The problem, and the correction.
    message: String,
}

impl CardProblem {
    /// Creates the error at `span` (in bytes) of `source`.
    pub(super) fn new(path: &Path, source: &str, span: Range<usize>, message: String) -> Self {
        let start = (0..=span.start.min(source.len())).rev().find(|&i| source.is_char_boundary(i)).unwrap_or(0);
        let before = &source[..start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let text: String = source[line_start..].lines().next().unwrap_or("").chars().take(MAX_LINE_CHARS).collect();
        let column = before[line_start..].chars().count() + 1;
        let room = (text.chars().count() + 1).saturating_sub(column).max(1);
        let meant = source.get(start..span.end).map_or(1, |s| s.lines().next().unwrap_or("").chars().count());
        let line = before.matches('\n').count() + 1;
        Self {
            path: path.to_owned(),
            line,
            column,
            text,
            width: meant.clamp(1, room),
            message: one_line(&message).into_owned(),
        }
    }
}

impl fmt::Display for CardProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // Keep tabs, so that the mark is below the right characters.
        let indent: String =
            self.text.chars().take(self.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{}:{}:{}: {}", self.path.display(), self.line, self.column, self.message)?;
        writeln!(f, " {number} | {}", self.text)?;
        write!(f, " {margin} | {indent}{}", "^".repeat(self.width))
    }
}

/// The locations of a card's keys, for the errors of a card that is valid by itself but contradicts its model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CardPlaces {
    path: PathBuf,
    text: String,
    /// The byte ranges of the values by `table.key`, and of the tables by their names.
    spans: BTreeMap<String, Range<usize>>,
}

impl CardPlaces {
    /// Notes the locations of every table and key in the card.
    pub(super) fn of(path: &Path, text: &str, document: &DeTable<'_>) -> Self {
        let mut spans = BTreeMap::new();
        for (table, value) in document {
            spans.insert(table.get_ref().to_string(), table.span());
            for (key, value) in value.get_ref().as_table().into_iter().flatten() {
                spans.insert(format!("{}.{}", table.get_ref(), key.get_ref()), value.span());
            }
        }
        Self { path: path.to_owned(), text: text.to_owned(), spans }
    }

    /// Whether the card's file has `key`, such as `input.resize`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.spans.contains_key(key)
    }

    /// Returns the problem at `key`, such as `head.sigmoid`, or at its substitute: the family, whose default applies, or the table.
    /// `classes` is whichever key names them. `None` if the card has none of them.
    pub(super) fn problem(&self, key: &str, message: &str) -> Option<CardProblem> {
        let (table, _) = key.split_once('.').unwrap_or((key, ""));
        let named = self.spans.keys().find(|other| key == "classes" && other.starts_with("classes."));
        let family = (table == "head").then_some("head.family");
        let keys = named.map(String::as_str).into_iter().chain([key]).chain(family).chain([table]);
        let span = keys.into_iter().find_map(|key| self.spans.get(key))?;
        Some(CardProblem::new(&self.path, &self.text, span.clone(), message.to_owned()))
    }
}

/// Why there is no usable card.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The card's file cannot be read.
    #[error("cannot read the model card {0}: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The card has errors: all of them, in the order of the file.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<CardProblem>),
    /// The model's own metadata cannot be used.
    #[error("{model} has no model card ({beside} does not exist), and {error}")]
    Metadata {
        /// The model.
        model: PathBuf,
        /// Where visiond searches for a card.
        beside: PathBuf,
        /// Why the metadata cannot be used.
        #[source]
        error: UltralyticsError,
    },
    /// There is no card.
    #[error(
        "{model} has no model card ({beside} does not exist), which says how its input is scaled and what its outputs mean. {about}\
         `visiond inspect {model}` tries which heads fit and prints a card to start from; docs/models.md has every key"
    )]
    Missing {
        /// The model.
        model: PathBuf,
        /// Where visiond searches for the card.
        beside: PathBuf,
        /// The model's exporter, as a sentence with a space after it, or empty.
        about: String,
    },
    /// There is no card, and no head fits the outputs.
    #[error("{model} has no model card, and no head of visiond reads its outputs {outputs}: {remedy}")]
    NoHead {
        /// The model.
        model: PathBuf,
        /// Its outputs, with types and shapes.
        outputs: String,
        /// The model's exporter, or the remedy.
        remedy: String,
    },
}
