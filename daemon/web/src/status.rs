//! The daemon's state: one [`StatusReport`], which `/api/v1/status` returns as JSON, `/metrics` in Prometheus' format, and which
//! `visiond top` shows on a terminal.
//!
//! A report reads counters. It never waits for a lane or for a reload, so it does not slow the pipeline.

mod recent;
pub mod report;

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use visiond_live::{LiveBundle, PreviewStatus};
use visiond_message::status::{CameraStatus, ModelStatus, PreviewFacts, StageFacts};
use visiond_service::{LoadedFacts, RunningModel, Service, Snapshot};
use visiond_system::process::{ProcessFacts, age};
use visiond_system::thermal::Thermals;
use visiond_telemetry::histogram::HistogramSnapshot;
use visiond_telemetry::metrics::{
    CameraLanes, CameraSnapshot, Counter, LaneMetrics, LaneView, Phase, Stage, cameras_of,
};

use self::recent::RecentStages;
use self::report::{HttpCounts, ReloadHistory, StatusReport, rfc3339};

/// The longest time in each bucket of a stage, in microseconds; one more bucket holds the rest.
pub const BUCKETS_US: [u64; 18] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 33_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Collects status reports.
pub struct StatusCollector {
    service: Arc<Service>,
    thermals: Option<Thermals>,
    /// The name at the start, because changing it requires a restart.
    device: String,
    config: PathBuf,
    started_at: jiff::Timestamp,
    started: Instant,
    recent: RecentStages,
    /// Counted by the HTTP server.
    pub http: Arc<HttpCounts<AtomicU64>>,
    /// Counted by the main loop.
    pub reloads: ReloadHistory,
}

impl StatusCollector {
    /// Creates a collector for `service`, whose configuration was read from `config`.
    pub fn new(service: &Arc<Service>, thermals: Option<&Thermals>, config: &Path) -> Self {
        let age = age().unwrap_or_default();
        Self {
            service: Arc::clone(service),
            thermals: thermals.cloned(),
            device: service.config().device.resolved(),
            // Absolute, because clients have other working directories.
            config: std::path::absolute(config).unwrap_or_else(|_| config.to_owned()),
            started_at: jiff::Timestamp::now().checked_sub(age).unwrap_or_else(|_| jiff::Timestamp::now()),
            started: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            recent: RecentStages::default(),
            http: Arc::default(),
            reloads: ReloadHistory::default(),
        }
    }

    /// Returns the current state.
    pub fn observe(&self) -> StatusReport {
        let snapshot = self.service.snapshot();
        let not_ready = not_ready(&snapshot.lanes);
        self.recent.keep(&snapshot.lanes);
        let cameras = cameras_of(&snapshot.lanes);
        let bundles = self.service.live().bundles();
        let running = cameras.iter().map(|known| self.camera(&snapshot, known));
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: self.device.clone(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            at: rfc3339(jiff::Timestamp::now()),
            started_at: rfc3339(self.started_at),
            uptime_s: (self.started.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            ready: not_ready.is_empty(),
            not_ready,
            config: self.config.display().to_string(),
            settings: self.service.live().settings(),
            reloads: self.reloads.facts(),
            process: ProcessFacts::now(),
            cameras: running.chain(snapshot.switched_off.iter().cloned()).collect(),
            models: snapshot
                .models
                .iter()
                .zip(&snapshot.lanes)
                .flat_map(|(model, lane)| models_of(model, lane, &bundles))
                .collect(),
            sinks: self.service.sinks(),
            http: self.http.facts(),
            gpu: self.thermals.as_ref().map(Thermals::gpu),
            jetson: self.thermals.as_ref().and_then(Thermals::summary),
        }
    }

    /// Returns a sentence for each lane that is still waiting for its first frame and may get one. Cheap.
    pub fn not_ready(&self) -> Vec<String> {
        not_ready(&self.service.snapshot().lanes)
    }

    fn camera(&self, snapshot: &Snapshot, known: &CameraLanes<'_>) -> CameraStatus {
        let camera = known.camera;
        let CameraSnapshot { mut status, stages, .. } = camera.snapshot();
        let phase = camera.phase();
        let recent = self.recent.of(camera, &stages);
        let stages = Stage::ALL.iter().zip(&stages).zip(&recent);
        // The newest messages of a camera that is away are old ones.
        let latest =
            self.service.live().messages().latest_of(&camera.name).into_iter().filter(|_| phase == Phase::Streaming);
        // The first model's counts last.
        let latest: Vec<_> = latest.collect();
        latest.iter().rev().filter_map(|published| published.frame()).for_each(|message| status.add_newest(message));
        let pictures = snapshot.pictures.iter().find(|pictures| pictures.camera == camera.name);
        let clips = snapshot.clips.iter().find(|clips| clips.camera == camera.name);
        let view = self.service.live().view(&camera.name);
        let (rotate, flip) = view.orientation().turn_and_flip();
        CameraStatus {
            model: known.models(),
            rotate,
            flip: flip.map(|flip| flip.name().to_owned()),
            phase: phase.name().to_owned(),
            reason: status.reason.filter(|_| matches!(phase, Phase::Waiting | Phase::Failed | Phase::Opening)),
            stages: stages.map(|((stage, all), recent)| (stage.name().to_owned(), stage_facts(all, recent))).collect(),
            watchers: view.watchers() as u64,
            preview: view.preview().map(preview_facts),
            pictures: pictures.map(|pictures| pictures.annotator.counts()),
            clips: clips.map(|clips| clips.recorder.counts()),
            ..status
        }
    }
}

/// Returns the facts of a preview.
pub fn preview_facts(status: PreviewStatus) -> PreviewFacts {
    let (width, height) = status.size.unwrap_or_default();
    let reason = status.reason.map(|reason| reason.to_string());
    PreviewFacts { phase: status.phase.name().to_owned(), reason, width, height }
}

fn not_ready(lanes: &[LaneView]) -> Vec<String> {
    let lanes = lanes.iter().filter(|lane| !lane.is_ready());
    lanes.map(|lane| format!("model {}: no frame processed yet", lane.lane.name)).collect()
}

fn stage_facts(times: &HistogramSnapshot, recent: &HistogramSnapshot) -> StageFacts {
    let bounds = BUCKETS_US.iter().copied().map(Some).chain([None]);
    StageFacts {
        count: times.count(),
        sum_us: times.sum_us(),
        p50_us: times.quantile_us(0.5),
        p99_us: times.quantile_us(0.99),
        max_us: times.max_us(),
        recent_p50_us: recent.quantile_us(0.5),
        recent_p99_us: recent.quantile_us(0.99),
        buckets: bounds.zip(times.within(&BUCKETS_US)).collect(),
    }
}

/// Returns the facts of a lane's model, and of the models on its detections.
fn models_of(model: &RunningModel, view: &LaneView, bundles: &[LiveBundle]) -> Vec<ModelStatus> {
    let bundle = |name: &str| bundles.iter().find(|one| one.model == name).map(|one| one.status.clone());
    let status = |metrics: &LaneMetrics, on: Option<&String>, path: &Path, facts: &LoadedFacts| ModelStatus {
        name: metrics.name.to_string(),
        on: on.cloned(),
        file: path.display().to_string(),
        sha256: facts.sha256.clone(),
        backend: facts.backend.clone(),
        memory: model.buffers.memory.kind().name().to_owned(),
        input: facts.input.clone(),
        // The lane runs all of them.
        activity: view.lane.activity().name().to_owned(),
        gpu: metrics.gpu(),
        bundle: bundle(&metrics.name),
        ..metrics.counters.read(Counter::get)
    };
    let crop_models = model.crop_models.iter();
    let crop_models = crop_models.map(|one| status(&one.metrics, Some(&one.on), &one.path, &one.facts));
    iter::once(status(&view.lane, None, &model.path, &model.facts)).chain(crop_models).collect()
}

#[cfg(test)]
mod tests {
    use visiond_telemetry::histogram::Histogram;
    use visiond_telemetry::metrics::{CameraMetrics, LaneMetrics};

    use super::*;

    #[test]
    fn a_stage_is_described_over_all_time_and_lately() {
        let times = |values: &[u64]| {
            let histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record_us(value));
            histogram.snapshot()
        };
        let facts = stage_facts(&times(&[10, 20, 30, 900, 12_000_000]), &times(&[5, 7]));
        assert_eq!((facts.count, facts.sum_us, facts.max_us), (5, 12_000_960, 12_000_000));
        // A percentile is accurate to 3.2 %.
        assert!(facts.p50_us == 30 && (11_600_000..=12_000_000).contains(&facts.p99_us), "{facts:?}");
        assert_eq!((facts.recent_p50_us, facts.recent_p99_us), (5, 7));
        assert_eq!(facts.buckets.len(), BUCKETS_US.len() + 1);
        let filled: Vec<_> = facts.buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(50), 3), (Some(1_000), 1), (None, 1)]);
    }

    #[test]
    fn a_model_is_ready_with_its_first_frame() {
        let lane = |name: &str, phase| {
            let camera = CameraMetrics::new("door".into());
            camera.enter(phase);
            LaneView { lane: Arc::new(LaneMetrics::new(name.into())), cameras: vec![Arc::new(camera)] }
        };
        // If every camera is away, no frame can arrive.
        let lanes = [lane("people", Phase::Streaming), lane("cars", Phase::Opening), lane("dogs", Phase::Waiting)];
        assert_eq!(not_ready(&lanes), ["model people: no frame processed yet", "model cars: no frame processed yet"]);
        lanes[0].lane.note_frame();
        assert_eq!(not_ready(&lanes), ["model cars: no frame processed yet"]);
    }
}
