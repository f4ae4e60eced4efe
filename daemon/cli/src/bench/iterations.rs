//! How long a benchmark measures.

use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Iterations {
    /// So many frames, unless a time is given.
    pub frames: u64,
    /// Before them, unmeasured.
    pub warmup: u64,
    pub duration: Option<Duration>,
}

impl Iterations {
    /// A part of the time, for one of several measurements.
    pub fn part(&self, parts: u32) -> Self {
        Self { duration: self.duration.map(|duration| duration / parts), ..*self }
    }

    /// Whether there is more to measure, after `count` since `began`.
    pub fn goes_on(&self, count: u64, began: Instant) -> bool {
        match self.duration {
            Some(duration) => count == 0 || began.elapsed() < duration,
            None => count < self.frames,
        }
    }
}
