//! The daemon at one instant, as `/api/v1/status`, `/metrics` and `visiond top` tell it.
//!
//! Read back by `visiond top`, which may be of another version than the daemon: what it does not find has its default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use visiond_flow::metrics::GpuSnapshot;
use visiond_system::thermal::JetsonSummary;

use super::counters::{HttpFacts, ReloadFacts};
use visiond_system::process::ProcessFacts;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// The daemon's.
    pub version: String,
    /// What it was built for, such as "aarch64-linux".
    pub target: String,
    /// When this was seen: RFC 3339, UTC.
    pub at: String,
    /// When the daemon was started: RFC 3339, UTC.
    pub started_at: String,
    /// Seconds since then.
    pub uptime_s: f64,
    /// Whether a frame went through every lane that can start.
    pub ready: bool,
    /// Why not: a sentence each.
    pub not_ready: Vec<String>,
    /// The configuration's file.
    pub config: String,
    /// Its changes while it runs.
    pub reloads: ReloadFacts,
    /// The process.
    pub process: ProcessFacts,
    /// Each camera, in the configuration's order by model.
    pub cameras: Vec<CameraFacts>,
    /// Each model that a camera names.
    pub models: Vec<ModelFacts>,
    /// Each sink.
    pub sinks: Vec<SinkFacts>,
    /// Who is served by HTTP.
    pub http: HttpFacts,
    /// The Jetson that it runs on; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jetson: Option<JetsonSummary>,
}

/// A camera.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CameraFacts {
    /// Its name.
    pub name: String,
    /// The model that looks at it.
    pub model: String,
    /// opening, streaming, waiting, failed or ended.
    pub phase: String,
    /// Why it is waiting or failed: a sentence.
    pub reason: Option<String>,
    /// Of its frames, in pixels; 0 before the first.
    pub width: u32,
    /// Of its frames, in pixels; 0 before the first.
    pub height: u32,
    /// Of its frames, by the configuration's word; empty before the first.
    pub format: String,
    /// How frames come out of a driver: "userptr", "mmap" or "copy"; absent where there is none.
    pub io: Option<String>,
    /// Messages a second, over the last five seconds.
    pub fps: f64,
    /// Frames that came.
    pub captured: u64,
    /// Frames that were looked at: messages.
    pub published: u64,
    /// Frames lost, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Times that its source was opened again.
    pub restarts: u64,
    /// Times that it could not be opened, or died.
    pub errors: u64,
    /// Things seen.
    pub detections: u64,
    /// The same by label, most first.
    pub labels: Vec<LabelFacts>,
    /// What each stage took, by its name in messages; "total" is from capture to publishing.
    pub stages: BTreeMap<String, StageFacts>,
    /// Bytes of frames that were copied between their source and the buffer that the network reads.
    pub copied_bytes: u64,
    /// CPU time of its thread.
    pub capture_cpu_s: f64,
    /// Who looks at its pictures now.
    pub watchers: u64,
    /// Pictures drawn for `annotate`, where any are to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PictureFacts>,
}

/// A label's detections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelFacts {
    /// The label.
    pub label: String,
    /// Ever.
    pub total: u64,
    /// On the newest frame.
    pub newest: u64,
}

/// What a stage took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageFacts {
    /// Frames.
    pub count: u64,
    /// In all.
    pub sum_us: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
    /// Median of the last five to ten seconds.
    pub recent_p50_us: u64,
    /// 99th percentile of the last five to ten seconds.
    pub recent_p99_us: u64,
    /// For each bucket the longest time in it (`null`: any) and how many frames fell into it alone.
    pub buckets: Vec<(Option<u64>, u64)>,
}

/// A camera's pictures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PictureFacts {
    /// Stored.
    pub written: u64,
    /// Not drawn, because one was being drawn.
    pub dropped_busy: u64,
    /// Not drawn, or not stored.
    pub failed: u64,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelFacts {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Of its file.
    pub sha256: String,
    /// What runs it.
    pub backend: String,
    /// The memory that its frames live in.
    pub memory: String,
    /// What it takes, such as "images f32 [1, 3, 640, 640]".
    pub input: String,
    /// idle, looking, publishing, backoff or ended.
    pub activity: String,
    /// Runs.
    pub runs: u64,
    /// Frames and runs that failed.
    pub errors: u64,
    /// Times that it was built anew.
    pub rebuilds: u64,
    /// What was counted on the GPU, where it runs on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSnapshot>,
}

/// A sink.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkFacts {
    /// Its name.
    pub name: String,
    /// Its `type`.
    pub kind: String,
    /// Where messages go.
    pub to: String,
    /// Waiting in its queue now.
    pub waiting: u64,
    /// How many may.
    pub capacity: u64,
    /// Taken into the queue.
    pub queued: u64,
    /// Written; by a socket: handed to whoever was connected; by a broker: acknowledged.
    pub written: u64,
    /// Turned away by a full queue.
    pub dropped_full: u64,
    /// Lost because the output could not be written.
    pub failed: u64,
    /// Lost by whatever cause.
    pub lost: u64,
    /// Left out because of `max_rate`.
    pub thinned: u64,
    /// Whether it is connected to its broker; absent where there is none.
    pub connected: Option<bool>,
    /// Times that it was connected again.
    pub reconnects: u64,
    /// Messages that were sent again after a connection was lost.
    pub resent: u64,
    /// Why nothing can be written now: a sentence.
    pub outage: Option<String>,
    /// Readers of a socket, now.
    pub readers: u64,
    /// Messages that a reader was too slow for.
    pub reader_lost: u64,
    /// Readers turned away.
    pub readers_refused: u64,
    /// What a durable sink keeps on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolFacts>,
}

/// A spool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolFacts {
    /// On disk.
    pub bytes: u64,
    /// On disk at most.
    pub limit_bytes: u64,
    /// Messages not yet acknowledged.
    pub records: u64,
    /// Messages that went because it was full.
    pub dropped: u64,
}
