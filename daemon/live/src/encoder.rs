//! The threads that make pictures for whoever watches, for all cameras; started by the first watcher.
//!
//! Each camera has one frame here at most, taken in turn; its buffer is given back as soon as its pixels are read. One thread
//! works at a time: while cores are free at times, one that has the processor while nobody else wants it; else one that gets a
//! tenth of what others get, so that on a busy machine pictures become fewer before anything else does. Which, they find out
//! themselves (`room.rs`). Who could wait long for a lock that they hold, a lane, does not wait.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_annotate::draw::draw;
use visiond_annotate::picture::PictureMaker;
use visiond_flow::frame::Frame;
use visiond_flow::trace;
use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::jpeg::JpegEncoder;
use visiond_system::backoff::RateLimit;
use visiond_system::priority::{Rank, give_way};
use visiond_system::process::CpuWatch;
use visiond_system::threads::finished_by;

use super::room::{self, Room};
use super::view::{CameraView, OwnedFrame, Picture, Taken};
use super::{lock, try_lock};

/// How good pictures are: 1080p has about 200 KB.
const QUALITY: u8 = 80;
/// After so long without work its memory is given back.
const IDLE: Duration = Duration::from_secs(5);

/// The way to the threads.
#[derive(Debug)]
pub struct Encoder {
    queue: Mutex<Queue>,
    /// Something came for the thread that works at [`Rank::Nice`], at [`Rank::Idle`].
    nice: Condvar,
    idle: Condvar,
    /// Between two pictures of a camera.
    interval_ns: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Arc<CameraView>>,
    /// Whose turn it is.
    turn: Rank,
    /// There is a thread that has [`Rank::Idle`].
    has_idle: bool,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        let queue =
            Queue { waiting: VecDeque::new(), turn: Rank::Nice, has_idle: false, threads: Vec::new(), closed: false };
        Self {
            queue: Mutex::new(queue),
            nice: Condvar::new(),
            idle: Condvar::new(),
            interval_ns: AtomicU64::new(100_000_000),
        }
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

    /// Starts the threads unless they run; `false`: they cannot, or are not to any more.
    pub fn is_ready(self: &Arc<Self>) -> bool {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return false;
        }
        if queue.threads.is_empty() {
            let nice = Arc::clone(self);
            let started = thread::Builder::new().name("pictures".to_owned()).spawn(move || {
                give_way(Rank::Nice);
                nice.run(Rank::Nice);
            });
            let idle = Arc::clone(self);
            // From here, since who gives way starts none that gives way less.
            let started = started.and_then(|nice| {
                queue.threads.push(nice);
                thread::Builder::new().name("pictures-idle".to_owned()).spawn(move || {
                    // Where it may not, the other does it all.
                    if give_way(Rank::Idle) {
                        lock(&idle.queue).has_idle = true;
                        idle.run(Rank::Idle);
                    }
                })
            });
            match started {
                Ok(idle) => queue.threads.push(idle),
                Err(error) => log::error!("live pictures: the system gives no thread for them: {error}"),
            }
        }
        !queue.threads.is_empty()
    }

    /// A frame waits at `view`; `false`: not now, because the thread is at the queue. Never waits.
    pub fn try_push(&self, view: &Arc<CameraView>) -> bool {
        let Some(mut queue) = try_lock(&self.queue) else { return false };
        queue.waiting.push_back(Arc::clone(view));
        let turn = queue.turn;
        drop(queue);
        self.arrived(turn).notify_one();
        true
    }

    fn arrived(&self, turn: Rank) -> &Condvar {
        if turn == Rank::Idle { &self.idle } else { &self.nice }
    }

    /// From now on the other thread works, where there is one.
    fn hand_over(&self, turn: Rank) {
        let mut queue = lock(&self.queue);
        if turn == Rank::Idle && !queue.has_idle {
            return;
        }
        queue.turn = turn;
        drop(queue);
        self.arrived(turn).notify_one();
        match turn {
            Rank::Idle => log::debug!("live pictures: cores are free at times, made while they are"),
            _ => log::debug!("live pictures: no core is free, made with a tenth of one"),
        }
    }

    /// Is at the queue until this is dropped.
    #[cfg(test)]
    pub fn hold(&self) -> impl Drop {
        lock(&self.queue)
    }

    /// Ends the threads by `deadline`.
    pub fn close(&self, deadline: Instant) {
        let threads = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            queue.waiting.clear();
            std::mem::take(&mut queue.threads)
        };
        self.nice.notify_one();
        self.idle.notify_one();
        if !finished_by(&threads, deadline) {
            log::warn!("live pictures: the last is not made in time, left out");
        }
    }

    fn run(&self, rank: Rank) {
        let mut tools = Tools::new(rank);
        let mut complaints = RateLimit::new(Duration::from_secs(10));
        let mut room = Room::default();
        while let Some(view) = self.next(rank, &mut tools) {
            let Some(taken) = view.take() else { continue };
            let (begun, mut work) = (Instant::now(), CpuWatch::start());
            let sequence = taken.message.sequence;
            let trace = trace::work_on("encode", &taken.message.camera, sequence);
            let made = catch_unwind(AssertUnwindSafe(|| tools.make(&view, taken)));
            drop(trace);
            let error = match made {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(_) => {
                    tools = Tools::new(rank);
                    Some("a fault of visiond, told above: please report it".to_owned())
                }
            };
            if let Some(error) = error
                && let Some(held_back) = complaints.pass(Instant::now())
            {
                let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
                log::error!("camera {}: no live picture of frame {sequence}: {error}{more}", view.name);
            }
            let (elapsed, worked) = (begun.elapsed(), Duration::from_nanos(work.lap_ns()));
            if rank == Rank::Idle && room::is_gone(elapsed, worked) {
                self.hand_over(Rank::Nice);
            } else if rank == Rank::Nice && room.is_seen(elapsed, worked) {
                self.hand_over(Rank::Idle);
            }
            view.done();
        }
    }

    /// The next view that a frame waits at, once it is this thread's turn; `None`: no more is to be done.
    fn next(&self, rank: Rank, tools: &mut Tools) -> Option<Arc<CameraView>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            let turn = queue.turn == rank;
            if turn && let Some(view) = queue.waiting.pop_front() {
                return Some(view);
            }
            queue = if tools.are_empty() {
                self.arrived(rank).wait(queue).unwrap_or_else(PoisonError::into_inner)
            } else {
                let (queue, waited) =
                    self.arrived(rank).wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
                if waited.timed_out() && (!turn || queue.waiting.is_empty()) {
                    *tools = Tools::new(rank);
                }
                queue
            };
        }
    }
}

/// What pictures are made with; empty until the first.
struct Tools {
    /// Called between a picture's stripes.
    pause: fn(),
    maker: PictureMaker,
    jpeg: Option<JpegEncoder>,
}

impl Tools {
    fn new(rank: Rank) -> Self {
        // Linux since 6.6 lets a thread of the lowest rank go on until the next tick, 4 ms, when the one that woke on its core
        // had more than its share of late. For a tenth of the processor it would wait after each stripe, so then not.
        let pause = if rank == Rank::Idle { thread::yield_now } else { || {} };
        Self { pause, maker: PictureMaker::default(), jpeg: None }
    }

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
        let jpeg = match &mut self.jpeg {
            Some(jpeg) => jpeg,
            none => {
                let new = JpegEncoder::new(QUALITY).map_err(|error| sentence(&error))?;
                none.insert(new.pausing(self.pause))
            }
        };

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
