//! Why a preprocess cannot be made or run.

use crate::buffer::BufferError;
use crate::cuda::{CudaError, ModuleError};
use crate::frame::MAX_SIDE;
use crate::tensor::{DType, ShapeText};

/// A frame cannot be preprocessed as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// Width or height out of range.
    #[error("a network input of {width}x{height} is out of range: each side must be 1 to {MAX_SIDE} pixels")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Pixels cannot be of that type.
    #[error("pixels cannot be stored as {dtype}: the input must be f32, f16, u8 or i8")]
    ElementType {
        /// Element type.
        dtype: DType,
    },
    /// The padding is no pixel value.
    #[error("pad is {value}: it is a pixel value before normalisation, 0 to 255")]
    Pad {
        /// Value given.
        value: f32,
    },
    /// The crop takes nothing, or more than there is.
    #[error("the crop's fraction is {value}: it must be above 0 and at most 1")]
    CropFraction {
        /// Value given.
        value: f64,
    },
    /// A number is infinite or not a number.
    #[error("{name} is {value}: it must be a finite number")]
    NotFinite {
        /// Field of the spec.
        name: &'static str,
        /// Value given.
        value: f32,
    },
    /// Division by zero.
    #[error("std of channel {channel} is 0, and values are divided by it: use 1 to leave them as they are")]
    ZeroStd {
        /// Channel, counted from 0.
        channel: usize,
    },
    /// The tensor has another element type.
    #[error("the input tensor holds {found}, the preprocess was made for {expected}")]
    TensorType {
        /// The spec's type.
        expected: DType,
        /// The tensor's type.
        found: DType,
    },
    /// The tensor has another shape.
    #[error(
        "the input tensor is {}, the preprocess writes {}: the model and its card disagree",
        ShapeText(.found),
        ShapeText(.expected)
    )]
    TensorShape {
        /// The spec's shape.
        expected: Vec<usize>,
        /// The tensor's shape.
        found: Vec<usize>,
    },
    /// More frames at once than the preprocess was made for.
    #[error("{frames} frames were given at once, the preprocess was made for {max_batch}")]
    Batch {
        /// Frames given.
        frames: usize,
        /// Frames it has room for.
        max_batch: usize,
    },
    /// A call of CUDA failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The kernel cannot be had.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// No memory to stage frames in.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}
