//! Computes when the next frame is due. Files and patterns have absolute deadlines, so that neither rounding nor late wake-ups
//! accumulate; live streams follow the arrival of frames.

use std::time::Duration;

/// The rate of a recording that states none.
pub(crate) const USUAL_FPS: f64 = 25.0;

/// Returns the time of a frame in a recording of this average rate.
pub(crate) fn recorded_at(sequence: u64, fps: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(sequence as f64 / fps).ok()
}

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

    /// Advances to the next frame, due one interval later.
    pub fn advance(&mut self) {
        self.tick += 1;
    }

    /// Skips all past deadlines but the latest. Returns how many it skipped: the frames that a camera would have lost.
    pub fn skip_missed(&mut self, now_ns: u64) -> u64 {
        let due_ns = self.due_ns(now_ns);
        let missed = (now_ns.saturating_sub(due_ns) as f64 / self.interval_ns) as u64;
        self.tick += missed;
        missed
    }

    /// Starts over if the deadline is more than `tolerance` in the past, so that a long pause causes no burst.
    pub fn forgive(&mut self, now_ns: u64, tolerance: Duration) {
        if now_ns.saturating_sub(self.due_ns(now_ns)) > tolerance.as_nanos() as u64 {
            self.start_ns = Some(now_ns);
            self.tick = 0;
        }
    }
}

/// How much faster than its rate to release a live stream's backlog. The backlog of a segmented stream is used up before the next
/// segment arrives, even if the stream's clock is the faster one.
const CATCH_UP_SPEED: f64 = 1.1;

/// A backlog that lasts longer does not come from segments. From then on the speed grows with the backlog's duration.
const LONGEST_SEGMENT_NS: f64 = 15e9;

/// The shortest time over which to measure the rate of a live stream.
const RATE_WINDOW_NS: u64 = 10_000_000_000;

/// Spreads the bursts of a live stream: a frame that already waits is due almost an interval after the previous one.
///
/// The frames have no timestamps. A frame that has arrived when its turn comes is backlog; without one, the backlog is used up.
#[derive(Debug)]
pub struct BurstPacer {
    stated_interval_ns: f64,
    /// The stated interval, or less if frames come faster.
    interval_ns: f64,
    /// When the next frame has its turn; `None` before the first.
    due_ns: Option<u64>,
    /// When a frame was last awaited.
    caught_up_ns: u64,
    /// When the measurement of the rate began, and the frames since. It begins and ends without backlog.
    window: Option<(u64, u64)>,
}

impl BurstPacer {
    /// Creates a pacer; `frames_per_second`, as the stream states it, must be above 0.
    pub fn new(frames_per_second: f64) -> Self {
        let interval_ns = 1e9 / frames_per_second;
        Self { stated_interval_ns: interval_ns, interval_ns, due_ns: None, caught_up_ns: 0, window: None }
    }

    /// Returns when the next frame has its turn. The first one's turn is now.
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        self.due_ns.unwrap_or(now_ns)
    }

    /// Advances to the next frame. `was_there`: whether this one had arrived when its turn came.
    pub fn advance(&mut self, was_there: bool, now_ns: u64) {
        let mut began_ns = self.due_ns.unwrap_or(now_ns);
        if !was_there {
            if self.due_ns.is_some() {
                self.measure(began_ns);
            }
            (self.caught_up_ns, began_ns) = (now_ns, now_ns);
        }
        if let Some((_, frames)) = &mut self.window {
            *frames += 1;
        }
        let lasting_ns = now_ns.saturating_sub(self.caught_up_ns) as f64;
        let step_ns = self.interval_ns / CATCH_UP_SPEED.max(lasting_ns / LONGEST_SEGMENT_NS);
        // After a pause of this machine, do not release all past turns at once.
        let began_ns = began_ns.max(now_ns.saturating_sub(self.interval_ns as u64));
        self.due_ns = Some(began_ns.saturating_add(step_ns as u64));
    }

    /// Measures the rate up to `now_ns`, when every frame that had arrived was released.
    fn measure(&mut self, now_ns: u64) {
        let (start_ns, frames) = *self.window.get_or_insert((now_ns, 0));
        let passed_ns = now_ns.saturating_sub(start_ns);
        if passed_ns >= RATE_WINDOW_NS && frames > 0 {
            // At most the stated interval, because frames may have been lost.
            self.interval_ns = self.stated_interval_ns.min(passed_ns as f64 / frames as f64);
            self.window = Some((now_ns, 0));
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
        // Frame by frame at 29.97, and in larger steps at the other rates, because a deadline depends only on its frame's
        // number.
        for (fps, whole, step) in [
            (29.97, 77_682_240, 100),
            (30.0, 77_760_000, 2_592_000),
            (60_000.0 / 1_001.0, 155_364_635, 1_001),
            (0.1, 259_200, 8_640),
        ] {
            let mut pacer = SourcePacer::new(fps);
            // A machine that has been up for 497 days, when a 32-bit counter of 100 Hz ticks wraps.
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
            // If a deadline falls exactly on the minute, rounding may postpone its frame to the next turn.
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

    const SECOND: u64 = 1_000_000_000;

    /// Releases frames that arrive at `arrivals_ns`; returns the times of release.
    fn give_out(pacer: &mut BurstPacer, arrivals_ns: &[u64]) -> Vec<u64> {
        let mut now_ns = 0;
        let turn = |&arrival_ns: &u64| {
            now_ns = pacer.due_ns(now_ns).max(now_ns);
            let was_there = arrival_ns <= now_ns;
            now_ns = now_ns.max(arrival_ns);
            pacer.advance(was_there, now_ns);
            now_ns
        };
        arrivals_ns.iter().map(turn).collect()
    }

    /// The arrival times of frames at `fps` in a stream of 3 s segments. Three segments are there at the start; `stall_ns` is
    /// the delay of a due segment.
    fn segments(fps: f64, seconds: u64, stall_ns: impl Fn(u64) -> u64) -> Vec<u64> {
        let captured_ns = |frame: u64| (frame as f64 * 1e9 / fps) as u64;
        let frames = (seconds as f64 * fps) as u64;
        (0..frames).map(|frame| stall_ns((captured_ns(frame) / (3 * SECOND)).saturating_sub(2) * 3 * SECOND)).collect()
    }

    /// The longest and shortest interval between frames from `from_ns` on, and the longest wait of a frame for its turn.
    fn figures(given_ns: &[u64], arrivals_ns: &[u64], from_ns: u64) -> (u64, u64, u64) {
        let first = given_ns.iter().position(|&given_ns| given_ns >= from_ns).unwrap();
        let steps = given_ns[first..].windows(2).map(|pair| pair[1] - pair[0]);
        let waits =
            given_ns[first..].iter().zip(&arrivals_ns[first..]).map(|(given_ns, arrival_ns)| given_ns - arrival_ns);
        (steps.clone().max().unwrap(), steps.min().unwrap(), waits.max().unwrap())
    }

    #[test]
    fn frames_that_come_in_time_are_given_out_at_once() {
        let arrivals: Vec<u64> = (0..1000).map(|frame| frame * 40_000_000 + frame % 3 * 1_000_000).collect();
        assert_eq!(give_out(&mut BurstPacer::new(25.0), &arrivals), arrivals);
        // A stream whose actual rate is lower than the stated one.
        assert_eq!(give_out(&mut BurstPacer::new(1000.0), &arrivals), arrivals);
    }

    #[test]
    fn segments_are_spread_and_the_stream_s_clock_may_be_faster() {
        for fps in [25.0, 25.1, 24.9] {
            let arrivals = segments(fps, 3600, |due| due);
            let given = give_out(&mut BurstPacer::new(25.0), &arrivals);
            let (longest, shortest, wait) = figures(&given, &arrivals, 60 * SECOND);
            assert!(shortest > 36_000_000 && longest < 500_000_000 && wait < 3 * SECOND, "{longest} {shortest} {wait}");
        }
    }

    #[test]
    fn after_a_stall_the_backlog_is_worked_off_in_a_bounded_time_by_small_steps() {
        for (stall, over) in [(10, 40), (60, 80), (600, 250)] {
            // Nothing arrives for a while, then the whole backlog.
            let (from, to) = (300 * SECOND, (300 + stall) * SECOND);
            let arrivals = segments(25.0, 3600, |due| if (from..to).contains(&due) { to } else { due });
            let given = give_out(&mut BurstPacer::new(25.0), &arrivals);
            let (longest, shortest, wait) = figures(&given, &arrivals, to + over * SECOND);
            assert!(shortest > 34_000_000 && longest < 500_000_000 && wait < 3 * SECOND, "{longest} {shortest} {wait}");
        }
    }

    #[test]
    fn a_stream_that_states_half_its_rate_is_kept_up_with() {
        let arrivals = segments(50.0, 600, |due| due);
        let given = give_out(&mut BurstPacer::new(25.0), &arrivals);
        let (longest, shortest, wait) = figures(&given, &arrivals, 120 * SECOND);
        assert!(shortest > 17_000_000 && longest < 500_000_000 && wait < 3 * SECOND, "{longest} {shortest} {wait}");
    }

    #[test]
    fn after_a_pause_of_the_machine_frames_do_not_come_at_once() {
        let mut pacer = BurstPacer::new(25.0);
        pacer.advance(true, 0);
        pacer.advance(true, 3600 * SECOND);
        pacer.advance(true, 3600 * SECOND);
        assert!(pacer.due_ns(0) >= 3600 * SECOND - 40_000_000);
    }
}
