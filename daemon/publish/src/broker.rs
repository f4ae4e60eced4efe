//! What the MQTT and the NATS sink share.
//!
//! A protocol implements [`BrokerClient`]; [`BrokerSink`] is the sink around it. Messages go out in order, and each is kept until
//! the broker has acknowledged it. After a lost connection the sink sends the unacknowledged messages again, in order and with
//! the same ids.

mod client;
mod connection;
mod disk;
mod outbox;
mod queue_reader;
mod sink;
pub mod tls;
mod window;

pub use client::{BrokerClient, Event, QueuedMessage, WINDOW};
pub use sink::BrokerSink;

#[cfg(test)]
mod tests;
