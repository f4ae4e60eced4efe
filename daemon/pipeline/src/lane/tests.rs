//! Lanes with fake models.

#![allow(clippy::unwrap_used)]

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use visiond_events::{Kind, Rule};
use visiond_frames::clock::SystemClock;
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::FramePool;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::tiling::Tiling;
use visiond_kernels::view::ViewSpec;
use visiond_message::{EventMessage, Message};
use visiond_system::testing::{HANG, wait_until};
use visiond_telemetry::metrics::CameraMetrics;

use super::testing::*;
use super::*;
use crate::collector::{CameraTracks, RuleSettings, TrackSettings};
use crate::mailbox::{Delivery, Mailbox, Put};
use crate::outlet::Outlet;

/// A running lane, and helpers to feed it.
struct Bench {
    mailbox: Arc<LaneMailbox>,
    model_swap: Arc<ModelSwap>,
    messages: Receiver<Arc<Message>>,
    cameras: Vec<Arc<CameraMetrics>>,
    lane: Arc<LaneMetrics>,
    stop: Stop,
    lost: NeedsRestart,
    thread: JoinHandle<()>,
}

fn start(cameras: usize, batch: usize, message_limit: Option<u64>, act: fn(u8) -> Act) -> Bench {
    start_with_runs(1, cameras, batch, message_limit, act)
}

fn start_with_runs(
    max_in_flight: usize,
    cameras: usize,
    batch: usize,
    message_limit: Option<u64>,
    act: fn(u8) -> Act,
) -> Bench {
    start_seeing(&CameraModel::default(), max_in_flight, cameras, batch, message_limit, act)
}

fn start_seeing(
    model: &CameraModel,
    max_in_flight: usize,
    cameras: usize,
    batch: usize,
    message_limit: Option<u64>,
    act: fn(u8) -> Act,
) -> Bench {
    let stop = Stop::new().unwrap();
    let mailbox = Arc::new(Mailbox::default());
    let model_swap = Arc::new(ModelSwap::default());
    let metrics: Vec<_> = (0..cameras).map(|n| Arc::new(CameraMetrics::new(format!("cam{n}").into()))).collect();
    let lane_metrics = Arc::new(LaneMetrics::new("fake".into()));
    let (publish, messages) = message_channel();
    let outlet = outlet(publish, message_limit, Arc::new(SystemClock), &stop);
    let lost = NeedsRestart::default();
    for (number, metrics) in metrics.iter().enumerate() {
        assert_eq!(mailbox.add(camera_of(model, &outlet, metrics), Delivery::Lossless), number);
    }
    let lane = Lane {
        metrics: Arc::clone(&lane_metrics),
        mailbox: Arc::clone(&mailbox),
        model_swap: Arc::clone(&model_swap),
        needs_restart: Arc::clone(&lost),
        ..alone(&stop)
    };
    let thread = std::thread::spawn(move || lane.run(fake_model("fake", batch, max_in_flight, act)));
    Bench { mailbox, model_swap, messages, cameras: metrics, lane: lane_metrics, stop, lost, thread }
}

/// A lane without cameras.
fn alone(stop: &Stop) -> Lane {
    Lane {
        metrics: Arc::new(LaneMetrics::new("fake".into())),
        mailbox: Arc::default(),
        model_swap: Arc::default(),
        clock: Arc::new(SystemClock),
        stop: stop.clone(),
        end: stop.clone(),
        needs_restart: NeedsRestart::default(),
    }
}

/// A lane's fake model.
fn fake_model(name: &str, batch: usize, max_in_flight: usize, act: fn(u8) -> Act) -> LaneModel {
    LaneModel {
        facts: facts(name),
        runner: Some(Box::new(Fake::new(batch, max_in_flight, act))),
        batch_wait: Duration::ZERO,
        build: Box::new(move || Ok(Box::new(Fake::new(batch, max_in_flight, act)))),
        cascade: Cascade::default(),
    }
}

impl Bench {
    fn put(&self, camera: usize, frame: Frame) {
        let queued_ns = SystemClock.monotonic_ns();
        assert!(matches!(
            self.mailbox.put(camera, QueuedFrame { frame: Arc::new(frame), queued_ns, ticket: None }),
            Put::Stored
        ));
    }

    fn end(self) -> (Vec<Arc<Message>>, Vec<Arc<CameraMetrics>>, Arc<LaneMetrics>) {
        (0..self.cameras.len()).for_each(|camera| self.mailbox.end(camera));
        self.thread.join().unwrap();
        (self.messages.try_iter().collect(), self.cameras, self.lane)
    }
}

fn free_buffer(pool: &FramePool, sequence: u64) -> Frame {
    loop {
        match frame(pool, sequence) {
            Some(frame) => return frame,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn every_frame_becomes_a_message_with_its_timings() {
    let bench = start(1, 1, None, |_| Act::See);
    let pool = pool(2);
    for n in 0..5 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4]);
    let last = &messages[4];
    assert_eq!((&*last.camera, &*last.detections[0].label, last.frame.width), ("cam0", "class 4", 4));
    let t = last.timings_us;
    assert!(t.total + 5 >= t.capture + t.queue + t.preprocess + t.infer + t.postprocess, "{t:?}");
    let age_us = (SystemClock.monotonic_ns() - last.monotonic_ns) / 1000;
    assert!(t.total <= age_us, "{t:?}, and it is {age_us} us old");
    assert_eq!((cameras[0].published(), lane.runs.get(), lane.errors.get()), (5, 5, 0));
    assert_eq!(lane.activity(), Activity::Ended);
    assert!(lane.had_frame());
    assert!(frame(&pool, 0).is_some() && frame(&pool, 0).is_some(), "every buffer is back");
}

#[test]
fn a_message_says_how_long_its_frame_was_captured_and_queued() {
    let (pool, metrics) = (pool(1), Arc::new(CameraMetrics::new("door".into())));
    let frame = frame(&pool, 7).unwrap();
    let captured_ns = frame.timestamp.monotonic_ns;
    let queued = QueuedFrame { frame: Arc::new(frame), queued_ns: captured_ns + 4_000_000, ticket: None };
    let work = receive(camera(&metrics), queued, captured_ns + 9_500_000);
    let timings = work.timings;
    assert_eq!((timings.capture, timings.queue, timings.total), (4_000, 5_500, 0));
    assert_eq!((&*work.camera.metrics.name, work.facts.sequence), ("door", 7));
}

#[test]
fn the_runs_of_a_gpu_are_counted_from_the_lanes_first_one() {
    let run = |counts: RunCounts| {
        let bench = start(1, 1, None, |_| Act::See);
        let fake = Fake::new(1, 1, |_| Act::See).on_gpu(counts);
        let model = LaneModel { runner: Some(Box::new(fake)), ..fake_model("gpu", 1, 1, |_| Act::See) };
        let before = bench.model_swap.offer(model);
        bench.mailbox.call();
        before.recv_timeout(HANG).unwrap();
        let pool = pool(2);
        (0..3).for_each(|n| bench.put(0, free_buffer(&pool, n)));
        bench.end().2.gpu()
    };
    assert_eq!(run(RunCounts::default()), None, "no GPU");
    let runs = |counts: RunCounts| run(counts).map(|gpu| (gpu.graph_runs, gpu.single_runs, gpu.copied_bytes));
    assert_eq!(runs(RunCounts { copied_bytes: 5, ..RunCounts::default() }), Some((3, 0, 5)));
    assert_eq!(runs(RunCounts { single_runs: 2, ..RunCounts::default() }), Some((3, 2, 0)));
}

#[test]
fn cameras_share_a_run() {
    let bench = start(3, 3, None, |_| Act::See);
    let pool = pool(9);
    let frames: Vec<_> = (0..9).map(|n| frame(&pool, n).unwrap()).collect();
    for (n, frame) in frames.into_iter().enumerate() {
        bench.put(n % 3, frame);
    }
    let (messages, cameras, lane) = bench.end();
    assert_eq!(messages.len(), 9);
    assert!(cameras.iter().all(|camera| camera.published() == 3));
    assert!(lane.runs.get() <= 9);
    for message in &messages {
        let camera = format!("cam{}", message.sequence % 3);
        assert_eq!((&*message.camera, message.detections[0].class_id as u64), (&*camera, message.sequence));
        // Values of the frame are those of the message's own: 0, 1, 2, 3, ... as halves.
        let halves = ["AAA=", "ADw=", "AEA=", "AEI=", "AEQ=", "AEU=", "AEY=", "AEc=", "AEg="];
        let embedding = message.embedding.as_ref().unwrap();
        assert_eq!((embedding.length, &*embedding.f16), (1, halves[message.sequence as usize]));
    }
}

#[test]
fn frames_wait_for_those_of_other_cameras_as_long_as_the_model_lets_them() {
    // Two whole batches, and one frame that waits in vain.
    for (batch_wait, frames, runs) in [(HANG * 2, 6, 2), (Duration::from_millis(1), 1, 1)] {
        let bench = start(3, 1, None, |_| Act::See);
        let before = bench.model_swap.offer(LaneModel { batch_wait, ..fake_model("many", 3, 1, |_| Act::See) });
        bench.mailbox.call();
        before.recv_timeout(HANG).unwrap();
        let pool = pool(6);
        (0..frames).for_each(|n| bench.put(n % 3, free_buffer(&pool, n as u64)));
        wait_until("the runs", || bench.lane.runs.get() >= runs);
        let (messages, _, lane) = bench.end();
        assert_eq!((messages.len(), lane.runs.get()), (frames, runs));
    }
}

#[test]
fn a_frame_that_fails_costs_that_frame_alone() {
    let bench = start(1, 1, None, |pixel| match pixel {
        1 => Act::FailLoad,
        2 => Act::FailRun,
        3 => Act::FailHead,
        _ => Act::See,
    });
    let pool = pool(2);
    for n in 0..6 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    assert_eq!(sequences, [0, 4, 5]);
    let snapshot = cameras[0].snapshot();
    assert_eq!(snapshot.dropped[DropCause::Failed as usize], 3);
    assert_eq!((lane.errors.get(), lane.rebuilds.get()), (3, 0));
}

#[test]
fn a_model_that_fails_again_and_again_is_built_anew() {
    let bench = start(1, 1, None, |pixel| if pixel < 3 { Act::FailRun } else { Act::See });
    let pool = pool(2);
    for n in 0..4 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, _, lane) = bench.end();
    assert_eq!(messages.len(), 1);
    assert_eq!((lane.errors.get(), lane.rebuilds.get()), (3, 1));
}

#[test]
fn a_run_that_succeeds_makes_the_next_pause_short_again() {
    let (publish, messages) = message_channel();
    let stop = Stop::new().unwrap();
    let lane = alone(&stop);
    let (mut runner, mut state) = (Fake::new(1, 1, |_| Act::See), LaneState::new(1, false));
    let pauses: Vec<_> = (0..5).map(|_| state.backoff.pause()).collect();
    state.failures = FAILURES_UNTIL_REBUILD - 1;
    let metrics = Arc::new(CameraMetrics::new("cam".into()));
    let queued = QueuedFrame {
        frame: Arc::new(frame(&pool(1), 0).unwrap()),
        queued_ns: SystemClock.monotonic_ns(),
        ticket: None,
    };
    let outlet = outlet(publish, None, Arc::new(SystemClock), &stop);
    state.taken.push((camera_to(&outlet, &metrics), queued));
    lane.begin(&mut runner, &facts("fake"), &mut state);
    assert!(lane.finish_oldest(&mut runner, &facts("fake"), &mut state) && messages.try_recv().is_ok());
    assert!(state.backoff.pause() <= pauses[1] && state.failures == 0, "{pauses:?}");
}

#[test]
fn a_panic_costs_the_frames_in_hand_and_the_lane_goes_on() {
    let bench = start(1, 1, None, |pixel| if pixel == 1 { Act::Panic } else { Act::See });
    let pool = pool(2);
    for n in 0..3 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    assert_eq!(sequences, [0, 2]);
    assert_eq!((lane.errors.get(), lane.rebuilds.get()), (1, 1));
    assert_eq!(cameras[0].snapshot().dropped[DropCause::Failed as usize], 1);
}

#[test]
fn stop_ends_a_lane_that_waits_before_it_builds_anew() {
    let bench = start(1, 1, None, |_| Act::Panic);
    bench.put(0, frame(&pool(1), 0).unwrap());
    wait_until("the panic", || bench.lane.errors.get() > 0);
    bench.stop.raise();
    bench.mailbox.stop();
    bench.thread.join().unwrap();
}

#[test]
fn a_limit_of_messages_is_kept_exactly_and_raises_stop() {
    let bench = start(1, 1, Some(2), |_| Act::See);
    let pool = pool(2);
    for n in 0..4 {
        bench.put(0, free_buffer(&pool, n));
    }
    let stop = bench.stop.clone();
    let (messages, _, _) = bench.end();
    assert_eq!(messages.len(), 2);
    assert!(stop.is_raised());
}

#[test]
fn with_two_runs_under_way_frames_come_in_their_order_and_none_is_left_behind() {
    let bench = start_with_runs(2, 2, 2, None, |_| Act::See);
    let pool = pool(6);
    for n in 0..20 {
        bench.put(n as usize % 2, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    for (number, camera) in cameras.iter().enumerate() {
        let of_camera = messages.iter().filter(|message| message.camera == camera.name);
        let sequences: Vec<_> = of_camera.map(|message| message.sequence).collect();
        let expected: Vec<_> = (0..20).filter(|n| n % 2 == number as u64).collect();
        assert_eq!(sequences, expected, "{}", camera.name);
    }
    assert!(messages.iter().all(|message| u64::from(message.detections[0].class_id) == message.sequence));
    assert_eq!((lane.errors.get(), lane.activity()), (0, Activity::Ended));
    assert!((0..6).all(|n| frame(&pool, n).map(std::mem::forget).is_some()), "every buffer is back");
}

#[test]
fn a_run_that_fails_does_not_cost_the_frames_of_the_other() {
    let bench = start_with_runs(2, 1, 1, None, |pixel| match pixel {
        2 => Act::FailLoad,
        5 => Act::FailBegin,
        8 => Act::FailRun,
        11 => Act::FailHead,
        _ => Act::See,
    });
    let pool = pool(4);
    for n in 0..14 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    assert_eq!(sequences, [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]);
    assert_eq!(cameras[0].snapshot().dropped[DropCause::Failed as usize], 4);
    assert_eq!((lane.errors.get(), lane.rebuilds.get()), (4, 0));
}

#[test]
fn a_frame_that_cannot_be_loaded_does_not_cost_the_others_of_its_run() {
    let bench = start(3, 3, None, |pixel| if pixel == 1 { Act::FailLoad } else { Act::See });
    let pool = pool(3);
    // The lane may take them one by one or together.
    for n in 0..3 {
        bench.put(n as usize, frame(&pool, n).unwrap());
    }
    let (messages, _, lane) = bench.end();
    let mut sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    sequences.sort_unstable();
    assert_eq!((sequences, lane.errors.get()), (vec![0, 2], 1));
}

#[test]
fn a_panic_with_two_runs_under_way_costs_no_more_than_both() {
    let bench = start_with_runs(2, 1, 1, None, |pixel| if pixel == 1 { Act::Panic } else { Act::See });
    let pool = pool(4);
    for n in 0..6 {
        bench.put(0, free_buffer(&pool, n));
    }
    let (messages, cameras, lane) = bench.end();
    let failed = cameras[0].snapshot().dropped[DropCause::Failed as usize];
    assert!((1..=2).contains(&failed), "{failed}");
    assert_eq!((messages.len() as u64 + failed, lane.rebuilds.get()), (6, 1));
}

#[test]
fn a_lost_gpu_ends_the_lane_and_says_why() {
    for max_in_flight in [1, 2] {
        let bench =
            start_with_runs(max_in_flight, 1, 1, None, |pixel| if pixel == 2 { Act::LoseGpu } else { Act::See });
        let pool = pool(4);
        for n in 0..3 {
            bench.put(0, free_buffer(&pool, n));
        }
        let (stop, lost) = (bench.stop.clone(), Arc::clone(&bench.lost));
        let (messages, cameras, lane) = bench.end();
        assert_eq!((messages.len(), lane.rebuilds.get(), stop.is_raised()), (2, 0, true));
        assert_eq!(cameras[0].snapshot().dropped[DropCause::Failed as usize], 1);
        let end = lost.get().unwrap();
        assert!(end.exit == Exit::GpuLost && end.message.ends_with("an illegal address was encountered"), "{end:?}");
        assert_eq!(lane.activity(), Activity::Ended);
    }
}

#[test]
fn a_model_is_exchanged_between_two_runs_and_not_one_frame_is_lost() {
    for max_in_flight in [1, 2] {
        let bench = start_with_runs(max_in_flight, 1, 1, None, |_| Act::See);
        let pool = pool(4);
        let mut before = Vec::new();
        for n in 0..30 {
            if n % 10 == 5 {
                before.push(bench.model_swap.offer(fake_model(&format!("new{n}"), 1, 2, |_| Act::See)));
                bench.mailbox.call();
                // It returns at once even without a frame.
                let old = before.last().unwrap().recv_timeout(HANG).unwrap();
                assert!(old.runner.is_some());
            }
            bench.put(0, free_buffer(&pool, n));
        }
        let (messages, cameras, lane) = bench.end();
        let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, (0..30).collect::<Vec<_>>());
        for (model, frames) in [("fake", 0..4), ("new5", 5..14), ("new15", 15..24), ("new25", 25..30)] {
            let saw = |message: &&Arc<Message>| frames.contains(&message.sequence) && message.model.name != model;
            assert!(!messages.iter().any(|message| saw(&message)), "{model}");
        }
        assert_eq!((cameras[0].snapshot().dropped_in_all(), lane.errors.get(), lane.rebuilds.get()), (0, 0, 0));
    }
}

#[test]
fn a_lane_whose_model_cannot_be_built_takes_the_new_one() {
    let bench = start(1, 1, None, |_| Act::Panic);
    let pool = pool(2);
    bench.put(0, free_buffer(&pool, 0));
    wait_until("the panic", || bench.lane.errors.get() > 0);
    let before = bench.model_swap.offer(fake_model("new", 1, 1, |_| Act::See));
    bench.mailbox.call();
    bench.put(0, free_buffer(&pool, 1));
    assert!(before.recv_timeout(HANG).is_ok());
    let (messages, _, _) = bench.end();
    assert_eq!(messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), [1]);
}

/// A model that sees the whole of a 4x2 frame, its left half and its right half.
fn tiled() -> CameraModel {
    let tiling = Some(Tiling::Size { size: 2, overlap: 0.0 });
    CameraModel { view: ViewSpec { tiling, ..ViewSpec::default() }, ..CameraModel::default() }
}

/// A frame whose left half has the value of `sequence`, which is also that of the whole, and whose right half has another.
fn halves(pool: &FramePool, sequence: u64, right: u8) -> Frame {
    let buffer = loop {
        match pool.take() {
            Some(mut buffer) => {
                let left = sequence as u8;
                buffer.as_mut_slice().copy_from_slice(&[left, left, right, right, left, left, right, right]);
                break buffer;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let layout = FrameLayout::packed(PixelFormat::Grey, 4, 2, ColorDescription::default()).unwrap();
    let timestamp = visiond_frames::clock::now(&SystemClock);
    Frame { layout, buffer: buffer.into(), sequence, timestamp, recorded_at: None, damaged: false, name: None }
}

#[test]
fn a_frame_whose_tiles_need_several_runs_is_one_message() {
    for (batch, runs) in [(1, 3), (2, 2), (3, 1), (4, 1)] {
        for max_in_flight in [1, 2] {
            let bench = start_seeing(&tiled(), max_in_flight, 1, batch, None, |_| Act::See);
            let pool = pool(3);
            (0..5).for_each(|n| bench.put(0, halves(&pool, n, 100 + n as u8)));
            let (messages, cameras, lane) = bench.end();
            for (message, sequence) in messages.iter().zip(0..) {
                assert_eq!(message.sequence, sequence);
                let mut classes: Vec<_> = message.detections.iter().map(|one| one.class_id).collect();
                classes.sort_unstable();
                assert_eq!(classes, [sequence as u32, 100 + sequence as u32], "the whole and the left half show one");
                assert_eq!((message.timings_us.preprocess, message.timings_us.infer), (runs, runs), "of all runs");
            }
            assert_eq!((messages.len(), lane.runs.get(), cameras[0].published()), (5, 5 * runs, 5), "batch {batch}");
            assert!((0..3).all(|n| frame(&pool, n).map(std::mem::forget).is_some()), "every buffer is back");
        }
    }
}

#[test]
fn a_tile_that_fails_costs_its_frame_once_and_no_other() {
    for (batch, max_in_flight) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)] {
        let bench = start_seeing(&tiled(), max_in_flight, 1, batch, None, |pixel| match pixel {
            201 => Act::FailLoad,
            202 => Act::FailBegin,
            203 => Act::FailRun,
            204 => Act::FailHead,
            205 => Act::Panic,
            _ => Act::See,
        });
        let pool = pool(3);
        for n in 0..10 {
            bench.put(0, halves(&pool, n, if n % 2 == 1 { 201 + n as u8 / 2 } else { 100 }));
        }
        let (messages, cameras, lane) = bench.end();
        let failed = cameras[0].snapshot().dropped[DropCause::Failed as usize];
        let name = format!("batch {batch}, {max_in_flight} in flight");
        assert_eq!(messages.len() as u64 + failed, 10, "{name}");
        // With two runs in flight, the panic may cost the frame before it as well.
        let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
        assert!(
            sequences == [0, 2, 4, 6, 8] || (max_in_flight == 2 && sequences == [0, 2, 4, 6]),
            "{name} {sequences:?}"
        );
        assert!(messages.iter().all(|message| message.detections.len() == 2), "{name}");
        assert_eq!(lane.rebuilds.get(), 1, "{name}: the panic");
        assert!((0..3).all(|n| frame(&pool, n).map(std::mem::forget).is_some()), "every buffer is back");
    }
}

/// Begins the runs of two cameras' frames, the first of them in tiles.
fn begin_two(
    stop: &Stop,
    batch: usize,
    right: u8,
    act: fn(u8) -> Act,
) -> (Lane, Fake, LaneState, [Arc<CameraMetrics>; 2]) {
    let (lane, mut runner, mut state) = (alone(stop), Fake::new(batch, 1, act), LaneState::new(1, false));
    let cameras = ["tiled", "plain"].map(|name| Arc::new(CameraMetrics::new(name.into())));
    let (outlet, pool) = (outlet(Arc::new(|_| ()), None, Arc::new(SystemClock), stop), pool(2));
    for (metrics, model) in cameras.iter().zip([tiled(), CameraModel::default()]) {
        let queued = QueuedFrame {
            frame: Arc::new(halves(&pool, 7, right)),
            queued_ns: SystemClock.monotonic_ns(),
            ticket: None,
        };
        state.taken.push((camera_of(&model, &outlet, metrics), queued));
    }
    lane.begin(&mut runner, &facts("fake"), &mut state);
    (lane, runner, state, cameras)
}

#[test]
fn tiles_share_a_run_with_the_frames_of_other_cameras() {
    let stop = Stop::new().unwrap();
    let act = |pixel| if pixel == 1 { Act::FailLoad } else { Act::See };
    let (lane, mut runner, mut state, cameras) = begin_two(&stop, 4, 9, act);
    assert_eq!((state.in_flight.len(), slots_of(&state.in_flight[0].works)), (1, 4));
    assert!(lane.finish_oldest(&mut runner, &facts("fake"), &mut state));
    assert_eq!([cameras[0].published(), cameras[1].published()], [1, 1]);
    // A tile that cannot be loaded takes its frame's other views with it.
    let (_, _, state, cameras) = begin_two(&stop, 4, 1, act);
    assert_eq!((state.in_flight.len(), slots_of(&state.in_flight[0].works)), (1, 1));
    assert_eq!(cameras[0].snapshot().dropped[DropCause::Failed as usize], 1);
}

#[test]
fn nothing_more_is_begun_on_a_lost_gpu() {
    let stop = Stop::new().unwrap();
    let (_, _, state, cameras) = begin_two(&stop, 1, 9, |_| Act::LoseGpu);
    assert!(state.lost.is_some() && state.in_flight.is_empty() && state.works.is_empty());
    assert_eq!(cameras.map(|camera| camera.snapshot().dropped[DropCause::Failed as usize]), [1, 1]);
}

#[test]
fn stop_does_not_wait_for_the_rest_of_the_tiles() {
    let stop = Stop::new().unwrap();
    stop.raise();
    let (_, _, state, cameras) = begin_two(&stop, 1, 9, |_| Act::See);
    assert_eq!((state.in_flight.len(), state.works.len()), (0, 0));
    assert_eq!(cameras.map(|camera| camera.snapshot().dropped[DropCause::Failed as usize]), [1, 1]);
}

#[test]
fn frames_that_contradict_the_card_are_logged_once_until_the_contradiction_changes() {
    let error = |contradiction| {
        let mut error = RunError::new(Fault::Run, "row 3 gives class 80");
        error.contradiction = contradiction;
        error
    };
    let (start, mut complaints) = (Instant::now(), Complaints::new());
    let mut logged =
        |contradiction, seconds| complaints.pass(&error(contradiction), start + Duration::from_secs(seconds)).is_some();
    assert!(logged(Some("a score is from 0 to 1"), 0));
    for seconds in [1, 20, 3600] {
        assert!(!logged(Some("a score is from 0 to 1"), seconds));
    }
    assert!(logged(Some("the card names fewer classes"), 3601));
    // An error that changes with every frame is logged like any other.
    assert!(!logged(Some("a score is from 0 to 1"), 3602));
    assert!(logged(Some("a score is from 0 to 1"), 3612));
    assert!(!logged(None, 3613));
    assert!(logged(None, 3623));
    assert!(!logged(Some("a score is from 0 to 1"), 3700));
    complaints.forget_model();
    assert!(complaints.pass(&error(Some("a score is from 0 to 1")), start + Duration::from_secs(3800)).is_some());
}

/// A lane of two cameras of which the first has a zone, and its events.
struct ZoneBench {
    mailbox: Arc<LaneMailbox>,
    clock: Arc<SimulatedClock>,
    events: Arc<Mutex<Vec<String>>>,
    pool: FramePool,
    sequence: u64,
    thread: JoinHandle<()>,
}

impl ZoneBench {
    fn start() -> Self {
        let (stop, clock) = (Stop::new().unwrap(), Arc::new(SimulatedClock::default()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&events);
        let simple = outlet(Arc::new(|_| ()), None, Arc::<SimulatedClock>::clone(&clock), &stop);
        let outlet = Arc::new(Outlet {
            events: Arc::new(move |event: EventMessage| {
                sent.lock()
                    .push(format!("{:?} {}", event.phase, event.reason.unwrap_or_default()).trim_end().to_owned());
            }),
            ..Arc::into_inner(simple).unwrap()
        });
        let rule = Rule { settle: Duration::ZERO, ..Rule::new("here", Kind::Zone) };
        let rule = RuleSettings { rule, classes: Vec::new(), owners: Vec::new(), enabled: true, schedule: None };
        let settings = TrackSettings { rules: Arc::new([rule]), ..TrackSettings::default() };
        let tracks = Arc::new(Mutex::new(CameraTracks::new(Arc::default())));
        let metrics = ["door", "yard"].map(|name| Arc::new(CameraMetrics::new(name.into())));
        let view = visiond_live::Live::new().view("door");
        let (tracking, newest) = (Some((settings, tracks)), Delivery::NewestWins);
        let door =
            Collector::new(Arc::clone(&metrics[0]), None, tracking, view, newest, Arc::clone(&outlet), Arc::default());
        let mailbox = Arc::new(Mailbox::default());
        mailbox.add(Arc::new(door), newest);
        mailbox.add(camera_to(&outlet, &metrics[1]), newest);
        let lane = Lane { mailbox: Arc::clone(&mailbox), clock: Arc::<SimulatedClock>::clone(&clock), ..alone(&stop) };
        let thread = std::thread::spawn(move || lane.run(fake_model("fake", 1, 1, |_| Act::See)));
        Self { mailbox, clock, events, pool: pool(4), sequence: 0, thread }
    }

    fn put(&mut self) {
        let mut frame = free_buffer(&self.pool, 0);
        self.clock.advance(Duration::from_millis(100));
        self.sequence += 1;
        (frame.sequence, frame.timestamp) = (self.sequence, visiond_frames::clock::now(&*self.clock));
        let queued_ns = frame.timestamp.monotonic_ns;
        self.mailbox.put(0, QueuedFrame { frame: Arc::new(frame), queued_ns, ticket: None });
    }

    fn see(&mut self, begins: usize) {
        let has_begun = |bench: &Self| bench.events.lock().iter().filter(|event| *event == "Begin").count() == begins;
        wait_until("a visit", || {
            let begun = has_begun(self);
            if !begun {
                self.put();
            }
            begun
        });
    }

    fn wait_for(&self, wanted: &[&str]) {
        wait_until("the events", || *self.events.lock() == wanted);
    }
}

#[test]
fn the_events_of_a_camera_end_with_its_last_frame_while_others_go_on() {
    let mut bench = ZoneBench::start();
    bench.see(1);
    bench.put();
    bench.mailbox.end(0);
    bench.wait_for(&["Begin", "End camera_gone"]);
    assert!(!bench.thread.is_finished(), "the other camera goes on");
    bench.mailbox.end(1);
    bench.thread.join().unwrap();
    assert_eq!(bench.events.lock().len(), 2, "once");
}

#[test]
fn the_events_of_a_camera_whose_source_says_nothing_end_once_frames_are_missing() {
    let mut bench = ZoneBench::start();
    for visit in 1..3 {
        bench.see(visit);
        bench.clock.advance(Duration::from_millis(2_500));
        let wanted = ["Begin", "End frames_missing"].repeat(visit);
        bench.wait_for(&wanted);
    }
    (0..2).for_each(|camera| bench.mailbox.end(camera));
    bench.thread.join().unwrap();
    assert_eq!(bench.events.lock().len(), 4);
}
