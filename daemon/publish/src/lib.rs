//! Sinks: where detections go. Standard output, files, Unix sockets, MQTT and NATS.
//!
//! A sink is one file here with its own thread and its own bounded queue, so that a slow sink delays neither a lane nor
//! another sink. `docs/message.md` describes the messages.
//!
//! Throughout this crate, the reason for an outage is a sentence (`String`), because it only goes to the log. A sink that
//! cannot be opened has a [`SinkError`], which `visiond check` shows at its key.

#[cfg(test)]
mod add_a_sink;
mod broker;
mod file;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod ledger;
mod mqtt;
mod nats;
mod poll;
mod publisher;
mod queue;
mod rate_limit;
mod sink;
mod sink_types;
mod spool;
mod stdout;
mod unix;
mod wake_thread;

pub use ledger::EventLedger;
pub use publisher::{PreparedSinks, PublishError, Publisher, RetiredSinks, check};
pub use sink::{CommandedCamera, Commander, SinkContext, SinkError};
