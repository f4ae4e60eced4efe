//! What is wrong with a card: every problem with its place, the line, and what was probably meant.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::ultralytics::UltralyticsError;

/// One thing that is wrong in a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProblem {
    /// The card's file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line itself.
    pub text: String,
    /// Number of characters that are meant, at least 1.
    pub width: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl CardProblem {
    /// The problem at `span` (bytes) of `source`.
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
        // A tab keeps its place, so that the mark stands under what it marks.
        let indent: String =
            self.text.chars().take(self.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{}:{}:{}: {}", self.path.display(), self.line, self.column, self.message)?;
        writeln!(f, " {number} | {}", self.text)?;
        write!(f, " {margin} | {indent}{}", "^".repeat(self.width))
    }
}

fn all(problems: &[CardProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// No card, or one with errors.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The card's file could not be read.
    #[error("cannot read the model card {path}: {error}")]
    Read {
        /// The card.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The card has errors: all of them.
    #[error("{}", all(.0))]
    Invalid(
        /// In the order of the file.
        Vec<CardProblem>,
    ),
    /// The model's own metadata is of no use.
    #[error("{model} has no model card beside it ({beside}), and {error}")]
    Metadata {
        /// The model.
        model: PathBuf,
        /// Where a card would be looked for.
        beside: PathBuf,
        /// Why the metadata does not serve.
        #[source]
        error: UltralyticsError,
    },
    /// There is no card.
    #[error(
        "{model} has no model card: nothing tells how its input is scaled and what its outputs mean. \
         Write {beside}, {example_is}:\n\n{example}\ndocs/models.md has every key; config/models/ has cards to copy"
    )]
    Missing {
        /// The model.
        model: PathBuf,
        /// Where a card is looked for.
        beside: PathBuf,
        /// How the example was found.
        example_is: &'static str,
        /// A card to start from.
        example: String,
    },
}
