//! The order in which a camera is opened: node, capabilities, input and its signal, format and rate, buffers, start.
//!
//! From the signal on the order is gone through again when the signal has changed, with the node open all the while.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use v4l::v4l_sys as sys;
use visiond_config::types::{IoMode, V4l2Config};

use super::controls::ControlSetter;
use super::device::{Capabilities, MAX_MEMORY_PLANES, Node, NodeError};
use super::errors::{gone, unknown, unopened};
use super::extract::FrameExtractor;
use super::format_negotiation::{self, NegotiatedFormat, Picture};
use super::fourcc;
use super::io_method::{self, Chosen, Wanted};
use super::signal::{NoSignal, SignalWatch};
use super::stream::Stream;
use crate::buffers::Buffers;
use crate::source::SourceError;

/// An open camera.
pub(super) struct Camera {
    pub node: Arc<Node>,
    pub watch: SignalWatch,
    pub label: String,
    config: V4l2Config,
    buffers: Buffers,
}

/// A camera's stream.
pub(super) struct Streaming {
    pub stream: Stream,
    pub extract: FrameExtractor,
    pub mode: IoMode,
    pub description: String,
    pub timeout: FrameTimeout,
}

/// How long a frame may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameTimeout {
    /// The first one, for which a sensor starts and an exposure is found.
    pub first: Duration,
    /// Each one after it.
    pub next: Duration,
}

impl FrameTimeout {
    /// As configured; else ten frames' time.
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

impl Camera {
    /// Opens the camera behind a node, and takes its input.
    pub fn open(path: &Path, config: &V4l2Config, label: &str, buffers: &Buffers) -> Result<Self, SourceError> {
        let node = Arc::new(node(path)?);
        let watch = SignalWatch::new(&node, config.input)?;
        Ok(Self { node, watch, label: label.to_owned(), config: config.clone(), buffers: buffers.clone() })
    }

    /// Sets the camera as configured and as its signal is, and starts its stream.
    pub fn begin(&self) -> Result<Result<Streaming, NoSignal>, SourceError> {
        let Self { node, watch, label, config, .. } = self;
        // What was told until now is answered by what is found now.
        watch.take_change(node);
        let timings =
            match watch.settle(node).map_err(|error| format_negotiation::refused(node, "tell its signal", &error))? {
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
            // It went away meanwhile, says the driver by an error of its own.
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

    /// Has the driver take its buffers and begin.
    fn start(&self, negotiated: &NegotiatedFormat) -> Result<Streaming, SourceError> {
        let Self { node, config, buffers, .. } = self;
        let NegotiatedFormat { picture, pix, format, fps } = negotiated;
        let wanted = Wanted {
            lengths: lengths(negotiated),
            memories: pix.memory_count.min(MAX_MEMORY_PLANES),
            is_jpeg: matches!(picture, Picture::Jpeg(_)),
            io: config.io,
        };
        let Chosen { stream, mode, told } = io_method::choose(node, &wanted, buffers)?;
        let extract = FrameExtractor::new(picture, mode, &stream, buffers, node.path())?;
        let rate = fps.map(|fps| format!(" at {} fps", (fps * 100.0).round() / 100.0)).unwrap_or_default();
        let description =
            format!("{}: {}x{} {}{rate}, {told}", self.describe(), pix.width, pix.height, fourcc::word(*format));
        Ok(Streaming { stream, extract, mode, description, timeout: FrameTimeout::new(config.timeout, *fps) })
    }

    /// Which camera it is.
    pub fn describe(&self) -> String {
        let Capabilities { card, bus, .. } = self.node.capabilities();
        format!("{} ({card}, {bus})", self.node.path().display())
    }

    /// What the driver's error in mid-stream means.
    pub fn broken(&self, error: &std::io::Error) -> SourceError {
        gone(self.node.path(), error)
    }
}

/// Bytes that a buffer of ours needs for each piece of a picture's memory: what the driver says, and never less than the
/// picture by the driver's own pitches.
fn lengths(negotiated: &NegotiatedFormat) -> [usize; MAX_MEMORY_PLANES] {
    std::array::from_fn(|memory| {
        let said = negotiated.pix.memories.get(memory).map_or(0, |memory| memory.size_bytes as usize);
        match &negotiated.picture {
            Picture::Raw(planes) => said.max(planes.needed_bytes(memory)),
            Picture::Jpeg(_) => said,
        }
    })
}

/// Opens a node that hands out pictures.
pub fn node(path: &Path) -> Result<Node, SourceError> {
    let node = Node::open(path).map_err(|error| match error {
        NodeError::Unopened(error) => unopened(path, &error),
        NodeError::Unknown(error) => unknown(path, &error),
    })?;
    check(path, node.capabilities())?;
    Ok(node)
}

/// Whether the node can do what is done here.
pub(super) fn check(device: &Path, capabilities: &Capabilities) -> Result<(), SourceError> {
    let device = device.display();
    let Capabilities { card, driver, flags, .. } = capabilities;
    if capabilities.api().is_none() {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) hands out no pictures, it is another of the device's nodes: `visiond \
             probe` lists those that do, name one of them"
        )));
    }
    if flags & sys::V4L2_CAP_STREAMING == 0 {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) has no streaming I/O, only read(): use a program that reads it, by `type = \
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
