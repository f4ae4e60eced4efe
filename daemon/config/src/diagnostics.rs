//! Errors and warnings about a file, with location, line, caret and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

use visiond_system::logging::is_unprintable;
use visiond_system::redact::{redact_in_place, redact_urls};

/// Whether the daemon rejects the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The daemon rejects the file.
    #[default]
    Error,
    /// The daemon starts, but something will probably not work.
    Warning,
}

/// Class of an error or warning. It decides which ones are mere consequences of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Syntax,
    Content,
    /// Something is missing or contradicts another key; this may follow from a syntax error.
    Absence,
    /// The same as a warning: the daemon starts.
    Warning,
}

/// An error or warning with its byte range.
#[derive(Debug)]
struct Problem {
    span: Range<usize>,
    class: Class,
    message: String,
    note: Option<String>,
}

impl Problem {
    fn severity(&self) -> Severity {
        if self.class == Class::Warning { Severity::Warning } else { Severity::Error }
    }
}

/// The errors and warnings found in a file so far.
#[derive(Debug, Default)]
pub struct Diagnostics {
    problems: Vec<Problem>,
    /// A second text, whose places come after those of the first.
    second: Option<SecondText>,
}

/// See [`Diagnostics::add_text`].
#[derive(Debug)]
struct SecondText {
    offset: usize,
    path: PathBuf,
    text: String,
}

impl Diagnostics {
    /// Reports invalid TOML.
    pub fn syntax(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, Class::Syntax, message.into(), None);
    }

    /// Reports an invalid key or value.
    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, Class::Content, message.into(), None);
    }

    /// Reports an invalid value; `note` explains its key.
    pub fn wrong(&mut self, span: Range<usize>, message: String, note: String) {
        self.push(span, Class::Content, message, Some(note));
    }

    /// Reports something that is missing or contradicts another key.
    pub fn absence(&mut self, span: Range<usize>, message: impl Into<String>, note: Option<String>) {
        self.push(span, Class::Absence, message.into(), note);
    }

    /// Reports something that will probably not work.
    pub fn warning(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, Class::Warning, message.into(), None);
    }

    fn push(&mut self, span: Range<usize>, class: Class, message: String, note: Option<String>) {
        self.problems.push(Problem { span, class, message, note });
    }

    /// Returns the number of errors so far.
    pub fn error_count(&self) -> usize {
        self.problems.iter().filter(|problem| problem.class != Class::Warning).count()
    }

    /// Places from `offset` on are in this text, which is shown as that of the file `path`.
    pub(crate) fn add_text(&mut self, offset: usize, path: PathBuf, text: &str) {
        self.second = Some(SecondText { offset, path, text: text.to_owned() });
    }

    /// Drops what may only be missing because something else holds it.
    pub(crate) fn drop_absences(&mut self) {
        self.problems.retain(|problem| problem.class != Class::Absence);
    }

    /// Returns everything found, in the order of the file, with lines and columns; leaves out possible consequences of a syntax
    /// error.
    pub fn into_findings(mut self, path: &Path, text: &str) -> Vec<Diagnostic> {
        let Some(SecondText { offset, path: second_path, text: second_text }) = self.second.take() else {
            return self.into_findings_of(path, text);
        };
        let (mut second, first): (Vec<_>, Vec<_>) =
            self.problems.into_iter().partition(|problem| problem.span.start >= offset);
        for Problem { span, .. } in &mut second {
            *span = span.start - offset..span.end.max(span.start) - offset;
        }
        let [first, second] = [first, second].map(|problems| Self { problems, second: None });
        let mut findings = first.into_findings_of(path, text);
        findings.extend(second.into_findings_of(&second_path, &second_text));
        findings
    }

    /// Does the same for one text.
    fn into_findings_of(mut self, path: &Path, text: &str) -> Vec<Diagnostic> {
        let line_of = |offset: usize| text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count();
        let broken: Vec<usize> =
            self.problems.iter().filter(|p| p.class == Class::Syntax).map(|p| line_of(p.span.start)).collect();
        self.problems.retain(|problem| match problem.class {
            Class::Syntax => true,
            Class::Content => !broken.contains(&line_of(problem.span.start)),
            Class::Absence | Class::Warning => broken.is_empty(),
        });
        self.problems.sort_by_key(|problem| (problem.span.start, problem.severity()));
        // A fault of one key that affects several cameras is one problem.
        self.problems.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        // The whole text: an option on one line may announce the secret on the next one.
        let shown = redact_in_place(text);
        let shown: Vec<&str> = shown.split('\n').collect();
        self.problems.into_iter().map(|problem| Diagnostic::locate(problem, path, text, &shown)).collect()
    }
}

/// An error or warning with its place in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Path of the file.
    pub file: PathBuf,
    /// Line, counted from 1; `None` for the whole file.
    pub line: Option<usize>,
    /// Column in characters, counted from 1.
    pub column: Option<usize>,
    /// Error or warning.
    pub severity: Severity,
    /// The problem and its remedy.
    pub message: String,
    /// Description of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Text of the line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Number of characters to mark, from `column` on.
    #[serde(skip)]
    marked: usize,
}

impl Diagnostic {
    /// Returns an error of the whole file.
    pub fn of_file(path: &Path, message: String) -> Self {
        Self { file: path.to_owned(), message, ..Self::default() }
    }

    /// `shown` holds the lines of `text` without secrets.
    fn locate(problem: Problem, path: &Path, text: &str, shown: &[&str]) -> Self {
        let mut start = text.floor_char_boundary(problem.span.start);
        // Something that is missing at the end of the file is shown after its last line.
        if start == text.len() && problem.class == Class::Syntax {
            start = text.trim_end_matches(['\n', '\r']).len();
        }
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let source = text[line_start..line_end].trim_end_matches('\r');
        let end = problem.span.end.clamp(start, line_start + source.len().max(start - line_start));
        let marked = text.get(start..end).map_or(0, |part| part.chars().count());
        let line = text[..line_start].matches('\n').count();
        let shown = shown.get(line).map_or("", |line| line.trim_end_matches('\r'));
        Self {
            file: path.to_owned(),
            line: Some(line + 1),
            column: Some(text[line_start..start].chars().count() + 1),
            severity: problem.severity(),
            message: redact_urls(&problem.message),
            note: problem.note,
            source: shown.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect(),
            marked: marked.max(1),
        }
    }
}

/// Maximum number of characters of a line to show.
const SHOWN: usize = 120;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        let word = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, ": {word}{}", self.message)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            // A long line is shown from shortly before the place.
            let skipped = if column > SHOWN - 20 { column - 20 } else { 0 };
            let shown: String = self.source.chars().skip(skipped).take(SHOWN).collect();
            let at = column - 1 - skipped.min(column - 1);
            let carets = "^".repeat(self.marked.min(SHOWN.saturating_sub(at)).max(1));
            write!(f, "\n{line:>6} | {shown}\n       | {:at$}{carets}", "")?;
        }
        if let Some(note) = &self.note {
            write!(f, "\n       = {note}")?;
        }
        Ok(())
    }
}

/// The errors of a file. `Display` lists every error with its location; the last line has their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Path of the file.
    pub path: PathBuf,
    /// At least one error, in the order of the file, and any warnings.
    pub findings: Vec<Diagnostic>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        write!(f, "{}: {}", self.path.display(), count(self.findings.len(), "error"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Formats `1 error` or `2 errors`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_shown_at_its_place_in_its_line() {
        let text = "a = 1\r\n\u{fc}b = 2\nc";
        let at = |part: &str| text.find(part).unwrap_or_default();
        let (second, third) = (at("\u{fc}"), at("c"));
        for (text, span, class, place, source, marked) in [
            (text, 0..1, Class::Content, (1, 1), "a = 1", 1),
            (text, 0..5, Class::Content, (1, 1), "a = 1", 5),
            (text, 4..third, Class::Content, (1, 5), "a = 1", 1),
            (text, second..second + 3, Class::Content, (2, 1), "\u{fc}b = 2", 2),
            (text, second + 1..second + 3, Class::Content, (2, 1), "\u{fc}b = 2", 2),
            (text, at("2")..at("2"), Class::Content, (2, 6), "\u{fc}b = 2", 1),
            (text, at("2")..text.len(), Class::Content, (2, 6), "\u{fc}b = 2", 1),
            (text, third..third + 9, Class::Content, (3, 1), "c", 1),
            // At the end of the file: something is missing after the last line, or the place itself is there.
            ("a =\r\n\n", 6..6, Class::Syntax, (1, 4), "a =", 1),
            ("a =\r\n\n", 6..6, Class::Content, (3, 1), "", 1),
            ("a =\n\n", 0..1, Class::Syntax, (1, 1), "a =", 1),
        ] {
            let problem = Problem { span: span.clone(), class, message: "test".to_owned(), note: None };
            let shown: Vec<_> = text.split('\n').collect();
            let found = Diagnostic::locate(problem, Path::new("v.toml"), text, &shown);
            assert_eq!((found.line, found.column), (Some(place.0), Some(place.1)), "{text:?} {span:?} {class:?}");
            assert_eq!((found.source.as_str(), found.marked), (source, marked), "{text:?} {span:?} {class:?}");
        }
    }

    #[test]
    fn a_long_line_is_shown_around_its_place() {
        let source: String = ('a'..='z').cycle().take(300).collect();
        for (column, skipped, carets) in [(1, 0, 30), (100, 0, 21), (101, 81, 30), (290, 270, 30)] {
            let found = Diagnostic {
                line: Some(7),
                column: Some(column),
                source: source.clone(),
                marked: 30,
                ..Diagnostic::default()
            };
            let printed = found.to_string();
            let [place, line, marks] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
            assert_eq!(place, format!(":7:{column}: "));
            let end = (skipped + SHOWN).min(source.len());
            assert_eq!(line, format!("     7 | {}", &source[skipped..end]));
            assert_eq!(marks, format!("       | {}{}", " ".repeat(column - 1 - skipped), "^".repeat(carets)));
        }
    }
}
