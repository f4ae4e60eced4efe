//! A client of one broker protocol, and the messages it sends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use visiond_config::types::SinkConfig;

/// Messages in flight at most: sent, and not yet acknowledged.
pub const WINDOW: usize = 256;

/// How often the sink calls [`BrokerClient::tick`].
pub const TICK: Duration = Duration::from_millis(250);

/// A message as a client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Counts up within a sink. A message that is sent again has the number that it had.
    pub number: u64,
    /// The message's id, the same in every sink and however often it is sent.
    pub id: Box<str>,
    /// The camera.
    pub camera: Arc<str>,
    /// The message as JSON, without line end.
    pub line: Bytes,
}

/// What happened at a client's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The broker has the message of this number and answers for it. Any order will do.
    Acknowledged(u64),
    /// The broker can never take the message of this number, of which the log has been told: it is given up.
    Refused(u64),
    /// The connection is gone, and why. Everything that was not acknowledged goes out again after the next
    /// [`BrokerClient::connect`].
    Lost(String),
    /// Something that concerns the client alone.
    Nothing,
}

/// A protocol.
///
/// Its methods are called from one thread, within one runtime that has time and I/O enabled.
pub trait BrokerClient: Send {
    /// Connects anew, whatever was before; until it returns, no other method is called. The future may be dropped half way,
    /// when it takes too long or the sink ends. The error is a sentence that names the broker's address.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Sends a message, or puts it where [`BrokerClient::event`] sends it from; does not wait for its acknowledgement, nor for
    /// anything that only `event` would do. After an error the connection counts as lost.
    fn send(&mut self, message: &QueuedMessage) -> impl Future<Output = Result<(), String>>;

    /// Waits for what happens next, and meanwhile does the protocol's own work. Called again and again while connected;
    /// dropped whenever there is something to send, so nothing may be lost by that.
    fn event(&mut self) -> impl Future<Output = Event>;

    /// Takes leave of the broker, within that time.
    fn close(&mut self, within: Duration) -> impl Future<Output = ()>;

    /// The sink is set otherwise from now on; `false`: for that it has to connect again.
    fn configure(&mut self, config: &SinkConfig) -> bool;

    /// Called every [`TICK`] while connected, for what a protocol tells besides messages. Must not wait.
    fn tick(&mut self) {}
}
