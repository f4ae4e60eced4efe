//! Opens a camera step by step: node, capabilities, input and its signal, controls, format and rate, buffers, start.
//!
//! When the signal has changed, the steps from the signal on are repeated, and the node stays open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use v4l::v4l_sys as sys;
use visiond_config::types::{IoMode, V4l2Config};

use super::capture_channel;
use super::controls::ControlSetter;
use super::device::{Capabilities, MAX_MEMORY_PLANES, Node, NodeError};
use super::errors::{gone, in_use, refused, unknown, unopened};
use super::extract::FrameExtractor;
use super::format_negotiation::{self, FrameData, NegotiatedFormat};
use super::fourcc;
use super::io_method::{self, BufferRequest};
use super::quirks::Quirk;
use super::sensor_modes;
use super::signal::{NoSignal, SignalWatch};
use super::stream::Stream;
use super::stream::io_support::{IoSupport, io_support};
use crate::buffers::Buffers;
use crate::source::SourceError;

/// The most bytes per pixel that a driver may request, in addition to [`SPARE_BYTES`]: twice those of the largest format.
const MOST_BYTES_PER_PIXEL: usize = 8;
const SPARE_BYTES: usize = 16 << 20;

pub(super) struct OpenCamera {
    pub node: Arc<Node>,
    pub watch: SignalWatch,
    pub label: String,
    config: V4l2Config,
    buffers: Buffers,
}

pub(super) struct Streaming {
    pub stream: Stream,
    pub extract: FrameExtractor,
    pub mode: IoMode,
    pub description: String,
    /// Whether a usable frame has arrived.
    pub had_frame: bool,
    timeout: FrameTimeout,
}

impl Streaming {
    /// Returns how long the next frame may take.
    pub fn timeout(&self) -> Duration {
        if self.had_frame { self.timeout.next } else { self.timeout.first }
    }
}

/// How long a frame may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameTimeout {
    /// The first frame, for which the sensor starts and finds its exposure.
    pub first: Duration,
    /// Each later frame.
    pub next: Duration,
}

impl FrameTimeout {
    /// Returns the configured timeout, otherwise the time of ten frames.
    pub fn new(configured: Option<Duration>, fps: Option<f64>) -> Self {
        const LEAST: f64 = 1.0;
        const MOST: f64 = 5.0;
        if let Some(timeout) = configured {
            return Self { first: timeout, next: timeout };
        }
        // A driver's rate, unlike ours, has no limits.
        let seconds = fps.filter(|&fps| fps > 0.0).map_or(MOST, |fps| (10.0 / fps).clamp(LEAST, MOST));
        let next = Duration::from_secs_f64(seconds);
        Self { first: next.max(Duration::from_secs(3)), next }
    }
}

impl OpenCamera {
    /// Opens the camera of a node, and selects its input.
    pub fn open(path: &Path, config: &V4l2Config, label: &str, buffers: &Buffers) -> Result<Self, SourceError> {
        let node = Arc::new(node(path)?);
        let watch = SignalWatch::new(&node, config.input)?;
        Ok(Self { node, watch, label: label.to_owned(), config: config.clone(), buffers: buffers.clone() })
    }

    /// Configures the camera for its signal, and starts its stream.
    pub fn begin(&self) -> Result<Result<Streaming, NoSignal>, SourceError> {
        let Self { node, watch, label, config, .. } = self;
        // Changes up to now are covered by the query below.
        watch.take_change(node);
        let settled = watch.settle(node);
        let timings = match settled.map_err(|error| refused(node, "query its signal", &error))? {
            Ok(timings) => timings,
            Err(missing) => return Ok(Err(missing)),
        };
        // The mode of the size is queried each time, because another program may have changed the controls. The driver uses
        // another mode while another program streams.
        if node.has(Quirk::ModeByControl) && io_support(node) == (IoSupport { userptr: None, mmap: None }) {
            return Err(in_use(node.path()));
        }
        let resolved = sensor_modes::resolved(node, config);
        let mut setting = ControlSetter::new(node, &resolved, label);
        setting.before_format();
        let choice = format_negotiation::choose(node, &resolved)?;
        let mut negotiated = format_negotiation::set(node, config, choice, label)?;
        setting.after_format();
        let NegotiatedFormat { pix, .. } = &negotiated;
        self.buffers.check_size(pix.width, pix.height).map_err(|error| {
            SourceError::permanent(format!("cannot read the frames of {}: {error}", node.path().display()))
        })?;
        if let Some(rate) = timings.and_then(|timings| timings.rate()) {
            negotiated.fps = Some(rate);
        }
        match self.start(&negotiated) {
            // The signal disappeared meanwhile, which the driver reports by its own error.
            Err(error) => match watch.look(node) {
                Ok(Err(missing)) => Ok(Err(missing)),
                _ => Err(error),
            },
            Ok(streaming) => {
                setting.while_streaming();
                Ok(Ok(streaming))
            }
        }
    }

    /// Gives the driver its buffers, and starts streaming.
    fn start(&self, negotiated: &NegotiatedFormat) -> Result<Streaming, SourceError> {
        let Self { node, config, label, buffers, .. } = self;
        let NegotiatedFormat { data, pix, format, fps } = negotiated;
        let is_jpeg = matches!(data, FrameData::Jpeg(_));
        let io = io_method::safe(node.has(Quirk::WrittenByPrograms), is_jpeg, config.io);
        if io != config.io {
            let unused = config.io.map(|io| format!("; `io = \"{}\"` is not used", io.name())).unwrap_or_default();
            let path = node.path().display();
            log::info!(
                "{label}: copying each frame, because the program that writes to {path} could change it later{unused}"
            );
        }
        let wanted = BufferRequest {
            lengths: lengths(negotiated).map_err(|error| {
                let device = node.path().display();
                SourceError::permanent(format!("{device}: the driver describes its frames wrongly: {error}"))
            })?,
            memory_plane_count: pix.memory_count.min(MAX_MEMORY_PLANES),
            is_jpeg,
            io,
        };
        capture_channel::check(node)?;
        let (stream, mode, io) = io_method::choose(node, &wanted, buffers)?;
        let extract = FrameExtractor::new(data, mode, &stream, buffers, node.path())?;
        let rate = fps.map(|fps| format!(" at {} fps", (fps * 100.0).round() / 100.0)).unwrap_or_default();
        let description =
            format!("{}: {}x{} {}{rate}, {io}", self.describe(), pix.width, pix.height, fourcc::word(*format));
        let timeout = FrameTimeout::new(config.timeout, *fps);
        Ok(Streaming { stream, extract, mode, description, had_frame: false, timeout })
    }

    pub fn describe(&self) -> String {
        let Capabilities { card, bus, .. } = self.node.capabilities();
        format!("{} ({card}, {bus})", self.node.path().display())
    }

    /// Explains an error of the driver while streaming.
    pub fn broken(&self, error: &std::io::Error) -> SourceError {
        gone(self.node.path(), error)
    }
}

/// A driver requests larger buffers than any frame of its size needs.
#[derive(Debug, thiserror::Error)]
#[error("its buffers would have {length} bytes for frames of {width}x{height}")]
struct WrongLength {
    length: usize,
    width: u32,
    height: u32,
}

/// Returns the size of each memory plane: what the driver requests, and at least the frame with the driver's own pitches.
fn lengths(negotiated: &NegotiatedFormat) -> Result<[usize; MAX_MEMORY_PLANES], WrongLength> {
    let NegotiatedFormat { data, pix, .. } = negotiated;
    let mut lengths = [0; MAX_MEMORY_PLANES];
    for (memory, length) in lengths.iter_mut().enumerate() {
        let said = pix.memories[memory].size_bytes as usize;
        *length = match data {
            FrameData::Raw(planes) => said.max(planes.needed_bytes(memory)),
            FrameData::Jpeg(_) => said,
        };
        let (length, width, height) = (*length, pix.width, pix.height);
        // Drivers pad rows and round sizes up a little, and let a JPEG have as many bytes as its pixels.
        if length > width as usize * height as usize * MOST_BYTES_PER_PIXEL + SPARE_BYTES {
            return Err(WrongLength { length, width, height });
        }
    }
    Ok(lengths)
}

/// Opens a node that captures frames.
pub fn node(path: &Path) -> Result<Node, SourceError> {
    let node = Node::open(path).map_err(|error| match error {
        NodeError::Unopened(error) => unopened(path, &error),
        NodeError::Unknown(error) => unknown(path, &error),
    })?;
    check(path, node.capabilities())?;
    Ok(node)
}

/// Checks that visiond can capture from the node.
pub(super) fn check(device: &Path, capabilities: &Capabilities) -> Result<(), SourceError> {
    let device = device.display();
    let Capabilities { card, driver, flags, .. } = capabilities;
    if capabilities.api().is_none() {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) does not capture frames, it is another node of the device: set `device` to a \
             node from `visiond probe`"
        )));
    }
    if flags & sys::V4L2_CAP_STREAMING == 0 {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) has no streaming I/O, only read(): read it in a program, with `type = \
             \"command\"`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_config::types::CameraFormat;
    use visiond_kernels::frame::PixelFormat;

    use super::*;
    use crate::v4l2::device::{MemoryPlaneFormat, PixFormat};

    #[test]
    fn buffers_that_no_picture_needs_are_refused() {
        let of = |code: &[u8; 4], format, pitch_bytes, size_bytes| {
            let mut pix = PixFormat { width: 640, height: 480, fourcc: *code, memory_count: 1, ..PixFormat::default() };
            pix.memories[0] = MemoryPlaneFormat { pitch_bytes, size_bytes };
            let config = V4l2Config::default();
            let data = format_negotiation::frame_data(&pix, format, &config).unwrap();
            lengths(&NegotiatedFormat { data, pix, format, fps: None })
        };
        let (yuyv, mjpeg) = (CameraFormat::Raw(PixelFormat::Yuyv), CameraFormat::Mjpeg);
        assert_eq!(of(b"YUYV", yuyv, 1280, 1280 * 480 + 4096).unwrap(), [1280 * 480 + 4096, 0, 0]);
        assert_eq!(of(b"YUYV", yuyv, 2048, 0).unwrap(), [2048 * 479 + 1280, 0, 0]);
        assert_eq!(of(b"MJPG", mjpeg, 0, 640 * 480 * 2).unwrap(), [640 * 480 * 2, 0, 0]);
        // To the byte.
        let most = 640 * 480 * MOST_BYTES_PER_PIXEL + SPARE_BYTES;
        assert_eq!(of(b"MJPG", mjpeg, 0, most as u32).unwrap(), [most, 0, 0]);
        assert!(of(b"MJPG", mjpeg, 0, most as u32 + 1).is_err());
        for (code, format, pitch_bytes, size_bytes) in
            [(b"YUYV", yuyv, 1280, u32::MAX), (b"YUYV", yuyv, 1 << 20, 0), (b"MJPG", mjpeg, 0, 1 << 30)]
        {
            let error = of(code, format, pitch_bytes, size_bytes).unwrap_err().to_string();
            assert!(error.contains("bytes for frames of 640x480"), "{error}");
        }
    }

    #[test]
    fn a_frame_may_take_ten_frames_time_within_bounds() {
        let seconds = |fps| FrameTimeout::new(None, fps).next.as_secs_f64();
        assert_eq!([Some(30.0), Some(10.0), Some(0.5), None].map(seconds), [1.0, 1.0, 5.0, 5.0]);
        assert_eq!(FrameTimeout::new(None, Some(30.0)).first, Duration::from_secs(3));
        assert_eq!(FrameTimeout::new(None, None).first, Duration::from_secs(5));
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(|fps| seconds(Some(fps))), [5.0, 5.0, 5.0, 1.0]);
        let minute = Duration::from_secs(60);
        assert_eq!(FrameTimeout::new(Some(minute), Some(30.0)), FrameTimeout { first: minute, next: minute });
    }
}
