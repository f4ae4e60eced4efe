//! ONNX Runtime: the faster of the two CPU backends, if its library is installed.
//!
//! [`find`] finds the library and checks it before `ort` opens it. `ort` builds and owns the environment and the session.
//! Tensors and runs use the C API directly (`values`), because a run there does not need exclusive access to the session, and
//! its inputs and outputs need no type parameter.

mod library;
pub(super) mod program;
pub(super) mod runtime;
mod values;

pub use library::{FoundLibrary, MINIMUM_MINOR_VERSION, find};
pub use runtime::silence_telemetry;
