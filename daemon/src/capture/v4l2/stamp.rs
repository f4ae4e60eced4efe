//! A buffer's timestamp: which clock it is on, which instant it marks, and whether it can be believed.

use v4l::v4l_sys as sys;

use super::stream::Filled;
use crate::capture::clock::{self, Clock, WallWatch};
use crate::capture::frame::{Instant, Timestamp};

/// A frame that is older than this when it comes has a timestamp of another clock, whatever its flags say.
const OLDEST_NS: u64 = 60_000_000_000;

/// So far ahead of now a driver's timestamp may be: some count the exposure's end in.
const AHEAD_NS: u64 = 100_000_000;

/// Makes timestamps, and tells once where a driver's cannot be used.
#[derive(Debug, Default)]
pub struct Stamper {
    said: bool,
}

impl Stamper {
    /// When the frame was taken: the driver's word where its clock is ours, else now.
    pub fn stamp(&mut self, filled: &Filled, clock: &dyn Clock, label: &str) -> Timestamp {
        if let Some(seconds) = WallWatch::of_process().step(clock) {
            log::info!(
                "the system's time was set by {seconds:+.1} s; frames' times follow it, their ages do not change"
            );
        }
        let kind = filled.flags & sys::V4L2_BUF_FLAG_TIMESTAMP_MASK;
        if kind != sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC {
            let clock_name = if kind == sys::V4L2_BUF_FLAG_TIMESTAMP_COPY { "its source's" } else { "an unknown" };
            self.say(label, &format!("of {clock_name} clock"));
            return clock::now(clock);
        }
        let instant = match filled.flags & sys::V4L2_BUF_FLAG_TSTAMP_SRC_MASK {
            sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE => Instant::StartOfExposure,
            _ => Instant::EndOfFrame,
        };
        let now_ns = clock.monotonic_ns();
        let stamp_ns = filled.timestamp_ns;
        if stamp_ns > now_ns.saturating_add(AHEAD_NS) || stamp_ns < now_ns.saturating_sub(OLDEST_NS) {
            let off = (stamp_ns as f64 - now_ns as f64) / 1e9;
            self.say(label, &format!("{off:.1} s off the system's clock"));
            return clock::now(clock);
        }
        clock::at_monotonic(clock, stamp_ns.min(now_ns), instant)
    }

    fn say(&mut self, label: &str, what: &str) {
        if !std::mem::replace(&mut self.said, true) {
            log::info!("{label}: the driver's timestamps are {what}: a frame's time is when it was received");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::capture::clock::simulated::SimulatedClock;

    const MONOTONIC: u32 = sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;

    fn stamp_at_100_s(flags: u32, timestamp_ns: u64) -> Timestamp {
        let clock = SimulatedClock::default();
        clock.advance(Duration::from_secs(100));
        Stamper::default().stamp(&Filled::simulated(flags, timestamp_ns), &clock, "camera door")
    }

    #[test]
    fn a_monotonic_time_is_the_frames() {
        let start = stamp_at_100_s(MONOTONIC | sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE, 99_000_000_000);
        assert_eq!((start.monotonic_ns, start.instant), (99_000_000_000, Instant::StartOfExposure));
        assert_eq!(start.realtime_ns, SimulatedClock::EPOCH_NS + 99_000_000_000);
        assert_eq!(stamp_at_100_s(MONOTONIC, 99_000_000_000).instant, Instant::EndOfFrame);
    }

    #[test]
    fn a_time_on_another_clock_is_not_believed() {
        for flags in [sys::V4L2_BUF_FLAG_TIMESTAMP_UNKNOWN, sys::V4L2_BUF_FLAG_TIMESTAMP_COPY] {
            assert_eq!(stamp_at_100_s(flags, 99_000_000_000).monotonic_ns, 100_000_000_000);
        }
    }

    #[test]
    fn a_time_that_wrapped_or_cannot_be_is_not_believed() {
        for timestamp_ns in [0, 1_000_000_000, 101_000_000_000, u64::MAX] {
            assert_eq!(stamp_at_100_s(MONOTONIC, timestamp_ns).monotonic_ns, 100_000_000_000, "{timestamp_ns}");
        }
        // A little ahead is now.
        assert_eq!(stamp_at_100_s(MONOTONIC, 100_050_000_000).monotonic_ns, 100_000_000_000);
    }
}
