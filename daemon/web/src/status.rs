//! What the daemon tells of itself while it runs: one [`StatusReport`], which `/api/v1/status` gives as JSON, `/metrics` in
//! Prometheus' words, and `visiond top` on a terminal.
//!
//! Looking costs whoever looks, not the pipeline: counters are read, nothing waits for a lane, and a reload under way does
//! not hold it up.

pub mod counters;
mod recent;
pub mod report;
mod time;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_annotate::annotator::AnnotateCounts;
use visiond_flow::histogram::HistogramSnapshot;
use visiond_flow::metrics::{CameraMetrics, CameraSnapshot, DropCause, LaneView, Phase, Stage};
use visiond_flow::sink_counts::SinkCounts;
use visiond_service::{ModelSnapshot, Service, Snapshot};
use visiond_system::process::{ProcessFacts, age};
use visiond_system::thermal::Thermals;

use self::counters::{HttpCounters, ReloadHistory};
use self::recent::Recent;
use self::report::{
    CameraFacts, LabelFacts, ModelFacts, PictureFacts, SinkFacts, SpoolFacts, StageFacts, StatusReport,
};
use self::time::rfc3339;

/// The longest time in each bucket of a stage, in microseconds; one more bucket holds the rest.
pub const BUCKETS_US: [u64; 18] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 33_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Looks at the daemon.
pub struct StatusCollector {
    service: Arc<Service>,
    thermals: Option<Thermals>,
    config: PathBuf,
    started_at: jiff::Timestamp,
    started: Instant,
    recent: Recent,
    /// Counted by the HTTP server.
    pub http: HttpCounters,
    /// Told by whoever reloads.
    pub reloads: ReloadHistory,
}

impl StatusCollector {
    /// Looks at `service`, whose configuration was read from `config`.
    pub fn new(service: &Arc<Service>, thermals: Option<&Thermals>, config: &Path) -> Self {
        let age = age().unwrap_or_default();
        Self {
            service: Arc::clone(service),
            thermals: thermals.cloned(),
            // As whoever asks from elsewhere finds it.
            config: std::path::absolute(config).unwrap_or_else(|_| config.to_owned()),
            started_at: jiff::Timestamp::now().checked_sub(age).unwrap_or_else(|_| jiff::Timestamp::now()),
            started: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            recent: Recent::default(),
            http: HttpCounters::default(),
            reloads: ReloadHistory::default(),
        }
    }

    /// Everything as it is now.
    pub fn observe(&self) -> StatusReport {
        let snapshot = self.service.snapshot();
        let not_ready = not_ready(&snapshot.lanes);
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            at: rfc3339(jiff::Timestamp::now()),
            started_at: rfc3339(self.started_at),
            uptime_s: round(self.started.elapsed()),
            ready: not_ready.is_empty(),
            not_ready,
            config: self.config.display().to_string(),
            reloads: self.reloads.facts(),
            process: ProcessFacts::now(),
            cameras: self.cameras(&snapshot),
            models: snapshot.models.iter().zip(&snapshot.lanes).map(|(model, lane)| model_facts(model, lane)).collect(),
            sinks: self.service.sinks().into_iter().map(sink_facts).collect(),
            http: self.http.facts(),
            jetson: self.thermals.as_ref().map(Thermals::summary),
        }
    }

    /// Why the daemon is not ready: a sentence for each lane that has not had its first frame though one may come. Cheap.
    pub fn not_ready(&self) -> Vec<String> {
        not_ready(&self.service.snapshot().lanes)
    }

    fn cameras(&self, snapshot: &Snapshot) -> Vec<CameraFacts> {
        let live = self.service.live();
        self.recent.keep(&snapshot.lanes);
        let cameras = snapshot.lanes.iter().flat_map(|lane| lane.cameras.iter().map(move |camera| (lane, camera)));
        let cameras = cameras.map(|(lane, camera)| {
            let pictures = snapshot.pictures.iter().find(|pictures| pictures.camera == camera.name);
            let pictures = pictures.map(|pictures| pictures.annotator.counts());
            let total = camera.snapshot();
            let recent = self.recent.of(camera, &total.stages);
            let mut facts = camera_facts(&lane.lane.name, camera, &total, &recent, pictures);
            facts.watchers = live.view(&camera.name).watchers() as u64;
            facts
        });
        cameras.collect()
    }
}

fn not_ready(lanes: &[LaneView]) -> Vec<String> {
    let lanes = lanes.iter().filter(|lane| !lane.is_ready());
    lanes.map(|lane| format!("model {}: no frame went through it yet", lane.lane.name)).collect()
}

fn camera_facts(
    model: &str,
    camera: &CameraMetrics,
    total: &CameraSnapshot,
    recent: &[HistogramSnapshot],
    pictures: Option<AnnotateCounts>,
) -> CameraFacts {
    let phase = camera.phase();
    let mut labels: Vec<_> = total
        .labels
        .iter()
        .map(|(label, count)| LabelFacts { label: label.to_string(), total: count.total, newest: count.newest })
        .collect();
    labels.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.label.cmp(&b.label)));
    let frame = total.frame.unwrap_or_default();
    let stages = Stage::ALL.iter().zip(&total.stages).zip(recent);
    let stages = stages.map(|((stage, all), recent)| (stage.name().to_owned(), stage_facts(all, recent)));
    CameraFacts {
        name: camera.name.to_string(),
        model: model.to_owned(),
        phase: phase.name().to_owned(),
        reason: total.reason.clone().filter(|_| matches!(phase, Phase::Waiting | Phase::Failed | Phase::Opening)),
        width: frame.width,
        height: frame.height,
        format: frame.format.to_owned(),
        io: total.io.map(str::to_owned),
        fps: (camera.fps() * 10.0).round() / 10.0,
        captured: total.captured,
        published: total.published,
        dropped: DropCause::ALL.iter().map(|cause| cause.name().to_owned()).zip(total.dropped).collect(),
        restarts: total.restarts,
        errors: total.errors,
        detections: total.detections,
        labels,
        stages: stages.collect(),
        copied_bytes: total.copied_bytes,
        capture_cpu_s: total.capture_cpu_ns as f64 / 1e9,
        watchers: 0,
        pictures: pictures.map(|AnnotateCounts { written, dropped_busy, failed }| PictureFacts {
            written,
            dropped_busy,
            failed,
        }),
    }
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

fn model_facts(model: &ModelSnapshot, view: &LaneView) -> ModelFacts {
    let lane = &view.lane;
    ModelFacts {
        name: lane.name.to_string(),
        file: model.file.display().to_string(),
        sha256: model.sha256.clone(),
        backend: model.backend.clone(),
        memory: model.memory.name().to_owned(),
        input: model.input.clone(),
        activity: lane.activity().name().to_owned(),
        runs: lane.runs(),
        errors: lane.errors(),
        rebuilds: lane.rebuilds(),
        gpu: lane.gpu(),
    }
}

fn sink_facts(counts: SinkCounts) -> SinkFacts {
    let lost = counts.lost();
    SinkFacts {
        name: counts.name,
        kind: counts.kind.to_owned(),
        to: counts.to,
        waiting: counts.waiting as u64,
        capacity: counts.capacity as u64,
        queued: counts.queued,
        written: counts.written,
        dropped_full: counts.dropped_full,
        failed: counts.failed,
        lost,
        readers: counts.readers,
        reader_lost: counts.reader_lost,
        readers_refused: counts.readers_refused,
        thinned: counts.thinned,
        connected: counts.connected,
        reconnects: counts.reconnects,
        resent: counts.resent,
        outage: counts.outage,
        spool: counts.spool.map(|spool| SpoolFacts {
            bytes: spool.bytes,
            limit_bytes: spool.limit_bytes,
            records: spool.records,
            dropped: spool.dropped,
        }),
    }
}

fn round(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}
