//! The preprocess on the GPU: one launch for a batch of frames of whatever sizes and formats.
//!
//! It computes what the CPU reference does (see the [module above](super)), with OpenCV's sampling bit for bit. The kernel is
//! kernels/cuda/preprocess.cu.

#[cfg(test)]
mod cpu_reference;
mod job;
mod preprocessor;
mod tables;

pub use preprocessor::CudaPreprocessor;
