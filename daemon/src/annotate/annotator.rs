//! Annotated pictures of one camera, drawn and stored on a thread of their own.
//!
//! Never slows the lane: one frame waits at most, and what comes while it waits is not drawn, counted. A frame's buffer is
//! given back as soon as its pixels are RGB, before drawing and encoding.

use std::sync::Arc;
use std::time::Instant;

use crate::capture::frame::Frame;
use crate::config::types::AnnotateConfig;
use crate::publish::message::Message;

/// Pictures cannot be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("annotated pictures of camera {camera}: {reason}")]
pub struct AnnotateError {
    /// The camera.
    pub camera: String,
    /// A sentence with its remedy.
    pub reason: String,
}

/// What became of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnnotateCounts {
    /// Pictures stored.
    pub written: u64,
    /// Not drawn, because another frame was still waiting.
    pub dropped_busy: u64,
    /// Lost because the picture could not be made or stored.
    pub failed: u64,
}

/// The pictures of one camera.
#[derive(Debug)]
pub struct Annotator {}

impl Annotator {
    /// Makes the folder where it is missing, counts the camera's pictures in it, and starts the thread.
    pub fn start(_config: &AnnotateConfig, _camera: &str) -> Result<Self, AnnotateError> {
        Ok(Self {})
    }

    /// Hands in a frame with what was seen in it; it is drawn if the configuration asks for it. Never waits.
    pub fn offer(&self, _frame: Frame, _message: Arc<Message>) {}

    /// As [`Annotator::offer`], but waits while another frame does: for sources that are read as fast as possible.
    pub fn offer_wait(&self, _frame: Frame, _message: Arc<Message>) {}

    /// What became of the frames so far.
    pub fn counts(&self) -> AnnotateCounts {
        AnnotateCounts::default()
    }

    /// Stores what waits, and ends the thread by `deadline`. A second call only tells the counts.
    pub fn close(&self, _deadline: Instant) -> AnnotateCounts {
        AnnotateCounts::default()
    }
}
