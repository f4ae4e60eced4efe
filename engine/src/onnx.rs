//! The CPU backends for `.onnx` files: ONNX Runtime if its library is installed, otherwise rten, which is compiled in.
//!
//! Both get the same bytes, read once, so that the bytes that were hashed are the ones that run. Both get them with the
//! requested input shapes already in place (`reshape`), so that neither needs its own override.

mod fault_check;
pub mod file;
pub mod known_faults;
mod load;
mod model;
pub mod onnxruntime;
mod reshape;
mod rten;
mod rten_attributes;
pub(crate) mod schema;
mod tail;
mod tensor;
pub(crate) mod wire;

pub use fault_check::KnownFaultError;
pub(crate) use load::load;
pub use load::{read_usable, reshaped};
pub use onnxruntime::silence_telemetry;
pub use rten::DESCRIPTION as RTEN_DESCRIPTION;
pub use tail::{OutputTail, Part, PartKind};
