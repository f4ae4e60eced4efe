//! The CPU backends for `.onnx`: ONNX Runtime where its library is found, else rten, compiled in.
//!
//! Both get the same bytes, read once, so that what was hashed is what runs; and both get them with the input shapes that
//! were asked for already in place (`reshape`), so that neither needs an override of its own.

pub mod file;
mod load;
mod model;
pub mod onnxruntime;
mod panic_guard;
mod reshape;
mod rten;
pub(crate) mod schema;
mod sniff;
pub(crate) mod wire;

pub(crate) use load::load;
pub use load::{read_usable, reshaped};
pub use onnxruntime::silence_telemetry;
pub use rten::DESCRIPTION as RTEN_DESCRIPTION;
