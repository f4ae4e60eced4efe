//! What every source of frames does.

use std::sync::Arc;
use std::time::Duration;

use visiond_flow::frame::Frame;
use visiond_flow::metrics::LossCause;
use visiond_system::stop::{Stop, Wake};

/// What came of waiting for a frame.
#[derive(Debug)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// Frames were lost before they reached us (damaged, or the driver had no buffer); go on.
    Lost {
        /// How many.
        frames: u64,
        /// Why.
        cause: LossCause,
    },
    /// Nothing can come for now, and the source waits by itself until it does: go on. Told when it begins, and when the reason
    /// changes.
    Waiting {
        /// A sentence: what is missing, what to check.
        reason: Arc<str>,
    },
    /// The source has no more (a file's end, not looped).
    End,
    /// The daemon is stopping.
    Stopped,
}

/// An open source: one camera, one file, one program.
pub trait Source: Send {
    /// Waits for the next frame. Returns within 100 ms of `stop`.
    ///
    /// An error ends this source: the supervisor drops it and opens it again after a back-off.
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError>;

    /// One line for the log and `probe`: what was opened, size, format, rate, I/O.
    fn describe(&self) -> String;

    /// How frames come out of a driver, by the configuration's word; `None` where there is none, or no stream now.
    fn io(&self) -> Option<&'static str> {
        None
    }

    /// Bytes of frames that were copied so far on their way from where they came (a driver's buffer, a decoder's picture)
    /// into the frame's buffer. What comes through a pipe, or is decoded straight into the buffer, is not.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// A source cannot be opened, or ended other than at its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// A sentence: what was attempted, with what, what the system said, what to do.
    pub message: Arc<str>,
    /// Whether trying again can help (a camera that is away) or not (a file that is no video).
    pub retry: bool,
}

impl SourceError {
    /// An error that trying again may mend.
    pub fn transient(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), retry: true }
    }

    /// An error that stays until somebody acts.
    pub fn permanent(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), retry: false }
    }
}

/// Opens a camera's source.
pub type Open = Box<dyn Opener>;

/// Opens a source, again and again; a closure does where there is nothing to remember or to listen to.
pub trait Opener: Send {
    /// Tries to.
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError>;

    /// Whether it is a device, which comes back or is exchanged without anybody telling.
    fn is_device(&self) -> bool {
        false
    }

    /// Waits until trying again may be worth it: [`Wake::Ready`] when there are news, [`Wake::TimedOut`] after `pause`.
    fn wait(&mut self, pause: Duration, stop: &Stop) -> Wake {
        if stop.sleep(pause) { Wake::Stopped } else { Wake::TimedOut }
    }
}

impl<F: FnMut() -> Result<Box<dyn Source>, SourceError> + Send> Opener for F {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        self()
    }
}
