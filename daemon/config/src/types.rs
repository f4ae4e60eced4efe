//! What can be set.
//!
//! A key is declared here and nowhere else: its doc comment, name, type, kind of value, and default. The parser,
//! `config/visiond.toml`, `docs/configuration.md` and what `check` prints come from these declarations, see
//! `table_macros`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use visiond_engine::engine::{Backend, DeviceChoice, EngineOptions};
use visiond_kernels::buffer::MemoryKind;
use visiond_system::logging::LogTarget;

use super::kinds::{Words, by_name, duration, fraction, list, name, path, text, whole, word};
use super::table_macros::section;
use super::tables::{table, tables};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MIB: u64 = 1 << 20;

/// The words of an enum as the file has them.
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
mod http;
mod mqtt;
mod nats;
mod sink;

pub use camera::*;
pub use device::*;
pub use http::*;
pub use mqtt::*;
pub use nats::*;
pub use sink::*;

section! {
    /// The whole file.
    pub struct Config {
        /// What the outside calls this machine.
        device: DeviceConfig as table() => part,
        /// What is told about the daemon itself, and where.
        log: LogConfig as table() => part,
        /// What runs the networks.
        engine: EngineConfig as table() => part,
        /// The memory that frames live in. It is taken when a camera is opened and stays the same from then on.
        buffers: BufferConfig as table() => part,
        /// How often the daemon tells its rates and latencies.
        status: StatusConfig as table() => part,
        /// The page, the API and the metrics.
        http: HttpConfig as table() => part,
        /// A network. Several may be there; each camera names the one that looks at its frames.
        models["model"]: Vec<ModelConfig> as tables() => part,
        /// A camera, or anything else that frames come from.
        cameras["camera"]: Vec<CameraConfig> as tables() => part,
        /// Where detections go, as JSON lines. Every sink has its own queue and thread, so that none holds up a camera or another sink.
        sinks["sink"]: Vec<SinkConfig> as tables() => part,
    }
}

section! {
    /// `[log]`
    pub struct LogConfig {
        /// How much is told; each level includes those before it. The command line's `--log-level`, `-v` and `-q` win
        /// over this.
        level: LevelFilter as word() => default(LevelFilter::Info),
        /// Where it goes. "stderr" has the time and the level in every line, "journal" is the journal with priorities and
        /// fields; "auto" is "journal" when standard error is connected to it, as under systemd.
        target: LogTarget as word() => default(LogTarget::Auto),
    }
}

section! {
    /// `[engine]`
    pub struct EngineConfig {
        /// "onnxruntime" is the faster one and needs its library, "rten" is built in; "auto" takes ONNX Runtime where its
        /// library is found. Both give the same detections.
        backend: BackendChoice as word() => default(BackendChoice::Auto),
        /// ONNX Runtime's library. Without it the environment variable ORT_DYLIB_PATH is asked, then the usual places are
        /// searched.
        onnxruntime_library: Option<PathBuf> as path() => optional(r#""/usr/lib/libonnxruntime.so""#),
        /// TensorRT's library, for `.engine` files. Without it the environment variable VISIOND_TENSORRT_LIBRARY is asked, then
        /// the usual places are searched.
        tensorrt_library: Option<PathBuf> as path() => optional(r#""/usr/lib/aarch64-linux-gnu/libnvinfer.so.10""#),
        /// The GPU that runs `.engine` files, by the number that `visiond probe` shows; a Jetson has one, 0.
        gpu: u32 as whole(0..=63) => default(0),
        /// Threads of one run of a network; 0 takes every core. Fewer leave room for decoding and other programs.
        threads: usize as whole(0..=1024) => default(0),
        /// What a network that a reload brings may take for a frame. It is tried on a frame of each of its cameras before it
        /// is put in force, and refused if it takes longer.
        canary_timeout: Duration as duration(MS..=HOUR) => default(10 * SECOND),
    }
}

/// What runs `.onnx` networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendChoice {
    /// ONNX Runtime where found, else rten.
    Auto,
    /// ONNX Runtime or an error.
    OnnxRuntime,
    /// rten.
    Rten,
}

impl EngineConfig {
    /// What the engine wants to know, for a network with these shapes of its own.
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
    /// `[buffers]`
    pub struct BufferConfig {
        /// Kind of memory for networks on the GPU. "mapped" is pinned memory that the GPU reads in place, "managed" memory that
        /// the driver moves to whoever touches it, "host" ordinary memory, from which each frame is copied; "auto" measures
        /// "mapped" and "managed" at the start, which takes some milliseconds, and takes the faster one; the log has the
        /// figures. Networks on the CPU always have "host".
        memory: Option<MemoryKind> as word() => default(None),
        /// Buffers of a camera: one being filled, one waiting, one in the lane, one being drawn.
        count: usize as whole(3..=32) => default(4),
    }
}

section! {
    /// `[status]`
    pub struct StatusConfig {
        /// How often they go to the terminal and to systemd.
        interval: Duration as duration(100 * MS..=HOUR) => default(SECOND),
        /// How often they go to the log; 0 is never.
        log_interval: Duration as duration(SECOND..=DAY).or_zero() => default(60 * SECOND),
    }
}

section! {
    /// `[[model]]`
    pub struct ModelConfig {
        /// What cameras and messages call it.
        name: String as name() => required(r#""objects""#),
        /// The network's file.
        path: PathBuf as path() => required(r#""models/nanodet-g-416.onnx""#),
        /// The SHA-256 that the network's file must have, as `sha256sum` prints it. A TensorRT engine can run code, so its file
        /// is to be trusted as a program is. Without it any file is taken.
        sha256: Option<String> as text() => optional(r#""c56a49a7981b...""#),
        /// The model card, which says how to feed and read the network. Without it: the TOML beside the network with the
        /// same stem, else what the network's own metadata tells.
        card: Option<PathBuf> as path() => optional(r#""models/nanodet-g-416.toml""#),
        /// Detections below this score are dropped. Without it what the card says.
        score_threshold: Option<f64> as fraction() => optional("0.4"),
        /// Of two boxes of a class that overlap by more than this (intersection over union), the better one stays. Without
        /// it what the card says.
        iou_threshold: Option<f64> as fraction() => optional("0.6"),
        /// Detections of one frame at most. Without it what the card says.
        max_detections: Option<usize> as whole(1..=100_000) => optional("100"),
        /// Only these classes, by label; empty: all.
        classes: Vec<String> as list(text()) => default(Vec::new()),
        /// Shapes that replace what the network declares, by input name; for networks that leave a dimension open.
        input_shapes: BTreeMap<String, Vec<usize>> as by_name(list(whole(1..=1 << 24))) => default(BTreeMap::new()),
        /// Frames of one run at most, for networks whose batch is dynamic or larger than 1 and that several cameras share.
        max_batch: usize as whole(1..=1024) => default(1),
    }
}

words!(LevelFilter: "off" = Self::Off, "error" = Self::Error, "warn" = Self::Warn, "info" = Self::Info,
    "debug" = Self::Debug, "trace" = Self::Trace);
words!(LogTarget: "auto" = Self::Auto, "stderr" = Self::Stderr, "journal" = Self::Journal);
words!(BackendChoice: "auto" = Self::Auto, "onnxruntime" = Self::OnnxRuntime, "rten" = Self::Rten);
words!(Option<MemoryKind>: "auto" = None, "mapped" = Some(MemoryKind::Mapped),
    "managed" = Some(MemoryKind::Managed), "host" = Some(MemoryKind::Host));
