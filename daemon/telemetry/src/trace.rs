//! A trace of what every thread does with every frame, recorded on request for a few seconds.
//!
//! Threads report their work ([`work`]) and its frame; the lane reports the stages of a frame ([`frame`]). Without a recording,
//! each report costs one relaxed load. During a recording, it takes a lock while 64 bytes are moved. The recording is limited to
//! [`MOST_EVENTS`], some 6 MB; further events are only counted.
//!
//! [`Trace::write`] writes the JSON that Perfetto and Chrome's tracing page display.

mod json;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use visiond_frames::clock::{Clock, SystemClock};
use visiond_message::Message;
use visiond_system::logging::{self, Subject};

/// Maximum events of a recording: 8 cameras at 30 frames a second with three sinks make some 4,000 a second.
pub const MOST_EVENTS: usize = 100_000;

/// Maximum seconds of a recording.
pub const MOST_SECONDS: u64 = 60;

/// Name of the event for a whole frame; the page shows the name of the camera, and of its further model.
const FRAME: &str = "frame";

/// Name of the work that hands a frame to all models of its camera.
pub const DELIVER: &str = "deliver";

/// Whether a recording runs. Only a hint: [`STATE`] decides.
static ON: AtomicBool = AtomicBool::new(false);

static STATE: Mutex<Option<Trace>> = Mutex::new(None);

thread_local! {
    /// The kernel's number of this thread.
    // SAFETY: gettid(2) takes no argument, touches no memory and cannot fail.
    static THREAD: u32 = unsafe { libc::gettid() }.unsigned_abs();
}

/// A recording runs already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a trace is already being recorded: wait until it is done, then try again")]
pub struct Busy;

/// A running recording. Dropping it discards the events.
#[derive(Debug)]
pub struct Recording(());

/// A finished recording.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    events: Vec<Event>,
    /// Numbers and names of the threads in the events.
    threads: Vec<(u32, String)>,
    /// Events after the first [`MOST_EVENTS`].
    lost: u64,
}

/// An event with its start and end.
#[derive(Debug, Clone)]
struct Event {
    kind: Kind,
    what: &'static str,
    thread: u32,
    from_ns: u64,
    to_ns: u64,
    frame: Option<FrameKey>,
}

/// A frame of a model, by topic (see [`Message::topic`]) and number.
type FrameKey = (Arc<str>, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Work of a thread.
    Work,
    /// A frame that a thread worked on; has no duration.
    InHand,
    /// A stage of a frame, in any thread.
    Stage,
}

/// Starts a recording.
///
/// # Errors
/// Another recording runs.
pub fn start() -> Result<Recording, Busy> {
    let mut state = STATE.lock();
    if state.is_some() {
        return Err(Busy);
    }
    *state = Some(Trace { events: Vec::with_capacity(MOST_EVENTS), ..Trace::default() });
    ON.store(true, Ordering::Relaxed);
    Ok(Recording(()))
}

impl Recording {
    /// Ends the recording and returns it.
    pub fn finish(self) -> Trace {
        ON.store(false, Ordering::Relaxed);
        // The following drop finds no recording.
        STATE.lock().take().unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        ON.store(false, Ordering::Relaxed);
        drop(STATE.lock().take());
    }
}

/// Work of a thread, which ends when this is dropped.
#[must_use = "the work ends when this is dropped"]
pub struct Work(Option<Event>);

/// Reports that this thread starts `what`. Costs one relaxed load without a recording.
pub fn work(what: &'static str) -> Work {
    Work(is_on().then(|| Event {
        kind: Kind::Work,
        what,
        thread: THREAD.with(|thread| *thread),
        from_ns: SystemClock.monotonic_ns(),
        to_ns: 0,
        frame: None,
    }))
}

/// Reports that this thread starts `what` with a frame, for the camera and model of `topic` (see [`Message::topic`]).
pub fn work_on(what: &'static str, topic: &Arc<str>, sequence: u64) -> Work {
    let mut work = work(what);
    if let Work(Some(event)) = &mut work {
        event.frame = Some((Arc::clone(topic), sequence));
    }
    work
}

impl Work {
    /// Reports that the work also concerns this frame.
    pub fn frame(&self, topic: &Arc<str>, sequence: u64) {
        if let Self(Some(event)) = self {
            let frame = Some((Arc::clone(topic), sequence));
            record(Event { kind: Kind::InHand, to_ns: event.from_ns, frame, ..event.clone() });
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(event) = self.0.take() {
            record(Event { to_ns: SystemClock.monotonic_ns(), ..event });
        }
    }
}

/// Reports the stages of a frame that was published at `end_ns`, in sequence, with the durations of its message. Time between
/// the inference and the last stage is waiting.
pub fn frame(message: &Message, end_ns: u64) {
    if !is_on() {
        return;
    }
    let stage = |what, from_ns: u64, to_ns: u64| {
        let frame = Some((Arc::clone(&message.topic), message.sequence));
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

fn record(event: Event) {
    // Freed outside the lock if it is discarded.
    let mut state = STATE.lock();
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

/// Returns the name of this thread. Threads of sinks are named by type, so the name of the sink is used instead.
fn thread_name() -> String {
    match logging::subject(Subject::Sink) {
        Some(sink) => format!("sink {sink}"),
        None => std::thread::current().name().unwrap_or("unnamed").to_owned(),
    }
}

#[cfg(test)]
mod tests;
