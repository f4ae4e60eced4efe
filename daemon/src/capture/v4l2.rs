//! A camera behind V4L2, by buffers of the driver's that are mapped here (MMAP).
//!
//! For a network on the GPU the driver's buffers are registered with CUDA where it can: a frame then stays where the driver
//! wrote it, the GPU reads it there, and the buffer is queued again after that. Else, and for a network on the CPU (which
//! some drivers' uncached buffers would slow down), a frame is copied once and its buffer goes back to the driver at once.
//! JPEG is decoded out of the driver's buffer into one of ours.

mod color;
mod device;
pub mod fourcc;
mod negotiate;
mod sequence;
mod stream;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use v4l::v4l_sys as sys;
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::jpeg::JpegDecoder;

use self::device::{Capabilities, Node};
use self::negotiate::Agreed;
use self::sequence::{Place, Sequence};
pub use self::stream::Lent;
use self::stream::{Filled, Stream};
use super::buffers::Buffers;
use super::clock::{self, Clock};
use super::frame::{Frame, FrameBytes, FramePool, Instant, Timestamp};
use super::source::{LossCause, Next, Source, SourceError};
use crate::config::types::{CameraFormat, V4l2Config};
use crate::pipeline::stop::{Stop, Wake};

/// Buffers asked of the driver: one being filled, one being copied, and two for when this thread comes late. Where frames
/// stay in them, as many more as a pool would have.
const DRIVER_BUFFERS: u32 = 4;

/// How long a wait for a buffer from the pipeline lasts before stop is looked at again.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// The source of `type = "v4l2"`.
pub struct V4l2Source {
    config: V4l2Config,
    label: String,
    description: String,
    stream: Stream,
    layout: FrameLayout,
    way: Way,
    copied_bytes: u64,
    clock: Arc<dyn Clock>,
    sequence: Sequence,
    /// What a buffer brought beside a gap before it.
    pending: VecDeque<Next>,
}

/// How a picture comes out of the driver's buffer.
enum Way {
    /// It stays there, and the GPU reads it there.
    InPlace,
    /// One copy.
    Copied(FramePool),
    /// The camera sends JPEG.
    Decoded(FramePool, JpegDecoder),
}

impl V4l2Source {
    /// Opens the camera, sets it as configured, and starts its stream.
    pub fn open(
        config: &V4l2Config,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let label = format!("camera {name}");
        let device = config.device.display();
        let node = Node::open(&config.device).map_err(|error| unopened(config, &error))?;
        let capabilities = node.capabilities().map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => gone(config, &error),
            _ => SourceError::permanent(format!(
                "{device} is no V4L2 device (QUERYCAP: {error}): `visiond probe` lists the cameras, correct `device`"
            )),
        })?;
        check(config, &capabilities)?;
        let Agreed { format, layout, fps } = negotiate::negotiate(&node, config, &label)?;
        let is_jpeg = format == CameraFormat::Mjpeg;
        let gpu = buffers.memory.device().filter(|_| !is_jpeg && buffers.memory.kind() != MemoryKind::Host);
        let lent = gpu.map_or(0, |_| buffers.count as u32);
        let mut stream = Stream::new(node, DRIVER_BUFFERS + lent).map_err(|error| unstarted(config, &error))?;
        let registered = gpu.map(|gpu| stream.register(gpu));
        stream.start().map_err(|error| unstarted(config, &error))?;
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
            None if is_jpeg => {
                (Way::Decoded(buffers.pool(layout.size_bytes())?, JpegDecoder::new()), "decoded".to_owned())
            }
            None => (Way::Copied(buffers.pool(layout.size_bytes())?), "one copy".to_owned()),
        };
        let rate = fps.map(|fps| format!(" at {} fps", (fps * 100.0).round() / 100.0)).unwrap_or_default();
        let description = format!(
            "{device} ({}, {}): {}x{} {}{rate}, MMAP, {} buffers, {told}",
            capabilities.card,
            capabilities.bus,
            layout.width(),
            layout.height(),
            fourcc::word(format),
            stream.buffer_count()
        );
        Ok(Self {
            config: config.clone(),
            label,
            description,
            stream,
            layout,
            way,
            copied_bytes: 0,
            clock,
            sequence: Sequence::default(),
            pending: VecDeque::new(),
        })
    }

    /// Waits for a buffer of the driver's; `None` when stop came first.
    fn wait(&mut self, stop: &Stop) -> Result<Option<Filled>, SourceError> {
        let until = Moment::now() + self.config.timeout;
        loop {
            if !self.stream.reclaim(STOP_CHECK).map_err(|error| gone(&self.config, &error))? {
                // Every buffer is with the lane, which is not the camera's fault.
                if stop.is_raised() {
                    return Ok(None);
                }
                continue;
            }
            let left = until.saturating_duration_since(Moment::now());
            match stop.wait_readable(self.stream.as_fd(), Some(left)).map_err(|error| gone(&self.config, &error))? {
                Wake::Stopped => return Ok(None),
                Wake::Ready => {}
                Wake::TimedOut => {
                    return Err(SourceError::transient(format!(
                        "no frame of {} for {} s: it may be stuck or have no signal",
                        self.config.device.display(),
                        self.config.timeout.as_secs_f64()
                    )));
                }
            }
            if let Some(filled) = self.stream.take().map_err(|error| gone(&self.config, &error))? {
                return Ok(Some(filled));
            }
        }
    }

    /// Makes a frame of a buffer and gives the buffer back.
    fn receive(&mut self, filled: Filled) -> Result<Next, SourceError> {
        let Place { sequence, missing } = self.sequence.place(filled.sequence);
        let timestamp = stamp(&filled, self.clock.as_ref());
        let came = match self.take_out(filled)? {
            Ok(Some(buffer)) => Next::Frame(Frame { layout: self.layout, buffer, sequence, timestamp, name: None }),
            Ok(None) => Next::Lost { frames: 1, cause: LossCause::Overload },
            Err(reason) => {
                log::debug!("{}: frame {sequence} is lost: {reason}", self.label);
                Next::Lost { frames: 1, cause: LossCause::Corrupt }
            }
        };
        if missing == 0 {
            return Ok(came);
        }
        self.pending.push_back(came);
        Ok(Next::Lost { frames: missing, cause: LossCause::Driver })
    }

    /// The picture: where it is, copied or decoded; `None` where every buffer is on its way; the inner error where it is not
    /// whole. The driver's buffer goes back unless the picture stays in it.
    fn take_out(&mut self, filled: Filled) -> Result<Result<Option<FrameBytes>, String>, SourceError> {
        let flags = filled.flags;
        let bytes = self.stream.bytes(&filled);
        let taken = match &mut self.way {
            Way::InPlace => match whole(bytes, flags, &self.layout) {
                Ok(()) => return Ok(Ok(self.stream.lend(filled).map(FrameBytes::Driver))),
                Err(reason) => Err(reason),
            },
            Way::Copied(pool) => fill(pool, |out| {
                self.copied_bytes += copy(bytes, flags, &self.layout, out)? as u64;
                Ok(())
            }),
            Way::Decoded(pool, jpeg) => fill(pool, |out| decode(bytes, flags, &self.layout, jpeg, out)),
        };
        self.stream.give_back(filled).map_err(|error| gone(&self.config, &error))?;
        Ok(taken)
    }
}

impl Source for V4l2Source {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if let Some(next) = self.pending.pop_front() {
            return Ok(next);
        }
        match self.wait(stop)? {
            Some(filled) => self.receive(filled),
            None => Ok(Next::Stopped),
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }
}

/// A buffer of the pool, filled by `fill`; `None` where all are on their way.
fn fill(pool: &FramePool, fill: impl FnOnce(&mut [u8]) -> Result<(), String>) -> Result<Option<FrameBytes>, String> {
    let Some(mut buffer) = pool.take() else { return Ok(None) };
    fill(buffer.as_mut_slice())?;
    Ok(Some(buffer.into()))
}

/// Whether a buffer holds a whole picture of raw pixels; else why not.
fn whole(bytes: &[u8], flags: u32, layout: &FrameLayout) -> Result<(), String> {
    undamaged(flags)?;
    if bytes.len() < least_bytes(layout) {
        return Err(format!("it has {} bytes of {}", bytes.len(), least_bytes(layout)));
    }
    Ok(())
}

/// Copies a buffer's picture into `out`; returns the bytes copied.
fn copy(bytes: &[u8], flags: u32, layout: &FrameLayout, out: &mut [u8]) -> Result<usize, String> {
    whole(bytes, flags, layout)?;
    let length = bytes.len().min(layout.size_bytes()).min(out.len());
    out[..length].copy_from_slice(&bytes[..length]);
    Ok(length)
}

/// Decodes a buffer's JPEG into `out`; fails, with why, where it is not whole.
fn decode(
    bytes: &[u8],
    flags: u32,
    layout: &FrameLayout,
    jpeg: &mut JpegDecoder,
    out: &mut [u8],
) -> Result<(), String> {
    undamaged(flags)?;
    let found = jpeg.decode(bytes, out).map_err(|error| error.to_string())?;
    if (found.width(), found.height()) != (layout.width(), layout.height()) {
        return Err(format!("its picture has {}x{} pixels", found.width(), found.height()));
    }
    Ok(())
}

fn undamaged(flags: u32) -> Result<(), String> {
    if flags & sys::V4L2_BUF_FLAG_ERROR != 0 { Err("the driver marks it as damaged".to_owned()) } else { Ok(()) }
}

/// Bytes that a whole frame has at least: the last row of the last plane need not be padded.
fn least_bytes(layout: &FrameLayout) -> usize {
    let last = layout.planes().len() - 1;
    let padding = layout.planes()[last].pitch_bytes - layout.format().row_bytes(last, layout.width());
    layout.size_bytes() - padding
}

/// The frame's time: the driver's where its clock is ours, else now.
fn stamp(filled: &Filled, clock: &dyn Clock) -> Timestamp {
    if filled.flags & sys::V4L2_BUF_FLAG_TIMESTAMP_MASK != sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC {
        return clock::now(clock);
    }
    let instant = match filled.flags & sys::V4L2_BUF_FLAG_TSTAMP_SRC_MASK {
        sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE => Instant::StartOfExposure,
        _ => Instant::EndOfFrame,
    };
    clock::at_monotonic(clock, filled.timestamp_ns, instant)
}

/// Whether the node can do what is done here.
fn check(config: &V4l2Config, capabilities: &Capabilities) -> Result<(), SourceError> {
    let device = config.device.display();
    let Capabilities { card, driver, flags, .. } = capabilities;
    let has = |flag: u32| flags & flag != 0;
    if !has(sys::V4L2_CAP_VIDEO_CAPTURE) {
        return Err(SourceError::permanent(if has(sys::V4L2_CAP_VIDEO_CAPTURE_MPLANE) {
            format!(
                "{device} ({card}, driver {driver}) has V4L2's multi-planar API alone, which is not read: use a program \
                 that does, such as GStreamer's v4l2src, by `type = \"command\"`"
            )
        } else {
            format!(
                "{device} ({card}, driver {driver}) hands out no pictures, it is another of the device's nodes: `visiond \
                 probe` lists those that do, correct `device`"
            )
        }));
    }
    if !has(sys::V4L2_CAP_STREAMING) {
        return Err(SourceError::permanent(format!(
            "{device} ({card}, driver {driver}) has no streaming I/O, only read(): use a program that reads it, by `type = \
             \"command\"`"
        )));
    }
    Ok(())
}

/// The node could not be opened. All of these may pass: udev makes a node before it sets who may open it.
fn unopened(config: &V4l2Config, error: &io::Error) -> SourceError {
    let device = config.device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            format!(
                "{device} is not there: plug the camera in, or correct `device` (`visiond probe` lists the cameras)"
            )
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("{device} may not be opened by this user: add the user to the group `video`")
        }
        Some(libc::EBUSY) => format!("{device} is in use: another program has it, end that"),
        _ => format!("cannot open {device}: {error}"),
    })
}

/// The stream did not start.
fn unstarted(config: &V4l2Config, error: &io::Error) -> SourceError {
    let device = config.device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::EBUSY) => format!("{device} is in use: another program streams from it, end that"),
        Some(libc::ENOLINK | libc::ENOLCK) => format!("{device} has no signal at its input: check the cable"),
        Some(libc::ENOSPC) => format!(
            "{device} does not start: the USB bus has no bandwidth left for it; use \"mjpeg\", a smaller size or \
             rate, or another port"
        ),
        Some(libc::ENOMEM) => format!("{device} does not start: the driver has no memory for its buffers"),
        _ => format!("{device} does not start: {error}"),
    })
}

/// The stream broke.
fn gone(config: &V4l2Config, error: &io::Error) -> SourceError {
    SourceError::transient(format!("{} went away (unplugged?): {error}", config.device.display()))
}

#[cfg(test)]
#[path = "v4l2/tests.rs"]
mod tests;
