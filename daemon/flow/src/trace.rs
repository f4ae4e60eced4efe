//! A recording of what every thread does with every frame, for a few seconds, when somebody asks for it.
//!
//! Threads say what they do ([`work`]) and which frame it is about; the lane tells a frame's stages ([`frame`]). While nobody
//! records, each of these is one relaxed load. While somebody does, it is a lock that is held for the move of 64 bytes, and
//! what is kept is bounded: [`MOST_EVENTS`], some 6 MB; what comes then is counted.
//!
//! [`Trace::write`] makes of it the JSON that Perfetto and Chrome's tracing page show.

mod json;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use visiond_system::logging::{self, Subject};

use crate::clock::{Clock, SystemClock};
use crate::message::Message;

/// Events of a recording at most: 8 cameras at 30 frames a second with three sinks make some 4,000 a second.
pub const MOST_EVENTS: usize = 100_000;

/// Seconds of a recording at most.
pub const MOST_SECONDS: u64 = 60;

/// What a whole frame's stage is called here; the page shows the camera's name.
const FRAME: &str = "frame";

/// Whether somebody records. Only a hint: what counts is whether [`STATE`] holds a recording.
static ON: AtomicBool = AtomicBool::new(false);

static STATE: Mutex<Option<Trace>> = Mutex::new(None);

thread_local! {
    /// This thread's number, once it was asked for; 0 before.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// A recording is under way already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a trace is being recorded already: wait until it is done, then ask again")]
pub struct Busy;

/// A recording under way; dropped, it ends and is forgotten.
#[derive(Debug)]
pub struct Recording(());

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    events: Vec<Event>,
    /// Threads that events name, with what they are called.
    threads: Vec<(u32, String)>,
    /// What came when [`MOST_EVENTS`] were there.
    lost: u64,
}

/// Something that took time.
#[derive(Debug, Clone)]
struct Event {
    kind: Kind,
    what: &'static str,
    thread: u32,
    from_ns: u64,
    to_ns: u64,
    frame: Option<Frame>,
}

/// A frame: its camera and number.
type Frame = (Arc<str>, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What a thread did.
    Work,
    /// A frame that the thread had in hand while it did that; takes no time.
    InHand,
    /// A stage of a frame, whoever did it.
    Stage,
}

/// Begins to record.
pub fn start() -> Result<Recording, Busy> {
    let mut state = lock();
    if state.is_some() {
        return Err(Busy);
    }
    *state = Some(Trace { events: Vec::with_capacity(MOST_EVENTS), ..Trace::default() });
    ON.store(true, Ordering::Relaxed);
    Ok(Recording(()))
}

impl Recording {
    /// Ends it.
    pub fn finish(self) -> Trace {
        ON.store(false, Ordering::Relaxed);
        // The drop that follows finds nothing.
        lock().take().unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        ON.store(false, Ordering::Relaxed);
        drop(lock().take());
    }
}

/// What a thread does from now until this is dropped.
#[must_use = "it is over when this is dropped"]
pub struct Work(Option<Event>);

/// From now on this thread does `what`. Costs one relaxed load while nobody records.
pub fn work(what: &'static str) -> Work {
    Work(is_on().then(|| Event { kind: Kind::Work, what, thread: thread(), from_ns: now_ns(), to_ns: 0, frame: None }))
}

/// From now on this thread does `what` with a frame.
pub fn work_on(what: &'static str, camera: &Arc<str>, sequence: u64) -> Work {
    let mut work = work(what);
    if let Work(Some(event)) = &mut work {
        event.frame = Some((Arc::clone(camera), sequence));
    }
    work
}

impl Work {
    /// It is about this frame, too.
    pub fn frame(&self, camera: &Arc<str>, sequence: u64) {
        if let Self(Some(event)) = self {
            let frame = Some((Arc::clone(camera), sequence));
            record(Event { kind: Kind::InHand, to_ns: event.from_ns, frame, ..event.clone() });
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(event) = self.0.take() {
            record(Event { to_ns: now_ns(), ..event });
        }
    }
}

/// A frame was looked at and published at `end_ns`: its stages, laid one behind the other as its message tells them. What
/// stands between the network and the end is waiting, but for the last stage.
pub fn frame(message: &Message, end_ns: u64) {
    if !is_on() {
        return;
    }
    let stage = |what, from_ns: u64, to_ns: u64| {
        let frame = Some((Arc::clone(&message.camera), message.sequence));
        record(Event { kind: Kind::Stage, what, thread: 0, from_ns, to_ns: to_ns.min(end_ns), frame });
    };
    let times = &message.timings_us;
    let mut at_ns = message.monotonic_ns.min(end_ns);
    stage(FRAME, at_ns, end_ns);
    let stages =
        [("capture", times.capture), ("queue", times.queue), ("preprocess", times.preprocess), ("infer", times.infer)];
    for (what, us) in stages {
        let to_ns = at_ns.saturating_add(us.saturating_mul(1_000)).min(end_ns);
        stage(what, at_ns, to_ns);
        at_ns = to_ns;
    }
    stage("postprocess", end_ns.saturating_sub(times.postprocess.saturating_mul(1_000)).max(at_ns), end_ns);
}

fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

fn now_ns() -> u64 {
    SystemClock.monotonic_ns()
}

fn lock() -> MutexGuard<'static, Option<Trace>> {
    // A panic elsewhere leaves a list of whole events behind.
    STATE.lock()
}

fn record(event: Event) {
    // Freed outside the lock where it is not kept.
    let mut state = lock();
    let Some(trace) = &mut *state else { return };
    if trace.events.len() >= MOST_EVENTS {
        trace.lost += 1;
        return;
    }
    if event.thread != 0 && !trace.threads.iter().any(|(thread, _)| *thread == event.thread) {
        trace.threads.push((event.thread, thread_name()));
    }
    trace.events.push(event);
}

/// The system's number of this thread.
fn thread() -> u32 {
    THREAD.with(|known| {
        if known.get() == 0 {
            // SAFETY: gettid(2) takes nothing, touches no memory and cannot fail.
            known.set(unsafe { libc::gettid() }.unsigned_abs());
        }
        known.get()
    })
}

/// A sink's thread is called by its kind, which does not tell two of them apart.
fn thread_name() -> String {
    match logging::subject(Subject::Sink) {
        Some(sink) => format!("sink {sink}"),
        None => std::thread::current().name().unwrap_or("unnamed").to_owned(),
    }
}

#[cfg(test)]
mod tests;
