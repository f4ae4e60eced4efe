//! Preprocessing on the GPU: one launch for a batch of frames of any size and format.
//!
//! It computes the same as the CPU reference (see the [module above](super)), bit for bit. The kernels are in
//! kernels/cuda/preprocess.cu: one for two taps, one for any number.

mod job;
mod preprocessor;
#[cfg(test)]
mod stub_tests;
mod table_cache;
mod tables;
#[cfg(test)]
mod tests;

pub use preprocessor::CudaPreprocessor;
