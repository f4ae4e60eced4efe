//! Frames with their timestamps, messages, and the counters of both: what the crates of the daemon pass to each other.

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
