//! The parts that the MQTT and the NATS sink share.
//!
//! A protocol implements [`BrokerClient`]; [`BrokerSink`] is the sink around it. A camera's messages go out in order, and each is
//! kept until the broker has acknowledged it. After a lost connection the sink sends the unacknowledged messages again, in order
//! and with the same ids. Messages that the broker refuses wait separately: those of other cameras continue.

mod outbox;
mod queue_reader;
mod refused;
mod sink;
mod spool_writer;
mod window;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use visiond_config::types::SinkConfig;

pub use sink::BrokerSink;
pub use spool_writer::SpoolWriter;
pub use visiond_nats::connect::TcpOrTls;
pub use visiond_nats::shorten;
pub use visiond_nats::wire::{UNASKED_BYTES, unasked};

/// How many messages may be in flight: sent, and not yet acknowledged.
pub const WINDOW: usize = 256;

/// How many bytes may be in flight, plus one message.
pub const WINDOW_BYTES: usize = 8 << 20;

/// How often the sink calls [`BrokerClient::tick`].
pub const TICK: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Counts up within a sink. A message that is sent again keeps its number.
    pub number: u64,
    /// The message's id, the same in every sink and each time it is sent.
    pub id: Box<str>,
    /// The camera; for each model of a camera but the first also the model, after a slash: `door/plates`.
    pub camera: Arc<str>,
    /// The message as JSON, without a line feed.
    pub line: Bytes,
}

/// An event that a client reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerEvent {
    /// The broker has the message of this number. Acknowledgements may come in any order.
    Acknowledged(u64),
    /// The broker can never accept the message of this number, or one of the client's own, and why. The sink drops it and
    /// logs that at intervals, because the same may apply to every message.
    Impossible(Option<u64>, String),
    /// The broker does not accept the message of this number now, and why: a sentence that names the camera or topic, and the
    /// remedy. The sink keeps it, and the later ones of its camera, and tries again.
    Refused(u64, String),
    /// The connection is lost. The sink sends every unacknowledged message again after the next [`BrokerClient::connect`].
    Lost(Loss),
    /// Something that concerns the client alone.
    Nothing,
}

/// Why a connection is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub reason: String,
    /// What to check if connections are repeatedly lost for this reason; `None` if the reason itself explains it.
    pub remedy: Option<String>,
}

impl From<String> for Loss {
    fn from(reason: String) -> Self {
        Self { reason, remedy: None }
    }
}

/// A client of one broker protocol.
///
/// The sink calls its methods from one thread, within one runtime that has time and I/O enabled.
pub trait BrokerClient: Send {
    /// Connects, and drops any earlier connection. Until it returns, the sink calls no other method. The sink may drop the
    /// future before it completes, when connecting takes too long or the sink ends.
    /// The error is a sentence, because the sink only logs it: it names the broker's address and the remedy.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Sends a message, or queues it for [`BrokerClient::event`] to send. Waits neither for the acknowledgement nor for
    /// anything that only `event` does. After an error the connection counts as lost.
    fn send(&mut self, message: &QueuedMessage) -> impl Future<Output = Result<(), String>>;

    /// Waits for the next event, and does the protocol's own work. The sink calls it repeatedly while connected, and drops
    /// the future whenever there is something to send, so it must be cancel-safe.
    fn event(&mut self) -> impl Future<Output = BrokerEvent>;

    /// Ends the session with the broker, within that time.
    fn close(&mut self, within: Duration) -> impl Future<Output = ()>;

    /// Ends the session with the broker because a reload has removed the sink, and clears what the broker retains for it.
    /// `shares_discovery`: another sink may announce the same cameras.
    fn remove(&mut self, within: Duration, shares_discovery: bool) -> impl Future<Output = ()> {
        let _ = shares_discovery;
        self.close(within)
    }

    /// Applies new settings; returns `false` if the client must reconnect for them.
    fn configure(&mut self, config: &SinkConfig) -> bool;

    /// Called every [`TICK`] while connected, for what a protocol sends in addition to messages. Must not wait.
    fn tick(&mut self) {}
}

#[cfg(test)]
mod tests;
