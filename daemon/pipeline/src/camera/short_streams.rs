//! Counts a camera's streams that were lost soon after they began, so that a flapping camera does not fill the log.

use std::time::Duration;

/// From this many short streams in a row, they are logged as a group; each earlier one has its own lines.
const MANY: u64 = 4;

/// Short streams in a row.
#[derive(Debug, Default)]
pub(super) struct ShortStreams {
    count: u64,
    /// When the first of them was lost, in nanoseconds on CLOCK_MONOTONIC.
    since_ns: u64,
}

impl ShortStreams {
    /// Notes a stream that was lost after `lasted`; one of at least `stable` ends the run of short streams.
    pub(super) const fn lost(&mut self, lasted: Duration, stable: Duration, now_ns: u64) {
        if lasted.as_nanos() >= stable.as_nanos() {
            self.count = 0;
            return;
        }
        if self.count == 0 {
            self.since_ns = now_ns;
        }
        self.count += 1;
    }

    /// Whether losses and returns are no longer logged individually.
    pub(super) const fn are_many(&self) -> bool {
        self.count >= MANY
    }

    /// Whether the last stream was the one that reached the threshold.
    pub(super) const fn became_many(&self) -> bool {
        self.count == MANY
    }

    /// Returns their number, and how long this has been going on, for the log.
    pub(super) fn text(&self, now_ns: u64) -> String {
        let seconds = Duration::from_nanos(now_ns.saturating_sub(self.since_ns)).as_secs_f64();
        format!("lost {} times in {seconds:.1} s", self.count)
    }

    /// Ends the run of short streams, because one has lasted.
    pub(super) const fn end(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STABLE: Duration = Duration::from_secs(10);

    #[test]
    fn only_short_streams_in_a_row_are_many() {
        let mut streams = ShortStreams::default();
        for number in 1..=6 {
            streams.lost(Duration::from_secs(3), STABLE, number * 4_000_000_000);
            assert_eq!((streams.are_many(), streams.became_many()), (number >= 4, number == 4));
        }
        assert_eq!(streams.text(26_000_000_000), "lost 6 times in 22.0 s");
        streams.lost(STABLE, STABLE, 40_000_000_000);
        assert!(!streams.are_many());
        for _ in 0..3 {
            streams.lost(Duration::ZERO, STABLE, 0);
        }
        streams.end();
        streams.lost(Duration::ZERO, STABLE, 0);
        assert!(!streams.are_many());
    }
}
