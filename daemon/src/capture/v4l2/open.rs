//! The order in which a camera is opened: node, capabilities, format and rate, buffers, start.

use std::path::Path;

use v4l::v4l_sys as sys;
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::jpeg::JpegDecoder;

use super::device::{Api, Capabilities, Node, NodeError};
use super::errors::{unknown, unopened, unstarted};
use super::negotiate::{self, Agreed};
use super::stream::Stream;
use super::{Way, controls, fourcc, least_bytes};
use crate::capture::buffers::Buffers;
use crate::capture::source::SourceError;
use crate::config::types::{CameraFormat, V4l2Config};

/// Buffers asked of the driver: one being filled, one being copied, and two for when this thread comes late. Where frames
/// stay in them, as many more as a pool would have.
const DRIVER_BUFFERS: u32 = 4;

/// An open camera that streams.
pub(super) struct Opened {
    pub stream: Stream,
    pub layout: FrameLayout,
    pub way: Way,
    pub description: String,
}

/// Opens the camera behind a node, sets it as configured, and starts its stream.
pub(super) fn open(path: &Path, config: &V4l2Config, label: &str, buffers: &Buffers) -> Result<Opened, SourceError> {
    let node = node(path)?;
    let choice = negotiate::choose(&node, config)?;
    let agreed = negotiate::set(&node, config, choice, label)?;
    controls::apply(&node, &config.controls, label);
    start(node, path, &agreed, buffers)
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

/// Has the driver make its buffers and begin.
fn start(node: Node, path: &Path, agreed: &Agreed, buffers: &Buffers) -> Result<Opened, SourceError> {
    let device = path.display();
    let Agreed { format, layout, fps } = *agreed;
    let Capabilities { card, bus, .. } = node.capabilities().clone();
    let is_jpeg = format == CameraFormat::Mjpeg;
    let gpu = buffers.memory.device().filter(|_| !is_jpeg && buffers.memory.kind() != MemoryKind::Host);
    let lent = gpu.map_or(0, |_| buffers.count as u32);
    let mut stream = Stream::new(node, DRIVER_BUFFERS + lent).map_err(|error| unstarted(path, &error))?;
    let registered = gpu.map(|gpu| stream.register(gpu));
    stream.start().map_err(|error| unstarted(path, &error))?;
    if !is_jpeg && stream.buffer_bytes() < least_bytes(&layout) {
        return Err(SourceError::permanent(format!(
            "{device}: the driver's buffers have {} bytes, a frame of its own description has {}",
            stream.buffer_bytes(),
            least_bytes(&layout)
        )));
    }
    let (way, told) = match registered {
        Some(Ok(())) => (Way::InPlace, "read in place by the GPU".to_owned()),
        Some(Err(error)) => (
            Way::Copied(buffers.pool(layout.size_bytes())?),
            format!("one copy, as they cannot be registered: {error}"),
        ),
        None if is_jpeg => (Way::Decoded(buffers.pool(layout.size_bytes())?, JpegDecoder::new()), "decoded".to_owned()),
        None => (Way::Copied(buffers.pool(layout.size_bytes())?), "one copy".to_owned()),
    };
    let rate = fps.map(|fps| format!(" at {} fps", (fps * 100.0).round() / 100.0)).unwrap_or_default();
    let description = format!(
        "{device} ({card}, {bus}): {}x{} {}{rate}, MMAP, {} buffers, {told}",
        layout.width(),
        layout.height(),
        fourcc::word(format),
        stream.buffer_count()
    );
    Ok(Opened { stream, layout, way, description })
}

/// Whether the node can do what is done here.
pub(super) fn check(device: &Path, capabilities: &Capabilities) -> Result<(), SourceError> {
    let device = device.display();
    let Capabilities { card, driver, flags, .. } = capabilities;
    if capabilities.api().is_none() {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) hands out no pictures, it is another of the device's nodes: `visiond \
             probe` lists those that do, correct `device`"
        )));
    }
    if capabilities.api() == Some(Api::Multi) {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) has V4L2's multi-planar API alone, which is not read: use a program \
             that does, such as GStreamer's v4l2src, by `type = \"command\"`"
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
