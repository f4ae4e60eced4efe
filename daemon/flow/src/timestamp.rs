//! When a frame was taken, on two clocks.

/// Which instant of a frame its timestamp marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// The first line's exposure began (`V4L2_BUF_FLAG_TSTAMP_SRC_SOE`).
    StartOfExposure,
    /// The first line was received.
    StartOfFrame,
    /// The last byte was received (`V4L2_BUF_FLAG_TSTAMP_SRC_EOF`, V4L2's default, and every source that is no camera).
    EndOfFrame,
}

/// When a frame was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// The same instant on CLOCK_REALTIME, nanoseconds since 1970 UTC.
    pub realtime_ns: u64,
    /// What it marks.
    pub instant: Instant,
}
