//! A camera behind V4L2, by buffers of the driver's that are mapped here (MMAP).
//!
//! For a network on the GPU the driver's buffers are registered with CUDA where it can: a frame then stays where the driver
//! wrote it, the GPU reads it there, and the buffer is queued again after that. Else, and for a network on the CPU (which
//! some drivers' uncached buffers would slow down), a frame is copied once and its buffer goes back to the driver at once.
//! JPEG is decoded out of the driver's buffer into one of ours.

mod color;
pub mod controls;
pub mod device;
mod errors;
pub mod fourcc;
pub mod identity;
pub mod negotiate;
pub mod offers;
pub mod open;
pub mod opener;
mod reserved;
mod sequence;
mod stream;
mod watch;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use v4l::v4l_sys as sys;
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::jpeg::JpegDecoder;

use self::errors::gone;
use self::open::Opened;
use self::sequence::{Place, Sequence};
pub use self::stream::Lent;
use self::stream::{Filled, Stream};
use super::buffers::Buffers;
use super::clock::{self, Clock};
use super::frame::{Frame, FrameBytes, FramePool, Instant, Timestamp};
use super::source::{LossCause, Next, Source, SourceError};
use crate::config::types::V4l2Config;
use crate::pipeline::stop::{Stop, Wake};

/// How long a wait for a buffer from the pipeline lasts before stop is looked at again.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// The source of `type = "v4l2"`.
pub struct V4l2Source {
    config: V4l2Config,
    device: PathBuf,
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
        let found = identity::find(&config.device, None).map_err(|error| SourceError::transient(error.to_string()))?;
        Self::open_node(&found.node, config, name, buffers, clock)
    }

    /// Does so with the camera behind `node`, whatever the configuration calls it.
    pub fn open_node(
        node: &Path,
        config: &V4l2Config,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let label = format!("camera {name}");
        let Opened { stream, layout, way, description } = open::open(node, config, &label, buffers)?;
        Ok(Self {
            config: config.clone(),
            device: node.to_owned(),
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
            if !self.stream.reclaim(STOP_CHECK).map_err(|error| gone(&self.device, &error))? {
                // Every buffer is with the lane, which is not the camera's fault.
                if stop.is_raised() {
                    return Ok(None);
                }
                continue;
            }
            let left = until.saturating_duration_since(Moment::now());
            match stop.wait_readable(self.stream.as_fd(), Some(left)).map_err(|error| gone(&self.device, &error))? {
                Wake::Stopped => return Ok(None),
                Wake::Ready => {}
                Wake::TimedOut => {
                    return Err(SourceError::transient(format!(
                        "no frame of {} for {} s: it may be stuck or have no signal",
                        self.device.display(),
                        self.config.timeout.as_secs_f64()
                    )));
                }
            }
            if let Some(filled) = self.stream.take().map_err(|error| gone(&self.device, &error))? {
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
        self.stream.give_back(filled).map_err(|error| gone(&self.device, &error))?;
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

#[cfg(test)]
#[path = "v4l2/tests.rs"]
mod tests;
