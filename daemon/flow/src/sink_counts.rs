//! What became of each sink's messages, as metrics, the summary and the log tell it.

/// What became of one sink's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkCounts {
    /// The sink's name.
    pub name: String,
    /// stdout, file, unix, mqtt or nats.
    pub kind: &'static str,
    /// Where messages go.
    pub to: String,
    /// Waiting now.
    pub waiting: usize,
    /// How many may.
    pub capacity: usize,
    /// Taken into the queue.
    pub queued: u64,
    /// Written; by a socket: handed to whoever was connected.
    pub written: u64,
    /// Turned away by a full queue.
    pub dropped_full: u64,
    /// Lost because the output could not be written.
    pub failed: u64,
    /// Still waiting when the time to end was over.
    pub unsent: u64,
    /// Socket: readers connected now.
    pub readers: u64,
    /// Socket: messages that one reader or another was too slow for; each reader's loss counts.
    pub reader_lost: u64,
    /// Socket: readers turned away because there were too many.
    pub readers_refused: u64,
    /// Left out because of `max_rate`.
    pub thinned: u64,
    /// Whether it is connected to its broker; `None`: there is none.
    pub connected: Option<bool>,
    /// Times that it was connected to its broker again.
    pub reconnects: u64,
    /// Messages that were sent again because a connection was lost before they were acknowledged.
    pub resent: u64,
    /// Why nothing can be written now.
    pub outage: Option<String>,
    /// What a durable sink has on disk.
    pub spool: Option<SpoolCounts>,
}

/// A durable sink's spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolCounts {
    /// On disk.
    pub bytes: u64,
    /// On disk at most.
    pub limit_bytes: u64,
    /// Messages that are not acknowledged.
    pub records: u64,
    /// Messages that are lost because it was full.
    pub dropped: u64,
}

impl SinkCounts {
    /// Messages that this sink did not pass on, by whatever cause. Slow readers' losses are not among them.
    pub fn lost(&self) -> u64 {
        self.dropped_full + self.failed + self.unsent + self.spool.map_or(0, |spool| spool.dropped)
    }
}
