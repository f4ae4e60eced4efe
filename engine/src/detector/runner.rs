//! The interface of the runners that pass frames through the model.

use std::time::Duration;

use visiond_kernels::frame::FrameView;
use visiond_kernels::mask::{Mask, MaskJob};
use visiond_kernels::placement::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

use super::error::DetectorError;
use super::run::{RunCounts, RunId, RunTimings};
use crate::backend::TensorInfo;
use crate::heads::{Decoded, Head};

/// Runs frames through the model: in host memory, or on the GPU.
pub(super) trait Runner: Send {
    /// Returns how frames are preprocessed.
    fn spec(&self) -> &PreprocessSpec;

    /// Returns the outputs as the model declares them.
    fn outputs(&self) -> &[TensorInfo];

    /// Returns how many runs may be in flight.
    fn max_in_flight(&self) -> usize;

    /// Begins a run of 1 to batch frames; returns when they are no longer needed.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, DetectorError>;

    /// Waits for the oldest run, which must be `run`.
    fn finish(&mut self, run: RunId) -> Result<RunTimings, DetectorError>;

    /// Returns the mapping from a slot of a finished run back to its frame.
    fn mapping(&self, run: RunId, slot: usize) -> Option<Mapping>;

    /// Decodes an existing slot of a finished run.
    fn decode(
        &mut self,
        run: RunId,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError>;

    /// Replaces `out` with the masks of some of the candidates that [`Runner::decode`] has just found in the slot. Returns
    /// how many are empty because they did not fit into memory; `None` if the model has no masks.
    fn masks(
        &mut self,
        run: RunId,
        slot: usize,
        decoded: &Decoded,
        jobs: &[MaskJob],
        out: &mut Vec<Mask>,
    ) -> Result<Option<usize>, DetectorError>;

    /// Returns an output of the last run.
    fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError>;

    /// Returns the batch size of the last run; a model with a fixed batch always runs all of it.
    fn frames_run(&self) -> usize;

    /// Returns the counters so far.
    fn counts(&self) -> RunCounts;
}

/// A runner and the head that reads its outputs.
pub(super) type RunnerAndHead<W> = (W, Box<dyn Head>);

pub(super) fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
