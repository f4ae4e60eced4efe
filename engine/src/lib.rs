//! Loads and runs models, and reads their outputs.
//!
//! - [`engine`]: `Engine` (a loaded model) and `Session` (one context of it with its own tensors), for every backend.
//! - [`onnx`]: the CPU backends for `.onnx` files: ONNX Runtime if its library is installed, otherwise rten, which is compiled
//!   in.
//! - [`tensorrt`]: prebuilt engines on the GPU, run by the TensorRT that the device has. The crate `visiond-engine-builder`
//!   builds them.
//! - [`card`], [`ultralytics`]: how to feed a model and how to read it.
//! - [`heads`]: turn raw outputs into candidates, one file per family of models.
//! - [`compare`]: measures how far two models agree.
//! - [`detector`]: combines all of these: frames in, detections out.

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
