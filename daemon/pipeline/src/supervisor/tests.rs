//! Pipelines that change: threads that end, threads that are abandoned, and threads that prevent the end.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use visiond_capture::source::{Next, Source, SourceError};
use visiond_engine::detector::{Detection, RunId, RunTimings};
use visiond_frames::frame::FramePool;
use visiond_kernels::frame::FrameView;
use visiond_message::Message;
use visiond_system::testing::{HANG, hang, wait_until};

use super::*;
use crate::cascade::Cascade;
use crate::lane::testing::{self, Act, Fake};
use crate::model_runner::{ModelRunner, RunError};

/// Frames until it is told what else to do.
struct Steady {
    pool: FramePool,
    next: u64,
    orders: Arc<Orders>,
}

#[derive(Default)]
struct Orders {
    /// Come to an end.
    end: AtomicBool,
    /// Hang in a call, even when told to stop.
    hang: AtomicBool,
    /// It does.
    hangs: AtomicBool,
}

impl Source for Steady {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        while self.orders.hang.load(Ordering::SeqCst) {
            self.orders.hangs.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        if self.orders.end.load(Ordering::SeqCst) {
            return Ok(Next::End);
        }
        if stop.sleep(Duration::from_millis(1)) {
            return Ok(Next::Stopped);
        }
        match testing::frame(&self.pool, self.next) {
            Some(frame) => {
                self.next += 1;
                Ok(Next::Frame(frame))
            }
            None => self.next(stop),
        }
    }

    fn describe(&self) -> String {
        "steady".into()
    }
}

fn starts(name: &str, orders: &Arc<Orders>) -> CameraSpec {
    let orders = Arc::clone(orders);
    let open = move || -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(Steady { pool: testing::pool(4), next: 0, orders: Arc::clone(&orders) }))
    };
    CameraSpec {
        name: name.into(),
        open: Some(Box::new(open)),
        preview: None,
        max_fps: None,
        delivery: Delivery::Lossless,
        annotator: None,
        recorder: None,
        track: None,
        ignored: Vec::new(),
        keeps_tracks: false,
        models: vec![CameraModel { name: "fake".into(), ..CameraModel::default() }],
        group_timeout: None,
    }
}

fn stays(name: &str) -> CameraSpec {
    CameraSpec {
        name: name.into(),
        open: None,
        preview: None,
        max_fps: None,
        delivery: Delivery::Lossless,
        annotator: None,
        recorder: None,
        track: None,
        ignored: Vec::new(),
        keeps_tracks: false,
        models: vec![CameraModel { name: "fake".into(), ..CameraModel::default() }],
        group_timeout: None,
    }
}

fn lane(with_model: bool, cameras: Vec<CameraSpec>) -> PipelineSpec {
    let make = || Box::new(Fake::new(1, 1, |_| Act::See));
    let new_model = with_model.then(|| LaneModel {
        facts: testing::facts("fake"),
        runner: Some(make()),
        batch_wait: Duration::ZERO,
        build: Box::new(move || Ok(make())),
        cascade: Cascade::default(),
    });
    PipelineSpec { lanes: vec![LaneSpec { model: "fake".into(), new_model }], cameras, with_new_masks: Vec::new() }
}

/// The lane "fake" that runs, and a new lane "two".
fn with_lane_two(cameras: Vec<CameraSpec>) -> PipelineSpec {
    let mut spec = lane(false, cameras);
    spec.lanes.extend(lane(true, Vec::new()).lanes.into_iter().map(|lane| LaneSpec { model: "two".into(), ..lane }));
    spec
}

fn looked_at_by(models: &[&str], camera: CameraSpec) -> CameraSpec {
    let model = |name: &&str| CameraModel { name: Arc::from(*name), ..CameraModel::default() };
    CameraSpec { models: models.iter().map(model).collect(), ..camera }
}

/// A pipeline with a camera called "a".
struct Bench {
    pipeline: Pipeline,
    stop: Stop,
    orders: Arc<Orders>,
    messages: Receiver<Arc<Message>>,
}

fn context(publish: PublishFn, stop: &Stop) -> PipelineContext {
    PipelineContext {
        publish,
        events: Arc::new(drop::<visiond_message::EventMessage>),
        live: visiond_live::Live::new(),
        messages: None,
        retry_policy: RetryPolicy::default(),
        stop: stop.clone(),
    }
}

impl Bench {
    fn new() -> Self {
        let (publish, messages) = testing::message_channel();
        let (stop, orders) = (Stop::new().unwrap(), Arc::default());
        let context = context(publish, &stop);
        let pipeline = Pipeline::start(lane(true, vec![starts("a", &orders)]), context).unwrap();
        Self { pipeline, stop, orders, messages }
    }

    /// Waits for a message of `camera`; returns its number.
    fn see(&self, camera: &str) -> u64 {
        loop {
            let message = self.messages.recv_timeout(HANG).unwrap();
            if &*message.camera == camera {
                return message.sequence;
            }
        }
    }

    fn phase(&self, camera: usize) -> Phase {
        self.pipeline.lanes()[0].cameras[camera].phase()
    }

    fn end(self) {
        self.stop.raise();
        self.pipeline.halt();
        assert!(self.pipeline.join(hang()));
    }
}

#[test]
fn a_hold_keeps_it_from_ending_and_its_end_lets_it_end() {
    let bench = Bench::new();
    let hold = bench.pipeline.hold().unwrap();
    assert!(hold.has("fake") && !hold.has("another"));
    bench.orders.end.store(true, Ordering::SeqCst);
    wait_until("the camera to end", || bench.phase(0) == Phase::Ended);
    thread::sleep(Duration::from_millis(30));
    assert!(!bench.stop.is_raised() && bench.pipeline.lanes()[0].lane.activity() != Activity::Ended);
    drop(hold);
    assert!(bench.stop.sleep(HANG), "its only camera has ended");
    assert!(bench.pipeline.hold().is_none(), "too late");
    bench.end();
}

#[test]
fn what_is_halted_cannot_be_held_any_more() {
    let bench = Bench::new();
    let hold = bench.pipeline.hold();
    bench.stop.raise();
    bench.pipeline.halt();
    assert!(bench.pipeline.hold().is_none(), "though the first hold keeps it from ending");
    drop(hold);
    bench.end();
}

#[test]
fn the_last_camera_is_exchanged_and_the_lane_goes_on() {
    let mut bench = Bench::new();
    bench.see("a");
    let before = bench.pipeline.lanes();
    let hold = bench.pipeline.hold().unwrap();
    bench.pipeline.change(lane(false, vec![starts("b", &bench.orders)])).unwrap();
    drop(hold);
    bench.see("b");
    let after = bench.pipeline.lanes();
    assert!(Arc::ptr_eq(&before[0].lane, &after[0].lane));
    assert_eq!((before[0].cameras[0].phase(), after[0].cameras.len()), (Phase::Ended, 1));
    bench.end();
}

#[test]
fn a_camera_that_is_opened_anew_goes_on_counting_and_the_other_is_not_touched() {
    let mut bench = Bench::new();
    let hold = bench.pipeline.hold().unwrap();
    bench.pipeline.change(lane(false, vec![stays("a"), starts("b", &Arc::default())])).unwrap();
    let warnings = |bench: &Bench| {
        let cameras = bench.pipeline.cameras.iter();
        cameras.map(|camera| Arc::as_ptr(&camera.record.mask_warnings)).collect::<Vec<_>>()
    };
    let before = warnings(&bench);
    let (mut a, mut b) = (bench.see("a"), bench.see("b"));
    for _ in 0..5 {
        bench.pipeline.change(lane(false, vec![stays("a"), starts("b", &Arc::default())])).unwrap();
        let (next_a, next_b) = (bench.see("a"), bench.see("b"));
        assert!(next_a > a && next_b > b, "{a} {next_a}, {b} {next_b}");
        (a, b) = (next_a, next_b);
    }
    drop(hold);
    assert_eq!(warnings(&bench), before, "its warnings stay limited");
    let mut cameras = bench.pipeline.cameras.iter();
    assert!(cameras.all(|camera| Arc::strong_count(&camera.record.mask_warnings) > 1), "by its collector");
    let snapshots: Vec<_> = bench.pipeline.lanes()[0].cameras.iter().map(|camera| camera.snapshot()).collect();
    assert_eq!((snapshots[0].restarts, snapshots[0].dropped_in_all()), (0, 0));
    assert!(snapshots[1].published > b / 2, "its counters go on");
    bench.end();
}

#[test]
fn a_source_that_does_not_end_is_left_behind_and_the_next_goes_on_counting() {
    let mut bench = Bench::new();
    while bench.see("a") < 5 {}
    bench.orders.hang.store(true, Ordering::SeqCst);
    wait_until("the source to hang", || bench.orders.hangs.load(Ordering::SeqCst));
    let last = bench.messages.try_iter().last().map_or(5, |message| message.sequence);
    let hold = bench.pipeline.hold().unwrap();
    bench.pipeline.change(lane(false, vec![starts("a", &Arc::default())])).unwrap();
    drop(hold);
    // The first message may be of a frame that the lane had before the change.
    wait_until("the new source to stream", || bench.phase(0) == Phase::Streaming);
    assert!(bench.see("a") > last);
    // The old thread wakes up again, and does not disturb the new one.
    bench.orders.hang.store(false, Ordering::SeqCst);
    wait_until("the old thread to end", || bench.pipeline.leaving.iter().all(|thread| thread.is_finished()));
    assert_eq!(bench.phase(0), Phase::Streaming);
    bench.end();
}

#[test]
fn a_lane_that_is_asked_for_no_more_ends_and_the_others_go_on() {
    let mut bench = Bench::new();
    let hold = bench.pipeline.hold().unwrap();
    bench
        .pipeline
        .change(with_lane_two(vec![stays("a"), looked_at_by(&["two"], starts("b", &Arc::default()))]))
        .unwrap();
    bench.see("b");
    let second = Arc::clone(&bench.pipeline.lanes()[1].lane);
    bench.pipeline.change(lane(false, vec![stays("a")])).unwrap();
    drop(hold);
    wait_until("the lane to end", || second.activity() == Activity::Ended);
    bench.see("a");
    assert!(!bench.stop.is_raised());
    bench.end();
}

#[test]
fn a_camera_lends_each_frame_to_every_model_that_looks_at_it() {
    let mut bench = Bench::new();
    let (hold, orders) = (bench.pipeline.hold().unwrap(), Arc::default());
    let both = looked_at_by(&["fake", "two"], starts("b", &orders));
    bench.pipeline.change(with_lane_two(vec![stays("a"), both])).unwrap();
    drop(hold);
    // Each lane gives every frame: the pool of four buffers is never used up.
    let (mut frames, mut looked) = (std::collections::BTreeMap::<u64, u32>::new(), 0);
    while looked < 100 {
        let message = bench.messages.recv_timeout(HANG).unwrap();
        if &*message.camera == "b" {
            *frames.entry(message.sequence).or_default() += 1;
            looked += 1;
        }
    }
    assert!(frames.range(..30).all(|(_, results)| *results == 2) && frames.len() >= 50, "{frames:?}");
    let lanes = bench.pipeline.lanes();
    let names = |lane: &LaneView| lane.cameras.iter().map(|camera| camera.name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&lanes[0]), names(&lanes[1])), (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()]));
    assert_eq!(lanes[1].cameras[0].snapshot().dropped_in_all(), 0);
    // One of its models is no longer needed: the camera is opened again for the other one.
    let hold = bench.pipeline.hold().unwrap();
    bench.pipeline.change(lane(false, vec![stays("a"), starts("b", &Arc::default())])).unwrap();
    drop(hold);
    bench.see("b");
    assert_eq!(bench.pipeline.lanes()[0].cameras.len(), 2);
    bench.end();
}

#[test]
fn a_frame_that_waits_when_its_camera_is_removed_is_dropped_by_overload() {
    let (stop, orders) = (Stop::new().unwrap(), Arc::default());
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    // The first message holds the lane up until `go_on` is dropped.
    let publish = Arc::new(move |_: &Arc<Message>| _ = gate.lock().recv());
    let context = context(publish, &stop);
    let mut pipeline = Pipeline::start(lane(true, vec![starts("a", &orders)]), context).unwrap();
    let camera = Arc::clone(&pipeline.lanes()[0].cameras[0]);
    // One is in the lane, one waits, and the camera has the third in its hand.
    wait_until("a frame to wait", || camera.snapshot().captured >= 3);
    pipeline.change(lane(false, vec![starts("b", &orders)])).unwrap();
    let snapshot = camera.snapshot();
    let mut dropped = [0; DropCause::ALL.len()];
    dropped[DropCause::Overload as usize] = 1;
    assert_eq!(snapshot.dropped, dropped);
    drop(go_on);
    stop.raise();
    pipeline.halt();
    assert!(pipeline.join(hang()));
}

/// A model whose first run ends when the test allows it.
struct Held {
    model: Fake,
    is_held: Arc<AtomicBool>,
    waits: Arc<AtomicBool>,
}

impl ModelRunner for Held {
    fn batch(&self) -> usize {
        self.model.batch()
    }

    fn max_in_flight(&self) -> usize {
        self.model.max_in_flight()
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError> {
        self.model.begin(frames)
    }

    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError> {
        while self.is_held.load(Ordering::SeqCst) {
            self.waits.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        self.model.finish(run_id)
    }

    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError> {
        self.model.detections(run_id, slot, out)
    }
}

#[test]
fn a_run_in_flight_publishes_nothing_once_its_cameras_privacy_masks_have_changed() {
    for changes_masks in [false, true] {
        let (publish, messages) = testing::message_channel();
        let stop = Stop::new().unwrap();
        let context = context(publish, &stop);
        let (is_held, waits) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let model = Fake::new(1, 1, |_| Act::See);
        let held = Held { model, is_held: Arc::clone(&is_held), waits: Arc::clone(&waits) };
        let mut spec = lane(true, vec![starts("a", &Arc::default())]);
        spec.lanes[0].new_model.as_mut().unwrap().runner = Some(Box::new(held));
        let mut pipeline = Pipeline::start(spec, context).unwrap();
        let camera = Arc::clone(&pipeline.lanes()[0].cameras[0]);
        wait_until("a run in flight", || waits.load(Ordering::SeqCst));
        let hold = pipeline.hold().unwrap();
        let mut again = lane(false, vec![starts("a", &Arc::default())]);
        again.with_new_masks.extend(changes_masks.then(|| "a".into()));
        pipeline.change(again).unwrap();
        drop(hold);
        is_held.store(false, Ordering::SeqCst);
        let first = messages.recv_timeout(HANG).unwrap().sequence;
        assert_eq!(first > 0, changes_masks, "frame 0 was captured before the change");
        let unmasked = camera.snapshot().dropped[DropCause::Unmasked as usize];
        assert_eq!(unmasked, u64::from(changes_masks));
        stop.raise();
        pipeline.halt();
        assert!(pipeline.join(hang()));
    }
}
