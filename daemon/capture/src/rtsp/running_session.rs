//! A session that runs on the thread that waits for its units, or on its own thread, and puts them into a queue.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_config::types::RtspTransport;
use visiond_frames::clock::Clock;
use visiond_rtsp::client::ClientError;
use visiond_system::caught_panic::catch_panic;
use visiond_system::stop::Stop;

use super::super::described_cameras;
use super::super::source::SourceError;
use super::access_unit::Access;
use super::failure::Failure;
use super::reception::Received;
use super::session::Session;
use super::session_target::SessionTarget;
use super::unit_queue::{Description, First, STEP, Taken, UnitQueue};

/// How long a session waits for a decoder after its set-up: shorter than any camera's timeout before PLAY.
const DECODER_WAIT: Duration = Duration::from_secs(20);

/// The longest time to read data before a unit is taken. Packets may arrive without pause.
const LONGEST_READING: Duration = Duration::from_millis(20);

/// A running session. It runs while a thread waits for its units, on that thread: so no other thread is woken for a frame, and
/// the data is still in the core's cache when it is decoded. A caller that waits rarely can give it its own thread. Dropping
/// it ends the session, which takes half a second at most.
pub struct RunningSession {
    queue: Arc<UnitQueue>,
    /// `None` once it has a thread.
    worker: Option<Mutex<Worker>>,
    /// Its thread, which ends when the flag is set.
    thread: Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>,
}

impl RunningSession {
    /// Creates a session that connects while it is waited for. It puts units into `queue`, and finally its end, always an error.
    pub fn start(
        target: SessionTarget,
        camera: &str,
        queue: Arc<UnitQueue>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let transport = target.transport;
        let worker = Worker {
            key_frames_only: target.key_frames_only,
            session: Session::new(target, clock),
            camera: camera.to_owned(),
            queue: Arc::clone(&queue),
            ready_since: None,
            due: Instant::now(),
            given: 0,
            is_over: false,
            owes_teardown: true,
            has_warned: false,
        };
        let mut session = Self { queue, worker: Some(Mutex::new(worker)), thread: None };
        match transport {
            RtspTransport::Tcp => {}
            // The kernel buffers about 200 KiB of datagrams and drops any further ones.
            RtspTransport::Udp => session.run_apart()?,
        }
        Ok(session)
    }

    /// Gives the session its own thread, if it has none.
    pub fn run_apart(&mut self) -> Result<(), SourceError> {
        let Some(worker) = self.worker.take() else { return Ok(()) };
        let ends = Arc::new(AtomicBool::new(false));
        let run = {
            let ends = Arc::clone(&ends);
            move || worker.into_inner().run_until(&ends)
        };
        let thread = thread::Builder::new().name("rtsp".to_owned()).spawn(run);
        let thread = thread.map_err(|error| SourceError::transient(format!("cannot start a thread: {error}")))?;
        self.thread = Some((ends, thread));
        Ok(())
    }

    /// Calls `work`, which takes long; meanwhile the session has its own thread.
    pub fn work_beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(worker) = &self.worker else { return work() };
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            let run = || worker.lock().run_until(&ends);
            if let Err(error) = thread::Builder::new().name("rtsp".to_owned()).spawn_scoped(scope, run) {
                log::debug!("cannot start a thread, so packets are read only after the decoder is made: {error}");
            }
            let done = work();
            ends.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Waits for the stream's description or a unit: [`UnitQueue::first`].
    pub fn first(&self, stop: &Stop, deadline: Instant) -> First {
        let Some(worker) = &self.worker else { return self.queue.first(stop, deadline, None) };
        self.queue.first(stop, deadline, Some(&|| worker.lock().give_something()))
    }

    /// Takes the next unit: [`UnitQueue::take`].
    pub fn take(&self, generation: u64, deadline: Instant, is_over: impl Fn() -> bool) -> Taken {
        let Some(worker) = &self.worker else { return self.queue.take(generation, Some(deadline), is_over, None) };
        if self.queue.is_behind() {
            // So that the queue can drop old units.
            worker.lock().read_all();
        }
        self.queue.take(generation, Some(deadline), is_over, Some(&|| worker.lock().give_something()))
    }

    /// Returns the socket that is readable when there is work; `None` if that socket alone is not enough to wait for.
    pub fn socket(&mut self) -> Option<BorrowedFd<'_>> {
        self.worker.as_mut()?.get_mut().session.socket()
    }

    /// Reads the data that has arrived, without waiting, if the socket is readable or a task is due. Returns when the next task is
    /// due, even if the socket stays silent.
    pub fn read(&self, is_readable: bool) -> Instant {
        self.worker.as_ref().map_or_else(|| Instant::now() + STEP, |worker| worker.lock().read(is_readable))
    }

    /// Takes the next unit if there is one, like [`take`](Self::take); otherwise returns [`Taken::TimedOut`].
    pub fn take_ready(&self, generation: u64) -> Taken {
        self.queue.take(generation, Some(Instant::now()), || false, None)
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        if let Some((ends, thread)) = self.thread.take() {
            ends.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

/// Runs a session, and puts its units into the queue.
struct Worker {
    session: Session,
    camera: String,
    queue: Arc<UnitQueue>,
    key_frames_only: bool,
    /// When the stream was described to the queue.
    ready_since: Option<Instant>,
    /// When to run again if nothing arrives, for callers that do not wait.
    due: Instant,
    /// How many units it has delivered.
    given: u64,
    is_over: bool,
    /// Whether dropping the worker sends the end of the session to the camera and waits for the answer.
    owes_teardown: bool,
    /// Whether it has warned that the camera does not answer keep-alive requests.
    has_warned: bool,
}

impl Worker {
    /// Runs the session once: until something has arrived, or up to `until`.
    fn turn(&mut self, until: Instant) {
        if self.is_over {
            return;
        }
        let Self { session, queue, key_frames_only, given, .. } = self;
        let receive = |received: Received| {
            if let (Received::Unit { unit, .. }, Some(mut tap)) = (&received, queue.tap()) {
                tap.put(unit);
            }
            match received {
                Received::Unit { unit, .. } if unit.access == Access::Key || !*key_frames_only => queue.push(unit),
                Received::Unit { .. } => {}
                Received::Vanished { .. } if *key_frames_only => {}
                Received::Damaged { units, .. } | Received::Vanished { units } => queue.count_corrupt(units),
            }
            *given += 1;
        };
        // The code that reads a camera's data is ours; if it has a bug, one camera is lost, not the process.
        let worked = catch_panic(|| session.turn(until, receive)).unwrap_or_else(|place| Err(Failure::Panic(place)));
        if let Err(failure) = worked {
            self.end(&failure);
            return;
        }
        if self.session.is_ready() {
            self.wait_for_decoder();
        }
        if self.session.keep_alives_failed() > 0
            && !mem::replace(&mut self.has_warned, true)
            && described_cameras::is_due(&self.camera, "keep-alive", Instant::now())
        {
            log::warn!(
                "camera {}: the camera does not answer keep-alive requests, and may end the session",
                self.camera
            );
        }
    }

    /// Plays the stream once it has a decoder, or after [`DECODER_WAIT`]. The camera sends nothing before that, so nothing is lost.
    fn wait_for_decoder(&mut self) {
        let Some(since) = self.ready_since else {
            if let Some(stream) = self.session.chosen() {
                if let Some(mut tap) = self.queue.tap() {
                    tap.begin(stream.rate_hz);
                }
                self.queue.describe(Description { codec: stream.codec, sets: stream.sets.clone() });
            }
            self.given += 1;
            self.ready_since = Some(Instant::now());
            return;
        };
        if self.queue.accepts_units() || since.elapsed() >= DECODER_WAIT {
            self.session.play();
        }
    }

    fn end(&mut self, failure: &Failure) {
        self.is_over = true;
        self.given += 1;
        if let Some(counts) = self.session.oddities()
            && described_cameras::is_due(&self.camera, "oddities", Instant::now())
        {
            log::info!("camera {}: in this session {counts}", self.camera);
        }
        self.queue.end(failure.error(&self.session.target));
        self.owes_teardown =
            !matches!(failure, Failure::Absent(_) | Failure::Client(ClientError::Message(_)) | Failure::Panic(_));
    }

    /// Runs the session until it has delivered something, for [`STEP`] at most.
    fn give_something(&mut self) {
        let (until, before) = (Instant::now() + STEP, self.given);
        while self.given == before && !self.is_over && Instant::now() < until {
            self.turn(until);
        }
    }

    /// Lets the session read once if there is data or a task is due; returns when the next task is due.
    fn read(&mut self, is_readable: bool) -> Instant {
        let now = Instant::now();
        if is_readable || self.due <= now || self.session.has_more() {
            self.turn(now);
            let step = now + STEP;
            self.due = self.session.due().map_or(step, |due| due.min(step));
        }
        self.due
    }

    /// Lets the session read the data that has arrived, for [`LONGEST_READING`] at most.
    fn read_all(&mut self) {
        let now = Instant::now();
        while !self.is_over && self.session.has_news() && now.elapsed() < LONGEST_READING {
            self.turn(now);
        }
    }

    fn run_until(&mut self, ends: &AtomicBool) {
        while !self.is_over && !ends.load(Ordering::Relaxed) {
            self.turn(Instant::now() + STEP);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.owes_teardown {
            self.session.tear_down();
        }
    }
}

/// Returns the error of a session that ended without its own.
pub fn session_ended() -> SourceError {
    SourceError::transient("a bug has ended the RTSP session: see the error above it in the log")
}
