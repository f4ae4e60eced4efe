//! The thread that makes pictures for whoever watches: one for all cameras, started by the first watcher.
//!
//! Each camera has one frame here at most, taken in turn; its buffer is given back as soon as its pixels are read. The
//! thread yields to all others (nice 10), so that on a busy machine pictures become fewer before anything else does.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::jpeg::JpegEncoder;

use super::lock;
use super::view::{CameraView, OwnedFrame, Picture, Taken};
use crate::annotate::draw::draw;
use crate::annotate::picture::PictureMaker;
use crate::capture::frame::Frame;
use crate::pipeline::backoff::RateLimit;
use crate::pipeline::trace;
use crate::priority::{Work, give_way};

/// How good pictures are: 1080p has about 200 KB.
const QUALITY: u8 = 80;
/// After so long without work its memory is given back.
const IDLE: Duration = Duration::from_secs(5);

/// The way to the thread.
#[derive(Debug)]
pub struct Encoder {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Between two pictures of a camera.
    interval_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<CameraView>>,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { queue: Mutex::default(), arrived: Condvar::new(), interval_ns: AtomicU64::new(100_000_000) }
    }
}

impl Encoder {
    /// At most so many pictures a second of each camera.
    pub fn set_max_fps(&self, fps: f64) {
        self.interval_ns.store((1e9 / fps.max(1e-3)) as u64, Ordering::Relaxed);
    }

    /// Between two pictures of a camera.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns.load(Ordering::Relaxed)
    }

    /// Starts the thread unless it runs; `false`: it cannot, or is not to any more.
    pub fn is_ready(self: &Arc<Self>) -> bool {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return false;
        }
        if queue.thread.is_none() {
            let encoder = Arc::clone(self);
            match thread::Builder::new().name("pictures".to_owned()).spawn(move || {
                give_way(Work::Pictures);
                encoder.run();
            }) {
                Ok(thread) => queue.thread = Some(thread),
                Err(error) => log::error!("live pictures: the system gives no thread for them: {error}"),
            }
        }
        queue.thread.is_some()
    }

    /// A frame waits at `view`.
    pub fn push(&self, view: &Arc<CameraView>) {
        lock(&self.queue).waiting.push_back(Arc::clone(view));
        self.arrived.notify_one();
    }

    /// Ends the thread by `deadline`.
    pub fn close(&self, deadline: Instant) {
        let thread = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            queue.waiting.clear();
            queue.thread.take()
        };
        self.arrived.notify_one();
        let Some(thread) = thread else { return };
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if !thread.is_finished() {
            log::warn!("live pictures: the last is not made in time, left out");
        }
    }

    fn run(&self) {
        let mut tools = Tools::default();
        let mut complaints = RateLimit::new(Duration::from_secs(10));
        while let Some(view) = self.next(&mut tools) {
            let Some(taken) = view.take() else { continue };
            let sequence = taken.message.sequence;
            let trace = trace::work_on("encode", &taken.message.camera, sequence);
            let made = catch_unwind(AssertUnwindSafe(|| tools.make(&view, taken)));
            drop(trace);
            let error = match made {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(_) => {
                    tools = Tools::default();
                    Some("a fault of visiond, told above: please report it".to_owned())
                }
            };
            if let Some(error) = error
                && let Some(held_back) = complaints.pass(Instant::now())
            {
                let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
                log::error!("camera {}: no live picture of frame {sequence}: {error}{more}", view.name);
            }
            view.done();
        }
    }

    /// The next view that a frame waits at; `None`: no more is to be done.
    fn next(&self, tools: &mut Tools) -> Option<Arc<CameraView>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(view) = queue.waiting.pop_front() {
                return Some(view);
            }
            queue = if tools.are_empty() {
                self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner)
            } else {
                let (queue, idle) = self.arrived.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
                if idle.timed_out() && queue.waiting.is_empty() {
                    *tools = Tools::default();
                }
                queue
            };
        }
    }
}

/// What pictures are made with; empty until the first.
#[derive(Default)]
struct Tools {
    maker: PictureMaker,
    jpeg: Option<JpegEncoder>,
}

impl Tools {
    fn are_empty(&self) -> bool {
        self.jpeg.is_none()
    }

    /// Makes of a frame what is wanted.
    fn make(&mut self, view: &CameraView, taken: Taken) -> Result<(), String> {
        let Taken { frame, message, copies, plain, overlay } = taken;
        for give in copies {
            // Who does not wait any more wants no copy either.
            let _ = give.try_send(copy(&frame)?);
        }
        if !plain && !overlay {
            return Ok(());
        }
        let sequence = message.sequence;
        let picture = |jpeg: Vec<u8>| Picture { jpeg: Bytes::from(jpeg), sequence, made: Instant::now() };
        let sentence = |error: &dyn std::fmt::Display| error.to_string();
        let jpeg = self.jpeg.get_or_insert(JpegEncoder::new(QUALITY).map_err(|error| sentence(&error))?);

        let pixels = frame.view().map_err(|error| sentence(&error))?;
        // Reads the pixels, and encodes them later: the buffer goes back in between.
        let read = plain && jpeg.read(&pixels);
        let rgb = match (overlay, plain && !read) {
            (false, false) => None,
            _ => Some(self.maker.make(&pixels).map_err(|error| sentence(&error))?),
        };
        drop(frame);
        if read {
            view.show(false, picture(jpeg.encode_read().map_err(|error| sentence(&error))?));
        }
        let Some(mut rgb) = rgb else { return Ok(()) };
        let (width, height) = rgb.dimensions();
        if plain && !read {
            view.show(false, picture(jpeg.encode_rgb(&rgb, width, height).map_err(|error| sentence(&error))?));
        }
        if overlay {
            draw(&mut rgb, &message.detections);
            view.show(true, picture(jpeg.encode_rgb(&rgb, width, height).map_err(|error| sentence(&error))?));
        }
        Ok(())
    }
}

/// The frame in memory of its own.
fn copy(frame: &Frame) -> Result<OwnedFrame, String> {
    let bytes = frame.buffer.as_slice();
    let needed = frame.layout.needed_bytes().min(bytes.len());
    let mut buffer = UnifiedBuffer::host(needed).map_err(|error| error.to_string())?;
    buffer.as_mut_slice().copy_from_slice(&bytes[..needed]);
    Ok(OwnedFrame { layout: frame.layout, buffer })
}
