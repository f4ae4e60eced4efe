//! The time of a frame, on two clocks.

/// Which instant of a frame its timestamp marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// The start of the first line's exposure (`V4L2_BUF_FLAG_TSTAMP_SRC_SOE`).
    StartOfExposure,
    /// The arrival of the first line.
    StartOfFrame,
    /// The arrival of the last byte (`V4L2_BUF_FLAG_TSTAMP_SRC_EOF`; V4L2's default, and every source except cameras).
    EndOfFrame,
}

/// The time of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// The same instant on CLOCK_REALTIME, nanoseconds since 1970 UTC.
    pub realtime_ns: u64,
    /// The instant of the frame that the time marks.
    pub instant: Instant,
}
