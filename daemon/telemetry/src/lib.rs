//! visiond's own statistics: counters and durations of cameras and lanes, and the trace.

pub mod histogram;
pub mod metrics;
pub mod rate;
pub mod rules;
pub mod trace;
