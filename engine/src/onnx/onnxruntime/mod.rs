//! ONNX Runtime, through its library: the faster of the two backends, where it is installed.
//!
//! [`find`] looks for the library and checks it before `ort` sees it; `ort` opens it, builds the environment and the
//! session, and owns both. Tensors and runs go through the C API (`values`), because a run there needs no exclusive session
//! and its inputs and outputs need no type parameter.

mod library;
pub(super) mod program;
pub(super) mod runtime;
mod values;

pub use library::{FoundLibrary, MINIMUM_MINOR_VERSION, find};
pub use runtime::silence_telemetry;
