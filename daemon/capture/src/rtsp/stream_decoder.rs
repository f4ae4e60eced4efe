//! The common parts of the stream decoders.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{RtspConfig, RtspTransport};
use visiond_frames::clock::Clock;
use visiond_system::stop::Stop;

use super::super::buffers::Buffers;
use super::super::source::{Next, SourceError, Worked};
use super::access_unit::AccessUnit;
use super::failure;
use super::running_session::RunningSession;
use super::unit_queue::{Taken, UnitQueue};

/// How long the next key frame may take if frames wait for one.
pub const KEY_FRAME_WAIT: Duration = Duration::from_secs(60);

/// A camera's stream, from the decoder's side.
pub struct Stream {
    pub config: RtspConfig,
    pub buffers: Buffers,
    pub queue: Arc<UnitQueue>,
    /// The camera's name.
    pub camera: String,
    /// The URL as errors and the log show it.
    pub origin: String,
    pub clock: Arc<dyn Clock>,
    /// gst-launch, if GStreamer may decode the stream.
    pub gstreamer: Option<PathBuf>,
}

impl Stream {
    /// Returns how long a frame may take.
    pub fn frame_timeout(&self) -> Duration {
        let waits = if self.config.key_frames_only { KEY_FRAME_WAIT } else { Duration::ZERO };
        self.config.timeout.max(waits)
    }

    /// Takes the next unit for a decoder with the parameters of `generation`, on the camera's thread, until the awaited frame is
    /// due. The camera may send units that no decoder can use, if it never sends another key frame.
    pub fn take_unit(
        &self,
        session: &RunningSession,
        generation: u64,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<AccessUnit, DecoderEnd> {
        let is_over = || {
            stop.mark_progress();
            stop.is_raised()
        };
        match session.take(generation, deadline, is_over) {
            Taken::Unit(unit) => Ok(unit),
            Taken::OtherParameters => Err(DecoderEnd::OtherParameters),
            Taken::Ended => Err(DecoderEnd::SessionEnded),
            Taken::Cancelled => Err(DecoderEnd::Stopped),
            Taken::TimedOut => Err(DecoderEnd::Failed(self.no_frame())),
        }
    }

    /// Returns the error for a stream that yields no frame.
    pub fn no_frame(&self) -> SourceError {
        let seconds = self.frame_timeout().as_secs_f64();
        if self.queue.awaits_entry() {
            let remedy = match self.config.transport {
                RtspTransport::Tcp => "shorten the interval of key frames (GOP) in the camera",
                RtspTransport::Udp => {
                    "set `transport = \"tcp\"`, or shorten the interval of key frames (GOP) in the camera"
                }
            };
            let error = format!("no key frame from {} for {seconds} s after a loss: {remedy}", self.origin);
            return SourceError::transient(error);
        }
        SourceError::transient(format!("no frame from {} for {seconds} s", self.origin))
    }

    /// Returns the error for a stream whose frames are all damaged.
    pub fn damaged(&self) -> SourceError {
        SourceError::transient(failure::damaged(&self.origin, self.frame_timeout(), self.config.transport, None))
    }

    /// Returns the error for a stream that cannot be read.
    pub fn unreadable(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::transient(format!("cannot read the video of {}: {reason}", self.origin))
    }

    /// Returns the error for a stream that cannot be decoded.
    pub fn undecodable(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::transient(format!("cannot decode the video of {}: {reason}", self.origin))
    }
}

/// Makes frames from a stream's access units.
pub trait StreamDecoder: Send {
    /// Waits for the next frame of `session`, which gets the number `sequence`, or for a loss.
    fn next(&mut self, session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd>;

    /// Whether [`work`](Self::work) can replace [`next`](Self::next).
    fn shares_thread(&self) -> bool {
        false
    }

    /// The same as [`next`](Self::next), without waiting. `is_readable` says whether the session has data to read. Only
    /// [`next`](Self::next) handles the decoder's end.
    fn work(&mut self, _session: &RunningSession, _sequence: u64, _is_readable: bool) -> Result<Worked, SourceError> {
        Ok(Worked::NeedsThread)
    }

    /// Returns the decoder as the configuration names it.
    fn name(&self) -> &'static str;

    /// Returns codec, size and formats, for the log.
    fn describe(&self) -> String;

    /// Returns how many frames it has decoded.
    fn decoded(&self) -> u64;
}

/// How a decoder ended.
#[derive(Debug)]
pub enum DecoderEnd {
    /// The stream continues with different parameters.
    OtherParameters,
    SessionEnded,
    Stopped,
    Failed(SourceError),
}
