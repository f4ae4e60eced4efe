//! The newest lines of the log, in memory for the live page, limited in number and bytes. The first line allocates all of the
//! memory, so that the daemon does not grow later.

use std::collections::VecDeque;

use log::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Maximum number of lines.
const LINES: usize = 500;
/// Maximum bytes of their texts.
const BYTES: usize = 128 << 10;
/// Maximum bytes of one text; a longer one is cut.
const LINE_BYTES: usize = 4 << 10;

/// A line of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// Number of the line in the process, from 1.
    pub number: u64,
    /// Time: RFC 3339, UTC.
    pub at: String,
    /// Level: error, warn, info or debug.
    pub level: String,
    /// Subject: "camera", "model" or "sink", and its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<(String, String)>,
    /// Text of the line.
    pub message: String,
}

/// Lines after a number.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tail {
    /// Oldest first.
    pub lines: Vec<Line>,
    /// Number of the newest line, for the next request.
    pub last: u64,
    /// Requested lines that are no longer kept.
    pub missed: u64,
}

/// Lines, and their concatenated texts.
struct Ring {
    lines: VecDeque<Stored>,
    texts: VecDeque<u8>,
    last: u64,
}

/// A line without its texts: the bytes of its subject (two words) and of its message.
#[derive(Clone, Copy)]
struct Stored {
    at: jiff::Timestamp,
    level: Level,
    about: Option<(usize, usize)>,
    message: usize,
}

impl Stored {
    fn bytes(&self) -> usize {
        self.about.map_or(0, |(kind, name)| kind + name) + self.message
    }
}

static RING: Mutex<Ring> = Mutex::new(Ring::new());

/// Keeps a line, except at level trace, which would displace all others.
pub fn keep(level: Level, about: Option<(String, String)>, message: &str) {
    if level < Level::Trace {
        RING.lock().push(level, jiff::Timestamp::now(), about.as_ref().map(|(kind, name)| (&**kind, &**name)), message);
    }
}

/// Returns the lines after number `after`; all kept lines for 0, and for a number that this process has not reached.
pub fn after(after: u64) -> Tail {
    RING.lock().after(after)
}

impl Ring {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), texts: VecDeque::new(), last: 0 }
    }

    /// Allocates all memory that the ring will ever use and writes to it, because the system provides pages only on the first
    /// write.
    fn take_memory(&mut self) {
        let blank = Stored { at: jiff::Timestamp::UNIX_EPOCH, level: Level::Info, about: None, message: 0 };
        self.lines.resize(LINES, blank);
        self.lines.clear();
        self.texts.resize(BYTES, 1);
        self.texts.clear();
    }

    fn push(&mut self, level: Level, at: jiff::Timestamp, about: Option<(&str, &str)>, message: &str) {
        if self.texts.capacity() == 0 {
            self.take_memory();
        }
        let (kind, name) = about.unwrap_or_default();
        let texts = [cut(kind).0, cut(name).0, cut(message).0, cut(message).1];
        let [kind, name, message, end] = texts.map(str::len);
        let line = Stored { at, level, about: about.map(|_| (kind, name)), message: message + end };
        while self.lines.len() == LINES || self.texts.len() + line.bytes() > BYTES {
            let Some(gone) = self.lines.pop_front() else { break };
            self.texts.drain(..gone.bytes());
        }
        texts.iter().for_each(|text| self.texts.extend(text.as_bytes()));
        self.lines.push_back(line);
        self.last += 1;
    }

    fn after(&self, after: u64) -> Tail {
        let after = if after > self.last { 0 } else { after };
        let first = self.last + 1 - self.lines.len() as u64;
        let mut at = 0;
        let mut text = |bytes: usize| {
            at += bytes;
            let text: Vec<u8> = self.texts.range(at - bytes..at).copied().collect();
            // This loses nothing, because only whole texts are stored.
            String::from_utf8_lossy(&text).into_owned()
        };
        let mut lines = Vec::new();
        for (number, stored) in (first..).zip(&self.lines) {
            let about = stored.about.map(|(kind, name)| (text(kind), text(name)));
            let message = text(stored.message);
            if number > after {
                let (at, level) = (format!("{:.3}", stored.at), stored.level.as_str().to_ascii_lowercase());
                lines.push(Line { number, at, level, about, message });
            }
        }
        let missed = self.last - after - lines.len() as u64;
        Tail { lines, last: self.last, missed }
    }
}

/// Returns the part of a text to keep, and a mark if it is cut.
fn cut(text: &str) -> (&str, &str) {
    let end = text.floor_char_boundary(LINE_BYTES);
    (&text[..end], if end < text.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tail: &Tail) -> Vec<u64> {
        tail.lines.iter().map(|line| line.number).collect()
    }

    #[test]
    fn only_new_lines_are_returned_and_dropped_ones_are_counted() {
        let mut ring = Ring::new();
        (0..LINES + 7).for_each(|n| ring.push(Level::Info, jiff::Timestamp::UNIX_EPOCH, None, &format!("line {n}")));
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
        ring.push(
            Level::Warn,
            jiff::Timestamp::UNIX_EPOCH,
            Some(("camera", "tür")),
            &format!("x{}", "ä".repeat(LINE_BYTES)),
        );
        let line = ring.after(0).lines.remove(0);
        assert_eq!(line.about, Some(("camera".to_owned(), "tür".to_owned())));
        let cut = line.message;
        assert!(cut.len() <= LINE_BYTES + '…'.len_utf8() && cut.ends_with("ä…"), "{}", cut.len());
        (0..LINES).for_each(|_| ring.push(Level::Warn, jiff::Timestamp::UNIX_EPOCH, None, &"y".repeat(LINE_BYTES)));
        assert!(ring.texts.len() <= BYTES && ring.lines.len() == BYTES / LINE_BYTES, "{}", ring.lines.len());
        assert!(ring.after(0).lines.iter().all(|line| line.message == "y".repeat(LINE_BYTES)));
    }

    #[test]
    fn memory_is_taken_once() {
        let mut ring = Ring::new();
        let mut capacity = || {
            ring.push(Level::Info, jiff::Timestamp::UNIX_EPOCH, Some(("sink", "fleet")), &"z".repeat(400));
            (ring.lines.capacity(), ring.texts.capacity())
        };
        let first = capacity();
        (0..2 * LINES).for_each(|_| assert_eq!(capacity(), first));
    }

    #[test]
    fn lines_of_every_level_but_trace_are_kept() {
        let before = after(0).last;
        keep(Level::Debug, Some(("camera".to_owned(), "door".to_owned())), "this is kept");
        keep(Level::Trace, None, "this is not");
        let lines = after(before).lines;
        let kept = lines.iter().find(|line| line.message == "this is kept");
        assert!(kept.is_some_and(|line| line.level == "debug" && line.about.is_some()), "{lines:?}");
        assert!(lines.iter().all(|line| line.message != "this is not"));
    }
}
