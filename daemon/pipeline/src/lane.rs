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

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_engine::detector::{Detection, RunCounts, RunId, RunTimings, ViewMerger};
use visiond_frames::clock::Clock;
use visiond_frames::frame::{Frame, FrameFacts};
use visiond_kernels::view::{FrameViews, ViewError};
use visiond_message::Timings;
use visiond_system::backoff::Backoff;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{self, Subject, events};
use visiond_system::priority::wake_on_time;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::{Activity, DropCause, LaneMetrics};
use visiond_telemetry::trace;

use crate::cascade::{Cascade, LaneContext};
use crate::collector::{CameraModel, Collector, Ticket, TrackBuffers};
use crate::complaints::Complaints;
use crate::frame_rate::FrameRate;
use crate::lane_result::{LaneResult, ModelFacts};
use crate::mailbox::{Batch, Mailbox, TakeResult};
use crate::model_runner::{BuildRunner, Fault, ModelRunner, RunError};
use crate::pacer::{NextAction, RunPacer};

/// The model is loaded again after this many failed runs in a row.
const FAILURES_UNTIL_REBUILD: u32 = 3;
/// The lane's longest sleep without a frame, and how often it looks for cameras that send none.
const IDLE: Duration = Duration::from_secs(1);

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
    /// With `group`: kept until the lane has passed its result on, or has dropped the frame.
    pub ticket: Option<Ticket>,
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

/// A frame of a run, or, if its tiles do not fit into one run, a part of it.
#[derive(Clone)]
struct PendingFrame {
    camera: Arc<Collector>,
    facts: FrameFacts,
    /// `None` once the run has begun, unless an image is made from the frame, or other models run on its detections.
    frame: Option<Arc<Frame>>,
    /// How long capture and queueing took.
    timings: Timings,
    /// See [`QueuedFrame::ticket`].
    ticket: Option<Ticket>,
    /// The numbers of the views that the run has; of a frame that waits, an empty range from its next view on.
    seen: Range<usize>,
    /// Set when the frame fails; only a frame in several runs has it.
    failed: Option<Rc<Cell<bool>>>,
}

impl PendingFrame {
    /// Returns how the model sees the frame.
    fn views(&self) -> Result<FrameViews, ViewError> {
        self.camera.view_spec.views((self.facts.width, self.facts.height))
    }

    /// Whether this is the frame's last part.
    fn is_complete(&self) -> bool {
        self.failed.is_none() || self.views().is_ok_and(|views| views.len() == self.seen.end)
    }

    fn has_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.get())
    }
}

/// A run in flight; its slots hold the views of each of `works` in turn.
struct Run {
    run_id: RunId,
    works: VecDeque<PendingFrame>,
}

/// The views of the frame that is being read. Those of a frame are read in their order, before those of another frame.
#[derive(Default)]
struct SeenViews {
    merger: ViewMerger,
    /// How long the runs of the frame took so far.
    preprocess_us: u64,
    infer_us: u64,
    /// How long reading all but the last of them took.
    reading: Duration,
}

/// The state that lives as long as the lane's thread.
struct LaneState {
    taken: Vec<(Arc<Collector>, QueuedFrame)>,
    /// Frames that have been taken.
    works: VecDeque<PendingFrame>,
    /// Frames of the run that begins.
    starting: VecDeque<PendingFrame>,
    /// Runs in flight, oldest first.
    in_flight: VecDeque<Run>,
    /// Empty lists for the next runs.
    spare: Vec<VecDeque<PendingFrame>>,
    found: Vec<Detection>,
    /// The tracks of `found`.
    tracks: TrackBuffers,
    seen: SeenViews,
    /// The models on the detections.
    cascade: Cascade,
    /// The frames that the model takes.
    batch: Batch,
    /// The most views of a frame that was taken last.
    views_per_frame: usize,
    pacer: RunPacer,
    /// The model's counters after the previous run.
    counted: RunCounts,
    backoff: Backoff,
    failures: u32,
    /// The error that made the GPU unusable for the process.
    lost: Option<String>,
    /// When to look again for cameras that send no frame, in nanoseconds on CLOCK_MONOTONIC.
    next_look_ns: u64,
    complaints: Complaints,
}

impl LaneState {
    fn new(max_in_flight: usize, eager: bool) -> Self {
        Self {
            taken: Vec::new(),
            works: VecDeque::new(),
            starting: VecDeque::new(),
            in_flight: VecDeque::with_capacity(max_in_flight),
            spare: Vec::with_capacity(max_in_flight),
            found: Vec::new(),
            tracks: TrackBuffers::default(),
            seen: SeenViews::default(),
            views_per_frame: 1,
            cascade: Cascade::default(),
            batch: Batch { most: 1, wait: Duration::ZERO },
            pacer: RunPacer::new(max_in_flight, eager),
            counted: RunCounts::default(),
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(5)),
            failures: 0,
            lost: None,
            next_look_ns: 0,
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
            self.look_for_silence(state);
            let Some(runner) = &mut model.runner else {
                if !self.rebuild(model, state) {
                    return;
                }
                continue;
            };
            // A frame whose tiles must wait for a later run would rather be replaced by a newer one.
            state.batch = Batch { most: (runner.batch() / state.views_per_frame).max(1), wait: model.batch_wait };
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
                    self.begin(runner.as_mut(), &model.facts, state);
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
                        self.end_events();
                    }
                }
                TakeResult::Ended | TakeResult::Stopped => {
                    while state.lost.is_none() && self.finish_oldest(runner.as_mut(), &model.facts, state) {}
                    if state.lost.is_none() {
                        self.end_events();
                        return;
                    }
                }
            }
        }
    }

    /// Ends the events of the cameras that have ended. No frame of them is left.
    fn end_events(&self) {
        // Otherwise, the cameras have ended because the daemon does, which ends the events of all.
        if !self.stop.is_raised() {
            self.mailbox.ended().iter().for_each(|camera| camera.end_events());
        }
    }

    /// Now and then, ends the events of cameras that send no frame, whatever their sources are doing.
    fn look_for_silence(&self, state: &mut LaneState) {
        let now_ns = self.clock.monotonic_ns();
        if now_ns < state.next_look_ns {
            return;
        }
        state.next_look_ns = now_ns.saturating_add(IDLE.as_nanos() as u64);
        for camera in self.mailbox.idle() {
            let mut works = state.in_flight.iter().flat_map(|run| &run.works);
            if !works.any(|work| Arc::ptr_eq(&work.camera.metrics, &camera.metrics)) {
                camera.look_for_silence(now_ns);
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
            self.look_for_silence(state);
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

    /// Begins runs on the frames that were taken: one, unless the tiles of a frame need more. Drops and logs a frame that fails, and
    /// begins without it.
    fn begin(&self, runner: &mut dyn ModelRunner, facts: &ModelFacts, state: &mut LaneState) {
        let now_ns = self.clock.monotonic_ns();
        let trace = trace::work("begin run");
        state.works.extend(state.taken.drain(..).map(|(camera, queued)| receive(camera, queued, now_ns)));
        state.works.iter().for_each(|work| trace.frame(&work.camera.topic, work.facts.sequence));
        state.views_per_frame = 1;
        while !state.works.is_empty() {
            let waits = state.in_flight.len() == runner.max_in_flight();
            if waits {
                self.finish_oldest(runner, facts, state);
            }
            if state.lost.is_some() || (waits && self.stop.is_raised()) {
                state.works.drain(..).for_each(|work| self.fail(work));
                return;
            }
            self.fill_run(runner.batch(), state);
            self.begin_run(runner, state);
        }
    }

    /// Moves frames that wait into the next run, and of a frame whose views do not fit, a part.
    fn fill_run(&self, batch: usize, state: &mut LaneState) {
        let mut free = batch;
        while free > 0 {
            let Some(mut work) = state.works.pop_front() else { break };
            if work.has_failed() {
                self.fail(work);
                continue;
            }
            let views = match work.views() {
                Ok(views) => views.len(),
                Err(error) => {
                    self.complain(&mut state.complaints, &work, &RunError::new(Fault::Frame(0), error));
                    self.fail(work);
                    continue;
                }
            };
            state.views_per_frame = state.views_per_frame.max(views);
            let end = views.min(work.seen.end + free);
            free -= end - work.seen.end;
            work.seen = work.seen.end..end;
            if end < views {
                work.failed.get_or_insert_default();
                state.works.push_front(PendingFrame { seen: end..end, ..work.clone() });
            }
            state.starting.push_back(work);
        }
    }

    /// Begins a run on the frames of the run that begins. Drops and logs a frame that fails, and begins without it.
    fn begin_run(&self, runner: &mut dyn ModelRunner, state: &mut LaneState) {
        while let Some(first) = state.starting.front() {
            let error = match begin_run(runner, &state.starting) {
                Ok(run_id) => {
                    for work in &mut state.starting {
                        if !work.camera.wants_view() && state.cascade.is_empty() {
                            work.frame = None;
                        }
                    }
                    state.pacer.begun(self.clock.monotonic_ns(), slots_of(&state.starting));
                    let works = std::mem::replace(&mut state.starting, state.spare.pop().unwrap_or_default());
                    state.in_flight.push_back(Run { run_id, works });
                    return;
                }
                Err(error) => error,
            };
            match error.fault {
                Fault::Frame(slot) if slot < slots_of(&state.starting) => {
                    if let Some(work) = state.starting.remove(work_of_slot(&state.starting, slot)) {
                        self.complain(&mut state.complaints, &work, &error);
                        self.fail(work);
                    }
                }
                fault => {
                    state.failures += 1;
                    state.lost = (fault == Fault::GpuLost).then(|| error.to_string());
                    self.complain(&mut state.complaints, first, &error);
                    state.starting.drain(..).for_each(|work| self.fail(work));
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
                // A run of some tiles of a frame says nothing of the others.
                if run.works.iter().any(PendingFrame::is_complete) {
                    state.failures = 0;
                    state.backoff.reset();
                }
                let (now_ns, slots) = (self.clock.monotonic_ns(), slots_of(&run.works));
                state.pacer.finished(
                    now_ns,
                    state.in_flight.len() - 1,
                    slots,
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
                run.works.drain(..).for_each(|work| self.fail(work));
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
        let mut slot = 0;
        while let Some(work) = run.works.pop_front() {
            let start = Instant::now();
            let trace = trace::work_on("read", &work.camera.topic, work.facts.sequence);
            let slots = slot..slot + work.seen.len();
            slot = slots.end;
            if work.has_failed() {
                self.fail(work);
                continue;
            }
            let is_read = match read_views(runner, run_id, slots, &work, &mut state.seen, &mut state.found) {
                Ok(is_read) => is_read,
                Err(error) => {
                    self.complain(&mut state.complaints, &work, &error);
                    self.fail(work);
                    continue;
                }
            };
            state.seen.preprocess_us += timings.preprocess_us;
            state.seen.infer_us += timings.infer_us;
            if !is_read {
                state.seen.reading += start.elapsed();
                continue;
            }
            let start = start.checked_sub(state.seen.reading).unwrap_or(start);
            work.camera.selection.keep_wanted(&mut state.found, &model.labels);
            let PendingFrame { camera, facts, frame, timings: so_far, ticket, .. } = work;
            let timings = Timings { preprocess: state.seen.preprocess_us, infer: state.seen.infer_us, ..so_far };
            camera.drop_ignored(&facts, model, &mut state.found);
            let (detections, values) = (&*state.found, runner.values());
            let result = LaneResult { frame: facts, model, detections, values, crops: &[], timings };
            camera.track(&result, &mut state.tracks);
            let lane = LaneContext { metrics: &self.metrics, clock: &*self.clock, stop: &self.stop };
            let crops = state.cascade.run(frame.as_deref(), &camera, &result, state.tracks.reports(), lane);
            let crops = crops.unwrap_or_else(|error| {
                state.lost = Some(error.to_string());
                &[]
            });
            let result = LaneResult { crops, ..result };
            camera.apply_rules(&result, &mut state.tracks);
            // After the models on the detections, which may take long: a reload that changes the masks waits for what passes.
            let Some(_passing) = camera.pass() else {
                camera.metrics.count_dropped_by(&self.metrics.name, DropCause::Unmasked, 1);
                camera.drop_frame(ticket);
                continue;
            };
            // Tracing masks may take long or hang, so the watchdog monitors the lane meanwhile.
            let message = camera.join(&result, state.tracks.reports(), start);
            drop(trace);
            self.metrics.enter(Activity::Publishing);
            let view = frame.filter(|_| camera.wants_view());
            camera.publish(message, view, state.tracks.images(), &self.metrics);
            camera.drop_frame(ticket);
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
        state.works.drain(..).chain(state.starting.drain(..)).chain(in_flight).for_each(|work| self.fail(work));
        state.pacer.lost();
        for (camera, queued) in state.taken.drain(..) {
            self.give_back(&camera, queued.ticket);
        }
    }

    /// Counts a frame as failed, once for all of its parts.
    fn fail(&self, PendingFrame { camera, ticket, failed, .. }: PendingFrame) {
        if failed.is_some_and(|failed| failed.replace(true)) {
            camera.drop_frame(ticket);
        } else {
            self.give_back(&camera, ticket);
        }
    }

    /// Counts a frame as failed. The message of a group may wait for it, and then for a sink.
    fn give_back(&self, camera: &Collector, ticket: Option<Ticket>) {
        camera.metrics.count_dropped_by(&self.metrics.name, DropCause::Failed, 1);
        self.metrics.enter(Activity::Publishing);
        camera.drop_frame(ticket);
        self.metrics.enter(Activity::Looking);
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
    let QueuedFrame { frame, queued_ns, ticket } = queued;
    let timings = Timings {
        capture: queued_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000,
        queue: now_ns.saturating_sub(queued_ns) / 1_000,
        ..Timings::default()
    };
    PendingFrame { camera, facts: frame.facts(), frame: Some(frame), timings, ticket, seen: 0..0, failed: None }
}

/// Begins a run on all of `works`.
fn begin_run(runner: &mut dyn ModelRunner, works: &VecDeque<PendingFrame>) -> Result<RunId, RunError> {
    let mut seen = Vec::with_capacity(slots_of(works));
    for work in works {
        // Every frame is still there: it is dropped after its run has begun.
        let Some(frame) = &work.frame else { continue };
        let slot = seen.len();
        let whole = frame.view().map_err(|error| RunError::new(Fault::Frame(slot), error))?;
        let views = work.views().map_err(|error| RunError::new(Fault::Frame(slot), error))?;
        for index in work.seen.clone() {
            let view = whole.viewed(views.get(index));
            seen.push(view.map_err(|error| RunError::new(Fault::Frame(slot), error))?);
        }
    }
    runner.begin(&seen)
}

/// Returns how many slots of a run the views of `works` take.
fn slots_of(works: &VecDeque<PendingFrame>) -> usize {
    works.iter().map(|work| work.seen.len()).sum()
}

/// Returns which of `works` has a view in this slot.
fn work_of_slot(works: &VecDeque<PendingFrame>, slot: usize) -> usize {
    let mut end = 0;
    works
        .iter()
        .take_while(|work| {
            end += work.seen.len();
            end <= slot
        })
        .count()
}

/// Reads the views of a frame that a run has; returns whether these are the last, and `found` has the frame's detections.
fn read_views(
    runner: &mut dyn ModelRunner,
    run_id: RunId,
    slots: Range<usize>,
    work: &PendingFrame,
    seen: &mut SeenViews,
    found: &mut Vec<Detection>,
) -> Result<bool, RunError> {
    let views = work.views().map_err(|error| RunError::new(Fault::Frame(slots.start), error))?;
    if work.seen.start == 0 {
        (seen.preprocess_us, seen.infer_us, seen.reading) = (0, 0, Duration::ZERO);
        seen.merger.clear();
    }
    for (slot, index) in slots.zip(work.seen.clone()) {
        runner.detections(run_id, slot, found)?;
        if views.len() > 1 {
            seen.merger.add(&views.get(index), found);
        }
    }
    let is_last = work.seen.end == views.len();
    if is_last && views.len() > 1 {
        seen.merger.merge(found);
    }
    Ok(is_last)
}

#[cfg(test)]
pub mod testing;

#[cfg(test)]
mod tests;
