//! Why preprocessing is not possible.

use crate::buffer::BufferError;
use crate::cuda::{CudaError, ModuleError};
use crate::frame::MAX_SIDE;
use crate::tensor::{DType, ShapeText};

/// Why a frame cannot be preprocessed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// Width or height is out of range.
    #[error("a model input of {width}x{height} is out of range: each side must be 1 to {MAX_SIDE} pixels")]
    Size {
        /// The width in pixels.
        width: u32,
        /// The height in pixels.
        height: u32,
    },
    /// Pixels cannot have this type.
    #[error("cannot store pixels as {dtype}: the input must be f32, f16, u8 or i8")]
    ElementType {
        /// The element type.
        dtype: DType,
    },
    /// The padding is not a pixel value.
    #[error("pad is {value}: it must be a pixel value before normalisation, 0 to 255")]
    Pad {
        /// The value given.
        value: f32,
    },
    /// The fraction of a crop is out of range.
    #[error("the crop fraction is {value}: it must be above 0 and at most 1")]
    CropFraction {
        /// The value given.
        value: f64,
    },
    /// A number is infinite or NaN.
    #[error("{name} is {value}: it must be a finite number")]
    NotFinite {
        /// The field of the spec.
        name: &'static str,
        /// The value given.
        value: f32,
    },
    /// Values would be divided by zero.
    #[error("std of channel {channel} is 0, but it is a divisor: use 1 to leave values unchanged")]
    ZeroStd {
        /// The channel, counted from 0.
        channel: usize,
    },
    /// The tensor has another element type.
    #[error("the input tensor holds {found}, but the preprocessor was made for {expected}")]
    TensorType {
        /// The type in the spec.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The tensor has another shape.
    #[error(
        "the input tensor is {}, but the preprocessor writes {}: the model and its card disagree",
        ShapeText(.found),
        ShapeText(.expected)
    )]
    TensorShape {
        /// The shape in the spec.
        expected: Vec<usize>,
        /// The shape of the tensor.
        found: Vec<usize>,
    },
    /// There are more frames than the preprocessor was made for.
    #[error("the preprocessor was made for {max_batch} frames, not {frames}")]
    Batch {
        /// The number of frames given.
        frames: usize,
        /// The maximum number of frames.
        max_batch: usize,
    },
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The kernel cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Memory for staging frames cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}
