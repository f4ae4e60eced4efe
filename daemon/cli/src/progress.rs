//! How far a long command is: a live line on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use visiond_system::logging::{has_terminal, live_line};

use crate::output::complain;

/// How often the live line is drawn.
const LIVE_EVERY: Duration = Duration::from_millis(200);

/// How often a line is written where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Tells how far it is, not too often.
#[derive(Debug)]
pub struct Progress {
    told: Instant,
}

impl Progress {
    /// Something begins.
    pub fn new() -> Self {
        Self { told: Instant::now() }
    }

    /// Tells `text` where it is time to.
    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.told.elapsed() >= if has_terminal() { LIVE_EVERY } else { LINE_EVERY } {
            self.tell_now(&text());
        }
    }

    /// Tells it in any case.
    pub fn tell_now(&mut self, text: &str) {
        self.told = Instant::now();
        if has_terminal() {
            live_line(text);
        } else {
            complain(text);
        }
    }

    /// Whether what took so long deserves a last word.
    pub fn was_long(took: Duration) -> bool {
        has_terminal() || took >= LINE_EVERY
    }
}
