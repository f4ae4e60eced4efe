//! Chooses the frames to process, by `max_fps` and `every`.

/// Takes every n-th frame, and of these at most so many a second, evenly spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameRate {
    /// Nanoseconds from one frame to the next; 0 for every frame.
    interval_ns: u64,
    /// When the next frame is due; `None` before the first.
    due_ns: Option<u64>,
    /// How many frames are skipped after each that is taken because of `every`.
    skips: u64,
    /// How many of these are still to come.
    left: u64,
}

impl FrameRate {
    /// Takes up to `max_fps` frames a second; every frame if that is `None`.
    pub fn limited_to(max_fps: Option<f64>) -> Self {
        // A float converts to the nearest representable integer.
        Self { interval_ns: max_fps.map_or(0, |fps| (1e9 / fps) as u64), due_ns: None, skips: 0, left: 0 }
    }

    /// Takes only every n-th frame, the first one first.
    pub fn every(self, n: u64) -> Self {
        Self { skips: n.saturating_sub(1), ..self }
    }

    /// Whether to process a frame that was captured at `at_ns` on CLOCK_MONOTONIC.
    ///
    /// A frame may come half an interval early, so that a camera whose rate equals the limit loses nothing to jitter. If the
    /// times go back, as after reopening the camera, the next frame is taken at once.
    pub fn takes(&mut self, at_ns: u64) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.left = self.skips;
        let interval_ns = self.interval_ns;
        let due_ns = self.due_ns.filter(|due_ns| at_ns.saturating_add(2 * interval_ns) >= *due_ns);
        if due_ns.is_some_and(|due_ns| at_ns.saturating_add(interval_ns / 2) < due_ns) {
            return false;
        }
        // A frame that is a little late does not delay the next ones. After a pause, intervals count from this frame.
        let begins = due_ns.filter(|due_ns| at_ns < due_ns.saturating_add(interval_ns)).unwrap_or(at_ns);
        self.due_ns = Some(begins.saturating_add(interval_ns));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many frames of a camera at `fps` are processed in ten seconds.
    fn taken(max_fps: Option<f64>, fps: u64, jitter_ns: u64) -> usize {
        let mut rate = FrameRate::limited_to(max_fps);
        let at = |frame: u64| 5_000_000_000 + frame * 1_000_000_000 / fps + (frame * 7919 % 5) * jitter_ns / 4;
        (0..10 * fps).filter(|frame| rate.takes(at(*frame))).count()
    }

    #[test]
    fn at_most_so_many_frames_a_second_are_looked_at() {
        assert_eq!(taken(None, 30, 0), 300);
        assert_eq!(taken(Some(30.0), 30, 0), 300);
        assert_eq!(taken(Some(30.0), 30, 8_000_000), 300, "jitter of a quarter of an interval");
        assert_eq!(taken(Some(60.0), 30, 0), 300);
        // One more, because the second may come half an interval early.
        for (max_fps, fps, jitter_ns) in
            [(0.1, 25, 0), (1.0, 25, 10_000_000), (10.0, 30, 0), (7.0, 30, 0), (20.0, 30, 0), (29.0, 30, 0)]
        {
            let (taken, most) = (taken(Some(max_fps), fps, jitter_ns) as f64, 10.0 * max_fps);
            assert!((most..=most + 1.0).contains(&taken), "{taken} of {most}");
        }
    }

    #[test]
    fn of_every_third_frame_at_most_so_many_a_second_are_looked_at() {
        let taken = |max_fps: Option<f64>| {
            let mut rate = FrameRate::limited_to(max_fps).every(3);
            (0..30_u64).filter(|frame| rate.takes(frame * 100_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(taken(None), [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
        assert_eq!(taken(Some(2.0)), [0, 3, 9, 15, 18, 24], "two a second");
        let mut all = FrameRate::limited_to(None).every(1);
        assert!((0..5).all(|frame| all.takes(frame)));
    }

    #[test]
    fn a_pause_brings_no_burst_and_times_that_go_back_begin_anew() {
        let mut rate = FrameRate::limited_to(Some(1.0));
        let mut takes = |seconds: f64| rate.takes((seconds * 1e9) as u64);
        assert!(takes(100.0) && !takes(100.2) && takes(101.0));
        assert!(takes(200.0) && !takes(200.3) && takes(201.0), "after a pause");
        assert!(takes(50.0) && !takes(50.4) && takes(51.0), "another clock");
    }
}
