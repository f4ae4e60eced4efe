//! Why a detector cannot be created or run.

use visiond_kernels::buffer::BufferError;
use visiond_kernels::cuda::CudaError;
use visiond_kernels::filter::FilterError;
use visiond_kernels::mask::MaskError;
use visiond_kernels::preprocess::PreprocessError;

use crate::backend::EngineError;
use crate::card::Card;
use crate::heads::HeadError;

/// Why a detector cannot be created or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The card's head does not fit the model's outputs.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The preprocessor cannot be created.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// A frame cannot be preprocessed.
    #[error("{error}")]
    Frame {
        /// The index of the frame in the run.
        slot: usize,
        /// The reason.
        #[source]
        error: PreprocessError,
    },
    /// The number of frames is 0 or too large.
    #[error("a run takes 1 to {most} frames, not {found}")]
    Frames {
        /// The number of frames given.
        found: usize,
        /// The batch size.
        most: usize,
    },
    /// The maximum number of runs is in flight.
    #[error("{max_in_flight} runs are already in flight: finish one first")]
    Busy {
        /// The maximum number of runs in flight.
        max_in_flight: usize,
    },
    /// A CUDA call failed.
    #[error("the GPU failed: {0}")]
    Cuda(#[from] CudaError),
    /// The candidate filter cannot be created or run.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Masks cannot be computed on the GPU.
    #[error(transparent)]
    Masks(#[from] MaskError),
    /// Memory that CPU and GPU share cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The outputs stay on the GPU.
    #[error("cannot read raw outputs: the detector was made without them, so they stay on the GPU")]
    NoRawOutputs,
    /// The run was not begun, or is already finished.
    #[error("the run is not in flight")]
    NotInFlight,
    /// The card contradicts the model; with the location in the card.
    #[error("{0}")]
    Card(String),
    /// The model does not have a wanted class; the hint starts with its punctuation.
    #[error("the model has no class `{0}`{1}")]
    UnknownClass(String, String),
    /// The slot is beyond the batch or had no frame, and why.
    #[error("slot {0} holds no result: {1}")]
    Slot(usize, &'static str),
    /// The first dimension of an output is not the batch, so a batch cannot be split.
    #[error(
        "output `{name}` is {shape} after a run of {frames} frames, so its rows cannot be assigned to frames: run one \
         frame at a time (a batch of 1)"
    )]
    NotByFrame {
        /// The name of the output.
        name: String,
        /// Its shape.
        shape: String,
        /// The number of frames in the run.
        frames: usize,
    },
}

impl DetectorError {
    /// Returns the error for the card's `key`, such as `input.size`, with its location in the file.
    pub(super) fn at(card: &Card, key: &str, message: impl AsRef<str>) -> Self {
        Self::Card(card.problem_at(key, message.as_ref()))
    }
}
