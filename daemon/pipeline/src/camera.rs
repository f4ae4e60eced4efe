//! A camera's thread: opens the source, puts its frames into the mailboxes of its lanes, and opens it again when it is lost.
//!
//! ```text
//!            open fails, retry helps          frames end
//! Opening ------------------------> Waiting   Streaming ------> Ended
//!    |  ^-- pause over, or news ------|  ^-------| source dies
//!    |---> Streaming                     a pause of 0.25 s, doubling to 5 s; to 1.5 s where the source is a device,
//!    |                                           to 0.5 s where it is a network camera that is away
//!    |---> Failed: a retry alone cannot help (no such file, no video). Retried every 30 s all the same, in case a person
//!          acts, but only while another camera has not ended: see `ActiveCameras`. A device may be replaced at any time:
//!          it is retried every 5 s, and never given up.
//! ```
//! The thread ends when the source has ended, when it is given up, and when it is stopped. Each change of state is one line
//! in the log. A different reason for an absence is logged only once it lasts. If a network camera comes and goes, one line
//! says so, and a later one says that it is stable again. Sequence numbers continue through restarts and reloads, so that
//! they order a camera's messages.

mod short_streams;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use visiond_capture::source::{Next, Open, Source, SourceError};
use visiond_frames::clock::Clock;
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_system::backoff::Backoff;
use visiond_system::logging::{self, Subject, events};
use visiond_system::process::CpuWatch;
use visiond_system::stop::{Stop, Wake};
use visiond_telemetry::metrics::{CameraMetrics, Phase};

use self::short_streams::ShortStreams;
pub use self::stream::CameraStream;
use crate::collector::Joiner;
use crate::frame_rate::FrameRate;
use crate::lane::{LaneSlot, NeedsRestart, end_for_restart};
use crate::stream_threads::{Seat, StreamThreads};

/// When a lost camera is opened again, and how often its errors are logged.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The first pause before a lost source is opened again; it doubles with each attempt.
    pub first: Duration,
    /// The longest pause.
    pub limit: Duration,
    /// The longest pause for a device, which must stream within 2 s of being back, even without a udev event.
    pub device_limit: Duration,
    /// The longest pause for a network camera that is away, which must stream within 2 s of being back. The kernel may need 1
    /// s of that to resolve its address (ARP).
    pub absent_limit: Duration,
    /// The pause after an error that the user must fix.
    pub failed: Duration,
    /// The same for a device.
    pub device_failed: Duration,
    /// A source that streamed this long is stable: the next pause is the first again.
    pub stable: Duration,
    /// The same for a device, and for a network camera that is away.
    pub device_stable: Duration,
    /// How often to log an unchanged error.
    pub repeat_log: Duration,
    /// Another reason is logged once it has lasted this long; a camera on its way back shows several in turn.
    pub lasting: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            limit: Duration::from_secs(5),
            device_limit: Duration::from_millis(1_500),
            absent_limit: Duration::from_millis(500),
            failed: Duration::from_secs(30),
            device_failed: Duration::from_secs(5),
            stable: Duration::from_secs(10),
            device_stable: Duration::from_secs(2),
            repeat_log: Duration::from_secs(300),
            lasting: Duration::from_secs(5),
        }
    }
}

/// Counts the cameras that may still deliver frames; shared by all cameras.
///
/// A camera leaves when it has ended, or when it has failed in a way that a retry cannot fix. When all have left, the failed
/// ones give up as well, and the daemon can end.
#[derive(Debug)]
pub struct ActiveCameras {
    unsettled: RankedMutex<usize>,
    over: Stop,
}

impl ActiveCameras {
    /// Starts with this many cameras.
    pub fn new(cameras: usize) -> std::io::Result<Self> {
        Ok(Self { unsettled: RankedMutex::new(LockRank(2), cameras), over: Stop::new()? })
    }

    /// Makes the failed cameras give up, regardless of the others.
    pub fn stop_retries(&self) {
        self.over.raise();
    }

    /// Notes that a camera has ended, or has failed in a way that a retry cannot fix.
    pub fn leave(&self) {
        let mut unsettled = self.unsettled.lock();
        *unsettled -= 1;
        if *unsettled == 0 {
            self.over.raise();
        }
    }

    /// Adds a camera.
    pub fn enter(&self) {
        *self.unsettled.lock() += 1;
    }

    /// Lets a camera that had left try again; returns `false` if it is too late.
    pub fn reenter(&self) -> bool {
        let mut unsettled = self.unsettled.lock();
        if self.over.is_raised() {
            return false;
        }
        *unsettled += 1;
        true
    }
}

/// The threads that each serve the streams of many cameras.
pub type CameraStreams = StreamThreads<CameraStream>;

/// A camera's thread, before it runs.
pub struct Camera {
    /// The camera's counters and name.
    pub metrics: Arc<CameraMetrics>,
    /// Opens the source.
    pub open: Open,
    /// Its slot in the mailbox of each of its lanes.
    pub slots: Vec<LaneSlot>,
    /// Joins the results of the lanes, if the configuration asks for it.
    pub joiner: Option<Arc<Joiner>>,
    /// The next number that a message may carry; outlives the thread.
    pub sequence: Arc<AtomicU64>,
    /// Counts the cameras that may still deliver frames.
    pub active_cameras: Arc<ActiveCameras>,
    /// When to reopen a lost source.
    pub retry_policy: RetryPolicy,
    /// Which frames to process.
    pub frame_rate: FrameRate,
    /// The clock for arrival times, and for how long the source streams or is away.
    pub clock: Arc<dyn Clock>,
    /// Runs a stream that needs no thread of its own.
    pub stream_threads: Arc<CameraStreams>,
    /// Ends the thread.
    pub stop: Stop,
    /// Ends the daemon.
    pub end: Stop,
    /// Set when only a new process can continue.
    pub needs_restart: NeedsRestart,
}

/// The state of the thread.
enum CameraState {
    /// The source is about to be opened.
    Opening,
    /// The source is open.
    Streaming { source: Box<dyn Source>, since_ns: u64 },
    /// The source is away; it is opened again after `pause`.
    Waiting { pause: Duration },
    /// The source cannot be opened until the user acts.
    Failed,
    /// The source has ended, was given up, or was stopped.
    Ended,
}

/// The facts that the thread keeps from one state to the next.
struct RetryState {
    backoff: Backoff,
    /// Whether the camera has left [`ActiveCameras`].
    settled: bool,
    /// Whether the source was ever open.
    opened: bool,
    /// When the source went away, in nanoseconds on CLOCK_MONOTONIC like the other times here.
    away: Option<u64>,
    /// The source's description, to be logged with its first frame.
    returns: Option<String>,
    /// The last error and when it was logged.
    logged: Option<(Arc<str>, u64)>,
    /// A different error after it, and when that first occurred.
    unlogged: Option<(Arc<str>, u64)>,
    short_streams: ShortStreams,
}

impl Camera {
    /// Runs until the source has ended, is given up, or is stopped.
    pub fn run(mut self) {
        logging::about(Subject::Camera, Arc::clone(&self.metrics.name));
        self.stop = self.stop.with_beat(Arc::clone(&self.metrics.beat));
        let limit = if self.open.is_device() { self.retry_policy.device_limit } else { self.retry_policy.limit };
        let backoff = Backoff::new(self.retry_policy.first, limit);
        let mut retry = RetryState {
            backoff,
            settled: false,
            opened: false,
            away: None,
            returns: None,
            logged: None,
            unlogged: None,
            short_streams: ShortStreams::default(),
        };
        let mut state = CameraState::Opening;
        loop {
            // A panic drops the source with the state; `retry` and the mailboxes hold whole values at every call.
            let step = catch_unwind(AssertUnwindSafe(|| match state {
                CameraState::Opening => Some(self.open(&mut retry)),
                CameraState::Streaming { source, since_ns } => Some(self.stream(source, since_ns, &mut retry)),
                CameraState::Waiting { pause } => Some(self.wait(pause, &mut retry)),
                CameraState::Failed if self.open.is_device() => {
                    Some(self.wait(self.retry_policy.device_failed, &mut retry))
                }
                CameraState::Failed => Some(self.wait_for_help(&mut retry)),
                CameraState::Ended => None,
            }));
            state = match step {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(_) => self.lost(&SourceError::transient("its thread panicked, see above"), &mut retry),
            };
        }
        // A camera that failed keeps its phase.
        if self.metrics.phase() != Phase::Failed {
            self.metrics.enter(Phase::Ended);
        }
        if !retry.settled {
            self.active_cameras.leave();
        }
        self.slots.iter().for_each(LaneSlot::end);
    }

    fn open(&mut self, retry: &mut RetryState) -> CameraState {
        self.stop.mark_progress();
        if self.stop.is_raised() {
            return CameraState::Ended;
        }
        self.metrics.enter(Phase::Opening);
        match self.open.open() {
            Ok(source) => self.opened(source, retry),
            Err(error) => self.lost(&error, retry),
        }
    }

    fn opened(&self, source: Box<dyn Source>, retry: &mut RetryState) -> CameraState {
        if std::mem::replace(&mut retry.opened, true) {
            self.metrics.restarts.add(1);
        }
        if retry.away.is_some() && !source.may_idle() {
            // A source that opens but delivers no frame is not back: see `frame_came`.
            self.metrics.enter(Phase::Waiting);
            retry.returns = Some(source.describe());
        } else {
            (retry.away, retry.logged, retry.unlogged) = (None, None, None);
            self.metrics.enter(Phase::Streaming);
            self.metrics.set_io(source.io());
            self.metrics.set_reason(None);
            let (name, is) = (&self.metrics.name, source.describe());
            log::info!(message_id = events::CAMERA_STREAMING; "camera {name}: {is}");
        }
        CameraState::Streaming { source, since_ns: self.clock.monotonic_ns() }
    }

    fn stream(&mut self, source: Box<dyn Source>, since_ns: u64, retry: &mut RetryState) -> CameraState {
        let mut stream = CameraStream {
            source,
            frame_rate: self.frame_rate,
            metrics: Arc::clone(&self.metrics),
            slots: self.slots.clone(),
            joiner: self.joiner.clone(),
            sequence: Arc::clone(&self.sequence),
            clock: Arc::clone(&self.clock),
            stop: self.stop.clone(),
            base: self.sequence.load(Ordering::Relaxed),
            copied_bytes: 0,
            came: None,
        };
        let mut waits = retry.away.is_some();
        // When frames started to arrive, if they do.
        let mut frames_since_ns = None;
        let mut decoder = None;
        let mut seat = None;
        let mut cpu = CpuWatch::start();
        let error = loop {
            match stream.next(&mut cpu) {
                Ok(Next::Frame(frame)) => {
                    if std::mem::take(&mut waits) {
                        self.metrics.enter(Phase::Streaming);
                        self.metrics.set_io(stream.source.io());
                        retry.returns = Some(stream.source.describe());
                    }
                    if decoder != stream.source.decoder() {
                        decoder = stream.source.decoder();
                        self.metrics.set_decoder(decoder);
                    }
                    let since_ns = *frames_since_ns.get_or_insert_with(|| self.clock.monotonic_ns());
                    self.frame_came(retry, since_ns, stream.source.as_ref());
                    if !stream.deliver(frame) {
                        return CameraState::Ended;
                    }
                    // While it comes and goes, its own thread checks when it is stable.
                    if !retry.short_streams.are_many()
                        && stream.source.shares_thread().is_some()
                        && let Ok(seat) = seat.get_or_insert_with(|| self.seat())
                    {
                        match seat.work(stream) {
                            Some(back) => stream = back,
                            None => {
                                return self
                                    .lost(&SourceError::transient("its shared thread panicked, see above"), retry);
                            }
                        }
                    }
                }
                Ok(Next::Lost { frames, cause }) => self.metrics.count_dropped(cause.into(), frames),
                Ok(Next::Waiting { reason }) => {
                    waits = true;
                    self.metrics.set_reason(Some(Arc::clone(&reason)));
                    self.metrics.enter(Phase::Waiting);
                    self.frames_ended(frames_since_ns.take(), retry);
                    let error = SourceError::transient(reason);
                    // A source reports each change once, so a different reason does not have to last; the same one may come
                    // from a flapping camera.
                    let is_same = retry.logged.as_ref().is_some_and(|(logged, _)| *logged == error.message);
                    if !is_same || !retry.short_streams.are_many() {
                        retry.logged = None;
                    }
                    self.log_error(&error, retry, "");
                }
                Ok(Next::End) => {
                    log::info!("camera {}: its source has ended", self.metrics.name);
                    return CameraState::Ended;
                }
                Ok(Next::Stopped) => return CameraState::Ended,
                Err(error) => break error,
            }
        };
        // The rates of camera and models go on where they were.
        self.frame_rate = stream.frame_rate;
        self.slots = std::mem::take(&mut stream.slots);
        // Frees its device, child process and buffers before the pause.
        drop(stream);
        let is_quick = self.open.is_device() || error.is_absent();
        let stable = if is_quick { self.retry_policy.device_stable } else { self.retry_policy.stable };
        if self.elapsed(since_ns) >= stable {
            retry.backoff.reset();
        }
        self.frames_ended(frames_since_ns, retry);
        self.lost(&error, retry)
    }

    /// Notes that frames have stopped, if there were any. Each loss and return of a device is logged, because an unplugged
    /// camera and a loose cable must both be visible.
    fn frames_ended(&self, since_ns: Option<u64>, retry: &mut RetryState) {
        if let Some(since_ns) = since_ns.filter(|_| !self.open.is_device()) {
            retry.short_streams.lost(self.elapsed(since_ns), self.retry_policy.stable, self.clock.monotonic_ns());
        }
    }

    /// Ends the absence of the camera, and logs that it is back, or stable again if it was flapping.
    fn frame_came(&self, retry: &mut RetryState, since_ns: u64, source: &dyn Source) {
        retry.unlogged = None;
        if retry.short_streams.are_many() {
            if retry.away.take().is_some() {
                self.metrics.set_reason(None);
            }
            if self.elapsed(since_ns) >= self.retry_policy.stable {
                let (name, is) = (&self.metrics.name, source.describe());
                let losses = retry.short_streams.text(since_ns);
                retry.short_streams.end();
                log::info!(message_id = events::CAMERA_STREAMING; "camera {name}: steady after it was {losses}: {is}");
            }
            return;
        }
        retry.logged = None;
        let away = retry.away.take();
        if away.is_some() {
            self.metrics.set_reason(None);
        }
        if let Some((away, is)) = away.zip(retry.returns.take()) {
            let (name, seconds) = (&self.metrics.name, self.elapsed(away).as_secs_f64());
            let word = if self.sequence.load(Ordering::Relaxed) == 0 { "there" } else { "back" };
            log::info!(message_id = events::CAMERA_STREAMING; "camera {name}: {word} after {seconds:.1} s: {is}");
        }
    }

    /// Returns a seat on a thread that many cameras share.
    fn seat(&self) -> std::io::Result<Seat<CameraStream>> {
        self.stream_threads.seat().inspect_err(|error| {
            log::debug!("camera {}: it keeps its own thread, because there is no other: {error}", self.metrics.name);
        })
    }

    /// Counts and logs an error. If a retry cannot fix it, a camera that is not a device leaves [`ActiveCameras`].
    fn lost(&self, error: &SourceError, retry: &mut RetryState) -> CameraState {
        self.metrics.errors.add(1);
        self.metrics.set_reason(Some(Arc::clone(&error.message)));
        if let Some(exit) = error.restart() {
            let who = format!("camera {}", self.metrics.name);
            end_for_restart(&self.needs_restart, &self.end, &who, exit, error);
            return CameraState::Ended;
        }
        if error.may_pass() {
            self.metrics.enter(Phase::Waiting);
            let limit = if error.is_absent() { self.retry_policy.absent_limit } else { self.retry_policy.limit };
            let pause = retry.backoff.pause_within(limit);
            self.log_error(error, retry, &format!("; trying again in {:.1} s", pause.as_secs_f64()));
            self.miss_frames(retry);
            return CameraState::Waiting { pause };
        }
        self.metrics.enter(Phase::Failed);
        self.log_error(error, retry, "");
        self.miss_frames(retry);
        if !self.open.is_device() {
            self.active_cameras.leave();
            retry.settled = true;
        }
        CameraState::Failed
    }

    /// Ends the events of the camera if it has been away for so long that its next frame would end them.
    fn miss_frames(&self, retry: &RetryState) {
        let Some((away, slot)) = retry.away.zip(self.slots.first()) else { return };
        if let Some(collector) = slot.mailbox.camera(slot.number) {
            collector.miss_frames(self.elapsed(away));
        }
    }

    fn wait(&mut self, pause: Duration, retry: &mut RetryState) -> CameraState {
        match self.open.wait(pause, &self.stop) {
            Wake::Stopped => return CameraState::Ended,
            Wake::Ready => retry.backoff.reset(),
            Wake::TimedOut => {}
        }
        CameraState::Opening
    }

    fn wait_for_help(&self, retry: &mut RetryState) -> CameraState {
        let over = self.stop.wait_readable(self.active_cameras.over.as_fd(), Some(self.retry_policy.failed));
        if !matches!(over, Ok(Wake::TimedOut)) || !self.active_cameras.reenter() {
            return CameraState::Ended;
        }
        retry.settled = false;
        CameraState::Opening
    }

    /// Logs an error: an unchanged one at intervals, a different one once it lasts.
    fn log_error(&self, error: &SourceError, retry: &mut RetryState, then: &str) {
        let (name, now_ns) = (&self.metrics.name, self.clock.monotonic_ns());
        let is_first = retry.away.is_none();
        retry.away.get_or_insert(now_ns);
        let begins_row = is_first && retry.short_streams.became_many();
        if retry.logged.is_some() && !begins_row && !self.is_news(error, retry) {
            log::debug!("camera {name}: still: {error}{then}");
            return;
        }
        retry.logged = Some((Arc::clone(&error.message), now_ns));
        retry.unlogged = None;
        let then = match begins_row {
            true => format!(
                "; {}: fewer lines until it streams for {} s",
                retry.short_streams.text(now_ns),
                self.retry_policy.stable.as_secs_f64()
            ),
            false => then.to_owned(),
        };
        let level = if error.may_pass() { log::Level::Warn } else { log::Level::Error };
        log::log!(level, message_id = events::CAMERA_LOST; "camera {name}: {error}{then}");
    }

    /// Whether an error differs enough from the one that was logged.
    fn is_news(&self, error: &SourceError, retry: &mut RetryState) -> bool {
        if let Some((logged, when)) = &retry.logged
            && *logged == error.message
        {
            retry.unlogged = None;
            return self.elapsed(*when) >= self.retry_policy.repeat_log;
        }
        match &retry.unlogged {
            Some((unlogged, since)) if *unlogged == error.message => self.elapsed(*since) >= self.retry_policy.lasting,
            _ => {
                retry.unlogged = Some((Arc::clone(&error.message), self.clock.monotonic_ns()));
                // An error that the user must fix is a different state.
                !error.may_pass()
            }
        }
    }

    fn elapsed(&self, since_ns: u64) -> Duration {
        Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(since_ns))
    }
}

#[cfg(test)]
mod tests;
