//! A model as a lane runs it: the interface, its errors, and the detector of the engine crate behind it.

use std::error::Error;
use std::sync::Arc;

use visiond_engine::detector::{Detection, Detector, DetectorError, RunCounts, RunId, RunTimings};
use visiond_kernels::frame::FrameView;
use visiond_kernels::nvtx;

/// The extent of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One frame of the run, by its slot; the run can begin without it.
    Frame(usize),
    /// The whole run.
    Run,
    /// The GPU: every later call of this process fails too.
    Process,
}

/// Why a model could not run, with what that affects.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RunError {
    /// The extent of the failure.
    pub fault: Fault,
    error: Box<dyn Error + Send + Sync>,
}

impl RunError {
    /// Wraps an error.
    pub fn new(fault: Fault, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { fault, error: error.into() }
    }
}

impl From<DetectorError> for RunError {
    fn from(error: DetectorError) -> Self {
        let fault = match error {
            DetectorError::Frame { slot, .. } => Fault::Frame(slot),
            ref error if error.is_fatal() => Fault::Process,
            _ => Fault::Run,
        };
        Self::new(fault, error)
    }
}

/// Creates a model with a session of its own.
pub type BuildRunner = Box<dyn Fn() -> Result<Box<dyn ModelRunner>, RunError> + Send>;

/// Runs a model on a batch of frames: `begin` a run, `finish` it, then read each slot's `detections`.
pub trait ModelRunner: Send {
    /// Returns the most frames that a run takes.
    fn batch(&self) -> usize;

    /// Returns how many runs may be in flight at once.
    fn max_in_flight(&self) -> usize;

    /// Returns the name of a class.
    fn label(&self, class_id: u32) -> Arc<str>;

    /// Begins a run. The frames' buffers are free again when it returns.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError>;

    /// Waits for a run to end. Runs end in the order in which they began.
    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError>;

    /// Replaces `out` by the detections in a slot's frame, best first.
    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError>;

    /// Returns the GPU's counters so far; all 0 without a GPU.
    fn counts(&self) -> RunCounts {
        RunCounts::default()
    }
}

impl ModelRunner for Detector {
    fn batch(&self) -> usize {
        Self::batch(self)
    }

    fn max_in_flight(&self) -> usize {
        Self::max_in_flight(self)
    }

    fn label(&self, class_id: u32) -> Arc<str> {
        Self::label(self, class_id)
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError> {
        let _range = nvtx::range(c"preprocess");
        Ok(Self::begin(self, frames)?)
    }

    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError> {
        let _range = nvtx::range(c"engine");
        Ok(Self::finish(self, run_id)?)
    }

    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError> {
        let _range = nvtx::range(c"filter");
        Ok(Self::detections(self, run_id, slot, out)?)
    }

    fn counts(&self) -> RunCounts {
        Self::counts(self)
    }
}
