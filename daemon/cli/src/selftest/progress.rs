//! How far the self-test is.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::checks::Area;
use crate::progress::Progress;

/// Says how far the test is: to the terminal, or to the process that runs this one.
pub struct TestProgress {
    /// The name of the area that is tested.
    area: &'static str,
    /// To the other process by lines on standard error.
    by_lines: bool,
    last_line: Option<Instant>,
    progress: Progress,
}

impl TestProgress {
    pub fn new(by_lines: bool) -> Self {
        Self { area: "", by_lines, last_line: None, progress: Progress::new() }
    }

    /// Another area begins: that is always said.
    pub fn begin(&mut self, area: Area) {
        self.area = area.name();
        if !self.by_lines {
            self.progress.tell_now(&format!("testing {area}"));
        }
    }

    /// Says so, now and then.
    pub fn say(&mut self, words: &str) {
        /// What the other process can show.
        const EVERY: Duration = Duration::from_millis(200);
        if !self.by_lines {
            let area = self.area;
            let separator = if words.is_empty() { "" } else { ": " };
            self.progress.tell(|| format!("testing {area}{separator}{words}"));
        } else if self.last_line.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line = Some(Instant::now());
            // Where nobody listens any more, the result still counts.
            let _ = writeln!(io::stderr(), "{words}");
        }
    }
}
