//! Streams of a camera that were lost soon after they began, counted so that a camera that comes and goes does not fill the log.

use std::time::Duration;

/// So many short streams in a row are logged as such; each one before has its own lines.
const MANY: u64 = 4;

/// Short streams in a row.
#[derive(Debug, Default)]
pub(super) struct ShortStreams {
    count: u64,
    /// When the first of them was lost, in nanoseconds on CLOCK_MONOTONIC.
    since_ns: u64,
}

impl ShortStreams {
    /// Takes note of a stream that was lost after it had lasted `lasted`; one of at least `stable` ends the row.
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

    /// Whether losses and returns are not logged one by one.
    pub(super) const fn are_many(&self) -> bool {
        self.count >= MANY
    }

    /// Whether the last one was the first of which are many.
    pub(super) const fn became_many(&self) -> bool {
        self.count == MANY
    }

    /// Returns how many they are, and for how long this has gone on, for the log.
    pub(super) fn text(&self, now_ns: u64) -> String {
        let seconds = Duration::from_nanos(now_ns.saturating_sub(self.since_ns)).as_secs_f64();
        format!("lost {} times in {seconds:.1} s", self.count)
    }

    /// Ends the row, because a stream has lasted.
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
