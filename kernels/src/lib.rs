//! Where a frame's bytes live, and the maths on its pixels.
//!
//! - [`buffer`]: the memory that a camera writes and a kernel reads.
//! - [`auto_memory`]: which kind of it suits a GPU, by measuring.
//! - [`frame`], [`color`]: what those bytes mean: pixel format, planes, pitches, colour matrix and range.
//! - [`letterbox`]: where a frame lands in a network's input, and the way back.
//! - [`preprocess`]: a frame into a network's input tensor, in one pass.
//! - [`cuda`]: one NVIDIA GPU: device, streams, events, graphs, kernels.
//! - [`jpeg`]: a compressed picture into a frame, and back.
//! - [`filter`]: of raw outputs, the candidates that pass.
//! - [`nms`]: many overlapping boxes into few.
//! - [`nvtx`]: ranges that Nsight Systems shows.
//!
//! This crate knows no network and no camera.

pub mod auto_memory;
pub mod buffer;
pub mod color;
pub mod cuda;
pub mod filter;
pub mod frame;
pub mod jpeg;
pub mod letterbox;
pub mod nms;
pub mod nvtx;
mod pixel_format;
pub mod preprocess;
pub mod tensor;
