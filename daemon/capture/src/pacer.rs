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
    fn thirty_days_have_exactly_the_frames_of_their_rate() {
        const DAYS_NS: u64 = 30 * 86_400 * 1_000_000_000;
        // Frame by frame at 29.97; the other rates in larger steps, because a deadline depends on the number of its frame alone.
        for (fps, whole, step) in [
            (29.97, 77_682_240, 100),
            (30.0, 77_760_000, 2_592_000),
            (60_000.0 / 1_001.0, 155_364_635, 1_001),
            (0.1, 259_200, 8_640),
        ] {
            let mut pacer = SourcePacer::new(fps);
            // A machine that has been up for 497 days, as the start of the counters of others that wrap.
            let start_ns = 497 * 86_400 * 1_000_000_000;
            pacer.due_ns(start_ns);
            let mut before_ns = start_ns;
            while pacer.tick < whole {
                let frames = step.min(whole - pacer.tick);
                if fps == 29.97 {
                    (0..frames).for_each(|_| pacer.advance());
                } else {
                    pacer.tick += frames;
                }
                let due_ns = pacer.due_ns(0);
                assert!(due_ns > before_ns);
                before_ns = due_ns;
            }
            let end_ns = start_ns + DAYS_NS;
            let slack_ns = (1e9 / fps) as u64;
            assert!((end_ns - slack_ns..=end_ns).contains(&before_ns), "{fps}: {} ns off", end_ns - before_ns);
            pacer.advance();
            assert!(pacer.due_ns(0) > end_ns, "{fps}: a frame too few");
        }
    }

    #[test]
    fn thirty_days_with_suspends_lose_no_frame_uncounted() {
        let (mut pacer, second) = (SourcePacer::new(29.97), 1_000_000_000);
        let (mut now_ns, mut given, mut lost) = (0, 0, 0);
        pacer.due_ns(now_ns);
        for minute in 0..30 * 24 * 60_u64 {
            // Suspended for 1 to 9 hours once a day; one frame a minute is taken, the others are missed.
            now_ns += if minute % 1440 == 77 { (1 + minute / 1440 % 9) * 3600 * second } else { 60 * second };
            lost += pacer.skip_missed(now_ns);
            let due_ns = pacer.due_ns(now_ns);
            assert!(due_ns <= now_ns && now_ns - due_ns <= 33_366_701, "{minute}: {now_ns} {due_ns}");
            pacer.advance();
            given += 1;
            assert_eq!(given + lost, pacer.tick);
            // Where a deadline falls on the minute, rounding may leave its frame for the next turn.
            let due = (now_ns as f64 * 29.97 / 1e9) as u64 + 1;
            assert!(pacer.tick == due || pacer.tick + 1 == due, "{} of {due}", pacer.tick);
        }
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
