//! What a run came to: told at its end to people, and to machines as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use visiond_annotate::annotator::AnnotateCounts;
use visiond_flow::metrics::{CameraSnapshot, DropCause, GpuSnapshot, LaneView, Stage};
use visiond_flow::sink_counts::SinkCounts;
use visiond_kernels::buffer::MemoryKind;
use visiond_system::process::Resident;
use visiond_system::thermal::JetsonSummary;

use super::status_line::{drops, millis};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// How long the pipeline ran.
    pub seconds: f64,
    /// From the process's start to the first message, to 10 ms.
    pub first_message_s: Option<f64>,
    /// Resident memory at most.
    pub peak_resident_bytes: Option<u64>,
    /// The Jetson that it ran on; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jetson: Option<JetsonSummary>,
    /// Each model.
    pub models: Vec<ModelSummary>,
    /// Each camera.
    pub cameras: Vec<CameraSummary>,
    /// Each sink.
    pub sinks: Vec<SinkSummary>,
}

/// A model in a run.
#[derive(Debug, Serialize)]
pub struct ModelSummary {
    /// Its name.
    pub name: String,
    /// What ran it.
    pub backend: String,
    /// The memory that its frames lived in.
    pub memory: &'static str,
    /// Runs of the network.
    pub runs: u64,
    /// Frames and runs that failed.
    pub errors: u64,
    /// Times that it was built anew.
    pub rebuilds: u64,
    /// What was counted on the GPU, where it ran on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSnapshot>,
}

/// A camera in a run.
#[derive(Debug, Serialize)]
pub struct CameraSummary {
    /// Its name.
    pub name: String,
    /// Where it stood at the end.
    pub state: &'static str,
    /// Frames that came.
    pub captured: u64,
    /// How frames came out of a camera's driver the last time: "userptr", "mmap" or "copy".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<&'static str>,
    /// Bytes of frames that were copied between their source and the buffer that the network reads.
    pub copied_bytes: u64,
    /// CPU time of its thread for each frame that came, in microseconds: what capturing costs.
    pub capture_cpu_us: f64,
    /// Messages that went out.
    pub published: u64,
    /// Messages a second.
    pub frames_per_second: f64,
    /// Frames lost, by cause.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Times that its source failed.
    pub errors: u64,
    /// Times that its source was opened again.
    pub restarts: u64,
    /// Durations by stage.
    pub stages_us: BTreeMap<&'static str, Spread>,
    /// Things seen, by label.
    pub detections: BTreeMap<String, u64>,
    /// Pictures drawn, where any were to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PictureSummary>,
    /// The line on drops, for people.
    #[serde(skip)]
    drops: String,
}

/// How a stage's durations are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Average, in microseconds.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Longest.
    pub max: u64,
}

/// A camera's pictures.
#[derive(Debug, Serialize)]
pub struct PictureSummary {
    /// Their folder.
    pub directory: String,
    /// Stored.
    pub written: u64,
    /// Not drawn, or not stored.
    pub lost: u64,
}

/// A sink in a run.
#[derive(Debug, Serialize)]
pub struct SinkSummary {
    /// Its name.
    pub name: String,
    /// Where messages went.
    pub to: String,
    /// Messages written.
    pub written: u64,
    /// Messages lost.
    pub lost: u64,
}

impl ModelSummary {
    /// Of a lane.
    pub fn new(view: &LaneView, backend: &str, memory: MemoryKind) -> Self {
        let lane = &view.lane;
        Self {
            name: lane.name.to_string(),
            backend: backend.to_owned(),
            memory: memory.name(),
            runs: lane.runs(),
            errors: lane.errors(),
            rebuilds: lane.rebuilds(),
            gpu: lane.gpu(),
        }
    }
}

impl CameraSummary {
    /// Of a camera that ran for `seconds`.
    pub fn new(name: &str, state: &'static str, total: &CameraSnapshot, seconds: f64) -> Self {
        let stage = |stage: Stage| {
            let times = total.stage(stage);
            let at = |quantile| times.quantile_us(quantile);
            (
                stage.name(),
                Spread { mean: times.mean_us(), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: times.max_us() },
            )
        };
        Self {
            name: name.to_owned(),
            state,
            captured: total.captured,
            io: total.io,
            copied_bytes: total.copied_bytes,
            // To 0.1 us, since more digits say nothing.
            capture_cpu_us: (total.capture_cpu_us() * 10.0).round() / 10.0,
            published: total.published,
            frames_per_second: if seconds > 0.0 { total.published as f64 / seconds } else { 0.0 },
            dropped: DropCause::ALL.iter().map(|cause| cause.name()).zip(total.dropped).collect(),
            errors: total.errors,
            restarts: total.restarts,
            stages_us: Stage::ALL.into_iter().map(stage).collect(),
            detections: total.labels.iter().map(|(label, count)| (label.to_string(), count.total)).collect(),
            pictures: None,
            drops: drops(total),
        }
    }

    /// With its pictures.
    pub fn with_pictures(mut self, directory: &Path, counts: AnnotateCounts) -> Self {
        let lost = counts.dropped_busy + counts.failed;
        self.pictures =
            Some(PictureSummary { directory: directory.display().to_string(), written: counts.written, lost });
        self
    }

    fn lines(&self, out: &mut Vec<String>) {
        let mut first = format!(
            "camera {}: {} of {} frames looked at, {:.1} a second, {}",
            self.name, self.published, self.captured, self.frames_per_second, self.drops
        );
        if self.errors > 0 {
            // Writing into a String cannot fail, here and below.
            let _ = write!(first, "; failed {} times, opened again {} times", self.errors, self.restarts);
        }
        out.push(first);
        if self.published > 0 {
            let stage = |stage: Stage| self.stages_us.get(stage.name()).copied().unwrap_or(Spread::ZERO);
            let total = stage(Stage::Total);
            let [p50, p90, p99, max] = [total.p50, total.p90, total.p99, total.max].map(millis);
            let parts = [Stage::Preprocess, Stage::Infer, Stage::Postprocess].map(|part| millis(stage(part).p50));
            out.push(format!("  age at publishing in ms: median {p50}, p90 {p90}, p99 {p99}, max {max}"));
            out.push(format!("  of it preprocess {}, network {}, postprocess {}", parts[0], parts[1], parts[2]));
            out.push(format!("  seen: {}", self.seen()));
        }
        if let Some(pictures) = &self.pictures {
            let lost = if pictures.lost > 0 { format!(", {} not drawn", pictures.lost) } else { String::new() };
            out.push(format!("  pictures: {} in {}{lost}", pictures.written, pictures.directory));
        }
    }

    /// `5123 person, 12 bicycle`, most first.
    fn seen(&self) -> String {
        if self.detections.is_empty() {
            return "nothing".to_owned();
        }
        let mut labels: Vec<_> = self.detections.iter().collect();
        labels.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        labels.iter().map(|(label, count)| format!("{count} {label}")).collect::<Vec<_>>().join(", ")
    }
}

impl Spread {
    const ZERO: Self = Self { mean: 0, p50: 0, p90: 0, p99: 0, max: 0 };
}

impl SinkSummary {
    /// Of a sink's counts.
    pub fn new(counts: &SinkCounts) -> Self {
        Self { name: counts.name.clone(), to: counts.to.clone(), written: counts.written, lost: counts.lost() }
    }
}

impl Summary {
    /// For people: a line a fact.
    pub fn lines(&self) -> Vec<String> {
        let mut out = Vec::new();
        for camera in &self.cameras {
            camera.lines(&mut out);
        }
        for model in &self.models {
            let mut line = format!("model {}: {} runs on {}", model.name, model.runs, model.backend);
            if model.errors > 0 {
                let _ = write!(line, ", {} errors, built anew {} times", model.errors, model.rebuilds);
            }
            if let Some(gpu) = &model.gpu {
                let GpuSnapshot { graph_runs, single_runs, overlapped_runs, .. } = gpu;
                let _ = write!(line, ", {graph_runs} as a CUDA graph, {single_runs} call by call");
                let _ = write!(line, ", {overlapped_runs} beside another");
                if gpu.copied_bytes > 0 {
                    let _ = write!(line, ", {:.1} MB of frames copied for the GPU", gpu.copied_bytes as f64 / 1e6);
                }
                if gpu.lost_candidates > 0 {
                    let _ = write!(line, ", no room for {} candidates", gpu.lost_candidates);
                }
            }
            out.push(line);
        }
        for sink in &self.sinks {
            let lost = if sink.lost > 0 { format!(", {} lost", sink.lost) } else { String::new() };
            out.push(format!("sink {}: {} messages to {}{lost}", sink.name, sink.written, sink.to));
        }
        out.extend(self.jetson.as_ref().map(JetsonSummary::line));
        let mut last = format!("{:.1} s", self.seconds);
        if let Some(first) = self.first_message_s {
            let _ = write!(last, ", the first message {first:.2} s after the start");
        }
        if let Some(bytes) = self.peak_resident_bytes {
            let _ = write!(last, ", at most {} MB of memory", bytes / 1_000_000);
        }
        out.push(last);
        out
    }

    /// With what the system tells of the memory.
    pub fn with_memory(mut self, resident: Option<Resident>) -> Self {
        self.peak_resident_bytes = resident.map(|resident| resident.peak);
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use visiond_flow::metrics::CameraMetrics;
    use visiond_flow::testing::message;

    fn summary() -> Summary {
        let camera = CameraMetrics::new("street".into());
        (0..3).for_each(|_| camera.count_captured());
        camera.count_capture_cpu(600_000);
        camera.count_published(&message("street", &["person", "person", "dog"]));
        camera.count_published(&message("street", &["person"]));
        camera.count_dropped(DropCause::Overload, 1);
        let counts = AnnotateCounts { written: 2, dropped_busy: 1, failed: 0 };
        let camera = CameraSummary::new("street", "ended", &camera.snapshot(), 2.0);
        Summary {
            seconds: 2.0,
            first_message_s: Some(0.14),
            peak_resident_bytes: Some(58_400_000),
            jetson: None,
            models: vec![ModelSummary {
                name: "nanodet".into(),
                backend: "rten (built in)".into(),
                memory: "host",
                runs: 2,
                errors: 0,
                rebuilds: 0,
                gpu: Some(GpuSnapshot {
                    graph_runs: 1,
                    single_runs: 1,
                    overlapped_runs: 0,
                    copied_bytes: 1_300_000,
                    lost_candidates: 0,
                    launch_us_p50: 9,
                    launch_us_p99: 9,
                }),
            }],
            cameras: vec![camera.with_pictures(Path::new("out/pictures"), counts)],
            sinks: vec![SinkSummary { name: "file".into(), to: "out.jsonl".into(), written: 2, lost: 0 }],
        }
    }

    #[test]
    fn people_are_told_what_happened_and_where_everything_is() {
        assert_eq!(
            summary().lines(),
            [
                "camera street: 2 of 3 frames looked at, 1.0 a second, dropped 1 (overload 1)",
                "  age at publishing in ms: median 1.0, p90 1.0, p99 1.0, max 1.0",
                "  of it preprocess 0.0, network 0.0, postprocess 0.0",
                "  seen: 3 person, 1 dog",
                "  pictures: 2 in out/pictures, 1 not drawn",
                "model nanodet: 2 runs on rten (built in), 1 as a CUDA graph, 1 call by call, 0 beside another, \
                 1.3 MB of frames copied for the GPU",
                "sink file: 2 messages to out.jsonl",
                "2.0 s, the first message 0.14 s after the start, at most 58 MB of memory",
            ]
        );
    }

    #[test]
    fn machines_are_told_the_same() {
        let value = serde_json::to_value(summary()).unwrap();
        let camera = &value["cameras"][0];
        assert_eq!(camera["published"], 2);
        assert_eq!(camera["capture_cpu_us"], 200.0);
        assert_eq!(camera["dropped"]["overload"], 1);
        assert_eq!(camera["detections"]["person"], 3);
        assert_eq!(camera["stages_us"]["total"]["max"], 1000);
        assert_eq!(camera["stages_us"]["total"]["mean"], 1000);
        assert_eq!(camera["pictures"]["written"], 2);
        assert_eq!(value["sinks"][0]["to"], "out.jsonl");
        assert!(camera.get("drops").is_none());
    }
}
