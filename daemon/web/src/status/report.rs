//! The daemon's state at one instant, as `/api/v1/status`, `/metrics` and `visiond top` show it, with the counters of the HTTP
//! server and of reloads.
//!
//! `visiond top` reads it back, possibly from a daemon of another version: a missing field has its default.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use visiond_message::status::{BundleStatus, CameraStatus, ModelStatus, SinkCounts};
use visiond_system::process::ProcessFacts;
use visiond_system::thermal::{GpuSummary, JetsonSummary};

/// The daemon's state at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// Version of the daemon.
    pub version: String,
    /// Name of the device, as in topics and subjects: `[device] name`, or the host name.
    pub device: String,
    /// Target that it was built for, such as "aarch64-linux".
    pub target: String,
    /// Time of this report: RFC 3339, UTC.
    pub at: String,
    /// Start of the daemon: RFC 3339, UTC.
    pub started_at: String,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Whether every lane that can start processed a frame.
    pub ready: bool,
    /// Reasons why it is not ready, one sentence each.
    pub not_ready: Vec<String>,
    /// Path of the configuration file.
    pub config: String,
    /// The bundle whose settings lie over the file; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<BundleStatus>,
    /// Reloads so far.
    pub reloads: ReloadFacts,
    /// The process.
    pub process: ProcessFacts,
    /// Each camera, by model, in the order of the configuration.
    pub cameras: Vec<CameraStatus>,
    /// Each model that a camera uses.
    pub models: Vec<ModelStatus>,
    /// Each sink.
    pub sinks: Vec<SinkCounts>,
    /// The HTTP server.
    pub http: HttpCounts,
    /// The GPU; absent on machines that are not a Jetson and have no driver from NVIDIA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSummary>,
    /// The Jetson; absent on other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jetson: Option<JetsonSummary>,
}

/// Counters of the HTTP server: atomic while it runs, plain numbers in a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpCounts<T = u64> {
    /// Open connections.
    pub connections: T,
    /// Connections accepted so far.
    pub accepted: T,
    /// Connections refused because there were too many.
    pub refused: T,
    /// Current readers of the stream, as server-sent events.
    pub event_readers: T,
    /// Current readers of the stream, by WebSocket.
    pub websocket_readers: T,
    /// Events that slow readers lost.
    pub events_lost: T,
    /// Requests answered; only a report has it.
    pub requests: T,
    /// Answers by class of status: 1xx to 5xx.
    pub answers: [T; 5],
    /// Requests without a valid token.
    pub unauthorized: T,
}

impl HttpCounts<AtomicU64> {
    /// Counts a request that was answered with this status.
    pub fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the values.
    pub fn facts(&self) -> HttpCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answers = self.answers.each_ref().map(get);
        HttpCounts {
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

/// Reloads of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadFacts {
    /// Reloads that were applied.
    pub applied: u64,
    /// Reloads that were refused, after which the old configuration stayed in force.
    pub refused: u64,
    /// The last reload.
    pub last: Option<LastReload>,
}

/// The last reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastReload {
    /// End of the reload: RFC 3339, UTC.
    pub at: String,
    /// Whether it was applied.
    pub applied: bool,
    /// The changes, or why the reload was refused.
    pub message: String,
}

/// Counts reloads, and keeps the outcome of the last one.
#[derive(Debug, Default)]
pub struct ReloadHistory(Mutex<ReloadFacts>);

impl ReloadHistory {
    /// Counts a reload, with the changes or the reason for the refusal, both as sentences for people.
    pub fn note(&self, outcome: Result<String, String>) {
        let mut facts = self.0.lock();
        let applied = outcome.is_ok();
        *(if applied { &mut facts.applied } else { &mut facts.refused }) += 1;
        let message = outcome.unwrap_or_else(|error| error);
        facts.last = Some(LastReload { at: rfc3339(jiff::Timestamp::now()), applied, message });
    }

    /// Returns the counts and the last reload.
    pub fn facts(&self) -> ReloadFacts {
        self.0.lock().clone()
    }
}

/// Formats a time in RFC 3339, in UTC to the millisecond.
pub fn rfc3339(time: jiff::Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class_and_odd_ones_too() {
        let http = HttpCounts::<AtomicU64>::default();
        [200, 204, 404, 503, 999, 0].iter().for_each(|&status| http.answered(status));
        let facts = http.facts();
        assert_eq!((facts.requests, facts.answers), (6, [1, 2, 0, 1, 2]));
    }

    #[test]
    fn the_last_reload_is_kept_with_the_number_of_each_outcome() {
        let history = ReloadHistory::default();
        history.note(Ok("camera door changed".to_owned()));
        history.note(Err("no such file".to_owned()));
        let facts = history.facts();
        assert_eq!((facts.applied, facts.refused), (1, 1));
        assert_eq!(facts.last.map(|last| (last.applied, last.message)), Some((false, "no such file".to_owned())));
    }
}
