//! `[[camera]]`: the source of frames, and the annotated images.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use visiond_kernels::color::{ColorMatrix, ColorRange, GreyLevels};
use visiond_kernels::frame::{MAX_SIDE, PixelFormat};
use visiond_kernels::polygon::{Polygon, PolygonError};
use visiond_kernels::privacy::{Fill, PrivacyMask};
use visiond_kernels::tiling::Tiling;
use visiond_kernels::view::{Crop, Flip, Orientation, ViewSpec};

use super::{FfmpegConfig, GroundConfig, HOUR, LineConfig, MIB, MS, SECOND, ZoneConfig};
use crate::kinds::{
    Words, by_name, camera, choice, command_line, control, credential, crop, duration, duration_or_zero, fill,
    fingerprint, flag, fraction, frame_size, http_url, label, levels, list, location, name, path, points, real,
    rtsp_url, size, size_or_zero, text, whole, word, word_of,
};
use crate::table_macros::{section, union};
use crate::tables::{table, tables, tables_or_names, union_table};

pub use crate::kinds::{CameraName, ControlValue, Fingerprint};

section! {
    /// A table `[[camera]]`.
    pub struct CameraConfig {
        /// Name of the camera in messages, log and metrics.
        name: String as name() => required(r#""door""#),
        /// The `[[model]]` that processes its frames. Optional if there is only one.
        model: Option<String> as name() => optional(r#""objects""#),
        /// The models that process its frames, in place of `model`: their names, `["people", "plates"]`, or a table for each,
        /// `[[camera.models]]`. Every frame is captured once. The first one is the camera's main model: see docs/several-models.md.
        models: Vec<CameraModelConfig> as tables_or_names() => part,
        /// Send one message per frame with the results of all models, in place of one for each model. See docs/several-models.md.
        group: bool as flag() => default(false),
        /// How long a frame waits for its models with `group`; a result that comes later is dropped. Without it 200 ms, enough for
        /// inferences of up to 150 ms at 30 frames per second. A source that waits for the models waits for all of them.
        group_timeout: Option<Duration> as duration(10 * MS..=10 * SECOND) => optional(r#""200 ms""#),
        /// Whether the camera runs.
        enabled: bool as flag() => default(true),
        /// Drop detections of all its models below this score. It can only raise their own `score_threshold`.
        score_threshold: Option<f64> as fraction() => optional("0.6"),
        /// Maximum frames per second for its models; further frames are skipped, which counts as the drop cause "skipped".
        /// Without it, every frame. Only for sources that do not wait for the model.
        max_fps: Option<f64> as real(0.001..=1000.0) => optional("5"),
        /// The part of the frame that the model sees: x, y, width, height. Whole numbers are pixels of a frame of `crop_frame_size`;
        /// with a decimal point, they are fractions of the frame's width and height. Its edges move outwards to even pixels. `crop`, `rotate` and `flip` apply in
        /// this order, and coordinates in messages remain those of the whole, unturned frame.
        crop: Option<Crop> as crop() => optional("[0.25, 0.0, 0.5, 1.0]"),
        /// Width and height of the frame that a `crop` in pixels is meant for, here or in `models`; required with it. The same part is
        /// used of a frame of another size.
        crop_frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// Degrees by which the model sees the frame turned clockwise, for a camera that is mounted on its side or upside down.
        rotate: Option<u32> as choice(&[90, 180, 270]) => optional("90"),
        /// Mirror the frame for the model: "horizontal" swaps left and right, "vertical" swaps top and bottom.
        flip: Option<Flip> as word() => optional(r#""horizontal""#),
        /// The source of its frames.
        source: SourceConfig as union_table() => required_part,
        /// Images with boxes drawn. Set `every`, `on_detection`, `on_event`, or several of them. Without this table, visiond stores no images.
        annotate: Option<AnnotateConfig> as table() => optional_part,
        /// A video of each event of the camera's lines and zones. Without this table, visiond stores no video. See docs/events.md.
        clips: Option<ClipsConfig> as table() => optional_part,
        /// Follow objects from frame to frame: their detections have `track` in messages, with an id that lasts. An empty table is
        /// enough. Without it, visiond does not track objects.
        track: Option<TrackConfig> as table() => optional_part,
        /// Give messages and pictures the boxes of tracks, without the detector's jitter. Requires the table `track`.
        smooth: bool as flag() => default(false),
        /// An area that visiond blanks in every frame before anything else uses the frame. There may be several; a camera has at most
        /// 32. See docs/privacy.md.
        privacy: Vec<PrivacyConfig> as tables() => part,
        /// An area whose detections are dropped before tracks, messages and images. There may be several; a camera has at most 32. See
        /// docs/privacy.md.
        ignore: Vec<IgnoreConfig> as tables() => part,
        /// The ground in the frame: where four of its points are, in metres. The key `speed` of a zone requires it.
        ground: Option<GroundConfig> as table() => optional_part,
        /// A line; visiond reports each object that crosses it. Requires the table `track`. See docs/events.md.
        line: Vec<LineConfig> as tables() => part,
        /// An area. visiond reports the objects that enter and leave it, how long they stay, and how many are in it. Requires the table
        /// `track`. See docs/events.md.
        zone: Vec<ZoneConfig> as tables() => part,
    }
}

/// The most tables `[[camera.privacy]]` of a camera, and the most tables `[[camera.ignore]]`.
pub const MAX_AREAS: usize = 32;

impl CameraConfig {
    /// Returns whether a line or zone depends on the local time.
    pub fn has_times(&self) -> bool {
        self.line.iter().any(|line| line.reset.is_some() || !line.active.is_empty())
            || self.zone.iter().any(|zone| zone.reset.is_some() || !zone.active.is_empty())
    }

    /// Returns how models see the camera's frames, unless their tables say otherwise.
    pub fn view(&self) -> ViewSpec {
        let turned = Orientation::UPRIGHT.turned(self.rotate.unwrap_or(0) / 90);
        let orientation = self.flip.map_or(turned, |flip| turned.flipped(flip));
        ViewSpec { crop: self.crop.map(|crop| self.in_fractions(crop)), orientation, tiling: None }
    }

    /// Returns how one of the camera's models sees its frames.
    pub fn view_of(&self, model: &CameraModelConfig) -> ViewSpec {
        let tiling = model.tiles.as_ref().and_then(TilesConfig::tiling);
        let crop = model.crop.or(self.crop).map(|crop| self.in_fractions(crop));
        ViewSpec { crop, tiling, ..self.view() }
    }

    /// Returns a part of frames of any size.
    fn in_fractions(&self, crop: Crop) -> Crop {
        self.crop_frame_size.map_or(crop, |[width, height]| crop.in_fractions((width, height)))
    }
}

union! {
    /// The source of a camera's frames, by `type`.
    pub enum SourceConfig {
        /// A V4L2 camera: USB, or CSI with its own V4L2 driver.
        V4l2(V4l2Config) = "v4l2",
        /// A network camera over RTSP.
        Rtsp(RtspConfig) = "rtsp",
        /// A network camera that sends a series of JPEGs over HTTP (MJPEG).
        Mjpeg(MjpegConfig) = "mjpeg",
        /// A network camera that serves snapshots over HTTP; visiond requests one at intervals.
        Snapshot(SnapshotConfig) = "snapshot",
        /// A video file or a URL, decoded by ffmpeg.
        Video(VideoConfig) = "video",
        /// A program that writes frames to standard output, to descriptor 3 or into shared memory, such as GStreamer.
        Command(CommandConfig) = "command",
        /// A folder of images.
        Images(ImagesConfig) = "images",
        /// A moving test pattern that visiond generates.
        Pattern(PatternConfig) = "pattern",
    }
    hint: other_type
}

/// Returns the types that a lower-case word probably means, if it names no type.
fn other_type(word: &str) -> Option<&'static str> {
    Some(match word {
        "http" | "https" => "did you mean \"mjpeg\", \"snapshot\" or \"video\"? `visiond probe --http URL` finds out",
        "jpeg" | "jpg" => "did you mean \"mjpeg\" or \"snapshot\"? `visiond probe --http URL` finds out",
        "hls" | "dash" | "rtmp" | "srt" | "flv" | "mp4" | "file" | "ffmpeg" => "did you mean \"video\"?",
        "onvif" => "did you mean \"rtsp\"? `visiond probe --discover` shows the URLs of ONVIF cameras",
        "rtsps" => "did you mean \"rtsp\", with rtsps:// in `url`?",
        "usb" | "csi" | "webcam" | "v4l" => "did you mean \"v4l2\"?",
        "gstreamer" | "gst" | "argus" => "did you mean \"command\"?",
        "folder" | "directory" | "files" => "did you mean \"images\"?",
        _ => return None,
    })
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self::Pattern(PatternConfig::default())
    }
}

impl SourceConfig {
    /// Whether the source waits for the lane, so that none of its frames may be dropped.
    pub fn is_lossless(&self) -> bool {
        match self {
            Self::Video(video) => video.pace == Pace::Fastest,
            Self::Command(command) => command.pace == Pace::Fastest,
            Self::Images(images) => images.fps.is_none(),
            Self::V4l2(_) | Self::Rtsp(_) | Self::Mjpeg(_) | Self::Snapshot(_) | Self::Pattern(_) => false,
        }
    }

    /// Whether its frames come as a bitstream that clips can have: H.264, H.265 or JPEG. A V4L2 camera whose format is left to visiond may
    /// send either.
    pub fn has_bitstream(&self) -> bool {
        match self {
            Self::Rtsp(_) | Self::Mjpeg(_) => true,
            Self::V4l2(camera) => camera.format == Some(CameraFormat::Mjpeg),
            Self::Snapshot(_) | Self::Video(_) | Self::Command(_) | Self::Images(_) | Self::Pattern(_) => false,
        }
    }

    /// Whether it shows the same scene as another source: the same device, address, file or program, whatever the other keys.
    pub fn shows_what(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4l2(a), Self::V4l2(b)) => (&a.device, a.input) == (&b.device, b.input),
            (Self::Rtsp(a), Self::Rtsp(b)) => a.url == b.url,
            (Self::Mjpeg(a), Self::Mjpeg(b)) => a.url == b.url,
            (Self::Snapshot(a), Self::Snapshot(b)) => a.url == b.url,
            (Self::Video(a), Self::Video(b)) => a.url == b.url,
            (Self::Command(a), Self::Command(b)) => a.command == b.command,
            (Self::Images(a), Self::Images(b)) => a.path == b.path,
            (Self::Pattern(_), Self::Pattern(_)) => true,
            _ => false,
        }
    }

    /// Returns the stream for viewers, if it differs from the model's.
    pub fn preview(&self) -> Option<Self> {
        match self {
            Self::Rtsp(rtsp) => rtsp.preview().map(Self::Rtsp),
            _ => None,
        }
    }
}

section! {
    /// A V4L2 camera.
    pub struct V4l2Config {
        /// The camera: a device node or a link to it, the USB ids that `lsusb` shows ("046d:0825" or "046d:0825:SERIAL"), or
        /// the card name of the driver. `visiond probe` shows all of them. visiond finds a camera that returns under another
        /// node.
        device: CameraName as camera() => required(r#""/dev/v4l/by-id/usb-046d_HD_Webcam-video-index0""#),
        /// Pixel format, or "mjpeg". Without it, the cheapest format that the camera offers.
        format: Option<CameraFormat> as word() => optional(r#""yuyv""#),
        /// Width in pixels. Without it, the driver's.
        width: Option<u32> as whole(1..=MAX_SIDE) => optional("1280"),
        /// Height in pixels. Without it, the driver's.
        height: Option<u32> as whole(1..=MAX_SIDE) => optional("720"),
        /// Frames per second. Without it, the driver's.
        fps: Option<f64> as real(0.01..=1000.0) => optional("30"),
        /// YUV matrix. Without it, the one that the driver reports.
        color_matrix: Option<ColorMatrix> as word() => optional(r#""bt709""#),
        /// YUV range. Without it, the one that the driver reports.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// Grey of 10, 12 or 16 bits, from monochrome and thermal cameras: the samples that become black and white. Without it, 0
        /// and the largest value of the depth. They are values of the 16-bit words that the driver delivers. NVIDIA's CSI driver
        /// puts 10 and 12 bits at the top of these words: multiply by 64 or 16.
        levels: Option<GreyLevels> as levels() => optional("[28815, 31315]"),
        /// Controls such as exposure, by the names that `visiond probe` shows; visiond sets them each time it opens the
        /// camera. Set a menu to the number or text of an item; `true` presses a button. Example: `{ auto_exposure = "Manual
        /// Mode", exposure_time_absolute = 100 }`.
        controls: BTreeMap<String, ControlValue> as by_name(control()) => default(BTreeMap::new()),
        /// How frames leave the driver: "userptr", written into the model's memory; "mmap", read in the driver's memory;
        /// "copy", copied from it once. Without it, the best one that works; the log says which, and why.
        io: Option<IoMode> as word() => optional(r#""mmap""#),
        /// Number of the input, for a device with several; `visiond probe` lists them. Without it, the current one.
        input: Option<u32> as whole(0..=63) => optional("1"),
        /// visiond opens the camera again if no frame arrives for this long. Without it, ten frame intervals, but at least 1 s
        /// (3 s for the first frame) and at most 5 s.
        timeout: Option<Duration> as duration(100 * MS..=HOUR) => optional(r#""2 s""#),
    }
}

/// Pixel format of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraFormat {
    /// Uncompressed pixels.
    Raw(PixelFormat),
    /// Motion JPEG.
    Mjpeg,
}

/// How frames leave a camera's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMode {
    /// The driver writes into visiond's memory.
    Userptr,
    /// visiond reads the driver's memory in place.
    Mmap,
    /// visiond copies each frame out of the driver's memory.
    Copy,
}

impl IoMode {
    /// Returns the name used in the configuration, the log, the summary and `probe`.
    pub fn name(self) -> &'static str {
        word_of(self)
    }
}

/// Declares a network camera: some keys, then those about its login and certificate, then the others.
macro_rules! network_camera {
    ($(#[$($doc:tt)*])+ pub struct $name:ident { $($before:tt)* } login { $($after:tt)* }) => {
        section! {
            $(#[$($doc)*])+
            pub struct $name {
                $($before)*
                /// User and password for the camera, as one line `user:password`: the name of a systemd credential, or a file path
                /// with a slash.
                login: Option<PathBuf> as credential() => optional(r#""gate""#),
                /// Log in with digest authentication only. Otherwise the camera, or an attacker on the network path, may request
                /// basic authentication, which without TLS sends the password in clear text.
                require_digest: bool as flag() => default(false),
                /// With TLS: a PEM file with the certificate of the CA that signed the camera's, or with the camera's own, which
                /// may then have any name and date. Without it, the system's CAs.
                ca: Option<PathBuf> as path() => optional(r#""/etc/visiond/camera.pem""#),
                /// With TLS: SHA-256 of the camera's certificate. Only that certificate is accepted, whatever its name, dates and
                /// issuer. The error for an untrusted camera shows the value.
                fingerprint: Option<Fingerprint> as fingerprint() => optional(r#""12:34:56:78:9A:BC:DE:F0:12:34:56:78:9A:BC:DE:F0:12:34:56:78:9A:BC:DE:F0:12:34:56:78:9A:BC:DE:F0""#),
                /// With TLS: accept any certificate. An attacker on the network path can then read the login and replace the video.
                insecure: bool as flag() => default(false),
                $($after)*
            }
        }
    };
}

network_camera! {
    /// A network camera over RTSP, with H.264, H.265 or JPEG. visiond runs the RTSP session; NVDEC, GStreamer or ffmpeg decodes
    /// H.264 and H.265.
    pub struct RtspConfig {
        /// The stream: rtsp://HOST:PORT/PATH, or rtsps:// with TLS. The default port is 554, with TLS 322.
        url: String as rtsp_url() => required(r#""rtsp://192.168.1.20:554/stream1""#),
        /// Another stream of the same camera and view, usually a smaller one, for people: the live page, snapshots and MJPEG
        /// show it with the boxes from `url`. visiond plays it only while someone watches, and falls back to the model's frames if
        /// it cannot. The other keys apply to both streams, except `key_frames_only` and `pixels`.
        preview_url: Option<String> as rtsp_url() => optional(r#""rtsp://192.168.1.20:554/stream2""#),
    }
    login {
        /// Transport of the video. "tcp" loses no packets; "udp" is for cameras and networks that require it.
        transport: RtspTransport as word() => default(RtspTransport::Tcp),
        /// Decode only key frames, usually one every 1 to 4 s, which takes a fraction of the CPU time.
        key_frames_only: bool as flag() => default(false),
        /// Handling of frames that refer to a lost or damaged one, up to the next clean frame: "drop" counts them as corrupt;
        /// "mark" passes them to the model, and their messages have `frame.damaged`.
        damaged: DamagedFrames as word() => default(DamagedFrames::Drop),
        /// Decoder of H.264 and H.265. "nvdec" is the GPU's video engine; the model must run on that GPU. "gstreamer" is the
        /// same engine of a Jetson, for JetPack without NVDECODE, with any model. "ffmpeg" decodes on the CPU. "auto" uses the
        /// first of them that decodes the stream, GStreamer only on a Jetson; the log says which, and why.
        decoder: StreamDecoding as word() => default(StreamDecoding::Auto),
        /// Conversion of the stream to BGR. "bgr" equals OpenCV's VideoCapture bit for bit, and so do the boxes, by ffmpeg and by
        /// NVDEC (8 bits). "native" follows the formulas of BT.601 and BT.709 exactly: colours differ from OpenCV's by about 1
        /// level of 255, and about one box in 14 differs.
        pixels: VideoPixels as word() => default(VideoPixels::Bgr),
        /// YUV matrix. Without it, the stream's.
        color_matrix: Option<ColorMatrix> as word() => optional(r#""bt709""#),
        /// YUV range. Without it, the stream's.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// visiond reconnects if the camera does not answer, or sends no frame, for this long. It notices within 2 s that a camera
        /// has become unreachable or that its name has another address.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
        /// The table `[ffmpeg]`.
        ffmpeg: FfmpegConfig as table() => inherited,
    }
}

impl RtspConfig {
    /// Returns the configuration of the `preview_url` stream, if there is one.
    ///
    /// It decodes every frame, because people want motion, and leaves the pixels as they are, because a JPEG is YUV as well.
    pub fn preview(&self) -> Option<Self> {
        let (url, preview_url) = (self.preview_url.clone()?, None);
        Some(Self { url, preview_url, key_frames_only: false, pixels: VideoPixels::Native, ..self.clone() })
    }
}

/// How to handle a network camera's frames that refer to a lost one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagedFrames {
    /// Count them as lost.
    Drop,
    /// Mark their frames as damaged.
    Mark,
}

/// The transport of RTP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RtspTransport {
    /// Interleaved in the RTSP connection.
    Tcp,
    /// As UDP datagrams.
    Udp,
}

/// The decoder of a network camera's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDecoding {
    /// The first that works.
    Auto,
    /// NVDEC, the GPU's video engine.
    Nvdec,
    /// A Jetson's video engine, through GStreamer.
    Gstreamer,
    /// ffmpeg on the CPU.
    Ffmpeg,
}

impl RtspTransport {
    /// Returns the name used in the configuration and the log.
    pub fn name(self) -> &'static str {
        word_of(self)
    }
}

network_camera! {
    /// A network camera that sends a series of JPEGs over HTTP (MJPEG, multipart/x-mixed-replace). visiond finds the images by
    /// their own structure, whatever the camera states about their boundaries, and decodes them in its own process.
    pub struct MjpegConfig {
        /// The stream: http:// or https://. visiond sends `login` only to this host.
        url: String as http_url() => required(r#""http://192.168.1.20/video.mjpg""#),
    }
    login {
        /// visiond reconnects if the camera does not answer, or sends no image, for this long.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
    }
}

network_camera! {
    /// A network camera that serves snapshots over HTTP, as JPEG, PNG, BMP, WebP, GIF, TIFF or PNM. visiond requests one at
    /// intervals.
    pub struct SnapshotConfig {
        /// The snapshot: http:// or https://. visiond sends `login` only to this host.
        url: String as http_url() => required(r#""http://192.168.1.20/snapshot.jpg""#),
        /// Interval between requests. If the camera takes longer to answer, visiond waits for the answer before it sends the next
        /// one.
        interval: Duration as duration(20 * MS..=HOUR) => default(SECOND),
    }
    login {
        /// Time limit for an answer. visiond reopens the source if requests fail for this long and for two intervals.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
    }
}

section! {
    /// A video file or URL, decoded by ffmpeg.
    pub struct VideoConfig {
        /// Path or URL: anything that ffmpeg reads. visiond opens it twice, first with ffprobe, so a sender that connects once
        /// needs `type = "command"`. With https://, ffmpeg accepts any certificate, so an attacker on the network path can read
        /// the login and replace the video: `input_args = ["-tls_verify", "1", "-ca_file", "FILE"]` prevents that.
        url: String as location() => required(r#""https://192.168.1.20/stream1.m3u8""#),
        /// User and password for the URL, as one line `user:password`: the name of a systemd credential, or a file path with a
        /// slash.
        login: Option<PathBuf> as credential() => optional(r#""gate""#),
        /// "realtime" follows the clock of the file, spreads the bursts of a live stream over HTTP, and drops late frames;
        /// "fastest" processes every frame.
        pace: Pace as word() => default(Pace::Realtime),
        /// Start again at the end of the video.
        repeat: bool as flag() => default(false),
        /// Stop after this number of frames. Without it, at the end.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
        /// Arguments for ffmpeg before its input, such as `["-rtsp_transport", "tcp"]`. Live streams are decoded without
        /// frame threads, which delay frames; `["-thread_type", "frame"]` enables them.
        input_args: Vec<String> as list(text()) => default(Vec::new()),
        /// Conversion of the video to BGR. "bgr" equals OpenCV's VideoCapture bit for bit, and so do the boxes. "native" follows
        /// the formulas of BT.601 and BT.709 exactly: colours differ from OpenCV's by about 1 level of 255, and about one box in 14
        /// differs.
        pixels: VideoPixels as word() => default(VideoPixels::Bgr),
        /// YUV matrix. Without it, the file's.
        color_matrix: Option<ColorMatrix> as word() => optional(r#""bt709""#),
        /// YUV range. Without it, the file's.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// visiond restarts ffmpeg if no frame arrives for this long.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
        /// The table `[ffmpeg]`.
        ffmpeg: FfmpegConfig as table() => inherited,
    }
}

/// The conversion of a video to BGR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoPixels {
    /// As ffmpeg and OpenCV convert it.
    Bgr,
    /// From the video's own planes, by the formulas.
    Native,
}

/// How fast to read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// By its clock; late frames are dropped.
    Realtime,
    /// As fast as the frames are processed; no frame is dropped.
    Fastest,
}

section! {
    /// A program that writes frames to standard output, to descriptor 3 or into shared memory.
    pub struct CommandConfig {
        /// Program and arguments, without a shell. A program name without a slash is searched for in PATH.
        command: Vec<String> as command_line() => required(r#"["gst-launch-1.0", "-q", "videotestsrc", "!", "video/x-raw,format=NV12,width=1280,height=720", "!", "fdsink"]"#),
        /// Format of the output. "y4m" (YUV4MPEG2) carries size and pixel format; "raw" is frames back to back and requires
        /// `format`, `width` and `height`, as does "shm": frames in shared memory, which are not copied. For "shm", the pipeline of
        /// GStreamer ends in `shmsink socket-path={socket}`; visiond puts a path in place of `{socket}`. Without it, "y4m".
        container: CommandContainer as word() => derived((r#""raw""#, CommandContainer::Y4m)),
        /// File descriptor that the program writes frames to. 1 is standard output. With 3 (`fdsink fd=3` in GStreamer),
        /// standard output goes to the log, so that printed text cannot mix with the frames.
        fd: u32 as choice(&[1, 3]) => default(1),
        /// Raw frames: pixel format.
        format: Option<PixelFormat> as word() => optional(r#""nv12""#),
        /// Raw frames: width in pixels.
        width: Option<u32> as whole(1..=MAX_SIDE) => optional("1280"),
        /// Raw frames: height in pixels.
        height: Option<u32> as whole(1..=MAX_SIDE) => optional("720"),
        /// Raw frames: bytes from row to row, one number per plane; empty: rows without padding.
        pitches: Vec<usize> as list(whole(1..=1 << 20)) => default(Vec::new()),
        /// "realtime" takes the newest frame and drops older ones; "fastest" processes every frame and makes the program wait.
        pace: Pace as word() => default(Pace::Realtime),
        /// Start the program again after it exits with status 0, because a camera never ends.
        repeat: bool as flag() => default(true),
        /// Stop after this number of frames. Without it, never.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
        /// YUV matrix.
        color_matrix: ColorMatrix as word() => default(ColorMatrix::Bt601),
        /// YUV range. Without it, Y4M's, otherwise limited; full for grey10, grey12 and grey16.
        color_range: Option<ColorRange> as word() => optional(r#""limited""#),
        /// Raw grey frames of 10, 12 or 16 bits: the samples that become black and white. Without it, 0 and the largest value.
        levels: Option<GreyLevels> as levels() => optional("[28815, 31315]"),
        /// visiond restarts the program if no frame arrives for this long.
        timeout: Duration as duration(100 * MS..=HOUR) => default(10 * SECOND),
    }
}

/// Format of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandContainer {
    /// YUV4MPEG2, with headers.
    Y4m,
    /// Frames back to back, without a header.
    Raw,
    /// Frames in shared memory, by GStreamer's `shmsink`.
    Shm,
}

/// What stands for the path of the socket in a program's arguments, with [`CommandContainer::Shm`].
pub const SOCKET: &str = "{socket}";

section! {
    /// A folder of images.
    pub struct ImagesConfig {
        /// A folder, whose images are read in the order of their names, or one image file.
        path: PathBuf as path() => required(r#""pictures""#),
        /// Also read the images in subfolders, at most 16 levels deep. Links to folders are not followed.
        recursive: bool as flag() => default(false),
        /// Keep reading new and replaced images. An image is read when its writer closes it or renames it into the folder.
        watch: bool as flag() => default(false),
        /// Interval at which visiond scans a watched folder that inotify cannot watch, such as a network share. Set it to less than
        /// half the time after which a camera replaces its image. A longer interval reduces the load on the file server.
        watch_interval: Duration as duration(10 * MS..=HOUR) => default(500 * MS),
        /// Start again after the last image.
        repeat: bool as flag() => default(false),
        /// Images per second. Without it, images are processed as fast as possible, and none is dropped.
        fps: Option<f64> as real(0.001..=1000.0) => optional("5"),
    }
}

section! {
    /// A moving test pattern.
    pub struct PatternConfig {
        /// Width in pixels.
        width: u32 as whole(1..=MAX_SIDE) => default(1280),
        /// Height in pixels.
        height: u32 as whole(1..=MAX_SIDE) => default(720),
        /// Frames per second.
        fps: f64 as real(0.01..=1000.0) => default(30.0),
        /// Pixel format.
        format: PixelFormat as word() => default(PixelFormat::Nv12),
        /// Stop after this number of frames. Without it, never.
        max_frames: Option<u64> as whole(1..=i64::MAX as u64) => optional("1000"),
    }
}

section! {
    /// Follows objects from frame to frame.
    pub struct TrackConfig {
        /// How long an object may be unseen before its track ends.
        unseen: Duration as duration(10 * MS..=HOUR) => default(2500 * MS),
        /// The score from which a detection keeps a track by itself, 0 to 1; a track begins at 0.1 more. A detection with a lower score
        /// only keeps a track alive. Without it, the model's `score_threshold`, limited to 0.25 to 0.6.
        score: Option<f64> as fraction() => optional("0.5"),
        /// Track only these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
    }
}

section! {
    /// A model on a camera.
    pub struct CameraModelConfig {
        /// Name of the `[[model]]`.
        name: String as name() => required(r#""objects""#),
        /// Maximum frames of this camera per second for this model; further frames are skipped, which counts as the drop cause
        /// "skipped". Without it, every frame that the other limits leave. Only for sources that do not wait for the model.
        max_fps: Option<f64> as real(0.001..=1000.0) => optional("5"),
        /// Run on every n-th frame only; the others count as "skipped". The camera's `max_fps` applies before, the model's after.
        every: u64 as whole(1..=1_000_000) => default(1),
        /// Keep only detections of these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
        /// Drop detections below this score. It can only raise the camera's and the model's own `score_threshold`.
        score_threshold: Option<f64> as fraction() => optional("0.6"),
        /// Drop boxes whose longer side is shorter than this, in pixels of the frame. Detections without a box are kept.
        min_size: Option<u32> as whole(1..=MAX_SIDE) => optional("24"),
        /// Drop boxes whose longer side is longer than this, in pixels of the frame.
        max_size: Option<u32> as whole(1..=MAX_SIDE) => optional("400"),
        /// The part of the frame that this model sees, as the camera's `crop`, and in its place.
        crop: Option<Crop> as crop() => optional("[0.0, 0.5, 1.0, 0.5]"),
        /// Run the model on overlapping tiles of what it sees, and on the whole, for objects that are too small in the whole:
        /// `{ size = 640 }` or `{ columns = 3, rows = 2 }`. See docs/tiles.md.
        tiles: Option<TilesConfig> as table() => optional_part,
    }
}

section! {
    /// Cuts what a model sees into tiles.
    pub struct TilesConfig {
        /// Width and height of a tile in pixels of the frame; as many tiles as are needed, at most 63. The last column and row move
        /// inwards.
        size: Option<u32> as whole(32..=MAX_SIDE) => optional("640"),
        /// Tiles side by side, in place of `size`.
        columns: Option<u32> as whole(1..=63) => optional("3"),
        /// Tiles on top of each other, in place of `size`.
        rows: Option<u32> as whole(1..=63) => optional("2"),
        /// The part of a tile that its neighbour also sees. An object that is smaller than this is whole in one of them.
        overlap: f64 as real(0.0..=0.9) => default(0.2),
    }
}

impl TilesConfig {
    /// Returns how the picture is cut; `None` without a size and without columns and rows, which `check` refuses.
    pub fn tiling(&self) -> Option<Tiling> {
        let overlap = self.overlap;
        match (self.size, self.columns.zip(self.rows)) {
            (Some(size), _) => Some(Tiling::Size { size, overlap }),
            (None, Some((columns, rows))) => Some(Tiling::Grid { columns, rows, overlap }),
            (None, None) => None,
        }
    }
}

impl CameraConfig {
    /// Returns the areas that are blanked.
    ///
    /// # Errors
    /// The corners of one are no polygon; `check` reports that.
    pub fn privacy_masks(&self) -> Result<Vec<PrivacyMask>, PolygonError> {
        let mask = |mask: &PrivacyConfig| {
            Ok(PrivacyMask { polygon: Polygon::new(&mask.polygon, mask.frame_size)?, fill: mask.fill })
        };
        self.privacy.iter().map(mask).collect()
    }
}

section! {
    /// A table `[[camera.privacy]]`.
    pub struct PrivacyConfig {
        /// The corners in order, 3 to 64, as fractions of the frame's width and height from its top-left corner. Every pixel that the
        /// polygon touches is blanked.
        polygon: Vec<[f64; 2]> as points() => required("[[0.0, 0.0], [0.3, 0.0], [0.3, 0.1], [0.0, 0.1]]"),
        /// The corners are pixels of a frame of this width and height. They keep their places if the camera's frames have another size.
        frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// The pixels become "black", a "mosaic" of blocks of a fortieth of the frame's longer side, or the colour [red, green, blue].
        fill: Fill as fill() => default(Fill::Color([0, 0, 0])),
    }
}

section! {
    /// A table `[[camera.ignore]]`.
    pub struct IgnoreConfig {
        /// The corners in order, 3 to 64, as fractions of the frame's width and height from its top-left corner. A detection whose
        /// anchor, the middle of its box's lower edge, is inside is dropped.
        polygon: Vec<[f64; 2]> as points() => required("[[0.0, 0.0], [0.3, 0.0], [0.3, 0.1], [0.0, 0.1]]"),
        /// The corners are pixels of a frame of this width and height. They keep their places if the camera's frames have another size.
        frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// Drop only these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
    }
}

impl IgnoreConfig {
    /// Returns the area.
    ///
    /// # Errors
    /// The corners are no polygon; `check` reports that.
    pub fn area(&self) -> Result<Polygon, PolygonError> {
        Polygon::new(&self.polygon, self.frame_size)
    }
}

section! {
    /// The table `[camera.annotate]`.
    pub struct AnnotateConfig {
        /// Folder for the images; created if missing.
        directory: PathBuf as path() => required(r#""/var/lib/visiond/pictures""#),
        /// Store every n-th frame. Without it, or with 0, only the frames that `on_detection` and `on_event` select.
        every: u64 as whole(0..=i64::MAX as u64) => derived(("30", 0)),
        /// Store every frame that has a detection.
        on_detection: bool as flag() => default(false),
        /// Store an image of each event of the camera's lines and zones. A frame that shows the object larger, surer or sharper replaces it while the
        /// event lasts. See docs/events.md.
        on_event: bool as flag() => default(false),
        /// File format. "jpeg" has quality 90.
        format: PictureFormat as word() => default(PictureFormat::Jpeg),
        /// Maximum number of images per camera; the oldest are deleted. 0: no limit.
        keep: usize as whole(0..=1_000_000_000) => default(1000),
    }
}

section! {
    /// The table `[camera.clips]`.
    pub struct ClipsConfig {
        /// Folder for the clips; created if missing.
        directory: PathBuf as path() => required(r#""/var/lib/visiond/clips""#),
        /// Video before the event begins. A clip of the camera's own stream begins at the key frame before that.
        before: Duration as duration_or_zero(100 * MS..=60 * SECOND) => default(5 * SECOND),
        /// Video after the event ends.
        after: Duration as duration_or_zero(100 * MS..=60 * SECOND) => default(5 * SECOND),
        /// The longest clip, with the video before and after. If an event lasts longer, its clip ends there.
        longest: Duration as duration(SECOND..=HOUR) => default(60 * SECOND),
        /// Only events of these lines and zones; empty: of all.
        rules: Vec<String> as list(text()) => default(Vec::new()),
        /// Only events of these kinds; empty: of all.
        kinds: Vec<EventKind> as list(word()) => default(Vec::new()),
        /// Maximum memory for the video of the last seconds, at least what the camera sends in `before` and 5 s.
        max_memory_bytes: u64 as size(MIB..=1 << 40) => default(64 * MIB),
        /// Maximum number of clips per camera; the oldest are deleted. 0: no limit.
        keep: usize as whole(0..=1_000_000_000) => default(1000),
        /// Maximum size of all clips of the camera; the oldest are deleted. 0: no limit.
        max_bytes: u64 as size_or_zero(MIB..=1 << 50) => default(4096 * MIB),
    }
}

/// What a line or zone reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// An object crossed a line.
    Line,
    /// An object visited a zone.
    Zone,
    /// An object was in a zone for long.
    Dwell,
    /// An object was in a zone for long, in all its visits.
    Loitering,
    /// A number of objects was in a zone.
    Occupancy,
    /// A zone was empty for long.
    Absence,
    /// An object stood still.
    Stopped,
    /// An object moved in the wrong direction.
    WrongWay,
    /// An object had a speed.
    Speed,
    /// A thing was left by its owner.
    LeftBehind,
    /// A thing was taken away without its owner.
    TakenAway,
}

impl EventKind {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        word_of(self)
    }
}

/// File format of annotated images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// JPEG, quality 90.
    Jpeg,
    /// PNG.
    Png,
}

words!(ColorMatrix: "bt601" = Self::Bt601, "bt709" = Self::Bt709, "bt2020" = Self::Bt2020);
words!(ColorRange: "limited" = Self::Limited, "full" = Self::Full);
words!(StreamDecoding: "auto" = Self::Auto, "nvdec" = Self::Nvdec, "gstreamer" = Self::Gstreamer, "ffmpeg" = Self::Ffmpeg);
words!(RtspTransport: "tcp" = Self::Tcp, "udp" = Self::Udp);
words!(DamagedFrames: "drop" = Self::Drop, "mark" = Self::Mark);
words!(VideoPixels: "bgr" = Self::Bgr, "native" = Self::Native);
words!(IoMode: "userptr" = Self::Userptr, "mmap" = Self::Mmap, "copy" = Self::Copy);
words!(Pace: "realtime" = Self::Realtime, "fastest" = Self::Fastest);
words!(CommandContainer: "y4m" = Self::Y4m, "raw" = Self::Raw, "shm" = Self::Shm);
words!(Flip: "horizontal" = Self::Horizontal, "vertical" = Self::Vertical);
words!(
    EventKind: "line" = Self::Line,
    "zone" = Self::Zone,
    "dwell" = Self::Dwell,
    "loitering" = Self::Loitering,
    "occupancy" = Self::Occupancy,
    "absence" = Self::Absence,
    "stopped" = Self::Stopped,
    "wrong_way" = Self::WrongWay,
    "speed" = Self::Speed,
    "left_behind" = Self::LeftBehind,
    "taken_away" = Self::TakenAway
);
words!(PictureFormat: "jpeg" = Self::Jpeg, "png" = Self::Png);

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
