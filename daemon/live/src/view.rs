//! A camera's pictures for whoever watches.
//!
//! While somebody waits for one, and the next picture is due, the lane keeps one frame past its run and leaves it here; the
//! encoder makes of it what is watched: with boxes drawn, without, or a copy of the frame. One frame a camera at most is
//! kept. For a watcher that does not take what was made, nothing is made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use visiond_flow::clock::{Clock, SystemClock};
use visiond_flow::frame::Frame;
use visiond_flow::message::Message;
use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};

use super::encoder::Encoder;
use super::{lock, try_lock};

/// A picture older than this is no news to a watcher that comes back for the next.
const NEWS: Duration = Duration::from_secs(1);
/// No frame is wanted.
const NEVER: u64 = u64::MAX;

/// There is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The camera gave no frame.
    #[error(
        "camera {camera} gave no frame within {seconds} s: its state is in /api/v1/cameras/{camera} and in the log"
    )]
    NoFrame {
        /// The camera.
        camera: Arc<str>,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The daemon is about to end, or has no thread for the encoder.
    #[error("camera {camera}: no picture is made, because the daemon is ending or the system gives it no thread")]
    NoEncoder {
        /// The camera.
        camera: Arc<str>,
    },
}

/// A picture of a camera, as JPEG.
#[derive(Debug)]
pub struct Picture {
    /// The file.
    pub jpeg: Bytes,
    /// The frame's number, as its message has it.
    pub sequence: u64,
    /// When it was made.
    pub made: Instant,
}

/// A frame's copy in memory of its own.
#[derive(Debug)]
pub struct OwnedFrame {
    /// What the bytes mean.
    pub layout: FrameLayout,
    /// The bytes.
    pub buffer: UnifiedBuffer,
}

impl OwnedFrame {
    /// The pixels.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        self.layout.view_of(&self.buffer)
    }
}

/// The newest picture of one kind, to whoever watches it.
type Newest = watch::Sender<Option<Arc<Picture>>>;

/// One camera, as it can be watched.
#[derive(Debug)]
pub struct CameraView {
    /// The camera's name.
    pub name: Arc<str>,
    encoder: Arc<Encoder>,
    /// From when on the lane is to leave a frame here, on CLOCK_MONOTONIC; [`NEVER`].
    due_ns: AtomicU64,
    state: Mutex<State>,
    plain: Newest,
    overlay: Newest,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<(Arc<Frame>, Arc<Message>)>,
    /// A frame waits here or is being encoded.
    in_hand: bool,
    /// When the next picture may be made.
    next_ns: u64,
    /// Watchers that have taken what there was, and wait.
    waiting_watchers: usize,
    /// Who wants a copy of the next frame.
    copies: Vec<SyncSender<OwnedFrame>>,
}

impl CameraView {
    /// A view that nobody watches.
    pub(super) fn new(camera: &str, encoder: &Arc<Encoder>) -> Self {
        Self {
            name: camera.into(),
            encoder: Arc::clone(encoder),
            due_ns: AtomicU64::new(NEVER),
            state: Mutex::default(),
            plain: Newest::default(),
            overlay: Newest::default(),
        }
    }

    /// Whether a frame is to be left here: asked by the lane when a run has begun. One relaxed load while nobody watches.
    pub fn wanted(&self) -> bool {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        due_ns != NEVER && SystemClock.monotonic_ns() >= due_ns
    }

    /// Leaves a frame with what was seen in it. Never waits; a frame that is not wanted, or that comes while the encoder or a
    /// watcher is at the locks, is let go, and the next is wanted.
    pub fn offer(self: &Arc<Self>, frame: &Arc<Frame>, message: &Arc<Message>) {
        if !self.wanted() {
            return;
        }
        let Some(mut state) = try_lock(&self.state) else { return };
        // The encoder comes for the frame as soon as it may, and waits for this lock until the frame is there.
        if state.in_hand || !self.encoder.try_push(self) {
            return;
        }
        state.next_ns = next_due_ns(state.next_ns, SystemClock.monotonic_ns(), self.encoder.interval_ns());
        state.in_hand = true;
        state.waiting = Some((Arc::clone(frame), Arc::clone(message)));
        self.due_ns.store(NEVER, Ordering::Relaxed);
    }

    /// A copy of the next frame, for which it waits; `None`: there was none in time.
    pub fn frame(&self, timeout: Duration) -> Option<OwnedFrame> {
        if !self.encoder.is_ready() {
            return None;
        }
        let (give, copy) = sync_channel(1);
        let mut state = lock(&self.state);
        state.copies.push(give);
        state.next_ns = 0;
        self.ask(&state);
        drop(state);
        copy.recv_timeout(timeout).ok()
    }

    /// The next picture, with boxes or without, for which it waits.
    pub async fn jpeg(self: &Arc<Self>, overlay: bool, timeout: Duration) -> Result<Arc<Picture>, ViewError> {
        let mut watch = self.watch(overlay)?;
        let no_frame = || ViewError::NoFrame { camera: Arc::clone(&self.name), seconds: timeout.as_secs() };
        match tokio::time::timeout(timeout, watch.next()).await {
            Ok(picture) => picture.ok_or_else(no_frame),
            Err(_) => Err(no_frame()),
        }
    }

    /// The pictures from the next one on, with boxes or without.
    pub fn watch(self: &Arc<Self>, overlay: bool) -> Result<Watch, ViewError> {
        if !self.encoder.is_ready() {
            return Err(ViewError::NoEncoder { camera: Arc::clone(&self.name) });
        }
        let newest = if overlay { &self.overlay } else { &self.plain };
        let watch = Watch { pictures: newest.subscribe(), view: Arc::clone(self) };
        self.ask(&lock(&self.state));
        Ok(watch)
    }

    /// Who watches now, in all.
    pub fn watchers(&self) -> usize {
        self.plain.receiver_count() + self.overlay.receiver_count()
    }

    /// Has the lane leave a frame here, as soon as the next picture may be made.
    fn ask(&self, state: &State) {
        if !state.in_hand {
            self.due_ns.store(state.next_ns, Ordering::Relaxed);
        }
    }

    /// The frame that waits, and who wants what of it.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = lock(&self.state);
        let (frame, message) = state.waiting.take()?;
        let copies = std::mem::take(&mut state.copies);
        let watched = |newest: &Newest| newest.receiver_count() > 0;
        Some(Taken { frame, message, copies, plain: watched(&self.plain), overlay: watched(&self.overlay) })
    }

    /// A picture was made.
    pub(super) fn show(&self, overlay: bool, picture: Picture) {
        let newest = if overlay { &self.overlay } else { &self.plain };
        newest.send_replace(Some(Arc::new(picture)));
    }

    /// All is made of the frame that was taken: the next one is asked for, or what was made is forgotten.
    pub(super) fn done(&self) {
        let mut state = lock(&self.state);
        state.in_hand = false;
        if state.waiting_watchers > 0 || !state.copies.is_empty() {
            self.ask(&state);
        }
        self.forget_unwatched(&state);
    }

    /// Lets go of the newest pictures where nobody watches. Under the lock, so that of the last watcher and the encoder
    /// whoever comes later does it.
    fn forget_unwatched(&self, state: &State) {
        if !state.in_hand && self.watchers() == 0 {
            self.plain.send_replace(None);
            self.overlay.send_replace(None);
        }
    }

    /// Gives back what waits; nothing is wanted any more.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        self.due_ns.store(NEVER, Ordering::Relaxed);
        state.in_hand = true;
        let waiting = state.waiting.take();
        state.copies.clear();
        drop(state);
        drop(waiting);
    }
}

/// When the next picture is due, if the one that was due at `due_ns` is made now: in step with the interval as long as frames
/// come, so that their jitter costs no pictures.
fn next_due_ns(due_ns: u64, now_ns: u64, interval_ns: u64) -> u64 {
    let in_step = now_ns.saturating_sub(due_ns) < interval_ns;
    (if in_step { due_ns } else { now_ns }) + interval_ns
}

/// A frame out of a view.
pub(super) struct Taken {
    pub frame: Arc<Frame>,
    pub message: Arc<Message>,
    pub copies: Vec<SyncSender<OwnedFrame>>,
    /// It is watched without boxes.
    pub plain: bool,
    /// It is watched with boxes.
    pub overlay: bool,
}

/// A camera's pictures, one after the other; who is too slow misses some.
#[derive(Debug)]
pub struct Watch {
    pictures: watch::Receiver<Option<Arc<Picture>>>,
    view: Arc<CameraView>,
}

impl Watch {
    /// The next picture, for which it waits; `None`: there will be none any more.
    pub async fn next(&mut self) -> Option<Arc<Picture>> {
        loop {
            if !self.pictures.has_changed().ok()? {
                let _waiting = Waiting::begin(&self.view);
                self.pictures.changed().await.ok()?;
            }
            let picture = self.pictures.borrow_and_update().clone();
            if picture.as_ref().is_some_and(|picture| picture.made.elapsed() < NEWS) {
                return picture;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Another in its place, so that it is not counted any more.
        self.pictures = watch::channel(None).1;
        self.view.forget_unwatched(&lock(&self.view.state));
    }
}

/// A watcher waits until this is dropped.
struct Waiting<'v>(&'v CameraView);

impl<'v> Waiting<'v> {
    fn begin(view: &'v CameraView) -> Self {
        let mut state = lock(&view.state);
        state.waiting_watchers += 1;
        view.ask(&state);
        Self(view)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting_watchers -= 1;
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
