//! A lane: the thread of one model. It takes the newest frames of its cameras, runs the model on them, and passes the results
//! to the cameras' collectors.
//!
//! A lane gives a frame back as soon as its run has begun, unless its camera has images to draw or a client that watches, or other
//! models run on the model's detections: [`crate::cascade`].
//! The lane sleeps on the mailbox and never spins. Other lanes and all cameras continue, whatever fails here:
//! - A frame that fails is dropped.
//! - A model that fails several times in a row is loaded again.
//! - After a panic, the lane loses its frames and continues after a pause.
//! - An error that makes the GPU unusable for the process ends the lane and raises stop, because only a new process can
//!   continue: [`NeedsRestart`].
//!
//! Another model can replace this one between two runs: [`ModelSwap`]. If two runs can be in flight, the second begins just
//! before the first ends: [`crate::pacer`].

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_engine::detector::{Detection, RunCounts, RunId, RunTimings};
use visiond_frames::clock::Clock;
use visiond_frames::frame::{Frame, FrameFacts};
use visiond_message::Timings;
use visiond_system::backoff::Backoff;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{self, Subject, events};
use visiond_system::priority::wake_on_time;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::{Activity, DropCause, LaneMetrics};
use visiond_telemetry::trace;
use visiond_tracker::TrackReport;

use crate::cascade::Cascade;
use crate::collector::{CameraModel, Collector};
use crate::complaints::Complaints;
use crate::frame_rate::FrameRate;
use crate::lane_result::{LaneResult, ModelFacts};
use crate::mailbox::{Batch, Mailbox, TakeResult};
use crate::model_runner::{BuildRunner, Fault, ModelRunner, RunError};
use crate::pacer::{NextAction, RunPacer};

/// The model is loaded again after this many failed runs in a row.
const FAILURES_UNTIL_REBUILD: u32 = 3;
/// The lane's longest sleep without a frame.
const IDLE: Duration = Duration::from_secs(10);

/// One model's thread, before it runs.
pub struct Lane {
    /// The lane's counters and its model's name.
    pub metrics: Arc<LaneMetrics>,
    /// The newest frame of each camera.
    pub mailbox: Arc<LaneMailbox>,
    /// Where a reload leaves another model.
    pub model_swap: Arc<ModelSwap>,
    /// The clock for frames' ages.
    pub clock: Arc<dyn Clock>,
    /// Ends this lane's pauses early.
    pub stop: Stop,
    /// Ends the daemon.
    pub end: Stop,
    /// Set when only a new process can continue.
    pub needs_restart: NeedsRestart,
}

/// A frame in the mailbox.
#[derive(Debug)]
pub struct QueuedFrame {
    /// The frame, which other lanes may also hold. Its buffer is free once the last one has given it back.
    pub frame: Arc<Frame>,
    /// When it was put there, in nanoseconds on CLOCK_MONOTONIC.
    pub queued_ns: u64,
}

/// The mailbox of a lane.
pub type LaneMailbox = Mailbox<Arc<Collector>, QueuedFrame>;

/// A camera's slot in the mailbox of a lane.
#[derive(Debug, Clone)]
pub struct LaneSlot {
    /// The lane's mailbox.
    pub mailbox: Arc<LaneMailbox>,
    /// The number of the slot.
    pub number: usize,
    /// The lane's model.
    pub model: Arc<str>,
    /// Which of the camera's frames the lane gets.
    pub frame_rate: FrameRate,
}

impl LaneSlot {
    /// Adds a slot for a camera.
    pub fn add(mailbox: &Arc<LaneMailbox>, camera: &Arc<Collector>, model: &CameraModel) -> Self {
        let number = mailbox.add(Arc::clone(camera), camera.delivery);
        let (model, frame_rate) = (Arc::clone(&model.name), model.frame_rate);
        Self { mailbox: Arc::clone(mailbox), number, model, frame_rate }
    }

    /// Notes that the camera will put no more frames.
    pub fn end(&self) {
        self.mailbox.end(self.number);
    }
}

/// Why only a new process can continue, and its exit status; set by the first lane or camera that notices.
pub type NeedsRestart = Arc<OnceLock<ExitError>>;

/// Ends the daemon because `who` has found that only a new process can continue.
pub fn end_for_restart(needs: &NeedsRestart, end: &Stop, who: &str, exit: Exit, reason: impl fmt::Display) {
    let message = if exit == Exit::GpuLost {
        let message = format!("unrecoverable CUDA error: exiting so that systemd restarts the daemon: {reason}");
        log::error!(message_id = events::GPU_LOST; "{who}: {message}");
        message
    } else {
        let message = format!("exiting once so that systemd starts the unit again: {reason}");
        log::error!("{who}: {message}");
        message
    };
    let _ = needs.set(ExitError { message, exit });
    end.raise();
}

/// The model that a lane runs.
pub struct LaneModel {
    /// The facts that its results refer to.
    pub facts: ModelFacts,
    /// The loaded model; `None` while it must be reloaded.
    pub runner: Option<Box<dyn ModelRunner>>,
    /// How long a frame waits for others to fill the batch.
    pub batch_wait: Duration,
    /// Loads it again.
    pub build: BuildRunner,
    /// The models on its detections.
    pub cascade: Cascade,
}

/// Hands another model to a lane.
///
/// The lane takes it between two runs, after [`Mailbox::call`]. The old model goes back to the sender, because freeing it
/// takes a while and the lane has frames to run.
#[derive(Default)]
pub struct ModelSwap(Mutex<Option<(LaneModel, Sender<LaneModel>)>>);

impl ModelSwap {
    /// Leaves a model for the lane, and replaces one that it has not taken; the old model comes out of the receiver.
    pub fn offer(&self, model: LaneModel) -> Receiver<LaneModel> {
        let (back, before) = channel();
        *self.0.lock() = Some((model, back));
        before
    }

    fn take(&self) -> Option<(LaneModel, Sender<LaneModel>)> {
        self.0.lock().take()
    }
}

/// A frame of a run.
struct PendingFrame {
    camera: Arc<Collector>,
    facts: FrameFacts,
    /// `None` once the run has begun, unless an image is made from the frame, or other models run on its detections.
    frame: Option<Arc<Frame>>,
    /// How long capture and queueing took.
    timings: Timings,
}

/// A run in flight; its slot `i` holds the frame of `works[i]`.
struct Run {
    run_id: RunId,
    works: VecDeque<PendingFrame>,
}

/// The state that lives as long as the lane's thread.
struct LaneState {
    taken: Vec<(Arc<Collector>, QueuedFrame)>,
    /// Frames of the run that begins, or that is being published.
    works: VecDeque<PendingFrame>,
    /// Runs in flight, oldest first.
    in_flight: VecDeque<Run>,
    /// Empty lists for the next runs.
    spare: Vec<VecDeque<PendingFrame>>,
    found: Vec<Detection>,
    /// The track of each of `found`.
    tracks: Vec<Option<TrackReport>>,
    /// The models on the detections.
    cascade: Cascade,
    /// The frames that the model takes.
    batch: Batch,
    pacer: RunPacer,
    /// The model's counters after the previous run.
    counted: RunCounts,
    backoff: Backoff,
    failures: u32,
    /// The error that made the GPU unusable for the process.
    lost: Option<String>,
    complaints: Complaints,
}

impl LaneState {
    fn new(max_in_flight: usize, eager: bool) -> Self {
        Self {
            taken: Vec::new(),
            works: VecDeque::new(),
            in_flight: VecDeque::with_capacity(max_in_flight),
            spare: Vec::with_capacity(max_in_flight),
            found: Vec::new(),
            tracks: Vec::new(),
            cascade: Cascade::default(),
            batch: Batch { most: 1, wait: Duration::ZERO },
            pacer: RunPacer::new(max_in_flight, eager),
            counted: RunCounts::default(),
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(5)),
            failures: 0,
            lost: None,
            complaints: Complaints::new(),
        }
    }
}

impl Lane {
    /// Runs the model on frames until the mailbox has ended or is stopped.
    pub fn run(self, mut model: LaneModel) {
        logging::about(Subject::Model, Arc::clone(&self.metrics.name));
        // The wait for a run sleeps.
        wake_on_time();
        let max_in_flight = model.runner.as_ref().map_or(1, |runner| runner.max_in_flight());
        let mut state = LaneState::new(max_in_flight, self.mailbox.has_lossless());
        state.cascade = std::mem::take(&mut model.cascade);
        // After a panic, `state` may hold half a batch, which `discard` clears; everything else in `self` is atomic or
        // locked.
        while catch_unwind(AssertUnwindSafe(|| self.serve(&mut model, &mut state))).is_err() {
            // The panic hook has logged where and why.
            log::error!("model {}: restarting after a panic", self.metrics.name);
            self.metrics.errors.add(1);
            // Dropping it waits for the GPU, which may still read the frames.
            model.runner = None;
            state.cascade.unload();
            self.discard(&mut state);
        }
        self.metrics.enter(Activity::Ended);
    }

    /// Processes frames until the mailbox has ended or the lane must stop.
    fn serve(&self, model: &mut LaneModel, state: &mut LaneState) {
        loop {
            let Some(runner) = &mut model.runner else {
                if !self.rebuild(model, state) {
                    return;
                }
                continue;
            };
            state.batch = Batch { most: runner.batch(), wait: model.batch_wait };
            if let Some(reason) = state.lost.take() {
                // Freeing memory of a lost CUDA context fails at best, and the process ends anyway.
                std::mem::forget((model.runner.take(), std::mem::take(&mut state.cascade)));
                self.give_up(reason, state);
                return;
            }
            if state.failures >= FAILURES_UNTIL_REBUILD {
                log::warn!("model {}: {} runs failed in a row, reloading it", self.metrics.name, state.failures);
                while state.lost.is_none() && self.finish_oldest(runner.as_mut(), &model.facts, state) {}
                if state.lost.is_none() {
                    model.runner = None;
                }
                continue;
            }
            let timeout = match state.pacer.step(self.clock.monotonic_ns(), state.in_flight.len()) {
                NextAction::WaitForFrame => {
                    self.metrics.enter(Activity::Idle);
                    IDLE
                }
                NextAction::BeginAt { at_ns } => {
                    self.clock.sleep_until(at_ns, &self.stop);
                    Duration::ZERO
                }
                NextAction::Finish => {
                    self.finish_oldest(runner.as_mut(), &model.facts, state);
                    continue;
                }
            };
            match self.mailbox.take(state.batch, timeout, &mut state.taken) {
                TakeResult::Frames => {
                    self.metrics.enter(Activity::Looking);
                    self.begin(runner.as_mut(), state);
                }
                TakeResult::TimedOut => {
                    state.pacer.nothing_waits();
                    self.finish_oldest(runner.as_mut(), &model.facts, state);
                }
                TakeResult::Called => {
                    while state.lost.is_none() && self.finish_oldest(runner.as_mut(), &model.facts, state) {}
                    if state.lost.is_none() {
                        self.swap_model(model, state);
                        state.pacer.set_eager(self.mailbox.has_lossless());
                    }
                }
                TakeResult::Ended | TakeResult::Stopped => {
                    while state.lost.is_none() && self.finish_oldest(runner.as_mut(), &model.facts, state) {}
                    if state.lost.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Ends the daemon because the GPU is lost; drops the frames in hand as failed.
    fn give_up(&self, reason: String, state: &mut LaneState) {
        self.discard(state);
        end_for_restart(&self.needs_restart, &self.end, &format!("model {}", self.metrics.name), Exit::GpuLost, reason);
    }

    /// Replaces the model if a reload has left another one; no run is in flight.
    fn swap_model(&self, model: &mut LaneModel, state: &mut LaneState) -> bool {
        let Some((mut new, back)) = self.model_swap.take() else { return false };
        model.cascade = std::mem::replace(&mut state.cascade, std::mem::take(&mut new.cascade));
        if let Some(runner) = &new.runner {
            state.pacer = RunPacer::new(runner.max_in_flight(), self.mailbox.has_lossless());
        }
        self.metrics.set_values(&new.facts.values);
        state.counted = RunCounts::default();
        state.failures = 0;
        state.backoff.reset();
        state.complaints.forget_model();
        // If the reload no longer waits for the old model, it is freed here.
        let _ = back.send(std::mem::replace(model, new));
        true
    }

    /// Loads the model again, with growing pauses between attempts; returns `false` if the lane stops.
    fn rebuild(&self, model: &mut LaneModel, state: &mut LaneState) -> bool {
        loop {
            self.metrics.enter(Activity::Backoff);
            let pause = state.backoff.pause();
            if self.swap_model(model, state) {
                return true;
            }
            if self.stop.sleep(pause) {
                return false;
            }
            if self.swap_model(model, state) {
                return true;
            }
            self.metrics.enter(Activity::Looking);
            match (model.build)() {
                Ok(runner) => {
                    self.metrics.rebuilds.add(1);
                    state.failures = 0;
                    log::info!("model {}: loaded again", self.metrics.name);
                    model.runner = Some(runner);
                    return true;
                }
                Err(error) if error.fault == Fault::GpuLost => {
                    self.metrics.errors.add(1);
                    self.give_up(error.to_string(), state);
                    return false;
                }
                Err(error) => {
                    self.metrics.errors.add(1);
                    log::error!("model {}: cannot reload it: {error}; retrying", self.metrics.name);
                }
            }
        }
    }

    /// Begins a run on the frames that were taken. Drops and logs a frame that fails, and begins without it.
    fn begin(&self, runner: &mut dyn ModelRunner, state: &mut LaneState) {
        let now_ns = self.clock.monotonic_ns();
        let trace = trace::work("begin run");
        state.works.extend(state.taken.drain(..).map(|(camera, queued)| receive(camera, queued, now_ns)));
        state.works.iter().for_each(|work| trace.frame(&work.camera.metrics.name, work.facts.sequence));
        while let Some(first) = state.works.front() {
            let error = match begin_run(runner, &state.works) {
                Ok(run_id) => {
                    for work in &mut state.works {
                        if !work.camera.wants_view() && state.cascade.is_empty() {
                            work.frame = None;
                        }
                    }
                    state.pacer.begun(now_ns, state.works.len());
                    let works = std::mem::replace(&mut state.works, state.spare.pop().unwrap_or_default());
                    state.in_flight.push_back(Run { run_id, works });
                    return;
                }
                Err(error) => error,
            };
            match error.fault {
                Fault::Frame(index) if index < state.works.len() => {
                    if let Some(work) = state.works.remove(index) {
                        self.complain(&mut state.complaints, &work, &error);
                        self.fail(&work);
                    }
                }
                fault => {
                    state.failures += 1;
                    state.lost = (fault == Fault::GpuLost).then(|| error.to_string());
                    self.complain(&mut state.complaints, first, &error);
                    state.works.drain(..).for_each(|work| self.fail(&work));
                }
            }
        }
    }

    /// Waits for the oldest run in flight, and passes its results to the collectors; returns `false` if no run is in flight.
    fn finish_oldest(&self, runner: &mut dyn ModelRunner, facts: &ModelFacts, state: &mut LaneState) -> bool {
        let Some(run) = state.in_flight.front_mut() else { return false };
        self.metrics.enter(Activity::Looking);
        let trace = trace::work("finish run");
        let result = runner.finish(run.run_id);
        drop(trace);
        self.metrics.runs.add(1);
        let run_id = run.run_id;
        match result {
            Ok(timings) => {
                state.failures = 0;
                state.backoff.reset();
                let (now_ns, frames) = (self.clock.monotonic_ns(), run.works.len());
                state.pacer.finished(
                    now_ns,
                    state.in_flight.len() - 1,
                    frames,
                    &timings,
                    self.mailbox.waits(state.batch),
                );
                self.read(runner, facts, state, run_id, &timings);
                self.count(runner, state, &timings);
            }
            Err(error) => {
                state.failures += 1;
                state.lost = (error.fault == Fault::GpuLost).then(|| error.to_string());
                state.pacer.lost();
                if let Some(first) = run.works.front() {
                    self.complain(&mut state.complaints, first, &error);
                }
                run.works.drain(..).for_each(|work| self.fail(&work));
            }
        }
        if let Some(run) = state.in_flight.pop_front() {
            state.spare.push(run.works);
        }
        true
    }

    /// Passes the results of the oldest run, which is finished, to the collectors, frame by frame.
    fn read(
        &self,
        runner: &mut dyn ModelRunner,
        model: &ModelFacts,
        state: &mut LaneState,
        run_id: RunId,
        timings: &RunTimings,
    ) {
        let Some(run) = state.in_flight.front_mut() else { return };
        for slot in 0.. {
            let Some(work) = run.works.pop_front() else { break };
            let start = Instant::now();
            let trace = trace::work_on("read", &work.camera.metrics.name, work.facts.sequence);
            if let Err(error) = runner.detections(run_id, slot, &mut state.found) {
                self.complain(&mut state.complaints, &work, &error);
                self.fail(&work);
                continue;
            }
            work.camera.selection.keep_wanted(&mut state.found, &model.labels);
            let PendingFrame { camera, facts, frame, timings: so_far } = work;
            let timings = Timings { preprocess: timings.preprocess_us, infer: timings.infer_us, ..so_far };
            camera.drop_ignored(&facts, model, &mut state.found);
            let (detections, values) = (&*state.found, runner.values());
            let result = LaneResult { frame: facts, model, detections, values, crops: &[], timings };
            camera.track(&result, &mut state.tracks);
            let clock = &*self.clock;
            let crops = state.cascade.run(frame.as_deref(), &camera, &result, &state.tracks, &self.metrics, clock);
            let crops = crops.unwrap_or_else(|error| {
                state.lost = Some(error.to_string());
                &[]
            });
            // Tracing masks may take long or hang, so the watchdog monitors the lane meanwhile.
            let message = camera.join(&LaneResult { crops, ..result }, &state.tracks, start);
            drop(trace);
            self.metrics.enter(Activity::Publishing);
            camera.publish(message, frame.filter(|_| camera.wants_view()), &self.metrics);
            self.metrics.enter(Activity::Looking);
        }
    }

    /// Adds the model's counts since the previous run to the metrics.
    fn count(&self, runner: &dyn ModelRunner, state: &mut LaneState, timings: &RunTimings) {
        let counts = runner.counts();
        // The counters of a reloaded model start at 0.
        let new = counts.since(&state.counted).unwrap_or(counts);
        state.counted = counts;
        if counts.graph_runs + counts.single_runs > 0 {
            self.metrics.count_gpu(&new, timings.launch_us);
        }
    }

    /// Drops all frames of the lane as failed.
    fn discard(&self, state: &mut LaneState) {
        let in_flight = state.in_flight.drain(..).flat_map(|run| run.works);
        let works = state.works.drain(..).chain(in_flight).map(|work| work.camera);
        state.pacer.lost();
        for camera in works.chain(state.taken.drain(..).map(|(camera, _)| camera)) {
            camera.metrics.count_dropped_by(&self.metrics.name, DropCause::Failed, 1);
        }
    }

    fn fail(&self, work: &PendingFrame) {
        work.camera.metrics.count_dropped_by(&self.metrics.name, DropCause::Failed, 1);
    }

    fn complain(&self, complaints: &mut Complaints, work: &PendingFrame, error: &RunError) {
        self.metrics.errors.add(1);
        let Some(held_back) = complaints.pass(error, Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
        let (model, camera) = (&self.metrics.name, &work.camera.metrics.name);
        log::error!(camera:% = camera; "model {model}: frame {} of camera {camera}: {error}{more}", work.facts.sequence);
    }
}

/// Makes a pending frame from one that was taken out of the mailbox at `now_ns`.
fn receive(camera: Arc<Collector>, queued: QueuedFrame, now_ns: u64) -> PendingFrame {
    let QueuedFrame { frame, queued_ns } = queued;
    let timings = Timings {
        capture: queued_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000,
        queue: now_ns.saturating_sub(queued_ns) / 1_000,
        ..Timings::default()
    };
    PendingFrame { camera, facts: frame.facts(), frame: Some(frame), timings }
}

/// Begins a run on all of `works`.
fn begin_run(runner: &mut dyn ModelRunner, works: &VecDeque<PendingFrame>) -> Result<RunId, RunError> {
    let mut views = Vec::with_capacity(works.len());
    for (index, work) in works.iter().enumerate() {
        // Every frame is still there: it is dropped after its run has begun.
        let Some(frame) = &work.frame else { continue };
        let whole = frame.view().map_err(|error| RunError::new(Fault::Frame(index), error))?;
        let view = work.camera.view_spec.of((whole.width(), whole.height()));
        let view = view.map_err(|error| RunError::new(Fault::Frame(index), error))?;
        views.push(whole.viewed(view).map_err(|error| RunError::new(Fault::Frame(index), error))?);
    }
    runner.begin(&views)
}

#[cfg(test)]
pub mod testing;

#[cfg(test)]
mod tests;
