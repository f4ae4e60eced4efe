//! How long a benchmark measures.

use std::time::{Duration, Instant};

/// How many frames or how long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Iterations {
    /// Number of frames, if there is no duration.
    pub frames: u64,
    /// Number of frames before measuring.
    pub warmup: u64,
    pub duration: Option<Duration>,
}

impl Iterations {
    /// Returns the share of one of `parts` measurements, which divide the duration among them.
    pub fn part(&self, parts: u32) -> Self {
        Self { duration: self.duration.map(|duration| duration / parts), ..*self }
    }

    /// Returns whether to continue after `count` frames since `began`.
    pub fn goes_on(&self, count: u64, began: Instant) -> bool {
        match self.duration {
            Some(duration) => count == 0 || began.elapsed() < duration,
            None => count < self.frames,
        }
    }
}
