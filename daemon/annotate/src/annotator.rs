//! Annotated images of one camera, drawn and stored on a thread of their own.
//!
//! The lane never waits: at most one frame of each of the camera's models waits to be drawn, and frames that come meanwhile are counted
//! and not drawn. A frame's buffer is given back as soon as its pixels are RGB, before drawing and encoding. While a disk is full, images are counted as
//! lost; writing is tried again after 0.25 s, then after longer pauses up to 5 s.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use image::RgbImage;
use parking_lot::{Condvar, Mutex};
use visiond_config::types::AnnotateConfig;
use visiond_frames::frame::Frame;
use visiond_kernels::view::Orientation;
use visiond_message::status::AnnotateCounts;
use visiond_message::{DetectionMessage, Message};
use visiond_system::outage::{IfUnusable, Outage, explain};
use visiond_system::preflight::Certainty;
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;
use visiond_telemetry::metrics::Counter;
use visiond_telemetry::trace;

use super::draw::{draw_with_tails, whole_pixels};
use super::picture_folder::{PictureFolder, encode, event_file, extension};
use super::rgb_converter::RgbConverter;
use super::sharpness::sharpness;
use super::trails::{Tails, Trails};
use super::upright::upright;

/// Images cannot be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("annotated images of camera {camera}: {reason}")]
pub struct AnnotateError {
    /// The camera.
    pub camera: String,
    /// A sentence with its remedy.
    pub reason: String,
    /// Whether the service would fail in the same way.
    pub certainty: Certainty,
}

fn cannot_write(config: &AnnotateConfig, camera: &str, error: &io::Error) -> AnnotateError {
    AnnotateError {
        camera: camera.to_owned(),
        reason: format!("cannot write to {}: {}", config.directory.display(), explain(error)),
        certainty: Certainty::of(error, &config.directory),
    }
}

/// The image counters, which the lane and the drawing thread increment.
#[derive(Debug, Default)]
struct Counters {
    written: Counter,
    dropped_busy: Counter,
    failed: Counter,
    outage: Mutex<Option<String>>,
}

/// The most images of events that wait for a frame, or that may get a sharper one.
const MOST_WAITING: usize = 64;

/// How much sharper than the stored image a frame must be.
const SHARPER: f32 = 1.25;

/// An image of an event that a frame is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventImage {
    /// See [`Annotator::event_image`].
    pub name: Arc<str>,
    /// The track of its object, if it has one: where it is in the picture, and therefore what must be sharp.
    pub track: Option<u64>,
    /// Whether the frame is for it only if its object is sharper than in the stored image.
    pub only_if_sharper: bool,
}

/// A frame to draw.
#[derive(Debug)]
struct Job {
    frame: Arc<Frame>,
    /// How to turn it.
    seen: Orientation,
    message: Arc<Message>,
    tails: Tails,
    /// Whether to store it by its number.
    numbered: bool,
    /// The images of events to store it as.
    events: Vec<EventImage>,
}

/// Passes frames to the drawing thread.
#[derive(Debug, Default)]
struct Slot {
    state: Mutex<SlotState>,
    /// A frame came or was taken, or the slot was closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    /// In their order, at most one of each [`Message::topic`], so that models that finish at once lose no image to each other.
    waiting: VecDeque<Job>,
    /// The images of events that no frame has been taken for yet.
    events: Vec<EventImage>,
    /// How often waiting frames were forgotten: see [`Annotator::forget`]. A frame that was taken before the last time is not stored.
    forgotten: u64,
    /// Whether an image is being stored.
    storing: bool,
    closed: bool,
}

impl SlotState {
    fn is_taken(&self, topic: &str) -> bool {
        self.waiting.iter().any(|job| *job.message.topic == *topic)
    }
}

impl Slot {
    /// Waits for a frame; returns it with [`SlotState::forgotten`]. Returns `None` once the slot is closed and empty.
    fn take(&self) -> Option<(Job, u64)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            self.changed.wait(&mut state);
        }
        self.changed.notify_all();
        Some((state.waiting.pop_front()?, state.forgotten))
    }

    /// Begins to store the image of a frame; returns `false` if the frame has been forgotten since it was taken.
    fn begin_storing(&self, forgotten: u64) -> bool {
        let mut state = self.state.lock();
        state.storing = state.forgotten == forgotten;
        state.storing
    }

    /// Notes that the image has been stored, or could not be.
    fn end_storing(&self) {
        self.state.lock().storing = false;
        self.changed.notify_all();
    }

    /// Accepts no further frame, and releases a lane that waits to offer one.
    fn close(&self) {
        let mut state = self.state.lock();
        // The thread may have panicked while it stored one.
        (state.closed, state.storing) = (true, false);
        drop(state);
        self.changed.notify_all();
    }
}

/// The annotated images of one camera.
#[derive(Debug)]
pub struct Annotator {
    camera: String,
    every: u64,
    on_detection: bool,
    on_event: bool,
    extension: &'static str,
    /// How many frames each model has offered, by [`Message::topic`].
    offered: Mutex<Vec<(Arc<str>, u64)>>,
    /// Of every frame that is offered, so that tails are whole on the few that are drawn. The drawing thread never takes this lock.
    trails: Mutex<Trails>,
    counters: Arc<Counters>,
    slot: Arc<Slot>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Annotator {
    /// Starts the thread, which creates the folder if it is missing and lists the camera's images in it.
    ///
    /// # Errors
    /// The thread cannot be started or, with [`IfUnusable::Refuse`], the folder cannot be written.
    pub fn start(config: &AnnotateConfig, camera: &str, if_unusable: IfUnusable) -> Result<Self, AnnotateError> {
        let mut folder = PictureFolder::new(&config.directory, camera, config.format, config.keep);
        if if_unusable == IfUnusable::Refuse {
            folder.open().map_err(|error| cannot_write(config, camera, &error))?;
        }
        let counters = Arc::new(Counters::default());
        let outage = Outage::new(format!("annotated images of camera {camera}: {}", config.directory.display()))
            .costing("images are lost");
        let converter = RgbConverter::default();
        let slot = Arc::<Slot>::default();
        let (counters_too, slot_too) = (Arc::clone(&counters), Arc::clone(&slot));
        let stored = VecDeque::new();
        let mut drawer = Drawer { counters: counters_too, slot: slot_too, folder, outage, converter, stored };
        // The kernel cuts thread names at 15 bytes.
        let thread = std::thread::Builder::new().name("annotate".to_owned()).spawn(move || {
            give_way(Rank::Nice);
            drawer.run();
        });
        let thread = thread.map_err(|error| AnnotateError {
            camera: camera.to_owned(),
            reason: format!("cannot start a thread: {error}"),
            certainty: Certainty::Certain,
        })?;
        Ok(Self {
            camera: camera.to_owned(),
            every: config.every,
            on_detection: config.on_detection,
            on_event: config.on_event,
            extension: extension(config.format),
            offered: Mutex::default(),
            trails: Mutex::default(),
            counters,
            slot,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Finds out whether a reload would refuse the folder, without touching it.
    pub fn check(config: &AnnotateConfig, camera: &str) -> Result<(), AnnotateError> {
        PictureFolder::check(&config.directory).map_err(|error| cannot_write(config, camera, &error))
    }

    /// Returns the name of the image of an event, in the folder; `None` if the configuration does not ask for images of events.
    pub fn event_image(&self, event: &str) -> Option<Arc<str>> {
        self.on_event.then(|| event_file(&self.camera, event, self.extension).into())
    }

    /// Offers a frame with its detections, and how models see it; it is drawn that way if the configuration selects it and no other
    /// frame of the same model waits. Never waits.
    ///
    /// The frame is also stored as the images of `events`, in place of what they were before. If another frame waits, the next one is; an
    /// image that must be sharper is then left out.
    pub fn offer(&self, frame: Arc<Frame>, seen: Orientation, message: Arc<Message>, events: &[EventImage]) {
        self.put(frame, seen, message, events, false);
    }

    /// Like [`Annotator::offer`], but waits while another frame of the same model waits. For sources that are read as fast as possible.
    pub fn offer_wait(&self, frame: Arc<Frame>, seen: Orientation, message: Arc<Message>, events: &[EventImage]) {
        self.put(frame, seen, message, events, true);
    }

    fn put(&self, frame: Arc<Frame>, seen: Orientation, message: Arc<Message>, events: &[EventImage], may_wait: bool) {
        self.trails.lock().add(&message, seen);
        let has_turn = self.every > 0 && self.number(&message.topic).is_multiple_of(self.every);
        let has_detection = self.on_detection && !message.detections.is_empty();
        let numbered = has_turn || has_detection;
        if !numbered && !self.on_event {
            return;
        }
        let mut state = self.slot.state.lock();
        for event in events {
            let has_room = state.events.len() < MOST_WAITING;
            match state.events.iter_mut().find(|known| known.name == event.name) {
                Some(known) => {
                    known.only_if_sharper &= event.only_if_sharper;
                    known.track = event.track;
                }
                None if has_room => state.events.push(event.clone()),
                None => {}
            }
        }
        // Events are about the objects of the camera's first model.
        let has_event = !state.events.is_empty() && *message.topic == *message.camera;
        if !numbered && !has_event {
            return;
        }
        let forgotten = state.forgotten;
        while may_wait && state.is_taken(&message.topic) && !state.closed && state.forgotten == forgotten {
            self.slot.changed.wait(&mut state);
        }
        if state.is_taken(&message.topic) || state.closed || state.forgotten != forgotten {
            state.events.retain(|event| !event.only_if_sharper);
            self.counters.dropped_busy.add(u64::from(numbered));
        } else {
            let tails = self.trails.lock().tails(&message);
            let events = if has_event { std::mem::take(&mut state.events) } else { Vec::new() };
            state.waiting.push_back(Job { frame, seen, message, tails, numbered, events });
            self.slot.changed.notify_all();
        }
    }

    /// Drops the frames that wait, and releases a lane that waits to offer one.
    pub fn drop_waiting(&self) {
        let mut state = self.slot.state.lock();
        state.forgotten += 1;
        let waiting = std::mem::take(&mut state.waiting).len();
        drop(state);
        self.slot.changed.notify_all();
        self.counters.dropped_busy.add(waiting as u64);
    }

    /// Drops the frames that wait, the one that is being drawn and the paths of tracks, because the camera's privacy masks have changed.
    /// Stored images stay. Returns `false` if an image is still being stored at `deadline`.
    pub fn forget(&self, deadline: Instant) -> bool {
        let mut state = self.slot.state.lock();
        state.forgotten += 1;
        let waiting = std::mem::take(&mut state.waiting).len();
        state.events.clear();
        self.slot.changed.notify_all();
        while state.storing && !self.slot.changed.wait_until(&mut state, deadline).timed_out() {}
        let is_done = !state.storing;
        drop(state);
        self.counters.dropped_busy.add(waiting as u64);
        *self.trails.lock() = Trails::default();
        is_done
    }

    /// Counts a frame that a model offers; returns its number, from 0.
    fn number(&self, topic: &Arc<str>) -> u64 {
        let mut offered = self.offered.lock();
        let at = offered.iter().position(|(known, _)| known == topic).unwrap_or(offered.len());
        if at == offered.len() {
            offered.push((Arc::clone(topic), 0));
        }
        let number = offered[at].1;
        offered[at].1 += 1;
        number
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> AnnotateCounts {
        let Counters { written, dropped_busy, failed, outage } = &*self.counters;
        let outage = outage.lock().clone();
        AnnotateCounts { written: written.get(), dropped_busy: dropped_busy.get(), failed: failed.get(), outage }
    }

    /// Stores the frames that wait, ends the thread by `deadline`, and returns the counts.
    pub fn close(&self, deadline: Instant) -> AnnotateCounts {
        self.slot.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            if !finished_by([&thread], deadline) {
                log::warn!("annotated images of camera {}: the last one was not stored in time", self.camera);
            } else if thread.join().is_err() {
                log::error!(
                    "annotated images of camera {}: internal error, see the panic above: please report it",
                    self.camera
                );
            }
        }
        self.counts()
    }
}

impl Drop for Annotator {
    fn drop(&mut self) {
        self.close(Instant::now());
    }
}

/// The drawing thread.
struct Drawer {
    counters: Arc<Counters>,
    slot: Arc<Slot>,
    folder: PictureFolder,
    outage: Outage,
    converter: RgbConverter,
    /// The last images of events, and how sharp they are.
    stored: VecDeque<(Arc<str>, f32)>,
}

impl Drop for Drawer {
    /// Releases the lane if the thread panicked.
    fn drop(&mut self) {
        self.slot.close();
    }
}

impl Drawer {
    fn run(&mut self) {
        let opened = self.folder.open();
        self.note(&opened);
        while let Some((job, forgotten)) = self.slot.take() {
            let Job { frame, seen, message, tails, numbered, events } = job;
            if !self.outage.may_try(Instant::now()) {
                self.lost();
                continue;
            }
            let _trace = trace::work_on("draw", &message.topic, message.sequence);
            let turned = frame.view().and_then(|view| view.turned(seen));
            let picture = turned.map_err(Into::into).and_then(|view| self.converter.make(&view));
            drop(frame);
            let mut picture = match picture {
                Ok(picture) => picture,
                Err(error) => {
                    log::error!("camera {}: cannot draw frame {}: {error}", message.camera, message.sequence);
                    self.counters.failed.add(1);
                    continue;
                }
            };
            let drawn = upright(&message, seen);
            let sharp = |event: EventImage| {
                let sharp = self.sharpness_of(&event, &picture, &drawn)?;
                Some((event.name, sharp))
            };
            let events: Vec<_> = events.into_iter().filter_map(sharp).collect();
            if events.is_empty() && !numbered {
                continue;
            }
            draw_with_tails(&mut picture, &drawn, &tails);
            let encoded = encode(&picture, self.folder.format());
            if !self.slot.begin_storing(forgotten) {
                self.counters.dropped_busy.add(1);
                continue;
            }
            let stored = encoded.and_then(|bytes| {
                if numbered {
                    self.folder.store(&message, &bytes)?;
                    self.counters.written.add(1);
                }
                for (name, sharp) in &events {
                    self.folder.store_event(name, &bytes)?;
                    self.counters.written.add(1);
                    self.stored.retain(|(known, _)| known != name);
                    self.stored.truncate(MOST_WAITING - 1);
                    self.stored.push_front((Arc::clone(name), *sharp));
                }
                Ok(())
            });
            self.slot.end_storing();
            self.note(&stored);
            if stored.is_err() {
                self.lost();
            }
        }
    }

    /// Returns how sharp the object of an event is in a picture without boxes; `None` if the picture is not to be its image.
    fn sharpness_of(&self, event: &EventImage, picture: &RgbImage, message: &Message) -> Option<f32> {
        let is_it = |detection: &&DetectionMessage| detection.track.as_ref().map(|track| track.id) == event.track;
        let object = event.track.and_then(|_| message.detections.iter().find(is_it)?.bounds);
        let sharp = match (event.track, object) {
            // Any frame that shows it is sharper.
            (Some(_), None) => 0.0,
            (_, object) => sharpness(picture, object.map(|bounds| whole_pixels(&bounds))),
        };
        let stored = self.stored.iter().find(|(name, _)| *name == event.name).map(|(_, stored)| *stored);
        let is_wanted = !event.only_if_sharper || stored.is_some_and(|stored| sharp > SHARPER * stored);
        is_wanted.then_some(sharp)
    }

    /// Notes whether the folder can be written.
    fn note(&mut self, result: &io::Result<()>) {
        match result {
            Ok(()) => self.outage.recovered(Instant::now()),
            Err(error) => self.outage.failed(&explain(error), Instant::now()),
        }
        *self.counters.outage.lock() = self.outage.reason().map(str::to_owned);
    }

    fn lost(&mut self) {
        self.outage.lost(1);
        self.counters.failed.add(1);
    }
}

#[cfg(test)]
mod tests;
