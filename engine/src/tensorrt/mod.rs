//! TensorRT, opened at run time: prebuilt engines on the GPU.
//!
//! Nothing of NVIDIA's is needed to build this: the library that the device has is opened by name ([`library`]), and its C++
//! objects are called through tables of places (`abi`), one column a layout. Below the safe types is a thin layer of calls;
//! everything unsafe about TensorRT is in this folder.

pub(crate) mod abi;
mod benchmark;
pub(crate) mod callback;
mod context;
mod declared;
mod engine;
pub mod error;
pub(crate) mod error_recorder;
mod inspector;
mod layers;
pub mod library;
pub(crate) mod logger;
pub mod plan;
pub mod plugins;
mod profiler;
mod program;
pub mod sidecar;
mod tensor;
pub mod version;

pub use benchmark::{EngineBenchmark, Launch, RunTime};
pub use context::TrtContext;
pub use engine::{Scratch, SharedScratch, TrtEngine};
pub use error::TensorRtError;
pub use error_recorder::{ErrorCode, Reported};
pub use layers::{LayerFacts, layers};
pub use library::Library;
pub use plan::PlanFile;
pub use plugins::{MissingPlugin, Plugins};
pub use profiler::LayerTime;
pub(crate) use program::{TensorRtProgram, load};
pub use tensor::{Direction, ShapeLimits, TrtTensor};
pub use version::{Layout, Version};

#[cfg(test)]
mod tests;
