//! What can be set. The doc comment of a key is what `visiond.toml` and `check` print; its default stands beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::color::{ColorMatrix, ColorRange};
use visiond_kernels::frame::PixelFormat;

/// The whole file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[log]`
    pub log: LogConfig,
    /// `[engine]`
    pub engine: EngineConfig,
    /// `[buffers]`
    pub buffers: BufferConfig,
    /// `[status]`
    pub status: StatusConfig,
    /// `[[model]]`
    pub models: Vec<ModelConfig>,
    /// `[[camera]]`
    pub cameras: Vec<CameraConfig>,
    /// `[[sink]]`
    pub sinks: Vec<SinkConfig>,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// error, warn, info, debug or trace. Default info.
    pub level: log::LevelFilter,
    /// auto (journal when standard error is the journal), stderr or journal. Default auto.
    pub target: LogTarget,
}

/// Where the log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget {
    /// The journal when standard error is connected to it, else standard error.
    Auto,
    /// Standard error, with time and level.
    Stderr,
    /// Standard error with the journal's priority prefixes.
    Journal,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// auto, onnxruntime or rten. Default auto.
    pub backend: BackendChoice,
    /// Path of libonnxruntime.so; absent: ORT_DYLIB_PATH, then the usual places.
    pub onnxruntime_library: Option<PathBuf>,
    /// Threads of one run of a network; 0: every core. Default 0.
    pub threads: usize,
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

/// `[buffers]`
#[derive(Debug, Clone, PartialEq)]
pub struct BufferConfig {
    /// Kind of memory for frames. `auto` or `host`. Default auto (`None`).
    pub memory: Option<MemoryKind>,
    /// Buffers of a camera: one being filled, one waiting, one in the lane, one being drawn. 3 to 32, default 4.
    pub count: usize,
}

/// `[status]`
#[derive(Debug, Clone, PartialEq)]
pub struct StatusConfig {
    /// How often rates and latencies go to the terminal, the log and systemd. Default 1 s on a terminal; the log has it every 60 s.
    pub interval: Duration,
    /// How often a line of it goes to the log; 0 never. Default 60 s.
    pub log_interval: Duration,
}

/// `[[model]]`
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// How cameras name it.
    pub name: String,
    /// The network's file.
    pub path: PathBuf,
    /// The card; absent: the TOML beside the file with the same stem, else what the file's own metadata tells.
    pub card: Option<PathBuf>,
    /// Replaces the card's.
    pub score_threshold: Option<f64>,
    /// Replaces the card's.
    pub iou_threshold: Option<f64>,
    /// Replaces the card's.
    pub max_detections: Option<usize>,
    /// Only these classes, by label; empty: all.
    pub classes: Vec<String>,
    /// Replaces the network's declared input shapes, by input name.
    pub input_shapes: BTreeMap<String, Vec<usize>>,
    /// Frames of one run at most, for networks with a dynamic or larger batch. Default 1.
    pub max_batch: usize,
}

/// `[[camera]]`
#[derive(Debug, Clone, PartialEq)]
pub struct CameraConfig {
    /// Name in messages, log and metrics: letters, digits, `-` and `_`.
    pub name: String,
    /// The `[[model]]` that looks at its frames; absent: the only one.
    pub model: Option<String>,
    /// Whether it runs. Default true.
    pub enabled: bool,
    /// `[camera.source]`
    pub source: SourceConfig,
    /// `[camera.annotate]`; absent: no pictures.
    pub annotate: Option<AnnotateConfig>,
}

/// `[camera.source]`, by `type`.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceConfig {
    /// `type = "v4l2"`
    V4l2(V4l2Config),
    /// `type = "video"`
    Video(VideoConfig),
    /// `type = "command"`
    Command(CommandConfig),
    /// `type = "images"`
    Images(ImagesConfig),
    /// `type = "pattern"`
    Pattern(PatternConfig),
}

/// A camera behind V4L2.
#[derive(Debug, Clone, PartialEq)]
pub struct V4l2Config {
    /// Device node or a link to it (/dev/v4l/by-id/...).
    pub device: PathBuf,
    /// A pixel format by name, or `mjpeg`; absent: what costs least of what the camera offers.
    pub format: Option<CameraFormat>,
    /// Width in pixels; absent: the driver's.
    pub width: Option<u32>,
    /// Height in pixels; absent: the driver's.
    pub height: Option<u32>,
    /// Frames per second; absent: the driver's.
    pub fps: Option<f64>,
    /// Replaces what the driver says.
    pub color_matrix: Option<ColorMatrix>,
    /// Replaces what the driver says.
    pub color_range: Option<ColorRange>,
    /// No frame for so long: the camera is opened again. Default 5 s.
    pub timeout: Duration,
}

/// A camera's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraFormat {
    /// Raw pixels.
    Raw(PixelFormat),
    /// JPEG pictures.
    Mjpeg,
}

/// A video file or URL, by ffmpeg.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoConfig {
    /// Path or URL: anything that ffmpeg reads.
    pub url: String,
    /// realtime (by the file's clock, late frames dropped) or fastest (every frame, none dropped). Default realtime.
    pub pace: Pace,
    /// Start again at the end. Default false.
    pub repeat: bool,
    /// Stop after so many frames; absent: all.
    pub max_frames: Option<u64>,
    /// The ffmpeg program. Default "ffmpeg" (ffprobe is looked for beside it).
    pub ffmpeg: PathBuf,
    /// Arguments for ffmpeg before its input, such as ["-rtsp_transport", "tcp"].
    pub input_args: Vec<String>,
    /// bgr (ffmpeg makes BGR, bit for bit as OpenCV's VideoCapture) or native (the file's own YUV planes, half the bytes,
    /// converted by our kernel). Default bgr.
    pub pixels: VideoPixels,
    /// Replaces what the file says.
    pub color_matrix: Option<ColorMatrix>,
    /// Replaces what the file says.
    pub color_range: Option<ColorRange>,
    /// No frame for so long: ffmpeg is started again. Default 10 s.
    pub timeout: Duration,
}

/// What ffmpeg hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoPixels {
    /// BGR, made by ffmpeg.
    Bgr,
    /// The file's own planes.
    Native,
}

/// How fast a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// By its clock; what is late is dropped.
    Realtime,
    /// As fast as it is taken; nothing is dropped.
    Fastest,
}

/// Any program that writes frames to its standard output.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandConfig {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// y4m, or raw with the keys below. Default y4m.
    pub container: CommandContainer,
    /// Raw: pixel format.
    pub format: Option<PixelFormat>,
    /// Raw: width in pixels.
    pub width: Option<u32>,
    /// Raw: height in pixels.
    pub height: Option<u32>,
    /// Raw: bytes from row to row, one a plane; absent: packed.
    pub pitches: Vec<usize>,
    /// As `video`. Default realtime, which here means: newest wins.
    pub pace: Pace,
    /// Start it again when it ends well. Default true: a camera never ends.
    pub repeat: bool,
    /// Stop after so many frames; absent: never.
    pub max_frames: Option<u64>,
    /// YUV matrix. Default bt601.
    pub color_matrix: ColorMatrix,
    /// YUV range; absent: what Y4M says, else limited.
    pub color_range: Option<ColorRange>,
    /// No frame for so long: the program is started again. Default 10 s.
    pub timeout: Duration,
}

/// What a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandContainer {
    /// YUV4MPEG2.
    Y4m,
    /// Frames one behind the other, no header.
    Raw,
}

/// A folder of pictures.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagesConfig {
    /// The folder, or one picture.
    pub path: PathBuf,
    /// Keep looking for new pictures. Default false.
    pub watch: bool,
    /// How often a watched folder is read. Default 500 ms.
    pub watch_interval: Duration,
    /// Start again at the end. Default false.
    pub repeat: bool,
    /// Pictures per second; absent: as fast as they are taken, none dropped.
    pub fps: Option<f64>,
}

/// A moving test picture.
#[derive(Debug, Clone, PartialEq)]
pub struct PatternConfig {
    /// Default 1280.
    pub width: u32,
    /// Default 720.
    pub height: u32,
    /// Default 30.
    pub fps: f64,
    /// Default nv12.
    pub format: PixelFormat,
    /// Stop after so many frames; absent: never.
    pub max_frames: Option<u64>,
}

/// `[camera.annotate]`: pictures with boxes drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotateConfig {
    /// Folder that gets them; made when missing.
    pub directory: PathBuf,
    /// Every n-th frame; 0: only `on_detection`. Default 0 with on_detection, see below.
    pub every: u64,
    /// Every frame that has a detection. Default false; one of the two must be set.
    pub on_detection: bool,
    /// jpeg or png. Default jpeg.
    pub format: PictureFormat,
    /// At most so many pictures of a camera; the oldest go. 0: no limit. Default 1000.
    pub keep: usize,
}

/// How annotated pictures are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// JPEG, quality 90.
    Jpeg,
    /// PNG.
    Png,
}

/// `[[sink]]`
#[derive(Debug, Clone, PartialEq)]
pub struct SinkConfig {
    /// Name in log and metrics; absent: its type.
    pub name: String,
    /// By `type`.
    pub kind: SinkKind,
    /// Only these cameras; empty: all.
    pub cameras: Vec<String>,
    /// Only frames with a detection. Default false.
    pub only_detections: bool,
    /// Messages that wait at most. Default 256.
    pub queue: usize,
    /// drop_oldest, drop_newest, or block (only with sources of pace fastest: the lane waits). Default drop_oldest.
    pub when_full: WhenFull,
}

/// What a full queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest waiting message goes.
    DropOldest,
    /// The new message goes.
    DropNewest,
    /// The lane waits.
    Block,
}

/// Kinds of sink, by `type`.
#[derive(Debug, Clone, PartialEq)]
pub enum SinkKind {
    /// `type = "stdout"`: JSON lines.
    Stdout,
    /// `type = "file"`: JSON lines.
    File(FileSinkConfig),
    /// `type = "unix"`: JSON lines to whoever connects.
    Unix(UnixSinkConfig),
}

/// A file of JSON lines.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSinkConfig {
    /// The file; its folder must exist.
    pub path: PathBuf,
    /// Size at which it is renamed to PATH.1 and begun anew; 0: never. Default 64 MiB.
    pub rotate_bytes: u64,
    /// Renamed files kept. Default 5.
    pub rotate_keep: u32,
}

/// A socket with JSON lines.
#[derive(Debug, Clone, PartialEq)]
pub struct UnixSinkConfig {
    /// The socket; a stale one is replaced.
    pub path: PathBuf,
    /// Octal permissions. Default 0o660.
    pub mode: u32,
    /// Readers at most. Default 64.
    pub max_readers: usize,
    /// Bytes that wait for one reader; a slower one loses messages, counted. Default 1 MiB.
    pub reader_buffer_bytes: usize,
}
