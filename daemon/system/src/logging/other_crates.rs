//! Limits the lines that other crates log: a peer can make some of them log a line for each packet.

use std::time::{Duration, Instant};

/// The time in which a crate's lines are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Lines of one crate in a [`WINDOW`].
const MOST_LINES: u32 = 20;

/// Counts the lines of each other crate.
#[derive(Debug)]
pub struct OtherCrates {
    /// Keyed by crate; a program has only a few.
    crates: Vec<Lines>,
}

#[derive(Debug)]
struct Lines {
    name: String,
    since: Instant,
    count: u32,
}

/// Whether a line is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Yes,
    /// Log this one, but no other until the window is over.
    Last,
    No,
}

impl OtherCrates {
    pub const fn new() -> Self {
        Self { crates: Vec::new() }
    }

    /// Returns whether to log a line of `target`, the path of a module, at `now`.
    pub fn pass(&mut self, target: &str, now: Instant) -> Pass {
        let name = target.split("::").next().unwrap_or_default();
        let at = self.crates.iter().position(|lines| lines.name == name).unwrap_or_else(|| {
            self.crates.push(Lines { name: name.to_owned(), since: now, count: 0 });
            self.crates.len() - 1
        });
        let lines = &mut self.crates[at];
        if now.duration_since(lines.since) >= WINDOW {
            (lines.since, lines.count) = (now, 0);
        }
        lines.count = lines.count.saturating_add(1);
        match lines.count {
            ..MOST_LINES => Pass::Yes,
            MOST_LINES => Pass::Last,
            _ => Pass::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_makes_a_crate_log_each_packet_gets_few_lines_a_minute_and_no_other_crate_loses_one() {
        let (mut crates, start) = (OtherCrates::new(), Instant::now());
        for minute in 0..3 {
            let now = start + WINDOW * minute;
            let passed: Vec<_> = (0..1000).map(|_| crates.pass("hyper::client::conn", now)).collect();
            assert!(passed[..19].iter().all(|&pass| pass == Pass::Yes) && passed[19] == Pass::Last, "{passed:?}");
            assert!(passed[20..].iter().all(|&pass| pass == Pass::No), "{passed:?}");
            assert_eq!(crates.pass("hyper", now + WINDOW / 2), Pass::No);
            assert_eq!(crates.pass("rumqttc::eventloop", now), Pass::Yes);
        }
    }
}
