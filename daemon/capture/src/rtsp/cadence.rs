//! Counts access units that were lost completely, from gaps in the stream's timestamps. None of their packets arrived, so
//! there is no other sign.

/// How many equal steps in a row make a cadence.
const STEADY: u32 = 8;

/// The most frames that a stream can reorder: H.264 and H.265 keep 16.
const MOST_REORDERED: usize = 16;

/// Tracks the interval between frames in display order. Without a regular interval, no loss can be counted.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    /// The time of the last packet.
    newest: Option<i64>,
    /// The times of frames, in order, that earlier frames may still precede.
    held: Vec<i64>,
    /// How many times to hold back: as many as have arrived too late for their position (B-frames).
    depth: usize,
    /// The last time that was released.
    last: Option<i64>,
    step: i64,
    steady: u32,
    /// Packets lost near the next times, and how many times have been released since.
    lost: u64,
    since_loss: usize,
}

impl Cadence {
    /// Takes a packet's time, how many packets were lost before it, and how many frames arrived incomplete. Returns how
    /// many frames are missing, at most the number of lost packets.
    pub(super) fn next(&mut self, time: i64, lost: u64, damaged: u64) -> u64 {
        self.lost = self.lost.saturating_sub(damaged.saturating_sub(lost));
        let lost = lost.saturating_sub(damaged);
        if self.newest.replace(time) == Some(time) {
            return 0;
        }
        if lost > 0 {
            (self.lost, self.since_loss) = (self.lost.saturating_add(lost), 0);
        }
        if let Some(last) = self.last.filter(|last| time <= *last) {
            // A frame that is displayed earlier, or a clock that was set back.
            let is_reordered = last.saturating_sub(time) <= self.step.saturating_mul(MOST_REORDERED as i64);
            if is_reordered && self.depth < MOST_REORDERED {
                self.depth += 1;
            } else {
                *self = Self { newest: Some(time), ..Self::default() };
            }
            return 0;
        }
        if let Err(at) = self.held.binary_search(&time) {
            self.held.insert(at, time);
        }
        if self.held.len() <= self.depth { 0 } else { self.pass() }
    }

    /// Releases the first time. Returns how many frames are missing before it.
    fn pass(&mut self) -> u64 {
        let time = self.held.remove(0);
        let Some(last) = self.last.replace(time) else { return 0 };
        let step = time.saturating_sub(last);
        if self.lost == 0 {
            let is_equal = self.step > 0 && step.abs_diff(self.step) <= self.step.unsigned_abs() / 4;
            (self.step, self.steady) = if is_equal { (self.step, self.steady + 1) } else { (step, 0) };
            return 0;
        }
        let mut missing = 0;
        if self.steady >= STEADY {
            let steps = step.saturating_add(self.step / 2) / self.step;
            // Each of them had at least one packet.
            missing = steps.saturating_sub(1).unsigned_abs().min(self.lost);
        }
        self.lost -= missing;
        // A lost frame is no further away than the number of times held back.
        if self.since_loss >= 2 * self.depth {
            self.lost = 0;
        }
        self.since_loss += 1;
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cadence of 25 frames per second, three packets each, until `time`.
    fn steady(until: i64) -> Cadence {
        let mut cadence = Cadence::default();
        for time in (0..=until).step_by(3600) {
            assert_eq!([0; 3].map(|lost| cadence.next(time, lost, 0)), [0; 3]);
        }
        cadence
    }

    #[test]
    fn pictures_without_a_packet_are_counted_and_damaged_ones_are_not() {
        let mut cadence = steady(36_000);
        assert_eq!(cadence.next(36_000, 1, 0), 0, "a packet of the same picture");
        assert_eq!(cadence.next(39_600, 2, 0), 0, "the end of one picture and the start of the next");
        assert_eq!(cadence.next(39_600 + 3 * 3600 + 700, 9, 0), 2, "two are missing, and times may be inexact");
        assert_eq!(cadence.next(39_600 + 4 * 3600, 0, 0), 0);
        assert_eq!(cadence.next(39_600 + 100 * 3600, 5, 0), 5, "no more than packets");
    }

    /// The times of B-frames in decoding order: 3, 1, 2, 6, 4, 5, without the lost ones. Each frame has two packets.
    #[test]
    fn pictures_without_a_packet_are_counted_among_pictures_that_are_shown_later() {
        for lost in [&[63][..], &[61], &[62], &[61, 62], &[63, 61, 62], &[60, 63, 70, 80], &[]] {
            let mut cadence = Cadence::default();
            let (mut missing, mut packets) = (0, 0);
            for group in 0..40 {
                for at in [3, 1, 2] {
                    let picture = group * 3 + at;
                    if lost.contains(&picture) {
                        packets += 2;
                        continue;
                    }
                    missing += cadence.next(picture * 3600, std::mem::take(&mut packets), 0);
                    missing += cadence.next(picture * 3600, 0, 0);
                }
            }
            assert_eq!(missing, lost.len() as u64, "{lost:?}");
        }
    }

    #[test]
    fn a_picture_that_lost_its_start_among_b_frames_is_not_missing() {
        let mut cadence = Cadence::default();
        for picture in (0..40).flat_map(|group| [3, 1, 2].map(|at| group * 3 + at)) {
            assert_eq!(cadence.next(picture * 3600, u64::from(picture % 7 == 0), 0), 0);
        }
    }

    /// Some frames lack their first packet, which shows only at their last one; later the camera skips frames.
    #[test]
    fn pictures_that_the_camera_leaves_out_are_not_missing_while_others_lack_a_packet() {
        let mut cadence = Cadence::default();
        for group in 0..80 {
            for at in [3, 1, 2] {
                let picture = group * 3 + at;
                if group > 20 && group % 9 == 0 && at != 3 {
                    continue;
                }
                let is_damaged = u64::from(group > 10 && (2..9).contains(&(group % 9)));
                let first = cadence.next(picture * 3600, is_damaged, 0);
                assert_eq!((first, cadence.next(picture * 3600, 0, is_damaged)), (0, 0), "picture {picture}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_begins_another_cadence() {
        let mut cadence = steady(3600 * 300);
        for time in (-36_000_000..-36_000_000 + 3600 * 20).step_by(3600) {
            assert_eq!(cadence.next(time, 0, 0), 0);
        }
        let after = -36_000_000 + 3600 * 22;
        let missing: u64 = (0..10).map(|n| cadence.next(after + n * 3600, if n == 0 { 4 } else { 0 }, 0)).sum();
        assert_eq!(missing, 2);
    }

    #[test]
    fn nothing_is_counted_without_a_cadence() {
        assert_eq!(steady(3600 * 3).next(3600 * 9, 9, 0), 0, "few pictures");
        // Another rate, and a clock that jumps.
        let mut cadence = steady(36_000);
        assert_eq!(cadence.next(36_000 + 7200, 0, 0), 0);
        assert_eq!(cadence.next(36_000 + 7200 * 5, 9, 0), 0);
        let mut cadence = steady(36_000);
        assert_eq!([cadence.next(i64::MIN, 9, 0), cadence.next(i64::MAX, 9, 0), cadence.next(0, 0, 0)], [0; 3]);
    }
}
