//! Receives buffers from the driver together with every clock at their arrival, for `selftest`, which checks the driver's values
//! before visiond converts them.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant as Moment;

use visiond_config::types::V4l2Config;
use visiond_frames::clock::{Clock, SystemClock};
use visiond_system::stop::{Stop, Wake};

use super::device::{Node, PixFormat};
use super::open::{OpenCamera, Streaming};
use super::quirks::Quirk;
use super::sample_alignment::SampleAlignment;
use super::signal::NoSignal;
use crate::buffers::Buffers;
use crate::source::SourceError;

/// A streaming camera, opened as `run` opens it.
pub struct Arrivals {
    /// Dropped before the node is closed.
    streaming: Streaming,
    camera: OpenCamera,
}

/// A buffer that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The driver's sequence number.
    pub sequence: u32,
    /// `V4L2_BUF_FLAG_*`.
    pub flags: u32,
    /// The driver's timestamp.
    pub timestamp_ns: u64,
    /// When the buffer was dequeued.
    pub arrived: Clocks,
}

/// All clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
    /// The machine's system counter; `None` except on arm64.
    pub counter_ns: Option<u64>,
}

impl Clocks {
    /// Reads the clocks.
    pub fn now() -> Self {
        Self {
            monotonic_ns: SystemClock.monotonic_ns(),
            realtime_ns: SystemClock.realtime_ns(),
            counter_ns: SystemClock.system_counter_ns(),
        }
    }
}

impl Arrivals {
    /// Opens the camera at `path` and starts its stream.
    pub fn open(path: &Path, config: &V4l2Config, buffers: &Buffers) -> Result<Result<Self, NoSignal>, SourceError> {
        let camera = OpenCamera::open(path, config, &format!("camera {}", path.display()), buffers)?;
        Ok(camera.begin()?.map(|streaming| Self { streaming, camera }))
    }

    /// Returns size, format, rate and I/O as text.
    pub fn description(&self) -> &str {
        &self.streaming.description
    }

    /// Returns the node.
    pub fn node(&self) -> &Arc<Node> {
        &self.camera.node
    }

    /// Returns the current format.
    pub fn format(&self) -> std::io::Result<PixFormat> {
        self.camera.node.format()
    }

    /// Returns where visiond reads samples that do not fill their words, for this driver.
    pub fn samples_read(&self) -> SampleAlignment {
        if self.camera.node.has(Quirk::SamplesFillWords) { SampleAlignment::Top } else { SampleAlignment::Bottom }
    }

    /// Waits for a buffer, passes the bytes of its first memory plane to `look`, and gives the buffer back.
    pub fn next(&mut self, stop: &Stop, look: impl FnOnce(&[u8])) -> Result<Arrival, SourceError> {
        let Self { streaming, camera } = self;
        let broken = |error| camera.broken(&error);
        let timeout = streaming.timeout();
        let until = Moment::now() + timeout;
        let mut empty_wakes = 0_u32;
        loop {
            let taken = streaming.stream.take().map_err(broken)?;
            let arrived = Clocks::now();
            if let Some(filled) = taken {
                look(streaming.stream.bytes(&filled, 0));
                let (sequence, flags, timestamp_ns) = (filled.sequence, filled.flags, filled.timestamp_ns);
                streaming.stream.give_back(filled).map_err(broken)?;
                streaming.had_frame = true;
                return Ok(Arrival { sequence, flags, timestamp_ns, arrived });
            }
            let left = until.saturating_duration_since(Moment::now());
            if left.is_zero() {
                let (path, seconds) = (camera.node.path().display(), timeout.as_secs_f64());
                return Err(SourceError::transient(format!("no frame from {path} for {seconds} s")));
            }
            let events = libc::POLLIN;
            let wake = stop.wait_events(camera.node.file.as_fd(), events, Some(left)).map_err(broken)?;
            if wake == Wake::Stopped {
                return Err(SourceError::transient("stopped"));
            }
            // Wait before the next query, because the driver may wake without a frame.
            empty_wakes += u32::from(wake == Wake::Ready);
            if empty_wakes > 1 && stop.sleep(super::PAUSE) {
                return Err(SourceError::transient("stopped"));
            }
        }
    }
}
