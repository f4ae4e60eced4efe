//! How many pictures were lost whole, by the steps of the stream's times: no packet of theirs came, so nothing else tells.

/// So many equal steps in turn are a cadence.
const STEADY: u32 = 8;

/// The steps from one picture's time to the next. Without a cadence, as where B-frames make times go back and forth, nothing is known.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    last: Option<i64>,
    step: i64,
    steady: u32,
}

impl Cadence {
    /// Takes a packet's time, and how many packets were lost before it. Returns how many pictures are missing.
    pub(super) fn next(&mut self, time: i64, lost: u64) -> u64 {
        let Some(last) = self.last.replace(time).filter(|last| *last != time) else { return 0 };
        let step = time.saturating_sub(last);
        if lost == 0 {
            let is_equal = self.step > 0 && step.abs_diff(self.step) <= self.step.unsigned_abs() / 4;
            (self.step, self.steady) = if is_equal { (self.step, self.steady + 1) } else { (step, 0) };
            return 0;
        }
        if self.steady < STEADY || step < 0 {
            return 0;
        }
        let steps = step.saturating_add(self.step / 2) / self.step;
        // Each of them had a packet at least.
        steps.saturating_sub(1).unsigned_abs().min(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cadence of 25 pictures per second, three packets each, that goes on until `time`.
    fn steady(until: i64) -> Cadence {
        let mut cadence = Cadence::default();
        for time in (0..=until).step_by(3600) {
            assert_eq!([0; 3].map(|lost| cadence.next(time, lost)), [0; 3]);
        }
        cadence
    }

    #[test]
    fn pictures_without_a_packet_are_counted_and_damaged_ones_are_not() {
        let mut cadence = steady(36_000);
        assert_eq!(cadence.next(36_000, 1), 0, "a packet of the same picture");
        assert_eq!(cadence.next(39_600, 2), 0, "the end of one picture and the start of the next");
        assert_eq!(cadence.next(39_600 + 3 * 3600 + 700, 9), 2, "two are missing, and times may be inexact");
        assert_eq!(cadence.next(39_600 + 4 * 3600, 0), 0);
        assert_eq!(cadence.next(39_600 + 100 * 3600, 5), 5, "no more than packets");
    }

    #[test]
    fn nothing_is_counted_without_a_cadence() {
        assert_eq!(steady(3600 * 3).next(3600 * 9, 9), 0, "few pictures");
        // Shown 0, 3, 1, 2, 6, 4, 5: B-frames.
        let mut cadence = Cadence::default();
        for group in 0..20 {
            for at in [0, 3, 1, 2] {
                cadence.next((group * 3 + at) * 3600, 0);
            }
        }
        assert_eq!(cadence.next(200 * 3600, 50), 0);
        // Another rate, and a clock that jumps.
        let mut cadence = steady(36_000);
        assert_eq!(cadence.next(36_000 + 7200, 0), 0);
        assert_eq!(cadence.next(36_000 + 7200 * 5, 9), 0);
        let mut cadence = steady(36_000);
        assert_eq!([cadence.next(i64::MIN, 9), cadence.next(i64::MAX, 9), cadence.next(0, 0)], [0, 9, 0]);
    }
}
