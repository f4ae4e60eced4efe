//! The summary of a daemon's run: lines for the log, JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use visiond_kernels::buffer::MemoryKind;
use visiond_message::status::{AnnotateCounts, CameraModelStatus, ClipCounts, GpuSnapshot, RuleStatus, SinkCounts};
use visiond_system::thermal::{GpuSummary, JetsonSummary};
use visiond_telemetry::metrics::{CameraSnapshot, LaneMetrics, Stage};

use super::status_line::{dropped_text, drops, millis};

/// The summary of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// How long the pipeline ran.
    pub seconds: f64,
    /// Seconds from the process's start to the first message, accurate to 10 ms.
    pub first_message_s: Option<f64>,
    /// Peak of resident memory.
    pub peak_resident_bytes: Option<u64>,
    /// The GPU; absent on machines that are not a Jetson and have no driver from NVIDIA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSummary>,
    /// The Jetson; absent on other machines.
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
    /// Name of the model.
    pub name: String,
    /// Name of the model on whose detections it ran; absent for a model on frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Name and version of the bundle that it was at the end; absent for a model that is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Backend that ran it.
    pub backend: String,
    /// Kind of memory that held its frames.
    pub memory: &'static str,
    /// Runs, successful or not.
    pub runs: u64,
    /// Frames and runs that failed.
    pub errors: u64,
    /// Times it was loaded again.
    pub rebuilds: u64,
    /// Detections on which it ran.
    pub crops: u64,
    /// Detections on which it did not run because their frame had more than `max_crops`.
    pub crops_left_out: u64,
    /// GPU counters, if it ran on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSnapshot>,
}

/// A camera in a run.
#[derive(Debug, Serialize)]
pub struct CameraSummary {
    /// Name of the camera.
    pub name: String,
    /// Its phase at the end.
    pub state: String,
    /// Frames captured.
    pub captured: u64,
    /// How the driver last passed frames: "userptr", "mmap" or "copy".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// The last decoder of a network camera's stream: "nvdec", "gstreamer", "ffmpeg" or "libjpeg-turbo".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<String>,
    /// Bytes of frames copied between the source and the buffer that the model reads.
    pub copied_bytes: u64,
    /// CPU time of its thread per captured frame, in microseconds.
    pub capture_cpu_us: f64,
    /// Messages published.
    pub published: u64,
    /// Messages per second.
    pub frames_per_second: f64,
    /// Frames lost, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Times its source failed.
    pub errors: u64,
    /// Times its source was reopened.
    pub restarts: u64,
    /// Each of its models.
    pub models: Vec<CameraModelSummary>,
    /// Durations by stage.
    pub stages_us: BTreeMap<&'static str, DurationStats>,
    /// Detections by label.
    pub detections: BTreeMap<String, u64>,
    /// Detections whose mask was too large for the message.
    pub truncated_masks: u64,
    /// Totals of its lines and zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
    /// Annotated images, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PictureSummary>,
    /// Clips of its events, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clips: Option<PictureSummary>,
    /// The drops as text.
    #[serde(skip)]
    drops: String,
}

/// A model on a camera in a run.
#[derive(Debug, Serialize)]
pub struct CameraModelSummary {
    /// Name of the model.
    pub name: String,
    /// Messages published.
    pub published: u64,
    /// Frames that it did not process, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Detections by label.
    pub detections: BTreeMap<String, u64>,
}

/// Distribution of a stage's durations, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DurationStats {
    /// Arithmetic mean.
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

/// A camera's images or clips.
#[derive(Debug, Serialize)]
pub struct PictureSummary {
    /// Their folder.
    pub directory: String,
    /// How many are stored.
    pub written: u64,
    /// How many were not drawn, or not stored.
    pub lost: u64,
}

/// A sink in a run.
#[derive(Debug, Serialize)]
pub struct SinkSummary {
    /// Name of the sink.
    pub name: String,
    /// Output of the sink, such as a path or URL.
    pub to: String,
    /// Messages written.
    pub written: u64,
    /// Messages lost.
    pub lost: u64,
}

impl ModelSummary {
    /// Summarizes the model of a lane, or one that ran on the detections of the model `on`.
    pub fn new(lane: &LaneMetrics, on: Option<&String>, backend: &str, memory: MemoryKind) -> Self {
        Self {
            name: lane.name.to_string(),
            on: on.cloned(),
            bundle: None,
            backend: backend.to_owned(),
            memory: memory.name(),
            runs: lane.runs.get(),
            errors: lane.errors.get(),
            rebuilds: lane.rebuilds.get(),
            crops: lane.crops.get(),
            crops_left_out: lane.crops_left_out.get(),
            gpu: lane.gpu(),
        }
    }
}

impl CameraSummary {
    /// Summarizes a camera that ran for `seconds`.
    pub fn new(total: CameraSnapshot, seconds: f64) -> Self {
        let stage = |stage: Stage| {
            let times = total.stage(stage);
            let at = |quantile| times.quantile_us(quantile);
            (
                stage.name(),
                DurationStats { mean: times.mean_us(), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: times.max_us() },
            )
        };
        Self {
            stages_us: Stage::ALL.into_iter().map(stage).collect(),
            detections: total.labels.iter().map(|(label, count)| (label.to_string(), count.total)).collect(),
            // Rounded to 0.1 us, because more digits are noise.
            capture_cpu_us: (total.capture_cpu_us() * 10.0).round() / 10.0,
            frames_per_second: if seconds > 0.0 { total.published as f64 / seconds } else { 0.0 },
            drops: drops(&total),
            captured: total.captured,
            copied_bytes: total.copied_bytes,
            published: total.published,
            errors: total.errors,
            restarts: total.restarts,
            truncated_masks: total.truncated_masks,
            models: total.status.models.into_iter().map(CameraModelSummary::from).collect(),
            rules: total.status.rules,
            name: total.status.name,
            state: total.status.phase,
            io: total.status.io,
            decoder: total.status.decoder,
            dropped: total.status.dropped,
            pictures: None,
            clips: None,
        }
    }

    /// Adds its annotated images.
    pub fn with_pictures(mut self, directory: &Path, counts: AnnotateCounts) -> Self {
        let lost = counts.dropped_busy + counts.failed;
        self.pictures =
            Some(PictureSummary { directory: directory.display().to_string(), written: counts.written, lost });
        self
    }

    /// Adds its clips.
    pub fn with_clips(self, directory: &Path, counts: &ClipCounts) -> Self {
        let (directory, lost) = (directory.display().to_string(), counts.dropped + counts.failed);
        Self { clips: Some(PictureSummary { directory, written: counts.written, lost }), ..self }
    }

    fn lines(&self, out: &mut Vec<String>) {
        let Self { name, published, captured, drops, .. } = self;
        let done = match self.models.len() {
            0 | 1 => format!("{published} of {captured} frames processed"),
            models => format!("{captured} frames for {models} models, {published} results"),
        };
        let mut first = format!("camera {name}: {done}, {:.1} per second, {drops}", self.frames_per_second);
        if self.errors > 0 {
            // Writing into a String cannot fail, here and below.
            let _ = write!(first, "; failed {} times, reopened {} times", self.errors, self.restarts);
        }
        out.push(first);
        if self.published > 0 {
            let stage = |stage: Stage| self.stages_us.get(stage.name()).copied().unwrap_or_default();
            let total = stage(Stage::Total);
            let [p50, p90, p99, max] = [total.p50, total.p90, total.p99, total.max].map(millis);
            let parts = [Stage::Preprocess, Stage::Infer, Stage::Postprocess].map(|part| millis(stage(part).p50));
            out.push(format!("  age at publishing in ms: median {p50}, p90 {p90}, p99 {p99}, max {max}"));
            out.push(format!("  of it preprocess {}, inference {}, postprocess {}", parts[0], parts[1], parts[2]));
            let truncated = match self.truncated_masks {
                0 => String::new(),
                masks => format!("; {masks} without their mask, which was too much for the message"),
            };
            out.push(format!("  detections: {}{truncated}", seen(&self.detections)));
        }
        // A single model has the camera's numbers.
        for CameraModelSummary { name, published, dropped, detections } in
            self.models.iter().filter(|_| self.models.len() > 1)
        {
            let dropped = dropped_text(dropped.iter().map(|(cause, frames)| (&**cause, *frames)));
            out.push(format!(
                "  model {name}: {published} frames processed, {dropped}, detections: {}",
                seen(detections)
            ));
        }
        out.extend(self.rules.iter().map(rule_line));
        if let Some(pictures) = &self.pictures {
            let lost = if pictures.lost > 0 { format!(", {} not drawn", pictures.lost) } else { String::new() };
            out.push(format!("  images: {} in {}{lost}", pictures.written, pictures.directory));
        }
        if let Some(clips) = &self.clips {
            let lost = if clips.lost > 0 { format!(", {} lost", clips.lost) } else { String::new() };
            out.push(format!("  clips: {} in {}{lost}", clips.written, clips.directory));
        }
    }
}

impl From<CameraModelStatus> for CameraModelSummary {
    fn from(model: CameraModelStatus) -> Self {
        let CameraModelStatus { name, published, dropped, labels, .. } = model;
        let detections = labels.into_iter().map(|label| (label.label, label.total)).collect();
        Self { name, published, dropped, detections }
    }
}

/// `  line door: 12 to shop, 10 to street` or `  dwell in dock: 3`.
fn rule_line(RuleStatus { name, kind, begun, crossed_to, .. }: &RuleStatus) -> String {
    if crossed_to.is_empty() {
        return format!("  {kind} in {name}: {begun}");
    }
    let sides = crossed_to.iter().map(|(side, crossings)| format!("{crossings} to {side}"));
    format!("  line {name}: {}", sides.collect::<Vec<_>>().join(", "))
}

/// `5123 person, 12 bicycle`, most first.
fn seen(detections: &BTreeMap<String, u64>) -> String {
    if detections.is_empty() {
        return "nothing".to_owned();
    }
    let mut labels: Vec<_> = detections.iter().collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    labels.iter().map(|(label, count)| format!("{count} {label}")).collect::<Vec<_>>().join(", ")
}

impl SinkSummary {
    /// Summarizes a sink.
    pub fn new(counts: &SinkCounts) -> Self {
        Self { name: counts.name.clone(), to: counts.to.clone(), written: counts.written, lost: counts.lost }
    }
}

impl Summary {
    /// Returns the summary as text, one fact per line.
    pub fn lines(&self) -> Vec<String> {
        let mut out = Vec::new();
        for camera in &self.cameras {
            camera.lines(&mut out);
        }
        for model in &self.models {
            let bundle = model.bundle.as_ref().map_or(String::new(), |bundle| format!(" of {bundle}"));
            let mut line = format!("model {}: {} runs{bundle} on {}", model.name, model.runs, model.backend);
            if let Some(on) = &model.on {
                let _ = write!(line, ", for {} detections of {on}", model.crops);
            }
            if model.crops_left_out > 0 {
                let _ = write!(line, ", {} left out", model.crops_left_out);
            }
            if model.errors > 0 {
                let _ = write!(line, ", {} errors, loaded again {} times", model.errors, model.rebuilds);
            }
            if let Some(gpu) = &model.gpu {
                let GpuSnapshot { graph_runs, single_runs, overlapped_runs, .. } = gpu;
                let _ = write!(line, ", {graph_runs} as a CUDA graph, {single_runs} call by call");
                let _ = write!(line, ", {overlapped_runs} overlapped");
                if gpu.copied_bytes > 0 {
                    let _ = write!(line, ", {:.1} MB of frames copied for the GPU", gpu.copied_bytes as f64 / 1e6);
                }
                if gpu.lost_candidates > 0 {
                    let _ = write!(line, ", {} candidates dropped by a full filter", gpu.lost_candidates);
                }
            }
            out.push(line);
        }
        for sink in &self.sinks {
            let lost = if sink.lost > 0 { format!(", {} lost", sink.lost) } else { String::new() };
            out.push(format!("sink {}: {} messages to {}{lost}", sink.name, sink.written, sink.to));
        }
        out.extend(self.jetson.as_ref().map(JetsonSummary::line));
        out.extend(self.gpu.as_ref().and_then(GpuSummary::line));
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use visiond_message::testing::message;
    use visiond_telemetry::metrics::{CameraMetrics, DropCause, Phase};

    fn summary() -> Summary {
        let camera = CameraMetrics::new("street".into());
        (0..3).for_each(|_| camera.captured.add(1));
        camera.capture_cpu_ns.add(600_000);
        camera.count_published(&message("street", &["person", "person", "dog"]));
        camera.count_published(&message("street", &["person"]));
        camera.count_dropped(DropCause::Overload, 1);
        let counts = AnnotateCounts { written: 2, dropped_busy: 1, failed: 0, outage: None };
        let clips = ClipCounts { written: 3, dropped: 1, failed: 1, outage: None };
        let camera = CameraSummary::new(camera.snapshot(), 2.0);
        Summary {
            seconds: 2.0,
            first_message_s: Some(0.14),
            peak_resident_bytes: Some(58_400_000),
            gpu: None,
            jetson: None,
            models: vec![ModelSummary {
                name: "nanodet".into(),
                backend: "rten (built in)".into(),
                memory: "host",
                runs: 2,
                errors: 0,
                rebuilds: 0,
                on: None,
                bundle: None,
                crops: 0,
                crops_left_out: 0,
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
            cameras: vec![
                camera.with_pictures(Path::new("out/pictures"), counts).with_clips(Path::new("clips"), &clips),
            ],
            sinks: vec![SinkSummary { name: "file".into(), to: "out.jsonl".into(), written: 2, lost: 0 }],
        }
    }

    #[test]
    fn people_read_what_happened_and_where_everything_is() {
        assert_eq!(
            summary().lines(),
            [
                "camera street: 2 of 3 frames processed, 1.0 per second, dropped 1 (overload 1)",
                "  age at publishing in ms: median 1.0, p90 1.0, p99 1.0, max 1.0",
                "  of it preprocess 0.0, inference 0.0, postprocess 0.0",
                "  detections: 3 person, 1 dog",
                "  images: 2 in out/pictures, 1 not drawn",
                "  clips: 3 in clips, 2 lost",
                "model nanodet: 2 runs on rten (built in), 1 as a CUDA graph, 1 call by call, 0 overlapped, \
                 1.3 MB of frames copied for the GPU",
                "sink file: 2 messages to out.jsonl",
                "2.0 s, the first message 0.14 s after the start, at most 58 MB of memory",
            ]
        );
    }

    #[test]
    fn people_read_what_went_wrong_and_nothing_of_what_did_not_happen() {
        let mut summary = summary();
        let camera = CameraMetrics::new("gate".into());
        camera.errors.add(3);
        camera.restarts.add(2);
        camera.enter(Phase::Failed);
        let dark = CameraSummary::new(CameraMetrics::new("dark".into()).snapshot(), 0.0);
        let counts = AnnotateCounts { written: 5, dropped_busy: 0, failed: 0, outage: None };
        let dark = CameraSummary { published: 1, ..dark }.with_pictures(Path::new("p"), counts);
        summary.cameras = vec![CameraSummary::new(camera.snapshot(), 0.0), dark];
        (summary.first_message_s, summary.peak_resident_bytes) = (None, None);
        summary.models[0].bundle = Some("street 7".to_owned());
        (summary.models[0].errors, summary.models[0].rebuilds, summary.sinks[0].lost) = (4, 1, 7);
        let gpu = summary.models[0].gpu.as_mut().unwrap();
        (gpu.copied_bytes, gpu.lost_candidates) = (0, 9);
        assert_eq!(
            summary.lines(),
            [
                "camera gate: 0 of 0 frames processed, 0.0 per second, none dropped; failed 3 times, reopened 2 times",
                "camera dark: 1 of 0 frames processed, 0.0 per second, none dropped",
                "  age at publishing in ms: median 0.0, p90 0.0, p99 0.0, max 0.0",
                "  of it preprocess 0.0, inference 0.0, postprocess 0.0",
                "  detections: nothing",
                "  images: 5 in p",
                "model nanodet: 2 runs of street 7 on rten (built in), 4 errors, loaded again 1 times, 1 as a CUDA graph, \
                 1 call by call, 0 overlapped, 9 candidates dropped by a full filter",
                "sink file: 2 messages to out.jsonl, 7 lost",
                "2.0 s",
            ]
        );
    }

    #[test]
    fn a_camera_of_two_models_has_a_line_for_each() {
        let camera = CameraMetrics::new("street".into());
        let names: Vec<std::sync::Arc<str>> = vec!["fake".into(), "plates".into()];
        camera.set_models(&names);
        camera.captured.add(2);
        camera.count_published(&message("street", &["person", "dog"]));
        camera.count_published(&message("street", &["person"]));
        camera.count_dropped_by("plates", DropCause::Overload, 2);
        let summary = Summary { cameras: vec![CameraSummary::new(camera.snapshot(), 2.0)], ..summary() };
        assert_eq!(
            [&summary.lines()[..1], &summary.lines()[4..6]].concat(),
            [
                "camera street: 2 frames for 2 models, 2 results, 1.0 per second, dropped 2 (overload 2)",
                "  model fake: 2 frames processed, none dropped, detections: 2 person, 1 dog",
                "  model plates: 0 frames processed, dropped 2 (overload 2), detections: nothing",
            ]
        );
    }

    #[test]
    fn programs_read_the_same() {
        let value = serde_json::to_value(summary()).unwrap();
        let camera = &value["cameras"][0];
        assert_eq!(camera["published"], 2);
        assert_eq!(camera["capture_cpu_us"], 200.0);
        assert_eq!(camera["dropped"]["overload"], 1);
        assert_eq!(camera["detections"]["person"], 3);
        assert_eq!(camera["stages_us"]["total"]["max"], 1000);
        assert_eq!(camera["stages_us"]["total"]["mean"], 1000);
        assert_eq!((&camera["pictures"]["written"], &camera["clips"]["lost"]), (&2.into(), &2.into()));
        assert_eq!(value["sinks"][0]["to"], "out.jsonl");
        assert!(camera.get("drops").is_none());
    }
}
