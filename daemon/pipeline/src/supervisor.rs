//! Starts, changes and ends all threads of the pipeline: a lane for each model, a thread for each camera.
//!
//! [`Pipeline::change`] switches to another set of lanes and cameras. A camera that stays is not touched, and changing a
//! camera does not touch its lane. A lane switches models between two runs. The start is a change from an empty pipeline.
//!
//! The pipeline ends in one of two ways:
//! - Every camera has ended: the lanes drain, and the last one raises `stop`.
//! - A signal, a sink without a reader, or a limit raises `stop`: [`Pipeline::halt`] then wakes every thread that waits.
//!
//! Either way [`Pipeline::join`] waits for the threads until a deadline.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_annotate::annotator::Annotator;
use visiond_capture::source::Open;
use visiond_clips::recorder::ClipRecorder;
use visiond_events::EndReason;
use visiond_frames::clock::{Clock, SystemClock};
use visiond_live::{Live, PreviewFeed};
use visiond_system::exit::ExitError;
use visiond_system::stop::Stop;
use visiond_system::threads::finished_by;
use visiond_telemetry::metrics::{Activity, CameraMetrics, DropCause, LaneMetrics, LaneView, Phase};

use super::camera::{ActiveCameras, Camera, CameraStreams, RetryPolicy};
use super::collector::{
    CameraModel, CameraTracks, Collector, IgnoredArea, Joiner, MaskWarnings, PublishGate, TrackSettings,
};
use super::frame_rate::FrameRate;
use super::lane::{Lane, LaneMailbox, LaneModel, LaneSlot, ModelSwap, NeedsRestart};
use super::mailbox::{Delivery, Mailbox};
use super::outlet::{EventOutlet, MessageLimit, Outlet, PublishFn};
use super::preview_player::PreviewPlayer;

/// A camera to run.
pub struct CameraSpec {
    /// The camera's name.
    pub name: Arc<str>,
    /// Opens the source; `None` if the camera is already running and stays as it is.
    pub open: Option<Open>,
    /// Opens the stream for viewers, if it is a different one; unused if the camera stays as it is.
    pub preview: Option<Open>,
    /// The most frames per second that the models process.
    pub max_fps: Option<f64>,
    /// What happens to its frames while the lane is busy.
    pub delivery: Delivery,
    /// Draws its annotated images, if they are configured.
    pub annotator: Option<Arc<Annotator>>,
    /// Stores clips of its events, if they are configured.
    pub recorder: Option<Arc<ClipRecorder>>,
    /// How to track its objects, if the configuration asks for it.
    pub track: Option<TrackSettings>,
    /// Where detections are dropped.
    pub ignored: Vec<IgnoredArea>,
    /// Whether its tracks go on: it shows what it showed before, to the same first model.
    pub keeps_tracks: bool,
    /// The models that process its frames, at least one, none twice. The objects of the first one are tracked.
    pub models: Vec<CameraModel>,
    /// Joins their results to one message per frame, which waits for them so long; `None`: a message for each model.
    pub group_timeout: Option<Duration>,
}

/// A lane to run; at least one camera uses its model.
pub struct LaneSpec {
    /// The model's name, which is also the lane's.
    pub model: Arc<str>,
    /// The model to run; `None` if the lane keeps the one that it has, see [`PipelineHold::has`].
    pub new_model: Option<LaneModel>,
}

/// What is to run.
#[derive(Default)]
pub struct PipelineSpec {
    /// A lane for each model.
    pub lanes: Vec<LaneSpec>,
    /// The cameras.
    pub cameras: Vec<CameraSpec>,
    /// The cameras whose privacy masks have changed, also those that are off: nothing of a frame with the old ones may be published.
    pub with_new_masks: Vec<Arc<str>>,
}

/// The context that all lanes and cameras share.
pub struct PipelineContext {
    /// Publishes a message.
    pub publish: PublishFn,
    /// Publishes the events of lines and zones.
    pub events: Arc<dyn EventOutlet>,
    /// The images and messages that clients watch.
    pub live: Arc<Live>,
    /// How many messages may be published; `None` for no limit.
    pub messages: Option<u64>,
    /// When to reopen a lost camera.
    pub retry_policy: RetryPolicy,
    /// Ends the pipeline.
    pub stop: Stop,
}

/// The running pipeline.
pub struct Pipeline {
    lanes: Vec<RunningLane>,
    cameras: Vec<RunningCamera>,
    /// Threads that were told to end and have not ended yet.
    leaving: Vec<JoinHandle<()>>,
    context: PipelineContext,
    outlet: Arc<Outlet>,
    active_cameras: Arc<ActiveCameras>,
    unfinished: Arc<AtomicUsize>,
    needs_restart: NeedsRestart,
    clock: Arc<dyn Clock>,
    stream_threads: Arc<CameraStreams>,
}

struct RunningLane {
    metrics: Arc<LaneMetrics>,
    mailbox: Arc<LaneMailbox>,
    model_swap: Arc<ModelSwap>,
    stop: Stop,
    thread: JoinHandle<()>,
}

struct RunningCamera {
    record: CameraRecord,
    /// One for each of its models, in their order.
    slots: Vec<LaneSlot>,
    annotator: Option<Arc<Annotator>>,
    recorder: Option<Arc<ClipRecorder>>,
    stop: Stop,
    thread: JoinHandle<()>,
    preview: Option<JoinHandle<()>>,
}

impl RunningCamera {
    /// Whether these are its models, in their order, and they get the same frames as before.
    fn has(&self, models: &[CameraModel]) -> bool {
        let ours = self.slots.iter().map(|slot| (&slot.model, slot.frame_rate));
        ours.eq(models.iter().map(|model| (&model.name, model.frame_rate)))
    }
}

/// The record that outlives a camera's thread when a reload reopens the camera.
#[derive(Clone)]
struct CameraRecord {
    metrics: Arc<CameraMetrics>,
    sequence: Arc<AtomicU64>,
    mask_warnings: Arc<MaskWarnings>,
    /// `None` while the camera does not track objects.
    tracks: Option<Arc<Mutex<CameraTracks>>>,
    /// `None` while each model has its own messages.
    joiner: Option<Arc<Joiner>>,
    /// That of every frame since the privacy masks changed.
    gate: Arc<PublishGate>,
}

impl CameraRecord {
    fn new(name: &Arc<str>) -> Self {
        let metrics = Arc::new(CameraMetrics::new(Arc::clone(name)));
        Self {
            metrics,
            sequence: Arc::default(),
            mask_warnings: Arc::default(),
            tracks: None,
            joiner: None,
            gate: Arc::default(),
        }
    }

    /// Ends the events of the camera's lines and zones, because its tracks end.
    fn end_events(&self, reason: EndReason, outlet: &Outlet) {
        let Some(tracks) = &self.tracks else { return };
        match tracks.try_lock_for(JOIN_TIMEOUT) {
            Some(mut tracks) => tracks.finish(reason, &self.metrics, outlet),
            None => log::error!(
                "camera {}: the events of its zones have no end, because its lane waits for a sink: use another `when_full`",
                self.metrics.name
            ),
        }
    }
}

/// Counts a lane that has not ended, or a [`PipelineHold`]. The last one that is dropped raises stop.
struct Unfinished {
    left: Arc<AtomicUsize>,
    stop: Stop,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.stop.raise();
        }
    }
}

/// Keeps the pipeline and its lanes from ending while a change leaves them without a camera.
pub struct PipelineHold {
    active_cameras: Arc<ActiveCameras>,
    lanes: Vec<(Arc<str>, Arc<LaneMailbox>)>,
    _pipeline: Unfinished,
}

impl PipelineHold {
    /// Whether `model` has a lane that continues with its current model.
    pub fn has(&self, model: &str) -> bool {
        self.lanes.iter().any(|(name, _)| **name == *model)
    }
}

impl Drop for PipelineHold {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|(_, mailbox)| mailbox.release());
        self.active_cameras.leave();
    }
}

/// New models that running lanes have not taken yet.
#[derive(Default)]
pub struct PendingSwaps(Vec<(Arc<LaneMetrics>, Receiver<LaneModel>)>);

impl PendingSwaps {
    /// Waits until each lane has taken its new model, and frees the old one. After `deadline` it logs a warning instead.
    pub fn wait(self, deadline: Instant, stop: &Stop) {
        for (lane, before) in self.0 {
            let name = &lane.name;
            loop {
                match before.recv_timeout(Duration::from_millis(20)) {
                    Ok(_) => log::debug!("model {name}: the lane has its new model"),
                    Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                        log::warn!("model {name}: the lane has not taken its new model yet: it is busy or hangs");
                    }
                    Err(RecvTimeoutError::Timeout) if !stop.is_raised() => continue,
                    Err(_) => {}
                }
                break;
            }
        }
    }
}

impl Pipeline {
    /// Starts every thread.
    ///
    /// # Errors
    /// The system has no thread or descriptor left; the threads that were started end by themselves.
    pub fn start(spec: PipelineSpec, context: PipelineContext) -> io::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let message_limit = MessageLimit::new(context.messages, &context.stop);
        let (publish, events) = (Arc::clone(&context.publish), Arc::clone(&context.events));
        let outlet = Arc::new(Outlet {
            publish,
            events,
            message_limit,
            clock: Arc::clone(&clock),
            track_ids: Arc::default(),
            event_ids: Arc::default(),
        });
        // One count for the hold below.
        let active_cameras = Arc::new(ActiveCameras::new(1)?);
        let unfinished = Arc::new(AtomicUsize::new(1));
        let mut pipeline = Self {
            lanes: Vec::new(),
            cameras: Vec::new(),
            leaving: Vec::new(),
            outlet,
            active_cameras: Arc::clone(&active_cameras),
            unfinished: Arc::clone(&unfinished),
            needs_restart: NeedsRestart::default(),
            clock,
            stream_threads: Arc::default(),
            context,
        };
        let _pipeline = Unfinished { left: unfinished, stop: pipeline.context.stop.clone() };
        let _hold = PipelineHold { active_cameras, lanes: Vec::new(), _pipeline };
        pipeline.change(spec)?;
        Ok(pipeline)
    }

    /// Keeps the pipeline from ending by itself; `None` if it has ended already.
    pub fn hold(&self) -> Option<PipelineHold> {
        let one_more = |left: usize| (left > 0).then(|| left + 1);
        self.unfinished.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        let pipeline = Unfinished { left: Arc::clone(&self.unfinished), stop: self.context.stop.clone() };
        if !self.active_cameras.reenter() {
            return None;
        }
        let held = self.lanes.iter().filter(|lane| lane.mailbox.hold());
        let lanes = held.map(|lane| (Arc::clone(&lane.metrics.name), Arc::clone(&lane.mailbox))).collect();
        Some(PipelineHold { active_cameras: Arc::clone(&self.active_cameras), lanes, _pipeline: pipeline })
    }

    /// Switches to the lanes and cameras of `spec`, in their order. The caller keeps a [`PipelineHold`] meanwhile.
    ///
    /// Cameras that are removed or reopened end first, because two threads cannot open one device.
    ///
    /// # Errors
    /// The system has no thread or descriptor left. The change is then half done, and `stop` is raised.
    pub fn change(&mut self, spec: PipelineSpec) -> io::Result<PendingSwaps> {
        let mut records = self.end_cameras(&spec.cameras, &spec.with_new_masks);
        let mut before = std::mem::take(&mut self.lanes);
        let mut pending_swaps = PendingSwaps::default();
        let mut held = Vec::new();
        let lanes = spec.lanes.into_iter().try_for_each(|spec| {
            let at = before.iter().position(|lane| lane.metrics.name == spec.model);
            let lane = at.map(|at| before.remove(at));
            self.change_lane(lane, spec, &mut held, &mut pending_swaps)
        });
        let result = lanes.and_then(|()| self.change_cameras(spec.cameras, &mut records));
        // Of cameras that are removed.
        records.values().for_each(|record| record.end_events(EndReason::CameraGone, &self.outlet));
        held.iter().for_each(|mailbox| mailbox.release());
        // Each lane then checks for a new model, and whether a camera is lossless.
        self.lanes.iter().for_each(|lane| lane.mailbox.call());
        if let Err(error) = result {
            self.lanes.append(&mut before);
            self.context.stop.raise();
            self.halt();
            return Err(error);
        }
        for lane in before {
            // The lane has no camera left and ends after its run in flight; a pause before it loads its model ends at once.
            lane.stop.raise();
            self.leaving.push(lane.thread);
        }
        self.leaving.retain(|thread| !thread.is_finished());
        Ok(pending_swaps)
    }

    /// Ends the cameras that do not stay as they are; returns their records.
    fn end_cameras(&mut self, specs: &[CameraSpec], with_new_masks: &[Arc<str>]) -> HashMap<Arc<str>, CameraRecord> {
        let stays = |camera: &RunningCamera| {
            let is_same = |spec: &CameraSpec| spec.name == camera.record.metrics.name && camera.has(&spec.models);
            specs.iter().any(|spec| spec.open.is_none() && is_same(spec))
        };
        let cameras = std::mem::take(&mut self.cameras);
        let (stay, going): (Vec<_>, Vec<_>) = cameras.into_iter().partition(stays);
        self.cameras = stay;
        // A camera that goes may come back with masks.
        let spec_of = |name: &Arc<str>| specs.iter().find(|spec| spec.name == *name);
        let forgets = |name: &Arc<str>| with_new_masks.contains(name) || spec_of(name).is_none();
        for camera in &going {
            if forgets(&camera.record.metrics.name) {
                camera.record.gate.close();
            }
            for LaneSlot { mailbox, number, model, .. } in &camera.slots {
                if mailbox.remove(*number).is_some() {
                    camera.record.metrics.count_dropped_by(model, DropCause::Overload, 1);
                }
            }
            // After its slots have gone: its source has not ended, and its events may go on.
            camera.stop.raise();
        }
        let deadline = Instant::now() + JOIN_TIMEOUT;
        for name in with_new_masks {
            self.context.live.hide_event_files(name);
        }
        let mut records = HashMap::new();
        for RunningCamera { mut record, annotator, recorder, thread, preview, .. } in going {
            let (name, joiner) = (Arc::clone(&record.metrics.name), record.joiner.clone());
            let gate = Arc::clone(&record.gate);
            if let Some(preview) = preview
                && !finished_by([&preview], deadline)
            {
                log::error!("camera {name}, preview: its source does not end; abandoned");
                self.leaving.push(preview);
            }
            if !finished_by([&thread], deadline) {
                log::error!("camera {name}: its source does not end; abandoned");
                self.leaving.push(thread);
                // The old thread still uses the old metrics and sequence.
                let sequence = AtomicU64::new(record.sequence.load(Ordering::Relaxed));
                // The joiner counts in the old metrics.
                let CameraRecord { mask_warnings, tracks, gate, .. } = record;
                let sequence = Arc::new(sequence);
                record = CameraRecord { sequence, mask_warnings, tracks, gate, ..CameraRecord::new(&name) };
            }
            if forgets(&name) {
                // Each camera has its own time, whatever the others took.
                let deadline = Instant::now() + JOIN_TIMEOUT;
                let media = (annotator.as_deref(), recorder.as_deref());
                self.forget_frames(&name, &gate, joiner.as_deref(), media, deadline);
                // Clips of a camera that goes are finished, unless it has other masks and is off.
                if let Some(recorder) = recorder.filter(|_| with_new_masks.contains(&name))
                    && !recorder.forget(deadline)
                {
                    log::warn!("camera {name}: a clip with its old privacy masks may still be stored");
                }
                record.gate = Arc::default();
            } else if let Some(joiner) = joiner {
                if spec_of(&name).is_some_and(|spec| spec.group_timeout.is_none()) {
                    // From now on, each model has its own messages.
                    joiner.flush_all();
                } else {
                    // Of the frames that were taken out of the mailboxes.
                    joiner.flush();
                }
            }
            records.insert(name, record);
        }
        records
    }

    /// Drops what is left of a camera's frames and results, because its privacy masks change or it goes. Its threads have ended, and its gate is
    /// closed.
    fn forget_frames(
        &self,
        name: &str,
        gate: &PublishGate,
        joiner: Option<&Joiner>,
        (annotator, recorder): (Option<&Annotator>, Option<&ClipRecorder>),
        deadline: Instant,
    ) {
        // First, because a lane may wait to offer them a frame.
        annotator.into_iter().for_each(|annotator| annotator.drop_waiting());
        recorder.into_iter().for_each(ClipRecorder::drop_waiting);
        if !gate.wait(deadline) {
            log::warn!("camera {name}: a message of a frame with its old privacy masks is still being published");
        }
        joiner.into_iter().for_each(Joiner::forget);
        self.context.live.forget_frames(name);
        if annotator.is_some_and(|annotator| !annotator.forget(deadline)) {
            log::warn!("camera {name}: an annotated image with its old privacy masks is still being stored");
        }
    }

    /// Starts a lane, or passes it its new model. Its mailbox is held while the cameras change, and is then in `held`.
    fn change_lane(
        &mut self,
        lane: Option<RunningLane>,
        spec: LaneSpec,
        held: &mut Vec<Arc<LaneMailbox>>,
        pending_swaps: &mut PendingSwaps,
    ) -> io::Result<()> {
        let mut is_held = lane.as_ref().is_some_and(|lane| lane.mailbox.hold());
        let lane = match (lane, spec.new_model) {
            (Some(lane), model) if is_held => {
                if let Some(model) = model {
                    pending_swaps.0.push((Arc::clone(&lane.metrics), lane.model_swap.offer(model)));
                }
                lane
            }
            (Some(lane), None) => lane,
            (before, Some(model)) => {
                let metrics = before.map(|lane| lane.metrics);
                let metrics = metrics.unwrap_or_else(|| Arc::new(LaneMetrics::new(spec.model)));
                is_held = true;
                self.start_lane(metrics, model)?
            }
            (None, None) => return Err(io::Error::other(format!("model {} is not loaded", spec.model))),
        };
        held.extend(is_held.then(|| Arc::clone(&lane.mailbox)));
        self.lanes.push(lane);
        Ok(())
    }

    /// Starts cameras, and gives those that stay their new settings.
    fn change_cameras(
        &mut self,
        specs: Vec<CameraSpec>,
        records: &mut HashMap<Arc<str>, CameraRecord>,
    ) -> io::Result<()> {
        let mut before = std::mem::take(&mut self.cameras);
        let mut result = Ok(());
        for camera in specs {
            // All models see the camera turned alike.
            if let Some(model) = camera.models.first() {
                self.context.live.view(&camera.name).set_orientation(model.view.orientation);
            }
            let collectors = |record: &mut CameraRecord| -> Vec<_> {
                if !camera.keeps_tracks || camera.track.is_none() {
                    record.end_events(EndReason::CameraGone, &self.outlet);
                    record.tracks = None;
                }
                let tracking = camera.track.clone().map(|settings| {
                    let new = || Arc::new(Mutex::new(CameraTracks::new(Arc::clone(&self.outlet.track_ids))));
                    let tracks = Arc::clone(record.tracks.get_or_insert_with(new));
                    // A lane that waits for a sink may hold them. It then compares the classes with those of the model later.
                    if let Some(mut tracks) = tracks.try_lock_for(JOIN_TIMEOUT) {
                        tracks.change_settings();
                    }
                    (settings, tracks)
                });
                let names: Vec<_> = camera.models.iter().map(|model| Arc::clone(&model.name)).collect();
                record.metrics.set_models(&names);
                record.metrics.set_grouped(camera.group_timeout.is_some());
                let rules = camera.track.iter().flat_map(|track| track.rules.iter());
                record.metrics.set_rules(rules.map(|rule| (Arc::clone(&rule.rule.name), rule.facts())));
                let joiner = camera.group_timeout.map(|timeout| {
                    let new = || Arc::new(Joiner::new(&record.metrics, &self.outlet));
                    let joiner = Arc::clone(record.joiner.get_or_insert_with(new));
                    joiner.set_timeout(Some(timeout).filter(|_| camera.delivery == Delivery::NewestWins));
                    joiner
                });
                record.joiner.clone_from(&joiner);
                let collector = |(index, model): (usize, &CameraModel)| {
                    let CameraRecord { metrics, mask_warnings, .. } = record.clone();
                    let (annotator, view) = (camera.annotator.clone(), self.context.live.view(&camera.name));
                    let tracking = tracking.clone().filter(|_| index == 0);
                    let (delivery, outlet) = (camera.delivery, Arc::clone(&self.outlet));
                    let new = Collector::new(metrics, annotator, tracking, view, delivery, outlet, mask_warnings);
                    let new = new.for_model(model, index == 0).grouped(joiner.clone(), index);
                    let new = new.filmed(camera.recorder.clone());
                    Arc::new(new.ignoring(camera.ignored.clone()).behind(&record.gate))
                };
                camera.models.iter().enumerate().map(collector).collect()
            };
            let at = before.iter().position(|running| running.record.metrics.name == camera.name);
            match (camera.open, at) {
                (Some(open), _) => {
                    let mut record = records.remove(&camera.name).unwrap_or_else(|| CameraRecord::new(&camera.name));
                    let collectors = collectors(&mut record);
                    let models: Vec<_> = camera.models.iter().zip(&collectors).collect();
                    match self.start_camera(&models, record, open, camera.preview, camera.max_fps) {
                        Ok(running) => {
                            let (annotator, recorder) = (camera.annotator, camera.recorder);
                            self.cameras.push(RunningCamera { annotator, recorder, ..running });
                        }
                        Err(error) => result = Err(error),
                    }
                }
                (None, Some(at)) => {
                    let mut running = before.remove(at);
                    let collectors = collectors(&mut running.record);
                    for (LaneSlot { mailbox, number, .. }, collector) in running.slots.iter().zip(collectors) {
                        mailbox.relabel(*number, collector);
                    }
                    (running.annotator, running.recorder) = (camera.annotator, camera.recorder);
                    self.cameras.push(running);
                }
                (None, None) => result = Err(io::Error::other(format!("camera {} does not run", camera.name))),
            }
        }
        result
    }

    /// Starts a lane whose mailbox is held.
    fn start_lane(&self, metrics: Arc<LaneMetrics>, model: LaneModel) -> io::Result<RunningLane> {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.hold();
        let model_swap = Arc::new(ModelSwap::default());
        metrics.set_values(&model.facts.values);
        let stop = self.context.stop.child()?;
        let lane = Lane {
            metrics: Arc::clone(&metrics),
            mailbox: Arc::clone(&mailbox),
            model_swap: Arc::clone(&model_swap),
            clock: Arc::clone(&self.clock),
            stop: stop.clone(),
            end: self.context.stop.clone(),
            needs_restart: Arc::clone(&self.needs_restart),
        };
        self.unfinished.fetch_add(1, Ordering::SeqCst);
        let last = Unfinished { left: Arc::clone(&self.unfinished), stop: self.context.stop.clone() };
        let thread = thread::Builder::new().name(format!("lane {}", metrics.name)).spawn(move || {
            // Also dropped by a panic, and if the thread cannot be started.
            let _last = last;
            lane.run(model);
        })?;
        Ok(RunningLane { metrics, mailbox, model_swap, stop, thread })
    }

    fn start_camera(
        &self,
        models: &[(&CameraModel, &Arc<Collector>)],
        record: CameraRecord,
        open: Open,
        preview: Option<Open>,
        max_fps: Option<f64>,
    ) -> io::Result<RunningCamera> {
        let stop = self.context.stop.child()?;
        let preview = preview.map(|open| self.start_preview(&record.metrics.name, open, &stop)).transpose()?;
        let slot = |(model, collector): &(&CameraModel, &Arc<Collector>)| {
            let lane = self.lanes.iter().find(|lane| lane.metrics.name == model.name)?;
            Some(LaneSlot::add(&lane.mailbox, collector, model))
        };
        let slots: Vec<_> = models.iter().filter_map(slot).collect();
        self.active_cameras.enter();
        let camera = Camera {
            metrics: Arc::clone(&record.metrics),
            open,
            slots: slots.clone(),
            joiner: record.joiner.clone(),
            sequence: Arc::clone(&record.sequence),
            active_cameras: Arc::clone(&self.active_cameras),
            retry_policy: self.context.retry_policy,
            frame_rate: FrameRate::limited_to(max_fps),
            clock: Arc::clone(&self.clock),
            stream_threads: Arc::clone(&self.stream_threads),
            stop: stop.clone(),
            end: self.context.stop.clone(),
            needs_restart: Arc::clone(&self.needs_restart),
        };
        let name = format!("cam {}", record.metrics.name);
        let thread = thread::Builder::new().name(name).spawn(move || camera.run())?;
        Ok(RunningCamera { record, slots, annotator: None, recorder: None, stop, thread, preview })
    }

    /// Starts the thread of a preview, which ends with its camera.
    fn start_preview(&self, camera: &Arc<str>, open: Open, stop: &Stop) -> io::Result<JoinHandle<()>> {
        let preview = PreviewPlayer {
            camera: Arc::clone(camera),
            open,
            feed: PreviewFeed::new(&self.context.live.view(camera))?,
            live: Arc::clone(&self.context.live),
            retry_policy: self.context.retry_policy,
            clock: Arc::clone(&self.clock),
            stop: stop.clone(),
            end: self.context.stop.clone(),
            needs_restart: Arc::clone(&self.needs_restart),
        };
        // The kernel cuts thread names at 15 bytes.
        let name = format!("view {}", preview.camera);
        thread::Builder::new().name(name).spawn(move || preview.run())
    }

    /// Resets the totals of a camera's line or zone, whether the camera runs or not; returns whether that was possible in time.
    #[must_use]
    pub fn reset_totals(&self, camera: &str, rule: &str) -> bool {
        let running = self.cameras.iter().find(|running| *running.record.metrics.name == *camera);
        let Some((record, tracks)) = running.and_then(|of| Some((&of.record, of.record.tracks.as_ref()?))) else {
            self.outlet.events.reset_totals(camera, rule);
            return true;
        };
        // Under the lock, so that no event has totals from before.
        let Some(mut tracks) = tracks.try_lock_for(JOIN_TIMEOUT) else { return false };
        tracks.reset_totals(rule, &record.metrics, &self.outlet);
        true
    }

    /// Returns every lane with its cameras.
    pub fn lanes(&self) -> Vec<LaneView> {
        let view = |RunningLane { metrics: lane, .. }: &RunningLane| {
            let cameras = self.cameras.iter().filter(|camera| camera.slots.iter().any(|slot| slot.model == lane.name));
            let cameras = cameras.map(|camera| Arc::clone(&camera.record.metrics)).collect();
            LaneView { lane: Arc::clone(lane), cameras }
        };
        self.lanes.iter().map(view).collect()
    }

    /// Returns why only a new process can continue; `None` if this one can.
    pub fn needs_restart(&self) -> Option<&ExitError> {
        self.needs_restart.get()
    }

    /// Wakes every thread that waits on a mailbox or for a retry of a failed camera. Called after `stop` was raised.
    pub fn halt(&self) {
        self.active_cameras.stop_retries();
        self.lanes.iter().for_each(|lane| lane.mailbox.stop());
    }

    /// Waits until every thread has ended; after `deadline`, logs the names of the others and returns `false`.
    pub fn join(&self, deadline: Instant) -> bool {
        let cameras = self.cameras.iter().flat_map(|camera| [&camera.thread].into_iter().chain(&camera.preview));
        let threads = self.lanes.iter().map(|lane| &lane.thread).chain(cameras).chain(&self.leaving);
        let has_ended = finished_by(threads, deadline);
        // Of frames that no lane got to.
        let joiners = self.cameras.iter().filter_map(|camera| camera.record.joiner.as_ref());
        joiners.for_each(|joiner| joiner.flush_all());
        self.cameras.iter().for_each(|camera| camera.record.end_events(EndReason::Shutdown, &self.outlet));
        if has_ended {
            return true;
        }
        for lane in self.lanes.iter().filter(|lane| lane.metrics.activity() != Activity::Ended) {
            log::error!("model {}: its lane does not end; abandoned", lane.metrics.name);
        }
        for RunningCamera { record, preview, .. } in &self.cameras {
            let camera = &record.metrics;
            if !matches!(camera.phase(), Phase::Ended | Phase::Failed) {
                log::error!("camera {}: its source does not end; abandoned", camera.name);
            }
            if preview.as_ref().is_some_and(|thread| !thread.is_finished()) {
                log::error!("camera {}, preview: its source does not end; abandoned", camera.name);
            }
        }
        false
    }
}

/// How long the threads have to end: a run of the model and a source's 100 ms.
pub const JOIN_TIMEOUT: Duration = Duration::from_millis(1_200);

#[cfg(test)]
mod tests;
