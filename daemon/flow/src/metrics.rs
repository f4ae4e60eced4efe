//! Counters and histograms of each camera and each lane.
//!
//! The working threads write them: with relaxed atomics, and a camera's labels under a lock that is held while one frame's
//! detections are counted. The status line, systemd's status, metrics and the summary read them. Counters only rise, so readers
//! can take differences.

mod lane;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use visiond_system::heartbeat::Beat;

use super::histogram::{Histogram, HistogramSnapshot};
use super::rate::Rate;
use crate::message::{FrameFacts, Message, Timings};

pub use lane::{Activity, GpuSnapshot, LaneMetrics};

/// Why a source lost frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The driver or the program behind the source dropped them.
    Driver,
    /// The frames were damaged or truncated.
    Corrupt,
    /// No buffer was free.
    Overload,
}

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
}

impl DropCause {
    /// Every cause, in the order of [`CameraSnapshot::dropped`].
    pub const ALL: [Self; 4] = [Self::Driver, Self::Corrupt, Self::Overload, Self::Failed];

    /// Returns the name used in lines and summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Corrupt => "corrupt",
            Self::Overload => "overload",
            Self::Failed => "failed",
        }
    }
}

impl From<LossCause> for DropCause {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Driver => Self::Driver,
            LossCause::Corrupt => Self::Corrupt,
            LossCause::Overload => Self::Overload,
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
        match self {
            Self::Capture => "capture",
            Self::Queue => "queue",
            Self::Preprocess => "preprocess",
            Self::Infer => "infer",
            Self::Postprocess => "postprocess",
            Self::Total => "total",
        }
    }

    fn of(self, timings: &Timings) -> u64 {
        match self {
            Self::Capture => timings.capture,
            Self::Queue => timings.queue,
            Self::Preprocess => timings.preprocess,
            Self::Infer => timings.infer,
            Self::Postprocess => timings.postprocess,
            Self::Total => timings.total,
        }
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
    /// The source is away; the thread opens it again after a pause.
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
        match self {
            Self::Opening => "opening",
            Self::Streaming => "streaming",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// Counters of one camera.
#[derive(Debug)]
pub struct CameraMetrics {
    /// Name of the camera.
    pub name: Arc<str>,
    /// Heartbeat of its thread.
    pub beat: Arc<Beat>,
    phase: AtomicU8,
    captured: AtomicU64,
    copied_bytes: AtomicU64,
    capture_cpu_ns: AtomicU64,
    published: AtomicU64,
    detections: AtomicU64,
    restarts: AtomicU64,
    errors: AtomicU64,
    dropped: [AtomicU64; DropCause::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    labels: Mutex<BTreeMap<Arc<str>, LabelCount>>,
    io: Mutex<Option<&'static str>>,
    frame: Mutex<Option<FrameShape>>,
    reason: Mutex<Option<Arc<str>>>,
    rate: Rate,
}

/// Size and format of a camera's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameShape {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format, as in the configuration.
    pub format: &'static str,
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
        Self {
            name,
            beat: Arc::default(),
            phase: AtomicU8::new(Phase::Opening as u8),
            captured: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            capture_cpu_ns: AtomicU64::new(0),
            published: AtomicU64::new(0),
            detections: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            dropped: Default::default(),
            stages: Default::default(),
            labels: Mutex::new(BTreeMap::new()),
            io: Mutex::new(None),
            frame: Mutex::new(None),
            reason: Mutex::new(None),
            rate: Rate::default(),
        }
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

    /// Records why the camera is away; `None` if it is not.
    pub fn set_reason(&self, reason: Option<Arc<str>>) {
        *self.reason.lock() = reason;
    }

    /// Counts a frame from the source.
    pub fn count_captured(&self) {
        self.captured.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of frames that were copied into a buffer.
    pub fn count_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts CPU time of the camera's thread while it streamed.
    pub fn count_capture_cpu(&self, ns: u64) {
        self.capture_cpu_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts lost frames.
    pub fn count_dropped(&self, cause: DropCause, frames: u64) {
        self.dropped[cause as usize].fetch_add(frames, Ordering::Relaxed);
    }

    /// Counts a reopened source.
    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a source that could not be opened or failed.
    pub fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a published message. Allocates only for the first detection of a label.
    pub fn count_published(&self, message: &Message) {
        for stage in Stage::ALL {
            self.stages[stage as usize].record_us(stage.of(&message.timings_us));
        }
        self.detections.fetch_add(message.detections.len() as u64, Ordering::Relaxed);
        let mut labels = self.labels.lock();
        labels.values_mut().for_each(|count| count.newest = 0);
        for detection in &message.detections {
            let count = match labels.get_mut(&detection.label) {
                Some(count) => count,
                None => labels.entry(Arc::clone(&detection.label)).or_default(),
            };
            count.total += 1;
            count.newest += 1;
        }
        drop(labels);
        let FrameFacts { width, height, format, .. } = message.frame;
        *self.frame.lock() = Some(FrameShape { width, height, format });
        self.rate.count();
        // Last, with Release, so that a reader that sees this count sees the other counts of the frame too.
        self.published.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of messages so far.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Returns the number of detections so far.
    pub fn detections(&self) -> u64 {
        self.detections.load(Ordering::Relaxed)
    }

    /// Returns messages per second over the last five seconds.
    pub fn fps(&self) -> f64 {
        self.rate.per_second()
    }

    /// Returns a snapshot of all counters.
    pub fn snapshot(&self) -> CameraSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CameraSnapshot {
            published: self.published(),
            captured: get(&self.captured),
            copied_bytes: get(&self.copied_bytes),
            capture_cpu_ns: get(&self.capture_cpu_ns),
            detections: get(&self.detections),
            restarts: get(&self.restarts),
            errors: get(&self.errors),
            dropped: std::array::from_fn(|cause| get(&self.dropped[cause])),
            stages: std::array::from_fn(|stage| self.stages[stage].snapshot()),
            labels: self.labels.lock().clone(),
            io: *self.io.lock(),
            frame: *self.frame.lock(),
            reason: self.reason.lock().as_deref().map(str::to_owned),
        }
    }
}

/// Counters of one camera at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CameraSnapshot {
    /// Frames from the source.
    pub captured: u64,
    /// Bytes of frames that were copied into a buffer.
    pub copied_bytes: u64,
    /// CPU time of the camera's thread while it streamed.
    pub capture_cpu_ns: u64,
    /// Published messages.
    pub published: u64,
    /// Detections.
    pub detections: u64,
    /// Number of times the source was reopened.
    pub restarts: u64,
    /// Number of times the source could not be opened or failed.
    pub errors: u64,
    /// Frames lost, in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
    /// Durations, in the order of [`Stage::ALL`].
    pub stages: [HistogramSnapshot; Stage::ALL.len()],
    /// Detections by label.
    pub labels: BTreeMap<Arc<str>, LabelCount>,
    /// I/O mode of the driver, for a V4L2 camera.
    pub io: Option<&'static str>,
    /// Size and format of the newest frame.
    pub frame: Option<FrameShape>,
    /// Why the camera is away, or was before it was last opened.
    pub reason: Option<String>,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use visiond_engine::detector::RunCounts;

    use super::*;
    use crate::testing::message;

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
    fn drops_are_told_by_their_cause() {
        let metrics = CameraMetrics::new("door".into());
        metrics.count_dropped(LossCause::Driver.into(), 3);
        metrics.count_dropped(DropCause::Overload, 1);
        let snapshot = metrics.snapshot();
        let by_name: Vec<_> = DropCause::ALL.iter().zip(snapshot.dropped).map(|(c, n)| (c.name(), n)).collect();
        assert_eq!(by_name, [("driver", 3), ("corrupt", 0), ("overload", 1), ("failed", 0)]);
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
