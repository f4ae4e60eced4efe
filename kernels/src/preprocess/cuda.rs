//! Preprocessing on the GPU: one launch for a batch of frames of any size and format.
//!
//! It computes the same as the CPU reference (see the [module above](super)), with OpenCV's sampling bit for bit. The kernel is
//! kernels/cuda/preprocess.cu.

mod job;
mod preprocessor;
mod tables;
#[cfg(test)]
mod tests;

pub use preprocessor::CudaPreprocessor;
