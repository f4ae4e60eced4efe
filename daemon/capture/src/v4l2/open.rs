//! Opens a camera step by step: node, capabilities, input and its signal, controls, format and rate, buffers, start.
//!
//! When the signal has changed, the steps from the signal on are repeated, and the node stays open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use v4l::v4l_sys as sys;
use visiond_config::types::{IoMode, V4l2Config};

use super::controls::ControlSetter;
use super::device::{Capabilities, MAX_MEMORY_PLANES, Node, NodeError};
use super::errors::{gone, refused, unknown, unopened};
use super::extract::FrameExtractor;
use super::format_negotiation::{self, CameraPicture, NegotiatedFormat};
use super::fourcc;
use super::io_method::{self, BufferRequest};
use super::signal::{NoSignal, SignalWatch};
use super::stream::Stream;
use crate::buffers::Buffers;
use crate::source::SourceError;

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
        let seconds = fps.map_or(MOST, |fps| (10.0 / fps).clamp(LEAST, MOST));
        let next = Duration::from_secs_f64(seconds);
        Self { first: next.max(Duration::from_secs(3)), next }
    }
}

impl OpenCamera {
    /// Opens the camera behind a node, and selects its input.
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
        let mut setting = ControlSetter::new(node, config, label);
        setting.before_format();
        let choice = format_negotiation::choose(node, config)?;
        let mut negotiated = format_negotiation::set(node, config, choice, label)?;
        setting.after_format();
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
        let Self { node, config, buffers, .. } = self;
        let NegotiatedFormat { picture, pix, format, fps } = negotiated;
        let wanted = BufferRequest {
            lengths: lengths(negotiated),
            memory_plane_count: pix.memory_count.min(MAX_MEMORY_PLANES),
            is_jpeg: matches!(picture, CameraPicture::Jpeg(_)),
            io: config.io,
        };
        let (stream, mode, io) = io_method::choose(node, &wanted, buffers)?;
        let extract = FrameExtractor::new(picture, mode, &stream, buffers, node.path())?;
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

/// Returns the size of each memory plane: what the driver requests, and at least the picture with the driver's own pitches.
fn lengths(negotiated: &NegotiatedFormat) -> [usize; MAX_MEMORY_PLANES] {
    std::array::from_fn(|memory| {
        let said = negotiated.pix.memories.get(memory).map_or(0, |memory| memory.size_bytes as usize);
        match &negotiated.picture {
            CameraPicture::Raw(planes) => said.max(planes.needed_bytes(memory)),
            CameraPicture::Jpeg(_) => said,
        }
    })
}

/// Opens a node that captures pictures.
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
            "{device} ({card}, driver {driver}) does not capture pictures, it is another node of the device: set `device` to a \
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
    use super::*;

    #[test]
    fn a_frame_may_take_ten_frames_time_within_bounds() {
        let seconds = |fps| FrameTimeout::new(None, fps).next.as_secs_f64();
        assert_eq!([Some(30.0), Some(10.0), Some(0.5), None].map(seconds), [1.0, 1.0, 5.0, 5.0]);
        assert_eq!(FrameTimeout::new(None, Some(30.0)).first, Duration::from_secs(3));
        assert_eq!(FrameTimeout::new(None, None).first, Duration::from_secs(5));
        let minute = Duration::from_secs(60);
        assert_eq!(FrameTimeout::new(Some(minute), Some(30.0)), FrameTimeout { first: minute, next: minute });
    }
}
