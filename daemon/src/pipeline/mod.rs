//! From frames to messages: mailbox, lane, supervisor.

pub mod backoff;
pub mod histogram;
pub mod inbox;
pub mod lane;
pub mod metrics;
pub mod network;
pub mod stop;
