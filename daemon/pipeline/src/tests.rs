//! A camera that fails now and then, a mailbox, a lane and its messages for thirty days, on the simulated clock.
//!
//! The camera has a frame every ten seconds: nothing between two frames depends on the rate, so 30 frames a second would test the
//! same 300 times as often.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use visiond_capture::source::{Next, Opener, Source, SourceError};
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::{FramePool, LossCause};
use visiond_message::Message;
use visiond_system::stop::{Stop, Wake};
use visiond_telemetry::metrics::{CameraMetrics, DropCause, LaneMetrics, Phase, Stage};

use crate::camera::{ActiveCameras, Camera, RetryPolicy};
use crate::cascade::Cascade;
use crate::frame_rate::FrameRate;
use crate::lane::testing::{self, Act, Fake};
use crate::lane::{Lane, LaneMailbox, LaneModel, LaneSlot, NeedsRestart};
use crate::mailbox::{Delivery, Mailbox};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3600 * SECOND_NS;
const INTERVAL_NS: u64 = 10 * SECOND_NS;
const END_NS: u64 = 30 * 24 * HOUR_NS;
/// How long the source streams each time before it dies.
const LIVES_NS: u64 = 5 * HOUR_NS;
/// How long it is away then, in turn.
const AWAY_S: [u64; 4] = [10, 60, 1_800, 3 * 3600];
/// One frame of this many fails in the model: those whose first pixel is this.
const FAILS: u8 = 250;

/// The events of the camera, counted by the test itself.
#[derive(Debug, Default)]
struct Told {
    frames: u64,
    lost: u64,
    deaths: u64,
    refusals: u64,
    opened: u64,
}

struct World {
    clock: Arc<SimulatedClock>,
    told: Arc<Mutex<Told>>,
    /// When the source can be opened again.
    back_ns: Arc<AtomicU64>,
    /// Whether the next pause is the first after a source that was stable.
    is_first_pause: bool,
}

struct Stream {
    clock: Arc<SimulatedClock>,
    told: Arc<Mutex<Told>>,
    back_ns: Arc<AtomicU64>,
    pool: FramePool,
    start_ns: u64,
    frames: u64,
    sequence: u64,
    has_lost: bool,
}

impl Opener for World {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        let (now_ns, back_ns) = (self.clock.monotonic_ns(), self.back_ns.load(Ordering::SeqCst));
        if now_ns < back_ns {
            self.told.lock().refusals += 1;
            return Err(SourceError::transient("no such device"));
        }
        let late = Duration::from_nanos(now_ns - back_ns);
        assert!(late <= RetryPolicy::default().limit, "it was opened {late:?} after it came back");
        self.told.lock().opened += 1;
        self.is_first_pause = true;
        let (told, back_ns) = (Arc::clone(&self.told), Arc::clone(&self.back_ns));
        let (clock, pool) = (Arc::clone(&self.clock), testing::pool(4));
        Ok(Box::new(Stream { clock, told, back_ns, pool, start_ns: now_ns, frames: 0, sequence: 0, has_lost: false }))
    }

    fn wait(&mut self, pause: Duration, _: &Stop) -> Wake {
        let policy = RetryPolicy::default();
        let longest = if std::mem::take(&mut self.is_first_pause) { policy.first } else { policy.limit };
        assert!(pause <= longest && pause >= policy.first.mul_f64(0.749), "{pause:?}");
        self.clock.advance(pause);
        Wake::TimedOut
    }
}

impl Source for Stream {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        let due_ns = self.start_ns + self.frames * INTERVAL_NS;
        if due_ns >= END_NS {
            return Ok(Next::End);
        }
        if due_ns - self.start_ns >= LIVES_NS {
            let mut told = self.told.lock();
            told.deaths += 1;
            let away_s = AWAY_S[told.deaths as usize % AWAY_S.len()];
            self.back_ns.store(self.clock.monotonic_ns() + away_s * SECOND_NS, Ordering::SeqCst);
            // The wall clock is set forward and back.
            let by = Duration::from_secs(3600 * (told.deaths % 5));
            if told.deaths.is_multiple_of(2) {
                self.clock.set_back(by)
            } else {
                self.clock.set_ahead(by)
            }
            return Err(SourceError::transient("the cable was pulled"));
        }
        if self.frames == 77 && !std::mem::replace(&mut self.has_lost, true) {
            self.told.lock().lost += 3;
            self.sequence += 3;
            return Ok(Next::Lost { frames: 3, cause: LossCause::Driver });
        }
        self.clock.sleep_until(due_ns, stop);
        let mut frame = loop {
            match testing::frame(&self.pool, self.sequence) {
                Some(frame) => break frame,
                None => std::thread::yield_now(),
            }
        };
        frame.timestamp = clock::now(self.clock.as_ref());
        (self.frames, self.sequence) = (self.frames + 1, self.sequence + 1);
        self.told.lock().frames += 1;
        Ok(Next::Frame(frame))
    }

    fn describe(&self) -> String {
        "a camera for thirty days".into()
    }
}

fn act(pixel: u8) -> Act {
    if pixel == FAILS { Act::FailRun } else { Act::See }
}

fn runner() -> Box<Fake> {
    Box::new(Fake::new(1, 1, act))
}

#[test]
fn thirty_days_of_a_camera_that_fails_now_and_then_agree_in_messages_numbers_and_counters() {
    let (clock, stop) = (Arc::new(SimulatedClock::default()), Stop::new().unwrap());
    let told = Arc::new(Mutex::new(Told::default()));
    let metrics = Arc::new(CameraMetrics::new("door".into()));
    let lane_metrics = Arc::new(LaneMetrics::new("fake".into()));
    let mailbox: Arc<LaneMailbox> = Arc::new(Mailbox::default());
    // The number of messages, and the number and time of the last.
    let last = Arc::new(Mutex::new((0_u64, None::<(u64, u64)>)));
    let seen = Arc::clone(&last);
    let publish = move |message: &Arc<Message>| {
        let (messages, last) = &mut *seen.lock();
        let is = (message.sequence, message.monotonic_ns);
        assert!(last.is_none_or(|last| is.0 > last.0 && is.1 > last.1), "{is:?} after {last:?}");
        *messages += 1;
        *last = Some(is);
    };
    let outlet = testing::outlet(Arc::new(publish), None, Arc::clone(&clock) as Arc<dyn Clock>, &stop);
    let slot = mailbox.add(testing::camera_to(&outlet, &metrics), Delivery::Lossless);
    let sequence = Arc::new(AtomicU64::new(0));
    let world =
        World { clock: Arc::clone(&clock), told: Arc::clone(&told), back_ns: Arc::default(), is_first_pause: false };
    let camera = Camera {
        metrics: Arc::clone(&metrics),
        open: Box::new(world),
        joiner: None,
        slots: vec![LaneSlot {
            mailbox: Arc::clone(&mailbox),
            number: slot,
            model: "fake".into(),
            frame_rate: FrameRate::default(),
        }],
        sequence: Arc::clone(&sequence),
        active_cameras: Arc::new(ActiveCameras::new(1).unwrap()),
        retry_policy: RetryPolicy::default(),
        frame_rate: FrameRate::default(),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        stream_threads: Arc::default(),
        stop: stop.clone(),
        end: stop.clone(),
        needs_restart: NeedsRestart::default(),
    };
    let lane = Lane {
        metrics: Arc::clone(&lane_metrics),
        mailbox,
        model_swap: Arc::default(),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        stop: stop.clone(),
        end: stop,
        needs_restart: NeedsRestart::default(),
    };
    let model = LaneModel {
        facts: testing::facts("fake"),
        runner: Some(runner()),
        batch_wait: Duration::ZERO,
        build: Box::new(|| Ok(runner())),
        cascade: Cascade::default(),
    };
    let threads = [std::thread::spawn(move || camera.run()), std::thread::spawn(move || lane.run(model))];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (told, snapshot, (messages, last)) = (told.lock(), metrics.snapshot(), *last.lock());
    let failed = snapshot.dropped[DropCause::Failed as usize];
    assert!(told.frames > 190_000 && told.deaths > 100 && told.refusals > 50_000 && failed > 500, "{told:?} {failed}");
    assert_eq!((snapshot.captured, lane_metrics.runs.get()), (told.frames, told.frames));
    assert_eq!((messages, snapshot.published), (told.frames - failed, told.frames - failed));
    assert_eq!(snapshot.dropped, [told.lost, 0, 0, failed, 0, 0]);
    assert_eq!((snapshot.errors, snapshot.restarts), (told.deaths + told.refusals, told.opened - 1));
    assert_eq!((snapshot.detections, snapshot.stage(Stage::Total).count()), (messages, messages));
    assert_eq!((lane_metrics.errors.get(), lane_metrics.rebuilds.get()), (failed, 0));
    assert_eq!(sequence.load(Ordering::Relaxed), told.frames + told.lost, "no number is skipped or given twice");
    assert!(last.is_some_and(|(_, ns)| ns > END_NS - LIVES_NS && ns < END_NS), "{last:?}");
    assert_eq!(metrics.phase(), Phase::Ended);
}
