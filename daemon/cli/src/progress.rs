//! Progress of a long command: a live line on a terminal, otherwise an occasional line.

use std::time::{Duration, Instant};

use visiond_system::logging::{has_terminal, live_line};

use crate::output::note;

/// Time between two updates of the live line.
const LIVE_EVERY: Duration = Duration::from_millis(200);

/// Time between two lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Prints progress on standard error at a limited rate, as [`note`] does.
#[derive(Debug)]
pub struct Progress {
    printed: Instant,
}

impl Progress {
    /// Starts the first interval now.
    pub fn new() -> Self {
        Self { printed: Instant::now() }
    }

    /// Prints `text` if the interval is over.
    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.printed.elapsed() >= if has_terminal() { LIVE_EVERY } else { LINE_EVERY } {
            self.tell_now(&text());
        }
    }

    /// Prints `text` at once.
    pub fn tell_now(&mut self, text: &str) {
        self.printed = Instant::now();
        if has_terminal() {
            live_line(text);
        } else {
            note(text);
        }
    }

    /// Returns whether a command that took this long should print a summary.
    pub fn was_long(took: Duration) -> bool {
        has_terminal() || took >= LINE_EVERY
    }
}
