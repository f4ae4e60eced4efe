//! A state that changes once a new one has lasted.

use std::time::Duration;

/// A state, and a different one that has not lasted long enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settled<T> {
    /// The state.
    pub(crate) state: T,
    /// The first sighting in it.
    pub(crate) since: Duration,
    /// A newer state and its first sighting.
    candidate: Option<(T, Duration)>,
}

impl<T: Copy + PartialEq> Settled<T> {
    pub(crate) fn new(state: T, since: Duration) -> Self {
        Self { state, since, candidate: None }
    }

    /// Whether there is no newer state.
    pub(crate) fn is_steady(&self) -> bool {
        self.candidate.is_none()
    }

    /// Takes a sighting; returns the last state when the sighting's has lasted for `settle`.
    pub(crate) fn sight(&mut self, state: T, now: Duration, settle: Duration) -> Option<T> {
        if state == self.state {
            self.candidate = None;
            return None;
        }
        let since = self.candidate.filter(|(candidate, _)| *candidate == state).map_or(now, |(_, since)| since);
        if now.saturating_sub(since) < settle {
            self.candidate = Some((state, since));
            return None;
        }
        let last = self.state;
        *self = Self::new(state, since);
        Some(last)
    }
}
