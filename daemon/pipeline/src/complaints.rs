//! Which errors of a model are logged.

use std::time::{Duration, Instant};

use visiond_system::backoff::RateLimit;

use crate::model_runner::RunError;

/// Limits the error log: one error every 10 s. When rows contradict the card, only the first frame is logged until the
/// contradiction changes.
pub(crate) struct Complaints {
    limit: RateLimit,
    /// The contradiction that was logged last.
    contradiction: Option<&'static str>,
}

impl Complaints {
    pub(crate) fn new() -> Self {
        Self { limit: RateLimit::new(Duration::from_secs(10)), contradiction: None }
    }

    /// Returns whether to log an error at `now`; if so, the number of errors held back since the last one.
    pub(crate) fn pass(&mut self, error: &RunError, now: Instant) -> Option<u64> {
        if error.contradiction.is_some() && error.contradiction == self.contradiction {
            return None;
        }
        let passed = self.limit.pass(now);
        if passed.is_some() && error.contradiction.is_some() {
            self.contradiction = error.contradiction;
        }
        passed
    }

    /// Another model has other contradictions.
    pub(crate) fn forget_model(&mut self) {
        self.contradiction = None;
    }
}
