//! The parts of the status. It is written as JSON and read back, possibly by another version: a missing field gets its
//! default.
//!
//! A counter that is added to one of these structs is counted, shown in the API and read by `visiond top`. Tests enforce the
//! rest: a metric, and a line in the documents of both.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::message::{DetectionMessage, Message};
use crate::values::PlainAttribute;

counted! {
    /// A camera in the status, the metrics and the live page.
    pub struct CameraStatus, counters CameraCounters {
        /// Name of the camera.
        name: String,
        /// Model that runs on its frames; of several models their names, separated by commas.
        model: String,
        /// opening, streaming, waiting, failed, ended, or disabled if a command has switched it off.
        phase: String,
        /// Why it is waiting or failed, as a sentence.
        reason: Option<String>,
        /// Width of its frames in pixels; 0 before the first.
        width: u32,
        /// Height of its frames in pixels; 0 before the first.
        height: u32,
        /// Degrees by which models see its frames turned clockwise, and people its images: 0, 90, 180 or 270. Messages are not turned.
        rotate: u32,
        /// The mirror after that: "horizontal" or "vertical"; absent without one.
        flip: Option<String>,
        /// Pixel format of its frames, as in the configuration; empty before the first.
        format: String,
        /// How the driver passes frames: "userptr", "mmap" or "copy"; absent without a driver.
        io: Option<String>,
        /// The decoder of a network camera's stream: "nvdec", "gstreamer", "ffmpeg" or "libjpeg-turbo"; absent for other
        /// sources.
        decoder: Option<String>,
        /// Messages per second over the last five seconds.
        fps: f64,
        /// Frames processed, each of which is a message.
        published: u64,
        /// Frames lost, by cause.
        dropped: BTreeMap<String, u64>,
        /// Each model that runs on its frames, with its share of the messages and losses.
        models: Vec<CameraModelStatus>,
        /// Detections by label, most first.
        labels: Vec<LabelFacts>,
        /// Totals of its lines and zones from its first frame on; empty without any.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        rules: Vec<RuleStatus>,
        /// Parts of the newest frame that classes cover, by label; empty unless the model outputs a class for each pixel.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        fractions: BTreeMap<String, f32>,
        /// Attributes of the newest frame; empty unless the model outputs some.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        attributes: BTreeMap<String, PlainAttribute>,
        /// Durations of each stage, by its name in messages; "total" is from capture to publishing.
        stages: BTreeMap<String, StageFacts>,
        /// CPU time of its thread.
        capture_cpu_s: f64,
        /// Clients that watch its images now.
        watchers: u64,
        /// The stream that people watch, if `preview_url` is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        preview: Option<PreviewFacts>,
        /// Images for `annotate`, if it is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        pictures: Option<AnnotateCounts>,
        /// Clips of events, if they are configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        clips: Option<ClipCounts>,
    } {
        /// Frames captured.
        captured,
        /// Times the source was reopened.
        restarts,
        /// Times the source could not be opened, or failed.
        errors,
        /// Detections so far.
        detections,
        /// Detections whose mask was too large for the message.
        truncated_masks,
        /// Messages of several models that lack the result of at least one, because it dropped the frame, failed or was late.
        incomplete_groups,
        /// Bytes of frames copied between the source and the buffer that the model reads.
        copied_bytes,
    }
}

/// The phase of a camera that is switched off.
pub const DISABLED: &str = "disabled";

impl CameraStatus {
    /// Returns the status of a camera that is switched off. `models` are the names of its models, separated by commas.
    pub fn disabled(name: &str, models: &str) -> Self {
        Self { name: name.to_owned(), model: models.to_owned(), phase: DISABLED.to_owned(), ..Self::default() }
    }

    /// Adds the facts about the frame from the camera's newest message. If the camera is away, that message is old.
    ///
    /// Those of several models are joined; of two attributes or classes of one name, the message that is added later counts.
    pub fn add_newest(&mut self, message: &Message) {
        let fraction = |class: &DetectionMessage| Some((class.label.to_string(), class.fraction?));
        self.fractions.extend(message.detections.iter().filter_map(fraction));
        let attributes = message.attributes.0.iter();
        self.attributes.extend(attributes.map(|(name, attribute)| (name.to_string(), attribute.into())));
    }
}

/// A model on one camera.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CameraModelStatus {
    /// Name of the model.
    pub name: String,
    /// Its messages about this camera per second over the last five seconds.
    pub fps: f64,
    /// Its messages about this camera.
    pub published: u64,
    /// Frames of this camera that it did not process, by cause. Frames that were lost before any model count for the camera only.
    pub dropped: BTreeMap<String, u64>,
    /// Its detections on this camera by label, most first.
    pub labels: Vec<LabelFacts>,
}

/// The stream of a camera that people watch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreviewFacts {
    /// idle (no client watches), opening, streaming, or waiting (clients get the model's frames).
    pub phase: String,
    /// Why it is waiting, as a sentence.
    pub reason: Option<String>,
    /// Width of its frames in pixels; 0 unless it is streaming.
    pub width: u32,
    /// Height of its frames in pixels; 0 unless it is streaming.
    pub height: u32,
}

/// Detections of a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelFacts {
    /// Name of the label.
    pub label: String,
    /// Detections so far.
    pub total: u64,
    /// Detections in the newest frame.
    pub newest: u64,
}

/// Totals of a line, or of one kind of event of a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleStatus {
    /// Name of the line or zone.
    pub name: String,
    /// What it reports: "line", or a kind of event of a zone.
    pub kind: String,
    /// Events so far; of a line, crossings to either side.
    pub begun: u64,
    /// Crossings of a line so far, by the side that they went to; empty for a zone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub crossed_to: BTreeMap<String, u64>,
    /// Objects in the zone now; absent for a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<u32>,
    /// Events under way; of a line always 0.
    pub under_way: u32,
}

/// Durations of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageFacts {
    /// Frames.
    pub count: u64,
    /// Sum of all durations.
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
    /// Longest duration of each bucket (`null`: any), and the number of frames in this bucket alone.
    pub buckets: Vec<(Option<u64>, u64)>,
}

/// The steps of a rollout, as [`RolloutStatus::step`] has them.
pub const ROLLOUT_STEPS: [&str; 10] = [
    "up_to_date",
    "unreachable",
    "waiting",
    "fetching",
    "building",
    "proving",
    "comparing",
    "watching",
    "refused",
    "went_back",
];

/// The version of a bundle that a model is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BundleStatus {
    /// Name of the bundle.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// Since when this version is the current one, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Number of the key that signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// What is done about newer versions; absent if nothing looks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
}

/// What is done about newer versions of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutStatus {
    /// Where newer versions come from.
    pub source: String,
    /// One of [`ROLLOUT_STEPS`].
    pub step: String,
    /// Version that the step is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Newest version that the source has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<u64>,
    /// When the step began, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How much of the bundle is here, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Why it failed, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for BundleStatus {
    /// Writes the name, the version, and what is done about another one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)?;
        let Some(rollout) = &self.rollout else { return Ok(()) };
        let version = rollout.version.map(|version| format!(" {version}")).unwrap_or_default();
        match (&*rollout.step, rollout.percent) {
            ("unreachable", _) => write!(f, ", cannot look for newer versions")?,
            ("waiting", _) => write!(f, ", waits for{version}")?,
            ("fetching", Some(percent)) => write!(f, ", fetching{version}: {percent} %")?,
            ("fetching", None) => write!(f, ", fetching{version}")?,
            ("building", _) => write!(f, ", building the engine of{version}")?,
            ("proving", _) => write!(f, ", proving{version}")?,
            ("comparing", _) => write!(f, ", comparing{version} with it")?,
            ("watching", _) => write!(f, ", new and watched")?,
            ("refused", _) => write!(f, ", version{version} is refused")?,
            ("went_back", _) => write!(f, ", went back from version{version}")?,
            _ => {}
        }
        rollout.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

counted! {
    /// A model.
    pub struct ModelStatus, counters ModelCounters {
        /// Name of the model.
        name: String,
        /// Name of the model on whose detections it runs; absent for a model on frames.
        #[serde(skip_serializing_if = "Option::is_none")]
        on: Option<String>,
        /// Path of its file.
        file: String,
        /// SHA-256 of its file.
        sha256: String,
        /// Backend that runs it.
        backend: String,
        /// Kind of memory that holds its frames.
        memory: String,
        /// Its inputs, such as "images f32 [1, 3, 640, 640]".
        input: String,
        /// idle, looking, publishing, backoff or ended.
        activity: String,
        /// GPU counters, if it runs on a GPU.
        #[serde(skip_serializing_if = "Option::is_none")]
        gpu: Option<GpuSnapshot>,
        /// The bundle that it is; absent for a model that is a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        bundle: Option<BundleStatus>,
    } {
        /// Runs, successful or not.
        runs,
        /// Frames and runs that failed.
        errors,
        /// Times it was loaded again.
        rebuilds,
        /// Detections on which it ran; 0 for a model on frames.
        crops,
        /// Detections on which it did not run because their frame had more than `max_crops`.
        crops_left_out,
    }
}

counted! {
    /// Counters of one sink's messages.
    pub struct SinkCounts, counters SinkCounters {
        /// Name of the sink.
        name: String,
        /// Type of the sink: stdout, file, unix, mqtt or nats.
        kind: String,
        /// Output of the sink, such as a path or URL.
        to: String,
        /// Messages in the queue now.
        waiting: u64,
        /// Maximum messages in the queue.
        capacity: u64,
        /// Messages that this sink lost, for any reason except slow readers.
        lost: u64,
        /// Whether the broker is connected; `None` for a sink that has no broker.
        connected: Option<bool>,
        /// Why the output cannot be written now.
        outage: Option<String>,
        /// The spool of a durable sink.
        #[serde(skip_serializing_if = "Option::is_none")]
        spool: Option<SpoolCounts>,
    } {
        /// Messages that entered the queue.
        queued,
        /// Messages written; for a socket, sent to the connected readers; for a broker, acknowledged.
        written,
        /// Messages dropped because the queue was full.
        dropped_full,
        /// Messages lost because the output could not be written.
        failed,
        /// Messages still in the queue at the deadline for ending.
        #[serde(skip)]
        unsent,
        /// Messages skipped because of `max_rate`.
        thinned,
        /// Number of reconnections to the broker.
        reconnects,
        /// Messages sent again because the connection was lost before the broker acknowledged them.
        resent,
        /// Socket: readers connected now.
        readers,
        /// Socket: messages that readers lost because they were too slow, summed over readers.
        reader_lost,
        /// Socket: readers refused because the limit was reached.
        readers_refused,
    }
}

/// Counts of a camera's annotated images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnnotateCounts {
    /// Images stored.
    pub written: u64,
    /// Frames not drawn, because another one was still waiting.
    pub dropped_busy: u64,
    /// Images that could not be drawn or stored.
    pub failed: u64,
    /// Why the folder cannot be written now.
    pub outage: Option<String>,
}

/// Counts of a camera's clips.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClipCounts {
    /// Clips stored.
    pub written: u64,
    /// Clips lost because too many were under way, the disk was too slow, or the memory too small.
    pub dropped: u64,
    /// Clips that could not be stored.
    pub failed: u64,
    /// Why the folder cannot be written now.
    pub outage: Option<String>,
}

/// Counters of a durable sink's spool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolCounts {
    /// Bytes on disk.
    pub bytes: u64,
    /// Maximum bytes on disk.
    pub limit_bytes: u64,
    /// Messages that wait for an acknowledgement.
    pub records: u64,
    /// Messages lost because the spool was full.
    pub dropped: u64,
    /// Files that could not be read since the start and were set aside.
    pub unreadable: u64,
    /// Why the disk cannot be used now; new messages are kept in memory only.
    pub outage: Option<String>,
}

impl SpoolCounts {
    /// Returns whether the spool drops old messages to keep new ones, or will soon.
    pub fn is_full(&self) -> bool {
        // A full spool drops about 1/32 at a time.
        self.bytes as f64 > 0.9 * self.limit_bytes as f64
    }
}

/// GPU counters of a lane's model, over all of its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSnapshot {
    /// Runs that were launched as one CUDA graph.
    pub graph_runs: u64,
    /// Runs that were launched call by call.
    pub single_runs: u64,
    /// Runs, graph or not, that started while another was in flight.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU cannot access their memory.
    pub copied_bytes: u64,
    /// Candidates dropped because the filter was full.
    pub lost_candidates: u64,
    /// Host time to launch a run: median in microseconds.
    pub launch_us_p50: u64,
    /// Host time to launch a run: 99th percentile in microseconds.
    pub launch_us_p99: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_described_with_what_is_done_about_another_version() {
        let text = |step: &str, percent, reason: Option<&str>| {
            let (step, reason) = (step.to_owned(), reason.map(str::to_owned));
            let rollout = RolloutStatus { step, percent, reason, version: Some(8), ..RolloutStatus::default() };
            BundleStatus { name: "street".to_owned(), version: 7, rollout: Some(rollout), ..BundleStatus::default() }
                .to_string()
        };
        assert_eq!(text("up_to_date", None, None), "street 7");
        assert_eq!(text("fetching", Some(40), None), "street 7, fetching 8: 40 %");
        assert_eq!(text("building", None, None), "street 7, building the engine of 8");
        assert_eq!(text("proving", None, None), "street 7, proving 8");
        assert_eq!(text("comparing", None, None), "street 7, comparing 8 with it");
        assert_eq!(text("waiting", None, Some("at night")), "street 7, waits for 8: at night");
        assert_eq!(text("refused", None, Some("it is slow")), "street 7, version 8 is refused: it is slow");
        assert_eq!(text("went_back", None, Some("no frames")), "street 7, went back from version 8: no frames");
        assert_eq!(text("unreachable", None, Some("timed out")), "street 7, cannot look for newer versions: timed out");
    }

    #[test]
    fn a_spool_is_full_from_nine_tenths_on() {
        let is_full = |bytes| SpoolCounts { bytes, limit_bytes: 1_000, ..SpoolCounts::default() }.is_full();
        assert_eq!([0, 899, 900, 901, 1_000, 2_000].map(is_full), [false, false, false, true, true, true]);
    }
}
