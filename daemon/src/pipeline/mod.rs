//! From frames to messages: mailbox, lane, supervisor.

pub mod backoff;
pub mod beat;
pub mod camera;
pub mod histogram;
pub mod inbox;
pub mod lane;
pub mod metrics;
pub mod network;
pub mod pacer;
pub mod process;
pub mod rate;
pub mod status;
pub mod stop;
pub mod summary;
pub mod supervisor;
pub mod trace;
pub mod watchdog;
