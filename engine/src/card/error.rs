//! Errors in a card: each with its position, the line, and a suggestion.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::ultralytics::UltralyticsError;

/// One error in a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProblem {
    path: PathBuf,
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
    /// The text of the line.
    text: String,
    /// How many characters to mark, at least 1.
    width: usize,
    /// The problem, and what would be right.
    message: String,
}

impl CardProblem {
    /// Makes the error at `span` (in bytes) of `source`.
    pub(super) fn new(path: &Path, source: &str, span: Range<usize>, message: String) -> Self {
        let start = (0..=span.start.min(source.len())).rev().find(|&i| source.is_char_boundary(i)).unwrap_or(0);
        let before = &source[..start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let text = source[line_start..].lines().next().unwrap_or("").to_owned();
        let column = before[line_start..].chars().count() + 1;
        let room = (text.chars().count() + 1).saturating_sub(column).max(1);
        let meant = source.get(start..span.end).map_or(1, |s| s.lines().next().unwrap_or("").chars().count());
        let line = before.matches('\n').count() + 1;
        Self { path: path.to_owned(), line, column, text, width: meant.clamp(1, room), message }
    }
}

impl fmt::Display for CardProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // Keep tabs, so that the mark stands below the right characters.
        let indent: String =
            self.text.chars().take(self.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{}:{}:{}: {}", self.path.display(), self.line, self.column, self.message)?;
        writeln!(f, " {number} | {}", self.text)?;
        write!(f, " {margin} | {indent}{}", "^".repeat(self.width))
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
        "{model} has no model card, which says how its input is scaled and what its outputs mean. \
         Write {beside}, {example_is}:\n\n{example}\ndocs/models.md has every key; config/models/ has cards to copy"
    )]
    Missing {
        /// The model.
        model: PathBuf,
        /// Where visiond searches for the card.
        beside: PathBuf,
        /// Where the example comes from.
        example_is: &'static str,
        /// A card to start from.
        example: String,
    },
}
