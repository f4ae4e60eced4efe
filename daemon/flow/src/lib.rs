//! What passes between the rooms of the daemon: frames with their times, messages, and the counters of both.

pub mod clock;
pub mod frame;
pub mod histogram;
pub mod message;
pub mod metrics;
pub mod rate;
pub mod sink_counts;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timestamp;
pub mod trace;
