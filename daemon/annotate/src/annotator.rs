//! Annotated pictures of one camera, drawn and stored on a thread of their own.
//!
//! Never slows the lane: one frame waits at most, and what comes while it waits is not drawn, counted. A frame's buffer is
//! given back as soon as its pixels are RGB, before drawing and encoding. A disk that is full does not hold up anything:
//! the pictures are counted as lost, and a new attempt is made after 0.25 s, then ever later up to every 5 s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use visiond_config::types::AnnotateConfig;
use visiond_flow::frame::Frame;
use visiond_flow::message::Message;
use visiond_flow::trace;
use visiond_system::outage::{Outage, explain};
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;

use super::draw::draw;
use super::picture_folder::{PictureFolder, encode};
use super::rgb_converter::RgbConverter;

/// Pictures cannot be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("annotated pictures of camera {camera}: {reason}")]
pub struct AnnotateError {
    /// The camera.
    pub camera: String,
    /// A sentence with its remedy.
    pub reason: String,
}

/// What became of the frames that were to be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnnotateCounts {
    /// Pictures stored.
    pub written: u64,
    /// Not drawn, because another frame was still waiting.
    pub dropped_busy: u64,
    /// Lost because the picture could not be made or stored.
    pub failed: u64,
}

/// The pictures of one camera.
#[derive(Debug)]
pub struct Annotator {
    camera: String,
    every: u64,
    on_detection: bool,
    offered: AtomicU64,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the lane and the thread share.
#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    /// The slot was filled, emptied, or closed.
    changed: Condvar,
    written: AtomicU64,
    dropped_busy: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    waiting: Option<(Arc<Frame>, Arc<Message>)>,
    closed: bool,
}

impl Annotator {
    /// Makes the folder where it is missing, counts the camera's pictures in it, and starts the thread.
    pub fn start(config: &AnnotateConfig, camera: &str) -> Result<Self, AnnotateError> {
        let fail = |reason: String| AnnotateError { camera: camera.to_owned(), reason };
        let folder = PictureFolder::open(&config.directory, camera, config.format, config.keep)
            .map_err(|error| fail(format!("{} cannot be written: {}", config.directory.display(), explain(&error))))?;
        let shared = Arc::new(Shared::default());
        let outage = Outage::new(format!("annotated pictures of camera {camera}: {}", config.directory.display()));
        let mut drawer = Drawer { shared: Arc::clone(&shared), folder, outage, maker: RgbConverter::default() };
        // The kernel cuts thread names at 15 bytes.
        let thread = std::thread::Builder::new().name("annotate".to_owned()).spawn(move || {
            give_way(Rank::Nice);
            drawer.run();
        });
        let thread = thread.map_err(|error| fail(format!("cannot start their thread: {error}")))?;
        Ok(Self {
            camera: camera.to_owned(),
            every: config.every,
            on_detection: config.on_detection,
            offered: AtomicU64::new(0),
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Hands in a frame with what was seen in it; it is drawn if the configuration asks for it. Never waits.
    pub fn offer(&self, frame: Arc<Frame>, message: Arc<Message>) {
        if !self.wants(&message) {
            return;
        }
        let mut slot = self.shared.slot.lock();
        if slot.waiting.is_some() || slot.closed {
            self.shared.dropped_busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        slot.waiting = Some((frame, message));
        self.shared.changed.notify_all();
    }

    /// As [`Annotator::offer`], but waits while another frame does: for sources that are read as fast as possible.
    pub fn offer_wait(&self, frame: Arc<Frame>, message: Arc<Message>) {
        if !self.wants(&message) {
            return;
        }
        let mut slot = self.shared.slot.lock();
        while slot.waiting.is_some() && !slot.closed {
            self.shared.changed.wait(&mut slot);
        }
        if slot.closed {
            self.shared.dropped_busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        slot.waiting = Some((frame, message));
        self.shared.changed.notify_all();
    }

    /// What became of the frames so far.
    pub fn counts(&self) -> AnnotateCounts {
        AnnotateCounts {
            written: self.shared.written.load(Ordering::Relaxed),
            dropped_busy: self.shared.dropped_busy.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
        }
    }

    /// Stores what waits, and ends the thread by `deadline`. A second call only tells the counts.
    pub fn close(&self, deadline: Instant) -> AnnotateCounts {
        self.shared.slot.lock().closed = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            if !finished_by([&thread], deadline) {
                log::warn!("annotated pictures of camera {}: the last is not stored in time, left out", self.camera);
            } else if thread.join().is_err() {
                log::error!("annotated pictures of camera {}: a fault of visiond: please report it", self.camera);
            }
        }
        self.counts()
    }

    fn wants(&self, message: &Message) -> bool {
        let number = self.offered.fetch_add(1, Ordering::Relaxed);
        (self.every > 0 && number.is_multiple_of(self.every)) || (self.on_detection && !message.detections.is_empty())
    }
}

impl Drop for Annotator {
    fn drop(&mut self) {
        self.close(Instant::now());
    }
}

/// The thread's side.
struct Drawer {
    shared: Arc<Shared>,
    folder: PictureFolder,
    outage: Outage,
    maker: RgbConverter,
}

impl Drawer {
    fn run(&mut self) {
        while let Some((frame, message)) = self.next() {
            if !self.outage.may_try() {
                self.lost();
                continue;
            }
            let _trace = trace::work_on("draw", &message.camera, message.sequence);
            let picture = frame.view().map_err(Into::into).and_then(|view| self.maker.make(&view));
            drop(frame);
            let mut picture = match picture {
                Ok(picture) => picture,
                Err(error) => {
                    log::error!("camera {}: frame {} cannot be drawn: {error}", message.camera, message.sequence);
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            draw(&mut picture, &message.detections);
            let stored =
                encode(&picture, self.folder.format()).and_then(|bytes| self.folder.store(message.sequence, &bytes));
            match stored {
                Ok(()) => {
                    self.outage.works();
                    self.shared.written.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    self.outage.fails(&explain(&error));
                    self.lost();
                }
            }
        }
    }

    fn lost(&mut self) {
        self.outage.lost(1);
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The next frame to draw; `None` when closed and nothing waits.
    fn next(&self) -> Option<(Arc<Frame>, Arc<Message>)> {
        let mut slot = self.shared.slot.lock();
        loop {
            if let Some(taken) = slot.waiting.take() {
                self.shared.changed.notify_all();
                return Some(taken);
            }
            if slot.closed {
                return None;
            }
            self.shared.changed.wait(&mut slot);
        }
    }
}

#[cfg(test)]
mod tests;
