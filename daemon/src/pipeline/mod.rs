//! From frames to messages: mailbox, lane, supervisor.

pub mod stop;
