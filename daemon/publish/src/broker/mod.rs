//! What sinks that talk to a broker have in common: messages go out in order, each is kept until the broker has acknowledged
//! it, and after a lost connection what was not acknowledged goes out again, in order and with the same ids.
//!
//! A protocol is a [`Courier`]; [`BrokerSink`] is the sink around it: a thread with a runtime of its own that takes messages
//! from the queue, keeps at most [`WINDOW`] of them on their way, connects again after ever longer pauses, and counts. What
//! comes while there is no connection waits in the sink's queue, which drops as it is configured; of a durable sink it waits
//! in the spool, which also has what is on its way, so that it outlives the process.

mod depot;
mod disk;
mod inflow;
mod link;
mod serve;
mod window;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use visiond_config::types::SinkConfig;
use visiond_live::Live;

use super::queue::Queue;
use super::{Ended, Sink};
use depot::Depot;

/// Messages on their way at most: sent, and not yet acknowledged.
pub const WINDOW: usize = 256;

/// How often [`Courier::tick`] is called.
pub const TICK: Duration = Duration::from_millis(250);

/// What a sink may know of the process that it is part of.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The cameras, what they show and how they are.
    pub live: Arc<Live>,
    /// What brokers call this machine.
    pub device: Arc<str>,
}

/// A message as a courier gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Counts up within a sink. A parcel that is sent again has the number that it had.
    pub number: u64,
    /// The message's id, the same in every sink and however often it is sent.
    pub id: Box<str>,
    /// The camera.
    pub camera: Arc<str>,
    /// The message as JSON, without line end.
    pub line: Bytes,
}

/// What happened at a courier's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The broker has the parcel of this number and answers for it. Any order will do.
    Acknowledged(u64),
    /// The broker can never take the parcel of this number, of which the log has been told: it is given up.
    Refused(u64),
    /// The connection is gone, and why. Everything that was not acknowledged goes out again after the next
    /// [`Courier::connect`].
    Lost(String),
    /// Something that concerns the courier alone.
    Nothing,
}

/// A protocol.
///
/// Its methods are called from one thread, within one runtime that has time and I/O enabled.
pub trait Courier: Send {
    /// Connects anew, whatever was before; until it returns, no other method is called. The future may be dropped half way,
    /// when it takes too long or the sink ends. The error is a sentence that names the broker's address.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Sends a parcel, or puts it where [`Courier::event`] sends it from; does not wait for its acknowledgement, nor for
    /// anything that only `event` would do. After an error the connection counts as lost.
    fn send(&mut self, parcel: &Parcel) -> impl Future<Output = Result<(), String>>;

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

/// The sink around a [`Courier`].
pub struct BrokerSink<C> {
    name: String,
    courier: C,
    depot: Depot,
}

impl<C: Courier> BrokerSink<C> {
    /// A sink that is not connected yet, which its thread sees to.
    pub fn open(config: &SinkConfig, courier: C) -> Result<Self, String> {
        Ok(Self { name: config.name.clone(), courier, depot: Depot::open(config)? })
    }
}

impl<C: Courier> Sink for BrokerSink<C> {
    fn run(self: Box<Self>, queue: &Queue) -> Ended {
        let name = self.name.clone();
        if let Err(error) = serve::run(*self, queue) {
            log::error!("sink {name}: cannot run: {error}");
        }
        Ended::Closed
    }
}

#[cfg(test)]
mod tests;
