//! Models on the detections of a lane's model: each sees crops of the frame around them, and its results become part of the
//! detection.
//!
//! They have no thread. The lane calls [`Cascade::run`] between a frame's tracks and its message, and keeps the frame until then.
//! The crops are views of the frame: the preprocess reads it in place. A model takes all crops of a frame, on all detections of the
//! level above, in as few runs as its batch allows.
//!
//! Whatever fails here, the frame has its message, without the results that failed. A model that fails several times in a row is
//! loaded again.

mod crops;
mod track_results;

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_engine::detector::{Detection, RunCounts, RunId, RunTimings, class_label};
use visiond_engine::heads::{AttributeValue, FrameValues, Reading, ScoredLabel};
use visiond_frames::clock::Clock;
use visiond_frames::frame::Frame;
use visiond_kernels::frame::FrameView;
use visiond_kernels::view::{Orientation, View};
use visiond_system::backoff::Backoff;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::LaneMetrics;
use visiond_tracker::TrackReport;

pub use self::crops::CropSettings;
use self::track_results::{Due, TrackResults};
use crate::collector::Collector;
use crate::complaints::Complaints;
use crate::lane_result::{CropResults, LaneResult, ModelFacts};
use crate::model_runner::{BuildRunner, Fault, ModelRunner, RunError};

/// A model is loaded again after this many failed runs in a row.
const FAILURES_UNTIL_REBUILD: u32 = 3;
/// How long labels, numbers and embeddings of a track stay valid, unless the configuration says so.
const REFRESH: Duration = Duration::from_secs(1);

/// What a model gives a detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CropOutput {
    /// An attribute with the model's name: the best class.
    Label,
    /// Attributes with names of their own, and embeddings.
    Values,
    /// The keypoints of the detection itself.
    Keypoints,
    /// Detections in the detection.
    Detections,
}

/// A model on the detections of another one.
pub struct CropModel {
    /// Its counters and its name.
    pub metrics: Arc<LaneMetrics>,
    /// The facts that its results refer to.
    pub facts: ModelFacts,
    /// The loaded model; `None` while it must be loaded again.
    pub runner: Option<Box<dyn ModelRunner>>,
    /// Loads it again.
    pub build: BuildRunner,
    /// Which crops it gets.
    pub settings: CropSettings,
    /// What it gives a detection.
    pub output: CropOutput,
    /// The models on its own detections.
    pub models: Vec<CropModel>,
    /// What it keeps between frames.
    pub state: CropState,
}

/// What a model on detections keeps between frames.
pub struct CropState {
    tracks: TrackResults,
    /// The crops of the frame.
    crops: Vec<Crop>,
    /// Crops of tracks whose results are still valid.
    spare: Vec<(Duration, Crop)>,
    found: Vec<Detection>,
    inner: InnerDetections,
    /// The model's counters after the previous run.
    counted: RunCounts,
    failures: u32,
    backoff: Backoff,
    /// When to try to load it again, in nanoseconds on CLOCK_MONOTONIC.
    retry_ns: u64,
    complaints: Complaints,
}

impl Default for CropState {
    fn default() -> Self {
        Self {
            tracks: TrackResults::default(),
            crops: Vec::new(),
            spare: Vec::new(),
            found: Vec::new(),
            inner: InnerDetections::default(),
            counted: RunCounts::default(),
            failures: 0,
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(30)),
            retry_ns: 0,
            complaints: Complaints::new(),
        }
    }
}

/// The detections of a model in all crops of a frame.
#[derive(Default)]
struct InnerDetections {
    detections: Vec<Detection>,
    /// The index of the detection in which each one is.
    owners: Vec<usize>,
    /// The results of models on each one.
    results: Vec<CropResults>,
}

/// A detection's part of the frame.
#[derive(Debug, Clone, Copy)]
struct Crop {
    /// The index of the detection.
    index: usize,
    score: f32,
    view: View,
}

/// The detections of a frame on which a model runs.
#[derive(Clone, Copy)]
struct Level<'a> {
    labels: &'a [Arc<str>],
    detections: &'a [Detection],
    /// The track of each one; empty without tracks.
    tracks: &'a [Option<TrackReport>],
}

/// What a cascade needs of its lane.
#[derive(Clone, Copy)]
pub(crate) struct LaneContext<'a> {
    /// Its counters.
    pub metrics: &'a LaneMetrics,
    /// Its clock.
    pub clock: &'a dyn Clock,
    /// Begins no further run once it is raised.
    pub stop: &'a Stop,
}

/// A frame and what its models see of it.
struct CropFrame<'a> {
    frame: FrameView<'a>,
    /// The part of the frame that models see: x, y, width, height.
    area: [u32; 4],
    orientation: Orientation,
    camera: &'a str,
    sequence: u64,
    /// The time of the frame.
    time: Duration,
    lane: LaneContext<'a>,
}

/// The models on the detections of a lane's model.
#[derive(Default)]
pub struct Cascade {
    models: Vec<CropModel>,
    results: Vec<CropResults>,
}

impl Cascade {
    /// Makes the cascade of these models, which run in this order.
    pub fn new(models: Vec<CropModel>) -> Self {
        Self { models, results: Vec::new() }
    }

    /// Whether there are no models.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Drops every loaded model after a panic, so that it is loaded again.
    pub fn unload(&mut self) {
        self.models.iter_mut().for_each(CropModel::unload);
    }

    /// Returns the results on the detections of `result`, which have these tracks; none without models or without `frame`.
    ///
    /// # Errors
    /// The process has lost the GPU. Every other error is logged and counted.
    pub(crate) fn run(
        &mut self,
        frame: Option<&Frame>,
        camera: &Collector,
        result: &LaneResult<'_>,
        tracks: &[Option<TrackReport>],
        lane: LaneContext<'_>,
    ) -> Result<&[CropResults], RunError> {
        self.results.clear();
        let Some(frame) = frame.filter(|_| !self.is_empty()) else { return Ok(&[]) };
        let seen = camera.view_spec.of((result.frame.width, result.frame.height));
        let (Ok(whole), Ok(seen)) = (frame.view(), seen) else {
            // The lane's own run has had the same frame and view.
            return Ok(&[]);
        };
        let frame = CropFrame {
            frame: whole,
            area: seen.crop(),
            orientation: seen.orientation(),
            camera: &camera.metrics.name,
            sequence: result.frame.sequence,
            time: result.frame.time(),
            lane,
        };
        self.results.resize_with(result.detections.len(), CropResults::default);
        let level = Level { labels: &result.model.labels, detections: result.detections, tracks };
        for model in &mut self.models {
            model.run(&frame, level, &mut self.results)?;
        }
        Ok(&self.results)
    }
}

impl CropModel {
    fn unload(&mut self) {
        self.runner = None;
        self.models.iter_mut().for_each(Self::unload);
    }

    /// How long the results of a track stay valid; `None` if every frame needs new ones, because they are positions.
    fn refresh(&self) -> Option<Duration> {
        self.settings.refresh.or(match self.output {
            CropOutput::Label | CropOutput::Values => Some(REFRESH),
            CropOutput::Keypoints | CropOutput::Detections => None,
        })
    }

    /// Adds the model's results on a frame's detections to `results`, with those of the models on its own detections.
    fn run(&mut self, frame: &CropFrame<'_>, level: Level<'_>, results: &mut [CropResults]) -> Result<(), RunError> {
        self.choose(frame, level);
        let inner = &mut self.state.inner;
        inner.detections.clear();
        inner.owners.clear();
        let outcome = self.run_on_crops(frame, level, results);
        // Also after an error: tracks have their last results.
        let kept = level.tracks.iter().zip(results.iter_mut()).filter_map(|(track, to)| Some((track.as_ref()?, to)));
        for (track, to) in kept {
            let refresh = self.refresh().unwrap_or(REFRESH);
            if let Some(values) = self.state.tracks.values_of(track.id, frame.time, refresh) {
                to.add_values_of(values);
            }
        }
        outcome?;
        let InnerDetections { detections, owners, results: inner } = &mut self.state.inner;
        if detections.is_empty() {
            return Ok(());
        }
        inner.clear();
        inner.resize_with(detections.len(), CropResults::default);
        let level = Level { labels: &self.facts.labels, detections, tracks: &[] };
        let outcome = self.models.iter_mut().try_for_each(|model| model.run(frame, level, inner));
        for ((detection, owner), inner) in detections.iter().zip(owners).zip(inner.drain(..)) {
            results[*owner].add_detection(detection, &self.facts, &self.metrics.name, inner);
        }
        outcome
    }

    /// Chooses the crops of a frame: of all detections that the settings ask for, best first, those without valid results.
    fn choose(&mut self, frame: &CropFrame<'_>, level: Level<'_>) {
        let refresh = self.refresh();
        let is_away = self.runner.is_none() && frame.lane.clock.monotonic_ns() < self.state.retry_ns;
        let Self { settings, state: CropState { tracks, crops, spare, .. }, .. } = self;
        crops.clear();
        spare.clear();
        if is_away {
            return;
        }
        let size = (frame.frame.width(), frame.frame.height());
        for (index, detection) in level.detections.iter().enumerate() {
            let crop = settings.crop_of(detection, level.labels, frame.area);
            let view = crop.and_then(|crop| View::new(size, crop, frame.orientation));
            let Some(crop) = view.map(|view| Crop { index, score: detection.score, view }) else { continue };
            let track = level.tracks.get(index).and_then(Option::as_ref);
            match track.zip(refresh).map(|(track, refresh)| tracks.due(track.id, detection, frame.time, refresh)) {
                None | Some(Due::Now) => crops.push(crop),
                Some(Due::Early { age }) => spare.push((age, crop)),
                Some(Due::Later) => {}
            }
        }
        crops.sort_by(|a, b| b.score.total_cmp(&a.score));
        let left_out = crops.len().saturating_sub(settings.max_crops);
        crops.truncate(settings.max_crops);
        self.metrics.crops_left_out.add(left_out as u64);
        // A run takes as long with free slots: tracks whose results end soon have them renewed together, in fewer runs.
        let batch = self.runner.as_ref().map_or(1, |runner| runner.batch());
        let free = crops.len().next_multiple_of(batch).min(settings.max_crops) - crops.len();
        spare.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        crops.extend(spare.iter().take(free).map(|(_, crop)| *crop));
    }

    /// Runs the model on the chosen crops. Detections go to [`CropState::inner`].
    fn run_on_crops(
        &mut self,
        frame: &CropFrame<'_>,
        level: Level<'_>,
        results: &mut [CropResults],
    ) -> Result<(), RunError> {
        let mut done = 0;
        while done < self.state.crops.len() && !frame.lane.stop.is_raised() {
            let Some(mut runner) = self.take_runner(frame)? else { return Ok(()) };
            let end = (done + runner.batch()).min(self.state.crops.len());
            let run = begin(runner.as_mut(), frame, &self.state.crops[done..end]);
            let run = run.and_then(|run_id| Ok((run_id, runner.finish(run_id)?)));
            match run {
                Ok((run_id, timings)) => {
                    self.count(runner.as_ref(), &timings, end - done);
                    frame.lane.metrics.crop_runs.add(1);
                    for slot in 0..end - done {
                        self.read(runner.as_mut(), (run_id, slot), done + slot, frame, level, results);
                    }
                    done = end;
                }
                Err(error) => {
                    self.complain(&error, frame);
                    match error.fault {
                        Fault::Frame(slot) if done + slot < end => drop(self.state.crops.remove(done + slot)),
                        Fault::GpuLost => {
                            // Freeing memory of a lost CUDA context fails at best, and the process ends anyway.
                            std::mem::forget(runner);
                            return Err(error);
                        }
                        Fault::Frame(_) | Fault::Run => {
                            self.metrics.runs.add(1);
                            self.state.failures += 1;
                            if self.state.failures >= FAILURES_UNTIL_REBUILD {
                                let (model, failures) = (&self.metrics.name, self.state.failures);
                                log::warn!("model {model}: {failures} runs failed in a row, reloading it");
                                let pause = self.state.backoff.pause();
                                self.state.retry_ns = frame.lane.clock.monotonic_ns() + pause.as_nanos() as u64;
                                return Ok(());
                            }
                            // The other crops may do no harm.
                            done = end;
                        }
                    }
                }
            }
            self.runner = Some(runner);
        }
        Ok(())
    }

    /// Takes the loaded model, or loads it again if its pause is over; `None` if it is still away.
    fn take_runner(&mut self, frame: &CropFrame<'_>) -> Result<Option<Box<dyn ModelRunner>>, RunError> {
        if let Some(runner) = self.runner.take() {
            return Ok(Some(runner));
        }
        let now_ns = frame.lane.clock.monotonic_ns();
        if now_ns < self.state.retry_ns {
            return Ok(None);
        }
        match (self.build)() {
            Ok(runner) => {
                self.metrics.rebuilds.add(1);
                (self.state.failures, self.state.counted) = (0, RunCounts::default());
                log::info!("model {}: loaded again", self.metrics.name);
                Ok(Some(runner))
            }
            Err(error) if error.fault == Fault::GpuLost => Err(error),
            Err(error) => {
                self.metrics.errors.add(1);
                self.state.retry_ns = now_ns + self.state.backoff.pause().as_nanos() as u64;
                log::error!("model {}: cannot reload it: {error}; retrying", self.metrics.name);
                Ok(None)
            }
        }
    }

    /// Reads a slot of a finished run, the results on `self.state.crops[at]`.
    fn read(
        &mut self,
        runner: &mut dyn ModelRunner,
        (run_id, slot): (RunId, usize),
        at: usize,
        frame: &CropFrame<'_>,
        level: Level<'_>,
        results: &mut [CropResults],
    ) {
        if let Err(error) = runner.detections(run_id, slot, &mut self.state.found) {
            self.complain(&error, frame);
            return;
        }
        let index = self.state.crops[at].index;
        let refresh = self.refresh();
        let Self { facts, metrics, output, state: CropState { tracks, found, inner, .. }, .. } = self;
        let values = match output {
            CropOutput::Label => found.first().map(|best| {
                let label = ScoredLabel { label: class_label(&facts.labels, best.class_id), score: best.score };
                let reading = Reading::Label(label);
                FrameValues {
                    attributes: vec![AttributeValue { name: Arc::clone(&metrics.name), reading }],
                    ..FrameValues::NONE
                }
            }),
            CropOutput::Values => Some(runner.values().clone()),
            CropOutput::Keypoints => {
                if let Some(best) = found.first() {
                    results[index].set_keypoints(&best.keypoints, &facts.keypoint_names);
                }
                None
            }
            CropOutput::Detections => {
                inner.owners.extend(found.iter().map(|_| index));
                inner.detections.append(found);
                None
            }
        };
        match level.tracks.get(index).and_then(Option::as_ref).filter(|_| refresh.is_some()) {
            Some(track) => tracks.add(track.id, &level.detections[index], frame.time, values.as_ref()),
            None => values.iter().for_each(|values| results[index].add_values(values)),
        }
    }

    /// Counts a run on `crops` crops.
    fn count(&mut self, runner: &dyn ModelRunner, timings: &RunTimings, crops: usize) {
        self.state.failures = 0;
        self.state.backoff.reset();
        self.metrics.runs.add(1);
        self.metrics.crops.add(crops as u64);
        let counts = runner.counts();
        let new = counts.since(&self.state.counted).unwrap_or(counts);
        self.state.counted = counts;
        if counts.graph_runs + counts.single_runs > 0 {
            self.metrics.count_gpu(&new, timings.launch_us);
        }
    }

    fn complain(&mut self, error: &RunError, frame: &CropFrame<'_>) {
        self.metrics.errors.add(1);
        let Some(held_back) = self.state.complaints.pass(error, Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
        let (model, CropFrame { camera, sequence, .. }) = (&self.metrics.name, frame);
        log::error!(camera:% = camera; "model {model}: a crop of frame {sequence} of camera {camera}: {error}{more}");
    }
}

/// Begins a run on crops of a frame.
fn begin(runner: &mut dyn ModelRunner, frame: &CropFrame<'_>, crops: &[Crop]) -> Result<RunId, RunError> {
    let mut views = Vec::with_capacity(crops.len());
    for (slot, crop) in crops.iter().enumerate() {
        let view = frame.frame.viewed(crop.view);
        views.push(view.map_err(|error| RunError::new(Fault::Frame(slot), error))?);
    }
    runner.begin(&views)
}

#[cfg(test)]
mod tests;
