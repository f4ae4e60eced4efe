//! When to retry a rejected recording of a CUDA graph: CUDA rejects it while another thread creates a video decoder.

/// How many attempts in a row may fail. Then the model cannot be recorded.
const MOST_REFUSALS: u32 = 8;

/// The runs without a graph from the first failure to the next attempt. The number doubles after each further failure.
const FIRST_PAUSE: u32 = 16;

/// Counts a model's attempts.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Failures in a row.
    refusals: u32,
    /// Runs without a graph until the next attempt.
    pause: u32,
}

impl Recording {
    /// Whether a graph is recorded after this run, which had none.
    pub(super) fn is_due(&mut self) -> bool {
        if self.refusals == MOST_REFUSALS {
            return false;
        }
        let is_due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_due
    }

    pub(super) fn has_worked(&mut self) {
        *self = Self::default();
    }

    /// Returns the runs without a graph until the next attempt; `None` if there is none.
    pub(super) fn was_refused(&mut self) -> Option<u32> {
        self.pause = FIRST_PAUSE << self.refusals;
        self.refusals += 1;
        (self.refusals < MOST_REFUSALS).then_some(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the runs before the next attempt.
    fn runs_to_the_next_try(recording: &mut Recording) -> usize {
        (0..100_000).take_while(|_| !recording.is_due()).count()
    }

    #[test]
    fn a_refused_recording_is_tried_again_ever_later_and_then_no_more() {
        let mut recording = Recording::default();
        assert_eq!(runs_to_the_next_try(&mut recording), 0);
        for wanted in [16, 32, 64, 128, 256, 512, 1024] {
            assert_eq!(recording.was_refused(), Some(wanted));
            assert_eq!(runs_to_the_next_try(&mut recording), wanted as usize);
        }
        assert_eq!(recording.was_refused(), None);
        assert_eq!(runs_to_the_next_try(&mut recording), 100_000);
    }

    #[test]
    fn what_was_recorded_forgives_refusals() {
        let mut recording = Recording::default();
        assert_eq!(recording.was_refused(), Some(16));
        recording.has_worked();
        assert_eq!(runs_to_the_next_try(&mut recording), 0);
        assert_eq!(recording.was_refused(), Some(16));
    }
}
