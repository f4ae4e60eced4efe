//! Converts the driver's 32-bit frame numbers, which wrap and restart, to 64-bit numbers that always rise, and counts gaps.
#[derive(Debug, Default)]
pub struct FrameNumbers {
    /// The last frame's number: the driver's and visiond's.
    last: Option<(u32, u64)>,
    /// The number of the next frame, if the driver's number cannot be compared with the last one.
    next: Option<u64>,
}

impl FrameNumbers {
    /// Notes that the driver starts counting again with the next frame; visiond's numbers go on.
    pub fn restart(&mut self) {
        self.next = self.last.take().map(|(_, sequence)| sequence + 1).or(self.next);
    }

    /// Returns the number of the frame that has the driver's `number`, and how many frames were lost since the last one.
    ///
    /// A number that is not ahead of the last one (a driver that restarts at 0, or does not count) becomes the next number.
    pub fn number(&mut self, number: u32) -> (u64, u64) {
        let (sequence, missing) = match self.last {
            None => (self.next.take().unwrap_or(u64::from(number)), 0),
            Some((last, sequence)) => {
                let ahead = number.wrapping_sub(last);
                let is_ahead = ahead > 0 && ahead <= u32::MAX / 2;
                let step = if is_ahead { u64::from(ahead) } else { 1 };
                (sequence + step, step - 1)
            }
        };
        self.last = Some((number, sequence));
        (sequence, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(numbers: &[u32]) -> Vec<(u64, u64)> {
        let mut sequence = FrameNumbers::default();
        numbers.iter().map(|&number| sequence.number(number)).collect()
    }

    #[test]
    fn a_gap_is_what_never_came() {
        assert_eq!(places(&[0, 1, 4, 5]), [(0, 0), (1, 0), (4, 2), (5, 0)]);
    }

    #[test]
    fn numbers_go_on_where_the_drivers_wrap() {
        let top = u64::from(u32::MAX);
        assert_eq!(places(&[u32::MAX - 1, u32::MAX, 0, 2]), [(top - 1, 0), (top, 0), (top + 1, 0), (top + 3, 1)]);
    }

    #[test]
    fn numbers_go_on_over_a_restart_whatever_the_driver_begins_with() {
        let mut sequence = FrameNumbers::default();
        sequence.number(7);
        sequence.restart();
        sequence.restart();
        assert_eq!(sequence.number(100), (8, 0));
        assert_eq!(sequence.number(102), (10, 1));
    }

    #[test]
    fn thirty_days_of_numbers_that_wrap_restart_and_skip_are_counted_exactly() {
        let mut numbers = FrameNumbers::default();
        // Five frames a second; the driver's count wraps in the middle.
        let frames = 30 * 86_400 * 5_u32;
        let mut driver = u32::MAX - frames / 2;
        let (mut last, mut lost, mut skipped) = (None, 0, 0);
        for frame in 0..frames {
            let (sequence, missing) = numbers.number(driver);
            lost += missing;
            let expected = last.map_or(u64::from(driver), |last| last + 1 + missing);
            assert_eq!(sequence, expected);
            last = Some(sequence);
            // Twice a day the camera is unplugged, each hour three frames are lost.
            if frame % 216_000 == 215_999 {
                numbers.restart();
                driver = driver.wrapping_sub(1_000);
            } else if frame % 18_000 == 17_999 {
                driver = driver.wrapping_add(4);
                skipped += 3;
            } else {
                driver = driver.wrapping_add(1);
            }
        }
        assert_eq!(lost, skipped);
        assert_eq!(last, Some(u64::from(u32::MAX - frames / 2) + u64::from(frames) - 1 + skipped));
    }

    #[test]
    fn a_driver_that_starts_again_or_does_not_count_loses_nothing() {
        assert_eq!(places(&[7, 8, 0, 1]), [(7, 0), (8, 0), (9, 0), (10, 0)]);
        assert_eq!(places(&[0, 0, 0]), [(0, 0), (1, 0), (2, 0)]);
    }
}
