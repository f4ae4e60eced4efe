//! The V4L2 source: cameras and capture cards.
//!
//! Frames come by the best I/O method that the driver and the GPU accept (see [`io_method`]), mostly without a copy: the buffer
//! that the driver filled goes through the pipeline, and back to the driver once it was read. JPEG is copied, because another
//! process may write to the driver's buffer, and decoded into the kind of memory that the model reads.
//!
//! While its input has no signal, the camera stays open and waits for one.

pub mod arrivals;
mod capture_channel;
mod color;
pub mod controls;
pub mod device;
mod driver_timestamp;
mod errors;
mod extract;
pub mod find_camera;
pub mod format_negotiation;
pub mod formats;
pub mod fourcc;
mod frame_number;
mod hotplug;
pub mod identity;
pub mod io_method;
pub mod open;
pub(crate) mod opener;
mod planes;
mod quirks;
pub mod sample_alignment;
pub mod sensor_modes;
pub mod signal;
pub mod stream;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use visiond_config::types::V4l2Config;
use visiond_frames::clock::Clock;
use visiond_frames::coded_ring::CodedRing;
use visiond_frames::frame::{Frame, LossCause};
use visiond_system::stop::{Stop, Wake};

use self::driver_timestamp::TimestampConverter;
use self::frame_number::FrameNumbers;
use self::open::{OpenCamera, Streaming};
use self::signal::NoSignal;
use self::stream::FilledBuffer;
use super::buffers::Buffers;
use super::damage_watch::DamageWatch;
use super::source::{Next, Source, SourceError};

/// How long to wait for a buffer from the pipeline before checking stop again.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// How often to query the signal: while there is none, and while streaming if the driver sends no events.
const LOOK: Duration = Duration::from_millis(250);

/// How long to wait before querying a driver again that reported a frame but has none.
const PAUSE: Duration = Duration::from_millis(5);

/// The source of `type = "v4l2"`.
pub struct V4l2Source {
    state: StreamState,
    camera: OpenCamera,
    clock: Arc<dyn Clock>,
    numbers: FrameNumbers,
    timestamps: TimestampConverter,
    /// Bytes copied by streams that have ended.
    copied_bytes: u64,
    /// Frames to return after a gap before them was reported.
    pending: VecDeque<Next>,
    damage: DamageWatch,
    /// Gets the camera's JPEGs as they are, for clips.
    coded: Option<Arc<CodedRing>>,
}

enum StreamState {
    Streaming {
        streaming: Box<Streaming>,
        next_look: Moment,
    },
    /// The signal is missing or has changed. Holds the report.
    Waiting {
        reported: Option<NoSignal>,
    },
}

/// The result of waiting for a buffer.
enum Waited {
    Filled(FilledBuffer),
    SignalChanged,
    Stopped,
}

impl StreamState {
    fn streaming(streaming: Streaming) -> Self {
        Self::Streaming { streaming: Box::new(streaming), next_look: Moment::now() + LOOK }
    }
}

impl V4l2Source {
    /// Opens the camera at `node`, ignoring the configured device, and starts its stream if there is a signal.
    pub fn open_node(
        node: &Path,
        config: &V4l2Config,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let camera = OpenCamera::open(node, config, &format!("camera {name}"), buffers)?;
        let timestamps = TimestampConverter::new(&camera.node);
        let state = camera.begin()?.map_or(StreamState::Waiting { reported: None }, StreamState::streaming);
        Ok(Self {
            state,
            camera,
            clock,
            numbers: FrameNumbers::default(),
            timestamps,
            copied_bytes: 0,
            pending: VecDeque::new(),
            damage: DamageWatch::default(),
            coded: None,
        })
    }

    /// Puts the camera's JPEGs into `coded` as well. Each is copied out of the driver's buffer, because the driver needs it
    /// back.
    pub fn recording_to(mut self, coded: Option<Arc<CodedRing>>) -> Self {
        coded.iter().for_each(|coded| coded.begin_stream());
        self.coded = coded;
        self
    }

    /// Queries the signal, and waits a while if there is none. `None`: continue.
    fn find_signal(&mut self, stop: &Stop) -> Result<Option<Next>, SourceError> {
        let missing = match self.camera.begin().map_err(capture_channel::restarting_once)? {
            Ok(streaming) => {
                self.numbers.restart();
                self.damage.reset();
                self.state = StreamState::streaming(streaming);
                return Ok(None);
            }
            Err(missing) => missing,
        };
        let StreamState::Waiting { reported } = &mut self.state else { return Ok(None) };
        if reported.replace(missing) != Some(missing) {
            let reason = format!("{}: {missing}", self.camera.node.path().display());
            return Ok(Some(Next::Waiting { reason: reason.into() }));
        }
        let node = &self.camera.node;
        let wake = stop.wait_events(node.file.as_fd(), libc::POLLPRI, Some(LOOK));
        match wake.map_err(|error| self.camera.broken(&error))? {
            Wake::Stopped => Ok(Some(Next::Stopped)),
            // Wait before the next query, because the driver may wake without an event.
            Wake::Ready if !self.camera.watch.take_change(node) && stop.sleep(LOOK) => Ok(Some(Next::Stopped)),
            Wake::Ready | Wake::TimedOut => Ok(None),
        }
    }

    /// Waits for a filled buffer.
    fn wait(&mut self, stop: &Stop) -> Result<Waited, SourceError> {
        let Self { state: StreamState::Streaming { streaming, next_look }, camera, damage, .. } = self else {
            return Ok(Waited::SignalChanged);
        };
        let camera = &*camera;
        let OpenCamera { node, watch, .. } = camera;
        let broken = |error| camera.broken(&error);
        let timeout = streaming.timeout();
        let mut until = Moment::now() + timeout;
        loop {
            if !streaming.stream.reclaim(STOP_CHECK).map_err(broken)? {
                // The lane holds every buffer, which is not the camera's fault.
                stop.mark_progress();
                damage.reset();
                if stop.is_raised() {
                    return Ok(Waited::Stopped);
                }
                until = Moment::now() + timeout;
                continue;
            }
            let now = Moment::now();
            let is_late = now >= until;
            if is_late || (watch.must_look() && now >= *next_look) {
                *next_look = now + LOOK;
                if watch.is_live() && watch.look(node).map_err(broken)?.is_err() {
                    return Ok(Waited::SignalChanged);
                }
                if is_late {
                    return Err(SourceError::transient(format!(
                        "no frame from {} for {} s: the camera hangs",
                        node.path().display(),
                        timeout.as_secs_f64()
                    )));
                }
            }
            let end = if watch.must_look() { until.min(*next_look) } else { until };
            let events = libc::POLLIN | libc::POLLPRI;
            let left = end.saturating_duration_since(now);
            let wake = stop.wait_events(node.file.as_fd(), events, Some(left)).map_err(broken)?;
            if wake == Wake::Stopped {
                return Ok(Waited::Stopped);
            }
            // Even after the deadline: a late frame is better than none.
            if watch.take_change(node) {
                return Ok(Waited::SignalChanged);
            }
            if let Some(filled) = streaming.stream.take().map_err(broken)? {
                return Ok(Waited::Filled(filled));
            }
            // Wait before the next attempt, because the driver may wake without a frame.
            if wake == Wake::Ready && stop.sleep(PAUSE) {
                return Ok(Waited::Stopped);
            }
        }
    }

    /// Makes a frame from a buffer, and gives the buffer back.
    fn receive(&mut self, filled: FilledBuffer) -> Result<Next, SourceError> {
        let Self { state: StreamState::Streaming { streaming, .. }, camera, .. } = self else {
            return Ok(Next::Lost { frames: 1, cause: LossCause::Driver });
        };
        let (sequence, missing) = self.numbers.number(filled.sequence);
        let timestamp = self.timestamps.stamp(&filled, self.clock.as_ref(), &camera.label);
        let coded = self.coded.as_deref().map(|ring| (ring, Duration::from_nanos(timestamp.monotonic_ns)));
        let taken =
            streaming.extract.take(&mut streaming.stream, filled, coded).map_err(|error| camera.broken(&error))?;
        let came = match taken {
            Ok(Some((layout, buffer))) => {
                streaming.had_frame = true;
                self.damage.reset();
                Next::Frame(Frame {
                    layout,
                    buffer,
                    sequence,
                    timestamp,
                    recorded_at: None,
                    damaged: false,
                    name: None,
                })
            }
            Ok(None) => {
                self.damage.reset();
                Next::Lost { frames: 1, cause: LossCause::Overload }
            }
            Err(damage) => {
                log::debug!("{}: lost frame {sequence}: {damage}", camera.label);
                let timeout = streaming.timeout();
                if self.damage.is_over(self.clock.monotonic_ns(), timeout) {
                    return Err(damage.lasting(camera.node.path(), timeout));
                }
                Next::Lost { frames: 1, cause: LossCause::Corrupt }
            }
        };
        if missing == 0 {
            return Ok(came);
        }
        self.pending.push_back(came);
        Ok(Next::Lost { frames: missing, cause: LossCause::Driver })
    }
}

impl Source for V4l2Source {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if let Some(next) = self.pending.pop_front() {
            return Ok(next);
        }
        loop {
            if matches!(self.state, StreamState::Waiting { .. }) {
                match self.find_signal(stop)? {
                    Some(next) => return Ok(next),
                    None => continue,
                }
            }
            match self.wait(stop)? {
                Waited::Filled(filled) => return self.receive(filled),
                Waited::Stopped => return Ok(Next::Stopped),
                Waited::SignalChanged => {
                    self.copied_bytes = self.copied_bytes();
                    // The buffers must be freed before the signal's timings can be set.
                    self.state = StreamState::Waiting { reported: None };
                }
            }
        }
    }

    fn describe(&self) -> String {
        match &self.state {
            StreamState::Streaming { streaming, .. } => streaming.description.clone(),
            StreamState::Waiting { .. } => format!("{}: open", self.camera.describe()),
        }
    }

    fn io(&self) -> Option<&'static str> {
        match &self.state {
            StreamState::Streaming { streaming, .. } => Some(streaming.mode.name()),
            StreamState::Waiting { .. } => None,
        }
    }

    fn copied_bytes(&self) -> u64 {
        let now = match &self.state {
            StreamState::Streaming { streaming, .. } => streaming.extract.copied_bytes(),
            StreamState::Waiting { .. } => 0,
        };
        self.copied_bytes + now
    }
}

#[cfg(test)]
mod tests;
