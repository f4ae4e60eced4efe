//! What every source of frames does.

use std::sync::Arc;

use super::frame::Frame;
use crate::pipeline::stop::Stop;

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

/// Why a source lost frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The driver or the program behind the source dropped them.
    Driver,
    /// They came damaged or short.
    Corrupt,
    /// Nothing took them in time: every buffer was on its way.
    Overload,
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
