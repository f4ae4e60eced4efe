//! The newest lines of the log, kept in memory for the live page: so many, and so many bytes, at most.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use log::Level;
use serde::{Deserialize, Serialize};

/// Lines kept.
const LINES: usize = 500;
/// Bytes of their texts kept.
const BYTES: usize = 256 << 10;
/// Bytes of one text; what is longer is cut.
const LINE_BYTES: usize = 4 << 10;

/// A line of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// Counts every line of the process, from 1.
    pub number: u64,
    /// When: RFC 3339, UTC.
    pub at: String,
    /// error, warn, info or debug.
    pub level: String,
    /// What it is about: "camera", "model" or "sink" and its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<(String, String)>,
    /// What happened.
    pub message: String,
}

/// Lines after a number.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tail {
    /// Oldest first.
    pub lines: Vec<Line>,
    /// The newest line's number: what to ask for next.
    pub last: u64,
    /// Lines after the number that was asked for and are not kept any more.
    pub missed: u64,
}

struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    last: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring::new());

/// Keeps a line. Trace is not kept: it would leave room for nothing else.
pub fn keep(level: Level, about: Option<(String, String)>, message: &str) {
    if level < Level::Trace {
        let at = super::rfc3339(jiff::Timestamp::now());
        ring().push(level, at, about, message);
    }
}

/// The lines after number `after`; all that are kept for 0, and for a number that a daemon before this one had.
pub fn after(after: u64) -> Tail {
    ring().after(after)
}

fn ring() -> MutexGuard<'static, Ring> {
    // Whole lines go in and out, so a panic leaves whole lines behind.
    RING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, last: 0 }
    }

    fn push(&mut self, level: Level, at: String, about: Option<(String, String)>, message: &str) {
        let mut end = message.len().min(LINE_BYTES);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let mut text = message[..end].to_owned();
        if end < message.len() {
            text.push('…');
        }
        self.last += 1;
        self.bytes += text.len();
        let level = match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug | Level::Trace => "debug",
        };
        self.lines.push_back(Line { number: self.last, at, level: level.to_owned(), about, message: text });
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(gone) = self.lines.pop_front() else { break };
            self.bytes -= gone.message.len();
        }
    }

    fn after(&self, after: u64) -> Tail {
        let after = if after > self.last { 0 } else { after };
        let lines: Vec<_> = self.lines.iter().filter(|line| line.number > after).cloned().collect();
        let missed = self.last - after - lines.len() as u64;
        Tail { lines, last: self.last, missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tail: &Tail) -> Vec<u64> {
        tail.lines.iter().map(|line| line.number).collect()
    }

    #[test]
    fn only_new_lines_are_told_and_those_that_went_are_counted() {
        let mut ring = Ring::new();
        (0..LINES + 7).for_each(|n| ring.push(Level::Info, String::new(), None, &format!("line {n}")));
        let all = ring.after(0);
        assert_eq!((all.lines.len(), all.missed, all.last), (LINES, 7, LINES as u64 + 7));
        assert_eq!(all.lines[0].message, "line 7");
        let new = ring.after(505);
        assert_eq!((numbers(&new), new.missed), (vec![506, 507], 0));
        assert_eq!(ring.after(507).lines, []);
        let other_daemon = ring.after(9_999);
        assert_eq!(other_daemon.lines.len(), LINES);
    }

    #[test]
    fn long_lines_are_cut_between_characters_and_many_bytes_go_early() {
        let mut ring = Ring::new();
        ring.push(Level::Warn, String::new(), None, &format!("x{}", "ä".repeat(LINE_BYTES)));
        let cut = &ring.lines[0].message;
        assert!(cut.len() <= LINE_BYTES + '…'.len_utf8() && cut.ends_with("ä…"), "{}", cut.len());
        (0..LINES).for_each(|_| ring.push(Level::Warn, String::new(), None, &"y".repeat(LINE_BYTES)));
        assert!(ring.bytes <= BYTES && ring.lines.len() == BYTES / LINE_BYTES, "{}", ring.lines.len());
    }
}
