//! Cameras whose sources are written as a script.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use visiond_capture::source::{Opener, SourceErrorKind, Worked};
use visiond_frames::clock::{SystemClock, simulated::SimulatedClock};
use visiond_frames::frame::{FramePool, LossCause};
use visiond_system::exit::Exit;
use visiond_system::testing::{EVER, HANG, wait_until};
use visiond_telemetry::metrics::DropCause;

use super::*;
use crate::lane::LaneMailbox;
use crate::lane::testing;
use crate::mailbox::{Batch, Delivery, Mailbox, TakeResult};

/// The result of opening, and the events of the source after it.
enum Opening {
    Source(Vec<Event>),
    Error(SourceError),
}

enum Event {
    Frame(u64),
    Lost(u64, LossCause),
    Dies,
    /// It waits for a signal.
    Waits,
    Breaks,
    Panics,
    Ends,
    /// No frame until stop.
    Silence,
    /// This much time passes on the clock before the next event.
    Passes(Arc<SimulatedClock>, Duration),
    /// The next events happen on a shared thread.
    Shares,
    /// Nothing to do for a moment, on the shared thread.
    Idles,
    /// The next events need the camera's own thread again.
    Leaves,
    /// Losses without end, on the shared thread.
    Floods,
}

struct Scripted {
    pool: FramePool,
    events: VecDeque<Event>,
    /// Always readable, if the source shares a thread.
    socket: Option<(UnixStream, UnixStream)>,
}

impl Scripted {
    fn frame(&self, sequence: u64) -> Next {
        loop {
            if let Some(frame) = testing::frame(&self.pool, sequence) {
                return Next::Frame(frame);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn is_shared_thread() -> bool {
    std::thread::current().name() == Some("streams")
}

impl Source for Scripted {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        assert!(!is_shared_thread());
        match self.events.pop_front().unwrap() {
            Event::Shares => {
                let (socket, mut other) = UnixStream::pair().unwrap();
                std::io::Write::write_all(&mut other, b"!").unwrap();
                self.socket = Some((socket, other));
                self.next(stop)
            }
            Event::Idles | Event::Leaves | Event::Floods => unreachable!("on the camera's own thread"),
            Event::Frame(sequence) => Ok(self.frame(sequence)),
            Event::Lost(frames, cause) => Ok(Next::Lost { frames, cause }),
            Event::Dies => Err(SourceError::transient("the cable was pulled")),
            Event::Waits => Ok(Next::Waiting { reason: "no signal".into() }),
            Event::Breaks => Err(SourceError::permanent("this is no video")),
            Event::Panics => panic!("made to panic"),
            Event::Ends => Ok(Next::End),
            Event::Passes(clock, duration) => {
                clock.advance(duration);
                self.next(stop)
            }
            Event::Silence => {
                stop.sleep(EVER);
                Ok(Next::Stopped)
            }
        }
    }

    fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|(socket, _)| socket.as_fd())
    }

    fn work(&mut self, _: bool, stop: &Stop) -> Result<Worked, SourceError> {
        assert!(is_shared_thread());
        if stop.is_raised() {
            return Ok(Worked::Next(Next::Stopped));
        }
        match self.events.pop_front().unwrap() {
            Event::Frame(sequence) => Ok(Worked::Next(self.frame(sequence))),
            Event::Lost(frames, cause) => Ok(Worked::Next(Next::Lost { frames, cause })),
            Event::Dies => Err(SourceError::transient("the cable was pulled")),
            Event::Breaks => Err(SourceError::permanent("this is no video")),
            Event::Panics => panic!("made to panic"),
            Event::Ends => Ok(Worked::Next(Next::End)),
            Event::Silence => {
                self.events.push_front(Event::Silence);
                Ok(Worked::Idle(Instant::now() + Duration::from_millis(1)))
            }
            Event::Idles => Ok(Worked::Idle(Instant::now() + Duration::from_millis(1))),
            Event::Leaves => {
                self.socket = None;
                Ok(Worked::NeedsThread)
            }
            Event::Shares | Event::Passes(..) | Event::Waits => unreachable!("on the camera's own thread"),
            Event::Floods => {
                self.events.push_front(Event::Floods);
                Ok(Worked::Next(Next::Lost { frames: 1, cause: LossCause::Corrupt }))
            }
        }
    }

    fn describe(&self) -> String {
        "a script".into()
    }
}

/// One camera on a lossless mailbox, and its results.
struct Run {
    metrics: Arc<CameraMetrics>,
    active_cameras: Arc<ActiveCameras>,
    mailbox: Arc<LaneMailbox>,
    stop: Stop,
    needs_restart: NeedsRestart,
    thread: std::thread::JoinHandle<()>,
}

impl Opening {
    fn give(self) -> Result<Box<dyn Source>, SourceError> {
        match self {
            Self::Source(events) => {
                Ok(Box::new(Scripted { pool: testing::pool(2), events: events.into(), socket: None }))
            }
            Self::Error(error) => Err(error),
        }
    }
}

/// A device that is awaited forever, unless there is an event.
struct Device {
    script: VecDeque<Opening>,
    news: std::sync::mpsc::Receiver<()>,
}

impl Opener for Device {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        self.script.pop_front().unwrap().give()
    }

    fn is_device(&self) -> bool {
        true
    }

    fn wait(&mut self, _: Duration, _: &Stop) -> Wake {
        self.news.recv().map_or(Wake::Stopped, |()| Wake::Ready)
    }
}

/// Records the requested pause, without pausing.
struct Impatient {
    script: VecDeque<Opening>,
    is_device: bool,
    pauses: Arc<parking_lot::Mutex<Vec<Duration>>>,
}

impl Opener for Impatient {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        self.script.pop_front().unwrap().give()
    }

    fn is_device(&self) -> bool {
        self.is_device
    }

    fn wait(&mut self, pause: Duration, _: &Stop) -> Wake {
        self.pauses.lock().push(pause);
        if self.script.is_empty() { Wake::Stopped } else { Wake::TimedOut }
    }
}

/// Returns the pauses of a camera between the openings of a script, in milliseconds.
fn pauses(is_device: bool, retry_policy: RetryPolicy, script: Vec<Opening>) -> Vec<u128> {
    let pauses: Arc<parking_lot::Mutex<Vec<Duration>>> = Arc::default();
    let open = Impatient { script: script.into(), is_device, pauses: Arc::clone(&pauses) };
    let active_cameras = Arc::new(ActiveCameras::new(1).unwrap());
    let run = start_by(
        retry_policy,
        FrameRate::default(),
        Delivery::Lossless,
        &active_cameras,
        &Arc::default(),
        Box::new(open),
    );
    run.sequences();
    run.thread.join().unwrap();
    pauses.lock().iter().map(Duration::as_millis).collect()
}

fn away() -> Opening {
    Opening::Error(SourceError::transient("no such device"))
}

fn start(active_cameras: &Arc<ActiveCameras>, script: Vec<Opening>) -> Run {
    start_with(active_cameras, &Arc::default(), scripted(script))
}

/// Like [`start`], but a failed camera stays failed until the stop.
fn start_resigned(active_cameras: &Arc<ActiveCameras>, script: Vec<Opening>) -> Run {
    start_retrying(EVER, active_cameras, &Arc::default(), scripted(script))
}

fn start_from(sequence: &Arc<AtomicU64>, script: Vec<Opening>) -> Run {
    start_with(&Arc::new(ActiveCameras::new(1).unwrap()), sequence, scripted(script))
}

fn scripted(script: Vec<Opening>) -> Open {
    let mut script = VecDeque::from(script);
    Box::new(move || script.pop_front().unwrap().give())
}

fn start_with(active_cameras: &Arc<ActiveCameras>, sequence: &Arc<AtomicU64>, open: Open) -> Run {
    start_retrying(Duration::from_millis(5), active_cameras, sequence, open)
}

/// One that has failed is tried again every `failed`.
fn start_retrying(failed: Duration, active_cameras: &Arc<ActiveCameras>, sequence: &Arc<AtomicU64>, open: Open) -> Run {
    let (first, limit) = (Duration::from_millis(1), Duration::from_millis(4));
    let retry_policy = RetryPolicy { first, limit, failed, ..RetryPolicy::default() };
    start_by(retry_policy, FrameRate::default(), Delivery::Lossless, active_cameras, sequence, open)
}

fn start_by(
    retry_policy: RetryPolicy,
    frame_rate: FrameRate,
    delivery: Delivery,
    active_cameras: &Arc<ActiveCameras>,
    sequence: &Arc<AtomicU64>,
    open: Open,
) -> Run {
    start_on(&Arc::default(), retry_policy, frame_rate, delivery, active_cameras, sequence, open)
}

fn start_on(
    stream_threads: &Arc<CameraStreams>,
    retry_policy: RetryPolicy,
    frame_rate: FrameRate,
    delivery: Delivery,
    active_cameras: &Arc<ActiveCameras>,
    sequence: &Arc<AtomicU64>,
    open: Open,
) -> Run {
    let (stop, active_cameras) = (Stop::new().unwrap(), Arc::clone(active_cameras));
    let metrics = Arc::new(CameraMetrics::new("door".into()));
    let mailbox = Arc::new(Mailbox::default());
    let slot = mailbox.add(testing::camera(&metrics), delivery);
    let needs_restart = NeedsRestart::default();
    let camera = Camera {
        metrics: Arc::clone(&metrics),
        open,
        joiner: None,
        slots: vec![LaneSlot {
            mailbox: Arc::clone(&mailbox),
            number: slot,
            model: "fake".into(),
            frame_rate: FrameRate::default(),
        }],
        sequence: Arc::clone(sequence),
        active_cameras: Arc::clone(&active_cameras),
        retry_policy,
        frame_rate,
        clock: Arc::new(SystemClock),
        stream_threads: Arc::clone(stream_threads),
        stop: stop.clone(),
        end: stop.clone(),
        needs_restart: Arc::clone(&needs_restart),
    };
    let thread = std::thread::spawn(move || camera.run());
    Run { metrics, active_cameras, mailbox, stop, needs_restart, thread }
}

fn alone(script: Vec<Opening>) -> Run {
    start(&Arc::new(ActiveCameras::new(1).unwrap()), script)
}

impl Run {
    /// Takes every frame until the camera ends.
    fn sequences(&self) -> Vec<u64> {
        let (mut sequences, mut out) = (Vec::new(), Vec::new());
        while self.mailbox.take(Batch { most: 1, wait: Duration::ZERO }, HANG, &mut out) == TakeResult::Frames {
            sequences.extend(out.drain(..).map(|(_, arrival)| arrival.frame.sequence));
        }
        sequences
    }
}

#[test]
fn a_source_that_dies_is_opened_again_and_its_numbers_go_on() {
    use Event::{Dies, Ends, Frame};
    let run = alone(vec![
        Opening::Source(vec![Frame(0), Frame(1), Dies]),
        Opening::Error(SourceError::transient("no such device")),
        Opening::Source(vec![Frame(0), Frame(3), Dies]),
        Opening::Source(vec![Frame(1), Ends]),
    ]);
    assert_eq!(run.sequences(), [0, 1, 2, 5, 7]);
    run.thread.join().unwrap();
    let snapshot = run.metrics.snapshot();
    assert_eq!((snapshot.captured, snapshot.restarts, snapshot.errors), (5, 2, 3));
    assert_eq!(run.metrics.phase(), Phase::Ended);
    assert!(run.active_cameras.over.is_raised());
}

#[test]
fn a_source_that_opens_again_and_gives_no_usable_frame_is_not_back() {
    use Event::{Dies, Frame, Lost, Silence};
    let run =
        alone(vec![Opening::Source(vec![Frame(0), Dies]), Opening::Source(vec![Lost(1, LossCause::Corrupt), Silence])]);
    wait_until("the damaged frame", || run.metrics.snapshot().dropped[DropCause::Corrupt as usize] == 1);
    assert_eq!(run.metrics.phase(), Phase::Waiting);
    assert_eq!(run.metrics.snapshot().reason.as_deref(), Some("the cable was pulled"));
    run.stop.raise();
    run.mailbox.stop();
    run.thread.join().unwrap();
}

#[test]
fn a_panic_costs_the_source_and_the_camera_goes_on() {
    use Event::{Ends, Frame, Panics};
    let run = alone(vec![Opening::Source(vec![Frame(0), Panics]), Opening::Source(vec![Frame(0), Ends])]);
    assert_eq!(run.sequences(), [0, 1]);
    assert_eq!(run.metrics.snapshot().errors, 1);
    run.thread.join().unwrap();
}

#[test]
fn a_stream_that_shares_a_thread_gives_the_same_frames_and_comes_back() {
    use Event::{Dies, Ends, Frame, Idles, Leaves, Lost, Shares};
    let run = alone(vec![
        Opening::Source(vec![Frame(0), Shares, Frame(1), Frame(2), Idles, Lost(3, LossCause::Corrupt), Frame(6), Dies]),
        Opening::Source(vec![Shares, Frame(0), Frame(1), Leaves, Frame(2), Frame(3), Shares, Frame(4), Idles, Ends]),
    ]);
    assert_eq!(run.sequences(), [0, 1, 2, 6, 7, 8, 9, 10, 11]);
    run.thread.join().unwrap();
    let snapshot = run.metrics.snapshot();
    assert_eq!((snapshot.captured, snapshot.restarts, snapshot.errors), (9, 1, 1));
    assert_eq!(snapshot.dropped[DropCause::Corrupt as usize], 3);
    assert_eq!(run.metrics.phase(), Phase::Ended);
}

#[test]
fn a_source_without_end_leaves_the_shared_thread_to_others() {
    use Event::{Ends, Floods, Frame, Idles, Shares};
    let threads = Arc::<CameraStreams>::default();
    let start = |script| {
        let active_cameras = Arc::new(ActiveCameras::new(1).unwrap());
        let (policy, rate, sequence) = (RetryPolicy::default(), FrameRate::default(), Arc::default());
        start_on(&threads, policy, rate, Delivery::Lossless, &active_cameras, &sequence, scripted(script))
    };
    let flood = start(vec![Opening::Source(vec![Shares, Frame(0), Floods])]);
    wait_until("the flood", || flood.metrics.snapshot().dropped[DropCause::Corrupt as usize] > 100);
    let other = start(vec![Opening::Source(vec![Shares, Frame(0), Frame(1), Idles, Frame(2), Ends])]);
    assert_eq!(other.sequences(), [0, 1, 2]);
    other.thread.join().unwrap();
    flood.stop.raise();
    flood.thread.join().unwrap();
}

#[test]
fn a_panic_on_a_shared_thread_costs_one_source() {
    use Event::{Ends, Frame, Panics, Shares};
    let run =
        alone(vec![Opening::Source(vec![Shares, Frame(0), Panics]), Opening::Source(vec![Shares, Frame(0), Ends])]);
    assert_eq!(run.sequences(), [0, 1]);
    assert_eq!(run.metrics.snapshot().errors, 1);
    run.thread.join().unwrap();
}

#[test]
fn a_stream_on_a_shared_thread_stops() {
    use Event::{Frame, Shares, Silence};
    let run = alone(vec![Opening::Source(vec![Shares, Frame(0), Silence])]);
    wait_until("its frame", || run.metrics.snapshot().captured == 1);
    run.stop.raise();
    run.thread.join().unwrap();
    assert_eq!(run.metrics.phase(), Phase::Ended);
}

#[test]
fn a_driver_that_counts_anew_does_not_turn_messages_back() {
    use Event::{Ends, Frame};
    let run = alone(vec![Opening::Source(vec![Frame(7), Frame(8), Frame(0), Frame(1), Frame(20), Ends])]);
    assert_eq!(run.sequences(), [7, 8, 9, 10, 20]);
    run.thread.join().unwrap();
}

#[test]
fn losses_are_counted_by_their_cause() {
    use Event::{Ends, Lost};
    let events = vec![Lost(3, LossCause::Driver), Lost(2, LossCause::Corrupt), Lost(1, LossCause::Driver), Ends];
    let run = alone(vec![Opening::Source(events)]);
    assert!(run.sequences().is_empty());
    run.thread.join().unwrap();
    assert_eq!(run.metrics.snapshot().dropped, [4, 2, 0, 0, 0, 0]);
}

#[test]
fn a_frame_that_a_newer_one_replaces_is_dropped_by_overload() {
    use Event::{Ends, Frame};
    let script = vec![Opening::Source(vec![Frame(0), Frame(1), Frame(2), Ends])];
    let active_cameras = Arc::new(ActiveCameras::new(1).unwrap());
    let (policy, rate) = (RetryPolicy::default(), FrameRate::default());
    let run = start_by(policy, rate, Delivery::NewestWins, &active_cameras, &Arc::default(), scripted(script));
    run.thread.join().unwrap();
    let mut dropped = [0; DropCause::ALL.len()];
    dropped[DropCause::Overload as usize] = 2;
    assert_eq!((run.metrics.snapshot().captured, run.metrics.snapshot().dropped), (3, dropped));
}

#[test]
fn frames_beyond_max_fps_are_skipped_and_counted() {
    use Event::{Ends, Frame};
    let script = vec![Opening::Source(vec![Frame(0), Frame(1), Frame(5), Ends])];
    let active_cameras = Arc::new(ActiveCameras::new(1).unwrap());
    // One in 1000 s.
    let (policy, rate) = (RetryPolicy::default(), FrameRate::limited_to(Some(0.001)));
    let run = start_by(policy, rate, Delivery::Lossless, &active_cameras, &Arc::default(), scripted(script));
    assert_eq!(run.sequences(), [0]);
    run.thread.join().unwrap();
    let mut dropped = [0; DropCause::ALL.len()];
    dropped[DropCause::Skipped as usize] = 2;
    assert_eq!((run.metrics.snapshot().captured, run.metrics.snapshot().dropped), (3, dropped));
}

#[test]
fn the_rate_of_a_model_goes_on_when_its_camera_is_opened_again() {
    use Event::{Dies, Ends, Frame};
    let (stop, mailbox) = (Stop::new().unwrap(), Arc::new(Mailbox::default()));
    let metrics = Arc::new(CameraMetrics::new("door".into()));
    let number = mailbox.add(testing::camera(&metrics), Delivery::Lossless);
    let (slot, every) = (Arc::clone(&mailbox), FrameRate::default().every(3));
    let source = |frames: std::ops::Range<u64>, end| Opening::Source(frames.map(Frame).chain([end]).collect());
    let camera = Camera {
        metrics: Arc::clone(&metrics),
        open: scripted(vec![source(0..5, Dies), source(0..3, Dies), source(0..2, Ends)]),
        joiner: None,
        slots: vec![LaneSlot { mailbox: slot, number, model: "fake".into(), frame_rate: every }],
        sequence: Arc::default(),
        active_cameras: Arc::new(ActiveCameras::new(1).unwrap()),
        retry_policy: RetryPolicy::default(),
        frame_rate: FrameRate::default(),
        clock: Arc::new(SystemClock),
        stream_threads: Arc::default(),
        end: stop.clone(),
        needs_restart: NeedsRestart::default(),
        stop,
    };
    let thread = std::thread::spawn(move || camera.run());
    let (mut sequences, mut out) = (Vec::new(), Vec::new());
    while mailbox.take(Batch { most: 1, wait: Duration::ZERO }, HANG, &mut out) == TakeResult::Frames {
        sequences.extend(out.drain(..).map(|(_, queued)| queued.frame.sequence));
    }
    thread.join().unwrap();
    assert_eq!(sequences, [0, 3, 6, 9], "every third of the ten, whichever source had them");
    assert_eq!(metrics.snapshot().dropped[DropCause::Skipped as usize], 6);
}

#[test]
fn pauses_grow_to_the_limit_of_their_kind() {
    let errors = || (0..12).map(|_| away()).collect();
    for (is_device, limit) in [(true, 1_500), (false, 5_000)] {
        let pauses = pauses(is_device, RetryPolicy::default(), errors());
        assert!(pauses[0] <= 250 && pauses.iter().all(|pause| *pause <= limit), "{pauses:?}");
        assert!(pauses[6..].iter().all(|pause| *pause >= limit * 3 / 4 - 1), "{pauses:?}");
    }
}

#[test]
fn pauses_stay_short_while_a_network_camera_is_away_and_grow_when_it_refuses() {
    let absent = || Opening::Error(SourceError::absent("cannot connect"));
    let mut script: Vec<_> = (0..12).map(|_| absent()).collect();
    script.extend((0..2).map(|_| away()));
    let pauses = pauses(false, RetryPolicy::default(), script);
    assert!(pauses[..12].iter().all(|pause| *pause <= 500), "{pauses:?}");
    assert!(pauses[12..].iter().all(|pause| *pause >= 3_749), "{pauses:?}");
}

#[test]
fn the_next_pause_is_short_again_only_after_a_source_that_was_stable() {
    for is_device in [true, false] {
        for (stable, is_short) in [(Duration::ZERO, true), (EVER, false)] {
            let retry_policy = RetryPolicy { stable, device_stable: stable, ..RetryPolicy::default() };
            let mut script: Vec<_> = (0..4).map(|_| away()).collect();
            script.push(Opening::Source(vec![Event::Frame(0), Event::Dies]));
            let pauses = pauses(is_device, retry_policy, script);
            assert_eq!((pauses.len(), pauses[4] <= 250), (5, is_short), "{pauses:?}");
        }
    }
}

#[test]
fn an_error_that_stays_ends_a_camera_that_is_alone() {
    let run = alone(vec![Opening::Error(SourceError::permanent("no such file"))]);
    assert!(run.sequences().is_empty());
    run.thread.join().unwrap();
    assert_eq!(run.metrics.phase(), Phase::Failed);
}

#[test]
fn a_video_that_breaks_in_the_middle_has_failed() {
    let run = alone(vec![Opening::Source(vec![Event::Frame(0), Event::Breaks])]);
    assert_eq!(run.sequences(), [0]);
    run.thread.join().unwrap();
    assert_eq!(run.metrics.phase(), Phase::Failed);
}

#[test]
fn an_error_that_stays_is_tried_again_while_another_camera_lives() {
    let active_cameras = Arc::new(ActiveCameras::new(2).unwrap());
    let no_file = || Opening::Error(SourceError::permanent("no such file"));
    let other = start(&active_cameras, vec![Opening::Source(vec![Event::Frame(0), Event::Silence])]);
    let run = start(&active_cameras, vec![no_file(), no_file(), Opening::Source(vec![Event::Frame(0), Event::Ends])]);
    assert_eq!(run.sequences(), [0], "somebody put the file there");
    run.thread.join().unwrap();
    assert_eq!(run.metrics.phase(), Phase::Ended);
    assert!(!active_cameras.over.is_raised(), "the other camera goes on");
    other.stop.raise();
    other.thread.join().unwrap();
}

#[test]
fn a_camera_that_is_taken_out_ends_wherever_it_stands_and_no_longer_keeps_the_others() {
    let active_cameras = Arc::new(ActiveCameras::new(3).unwrap());
    let streaming = start(&active_cameras, vec![Opening::Source(vec![Event::Frame(4), Event::Silence])]);
    let failed = start_resigned(&active_cameras, vec![Opening::Error(SourceError::permanent("no such file"))]);
    let blocked = start(&active_cameras, vec![Opening::Source(vec![Event::Frame(0), Event::Frame(1), Event::Silence])]);
    wait_until("one to have failed and one to stream", || {
        failed.metrics.phase() == Phase::Failed && streaming.metrics.phase() == Phase::Streaming
    });
    for run in [&streaming, &failed, &blocked] {
        assert!(!active_cameras.over.is_raised());
        run.stop.raise();
        run.mailbox.remove(0);
    }
    for run in [streaming, failed, blocked] {
        run.thread.join().unwrap();
    }
    assert!(active_cameras.over.is_raised(), "none is left");
}

#[test]
fn numbers_go_on_in_the_thread_that_takes_over() {
    let sequence = Arc::new(AtomicU64::new(5));
    let run = start_from(&sequence, vec![Opening::Source(vec![Event::Frame(0), Event::Frame(1), Event::Ends])]);
    assert_eq!(run.sequences(), [5, 6]);
    run.thread.join().unwrap();
    assert_eq!(sequence.load(Ordering::Relaxed), 7);
}

#[test]
fn stop_ends_a_camera_wherever_it_stands() {
    let streaming = alone(vec![Opening::Source(vec![Event::Silence])]);
    streaming.stop.raise();
    streaming.thread.join().unwrap();
    let blocked = alone(vec![Opening::Source(vec![Event::Frame(0), Event::Frame(1), Event::Silence])]);
    blocked.stop.raise();
    blocked.mailbox.stop();
    blocked.thread.join().unwrap();
}

#[test]
fn news_of_a_device_open_it_at_once_and_it_is_never_given_up() {
    let (tell, news) = std::sync::mpsc::channel();
    let active_cameras = Arc::new(ActiveCameras::new(1).unwrap());
    let script = VecDeque::from([
        Opening::Error(SourceError::transient("it is not there")),
        Opening::Error(SourceError::permanent("it is no camera")),
        Opening::Source(vec![Event::Frame(0), Event::Dies]),
        Opening::Source(vec![Event::Frame(0), Event::Ends]),
    ]);
    let run = start_with(&active_cameras, &Arc::default(), Box::new(Device { script, news }));
    (0..3).for_each(|_| tell.send(()).unwrap());
    assert_eq!(run.sequences(), [0, 1]);
    run.thread.join().unwrap();
    let snapshot = run.metrics.snapshot();
    assert_eq!((snapshot.errors, snapshot.restarts), (3, 1));
}

#[test]
fn a_wait_is_a_sign_of_life_and_a_call_that_does_not_come_back_is_not() {
    let (gone, back) = std::sync::mpsc::channel::<()>();
    let (tell, called) = std::sync::mpsc::channel();
    let mut first = true;
    let open = Box::new(move || -> Result<Box<dyn Source>, SourceError> {
        if std::mem::take(&mut first) {
            // A driver that hangs until `gone` is dropped.
            tell.send(()).unwrap();
            let _ = back.recv();
        }
        Opening::Source(vec![Event::Silence]).give()
    });
    let run = start_with(&Arc::new(ActiveCameras::new(1).unwrap()), &Arc::default(), open);
    called.recv_timeout(HANG).unwrap();
    let hung = run.metrics.beat.pulse();
    assert!(!hung.waits);
    drop(gone);
    wait_until("it to wait for a frame", || run.metrics.beat.pulse().waits);
    assert!(run.metrics.beat.pulse().steps > hung.steps);
    run.stop.raise();
    run.thread.join().unwrap();
}

#[test]
fn another_reason_is_told_when_it_lasts() {
    let run = |retry_policy: RetryPolicy| {
        let (stop, mailbox) = (Stop::new().unwrap(), Arc::new(Mailbox::default()));
        Camera {
            metrics: Arc::new(CameraMetrics::new("door".into())),
            open: Box::new(|| Err(SourceError::transient("never called"))),
            joiner: None,
            slots: vec![LaneSlot { mailbox, number: 0, model: "fake".into(), frame_rate: FrameRate::default() }],
            sequence: Arc::default(),
            active_cameras: Arc::new(ActiveCameras::new(1).unwrap()),
            retry_policy,
            frame_rate: FrameRate::default(),
            clock: Arc::new(SystemClock),
            stream_threads: Arc::default(),
            end: stop.clone(),
            needs_restart: NeedsRestart::default(),
            stop,
        }
    };
    let (gone, refused) = (SourceError::transient("it went away"), SourceError::transient("it may not be opened"));
    let retry = || RetryState {
        backoff: Backoff::new(Duration::ZERO, Duration::ZERO),
        settled: false,
        opened: true,
        away: None,
        returns: None,
        logged: Some((Arc::clone(&gone.message), SystemClock.monotonic_ns())),
        unlogged: None,
        short_streams: ShortStreams::default(),
    };
    let lasting = RetryPolicy::default().lasting;
    let camera = run(RetryPolicy::default());
    let mut retry = retry();
    assert!(!camera.is_news(&gone, &mut retry), "logged already");
    assert!(!camera.is_news(&refused, &mut retry), "perhaps on its way back");
    let (_, since) = retry.unlogged.as_mut().unwrap();
    *since -= lasting.as_nanos() as u64;
    assert!(camera.is_news(&refused, &mut retry), "it lasts");
    assert!(camera.is_news(&SourceError::permanent("it is no camera"), &mut retry), "only a person can mend that");
}

/// Keeps what this process logs.
struct Lines(parking_lot::Mutex<Vec<String>>);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().push(format!("{}: {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn a_camera_that_comes_and_goes_says_so_once_and_then_that_it_is_steady() {
    use Event::{Dies, Ends, Frame, Passes, Waits};
    static LINES: Lines = Lines(parking_lot::Mutex::new(Vec::new()));
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let clock = Arc::new(SimulatedClock::default());
    let (stop, mailbox) = (Stop::new().unwrap(), Arc::new(Mailbox::default()));
    let metrics = Arc::new(CameraMetrics::new("flapping".into()));
    let slot = mailbox.add(testing::camera(&metrics), Delivery::Lossless);
    let short = || Opening::Source(vec![Frame(0), Passes(Arc::clone(&clock), Duration::from_secs(2)), Dies]);
    let away = || Opening::Error(SourceError::transient("the cable was pulled"));
    let mut script: Vec<_> = (0..20).flat_map(|_| [short(), away()]).collect();
    let steady = Passes(Arc::clone(&clock), RetryPolicy::default().stable);
    script.push(Opening::Source(vec![Frame(0), Frame(1), steady, Frame(2), Frame(3), Dies]));
    // The reason for a wait is logged at once, although another error was logged just now.
    script.push(Opening::Source(vec![Waits, Frame(0), Ends]));
    let pauses = Arc::default();
    let camera = Camera {
        metrics,
        open: Box::new(Impatient { script: script.into(), is_device: false, pauses }),
        joiner: None,
        slots: vec![LaneSlot {
            mailbox: Arc::clone(&mailbox),
            number: slot,
            model: "fake".into(),
            frame_rate: FrameRate::default(),
        }],
        sequence: Arc::default(),
        active_cameras: Arc::new(ActiveCameras::new(1).unwrap()),
        retry_policy: RetryPolicy::default(),
        frame_rate: FrameRate::default(),
        clock,
        stream_threads: Arc::default(),
        end: stop.clone(),
        needs_restart: NeedsRestart::default(),
        stop,
    };
    let thread = std::thread::spawn(move || camera.run());
    let mut out = Vec::new();
    while mailbox.take(Batch { most: 1, wait: Duration::ZERO }, HANG, &mut out) == TakeResult::Frames {
        out.clear();
    }
    thread.join().unwrap();
    let lines = LINES.0.lock();
    let lines: Vec<_> = lines.iter().filter_map(|line| line.split_once("camera flapping: ")).collect();
    let texts: Vec<_> = lines.iter().map(|(level, text)| format!("{level}{text}")).collect();
    let expected = [
        "INFO: a script",
        "WARN: the cable was pulled; trying again in ",
        "INFO: back after 0.0 s: a script",
        "WARN: the cable was pulled; trying again in ",
        "INFO: back after 0.0 s: a script",
        "WARN: the cable was pulled; trying again in ",
        "INFO: back after 0.0 s: a script",
        "WARN: the cable was pulled; lost 4 times in 6.0 s: fewer lines until it streams for 10 s",
        "INFO: steady after it was lost 20 times in 38.0 s: a script",
        "WARN: the cable was pulled; trying again in ",
        "WARN: no signal",
        "INFO: back after 0.0 s: a script",
        "INFO: its source has ended",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    assert!(texts.iter().zip(expected).all(|(text, expected)| text.starts_with(expected)), "{texts:#?}");
}

#[test]
fn a_camera_that_finds_the_gpu_lost_ends_the_daemon() {
    let run = alone(vec![Opening::Error(SourceError::gpu_lost("cuvidDecodePicture failed (719)"))]);
    wait_until("the end", || run.stop.is_raised());
    run.thread.join().unwrap();
    assert_eq!(run.needs_restart.get().unwrap().exit, Exit::GpuLost);
}

#[test]
fn a_camera_whose_device_list_is_too_old_ends_the_daemon_for_a_new_one() {
    let refused = SourceError { message: "not in the device list".into(), kind: SourceErrorKind::DeviceListOutdated };
    let run = alone(vec![Opening::Error(refused)]);
    wait_until("the end", || run.stop.is_raised());
    run.thread.join().unwrap();
    let end = run.needs_restart.get().unwrap();
    assert!(end.exit == Exit::Input && end.message.ends_with("not in the device list"), "{end:?}");
}
