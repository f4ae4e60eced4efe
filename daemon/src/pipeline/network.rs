//! What a lane asks of a network; the detector of the engine crate is the one that counts.

use std::error::Error;
use std::sync::Arc;

use visiond_engine::detector::{Detection, Detector};
use visiond_kernels::frame::FrameView;

/// Whatever a network complains of; its text is a sentence.
pub type NetworkError = Box<dyn Error + Send + Sync>;

/// Makes a network with a fresh session.
pub type Build = Box<dyn Fn() -> Result<Box<dyn Network>, NetworkError> + Send>;

/// Frames in, detections out, a batch at a time: `load` each slot, `infer` once, ask for each slot's `detections`.
pub trait Network: Send {
    /// Frames of one run at most.
    fn batch(&self) -> usize;

    /// The name of a class.
    fn label(&self, class_id: u32) -> Arc<str>;

    /// Preprocesses a frame into a slot; the frame may be given back afterwards.
    fn load(&mut self, slot: usize, frame: &FrameView<'_>) -> Result<(), NetworkError>;

    /// Runs the first `frames` slots.
    fn infer(&mut self, frames: usize) -> Result<(), NetworkError>;

    /// What was seen in a slot's frame, best first, in place of what `out` holds.
    fn detections(&mut self, slot: usize, out: &mut Vec<Detection>) -> Result<(), NetworkError>;
}

impl Network for Detector {
    fn batch(&self) -> usize {
        Self::batch(self)
    }

    fn label(&self, class_id: u32) -> Arc<str> {
        Self::label(self, class_id)
    }

    fn load(&mut self, slot: usize, frame: &FrameView<'_>) -> Result<(), NetworkError> {
        Ok(Self::load(self, slot, frame)?)
    }

    fn infer(&mut self, frames: usize) -> Result<(), NetworkError> {
        Ok(Self::infer(self, frames)?)
    }

    fn detections(&mut self, slot: usize, out: &mut Vec<Detection>) -> Result<(), NetworkError> {
        Ok(Self::detections(self, slot, out)?)
    }
}
