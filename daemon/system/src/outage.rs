//! An outage of an output: logged when it starts, when its reason changes and when it ends; retried with back-off.

use std::io;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// First pause before a retry.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Longest pause before a retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Consequence of an outage without a spool.
const LOST: &str = "messages are lost";

/// What to do if an output cannot be used as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfUnusable {
    /// Log it and retry later. Used at the start, because cameras and other outputs work without it. Its own thread opens it,
    /// so that a hung disk delays nothing else.
    Retry,
    /// Reject the configuration, unless the problem can pass. Used at a reload, because the running configuration stays in
    /// force.
    Refuse,
}

/// The state of an output: working, or the time of the next retry.
#[derive(Debug)]
pub struct Outage {
    /// Name of the output in the log.
    what: String,
    /// Consequence of the outage.
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

    /// Sets the consequence of an outage; the default is `messages are lost`.
    pub fn costing(self, cost: &'static str) -> Self {
        Self { cost, ..self }
    }

    /// Changes the name of the output in the log.
    pub fn rename(&mut self, what: String) {
        self.what = what;
    }

    /// Returns whether to write, because the output works or a retry is due.
    pub fn may_try(&self, now: Instant) -> bool {
        self.current.as_ref().is_none_or(|current| now >= current.next_try)
    }

    /// Returns when the next retry is due; `now` if the output works.
    pub fn next_try(&self, now: Instant) -> Instant {
        self.current.as_ref().map_or(now, |current| current.next_try)
    }

    /// Returns why the output cannot be written now.
    pub fn reason(&self) -> Option<&str> {
        self.current.as_ref().map(|current| current.reason.as_str())
    }

    /// Records a failed attempt.
    pub fn failed(&mut self, reason: &str, now: Instant) {
        match &mut self.current {
            Some(current) => {
                if current.reason != reason {
                    log::error!("{} still cannot be written: {reason}", self.what);
                    reason.clone_into(&mut current.reason);
                }
                current.next_try = now + current.backoff.pause();
            }
            None => {
                log::error!("{} cannot be written: {reason}; until it works again, {}", self.what, self.cost);
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
    pub fn recovered(&mut self, now: Instant) {
        if let Some(current) = self.current.take() {
            let seconds = now.saturating_duration_since(current.since).as_secs_f32();
            let what = &self.what;
            if self.cost.ends_with("lost") {
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
        let (mut outage, now) = (Outage::new("test: the disk".to_owned()), Instant::now());
        for _ in 0..2 {
            outage.failed("full", now);
            assert!(outage.next_try(now) <= now + FIRST_WAIT);
            (0..40).for_each(|_| outage.failed("full", now));
            assert!(outage.next_try(now) <= now + LONGEST_WAIT, "{:?}", outage.next_try(now) - now);
            outage.recovered(now);
            assert!(outage.may_try(now) && outage.reason().is_none());
        }
    }

    #[test]
    fn thirty_days_of_outages_try_again_within_the_bounds_and_count_what_is_lost() {
        let (mut outage, start) = (Outage::new("test: the disk".to_owned()), Instant::now());
        let (mut tries, mut lost) = (0_u64, 0);
        // One message per second. Each day has one outage: a minute on the first day, and two hours longer each day.
        for second in 0..30 * 86_400_u64 {
            let now = start + Duration::from_secs(second);
            let (day, at) = (second / 86_400, second % 86_400);
            let is_away = at < (60 + day * 7200).min(80_000);
            if outage.may_try(now) {
                if is_away {
                    tries += 1;
                    outage.failed("full", now);
                    let wait = outage.next_try(now) - now;
                    let least = if at < 30 { FIRST_WAIT } else { LONGEST_WAIT }.mul_f64(0.75);
                    assert!((least..=LONGEST_WAIT).contains(&wait), "{second}: {wait:?}");
                } else {
                    outage.recovered(now);
                }
            } else {
                assert!(is_away || at < 80_000 + LONGEST_WAIT.as_secs(), "{second}: still waits");
            }
            if outage.reason().is_some() {
                lost += 1;
                outage.lost(1);
                assert!(outage.current.as_ref().is_some_and(|current| current.lost <= lost));
            }
        }
        assert!(outage.reason().is_none());
        let away: u64 = (0..30).map(|day| (60 + day * 7200).min(80_000)).sum();
        // After the end of each outage, messages are lost for up to five seconds, until the next attempt.
        assert!((away..=away + 30 * 5).contains(&lost), "{away} {lost}");
        assert!((away / 6..=away / 3).contains(&tries), "{away} {tries}");
    }

    #[test]
    fn an_error_of_a_disk_says_what_to_do() {
        use io::ErrorKind::*;
        for (kind, remedy) in [
            (NotFound, "; make its folder"),
            (PermissionDenied, "; give visiond's user the right to write there"),
            (StorageFull, "; make room on that disk, or keep less"),
            (QuotaExceeded, "; make room on that disk, or keep less"),
            (FileTooLarge, "; let it rotate earlier, or raise the limit (ulimit -f)"),
            (ReadOnlyFilesystem, "; mount it writable, or choose another place"),
            (IsADirectory, "; name a file in it"),
            (TimedOut, ""),
        ] {
            let error = io::Error::from(kind);
            assert_eq!(explain(&error), format!("{error}{remedy}"));
        }
    }
}
