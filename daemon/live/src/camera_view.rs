//! A camera's frame and images, between the lane, the encoder and the clients that watch.
//!
//! While a client waits for an image and the next one is due, the lane keeps one frame after its run and leaves it here.
//! From it, the encoder makes what clients watch: an image with boxes, one without, or a copy of the frame. At most one
//! frame per camera is kept. Nothing is encoded for a client that does not read the images.
//!
//! A camera may have a preview, another stream for people ([`crate::PreviewFeed`]). While it plays, people see its frames,
//! and the lane provides frames only for other clients. Each frame of the preview postpones the fallback to the model's
//! frames by [`PATIENCE`], so a preview that stalls is replaced even before its source notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use visiond_annotate::rgb_converter::{RgbConverter, RgbError};
use visiond_annotate::trails::{Tails, Trails};
use visiond_frames::clock::{Clock, SystemClock};
use visiond_frames::frame::Frame;
use visiond_kernels::buffer::{BufferError, UnifiedBuffer};
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};
use visiond_kernels::view::Orientation;
use visiond_message::Message;
use visiond_system::wake_pipe::WakePipe;

use crate::broadcast::Broadcast;
use crate::encoder_queue::EncoderQueue;

/// A client that returns for the next image does not get one that is older than this.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The value of `due_ns` while no frame is wanted.
const NEVER: u64 = u64::MAX;
/// People see the model's frames if the preview delivers none for this long. Starting a stream takes 1 s plus the wait for
/// its next key frame; a client waits 5 s for an image.
const PATIENCE: Duration = Duration::from_secs(3);
/// A preview keeps playing for this long after the last client, because the live page requests each image separately.
const LINGER: Duration = Duration::from_secs(5);
/// The boxes of a camera's other models are drawn on a frame if theirs was captured within this time of it.
const MOST_APART_NS: u64 = 2_000_000_000;
/// How long the preview yields to the lane if a client waits for a frame of the model. On a busy machine, the encoder would
/// otherwise hold a preview frame whenever the lane has one to offer.
const MODEL_FIRST: Duration = Duration::from_secs(1);

/// Sends the newest image of one kind to the clients that watch it.
type Newest = watch::Sender<Option<Arc<Picture>>>;

/// The source of a camera's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureStream {
    /// The preview while it plays, otherwise the model's frames: for people who watch.
    Shown,
    /// The frames that the model ran on, for images that belong to detections.
    Model,
}

impl PictureStream {
    const ALL: [Self; 2] = [Self::Shown, Self::Model];
}

/// Why there is no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The camera delivered no frame.
    #[error(
        "camera {camera} delivered no frame within {seconds} s: see its state in /api/v1/cameras/{camera} and the log"
    )]
    NoFrame {
        /// The camera's name.
        camera: Arc<str>,
        /// How long the client waited, in seconds.
        seconds: u64,
    },
    /// The daemon is ending, or could not start a thread for the encoder.
    #[error("camera {camera}: cannot make an image: the daemon is ending, or the system has no thread left")]
    NoEncoder {
        /// The camera's name.
        camera: Arc<str>,
    },
}

/// One camera's view for clients.
#[derive(Debug)]
pub struct CameraView {
    /// The camera's name.
    pub name: Arc<str>,
    queue: Arc<EncoderQueue<Self>>,
    messages: Arc<Broadcast>,
    /// When the lane is to leave a frame here, in nanoseconds on CLOCK_MONOTONIC; [`NEVER`] if no frame is wanted.
    due_ns: AtomicU64,
    /// The same for the preview.
    preview_due_ns: AtomicU64,
    /// When people start to see the model's frames, on the same clock; 0 unless a preview plays.
    fallback_ns: AtomicU64,
    /// When a person last started or stopped watching, on the same clock; 0 if none has.
    watched_ns: AtomicU64,
    /// The camera's preview, if it has one. Neither the lane nor the encoder takes this lock; never held with `state`.
    preview: Mutex<Option<AttachedPreview>>,
    state: Mutex<ViewState>,
    /// How models see the camera's frames, and people its images: the index in [`Orientation::all`].
    orientation: AtomicU8,
    /// How often the camera's privacy masks have changed; written under the lock of `state`. A frame or an image with an older number
    /// has other masks, and goes nowhere.
    mask_changes: AtomicU64,
    /// The paths of the tracks, from the messages of the pictures that were made: a client that gets pictures as they come sees tails,
    /// a single picture has none, and a camera without a client costs nothing. Only the encoder takes this lock.
    trails: Mutex<Trails>,
    /// Of each [`PictureStream`].
    newest: [NewestPictures; 2],
}

#[derive(Debug, Default)]
struct NewestPictures {
    plain: Newest,
    overlay: Newest,
}

impl NewestPictures {
    fn of(&self, overlay: bool) -> &Newest {
        if overlay { &self.overlay } else { &self.plain }
    }

    fn watchers(&self) -> usize {
        self.plain.receiver_count() + self.overlay.receiver_count()
    }
}

#[derive(Debug, Default)]
struct ViewState {
    waiting: Option<WaitingFrame>,
    /// Whether a frame waits here or is being encoded.
    busy: bool,
    /// When the next image may be made, in nanoseconds on CLOCK_MONOTONIC.
    next_ns: u64,
    /// The number and time of the newest model frame that was taken. A slow model's frame may come after a newer one of a fast model.
    newest_of_model: (u64, u64),
    /// How many clients have seen the newest image of each [`PictureStream`] and wait for the next, or for a copy.
    waiting_clients: [usize; 2],
    /// Clients that want a copy of the next frame of a model.
    copies: Vec<WantedCopy>,
}

/// A client that wants a copy of a model's next frame.
#[derive(Debug)]
pub(crate) struct WantedCopy {
    /// The model; `None`: whichever is next.
    model: Option<Arc<str>>,
    /// Tells it from the others.
    client: Arc<()>,
    send: SyncSender<ModelFrame>,
}

impl WantedCopy {
    /// Whether a frame with this message is wanted.
    fn wants(&self, message: Option<&Arc<Message>>) -> bool {
        self.model.as_ref().is_none_or(|wanted| message.is_some_and(|message| *message.model.name == **wanted))
    }
}

/// A copy of a frame that a model ran on, with the message about it.
#[derive(Debug)]
pub struct ModelFrame {
    /// The frame.
    pub frame: OwnedFrame,
    /// The message.
    pub message: Arc<Message>,
    /// See [`CameraView::mask_changes`]: a frame of other masks than the camera's goes nowhere.
    pub mask_changes: u64,
}

impl ModelFrame {
    /// Returns the frame's width, height and pixels: three bytes each, red, green and blue, row by row.
    ///
    /// # Errors
    /// The frame cannot be converted.
    pub fn rgb(&self) -> Result<(u32, u32, Vec<u8>), RgbError> {
        let picture = RgbConverter::default().make(&self.frame.view()?)?;
        Ok((picture.width(), picture.height(), picture.into_raw()))
    }
}

impl ViewState {
    /// Whether a client waits for a frame of the model.
    fn awaits_model(&self) -> bool {
        self.waiting_clients[PictureStream::Model as usize] > 0
    }

    /// Whether a newer frame of a model was taken. Its number alone does not decide, because a camera that is removed and added again
    /// counts from 0; its time alone does not either, because the clock of a network camera may be set back.
    fn has_newer(&self, waiting: &WaitingFrame) -> bool {
        let ((number, time), (newest, newest_time)) = (waiting.number_and_time(), self.newest_of_model);
        !waiting.is_preview && number < newest && time < newest_time
    }
}

/// A frame that waits for the encoder.
#[derive(Debug)]
struct WaitingFrame {
    frame: Arc<Frame>,
    /// The frame's message; for a preview frame, the newest result of a model, if there is one.
    message: Option<Arc<Message>>,
    /// Whether it is a preview frame.
    is_preview: bool,
    /// Whether people get it.
    is_shown: bool,
}

impl WaitingFrame {
    /// The frame's number, and its time in nanoseconds on CLOCK_MONOTONIC.
    fn number_and_time(&self) -> (u64, u64) {
        (self.frame.sequence, self.frame.timestamp.monotonic_ns)
    }
}

/// The view's record of a preview.
#[derive(Debug)]
struct AttachedPreview {
    /// Wakes its thread.
    wake: Arc<WakePipe>,
    status: PreviewStatus,
}

/// The state of a camera's preview.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreviewStatus {
    /// The phase.
    pub phase: PreviewPhase,
    /// Width and height of its frames while it plays.
    pub size: Option<(u32, u32)>,
    /// Why it waits, as a sentence.
    pub reason: Option<Arc<str>>,
}

/// What a preview does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PreviewPhase {
    /// It is closed, because nobody is watching.
    #[default]
    Idle,
    /// It is being opened.
    Opening,
    /// It delivers frames.
    Streaming,
    /// It failed, and is reopened after a pause.
    Waiting,
}

impl PreviewPhase {
    /// Returns the name used in status reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Opening => "opening",
            Self::Streaming => "streaming",
            Self::Waiting => "waiting",
        }
    }
}

impl CameraView {
    /// Creates a view without clients.
    pub(crate) fn new(camera: &str, queue: &Arc<EncoderQueue<Self>>, messages: &Arc<Broadcast>) -> Self {
        Self {
            name: camera.into(),
            queue: Arc::clone(queue),
            messages: Arc::clone(messages),
            due_ns: AtomicU64::new(NEVER),
            preview_due_ns: AtomicU64::new(NEVER),
            fallback_ns: AtomicU64::new(0),
            watched_ns: AtomicU64::new(0),
            preview: Mutex::default(),
            state: Mutex::default(),
            orientation: AtomicU8::new(0),
            mask_changes: AtomicU64::new(0),
            trails: Mutex::default(),
            newest: Default::default(),
        }
    }

    /// Whether the lane is to leave a frame here. The lane checks after it has started a run; this costs one relaxed load if
    /// no client watches.
    pub fn wanted(&self) -> bool {
        is_due(&self.due_ns)
    }

    /// The same for the preview.
    pub(crate) fn wants_preview(&self) -> bool {
        is_due(&self.preview_due_ns)
    }

    /// Leaves a frame with its message here.
    ///
    /// Never waits. A frame that is not wanted is dropped, and one that is older than an earlier one, which another model had. So is one
    /// that arrives while the encoder or a client holds a lock; the next frame takes its place.
    pub fn offer(self: &Arc<Self>, frame: &Arc<Frame>, message: &Arc<Message>) {
        if !self.wanted() {
            return;
        }
        let is_shown = SystemClock.monotonic_ns() >= self.fallback_ns.load(Ordering::Relaxed);
        let (frame, message) = (Arc::clone(frame), Some(Arc::clone(message)));
        self.leave(WaitingFrame { frame, message, is_preview: false, is_shown });
    }

    /// Leaves a frame of the preview here, with the result to draw on it. Otherwise the same as [`CameraView::offer`].
    pub(crate) fn offer_preview(self: &Arc<Self>, frame: Frame, message: Option<Arc<Message>>) {
        self.leave(WaitingFrame { frame: Arc::new(frame), message, is_preview: true, is_shown: true });
    }

    fn leave(self: &Arc<Self>, waiting: WaitingFrame) {
        let Some(mut state) = self.state.try_lock() else { return };
        // The encoder may fetch the frame at once; it then waits on this lock until the frame is stored.
        if state.busy || state.has_newer(&waiting) || !self.is_of_use(&state, &waiting) || !self.queue.try_push(self) {
            return;
        }
        if !waiting.is_preview {
            state.newest_of_model = waiting.number_and_time();
        }
        state.next_ns = next_due_ns(state.next_ns, SystemClock.monotonic_ns(), self.queue.interval_ns());
        state.busy = true;
        state.waiting = Some(waiting);
        // `done` requests again what this frame does not provide.
        self.due_ns.store(NEVER, Ordering::Relaxed);
        self.preview_due_ns.store(NEVER, Ordering::Relaxed);
    }

    /// Whether a client has a use for a frame, which one that waits for another model's has not.
    fn is_of_use(&self, state: &ViewState, waiting: &WaitingFrame) -> bool {
        let is_wanted = |copy: &WantedCopy| !waiting.is_preview && copy.wants(waiting.message.as_ref());
        state.copies.is_empty() || self.watchers() > 0 || state.copies.iter().any(is_wanted)
    }

    /// Returns how many clients watch now.
    pub fn watchers(&self) -> usize {
        self.newest.iter().map(NewestPictures::watchers).sum()
    }

    /// Waits for a copy of the next frame that a model runs on, ignoring the limit of images per second; `None` if none arrived in time.
    pub fn frame(&self, timeout: Duration) -> Option<OwnedFrame> {
        self.copy_of_next(None, timeout).map(|copy| copy.frame)
    }

    /// Waits for a copy of the next frame that this model runs on, with its message; otherwise the same as [`CameraView::frame`].
    pub fn frame_of(&self, model: &str, timeout: Duration) -> Option<ModelFrame> {
        self.copy_of_next(Some(model.into()), timeout)
    }

    fn copy_of_next(&self, model: Option<Arc<str>>, timeout: Duration) -> Option<ModelFrame> {
        if !self.queue.ensure_threads() {
            return None;
        }
        let (send, copy) = sync_channel(1);
        let client = Arc::new(());
        let mut state = self.state.lock();
        state.copies.push(WantedCopy { model, client: Arc::clone(&client), send });
        state.next_ns = 0;
        drop(state);
        let waiting = WaitingClient::new(self, PictureStream::Model);
        let copy = copy.recv_timeout(timeout).ok();
        drop(waiting);
        self.state.lock().copies.retain(|wanted| !Arc::ptr_eq(&wanted.client, &client));
        copy
    }

    /// Waits for the next image of `stream`, with boxes or without.
    pub async fn jpeg(
        self: &Arc<Self>,
        stream: PictureStream,
        overlay: bool,
        timeout: Duration,
    ) -> Result<Arc<Picture>, ViewError> {
        let mut watch = self.watch(stream, overlay)?;
        let no_frame = || ViewError::NoFrame { camera: Arc::clone(&self.name), seconds: timeout.as_secs() };
        tokio::time::timeout(timeout, watch.next()).await.ok().flatten().ok_or_else(no_frame)
    }

    /// Returns the images of `stream` from the next one on, with boxes or without.
    pub fn watch(self: &Arc<Self>, stream: PictureStream, overlay: bool) -> Result<Watch, ViewError> {
        if !self.queue.ensure_threads() {
            return Err(ViewError::NoEncoder { camera: Arc::clone(&self.name) });
        }
        let pictures = self.newest(stream).of(overlay).subscribe();
        if stream == PictureStream::Shown {
            self.note_watched();
            self.open_preview();
        }
        self.request_frame(&self.state.lock(), stream);
        Ok(Watch { pictures, view: Arc::clone(self), stream })
    }

    fn newest(&self, stream: PictureStream) -> &NewestPictures {
        &self.newest[stream as usize]
    }

    /// Requests a frame of `stream` as soon as the next image may be made.
    fn request_frame(&self, state: &ViewState, stream: PictureStream) {
        if state.busy {
            return;
        }
        let fallback_ns = self.fallback_ns.load(Ordering::Relaxed);
        if stream == PictureStream::Model || fallback_ns == 0 {
            self.due_ns.fetch_min(state.next_ns, Ordering::Relaxed);
        } else {
            let wait = if state.awaits_model() { MODEL_FIRST } else { Duration::ZERO };
            self.preview_due_ns.fetch_min(state.next_ns + wait.as_nanos() as u64, Ordering::Relaxed);
            self.due_ns.fetch_min(state.next_ns.max(fallback_ns), Ordering::Relaxed);
        }
    }

    /// Returns the newest results of the camera's other models, for a picture with the boxes of `message`.
    pub(crate) fn others(&self, message: &Message) -> Vec<Arc<Message>> {
        let newest = self.messages.latest_of(&self.name).into_iter().filter_map(|published| published.frame().cloned());
        let is_near = |other: &Arc<Message>| message.monotonic_ns.abs_diff(other.monotonic_ns) <= MOST_APART_NS;
        newest.filter(|other| other.topic != message.topic && is_near(other)).collect()
    }

    /// Takes the waiting frame and the list of what clients want from it.
    pub(crate) fn take(&self) -> Option<TakenFrame> {
        let mut state = self.state.lock();
        let mask_changes = self.mask_changes();
        let WaitingFrame { frame, message, is_preview, is_shown } = state.waiting.take()?;
        let is_wanted = |copy: &mut WantedCopy| !is_preview && copy.wants(message.as_ref());
        let copies = state.copies.extract_if(.., is_wanted).collect();
        let given = |stream: &PictureStream| match stream {
            PictureStream::Shown => is_shown,
            PictureStream::Model => !is_preview,
        };
        let watched = |overlay: bool| {
            let watched = |stream: &PictureStream| self.newest(*stream).of(overlay).receiver_count() > 0;
            PictureStream::ALL.into_iter().filter(|stream| given(stream) && watched(stream)).collect()
        };
        let (plain, overlay) = (watched(false), watched(true));
        Some(TakenFrame { frame, message, is_preview, mask_changes, copies, plain, overlay })
    }

    /// Sends a copy of a frame to a client that still waits for it, unless it has other privacy masks than the camera's.
    pub(crate) fn give(&self, wanted: &WantedCopy, copy: ModelFrame) {
        let _state = self.state.lock();
        if copy.mask_changes == self.mask_changes() {
            let _ = wanted.send.try_send(copy);
        }
    }

    /// Sends an image to the clients that watch one of `streams`, unless it has other privacy masks than the camera's.
    pub(crate) fn show(&self, streams: &[PictureStream], overlay: bool, picture: Picture) {
        let picture = Arc::new(picture);
        let _state = self.state.lock();
        if picture.mask_changes != self.mask_changes() {
            return;
        }
        for stream in streams {
            self.newest(*stream).of(overlay).send_replace(Some(Arc::clone(&picture)));
        }
    }

    /// Returns how often the camera's privacy masks have changed: see [`Picture::mask_changes`].
    pub fn mask_changes(&self) -> u64 {
        self.mask_changes.load(Ordering::Relaxed)
    }

    /// Forgets every frame, image and path, because the camera's privacy masks have changed: no client gets one of them afterwards.
    /// Nothing offers a frame with the old masks any more.
    pub(crate) fn change_masks(&self) {
        let mut state = self.state.lock();
        self.mask_changes.fetch_add(1, Ordering::Relaxed);
        let waiting = state.waiting.take();
        for newest in &self.newest {
            newest.plain.send_replace(None);
            newest.overlay.send_replace(None);
        }
        // The encoder finds no frame here. It ends the work on one that it has taken.
        if waiting.is_some() {
            state.busy = false;
            self.request_awaited(&state);
        }
        drop(state);
        *self.trails.lock() = Trails::default();
        drop(waiting);
    }

    /// Sets how models see the camera's frames, and people its images.
    pub fn set_orientation(&self, orientation: Orientation) {
        let at = Orientation::all().position(|known| known == orientation).unwrap_or_default();
        self.orientation.store(at as u8, Ordering::Relaxed);
    }

    /// Returns how models see the camera's frames, and people its images.
    pub fn orientation(&self) -> Orientation {
        let at = self.orientation.load(Ordering::Relaxed);
        Orientation::all().nth(at.into()).unwrap_or_default()
    }

    /// Adds the places of a message's tracks to their paths.
    pub(crate) fn add_to_trails(&self, message: &Message, mask_changes: u64) {
        let mut trails = self.trails.lock();
        if mask_changes == self.mask_changes() {
            trails.add(message, self.orientation());
        }
    }

    /// Returns the tails of a message's tracks.
    pub(crate) fn tails(&self, message: &Message) -> Tails {
        self.trails.lock().tails(message)
    }

    /// Ends the work on the frame that was taken: requests the next frame if a client waits for it.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock();
        state.busy = false;
        self.request_awaited(&state);
        self.forget_unwatched(&state);
    }

    /// Requests the frames that clients wait for.
    fn request_awaited(&self, state: &ViewState) {
        for stream in PictureStream::ALL {
            if state.waiting_clients[stream as usize] > 0 {
                self.request_frame(state, stream);
            }
        }
    }

    /// Drops the newest images if no client watches. Called under the lock, so that the last client or the encoder does it,
    /// whichever is later.
    fn forget_unwatched(&self, state: &ViewState) {
        if !state.busy && self.watchers() == 0 {
            for newest in &self.newest {
                newest.plain.send_replace(None);
                newest.overlay.send_replace(None);
            }
        }
    }

    /// Attaches a preview, whose thread `wake` wakes when the first person watches. It replaces one that is attached.
    pub(crate) fn attach_preview(&self, wake: &Arc<WakePipe>) {
        *self.preview.lock() = Some(AttachedPreview { wake: Arc::clone(wake), status: PreviewStatus::default() });
        // For people who are already watching.
        if self.newest(PictureStream::Shown).watchers() > 0 {
            self.open_preview();
        }
    }

    /// Detaches the preview of `wake`: people get the model's frames again.
    pub(crate) fn detach_preview(&self, wake: &Arc<WakePipe>) {
        let gone = self.preview.lock().take_if(|preview| Arc::ptr_eq(&preview.wake, wake));
        if gone.is_some() {
            self.fall_back();
        }
    }

    /// Opens the preview if it is closed.
    fn open_preview(&self) {
        let mut preview = self.preview.lock();
        if let Some(AttachedPreview { wake, status }) = &mut *preview
            && status.phase == PreviewPhase::Idle
        {
            status.phase = PreviewPhase::Opening;
            self.put_off_fallback();
            wake.wake();
        }
    }

    /// Closes the preview unless a person is watching or was until recently; returns whether it is closed.
    pub(crate) fn close_unwatched_preview(&self) -> bool {
        let mut preview = self.preview.lock();
        // A client that connects after this waits for the lock, finds the preview closed, and opens it.
        if self.is_preview_watched() {
            return false;
        }
        self.fallback_ns.store(0, Ordering::Relaxed);
        if let Some(preview) = &mut *preview {
            preview.status = PreviewStatus::default();
        }
        true
    }

    /// Whether the preview should be open: a person is watching or was until recently.
    pub(crate) fn is_preview_watched(&self) -> bool {
        let watched_ns = self.watched_ns.load(Ordering::Relaxed);
        let lately = || SystemClock.monotonic_ns().saturating_sub(watched_ns) < LINGER.as_nanos() as u64;
        self.newest(PictureStream::Shown).watchers() > 0 || (watched_ns != 0 && lately())
    }

    /// Sets the state of the preview. While it waits, people see the model's frames. Once it streams, people who still wait
    /// for a model's frame get the preview's, because the model's stream may be down for longer.
    pub(crate) fn set_preview(&self, status: PreviewStatus) {
        let phase = status.phase;
        if let Some(preview) = &mut *self.preview.lock() {
            preview.status = status;
        }
        match phase {
            PreviewPhase::Waiting => self.fall_back(),
            PreviewPhase::Streaming => {
                let state = self.state.lock();
                if state.waiting_clients[PictureStream::Shown as usize] > 0 {
                    self.request_frame(&state, PictureStream::Shown);
                }
            }
            PreviewPhase::Idle | PreviewPhase::Opening => {}
        }
    }

    /// Returns the state of the preview, if the camera has one.
    pub fn preview(&self) -> Option<PreviewStatus> {
        self.preview.lock().as_ref().map(|preview| preview.status.clone())
    }

    /// Postpones the fallback to the model's frames, because the preview delivered a frame or is being opened.
    pub(crate) fn put_off_fallback(&self) {
        self.fallback_ns.store(SystemClock.monotonic_ns() + PATIENCE.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Shows people the model's frames.
    fn fall_back(&self) {
        self.fallback_ns.store(0, Ordering::Relaxed);
        let state = self.state.lock();
        self.preview_due_ns.store(NEVER, Ordering::Relaxed);
        if self.newest(PictureStream::Shown).watchers() > 0 {
            self.request_frame(&state, PictureStream::Shown);
        }
    }

    fn note_watched(&self) {
        self.watched_ns.store(SystemClock.monotonic_ns(), Ordering::Relaxed);
    }

    /// Gives the waiting frame back and requests no more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        self.due_ns.store(NEVER, Ordering::Relaxed);
        self.preview_due_ns.store(NEVER, Ordering::Relaxed);
        state.busy = true;
        let waiting = state.waiting.take();
        state.copies.clear();
        drop(state);
        drop(waiting);
    }
}

/// A sequence of a camera's images; a client that is too slow misses some.
#[derive(Debug)]
pub struct Watch {
    pictures: watch::Receiver<Option<Arc<Picture>>>,
    view: Arc<CameraView>,
    stream: PictureStream,
}

impl Watch {
    /// Waits for the next image; `None` if there will be no more.
    pub async fn next(&mut self) -> Option<Arc<Picture>> {
        loop {
            if !self.pictures.has_changed().ok()? {
                let _waiting = WaitingClient::new(&self.view, self.stream);
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
        if self.stream == PictureStream::Shown {
            self.view.note_watched();
        }
        self.view.forget_unwatched(&self.view.state.lock());
    }
}

/// Counts a client as waiting for the next image until this is dropped.
struct WaitingClient<'v>(&'v CameraView, PictureStream);

impl<'v> WaitingClient<'v> {
    fn new(view: &'v CameraView, stream: PictureStream) -> Self {
        let mut state = view.state.lock();
        state.waiting_clients[stream as usize] += 1;
        view.request_frame(&state, stream);
        Self(view, stream)
    }
}

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting_clients[self.1 as usize] -= 1;
    }
}

/// Whether the time `due_ns` has passed.
fn is_due(due_ns: &AtomicU64) -> bool {
    let due_ns = due_ns.load(Ordering::Relaxed);
    due_ns != NEVER && SystemClock.monotonic_ns() >= due_ns
}

/// Returns when the next image is due if the one that was due at `due_ns` is made now.
///
/// It keeps in step with the interval while frames arrive, so that jitter costs no images.
fn next_due_ns(due_ns: u64, now_ns: u64, interval_ns: u64) -> u64 {
    let in_step = now_ns.saturating_sub(due_ns) < interval_ns;
    (if in_step { due_ns } else { now_ns }) + interval_ns
}

/// An image of a camera, as JPEG.
#[derive(Debug)]
pub struct Picture {
    /// The JPEG file.
    pub jpeg: Bytes,
    /// The sequence number of the message whose detections belong to it: the frame's own or, for a preview, the newest one.
    /// `None` if the model has no result for a preview frame.
    pub sequence: Option<u64>,
    /// When the image was encoded.
    pub made: Instant,
    /// How often the camera's privacy masks had changed when the image was begun.
    pub mask_changes: u64,
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
    /// The message whose detections are drawn.
    pub message: Option<Arc<Message>>,
    /// Whether this is a preview frame, which may have another size than the message's.
    pub is_preview: bool,
    /// See [`Picture::mask_changes`].
    pub mask_changes: u64,
    pub copies: Vec<WantedCopy>,
    /// The streams that a client watches without boxes.
    pub plain: Vec<PictureStream>,
    /// The streams that a client watches with boxes.
    pub overlay: Vec<PictureStream>,
}

#[cfg(test)]
mod tests;
