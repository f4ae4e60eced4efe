//! The progress of the self-test.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::checks::Area;
use crate::progress::Progress;

/// Reports progress to the terminal, or to the parent process.
pub struct TestProgress {
    /// Name of the current area.
    area: &'static str,
    /// Whether to report to the parent process, by lines on standard error.
    by_lines: bool,
    last_line: Option<Instant>,
    progress: Progress,
}

impl TestProgress {
    pub fn new(by_lines: bool) -> Self {
        Self { area: "", by_lines, last_line: None, progress: Progress::new() }
    }

    /// Starts an area, which is always reported.
    pub fn begin(&mut self, area: Area) {
        self.area = area.name();
        if !self.by_lines {
            self.progress.tell_now(&format!("testing {area}"));
        }
    }

    /// Reports a step of the area, at a limited rate.
    pub fn say(&mut self, words: &str) {
        /// Time between two lines, because the parent updates its line no more often.
        const EVERY: Duration = Duration::from_millis(200);
        if !self.by_lines {
            let area = self.area;
            let separator = if words.is_empty() { "" } else { ": " };
            self.progress.tell(|| format!("testing {area}{separator}{words}"));
        } else if self.last_line.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line = Some(Instant::now());
            // If the pipe is closed, the result still counts.
            let _ = writeln!(io::stderr(), "{words}");
        }
    }
}
