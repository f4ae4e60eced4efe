//! The preview's side of a camera's view: whether a person is watching, and where the frames go.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use visiond_frames::frame::Frame;
use visiond_message::Message;
use visiond_system::stop::{Stop, Wake};
use visiond_system::wake_pipe::WakePipe;

use crate::camera_view::{CameraView, PreviewPhase, PreviewStatus};

/// The maximum time between the capture of a preview frame and of the frame whose result is drawn on it.
///
/// The newest result is drawn, whose frame was captured a fraction of a second before. Waiting for the exact one would delay
/// every image by the model's latency and hold frames meanwhile, and people do not see the difference. The bound removes
/// boxes when the model's stream is down. It is this long because key frames, which may be all that the model sees, arrive
/// every 1 to 4 s.
const MAX_RESULT_AGE: Duration = Duration::from_secs(5);

/// Shows the frames of a preview to the people who watch its camera, until it is dropped.
#[derive(Debug)]
pub struct PreviewFeed {
    view: Arc<CameraView>,
    wake: Arc<WakePipe>,
    /// The size of the last frame, `None` unless the preview plays.
    size: Option<(u32, u32)>,
}

impl PreviewFeed {
    /// Attaches a preview to `view`.
    ///
    /// # Errors
    /// The process has run out of file descriptors.
    pub fn new(view: &Arc<CameraView>) -> io::Result<Self> {
        let wake = Arc::new(WakePipe::new()?);
        view.attach_preview(&wake);
        Ok(Self { view: Arc::clone(view), wake, size: None })
    }

    /// Waits until a person is watching; returns `false` if `stop` was raised first.
    pub fn wait_for_watcher(&self, stop: &Stop) -> bool {
        while self.view.close_unwatched_preview() {
            match stop.wait_readable(self.wake.reader.as_fd(), None) {
                Ok(Wake::Ready | Wake::TimedOut) => self.wake.clear(),
                Ok(Wake::Stopped) | Err(_) => return false,
            }
        }
        !stop.is_raised()
    }

    /// Whether a person is watching, or was in the last seconds.
    pub fn is_watched(&self) -> bool {
        self.view.is_preview_watched()
    }

    /// Shows people a frame if an image is due, with the newest result of a model; the encoder adds those of the others. `latest`
    /// returns the newest message of each model. Never waits for the encoder.
    pub fn offer(&mut self, frame: Frame, latest: impl FnOnce() -> Vec<Arc<Message>>) {
        self.view.put_off_fallback();
        let size = Some((frame.layout.width(), frame.layout.height()));
        if self.size != size {
            self.size = size;
            self.view.set_preview(PreviewStatus { phase: PreviewPhase::Streaming, size, reason: None });
        }
        if self.view.wants_preview() {
            let captured_ns = frame.timestamp.monotonic_ns;
            let near = latest().into_iter().filter(|message| is_near(captured_ns, message.monotonic_ns));
            self.view.offer_preview(frame, near.max_by_key(|message| message.sequence));
        }
    }

    /// Notes that the preview has failed: people see the model's frames.
    pub fn failed(&mut self, reason: &Arc<str>) {
        self.size = None;
        let reason = Some(Arc::clone(reason));
        self.view.set_preview(PreviewStatus { phase: PreviewPhase::Waiting, size: None, reason });
    }

    /// Notes that the preview was closed.
    pub fn closed(&mut self) {
        self.size = None;
    }
}

impl Drop for PreviewFeed {
    fn drop(&mut self) {
        self.view.detach_preview(&self.wake);
    }
}

/// Whether a result for a frame captured at `result_ns` is drawn on one captured at `captured_ns`.
fn is_near(captured_ns: u64, result_ns: u64) -> bool {
    captured_ns.abs_diff(result_ns) <= MAX_RESULT_AGE.as_nanos() as u64
}

#[cfg(test)]
mod tests;
