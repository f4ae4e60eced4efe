//! An outage of an output: logged when it starts, when its reason changes and when it ends; retried with back-off.

use std::io;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// First pause before a retry.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Longest pause before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Consequence for messages without a spool.
const LOST: &str = "lost";

/// What to do about an output that cannot be used as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfUnusable {
    /// Log it, and try again later: at a start, because the cameras and the other outputs can do without it. Its own thread opens
    /// it, so that a disk that hangs holds up nothing else.
    Retry,
    /// Refuse the configuration, unless the problem can pass: at a reload, because the running one stays in force.
    Refuse,
}

/// State of an output: it works, or when to retry it.
#[derive(Debug)]
pub struct Outage {
    /// Name of the output in the log.
    what: String,
    /// Consequence for the messages during the outage.
    cost: &'static str,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    reason: String,
    since: Instant,
    backoff: Backoff,
    next_try: Instant,
    lost: u64,
}

impl Outage {
    /// Creates the state of a working output.
    pub fn new(what: String) -> Self {
        Self { what, cost: LOST, current: None }
    }

    /// Sets the consequence for messages during an outage; the default is `lost`.
    pub fn costing(self, cost: &'static str) -> Self {
        Self { cost, ..self }
    }

    /// Changes the name of the output in the log.
    pub fn rename(&mut self, what: String) {
        self.what = what;
    }

    /// Returns whether to write: the output works, or a retry is due.
    pub fn may_try(&self) -> bool {
        self.current.as_ref().is_none_or(|current| Instant::now() >= current.next_try)
    }

    /// Returns when the next retry is due.
    pub fn next_try(&self) -> Instant {
        self.current.as_ref().map_or_else(Instant::now, |current| current.next_try)
    }

    /// Returns why the output cannot be written now.
    pub fn reason(&self) -> Option<&str> {
        self.current.as_ref().map(|current| current.reason.as_str())
    }

    /// Records a failed attempt.
    pub fn failed(&mut self, reason: &str) {
        let now = Instant::now();
        match &mut self.current {
            Some(current) => {
                if current.reason != reason {
                    log::error!("{} still cannot be written: {reason}", self.what);
                    reason.clone_into(&mut current.reason);
                }
                current.next_try = now + current.backoff.pause();
            }
            None => {
                log::error!(
                    "{} cannot be written: {reason}; until it works again, messages are {}",
                    self.what,
                    self.cost
                );
                let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                let next_try = now + backoff.pause();
                self.current = Some(Current { reason: reason.to_owned(), since: now, backoff, next_try, lost: 0 });
            }
        }
    }

    /// Counts lost messages.
    pub fn lost(&mut self, n: u64) {
        if let Some(current) = &mut self.current {
            current.lost += n;
        }
    }

    /// Records a successful attempt.
    pub fn recovered(&mut self) {
        if let Some(current) = self.current.take() {
            let seconds = current.since.elapsed().as_secs_f32();
            let what = &self.what;
            if self.cost == LOST {
                log::info!("{what} is written again after {seconds:.1} s; {} lost meanwhile", current.lost);
            } else {
                log::info!("{what} is written again after {seconds:.1} s");
            }
        }
    }
}

/// Returns the text of an I/O error, with a remedy if there is one.
pub fn explain(error: &io::Error) -> String {
    use io::ErrorKind::*;
    let remedy = match error.kind() {
        NotFound => "make its folder",
        PermissionDenied => "give visiond's user the right to write there",
        StorageFull | QuotaExceeded => "make room on that disk, or keep less",
        FileTooLarge => "let it rotate earlier, or raise the limit (ulimit -f)",
        ReadOnlyFilesystem => "mount it writable, or choose another place",
        IsADirectory => "name a file in it",
        _ => return error.to_string(),
    };
    format!("{error}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_end_at_the_longest_and_begin_again_after_a_success() {
        let mut outage = Outage::new("test: the disk".to_owned());
        for _ in 0..2 {
            outage.failed("full");
            assert!(outage.next_try() <= Instant::now() + FIRST_WAIT);
            (0..40).for_each(|_| outage.failed("full"));
            let now = Instant::now();
            assert!(outage.next_try() <= now + LONGEST_WAIT, "{:?}", outage.next_try() - now);
            outage.recovered();
            assert!(outage.may_try() && outage.reason().is_none());
        }
    }
}
