//! Predicts how long the video engine takes for a picture. NVIDIA's library waits for it in short sleeps, each of which costs as
//! much CPU time as one sleep of the right length.

use std::time::{Duration, Instant};

/// The longest sleep: an engine that was delayed once is usually not delayed again.
const LONGEST: Duration = Duration::from_millis(10);

/// The usual time, learned from the pictures so far.
#[derive(Debug, Default)]
pub(super) struct DecodeTime(Duration);

impl DecodeTime {
    /// Returns when the picture that the engine received at `given` is probably ready.
    pub(super) fn due(&self, given: Instant) -> Instant {
        given + self.0
    }

    /// Notes that the picture was ready when it was due. The next is due a little sooner, because the engine may have become
    /// faster.
    pub(super) fn was_ready(&mut self) {
        self.0 -= self.0 / 32;
    }

    /// Notes that it was not ready, and how long the engine took in total.
    pub(super) fn was_early(&mut self, took: Duration) {
        self.0 += took.min(LONGEST).saturating_sub(self.0) / 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a thread would sleep that has just passed a picture to the engine.
    fn sleep(time: &DecodeTime) -> Duration {
        let now = Instant::now();
        time.due(now) - now
    }

    /// The behaviour of a thread for pictures that take this long: sleep, check, and measure how long they took.
    fn show(time: &mut DecodeTime, took: Duration) {
        if sleep(time) >= took {
            time.was_ready();
        } else {
            time.was_early(took);
        }
    }

    #[test]
    fn it_comes_close_to_the_engines_time_and_follows_it() {
        let (mut time, ms) = (DecodeTime::default(), Duration::from_millis);
        assert_eq!(sleep(&time), Duration::ZERO, "nothing is known yet");
        for took in [ms(2), ms(5), ms(1)] {
            (0..200).for_each(|_| show(&mut time, took));
            for _ in 0..100 {
                show(&mut time, took);
                let sleep = sleep(&time);
                assert!(sleep > took * 9 / 10 && sleep < took * 11 / 10, "{sleep:?} for {took:?}");
            }
        }
    }

    #[test]
    fn an_engine_that_was_held_up_is_not_waited_for_in_vain() {
        let mut time = DecodeTime::default();
        (0..1000).for_each(|_| time.was_early(Duration::from_secs(9)));
        assert!(sleep(&time) <= LONGEST);
        (0..1000).for_each(|_| time.was_ready());
        assert!(sleep(&time) < Duration::from_micros(1));
    }
}
