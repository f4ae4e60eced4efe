//! Why a detector cannot be made or run.

use visiond_kernels::buffer::BufferError;
use visiond_kernels::cuda::CudaError;
use visiond_kernels::filter::FilterError;
use visiond_kernels::preprocess::PreprocessError;

use crate::backend::EngineError;
use crate::heads::HeadError;

/// Why a detector cannot be made or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The card's head does not fit the model's outputs.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The preprocessor cannot be made.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// A frame cannot be preprocessed.
    #[error("{error}")]
    Frame {
        /// The index of the frame in the run.
        slot: usize,
        /// The reason.
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
    #[error("{max_in_flight} runs are in flight already: finish one first")]
    Busy {
        /// The maximum number of runs in flight.
        max_in_flight: usize,
    },
    /// A CUDA call failed.
    #[error("the GPU failed: {0}")]
    Cuda(#[from] CudaError),
    /// The candidate filter cannot be made or run.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Memory that CPU and GPU share cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The outputs stay on the GPU.
    #[error("cannot read raw outputs: the detector was made without them, so they stay on the GPU")]
    NoRawOutputs,
    /// The run was not begun, or is finished already.
    #[error("the run is not in flight")]
    NotInFlight,
    /// The card names an input that the model does not have.
    #[error("the card ({card}) names the input `{name}`, but the model has {inputs}")]
    NoSuchInput {
        /// Where the card comes from.
        card: String,
        /// The name in the card.
        name: String,
        /// The model's inputs.
        inputs: String,
    },
    /// No input looks like a picture, or more than one does.
    #[error("cannot tell which input takes the picture: the model has {inputs}; set `input.name` in the card ({card})")]
    NoPictureInput {
        /// Where the card comes from.
        card: String,
        /// The model's inputs.
        inputs: String,
    },
    /// The shape of the input does not fit a picture.
    #[error(
        "input `{input}` does not take a picture as the card ({card}) has it: it needs {wanted}; correct `input` in the card, or \
         use another model"
    )]
    NotAPicture {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
        /// The shape that would fit.
        wanted: String,
    },
    /// Neither the card nor the model gives the input's size.
    #[error("input `{input}` has no fixed size: set `input.size = [width, height]` in the card ({card})")]
    SizeUnknown {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
    },
    /// The card does not say how to fill an extra input.
    #[error(
        "the model also needs the input `{input}`: set what to fill it with under `extra_inputs` in the card ({card})"
    )]
    ExtraInputMissing {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
    },
    /// The numbers in the card do not fill the input.
    #[error("the card ({card}) gives {found} numbers for the input `{input}`, which takes {expected}")]
    ExtraInputCount {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
        /// The number of values that it takes, as text.
        expected: String,
        /// The number of values given.
        found: usize,
    },
    /// The model does not have a wanted class.
    #[error("the model has no class `{name}`{hint}")]
    UnknownClass {
        /// The name that was asked for.
        name: String,
        /// The nearest names, or how many classes there are; starts with its punctuation.
        hint: String,
    },
    /// The slot is beyond the batch or had no frame.
    #[error("slot {slot} holds no result: {why}")]
    Slot {
        /// The slot that was asked for.
        slot: usize,
        /// Why it holds no result.
        why: String,
    },
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
    /// Whether the process has lost the GPU and must exit.
    pub fn is_fatal(&self) -> bool {
        let cuda = match self {
            Self::Cuda(error) | Self::Buffer(BufferError::Cuda { error, .. }) => Some(error),
            Self::Filter(error) => error.cuda(),
            Self::Preprocess(error) | Self::Frame { error, .. } => match error {
                PreprocessError::Cuda(error) | PreprocessError::Buffer(BufferError::Cuda { error, .. }) => Some(error),
                PreprocessError::Module(error) => error.cuda(),
                _ => None,
            },
            Self::Engine(error) => return error.is_fatal(),
            _ => None,
        };
        cuda.is_some_and(CudaError::is_sticky)
    }
}
