//! Why preprocessing is not possible.

use crate::buffer::BufferError;
use crate::cuda::{CudaError, ModuleError};
use crate::frame::FrameCopyError;

/// Why a frame cannot be preprocessed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// The spec is invalid, or the frames or the tensor do not fit it.
    #[error("{0}")]
    Invalid(String),
    /// The frame is only in the GPU's memory: see [`FrameView::on_host`](crate::frame::FrameView::on_host).
    #[error("the frame is in the GPU's memory, and this preprocess runs on the CPU: copy the frame first")]
    NotOnHost,
    /// A frame in the GPU's memory cannot be copied to the host.
    #[error(transparent)]
    Copy(#[from] FrameCopyError),
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
