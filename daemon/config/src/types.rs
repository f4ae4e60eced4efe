//! The keys of the configuration file.
//!
//! Each key is declared here only: its doc comment, name, type, kind of value, and default. The parser, `config/visiond.toml`,
//! `docs/configuration.md` and the output of `check` come from these declarations.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use serde::{Deserialize, Serialize};
use visiond_engine::detector::MaskForm;
use visiond_engine::engine::{Backend, DeviceChoice, EngineOptions};
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::cuda::StreamPriority;
use visiond_kernels::frame::MAX_SIDE;
use visiond_system::logging::LogTarget;
use visiond_system::state;

use super::kinds::{
    Words, by_name, duration, duration_or_zero, flag, fraction, label, list, name, path, real, size, text, whole, word,
};
use super::settings::TakenSettings;
use super::table_macros::section;
use super::tables::{table, tables};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MIB: u64 = 1 << 20;

/// The valid time limits for the trial of a model.
pub const LOAD_TIMEOUT: RangeInclusive<Duration> = SECOND..=HOUR;

/// Declares the names of an enum's values in the file.
macro_rules! words {
    ($type:ty: $($word:literal = $value:expr),+) => {
        impl Words for $type {
            fn words() -> Vec<(&'static str, Self)> {
                vec![$(($word, $value)),+]
            }
        }
    };
}

mod camera;
mod device;
mod ffmpeg;
mod http;
mod mqtt;
mod nats;
mod rules;
mod sink;

pub use camera::*;
pub use device::*;
pub use ffmpeg::*;
pub use http::*;
pub use mqtt::*;
pub use nats::*;
pub use rules::*;
pub use sink::*;

section! {
    /// The configuration file.
    pub struct Config {
        /// This machine: its name for brokers, and its time zone.
        device: DeviceConfig as table() => part,
        /// What the daemon logs, and where.
        log: LogConfig as table() => part,
        /// The backends that run models.
        engine: EngineConfig as table() => part,
        /// The memory of frames. visiond allocates it when it opens a camera and keeps it until it closes the camera.
        buffers: BufferConfig as table() => part,
        /// The ffmpeg and ffprobe that decode the sources "video" and "rtsp".
        ffmpeg: FfmpegConfig as table() => part,
        /// What the lines and zones of all cameras share.
        events: EventsConfig as table() => part,
        /// The bundles of models, and of settings.
        bundles: BundlesConfig as table() => part,
        /// How often the daemon reports rates and latencies.
        status: StatusConfig as table() => part,
        /// The HTTP server: the live page, the API and the metrics.
        http: HttpConfig as table() => part,
        /// A model. There may be several; each camera names its own.
        models["model"]: Vec<ModelConfig> as tables() => part,
        /// A camera, or any other source of frames.
        cameras["camera"]: Vec<CameraConfig> as tables() => part,
        /// An output for detections, as JSON lines. Each has its own queue and thread: a slow one delays nothing else.
        sinks["sink"]: Vec<SinkConfig> as tables() => part,
    }
}

section! {
    /// The table `[log]`.
    pub struct LogConfig {
        /// Log level; each level includes those before it. `--log-level`, `-v` and `-q` on the command line override it.
        level: LevelFilter as word() => default(LevelFilter::Info),
        /// Log target. "stderr" adds the time and the level to each line. "journal" is the systemd journal, with priorities and
        /// fields. "auto" is "journal" when standard error is connected to the journal, as under systemd.
        target: LogTarget as word() => default(LogTarget::Auto),
    }
}

section! {
    /// The table `[engine]`.
    pub struct EngineConfig {
        /// Backend for `.onnx` models. "onnxruntime" is faster and needs its library; "rten" is built in; "auto" uses ONNX
        /// Runtime if it finds the library. Both give the same detections.
        backend: BackendChoice as word() => default(BackendChoice::Auto),
        /// Path of the ONNX Runtime library. Without it, ORT_DYLIB_PATH, otherwise the one in the usual folders.
        onnxruntime_library: Option<PathBuf> as path() => optional(r#""/usr/lib/libonnxruntime.so""#),
        /// Path of the TensorRT library. Without it, VISIOND_TENSORRT_LIBRARY, otherwise the one in the usual folders.
        tensorrt_library: Option<PathBuf> as path() => optional(r#""/usr/lib/aarch64-linux-gnu/libnvinfer.so.10""#),
        /// The GPU that runs `.engine` files, by the number that `visiond probe` shows. A Jetson has one: 0.
        gpu: u32 as whole(0..=63) => default(0),
        /// CPU threads of one inference; 0 uses every core. Fewer leave room for decoding and other programs.
        threads: usize as whole(0..=1024) => default(0),
        /// Time limit for the trial of a model during a reload. A trial that takes longer makes the daemon reject the reload.
        canary_timeout: Duration as duration(MS..=HOUR) => default(10 * SECOND),
        /// Time limit for the trial of an `.onnx` model in a separate process, so that a damaged or hostile model cannot crash
        /// visiond.
        load_timeout: Duration as duration(LOAD_TIMEOUT) => default(60 * SECOND),
        /// Maximum memory of this process, in addition to six times the size of the model's files.
        load_memory_bytes: u64 as size(64 * MIB..=1 << 40) => default(512 * MIB),
    }
}

/// Backend for `.onnx` models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// ONNX Runtime if found, otherwise rten.
    Auto,
    /// ONNX Runtime; an error if it is not found.
    OnnxRuntime,
    /// The built-in backend rten.
    Rten,
}

impl EngineConfig {
    /// Returns the engine options for a model with these input shapes.
    pub fn options(&self, input_shapes: &BTreeMap<String, Vec<usize>>) -> EngineOptions {
        EngineOptions {
            backend: match self.backend {
                BackendChoice::Auto => None,
                BackendChoice::OnnxRuntime => Some(Backend::OnnxRuntime),
                BackendChoice::Rten => Some(Backend::Rten),
            },
            onnxruntime_library: self.onnxruntime_library.clone(),
            threads: self.threads,
            input_shapes: input_shapes.clone(),
            device: DeviceChoice::Index(self.gpu),
            tensorrt_library: self.tensorrt_library.clone(),
            sha256: None,
        }
    }
}

section! {
    /// The table `[buffers]`.
    pub struct BufferConfig {
        /// Kind of memory for models on the GPU. "mapped" is pinned memory that the GPU reads in place. "managed" is memory
        /// that the driver migrates to the side that uses it. "host" is ordinary memory; each frame is copied from it. "auto"
        /// measures "mapped" and "managed" at the start, which takes some milliseconds, and uses the faster one; the log has
        /// the figures. Models on the CPU always use "host".
        memory: Option<MemoryKind> as word() => default(None),
        /// Buffers per camera. Without it 4: one being filled, one waiting, one in the lane, one being drawn; and two more for
        /// each further model of the camera, and if models run on detections of these, up to 32.
        count: Option<usize> as whole(3..=32) => optional("4"),
        /// Maximum number of pixels of a frame (default 8192 x 8192). visiond refuses sources with larger frames.
        max_pixels: u64 as whole(1..=MAX_SIDE as u64 * MAX_SIDE as u64) => default(64 << 20),
        /// Maximum memory for reading one image (file, decoder and frame), and for the `count` buffers of a video. visiond checks
        /// this by the header of the file, so a small file cannot use up the memory.
        max_picture_bytes: u64 as size(MIB..=1 << 40) => default(384 * MIB),
    }
}

section! {
    /// The table `[events]`.
    pub struct EventsConfig {
        /// Folder for the totals of lines and zones and the events that are under way, so that a crash or a power cut loses none. Without
        /// it, `events` in $STATE_DIRECTORY. Without both, totals begin at 0 at each start.
        directory: Option<PathBuf> as path() => optional(r#""/var/lib/visiond/events""#),
    }
}

impl EventsConfig {
    /// Returns the folder; `None` if neither the configuration nor systemd names one.
    pub fn folder(&self) -> Option<PathBuf> {
        self.directory.clone().or_else(|| Some(state::folder()?.join("events")))
    }
}

section! {
    /// The table `[bundles]`.
    pub struct BundlesConfig {
        /// Folder of the installed bundles, as `--store` of `visiond bundle` names it. Without it, /var/lib/visiond-models.
        directory: Option<PathBuf> as path() => optional(r#""/srv/models""#),
        /// A bundle of settings, by its name: what its current version sets lies over this file. See docs/fleet.md#settings.
        settings: Option<String> as name() => optional(r#""north""#),
        /// The version whose settings are in force; `None` without one.
        taken: Option<TakenSettings> as text() => inherited,
    }
}

section! {
    /// The table `[status]`.
    pub struct StatusConfig {
        /// Interval of the status line in the log; 0: never. The terminal and systemd get one every second.
        log_interval: Duration as duration_or_zero(SECOND..=DAY) => default(60 * SECOND),
    }
}

section! {
    /// A table `[[model]]`.
    pub struct ModelConfig {
        /// Name of the model, for cameras and in messages.
        name: String as name() => required(r#""objects""#),
        /// The model's file: `.onnx` or `.engine`. A model has either this or `bundle`.
        own_path["path"]: Option<PathBuf> as path() => optional(r#""models/nanodet-g-416.onnx""#),
        /// An installed bundle, by its name: the model of its current version. See docs/bundles.md.
        bundle: Option<String> as name() => optional(r#""street""#),
        /// The model's file: `own_path`, or once the bundle's current version is known, the model in its folder.
        path: PathBuf as path() => inherited,
        /// The SHA-256 that the model's file must have, as `sha256sum` prints it; without it, any file is accepted. A
        /// TensorRT engine can run code: trust its file only as you would trust a program.
        sha256: Option<String> as text() => optional(r#""c56a49a7981b...""#),
        /// The model card: how to prepare the input and read the output. Without it, the TOML file beside the model with the
        /// same stem, otherwise the model's metadata.
        card: Option<PathBuf> as path() => optional(r#""models/nanodet-g-416.toml""#),
        /// Detections below this score are dropped. Without it, the model card's value.
        score_threshold: Option<f64> as fraction() => optional("0.4"),
        /// IoU above which NMS removes the lower-scoring box of the same class. Without it, the model card's value.
        iou_threshold: Option<f64> as fraction() => optional("0.6"),
        /// Maximum number of detections per frame. Without it, the model card's value.
        max_detections: Option<usize> as whole(1..=100_000) => optional("100"),
        /// Report only these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
        /// Input shapes that override the model's, by input name; for models with dynamic dimensions.
        input_shapes: BTreeMap<String, Vec<usize>> as by_name(list(whole(1..=1 << 24))) => default(BTreeMap::new()),
        /// Maximum number of frames per inference, for models that several cameras share and whose batch can be larger.
        max_batch: usize as whole(1..=1024) => default(1),
        /// How long a frame waits for frames of other cameras, until there are `max_batch` of them or one from each camera. Larger
        /// batches cost less per frame. 0 runs an idle model on each frame at once; with a `max_batch` of 1 it must be 0.
        batch_wait: Duration as duration_or_zero(MS / 10..=SECOND) => default(Duration::ZERO),
        /// Which model goes first when several have work for the GPU: "high" goes before "normal". What the GPU has begun is not
        /// interrupted. For TensorRT engines; a model on the CPU has no priority. See docs/several-models.md.
        priority: StreamPriority as word() => default(StreamPriority::Normal),
        /// The form of masks in messages, for models with masks: "polygons"; "rle", COCO's run lengths; "both"; "none", which also
        /// saves the time to make masks. Images and the live page show polygons.
        masks: MaskForm as word() => default(MaskForm::Polygons),
        /// How far a polygon may deviate from the mask's edge, in pixels of the frame; polygons of small objects stay closer to
        /// it. 0 keeps every corner of every pixel.
        mask_tolerance_pixels: u32 as whole(0..=100) => default(1),
        /// Run on the detections of this other model instead of on frames: the model sees a crop of the frame around each of them,
        /// and its results are part of the detection. Cameras name the other model. See docs/cascades.md.
        on: Option<String> as name() => optional(r#""vehicles""#),
        /// Run only on detections of these classes of that model, by label; empty: all. This and the following keys require `on`.
        on_classes: Vec<String> as list(label()) => default(Vec::new()),
        /// Run only on boxes whose longer side has at least this many pixels of the frame.
        min_size: Option<u32> as whole(1..=MAX_SIDE) => optional("32"),
        /// How far the crop extends beyond the box on each side, as a part of the box's width and height. A crop ends at the edges of
        /// what the camera's models see.
        margin: f64 as real(0.0..=10.0) => default(0.0),
        /// Extend the shorter sides of the crop until it is square.
        square: bool as flag() => default(false),
        /// Maximum number of crops per frame, those of the best scores. The status counts the others.
        max_crops: usize as whole(1..=10_000) => default(100),
        /// With tracks: how long the results of a track stay valid, unless the object grows or is seen better. Without it, 1 s for
        /// labels, numbers and embeddings; boxes and keypoints are found in every frame.
        refresh: Option<Duration> as duration(10 * MS..=HOUR) => optional(r#""1 s""#),
    }
}

words!(LevelFilter: "off" = Self::Off, "error" = Self::Error, "warn" = Self::Warn, "info" = Self::Info,
    "debug" = Self::Debug, "trace" = Self::Trace);
words!(LogTarget: "auto" = Self::Auto, "stderr" = Self::Stderr, "journal" = Self::Journal);
words!(StreamPriority: "normal" = Self::Normal, "high" = Self::High);
words!(MaskForm: "none" = Self::None, "polygons" = Self::Polygons, "rle" = Self::Rle, "both" = Self::Both);
words!(BackendChoice: "auto" = Self::Auto, "onnxruntime" = Self::OnnxRuntime, "rten" = Self::Rten);
words!(Option<MemoryKind>: "auto" = None, "mapped" = Some(MemoryKind::Mapped),
    "managed" = Some(MemoryKind::Managed), "host" = Some(MemoryKind::Host));
