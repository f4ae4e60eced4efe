//! Why a detector cannot be made or run.

use visiond_kernels::buffer::BufferError;
use visiond_kernels::cuda::CudaError;
use visiond_kernels::filter::FilterError;
use visiond_kernels::preprocess::PreprocessError;

use crate::backend::EngineError;
use crate::heads::HeadError;

/// Network, card and limits do not go together, or a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The network could not be made ready or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The card's head does not read the network's outputs.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The preprocess could not be made.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// A frame could not become the network's input.
    #[error("{error}")]
    Frame {
        /// Which of the run's frames, counted from 0.
        slot: usize,
        /// Why not.
        error: PreprocessError,
    },
    /// A run of no frames, or of too many.
    #[error("a run takes 1 to {most} frames, and {found} were given")]
    Frames {
        /// Frames given.
        found: usize,
        /// Frames of one run at most.
        most: usize,
    },
    /// Every flight is under way.
    #[error("as many runs as can be are under way ({max_in_flight}): finish one before the next is begun")]
    Busy {
        /// Runs that may be under way at once.
        max_in_flight: usize,
    },
    /// CUDA refused or failed.
    #[error("the GPU failed: {0}")]
    Cuda(#[from] CudaError),
    /// The candidate filter could not be made or run.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// There is no memory that CPU and GPU share.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The outputs stay on the GPU.
    #[error("raw outputs were not asked for when the detector was made, so they stay on the GPU")]
    NoRawOutputs,
    /// A flight that was not begun, or has been finished.
    #[error("there is no such run under way to finish")]
    NotInFlight,
    /// The card names an input that is not there.
    #[error("the card ({card}) names the input `{name}`, the network has {inputs}")]
    NoSuchInput {
        /// Where the card comes from.
        card: String,
        /// Name in the card.
        name: String,
        /// The network's inputs.
        inputs: String,
    },
    /// No input, or more than one, looks like a picture.
    #[error("which input takes the picture? The network has {inputs}: name it as `input.name` in the card ({card})")]
    NoPictureInput {
        /// Where the card comes from.
        card: String,
        /// The network's inputs.
        inputs: String,
    },
    /// The picture's input has a shape that no picture has.
    #[error(
        "input `{input}` does not take a picture as the card ({card}) has it: it wants {wanted}; mend `input` in the card, or \
         use another model"
    )]
    NotAPicture {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
        /// What would fit.
        wanted: String,
    },
    /// Neither the card nor the network tells the size.
    #[error("input `{input}` has no fixed size: set `input.size = [width, height]` in the card ({card})")]
    SizeUnknown {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
    },
    /// An input besides the picture is not in the card.
    #[error(
        "the network also wants the input `{input}`: say in the card ({card}) what to fill it with, under `extra_inputs`"
    )]
    ExtraInputMissing {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
    },
    /// The card's numbers do not fill the input.
    #[error("the card ({card}) gives {found} numbers for the input `{input}`, which takes {expected}")]
    ExtraInputCount {
        /// Where the card comes from.
        card: String,
        /// The input, with type and shape.
        input: String,
        /// Numbers that it takes, as text.
        expected: String,
        /// Numbers given.
        found: usize,
    },
    /// A class to look for is none of the network's.
    #[error("the network has no class `{name}`{hint}")]
    UnknownClass {
        /// Asked for.
        name: String,
        /// The nearest names, or how many classes there are; starts with its punctuation.
        hint: String,
    },
    /// A slot beyond the batch, or one without a frame.
    #[error("slot {slot} holds no result: {why}")]
    Slot {
        /// Asked for.
        slot: usize,
        /// Why it cannot be.
        why: String,
    },
    /// An output is not by frame, so that a batch cannot be taken apart.
    #[error(
        "output `{name}` is {shape} after a run of {frames} frames, so that it cannot be told which frame a row is of: run one \
         frame at a time (a batch of 1)"
    )]
    NotByFrame {
        /// Name of the output.
        name: String,
        /// Its shape.
        shape: String,
        /// Frames of the run.
        frames: usize,
    },
}

impl DetectorError {
    /// Whether the process has lost the GPU, so that it must end.
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
