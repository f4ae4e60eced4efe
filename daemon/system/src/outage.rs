//! An output that does not work for a while: said once when it begins, changes and ends, tried again ever more rarely.

use std::io;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// The first wait before another attempt.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What becomes of messages that have no other place to go.
const LOST: &str = "lost";

/// Whether an output works, and when to try again if not.
#[derive(Debug)]
pub struct Outage {
    /// What the log calls the output.
    what: String,
    /// What becomes of the messages meanwhile.
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
    /// Of an output that works so far.
    pub fn new(what: String) -> Self {
        Self { what, cost: LOST, current: None }
    }

    /// What comes meanwhile is not lost, but as `cost` says.
    pub fn costing(self, cost: &'static str) -> Self {
        Self { cost, ..self }
    }

    /// The log calls the output `what` from now on.
    pub fn rename(&mut self, what: String) {
        self.what = what;
    }

    /// Whether it works, or it is time to try again.
    pub fn may_try(&self) -> bool {
        self.current.as_ref().is_none_or(|current| Instant::now() >= current.next_try)
    }

    /// When to try again.
    pub fn next_try(&self) -> Instant {
        self.current.as_ref().map_or_else(Instant::now, |current| current.next_try)
    }

    /// An attempt failed.
    pub fn fails(&mut self, reason: &str) {
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
                    "{} cannot be written: {reason}; what comes meanwhile is {}, trying again",
                    self.what,
                    self.cost
                );
                let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                let next_try = now + backoff.pause();
                self.current = Some(Current { reason: reason.to_owned(), since: now, backoff, next_try, lost: 0 });
            }
        }
    }

    /// Counts what the outage costs.
    pub fn lost(&mut self, n: u64) {
        if let Some(current) = &mut self.current {
            current.lost += n;
        }
    }

    /// An attempt went well.
    pub fn works(&mut self) {
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

/// What the system said, with what to do about it.
pub fn explain(error: &io::Error) -> String {
    use io::ErrorKind::{
        FileTooLarge, IsADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
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
