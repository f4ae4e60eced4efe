//! Counters and histograms of each camera and each lane.
//!
//! The working threads write them: with relaxed atomics, and a camera's labels, counts by model and totals of lines and zones under locks
//! that are held while one frame is counted. The status line, systemd's status, metrics and the summary read them. Counters only rise, so readers
//! can take differences.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use visiond_engine::detector::RunCounts;
use visiond_frames::frame::LossCause;
use visiond_message::status::{
    CameraCounters, CameraModelStatus, CameraStatus, GpuSnapshot, LabelFacts, ModelCounters,
};
use visiond_message::{Message, MessageFrame, Timings};
use visiond_system::heartbeat::Beat;

use crate::histogram::{Histogram, HistogramSnapshot};
use crate::rate::Rate;
use crate::rules::{RuleCounts, RuleFacts, RuleTable};

/// Why a frame has no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The driver or the program behind the source dropped it.
    Driver,
    /// The frame was damaged or truncated.
    Corrupt,
    /// The lane was busy: a newer frame replaced this one, or no buffer was free.
    Overload,
    /// Preprocess, inference or head failed.
    Failed,
    /// `max_fps` asks for fewer frames.
    Skipped,
    /// A privacy mask could not be applied.
    Unmasked,
}

impl DropCause {
    /// Every cause, in the order of [`CameraSnapshot::dropped`].
    pub const ALL: [Self; 6] =
        [Self::Driver, Self::Corrupt, Self::Overload, Self::Failed, Self::Skipped, Self::Unmasked];

    /// Returns the name used in lines and summaries.
    pub const fn name(self) -> &'static str {
        ["driver", "corrupt", "overload", "failed", "skipped", "unmasked"][self as usize]
    }
}

impl From<LossCause> for DropCause {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Driver => Self::Driver,
            LossCause::Corrupt => Self::Corrupt,
            LossCause::Overload => Self::Overload,
            LossCause::Unmasked => Self::Unmasked,
        }
    }
}

/// Counters of a lane and of its cameras.
#[derive(Debug, Clone)]
pub struct LaneView {
    /// Counters of the lane.
    pub lane: Arc<LaneMetrics>,
    /// Counters of its cameras, in the order of the configuration.
    pub cameras: Vec<Arc<CameraMetrics>>,
}

/// A camera with the lanes that process its frames.
#[derive(Debug, Clone)]
pub struct CameraLanes<'a> {
    /// The camera.
    pub camera: &'a Arc<CameraMetrics>,
    /// Its lanes, at least one, in the order of the camera's models.
    pub lanes: Vec<&'a Arc<LaneMetrics>>,
}

impl CameraLanes<'_> {
    /// Returns the names of its models, separated by commas.
    pub fn models(&self) -> String {
        self.lanes.iter().map(|lane| &*lane.name).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the cameras of these lanes, each once, in the order of their first lanes.
pub fn cameras_of(views: &[LaneView]) -> Vec<CameraLanes<'_>> {
    let mut cameras = Vec::<CameraLanes<'_>>::new();
    for (view, camera) in views.iter().flat_map(|view| view.cameras.iter().map(move |camera| (view, camera))) {
        match cameras.iter_mut().find(|known| Arc::ptr_eq(known.camera, camera)) {
            Some(known) => known.lanes.push(&view.lane),
            None => cameras.push(CameraLanes { camera, lanes: vec![&view.lane] }),
        }
    }
    for CameraLanes { camera, lanes } in &mut cameras {
        let models = camera.models();
        // A lane that a reload is about to take from the camera comes last.
        lanes.sort_by_key(|lane| models.iter().position(|model| *model == lane.name).unwrap_or(usize::MAX));
    }
    cameras
}

/// What a model outputs, for readers that announce it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelValues {
    /// The attributes by name, and whether they are numbers.
    pub attributes: Vec<(Arc<str>, bool)>,
    /// Whether each class covers a part of the frame.
    pub fractions: bool,
    /// The names of the classes; empty if they have none.
    pub labels: Vec<Arc<str>>,
}

impl LaneView {
    /// Returns whether a frame was processed, or none can arrive because every camera is away.
    pub fn is_ready(&self) -> bool {
        let away = |camera: &Arc<CameraMetrics>| !matches!(camera.phase(), Phase::Opening | Phase::Streaming);
        self.lane.had_frame() || self.cameras.iter().all(away)
    }
}

/// A stage of processing a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From the timestamp of the frame to its arrival in the inbox.
    Capture,
    /// Waiting in the inbox.
    Queue,
    /// From frame to tensor.
    Preprocess,
    /// The inference.
    Infer,
    /// From raw outputs to detections.
    Postprocess,
    /// All stages: the age of the frame when its message is published.
    Total,
}

impl Stage {
    /// Every stage, in the order of [`CameraSnapshot::stages`].
    pub const ALL: [Self; 6] =
        [Self::Capture, Self::Queue, Self::Preprocess, Self::Infer, Self::Postprocess, Self::Total];

    /// Returns the name used in messages, lines and summaries.
    pub const fn name(self) -> &'static str {
        ["capture", "queue", "preprocess", "infer", "postprocess", "total"][self as usize]
    }
}

/// State of a camera's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The source is being opened.
    Opening,
    /// The source is open.
    Streaming,
    /// The source is away; the thread reopens it after a pause.
    Waiting,
    /// The source cannot be opened without a change by the user; retried rarely while other cameras run.
    Failed,
    /// The source has ended.
    Ended,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 5] = [Self::Opening, Self::Streaming, Self::Waiting, Self::Failed, Self::Ended];

    /// Returns the name used in lines and summaries.
    pub const fn name(self) -> &'static str {
        ["opening", "streaming", "waiting", "failed", "ended"][self as usize]
    }
}

/// A counter. Additions and reads are relaxed: cheap, and without order between counters.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one camera.
#[derive(Debug, Default)]
pub struct CameraMetrics {
    /// Name of the camera.
    pub name: Arc<str>,
    /// Heartbeat of its thread.
    pub beat: Arc<Beat>,
    /// What is only counted.
    pub counters: CameraCounters<Counter>,
    /// CPU time of the camera's thread while it streamed.
    pub capture_cpu_ns: Counter,
    phase: AtomicU8,
    published: AtomicU64,
    dropped: [Counter; DropCause::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    models: Mutex<Vec<ModelShare>>,
    is_grouped: AtomicBool,
    rules: Mutex<RuleTable>,
    io: Mutex<Option<&'static str>>,
    decoder: Mutex<Option<&'static str>>,
    frame: Mutex<FrameShape>,
    reason: Mutex<Option<Arc<str>>>,
}

/// The share of a model in a camera's counts.
#[derive(Debug, Default)]
struct ModelShare {
    name: Arc<str>,
    /// Whether it runs on the camera's frames. Counts of a model that a reload took away stay, because sums must not fall.
    runs: bool,
    published: u64,
    dropped: [u64; DropCause::ALL.len()],
    labels: Labels,
    rate: Rate,
}

/// Detections by label.
type Labels = BTreeMap<Arc<str>, LabelCount>;

/// Returns the share of a model, which begins if it has none.
fn share_of<'m>(models: &'m mut Vec<ModelShare>, name: &str) -> &'m mut ModelShare {
    let at = models.iter().position(|share| *share.name == *name);
    let at = at.unwrap_or_else(|| {
        models.push(ModelShare { name: name.into(), runs: true, ..ModelShare::default() });
        models.len() - 1
    });
    &mut models[at]
}

/// Size and format of a camera's frames.
#[derive(Debug, Clone, Copy, Default)]
struct FrameShape {
    width: u32,
    height: u32,
    format: &'static str,
}

impl Deref for CameraMetrics {
    type Target = CameraCounters<Counter>;

    fn deref(&self) -> &Self::Target {
        &self.counters
    }
}

/// Number of detections of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LabelCount {
    /// In total.
    pub total: u64,
    /// In the newest frame.
    pub newest: u64,
}

impl CameraMetrics {
    /// Returns counters at zero.
    pub fn new(name: Arc<str>) -> Self {
        Self { name, ..Self::default() }
    }

    /// Records that the thread enters `phase`.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Returns the state of the thread.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    /// Records the I/O mode of the driver.
    pub fn set_io(&self, io: Option<&'static str>) {
        *self.io.lock() = io;
    }

    /// Records the decoder of the stream.
    pub fn set_decoder(&self, decoder: Option<&'static str>) {
        *self.decoder.lock() = decoder;
    }

    /// Records why the camera is away; `None` if it is not.
    pub fn set_reason(&self, reason: Option<Arc<str>>) {
        *self.reason.lock() = reason;
    }

    /// Records which models run on the camera's frames from now on, in their order.
    pub fn set_models(&self, names: &[Arc<str>]) {
        let mut models = self.models.lock();
        for name in names {
            share_of(&mut models, name);
        }
        let place = |share: &ModelShare| names.iter().position(|name| *name == share.name);
        models.iter_mut().for_each(|share| share.runs = place(share).is_some());
        models.sort_by_key(|share| place(share).unwrap_or(usize::MAX));
    }

    /// Records whether a frame has one message, with the results of all models, from now on.
    pub fn set_grouped(&self, is_grouped: bool) {
        self.is_grouped.store(is_grouped, Ordering::Relaxed);
    }

    /// Records the lines and zones from now on, each with its name among them. Those that stay the same keep their totals.
    pub fn set_rules(&self, rules: impl Iterator<Item = (Arc<str>, RuleFacts)>) {
        self.rules.lock().replace(rules);
    }

    /// Records the totals of lines and zones after a frame. Allocates nothing.
    pub fn count_rules<'r>(&self, rules: impl Iterator<Item = (&'r Arc<str>, RuleCounts)>) {
        self.rules.lock().count(rules);
    }

    /// Records that all events of the lines and zones have ended.
    pub fn end_events(&self) {
        self.rules.lock().end_events();
    }

    /// Returns the lines and zones, in the order of the configuration.
    pub fn rules(&self) -> Vec<RuleFacts> {
        self.rules.lock().facts()
    }

    /// Returns whether a frame has one message with the results of all models.
    pub fn is_grouped(&self) -> bool {
        self.is_grouped.load(Ordering::Relaxed)
    }

    /// Returns the names of the models that run on the camera's frames, in their order.
    pub fn models(&self) -> Vec<Arc<str>> {
        self.models.lock().iter().filter(|share| share.runs).map(|share| Arc::clone(&share.name)).collect()
    }

    /// Counts frames that a model did not process.
    pub fn count_dropped_by(&self, model: &str, cause: DropCause, frames: u64) {
        self.count_dropped(cause, frames);
        share_of(&mut self.models.lock(), model).dropped[cause as usize] += frames;
    }

    /// Counts frames that were lost before any model.
    pub fn count_dropped(&self, cause: DropCause, frames: u64) {
        self.dropped[cause as usize].add(frames);
    }

    /// Counts a published message. Allocates only for the first detection of a label.
    pub fn count_published(&self, message: &Message) {
        let Timings { capture, queue, preprocess, infer, postprocess, total } = message.timings_us;
        for (stage, us) in self.stages.iter().zip([capture, queue, preprocess, infer, postprocess, total]) {
            stage.record_us(us);
        }
        self.detections.add(message.detections.len() as u64);
        self.truncated_masks.add(message.truncated_masks() as u64);
        let mut models = self.models.lock();
        let ModelShare { published, labels, rate, .. } = share_of(&mut models, &message.model.name);
        labels.values_mut().for_each(|count| count.newest = 0);
        for detection in &message.detections {
            let count = match labels.get_mut(&detection.label) {
                Some(count) => count,
                None => labels.entry(Arc::clone(&detection.label)).or_default(),
            };
            count.total += 1;
            count.newest += 1;
        }
        *published += 1;
        rate.count();
        drop(models);
        let MessageFrame { width, height, format, .. } = message.frame;
        *self.frame.lock() = FrameShape { width, height, format };
        // Last, with Release, so that a reader that sees this count also sees the frame's other counts.
        self.published.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of messages so far.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Returns messages per second over the last five seconds.
    pub fn fps(&self) -> f64 {
        // Not `sum`, which is -0.0 of nothing.
        self.models.lock().iter().filter(|share| share.runs).fold(0.0, |all, share| all + share.rate.per_second())
    }

    /// Returns messages per second of a model over the last five seconds; of the fastest one if this one does not run.
    pub fn fps_of(&self, model: &str) -> f64 {
        let models = self.models.lock();
        let rates = || models.iter().filter(|share| share.runs).map(|share| (&*share.name, share.rate.per_second()));
        let own = rates().find(|(name, _)| *name == model).map(|(_, rate)| rate);
        own.unwrap_or_else(|| rates().fold(0.0, |most, (_, rate)| most.max(rate)))
    }

    /// Returns the camera's status without the parts that only other components know: its models, stages, images and newest
    /// message.
    pub fn status(&self) -> CameraStatus {
        // Read first, so that the other counts belong to these messages or newer ones.
        let published = self.published();
        let FrameShape { width, height, format } = *self.frame.lock();
        let models = self.models.lock();
        let status_of = |share: &ModelShare| CameraModelStatus {
            name: share.name.to_string(),
            fps: shown_rate(share.rate.per_second()),
            published: share.published,
            dropped: by_cause(share.dropped),
            labels: label_facts(&share.labels),
        };
        let by_model = models.iter().filter(|share| share.runs).map(status_of).collect();
        let labels = label_facts(&labels_of_all(&models));
        drop(models);
        CameraStatus {
            name: self.name.to_string(),
            phase: self.phase().name().to_owned(),
            reason: self.reason.lock().as_deref().map(str::to_owned),
            width,
            height,
            format: format.to_owned(),
            io: self.io.lock().map(str::to_owned),
            decoder: self.decoder.lock().map(str::to_owned),
            fps: shown_rate(self.fps()),
            published,
            dropped: by_cause(self.dropped.each_ref().map(Counter::get)),
            models: by_model,
            labels,
            rules: self.rules.lock().status(),
            capture_cpu_s: self.capture_cpu_ns.get() as f64 / 1e9,
            ..self.counters.read(Counter::get)
        }
    }

    /// Returns a snapshot of all counters.
    pub fn snapshot(&self) -> CameraSnapshot {
        CameraSnapshot {
            status: self.status(),
            dropped: self.dropped.each_ref().map(Counter::get),
            stages: self.stages.each_ref().map(Histogram::snapshot),
            labels: labels_of_all(&self.models.lock()),
            capture_cpu_ns: self.capture_cpu_ns.get(),
        }
    }
}

/// Returns the detections of all models of a camera by label.
fn labels_of_all(models: &[ModelShare]) -> Labels {
    let mut all = Labels::new();
    for (share, (label, count)) in models.iter().flat_map(|share| share.labels.iter().map(move |one| (share, one))) {
        let sum = all.entry(Arc::clone(label)).or_default();
        sum.total += count.total;
        sum.newest += if share.runs { count.newest } else { 0 };
    }
    all
}

/// Returns the detections by label, most first.
fn label_facts(labels: &Labels) -> Vec<LabelFacts> {
    let facts = |(label, count): (&Arc<str>, &LabelCount)| LabelFacts {
        label: label.to_string(),
        total: count.total,
        newest: count.newest,
    };
    let mut all: Vec<_> = labels.iter().map(facts).collect();
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.label.cmp(&b.label)));
    all
}

fn by_cause(dropped: [u64; DropCause::ALL.len()]) -> BTreeMap<String, u64> {
    DropCause::ALL.map(|cause| (cause.name().to_owned(), dropped[cause as usize])).into()
}

/// Rounds a rate to a tenth.
fn shown_rate(per_second: f64) -> f64 {
    (per_second * 10.0).round() / 10.0
}

/// A camera at one instant: its partial status, and the figures behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraSnapshot {
    /// The status, without its models, stages, images and newest message.
    pub status: CameraStatus,
    /// Frames lost, in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
    /// Durations, in the order of [`Stage::ALL`].
    pub stages: [HistogramSnapshot; Stage::ALL.len()],
    /// Detections by label.
    pub labels: BTreeMap<Arc<str>, LabelCount>,
    /// CPU time of the camera's thread while it streamed.
    pub capture_cpu_ns: u64,
}

impl Deref for CameraSnapshot {
    type Target = CameraStatus;

    fn deref(&self) -> &CameraStatus {
        &self.status
    }
}

impl CameraSnapshot {
    /// Returns the frames lost, for any cause.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the CPU time of the camera's thread per frame, in microseconds.
    pub fn capture_cpu_us(&self) -> f64 {
        if self.captured == 0 { 0.0 } else { self.capture_cpu_ns as f64 / 1e3 / self.captured as f64 }
    }

    /// Returns the durations of a stage.
    pub fn stage(&self, stage: Stage) -> &HistogramSnapshot {
        &self.stages[stage as usize]
    }
}

/// Activity of a lane's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// Waiting for a frame.
    Idle,
    /// Processing frames; the only activity in which no progress means a hang.
    Looking,
    /// Publishing messages; waits only if a sink or annotated images must lose nothing.
    Publishing,
    /// Waiting before it rebuilds its session.
    Backoff,
    /// The thread has ended.
    Ended,
}

impl Activity {
    const ALL: [Self; 5] = [Self::Idle, Self::Looking, Self::Publishing, Self::Backoff, Self::Ended];

    /// Returns the name used in the status.
    pub const fn name(self) -> &'static str {
        ["idle", "looking", "publishing", "backoff", "ended"][self as usize]
    }
}

/// Counters of one lane, or of a model on the detections of a lane's.
#[derive(Debug, Default)]
pub struct LaneMetrics {
    /// Name of the model.
    pub name: Arc<str>,
    /// Plain counters.
    pub counters: ModelCounters<Counter>,
    /// Runs of the models on its detections. While this number or that of its own runs rises, the lane makes progress.
    pub crop_runs: Counter,
    activity: AtomicU8,
    gpu: [Counter; 5],
    launch: Histogram,
    values: Mutex<Arc<ModelValues>>,
    first_frame: AtomicBool,
}

impl Deref for LaneMetrics {
    type Target = ModelCounters<Counter>;

    fn deref(&self) -> &Self::Target {
        &self.counters
    }
}

impl LaneMetrics {
    /// Returns counters at zero.
    pub fn new(name: Arc<str>) -> Self {
        Self { name, ..Self::default() }
    }

    /// Records that the thread enters `activity`.
    pub fn enter(&self, activity: Activity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
    }

    /// Returns the activity of the thread.
    pub fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Ordering::Relaxed))]
    }

    /// Records the outputs of the lane's model other than detections.
    pub fn set_values(&self, values: &Arc<ModelValues>) {
        *self.values.lock() = Arc::clone(values);
    }

    /// Returns the outputs of the lane's model other than detections.
    pub fn values(&self) -> Arc<ModelValues> {
        Arc::clone(&self.values.lock())
    }

    /// Counts a run on the GPU: the counters since the last run, and the host time of its launch.
    pub fn count_gpu(&self, new: &RunCounts, launch_us: u64) {
        let RunCounts { graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates } = *new;
        let new = [graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates];
        for (counter, new) in self.gpu.iter().zip(new) {
            counter.add(new);
        }
        self.launch.record_us(launch_us);
    }

    /// Returns the GPU counters; `None` if no run used a GPU.
    pub fn gpu(&self) -> Option<GpuSnapshot> {
        let [graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates] =
            self.gpu.each_ref().map(Counter::get);
        let launch = self.launch.snapshot();
        (graph_runs + single_runs > 0).then(|| GpuSnapshot {
            graph_runs,
            single_runs,
            overlapped_runs,
            copied_bytes,
            lost_candidates,
            launch_us_p50: launch.quantile_us(0.5),
            launch_us_p99: launch.quantile_us(0.99),
        })
    }

    /// Records that a frame was processed.
    pub fn note_frame(&self) {
        self.first_frame.store(true, Ordering::Release);
    }

    /// Returns whether a frame was processed yet.
    pub fn had_frame(&self) -> bool {
        self.first_frame.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use visiond_engine::detector::RunCounts;

    use super::*;
    use visiond_message::testing::message;

    #[test]
    fn a_frames_labels_are_counted_in_all_and_for_the_newest_frame() {
        let metrics = CameraMetrics::new("door".into());
        metrics.count_published(&message("door", &["person", "person", "dog"]));
        metrics.count_published(&message("door", &["dog"]));
        let snapshot = metrics.snapshot();
        assert_eq!((snapshot.published, snapshot.detections), (2, 4));
        assert_eq!(snapshot.labels["person"], LabelCount { total: 2, newest: 0 });
        assert_eq!(snapshot.labels["dog"], LabelCount { total: 2, newest: 1 });
        assert_eq!(snapshot.stage(Stage::Total).count(), 2);
    }

    #[test]
    fn what_is_published_now_is_seen_soon_as_messages_per_second() {
        let (metrics, message) = (CameraMetrics::new("door".into()), message("door", &[]));
        assert_eq!(metrics.fps(), 0.0);
        // Published again in each round, so that a pause of this thread changes nothing.
        let seen = (0..6_000).map(|_| {
            metrics.count_published(&message);
            std::thread::sleep(std::time::Duration::from_millis(10));
            metrics.fps()
        });
        assert!(seen.into_iter().any(|fps| fps > 0.0));
    }

    #[test]
    fn the_rate_of_a_model_is_its_own_and_that_of_a_new_one_the_fastest() {
        let metrics = CameraMetrics::new("door".into());
        metrics.set_models(&["slow".into(), "fast".into()]);
        let of = |name| Message { model: visiond_message::testing::model(name), ..message("door", &[]) };
        let (slow, fast) = (of("slow"), of("fast"));
        // Repeated until the rates are the same before and after.
        let seen = (0..6_000).find_map(|_| {
            metrics.count_published(&slow);
            (0..9).for_each(|_| metrics.count_published(&fast));
            std::thread::sleep(std::time::Duration::from_millis(10));
            let rates = || [metrics.fps_of("slow"), metrics.fps_of("fast"), metrics.fps_of("new"), metrics.fps()];
            let before = rates();
            (before[0] > 0.0 && before == rates()).then_some(before)
        });
        let [slow, fast, new, all] = seen.expect("the same rates twice");
        assert!(fast > 3.0 * slow && new == fast && (all - slow - fast).abs() < 1e-6, "{slow} {fast} {new} {all}");
    }

    #[test]
    fn the_status_has_the_rate_in_tenths() {
        let (metrics, message) = (CameraMetrics::new("door".into()), message("door", &[]));
        // Repeat until the rate is the same before and after, so that it equals the status's.
        let seen = (0..6_000).find_map(|_| {
            (0..1_000).for_each(|_| metrics.count_published(&message));
            std::thread::sleep(std::time::Duration::from_millis(10));
            let before = metrics.fps();
            let status = metrics.status().fps;
            (before > 100.0 && before.to_bits() == metrics.fps().to_bits()).then_some((before, status))
        });
        let (fps, status) = seen.expect("the same rate twice");
        assert!((status - fps).abs() <= 0.05 + 1e-6, "{status} of {fps}");
        assert!((status * 10.0).fract().abs() < 1e-6 || (status * 10.0).fract().abs() > 1.0 - 1e-6, "{status}");
    }

    #[test]
    fn what_a_camera_uses_and_why_it_is_away_is_in_its_snapshot() {
        let metrics = CameraMetrics::new("door".into());
        let facts = |snapshot: CameraSnapshot| {
            let CameraStatus { decoder, io, reason, .. } = snapshot.status;
            [decoder, io, reason]
        };
        assert_eq!(facts(metrics.snapshot()), [None, None, None]);
        metrics.set_decoder(Some("ffmpeg"));
        metrics.set_io(Some("mmap"));
        metrics.set_reason(Some("unplugged".into()));
        assert_eq!(facts(metrics.snapshot()), ["ffmpeg", "mmap", "unplugged"].map(|text| Some(text.to_owned())));
        metrics.set_reason(None);
        assert_eq!(metrics.snapshot().reason, None);
    }

    #[test]
    fn the_cpu_time_of_a_frame_is_that_of_all_by_their_number() {
        let snapshot = CameraMetrics::new("door".into()).snapshot();
        assert_eq!(snapshot.capture_cpu_us(), 0.0, "without a frame");
        let status = CameraStatus { captured: 400, ..snapshot.status };
        let snapshot = CameraSnapshot { status, capture_cpu_ns: 90_000_000, ..snapshot };
        assert_eq!(snapshot.capture_cpu_us(), 225.0);
    }

    #[test]
    fn masks_that_were_too_much_for_their_message_are_counted() {
        let metrics = CameraMetrics::new("door".into());
        let mut noisy = message("door", &["person", "person", "dog"]);
        noisy.detections.iter_mut().take(2).for_each(|detection| detection.truncated = true);
        metrics.count_published(&message("door", &["person"]));
        metrics.count_published(&noisy);
        assert_eq!(metrics.snapshot().truncated_masks, 2);
    }

    #[test]
    fn drops_are_told_by_their_cause() {
        let metrics = CameraMetrics::new("door".into());
        metrics.count_dropped(LossCause::Driver.into(), 3);
        metrics.count_dropped(DropCause::Overload, 1);
        let snapshot = metrics.snapshot();
        let by_name: Vec<_> = DropCause::ALL.iter().zip(snapshot.dropped).map(|(c, n)| (c.name(), n)).collect();
        let expected = [("driver", 3), ("corrupt", 0), ("overload", 1), ("failed", 0), ("skipped", 0), ("unmasked", 0)];
        assert_eq!(by_name, expected);
        assert_eq!(snapshot.dropped_in_all(), 4);
    }

    #[test]
    fn what_happened_on_the_gpu_is_summed_over_sessions_and_absent_without_one() {
        let lane = LaneMetrics::new("m".into());
        assert_eq!(lane.gpu(), None);
        let new = RunCounts { graph_runs: 1, copied_bytes: 10, ..RunCounts::default() };
        lane.count_gpu(&new, 20);
        lane.count_gpu(&new, 20);
        let gpu = lane.gpu().expect("there were runs");
        assert_eq!((gpu.graph_runs, gpu.single_runs, gpu.copied_bytes, gpu.launch_us_p50), (2, 0, 20, 20));
        // As many single runs as runs of a graph; each counter has its own place.
        lane.count_gpu(
            &RunCounts { single_runs: 2, overlapped_runs: 1, lost_candidates: 5, ..RunCounts::default() },
            30,
        );
        let gpu = lane.gpu().expect("there were runs");
        assert_eq!((gpu.graph_runs, gpu.single_runs, gpu.overlapped_runs, gpu.lost_candidates), (2, 2, 1, 5));
        assert_eq!((gpu.launch_us_p50, gpu.launch_us_p99), (20, 30));
    }

    #[test]
    fn a_camera_of_two_lanes_is_one_camera_with_two_models() {
        let [door, yard] = ["door", "yard"].map(|name| Arc::new(CameraMetrics::new(name.into())));
        let view = |model: &str, cameras: &[&Arc<CameraMetrics>]| LaneView {
            lane: Arc::new(LaneMetrics::new(model.into())),
            cameras: cameras.iter().map(|camera| Arc::clone(camera)).collect(),
        };
        let views = [view("objects", &[&door]), view("faces", &[&yard, &door])];
        let cameras: Vec<_> =
            cameras_of(&views).iter().map(|one| (one.camera.name.to_string(), one.models())).collect();
        assert_eq!(cameras, [("door", "objects, faces"), ("yard", "faces")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn phases_and_activities_come_back_as_they_were_set() {
        let (camera, lane) = (CameraMetrics::new("a".into()), LaneMetrics::new("m".into()));
        for phase in Phase::ALL {
            camera.enter(phase);
            assert_eq!(camera.phase(), phase);
        }
        for activity in Activity::ALL {
            lane.enter(activity);
            assert_eq!(lane.activity(), activity);
        }
    }
}
