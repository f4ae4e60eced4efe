//! The time of a scene, which never goes back.

use std::time::Duration;

/// How much later than the next frame a frame may come.
const LATEST: Duration = Duration::from_secs(1);

/// Adds up the spans between frames.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    now: Duration,
    last: Option<Duration>,
}

impl Clock {
    /// Takes the time of a frame, and returns the scene's time and the span since the last frame.
    ///
    /// A frame up to a second before the last one is late, and counts as of the same time. A clock that was set back further continues from
    /// its new time: that span counts as none.
    pub(crate) fn advance(&mut self, at: Duration) -> (Duration, Duration) {
        let last = self.last.unwrap_or(at);
        let elapsed = at.saturating_sub(last);
        if at >= last || last - at >= LATEST {
            self.last = Some(at);
        }
        self.now = self.now.saturating_add(elapsed);
        (self.now, elapsed)
    }
}
