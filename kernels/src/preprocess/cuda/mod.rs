//! Preprocessing on the GPU: one launch for a batch of frames of any size and format.
//!
//! It computes the same as the CPU reference (see the [module above](super)), with OpenCV's sampling bit for bit. The kernel is
//! kernels/cuda/preprocess.cu.

#[cfg(test)]
mod cpu_reference;
mod job;
mod preprocessor;
mod tables;

pub use preprocessor::CudaPreprocessor;
