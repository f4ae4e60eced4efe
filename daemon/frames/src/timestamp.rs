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

impl Timestamp {
    /// Formats the time as RFC 3339 in UTC with nine decimals.
    pub fn rfc3339(self) -> String {
        match jiff::Timestamp::from_nanosecond(i128::from(self.realtime_ns)) {
            Ok(instant) => format!("{instant:.9}"),
            // Cannot happen: u64 nanoseconds end in 2554, jiff's instants in 9999.
            Err(_) => "1970-01-01T00:00:00.000000000Z".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_has_nine_decimals_whatever_they_are() {
        let at = |realtime_ns| Timestamp { monotonic_ns: 0, realtime_ns, instant: Instant::EndOfFrame }.rfc3339();
        assert_eq!(at(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(1_772_357_412_123_456_789), "2026-03-01T09:30:12.123456789Z");
        assert_eq!(at(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}
