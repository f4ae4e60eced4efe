//! Networks: what runs them, how they are fed, and what their outputs mean.
//!
//! - [`engine`]: `Engine` (a loaded network) and `Session` (one context with its own tensors), whatever runs them.
//! - [`onnx`]: the CPU backends for `.onnx`: ONNX Runtime where its library is found, else rten, compiled in.
//! - [`tensorrt`]: prebuilt engines on the GPU, by the TensorRT that the device has.
//! - [`card`], [`ultralytics`]: how to feed and read a network.
//! - [`heads`]: raw outputs into candidates, one file a family of networks.
//! - [`compare`]: how far two networks agree.
//! - [`detector`]: all of it together: frames in, detections out.

pub mod atomic_write;
mod backend;
pub mod builder_api;
pub mod card;
pub mod compare;
pub mod detector;
mod dynamic_library;
pub mod engine;
pub mod heads;
pub mod onnx;
mod session;
pub mod tensorrt;
pub mod ultralytics;
