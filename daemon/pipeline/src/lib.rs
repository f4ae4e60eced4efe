//! From frames to messages: mailbox, lane, supervisor.

pub mod camera;
pub mod inbox;
pub mod lane;
pub mod network;
pub mod pacer;
pub mod status;
pub mod summary;
pub mod supervisor;
pub mod watchdog;
