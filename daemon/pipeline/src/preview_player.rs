//! A preview's thread: plays the camera's other stream while a person is watching, and shows its frames.
//!
//! ```text
//!          a person watches           first frame
//! Idle ---------------------> Opening -----------> Streaming
//!   ^                            ^  |                  |
//!   |                            |  +---> Waiting <----+ the stream fails: people get the model's frames
//!   |      pause over, a person  |           |
//!   +----- watches no more ------+-----------+   a pause of 0.25 s, doubling to 5 s
//! ```
//! It is independent of the camera's lane: it takes no frame from it, and the lane never waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use visiond_capture::source::{Next, Open, SourceError};
use visiond_frames::clock::Clock;
use visiond_live::{Live, PreviewFeed};
use visiond_system::backoff::Backoff;
use visiond_system::logging::{self, Subject};
use visiond_system::stop::Stop;

use crate::camera::RetryPolicy;
use crate::lane::{NeedsRestart, end_for_restart};

/// A preview's thread, before it runs.
pub struct PreviewPlayer {
    /// The camera's name.
    pub camera: Arc<str>,
    /// Opens the stream.
    pub open: Open,
    /// Where the frames go.
    pub feed: PreviewFeed,
    /// Holds the newest result of each of the camera's models.
    pub live: Arc<Live>,
    /// When to reopen a stream that failed.
    pub retry_policy: RetryPolicy,
    /// The clock for how long the stream played.
    pub clock: Arc<dyn Clock>,
    /// Ends the thread.
    pub stop: Stop,
    /// Ends the daemon.
    pub end: Stop,
    /// Set when only a new process can continue.
    pub needs_restart: NeedsRestart,
}

impl PreviewPlayer {
    /// Plays the stream whenever a person is watching, until stop is raised.
    pub fn run(mut self) {
        logging::about(Subject::Camera, Arc::clone(&self.camera));
        let mut backoff = Backoff::new(self.retry_policy.first, self.retry_policy.limit);
        // The last error that was logged, and when; `None` once the stream plays.
        let mut logged: Option<(Arc<str>, u64)> = None;
        while self.feed.wait_for_watcher(&self.stop) {
            let begun_ns = self.clock.monotonic_ns();
            // A panic drops the source; the feed holds whole values at every call.
            let played = catch_unwind(AssertUnwindSafe(|| self.play(&mut logged)));
            let error = match played {
                Ok(Ok(())) => {
                    backoff.reset();
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => SourceError::transient("its thread panicked, see above"),
            };
            if self.stop.is_raised() {
                return;
            }
            if let Some(exit) = error.restart() {
                let who = format!("camera {}, preview", self.camera);
                end_for_restart(&self.needs_restart, &self.end, &who, exit, error);
                return;
            }
            self.feed.failed(&error.message);
            if self.elapsed(begun_ns) >= self.retry_policy.stable {
                backoff.reset();
            }
            let pause = if error.may_pass() { backoff.pause() } else { self.retry_policy.failed };
            self.log_error(&error, pause, &mut logged);
            if self.stop.sleep(pause) {
                return;
            }
        }
    }

    /// Plays the stream until the last person stops watching or stop is raised.
    fn play(&mut self, logged: &mut Option<(Arc<str>, u64)>) -> Result<(), SourceError> {
        let mut source = self.open.open()?;
        let mut plays = false;
        loop {
            let next = source.next(&self.stop)?;
            if self.stop.is_raised() {
                return Ok(());
            }
            match next {
                Next::Frame(frame) => {
                    if !std::mem::replace(&mut plays, true) {
                        *logged = None;
                        log::info!("camera {}, preview: {}", self.camera, source.describe());
                    }
                    let (live, camera) = (&self.live, &self.camera);
                    self.feed.offer(frame, || {
                        let newest = live.messages().latest_of(camera).into_iter();
                        newest.filter_map(|published| published.frame().cloned()).collect()
                    });
                }
                Next::Lost { .. } => {}
                Next::Waiting { reason } => return Err(SourceError::transient(reason)),
                Next::End => return Err(SourceError::transient("the stream ended; check `preview_url`")),
                Next::Stopped => return Ok(()),
            }
            if !self.feed.is_watched() {
                self.feed.closed();
                log::info!("camera {}, preview: closed, because no client watches", self.camera);
                return Ok(());
            }
        }
    }

    /// Logs an error; an unchanged one only at intervals.
    fn log_error(&self, error: &SourceError, pause: Duration, logged: &mut Option<(Arc<str>, u64)>) {
        let (camera, seconds) = (&self.camera, pause.as_secs_f64());
        let repeats = logged.as_ref().is_some_and(|(message, when_ns)| {
            *message == error.message && self.elapsed(*when_ns) < self.retry_policy.repeat_log
        });
        if repeats {
            log::debug!("camera {camera}, preview: still: {error}; trying again in {seconds:.1} s");
            return;
        }
        *logged = Some((Arc::clone(&error.message), self.clock.monotonic_ns()));
        log::warn!(
            "camera {camera}, preview: {error}; the live page shows the model's frames; trying again in {seconds:.1} s"
        );
    }

    fn elapsed(&self, since_ns: u64) -> Duration {
        Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(since_ns))
    }
}

#[cfg(test)]
mod tests;
