//! When the samples of a clip are decoded and shown.

use std::num::NonZeroU32;
use std::time::Duration;

use visiond_frames::coded_ring::{CodedFrame, ticks};

/// When a frame is shown: by its stream's clock, and by its capture.
#[derive(Debug, Clone, Copy)]
pub struct FrameTime {
    /// See [`CodedFrame::presentation`].
    pub presentation: i64,
    /// See [`CodedFrame::time`].
    pub time: Duration,
}

/// The times of the samples of a clip, in decoding order.
#[derive(Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Ticks per second.
    pub rate_hz: NonZeroU32,
    /// How long after a sample the next one is decoded, and how much later than it is decoded it is shown, which may be less than 0.
    pub samples: Vec<(u32, i64)>,
}

impl Timeline {
    /// Finds the times of samples whose stream has a clock of `rate_hz`.
    ///
    /// A stream says when frames are shown. They are decoded at the same instants, in another order if there are B-frames. Some cameras
    /// give all frames the same time, or jump by hours: then the times of their capture count.
    pub fn new(frames: &[FrameTime], rate_hz: u32) -> Self {
        let streamed = Self::of(frames.iter().map(|frame| frame.presentation).collect(), rate_hz);
        let captured = Self::of(frames.iter().map(|frame| ticks(frame.time)).collect(), CodedFrame::RATE_HZ);
        let (by_stream, by_capture) = (streamed.seconds(), captured.seconds());
        let is_slow = by_stream * 4.0 + 1.0 < by_capture;
        let is_fast = by_stream > by_capture * 4.0 + 5.0;
        if is_slow || is_fast { captured } else { streamed }
    }

    fn of(shown: Vec<i64>, rate_hz: u32) -> Self {
        let rate_hz = NonZeroU32::new(rate_hz).unwrap_or(NonZeroU32::MIN);
        let mut decoded = shown.clone();
        decoded.sort_unstable();
        // No two at once.
        for at in 1..decoded.len() {
            decoded[at] = decoded[at].max(decoded[at - 1].saturating_add(1));
        }
        let mut durations: Vec<_> = decoded.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        // The last one is shown for as long as the others on average; a single one, for a second.
        let total: i64 = durations.iter().fold(0, |total, duration| total.saturating_add(*duration));
        let last = total.checked_div(durations.len() as i64).unwrap_or_else(|| i64::from(rate_hz.get()));
        durations.push(last.max(1));
        let samples = durations.into_iter().zip(shown.iter().zip(&decoded)).map(|(duration, (shown, decoded))| {
            (u32::try_from(duration).unwrap_or(u32::MAX), shown.saturating_sub(*decoded))
        });
        Self { rate_hz, samples: samples.collect() }
    }

    /// Returns how long it is.
    fn seconds(&self) -> f64 {
        self.samples.iter().map(|(duration, _)| f64::from(*duration)).sum::<f64>() / f64::from(self.rate_hz.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of 25 per second with these times by the stream's clock.
    fn frames(presentations: &[i64]) -> Vec<FrameTime> {
        let frame = |(n, presentation): (usize, &i64)| FrameTime {
            presentation: *presentation,
            time: Duration::from_millis(7_000 + 40 * n as u64),
        };
        presentations.iter().enumerate().map(frame).collect()
    }

    #[test]
    fn frames_are_decoded_one_after_the_other_and_shown_when_the_stream_says() {
        let timeline = Timeline::new(&frames(&[900, 4500, 8100, 15_300]), 90_000);
        assert_eq!(timeline.samples, [(3600, 0), (3600, 0), (7200, 0), (4800, 0)]);
        assert_eq!(timeline.rate_hz.get(), 90_000);
    }

    #[test]
    fn b_frames_are_shown_earlier_than_they_are_decoded() {
        // I P B B P, shown as I B B P P.
        let timeline = Timeline::new(&frames(&[0, 3, 1, 2, 4].map(|n| n * 3600)), 90_000);
        assert_eq!(timeline.samples, [(3600, 0), (3600, 7200), (3600, -3600), (3600, -3600), (3600, 0)]);
    }

    #[test]
    fn times_that_cannot_be_are_those_of_the_capture() {
        let stands: Vec<_> = (0..50).collect();
        let jumps: Vec<_> = (0..50).map(|n| if n < 25 { n * 3600 } else { n * 3600 + 1_000_000_000 }).collect();
        for presentations in [stands, jumps] {
            let timeline = Timeline::new(&frames(&presentations), 90_000);
            assert!(timeline.samples.iter().all(|sample| *sample == (3600, 0)), "{timeline:?}");
        }
        // Frames that come in a burst keep the times of their stream.
        let burst: Vec<_> =
            (0..50).map(|n| FrameTime { presentation: n * 3600, time: Duration::from_secs(1) }).collect();
        assert!(Timeline::new(&burst, 90_000).samples.iter().all(|sample| *sample == (3600, 0)));
    }

    #[test]
    fn one_frame_is_shown_for_a_second_and_no_frames_for_none() {
        assert_eq!(Timeline::new(&frames(&[5]), 90_000).samples, [(90_000, 0)]);
        assert!(Timeline::new(&frames(&[i64::MIN, i64::MAX]), 0).samples.len() == 2);
    }
}
