//! What a lane asks of a network; the detector of the engine crate is the one that counts.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use visiond_engine::detector::{Detection, Detector, DetectorError, RunCounts, RunId, RunTimings};
use visiond_kernels::frame::FrameView;
use visiond_kernels::nvtx;

/// How much a failure costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This one of the run's frames; the run can be begun without it.
    Frame(usize),
    /// The run.
    Run,
    /// The GPU, for as long as this process lives: every later call fails too.
    Process,
}

/// Whatever a network complains of; its text is a sentence.
#[derive(Debug)]
pub struct NetworkError {
    /// What it costs.
    pub fault: Fault,
    error: Box<dyn Error + Send + Sync>,
}

impl NetworkError {
    /// A failure that costs so much.
    pub fn new(fault: Fault, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { fault, error: error.into() }
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl From<DetectorError> for NetworkError {
    fn from(error: DetectorError) -> Self {
        let fault = match error {
            DetectorError::Frame { slot, .. } => Fault::Frame(slot),
            ref error if error.is_fatal() => Fault::Process,
            _ => Fault::Run,
        };
        Self::new(fault, error)
    }
}

/// Makes a network with a fresh session.
pub type Build = Box<dyn Fn() -> Result<Box<dyn Network>, NetworkError> + Send>;

/// Frames in, detections out, a batch at a time: `begin` a run, `finish` it, ask for each slot's `detections`.
pub trait Network: Send {
    /// Frames of one run at most.
    fn batch(&self) -> usize;

    /// Runs that may be under way at once.
    fn flights(&self) -> usize;

    /// The name of a class.
    fn label(&self, class_id: u32) -> Arc<str>;

    /// Begins a run; the frames may be given back afterwards.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, NetworkError>;

    /// Waits for a run to end; they end in the order in which they were begun.
    fn finish(&mut self, flight: RunId) -> Result<RunTimings, NetworkError>;

    /// What was seen in a slot's frame, best first, in place of what `out` holds.
    fn detections(&mut self, flight: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), NetworkError>;

    /// What was counted so far; nothing off a GPU.
    fn counts(&self) -> RunCounts {
        RunCounts::default()
    }
}

impl Network for Detector {
    fn batch(&self) -> usize {
        Self::batch(self)
    }

    fn flights(&self) -> usize {
        Self::max_in_flight(self)
    }

    fn label(&self, class_id: u32) -> Arc<str> {
        Self::label(self, class_id)
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, NetworkError> {
        let _range = nvtx::range(c"preprocess");
        Ok(Self::begin(self, frames)?)
    }

    fn finish(&mut self, flight: RunId) -> Result<RunTimings, NetworkError> {
        let _range = nvtx::range(c"engine");
        Ok(Self::finish(self, flight)?)
    }

    fn detections(&mut self, flight: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), NetworkError> {
        let _range = nvtx::range(c"filter");
        Ok(Self::detections(self, flight, slot, out)?)
    }

    fn counts(&self) -> RunCounts {
        Self::counts(self)
    }
}
