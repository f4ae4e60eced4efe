//! Reads frames of one size from a program's pipe into pooled buffers, with no copy but the kernel's.

use std::time::{Duration, Instant};

use visiond_config::types::Pace;
use visiond_frames::frame::{Frame, FramePool, LossCause, PooledBuffer};
use visiond_frames::timestamp::Timestamp;
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{Child, Filled};
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::source::{Next, SourceError};

/// Why a program's output could not be read to the end of a frame, header or answer.
#[derive(Debug)]
pub enum ReadError {
    /// The program closed its output after this many bytes.
    Ended(usize),
    /// Stop was raised.
    Stopped,
    Failed(SourceError),
}

impl From<SourceError> for ReadError {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

/// Fills `buffer` from the output of `child`. For errors, `what` names the expected data, and `origin` where it comes from.
pub fn fill(
    child: &mut Child,
    buffer: &mut [u8],
    stop: &Stop,
    timeout: Duration,
    what: &str,
    origin: impl Fn() -> String,
) -> Result<(), ReadError> {
    let message = match child.fill(buffer, stop, Instant::now() + timeout) {
        Ok(Filled::Full) => return Ok(()),
        Ok(Filled::Ended(read)) => return Err(ReadError::Ended(read)),
        Ok(Filled::Stopped) => return Err(ReadError::Stopped),
        Ok(Filled::TimedOut) => format!("no {what} from {} for {} s", origin(), timeout.as_secs_f64()),
        Err(error) => format!("cannot read the output of {}: {error}", origin()),
    };
    Err(ReadError::Failed(SourceError::transient(message)))
}

/// The buffers of a source that reads a pipe.
#[derive(Debug)]
pub struct PipeFrames {
    pub layout: FrameLayout,
    pool: FramePool,
    /// The last frame that was discarded; empty until the first.
    pub discarded: Vec<u8>,
    pace: Pace,
}

impl PipeFrames {
    pub fn new(layout: FrameLayout, buffers: &Buffers, pace: Pace) -> Result<Self, SourceError> {
        Ok(Self { layout, pool: buffers.pool(layout.size_bytes())?, discarded: Vec::new(), pace })
    }

    /// Reads the next frame. With `pace = "fastest"` it waits for a free buffer; otherwise it discards the frame, and returns
    /// `None`, if no buffer is free.
    ///
    /// `timeout` applies to the program: waiting for a buffer does not count.
    pub fn read(
        &mut self,
        child: &mut Child,
        stop: &Stop,
        timeout: Duration,
        origin: impl Fn() -> String,
    ) -> Result<Option<PooledBuffer>, ReadError> {
        let bytes = self.layout.size_bytes();
        let mut buffer = match self.pace {
            Pace::Fastest => Some(self.pool.take_wait(stop).ok_or(ReadError::Stopped)?),
            Pace::Realtime => self.pool.take(),
        };
        let target = match &mut buffer {
            Some(buffer) => &mut buffer.as_mut_slice()[..bytes],
            None => {
                self.discarded.resize(bytes, 0);
                &mut self.discarded
            }
        };
        fill(child, target, stop, timeout, "frame", origin)?;
        Ok(buffer)
    }

    /// Makes a frame from the result of [`read`](Self::read).
    pub fn frame(
        &self,
        buffer: Option<PooledBuffer>,
        sequence: u64,
        timestamp: Timestamp,
        recorded_at: Option<Duration>,
    ) -> Next {
        let Some(buffer) = buffer else { return Next::Lost { frames: 1, cause: LossCause::Overload } };
        let (layout, buffer) = (self.layout, buffer.into());
        Next::Frame(Frame { layout, buffer, sequence, timestamp, recorded_at, damaged: false, name: None })
    }
}
