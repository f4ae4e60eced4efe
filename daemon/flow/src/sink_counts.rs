//! Counters of a sink's messages, for the status, metrics, the summary and the log.

use serde::{Deserialize, Serialize};

/// Counters of one sink's messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkCounts {
    /// Name of the sink.
    pub name: String,
    /// Type of the sink: stdout, file, unix, mqtt or nats.
    pub kind: String,
    /// Output of the sink, such as a path or URL.
    pub to: String,
    /// Messages in the queue now.
    pub waiting: u64,
    /// Maximum messages in the queue.
    pub capacity: u64,
    /// Messages that entered the queue.
    pub queued: u64,
    /// Messages written; for a socket, sent to the connected readers; for a broker, acknowledged.
    pub written: u64,
    /// Messages dropped because the queue was full.
    pub dropped_full: u64,
    /// Messages lost because the output could not be written.
    pub failed: u64,
    /// Messages still in the queue at the deadline for ending.
    #[serde(skip)]
    pub unsent: u64,
    /// Messages that this sink lost, for any reason except slow readers.
    pub lost: u64,
    /// Messages skipped because of `max_rate`.
    pub thinned: u64,
    /// Whether the broker is connected; `None` for a sink without a broker.
    pub connected: Option<bool>,
    /// Number of reconnections to the broker.
    pub reconnects: u64,
    /// Messages sent again because the connection was lost before the broker acknowledged them.
    pub resent: u64,
    /// Why the output cannot be written now.
    pub outage: Option<String>,
    /// Socket: readers connected now.
    pub readers: u64,
    /// Socket: messages that readers lost because they were too slow, summed over readers.
    pub reader_lost: u64,
    /// Socket: readers refused because the limit was reached.
    pub readers_refused: u64,
    /// The spool of a durable sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolCounts>,
}

/// Counters of a durable sink's spool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolCounts {
    /// Bytes on disk.
    pub bytes: u64,
    /// Maximum bytes on disk.
    pub limit_bytes: u64,
    /// Messages that wait for an acknowledgement.
    pub records: u64,
    /// Messages lost because the spool was full.
    pub dropped: u64,
    /// Files that could not be read since the start, and were set aside.
    pub unreadable: u64,
    /// Why the disk cannot be used now; new messages are kept in memory only.
    pub outage: Option<String>,
}

impl SpoolCounts {
    /// Returns whether the spool drops old messages to keep new ones, or will soon.
    pub fn is_full(&self) -> bool {
        // A full spool drops about 1/32 at a time.
        self.bytes as f64 > 0.9 * self.limit_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_full_from_nine_tenths_on() {
        let is_full = |bytes| SpoolCounts { bytes, limit_bytes: 1_000, ..SpoolCounts::default() }.is_full();
        assert_eq!([0, 899, 900, 901, 1_000, 2_000].map(is_full), [false, false, false, true, true, true]);
    }
}
