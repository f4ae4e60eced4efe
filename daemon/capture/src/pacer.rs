//! Computes when the next frame is due: absolute deadlines, so that neither rounding nor late wake-ups add up.

use std::time::Duration;

#[derive(Debug)]
pub struct SourcePacer {
    interval_ns: f64,
    start_ns: Option<u64>,
    tick: u64,
}

impl SourcePacer {
    /// Creates a pacer; `frames_per_second` must be above 0.
    pub fn new(frames_per_second: f64) -> Self {
        Self { interval_ns: 1e9 / frames_per_second, start_ns: None, tick: 0 }
    }

    /// Returns when the next frame is due. The first is due now.
    pub fn due_ns(&mut self, now_ns: u64) -> u64 {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        start_ns.saturating_add((self.tick as f64 * self.interval_ns) as u64)
    }

    /// Moves on to the next frame, which is due an interval later.
    pub fn advance(&mut self) {
        self.tick += 1;
    }

    /// Skips the deadlines that have passed, except the latest; returns how many: the frames that a camera would have lost.
    pub fn skip_missed(&mut self, now_ns: u64) -> u64 {
        let due_ns = self.due_ns(now_ns);
        let missed = (now_ns.saturating_sub(due_ns) as f64 / self.interval_ns) as u64;
        self.tick += missed;
        missed
    }

    /// Starts over if the deadline lies more than `tolerance` back, so that a long pause causes no burst.
    pub fn forgive(&mut self, now_ns: u64, tolerance: Duration) {
        if now_ns.saturating_sub(self.due_ns(now_ns)) > tolerance.as_nanos() as u64 {
            self.start_ns = Some(now_ns);
            self.tick = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn deadlines_do_not_drift() {
        let mut pacer = SourcePacer::new(29.97);
        assert_eq!(pacer.due_ns(1_000), 1_000);
        for _ in 0..2_997 {
            pacer.advance();
        }
        assert_eq!(pacer.due_ns(5_000), 100_000_001_000);
    }

    #[test]
    fn a_late_source_skips_what_is_over_and_counts_it() {
        let mut pacer = SourcePacer::new(10.0);
        pacer.due_ns(0);
        pacer.advance();
        assert_eq!(pacer.skip_missed(350_000_000), 2);
        assert_eq!(pacer.due_ns(350_000_000), 300_000_000);
        assert_eq!(pacer.skip_missed(350_000_000), 0);
    }

    #[test]
    fn a_long_pause_is_forgiven_a_short_one_is_made_up() {
        let mut pacer = SourcePacer::new(10.0);
        pacer.due_ns(0);
        pacer.advance();
        pacer.forgive(1_000_000_000, Duration::from_secs(2));
        assert_eq!(pacer.due_ns(1_000_000_000), 100_000_000);
        pacer.forgive(9_000_000_000, Duration::from_secs(2));
        assert_eq!(pacer.due_ns(9_000_000_000), 9_000_000_000);
    }
}
