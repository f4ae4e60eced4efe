//! What the HTTP server and reloads count, for whoever observes.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::time::rfc3339;

/// What the HTTP server counts. Each is one relaxed addition.
#[derive(Debug, Default)]
pub struct HttpCounters {
    /// Open now.
    pub connections: AtomicU64,
    /// Let in so far.
    pub accepted: AtomicU64,
    /// Turned away because there were too many.
    pub refused: AtomicU64,
    /// Readers of the stream now, as server-sent events.
    pub event_readers: AtomicU64,
    /// Readers of the stream now, by WebSocket.
    pub websocket_readers: AtomicU64,
    /// Events that such a reader was too slow for.
    pub events_lost: AtomicU64,
    /// Answers by the hundreds of their status: 1xx to 5xx.
    answers: [AtomicU64; 5],
    /// Requests without a valid token.
    pub unauthorized: AtomicU64,
}

/// The same at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpFacts {
    /// Open now.
    pub connections: u64,
    /// Let in so far.
    pub accepted: u64,
    /// Turned away because there were too many.
    pub refused: u64,
    /// Readers of the stream now, as server-sent events.
    pub event_readers: u64,
    /// Readers of the stream now, by WebSocket.
    pub websocket_readers: u64,
    /// Events that a reader was too slow for.
    pub events_lost: u64,
    /// Requests answered.
    pub requests: u64,
    /// Answers by kind of status: 1xx to 5xx.
    pub answers: [u64; 5],
    /// Requests without a valid token.
    pub unauthorized: u64,
}

impl HttpCounters {
    /// A request was answered with this status.
    pub fn answered(&self, status: u16) {
        let kind = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// As they stand now.
    pub fn facts(&self) -> HttpFacts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answers: [u64; 5] = std::array::from_fn(|kind| get(&self.answers[kind]));
        HttpFacts {
            connections: get(&self.connections),
            accepted: get(&self.accepted),
            refused: get(&self.refused),
            event_readers: get(&self.event_readers),
            websocket_readers: get(&self.websocket_readers),
            events_lost: get(&self.events_lost),
            requests: answers.iter().sum(),
            answers,
            unauthorized: get(&self.unauthorized),
        }
    }
}

/// Changes of the configuration while the daemon runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadFacts {
    /// Put in force.
    pub applied: u64,
    /// Refused, with all as it was.
    pub refused: u64,
    /// The newest.
    pub last: Option<LastReload>,
}

/// A reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastReload {
    /// When it was done: RFC 3339, UTC.
    pub at: String,
    /// Whether it is in force.
    pub applied: bool,
    /// What has changed, or why it was refused.
    pub message: String,
}

/// Keeps what became of reloads.
#[derive(Debug, Default)]
pub struct ReloadHistory(Mutex<ReloadFacts>);

impl ReloadHistory {
    /// One is done: what has changed, or why it was refused.
    pub fn note(&self, outcome: Result<String, String>) {
        let mut facts = self.0.lock();
        let applied = outcome.is_ok();
        *(if applied { &mut facts.applied } else { &mut facts.refused }) += 1;
        let message = outcome.unwrap_or_else(|error| error);
        facts.last = Some(LastReload { at: rfc3339(jiff::Timestamp::now()), applied, message });
    }

    /// As it stands now.
    pub fn facts(&self) -> ReloadFacts {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_kind_and_odd_ones_too() {
        let http = HttpCounters::default();
        [200, 204, 404, 503, 999, 0].iter().for_each(|&status| http.answered(status));
        let facts = http.facts();
        assert_eq!((facts.requests, facts.answers), (6, [1, 2, 0, 1, 2]));
    }

    #[test]
    fn the_newest_reload_is_told_with_the_number_of_each_kind() {
        let history = ReloadHistory::default();
        history.note(Ok("camera door changed".to_owned()));
        history.note(Err("no such file".to_owned()));
        let facts = history.facts();
        assert_eq!((facts.applied, facts.refused), (1, 1));
        assert_eq!(facts.last.map(|last| (last.applied, last.message)), Some((false, "no such file".to_owned())));
    }
}
