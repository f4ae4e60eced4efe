//! The interface of what takes frames through the model.

use std::time::Duration;

use visiond_kernels::frame::FrameView;
use visiond_kernels::letterbox::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

use super::error::DetectorError;
use super::run::{RunCounts, RunId, RunTimings};
use crate::backend::TensorInfo;
use crate::heads::{Decoded, Head};

/// How frames go through the network and come back: by way of the host, or on the GPU.
pub(super) trait Runner: Send {
    /// How frames become pictures.
    fn spec(&self) -> &PreprocessSpec;

    /// The network's outputs, as declared.
    fn outputs(&self) -> &[TensorInfo];

    /// Runs that may be under way at once.
    fn max_in_flight(&self) -> usize;

    /// Begins a run of 1 to batch frames; returns when they are no longer needed.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, DetectorError>;

    /// Waits for the oldest run, which is `flight`.
    fn finish(&mut self, run: RunId) -> Result<RunTimings, DetectorError>;

    /// The way back from a slot of a finished run.
    fn mapping(&self, run: RunId, slot: usize) -> Option<Mapping>;

    /// Decodes one slot of a finished run, which has it.
    fn decode(
        &mut self,
        run: RunId,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError>;

    /// An output of the last run, and how many frames it has.
    fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError>;

    /// Frames that the last run's tensors have: a network with a fixed batch runs it all.
    fn frames_run(&self) -> usize;

    /// What was counted so far.
    fn counts(&self) -> RunCounts;
}

/// A way and the head that reads what comes of it.
pub(super) type RunnerAndHead<W> = (W, Box<dyn Head>);

pub(super) fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

pub(super) fn slot_error(slot: usize, why: &str) -> DetectorError {
    DetectorError::Slot { slot, why: why.to_owned() }
}
