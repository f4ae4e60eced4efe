//! Converts a driver's timestamp into visiond's: which clock it is on, which instant it marks, and whether it is plausible.

use v4l::v4l_sys as sys;
use visiond_frames::clock::{self, Clock, WallWatch};
use visiond_frames::timestamp::{Instant, Timestamp};

use super::device::Node;
use super::quirks::Quirk;
use super::stream::FilledBuffer;

/// A frame older than this on arrival has a timestamp of another clock, whatever its flags say.
const OLDEST_NS: u64 = 60_000_000_000;

/// How far in the future a driver's timestamp may be: some drivers add the end of the exposure.
const AHEAD_NS: u64 = 100_000_000;

/// The greatest age of a system counter timestamp on arrival: some of the driver's buffers, and a long exposure.
const OLDEST_COUNT_NS: u64 = 5_000_000_000;

#[derive(Debug, Default)]
pub struct TimestampConverter {
    /// Whether the driver has [`Quirk::StampsOfSystemCounter`].
    uses_system_counter: bool,
    /// Whether the driver may use CLOCK_REALTIME and claim otherwise.
    may_use_realtime: bool,
    logged: bool,
}

impl TimestampConverter {
    pub fn new(node: &Node) -> Self {
        let has = |quirk| node.has(quirk);
        Self {
            uses_system_counter: has(Quirk::StampsOfSystemCounter),
            may_use_realtime: has(Quirk::StampsOfEitherClock),
            logged: false,
        }
    }

    /// Returns when the frame was taken: the driver's timestamp, converted to CLOCK_MONOTONIC if necessary, or the time of
    /// arrival if it is not plausible.
    pub fn stamp(&mut self, filled: &FilledBuffer, clock: &dyn Clock, label: &str) -> Timestamp {
        if let Some(seconds) = WallWatch::of_process().step(clock) {
            log::info!("the system clock was set by {seconds:+.1} s; frame times follow it, frame ages do not change");
        }
        if let Some(stamp) = self.uses_system_counter.then(|| from_system_counter(filled.timestamp_ns, clock)).flatten()
        {
            return stamp;
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
        if !is_recent(stamp_ns, now_ns) {
            let realtime_ns = clock.realtime_ns();
            if self.may_use_realtime && is_recent(stamp_ns, realtime_ns) {
                let age_ns = realtime_ns.saturating_sub(stamp_ns);
                return clock::at_monotonic(clock, now_ns.saturating_sub(age_ns), instant);
            }
            let off = (stamp_ns as f64 - now_ns as f64) / 1e9;
            self.say(label, &format!("{off:.1} s off the system's clock"));
            return clock::now(clock);
        }
        clock::at_monotonic(clock, stamp_ns.min(now_ns), instant)
    }

    fn say(&mut self, label: &str, what: &str) {
        if !std::mem::replace(&mut self.logged, true) {
            log::info!("{label}: the driver's timestamps are {what}: using the time of reception instead");
        }
    }
}

/// Whether a timestamp is plausible on the clock that reads `now_ns`.
fn is_recent(stamp_ns: u64, now_ns: u64) -> bool {
    stamp_ns <= now_ns.saturating_add(AHEAD_NS) && stamp_ns >= now_ns.saturating_sub(OLDEST_NS)
}

/// Converts a system counter timestamp to CLOCK_MONOTONIC; `None` if it is not plausible, for example with a fixed driver.
///
/// Reads both clocks for each frame, so neither the start of CLOCK_MONOTONIC nor NTP's adjustments matter: over the age of a
/// frame it drifts by at most 50 us (500 ppm of 0.1 s).
fn from_system_counter(stamp_ns: u64, clock: &dyn Clock) -> Option<Timestamp> {
    let (counter_ns, monotonic_ns) = read_counter_and_monotonic(clock)?;
    if stamp_ns > counter_ns.saturating_add(AHEAD_NS) || stamp_ns < counter_ns.saturating_sub(OLDEST_COUNT_NS) {
        return None;
    }
    let taken_ns = monotonic_ns.checked_sub(counter_ns.saturating_sub(stamp_ns))?;
    Some(clock::at_monotonic(clock, taken_ns, Instant::StartOfFrame))
}

/// Reads both clocks at one instant. The thread may be preempted between the two, so the tightest of a few tries counts.
fn read_counter_and_monotonic(clock: &dyn Clock) -> Option<(u64, u64)> {
    const TRIES: usize = 4;
    const TIGHT_NS: u64 = 5_000;
    let mut best: Option<(u64, u64, u64)> = None;
    for _ in 0..TRIES {
        let before_ns = clock.monotonic_ns();
        let counter_ns = clock.system_counter_ns()?;
        let width_ns = clock.monotonic_ns().saturating_sub(before_ns);
        if best.is_none_or(|(best_ns, ..)| width_ns < best_ns) {
            best = Some((width_ns, counter_ns, before_ns + width_ns / 2));
        }
        if width_ns <= TIGHT_NS {
            break;
        }
    }
    best.map(|(_, counter_ns, monotonic_ns)| (counter_ns, monotonic_ns))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use visiond_frames::clock::simulated::SimulatedClock;

    const MONOTONIC: u32 = sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;

    fn stamp_at_100_s(flags: u32, timestamp_ns: u64) -> Timestamp {
        let clock = SimulatedClock::default();
        clock.advance(Duration::from_secs(100));
        TimestampConverter::default().stamp(&FilledBuffer::simulated(flags, timestamp_ns), &clock, "camera door")
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
        // A timestamp slightly in the future counts as now.
        assert_eq!(stamp_at_100_s(MONOTONIC, 100_050_000_000).monotonic_ns, 100_000_000_000);
    }

    #[test]
    fn a_stamp_of_the_system_counter_becomes_a_time_whatever_the_offset_and_the_drift() {
        const S: u64 = 1_000_000_000;
        let (clock, mut timestamps) = (
            SimulatedClock::default(),
            TimestampConverter { uses_system_counter: true, ..TimestampConverter::default() },
        );
        // The counter is 37 s ahead at first, and CLOCK_MONOTONIC is slowed by 500 ppm: an hour later it is 38.8 s.
        for second in [1, 60, 3600] {
            let to = second * (S - 500_000);
            clock.advance(Duration::from_nanos(to - clock.monotonic_ns()));
            clock.set_counter_ns(second * S + 37 * S);
            // The frame began 48 ms ago.
            let filled = FilledBuffer::simulated(MONOTONIC, second * S + 37 * S - 48_000_000);
            let stamp = timestamps.stamp(&filled, &clock, "camera gate");
            assert_eq!((stamp.monotonic_ns, stamp.instant), (to - 48_000_000, Instant::StartOfFrame));
            assert_eq!(stamp.realtime_ns, SimulatedClock::EPOCH_NS + to - 48_000_000);
            // A timestamp slightly in the future counts as now.
            let ahead =
                timestamps.stamp(&FilledBuffer::simulated(MONOTONIC, second * S + 37 * S + 9), &clock, "camera gate");
            assert_eq!(ahead.monotonic_ns, to);
        }
        assert!(!timestamps.logged);
    }

    #[test]
    fn a_time_of_the_wall_clock_is_known_where_the_driver_may_be_set_to_it() {
        let clock = SimulatedClock::default();
        clock.advance(Duration::from_secs(100));
        let filled = FilledBuffer::simulated(MONOTONIC, SimulatedClock::EPOCH_NS + 99_970_000_000);
        let taken_ns = |may_use_realtime| {
            TimestampConverter { may_use_realtime, ..TimestampConverter::default() }
                .stamp(&filled, &clock, "camera door")
                .monotonic_ns
        };
        assert_eq!((taken_ns(true), taken_ns(false)), (99_970_000_000, 100_000_000_000));
    }

    #[test]
    fn where_the_counter_does_not_explain_a_stamp_it_is_taken_as_of_any_driver() {
        let (clock, mut timestamps) = (
            SimulatedClock::default(),
            TimestampConverter { uses_system_counter: true, ..TimestampConverter::default() },
        );
        clock.advance(Duration::from_secs(100));
        // A machine whose counter cannot be read; one whose driver was fixed.
        for counter_ns in [0, 137_000_000_000] {
            clock.set_counter_ns(counter_ns);
            let stamp = timestamps.stamp(&FilledBuffer::simulated(MONOTONIC, 99_950_000_000), &clock, "camera gate");
            assert_eq!((stamp.monotonic_ns, stamp.instant), (99_950_000_000, Instant::EndOfFrame));
        }
    }
}
