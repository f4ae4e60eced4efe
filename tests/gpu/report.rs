//! Figures as JSON lines: `{"row", "what", "wanted", "seen", "pass"}`; `pass` is null if the figure was skipped, and `seen` then says
//! why.

use std::fmt::Display;

use serde::Serialize;

/// Why a row ended without its figures.
#[derive(Debug)]
pub enum Failure {
    /// There is no GPU to measure on; the reason in one line.
    NoGpu(String),
    /// Something else failed; a sentence.
    Broken(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Broken(text)
    }
}

/// One figure.
#[derive(Serialize)]
struct Figure<'a> {
    row: &'a str,
    what: &'a str,
    wanted: String,
    seen: String,
    pass: Option<bool>,
}

/// Prints figures and remembers whether all passed.
#[derive(Default)]
pub struct Report {
    failed: bool,
}

impl Report {
    /// Reports a figure that passes or fails.
    pub fn figure(&mut self, row: &str, what: &str, wanted: impl Display, seen: impl Display, pass: bool) {
        self.failed |= !pass;
        print(&Figure { row, what, wanted: wanted.to_string(), seen: seen.to_string(), pass: Some(pass) });
    }

    /// Reports a figure that cannot be measured here, although nothing is wrong.
    pub fn skipped(&mut self, row: &str, what: &str, wanted: impl Display, why: impl Display) {
        print(&Figure { row, what, wanted: wanted.to_string(), seen: format!("skipped: {why}"), pass: None });
    }

    /// Reports something worth knowing that has no limit.
    pub fn note(&mut self, row: &str, what: &str, seen: impl Display) {
        print(&Figure { row, what, wanted: String::new(), seen: seen.to_string(), pass: Some(true) });
    }

    /// Prints something that must hold.
    pub fn require(&mut self, holds: bool) {
        self.failed |= !holds;
    }

    /// Returns whether no figure failed.
    pub fn all_passed(&self) -> bool {
        !self.failed
    }
}

fn print(figure: &Figure<'_>) {
    // Standard output is the script's pipe; if that is closed, the exit status still shows the result.
    if let Ok(line) = serde_json::to_string(figure) {
        println!("{line}");
    }
}
