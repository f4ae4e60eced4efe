//! Pictures of a camera's second stream for the clients that watch it, with the boxes of its first one.
//!
//! The stream is open only while somebody watches, and until it gives frames the clients see the model's.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use visiond_capture::source::{Next, Open, SourceError};
use visiond_flow::message::Message;
use visiond_live::{CameraView, Live};
use visiond_system::backoff::Backoff;
use visiond_system::stop::Stop;

/// How often a preview that is closed looks for clients, which is all that it costs then.
const LOOK: Duration = Duration::from_millis(250);

/// How long the stream stays open without clients: a page that is loaded again opens no other session.
const LINGER: Duration = Duration::from_secs(5);

/// Boxes that were captured so long before or after a frame are not drawn on it. Both streams come from one camera, so the newest ones
/// are usually one run of the model off.
const MAX_BOX_DISTANCE: Duration = Duration::from_secs(2);

/// The pauses between attempts to open a stream.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The preview of one camera, on a thread of its own.
pub struct Preview {
    view: Arc<CameraView>,
    live: Arc<Live>,
    open: Open,
    stop: Stop,
    /// The error that was logged last.
    last_error: Option<Arc<str>>,
}

impl Preview {
    /// Starts the thread, which ends with `stop`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(view: Arc<CameraView>, live: Arc<Live>, open: Open, stop: Stop) -> io::Result<JoinHandle<()>> {
        let mut preview = Self { view, live, open, stop, last_error: None };
        thread::Builder::new().name(format!("preview {}", preview.view.name)).spawn(move || preview.run())
    }

    fn run(&mut self) {
        let mut backoff = Backoff::new(PAUSES[0], PAUSES[1]);
        loop {
            while self.view.watchers() == 0 {
                if self.stop.sleep(LOOK) {
                    return;
                }
            }
            let played = self.play(&mut backoff);
            self.view.end_preview();
            match played {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(error) => {
                    self.log(&error);
                    if self.stop.sleep(backoff.pause()) {
                        return;
                    }
                }
            }
        }
    }

    /// Plays the stream until nobody watches, or the camera ends, which breaks.
    fn play(&mut self, backoff: &mut Backoff) -> Result<ControlFlow<()>, SourceError> {
        let mut source = self.open.open()?;
        let mut watched = Instant::now();
        let mut has_frames = false;
        loop {
            match source.next(&self.stop)? {
                Next::Frame(frame) => {
                    if !has_frames {
                        log::debug!("camera {}: preview: {}", self.view.name, source.describe());
                        (has_frames, self.last_error) = (true, None);
                        backoff.reset();
                    }
                    if self.view.watchers() > 0 {
                        watched = Instant::now();
                        // Without a result there is nothing to draw, and clients see the first one with its own frame.
                        if let Some(newest) = self.live.messages().latest(&self.view.name) {
                            let message = near(newest.message(), frame.timestamp.monotonic_ns);
                            self.view.offer_preview(&Arc::new(frame), &message);
                        }
                    } else if watched.elapsed() >= LINGER {
                        return Ok(ControlFlow::Continue(()));
                    }
                }
                Next::Lost { .. } | Next::Waiting { .. } => {}
                Next::End => return Err(SourceError::transient("the stream has ended")),
                Next::Stopped => return Ok(ControlFlow::Break(())),
            }
        }
    }

    /// Logs an error once, until the stream has frames again.
    fn log(&mut self, error: &SourceError) {
        if self.last_error.as_ref() != Some(&error.message) {
            log::warn!("camera {}: no preview, live pictures are the model's frames: {error}", self.view.name);
            self.last_error = Some(Arc::clone(&error.message));
        }
    }
}

/// Returns the message, without detections if they are far from a frame that was captured at `monotonic_ns`.
fn near(message: &Arc<Message>, monotonic_ns: u64) -> Arc<Message> {
    if Duration::from_nanos(message.monotonic_ns.abs_diff(monotonic_ns)) <= MAX_BOX_DISTANCE {
        return Arc::clone(message);
    }
    Arc::new(Message { detections: Vec::new(), ..Message::clone(message) })
}
