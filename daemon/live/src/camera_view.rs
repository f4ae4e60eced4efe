//! A camera's frame and pictures, between the lane, the encoder and the clients that watch.
//!
//! While a client waits for a picture and the next one is due, the lane keeps one frame past its run and leaves it here. The
//! encoder makes of it what clients watch: a picture with boxes, one without, or a copy of the frame. At most one frame per
//! camera is kept. Nothing is made for a client that does not take the pictures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use visiond_flow::clock::{Clock, SystemClock};
use visiond_flow::frame::Frame;
use visiond_flow::message::Message;
use visiond_kernels::buffer::{BufferError, UnifiedBuffer};
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};

use crate::encoder_queue::EncoderQueue;

/// A client that comes back for the next picture does not get one that is older than this.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The value of `due_ns` while no frame is wanted.
const NEVER: u64 = u64::MAX;

/// Sends the newest picture of one kind to the clients that watch it.
type Newest = watch::Sender<Option<Arc<Picture>>>;

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The camera gave no frame.
    #[error("camera {camera} gave no frame within {seconds} s: see its state in /api/v1/cameras/{camera} and the log")]
    NoFrame {
        /// The camera's name.
        camera: Arc<str>,
        /// How long the client waited, in seconds.
        seconds: u64,
    },
    /// The daemon is ending, or could not start a thread for the encoder.
    #[error("camera {camera}: cannot make a picture: the daemon is ending, or the system has no thread left")]
    NoEncoder {
        /// The camera's name.
        camera: Arc<str>,
    },
}

/// One camera, as clients can watch it.
#[derive(Debug)]
pub struct CameraView {
    /// The camera's name.
    pub name: Arc<str>,
    queue: Arc<EncoderQueue<Self>>,
    /// When the lane is to leave a frame here, in nanoseconds on CLOCK_MONOTONIC; [`NEVER`] if no frame is wanted.
    due_ns: AtomicU64,
    state: Mutex<ViewState>,
    plain: Newest,
    overlay: Newest,
}

#[derive(Debug, Default)]
struct ViewState {
    waiting: Option<(Arc<Frame>, Arc<Message>)>,
    /// Whether a frame waits here or is being encoded.
    busy: bool,
    /// When the next picture may be made, in nanoseconds on CLOCK_MONOTONIC.
    next_ns: u64,
    /// How many clients have seen the newest picture and wait for the next.
    waiting_clients: usize,
    /// Clients that want a copy of the next frame.
    copies: Vec<SyncSender<OwnedFrame>>,
}

impl CameraView {
    /// Creates a view without clients.
    pub(crate) fn new(camera: &str, queue: &Arc<EncoderQueue<Self>>) -> Self {
        Self {
            name: camera.into(),
            queue: Arc::clone(queue),
            due_ns: AtomicU64::new(NEVER),
            state: Mutex::default(),
            plain: Newest::default(),
            overlay: Newest::default(),
        }
    }

    /// Whether the lane is to leave a frame here. The lane asks when a run has begun; one relaxed load if no client watches.
    pub fn wanted(&self) -> bool {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        due_ns != NEVER && SystemClock.monotonic_ns() >= due_ns
    }

    /// Leaves a frame with its message here.
    ///
    /// Never waits. A frame that is not wanted is dropped, and so is one that comes while the encoder or a client holds a
    /// lock; the next frame is then wanted instead.
    pub fn offer(self: &Arc<Self>, frame: &Arc<Frame>, message: &Arc<Message>) {
        if !self.wanted() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        // The encoder may come for the frame at once; it then waits for this lock until the frame is there.
        if state.busy || !self.queue.try_push(self) {
            return;
        }
        state.next_ns = next_due_ns(state.next_ns, SystemClock.monotonic_ns(), self.queue.interval_ns());
        state.busy = true;
        state.waiting = Some((Arc::clone(frame), Arc::clone(message)));
        self.due_ns.store(NEVER, Ordering::Relaxed);
    }

    /// Returns how many clients watch now.
    pub fn watchers(&self) -> usize {
        self.plain.receiver_count() + self.overlay.receiver_count()
    }

    /// Waits for a copy of the next frame, without regard to the limit of pictures per second; `None` if none came in time.
    pub fn frame(&self, timeout: Duration) -> Option<OwnedFrame> {
        if !self.queue.ensure_threads() {
            return None;
        }
        let (send, copy) = sync_channel(1);
        let mut state = self.state.lock();
        state.copies.push(send);
        state.next_ns = 0;
        self.request_frame(&state);
        drop(state);
        copy.recv_timeout(timeout).ok()
    }

    /// Waits for the next picture, with boxes or without.
    pub async fn jpeg(self: &Arc<Self>, overlay: bool, timeout: Duration) -> Result<Arc<Picture>, ViewError> {
        let mut watch = self.watch(overlay)?;
        let no_frame = || ViewError::NoFrame { camera: Arc::clone(&self.name), seconds: timeout.as_secs() };
        tokio::time::timeout(timeout, watch.next()).await.ok().flatten().ok_or_else(no_frame)
    }

    /// Returns the pictures from the next one on, with boxes or without.
    pub fn watch(self: &Arc<Self>, overlay: bool) -> Result<Watch, ViewError> {
        if !self.queue.ensure_threads() {
            return Err(ViewError::NoEncoder { camera: Arc::clone(&self.name) });
        }
        let pictures = self.newest(overlay).subscribe();
        self.request_frame(&self.state.lock());
        Ok(Watch { pictures, view: Arc::clone(self) })
    }

    fn newest(&self, overlay: bool) -> &Newest {
        if overlay { &self.overlay } else { &self.plain }
    }

    /// Makes the lane leave a frame here as soon as the next picture may be made.
    fn request_frame(&self, state: &ViewState) {
        if !state.busy {
            self.due_ns.store(state.next_ns, Ordering::Relaxed);
        }
    }

    /// Takes the frame that waits, and what clients want of it.
    pub(crate) fn take(&self) -> Option<TakenFrame> {
        let mut state = self.state.lock();
        let (frame, message) = state.waiting.take()?;
        let copies = std::mem::take(&mut state.copies);
        let watched = |newest: &Newest| newest.receiver_count() > 0;
        Some(TakenFrame { frame, message, copies, plain: watched(&self.plain), overlay: watched(&self.overlay) })
    }

    /// Sends a picture to the clients.
    pub(crate) fn show(&self, overlay: bool, picture: Picture) {
        self.newest(overlay).send_replace(Some(Arc::new(picture)));
    }

    /// Ends the work on the frame that was taken: requests the next frame if a client waits for it.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock();
        state.busy = false;
        if state.waiting_clients > 0 || !state.copies.is_empty() {
            self.request_frame(&state);
        }
        self.forget_unwatched(&state);
    }

    /// Drops the newest pictures if no client watches. Called under the lock, so that the later one of the last client and the
    /// encoder does it.
    fn forget_unwatched(&self, state: &ViewState) {
        if !state.busy && self.watchers() == 0 {
            self.plain.send_replace(None);
            self.overlay.send_replace(None);
        }
    }

    /// Gives the waiting frame back, and wants no more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        self.due_ns.store(NEVER, Ordering::Relaxed);
        state.busy = true;
        let waiting = state.waiting.take();
        state.copies.clear();
        drop(state);
        drop(waiting);
    }
}

/// A camera's pictures, one after the other; a client that is too slow misses some.
#[derive(Debug)]
pub struct Watch {
    pictures: watch::Receiver<Option<Arc<Picture>>>,
    view: Arc<CameraView>,
}

impl Watch {
    /// Waits for the next picture; `None` if no more will come.
    pub async fn next(&mut self) -> Option<Arc<Picture>> {
        loop {
            if !self.pictures.has_changed().ok()? {
                let _waiting = WaitingClient::new(&self.view);
                self.pictures.changed().await.ok()?;
            }
            let picture = self.pictures.borrow_and_update().clone();
            if picture.as_ref().is_some_and(|picture| picture.made.elapsed() < MAX_AGE) {
                return picture;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Replaced by another receiver, so that the view no longer counts it.
        self.pictures = watch::channel(None).1;
        self.view.forget_unwatched(&self.view.state.lock());
    }
}

/// Counts a client as waiting for the next picture until this is dropped.
struct WaitingClient<'v>(&'v CameraView);

impl<'v> WaitingClient<'v> {
    fn new(view: &'v CameraView) -> Self {
        let mut state = view.state.lock();
        state.waiting_clients += 1;
        view.request_frame(&state);
        Self(view)
    }
}

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting_clients -= 1;
    }
}

/// Returns when the next picture is due if the one that was due at `due_ns` is made now.
///
/// It keeps in step with the interval as long as frames come, so that their jitter costs no pictures.
fn next_due_ns(due_ns: u64, now_ns: u64, interval_ns: u64) -> u64 {
    let in_step = now_ns.saturating_sub(due_ns) < interval_ns;
    (if in_step { due_ns } else { now_ns }) + interval_ns
}

/// A picture of a camera, as JPEG.
#[derive(Debug)]
pub struct Picture {
    /// The JPEG file.
    pub jpeg: Bytes,
    /// The frame's sequence number, the same as in its message.
    pub sequence: u64,
    /// When the picture was encoded.
    pub made: Instant,
}

/// A copy of a frame in memory of its own.
#[derive(Debug)]
pub struct OwnedFrame {
    /// Size, pixel format and planes.
    pub layout: FrameLayout,
    /// The bytes of the planes.
    pub buffer: UnifiedBuffer,
}

impl OwnedFrame {
    /// Copies a frame's bytes.
    pub fn copy_of(layout: FrameLayout, bytes: &[u8]) -> Result<Self, BufferError> {
        let needed = layout.needed_bytes().min(bytes.len());
        let mut buffer = UnifiedBuffer::host(needed)?;
        buffer.as_mut_slice().copy_from_slice(&bytes[..needed]);
        Ok(Self { layout, buffer })
    }

    /// Returns the pixels.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        self.layout.view_of(&self.buffer)
    }
}

/// A frame that the encoder took out of a view.
pub(crate) struct TakenFrame {
    pub frame: Arc<Frame>,
    pub message: Arc<Message>,
    pub copies: Vec<SyncSender<OwnedFrame>>,
    /// Whether a client watches without boxes.
    pub plain: bool,
    /// Whether a client watches with boxes.
    pub overlay: bool,
}

#[cfg(test)]
mod tests;
