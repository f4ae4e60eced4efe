//! What can be set.
//!
//! A key is declared here and nowhere else: its doc comment, name, type, kind of value, and default. The parser,
//! `config/visiond.toml`, `docs/configuration.md` and what `check` prints come from these declarations, see
//! [`declare`](super::declare).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use visiond_engine::engine::{Backend, DeviceChoice, EngineOptions};
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::color::{ColorMatrix, ColorRange};
use visiond_kernels::frame::{MAX_SIDE, PixelFormat};

use super::declare::{section, union};
pub use super::kinds::{CameraName, ControlValue};
use super::kinds::{
    Words, by_name, camera, command_line, control, credential, duration, flag, fraction, list, location, mode, name,
    path, program, real, size, text, whole, word,
};
use super::schema::{table, tables, union_table};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MIB: u64 = 1 << 20;

section! {
    /// The whole file.
    pub struct Config {
        /// What is told about the daemon itself, and where.
        log: LogConfig as table() => part,
        /// What runs the networks.
        engine: EngineConfig as table() => part,
        /// The memory that frames live in. It is taken when a camera is opened and stays the same from then on.
        buffers: BufferConfig as table() => part,
        /// How often the daemon tells its rates and latencies.
        status: StatusConfig as table() => part,
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

/// Where the log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget {
    /// The journal when standard error is connected to it, else standard error.
    Auto,
    /// Standard error, with time and level.
    Stderr,
    /// The journal; where there is none, standard error with its priority prefixes.
    Journal,
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
        /// the driver moves to whoever touches it, "host" ordinary memory, from which each frame is copied; "auto" is
        /// "mapped" where the GPU can. Networks on the CPU always have "host".
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

section! {
    /// `[[camera]]`
    pub struct CameraConfig {
        /// What messages, log and metrics call it.
        name: String as name() => required(r#""door""#),
        /// The `[[model]]` that looks at its frames. May be left out where there is only one.
        model: Option<String> as name() => optional(r#""objects""#),
        /// Whether it runs.
        enabled: bool as flag() => default(true),
        /// What is opened.
        source: SourceConfig as union_table() => required(""),
        /// Pictures with boxes drawn; one of `every` and `on_detection` must be set. Without this table there are none.
        annotate: Option<AnnotateConfig> as table() => optional(""),
    }
}

union! {
    /// What is opened.
    pub enum SourceConfig {
        /// A camera behind V4L2: USB, or CSI with a driver of its own.
        V4l2(V4l2Config) = "v4l2",
        /// A video file or a URL, such as RTSP, by ffmpeg.
        Video(VideoConfig) = "video",
        /// Any program that writes frames to its standard output, such as GStreamer.
        Command(CommandConfig) = "command",
        /// A folder of pictures.
        Images(ImagesConfig) = "images",
        /// A moving test picture, made here.
        Pattern(PatternConfig) = "pattern",
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self::Pattern(PatternConfig::default())
    }
}

section! {
    /// A camera behind V4L2.
    pub struct V4l2Config {
        /// The camera: a device node or a link to it, the USB ids `lsusb` shows ("046d:0825"; with the serial number
        /// "046d:0825:SERIAL"), or the name that the driver gives its card. `visiond probe` shows all of them. A camera named by a
        /// node is found again under another one when it comes back.
        device: CameraName as camera() => required(r#""/dev/v4l/by-id/usb-046d_HD_Webcam-video-index0""#),
        /// Pixel format, or "mjpeg". Without it what costs least of what the camera offers.
        format: Option<CameraFormat> as word() => optional(r#""yuyv""#),
        /// Width in pixels. Without it the driver's.
        width: Option<u32> as whole(1..=MAX_SIDE) => optional("1280"),
        /// Height in pixels. Without it the driver's.
        height: Option<u32> as whole(1..=MAX_SIDE) => optional("720"),
        /// Frames per second. Without it the driver's.
        fps: Option<f64> as real(0.01..=1000.0) => optional("30"),
        /// YUV matrix. Without it what the driver says.
        color_matrix: Option<ColorMatrix> as word() => optional(r#""bt709""#),
        /// YUV range. Without it what the driver says.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// Controls such as exposure, by the names that `visiond probe` shows, set each time the camera is opened. A menu's
        /// item is a number or its text; `true` presses a button. `{ auto_exposure = "Manual Mode", exposure_time_absolute
        /// = 100 }`, or a table `[camera.source.controls]` with a line each.
        controls: BTreeMap<String, ControlValue> as by_name(control()) => default(BTreeMap::new()),
        /// How pictures come out of the driver: "userptr" has it write into the network's memory, "mmap" reads its own memory in
        /// place, "copy" copies them out of that once. Without it the best that works; the log says which, and why.
        io: Option<IoMode> as word() => optional(r#""mmap""#),
        /// The number of the input, of a camera that has several, such as a capture card; `visiond probe` lists them. Without
        /// it the one that is set.
        input: Option<u32> as whole(0..=63) => optional("1"),
        /// The camera is opened again when no frame came for so long. Without it after ten frames' time, at least 0.5 s
        /// (3 s for the first frame) and at most 5 s.
        timeout: Option<Duration> as duration(100 * MS..=HOUR) => optional(r#""2 s""#),
    }
}

/// A camera's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraFormat {
    /// Raw pixels.
    Raw(PixelFormat),
    /// JPEG pictures.
    Mjpeg,
}

/// How pictures come out of a camera's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMode {
    /// It writes into our memory.
    Userptr,
    /// We read its memory.
    Mmap,
    /// We copy out of its memory.
    Copy,
}

impl IoMode {
    /// The name used in the configuration, the log, the summary and `probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Userptr => "userptr",
            Self::Mmap => "mmap",
            Self::Copy => "copy",
        }
    }
}

section! {
    /// A video file or URL, by ffmpeg.
    pub struct VideoConfig {
        /// Path or URL: anything that ffmpeg reads.
        url: String as location() => required(r#""rtsp://192.168.1.20:554/stream1""#),
        /// User and password for the URL, which need not stand here then: the name of a credential of systemd's
        /// (`LoadCredential=` in the unit), or a file's path with a slash in it, for one line `user:password`.
        login: Option<PathBuf> as credential() => optional(r#""gate""#),
        /// "realtime" follows the file's clock and drops frames that are late; "fastest" takes every frame and drops none.
        pace: Pace as word() => default(Pace::Realtime),
        /// Start again at the end.
        repeat: bool as flag() => default(false),
        /// Stop after so many frames. Without it all.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
        /// The ffmpeg program; ffprobe is looked for beside it.
        ffmpeg: PathBuf as program() => default(PathBuf::from("ffmpeg")),
        /// Arguments for ffmpeg before its input, such as `["-rtsp_transport", "tcp"]`.
        input_args: Vec<String> as list(text()) => default(Vec::new()),
        /// What ffmpeg hands over. "bgr" is bit for bit what OpenCV's VideoCapture gives; "native" is the file's own YUV
        /// planes, which are half the bytes and are converted here.
        pixels: VideoPixels as word() => default(VideoPixels::Bgr),
        /// YUV matrix. Without it what the file says.
        color_matrix: Option<ColorMatrix> as word() => optional(r#""bt709""#),
        /// YUV range. Without it what the file says.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// ffmpeg is started again when no frame came for so long.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
    }
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

section! {
    /// Any program that writes frames to its standard output.
    pub struct CommandConfig {
        /// Program and arguments. There is no shell between: no quotes, pipes or variables. A program with a slash in its
        /// name is a path, others are looked for in PATH.
        command: Vec<String> as command_line() => required(r#"["gst-launch-1.0", "-q", "videotestsrc", "!", "video/x-raw,format=NV12,width=1280,height=720", "!", "fdsink"]"#),
        /// What it writes. "y4m" (YUV4MPEG2) tells size and format itself; "raw" is frames one behind the other, and needs
        /// `format`, `width` and `height`. Without it "y4m".
        container: CommandContainer as word() => derived((r#""raw""#, CommandContainer::Y4m)),
        /// Raw frames: pixel format.
        format: Option<PixelFormat> as word() => optional(r#""nv12""#),
        /// Raw frames: width in pixels.
        width: Option<u32> as whole(1..=MAX_SIDE) => optional("1280"),
        /// Raw frames: height in pixels.
        height: Option<u32> as whole(1..=MAX_SIDE) => optional("720"),
        /// Raw frames: bytes from row to row, one number a plane; empty: rows without padding.
        pitches: Vec<usize> as list(whole(1..=1 << 20)) => default(Vec::new()),
        /// "realtime" takes the newest frame and drops older ones; "fastest" takes every frame and holds the program up.
        pace: Pace as word() => default(Pace::Realtime),
        /// Start the program again when it ends well, as a camera never ends.
        repeat: bool as flag() => default(true),
        /// Stop after so many frames. Without it never.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
        /// YUV matrix.
        color_matrix: ColorMatrix as word() => default(ColorMatrix::Bt601),
        /// YUV range. Without it what Y4M says, else limited.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// The program is started again when no frame came for so long.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
    }
}

/// What a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandContainer {
    /// YUV4MPEG2.
    Y4m,
    /// Frames one behind the other, no header.
    Raw,
}

section! {
    /// A folder of pictures.
    pub struct ImagesConfig {
        /// The folder, whose pictures are taken in the order of their names; or one picture.
        path: PathBuf as path() => required(r#""pictures""#),
        /// Keep looking for new pictures.
        watch: bool as flag() => default(false),
        /// How often a watched folder is read.
        watch_interval: Duration as duration(10 * MS..=HOUR) => default(500 * MS),
        /// Start again at the end.
        repeat: bool as flag() => default(false),
        /// Pictures per second. Without it as fast as they are taken, and none is dropped.
        fps: Option<f64> as real(0.001..=1000.0) => optional("5"),
    }
}

section! {
    /// A moving test picture.
    pub struct PatternConfig {
        /// Width in pixels.
        width: u32 as whole(1..=MAX_SIDE) => default(1280),
        /// Height in pixels.
        height: u32 as whole(1..=MAX_SIDE) => default(720),
        /// Frames per second.
        fps: f64 as real(0.01..=1000.0) => default(30.0),
        /// Pixel format.
        format: PixelFormat as word() => default(PixelFormat::Nv12),
        /// Stop after so many frames. Without it never.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
    }
}

section! {
    /// `[camera.annotate]`
    pub struct AnnotateConfig {
        /// Folder that gets them; made when missing.
        directory: PathBuf as path() => required(r#""/var/lib/visiond/pictures""#),
        /// Every n-th frame. Without it, or with 0, only what `on_detection` says.
        every: u64 as whole(0..=i64::MAX as u64) => derived(("30", 0)),
        /// Every frame that has a detection.
        on_detection: bool as flag() => default(false),
        /// How they are stored. "jpeg" has quality 90.
        format: PictureFormat as word() => default(PictureFormat::Jpeg),
        /// At most so many pictures of a camera, the oldest go; 0: no limit.
        keep: usize as whole(0..=1_000_000_000) => default(1000),
    }
}

/// How annotated pictures are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// JPEG, quality 90.
    Jpeg,
    /// PNG.
    Png,
}

section! {
    /// `[[sink]]`
    pub struct SinkConfig {
        /// What log and metrics call it. Without it its `type`.
        name: String as name() => derived((r#""events""#, String::new())),
        /// What it is.
        kind: SinkKind as text() => flatten,
        /// Only these cameras; empty: all.
        cameras: Vec<String> as list(name()) => default(Vec::new()),
        /// Only frames with a detection.
        only_detections: bool as flag() => default(false),
        /// Messages that wait at most.
        queue: usize as whole(1..=1_000_000) => default(256),
        /// What a full queue does. "block" holds the lane up, and is allowed only where every camera of the sink has a
        /// source that waits: pace "fastest", or pictures without `fps`.
        when_full: WhenFull as word() => default(WhenFull::DropOldest),
    }
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

union! {
    /// Kinds of sink, by `type`.
    pub enum SinkKind {
        /// JSON lines to standard output.
        Stdout = "stdout",
        /// JSON lines to a file that rotates.
        File(FileSinkConfig) = "file",
        /// JSON lines to whoever connects to a Unix socket.
        Unix(UnixSinkConfig) = "unix",
    }
}

// The macro makes the enum, so there is no place for `#[default]`.
#[allow(clippy::derivable_impls)]
impl Default for SinkKind {
    fn default() -> Self {
        Self::Stdout
    }
}

section! {
    /// A file of JSON lines.
    pub struct FileSinkConfig {
        /// The file; its folder must exist.
        path: PathBuf as path() => required(r#""/var/lib/visiond/detections.jsonl""#),
        /// Size at which it is renamed to PATH.1 and begun anew; 0: never.
        rotate_bytes: u64 as size(4096..=1 << 40).or_zero() => default(64 * MIB),
        /// Renamed files kept.
        rotate_keep: u32 as whole(0..=10_000) => default(5),
    }
}

section! {
    /// A socket with JSON lines.
    pub struct UnixSinkConfig {
        /// The socket; a stale one is replaced.
        path: PathBuf as path() => required(r#""/run/visiond/detections.sock""#),
        /// Who may connect: permissions of the socket, in octal.
        mode: u32 as mode() => default(0o660),
        /// Readers at most.
        max_readers: usize as whole(1..=4096) => default(64),
        /// What waits for one reader at most; a slower one loses messages, counted.
        reader_buffer_bytes: usize as size(4096..=1 << 30) => default(1 << 20),
    }
}

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

words!(LevelFilter: "off" = Self::Off, "error" = Self::Error, "warn" = Self::Warn, "info" = Self::Info,
    "debug" = Self::Debug, "trace" = Self::Trace);
words!(LogTarget: "auto" = Self::Auto, "stderr" = Self::Stderr, "journal" = Self::Journal);
words!(BackendChoice: "auto" = Self::Auto, "onnxruntime" = Self::OnnxRuntime, "rten" = Self::Rten);
words!(Option<MemoryKind>: "auto" = None, "mapped" = Some(MemoryKind::Mapped),
    "managed" = Some(MemoryKind::Managed), "host" = Some(MemoryKind::Host));
words!(ColorMatrix: "bt601" = Self::Bt601, "bt709" = Self::Bt709, "bt2020" = Self::Bt2020);
words!(ColorRange: "limited" = Self::Limited, "full" = Self::Full);
words!(VideoPixels: "bgr" = Self::Bgr, "native" = Self::Native);
words!(IoMode: "userptr" = Self::Userptr, "mmap" = Self::Mmap, "copy" = Self::Copy);
words!(Pace: "realtime" = Self::Realtime, "fastest" = Self::Fastest);
words!(CommandContainer: "y4m" = Self::Y4m, "raw" = Self::Raw);
words!(PictureFormat: "jpeg" = Self::Jpeg, "png" = Self::Png);
words!(WhenFull: "drop_oldest" = Self::DropOldest, "drop_newest" = Self::DropNewest, "block" = Self::Block);

impl Words for PixelFormat {
    fn words() -> Vec<(&'static str, Self)> {
        Self::all().map(|format| (format.name(), format)).collect()
    }
}

impl Words for CameraFormat {
    fn words() -> Vec<(&'static str, Self)> {
        let raw = PixelFormat::all().map(|format| (format.name(), Self::Raw(format)));
        std::iter::once(("mjpeg", Self::Mjpeg)).chain(raw).collect()
    }
}
