//! TensorRT, opened at run time: prebuilt engines on the GPU.
//!
//! Nothing of NVIDIA's is needed to build this: the library that the device has is opened by name ([`library`]), and its C++
//! objects are called through tables of places (`abi`), one column a layout. Below the safe types is a thin layer of calls;
//! everything unsafe about TensorRT is in this folder.

pub(crate) mod abi;
mod bare;
pub mod build;
pub(crate) mod callback;
mod context;
mod declared;
mod engine;
pub mod error;
mod file;
mod inspector;
mod layers;
pub mod library;
pub(crate) mod logger;
pub mod plan;
mod plan_file;
pub mod plugins;
mod profiler;
mod program;
pub(crate) mod recorder;
pub mod sidecar;
pub mod store;

pub use abi::{Layout, Version};
pub use bare::{BareEngine, Launch, RunTime};
pub use context::TrtContext;
pub use engine::{Direction, Scratch, ShapeLimits, SharedScratch, TrtEngine, TrtTensor};
pub use error::TensorRtError;
pub use layers::{LayerFacts, layers};
pub use library::Library;
pub use plan_file::PlanFile;
pub use plugins::{MissingPlugin, Plugins};
pub use profiler::LayerTime;
pub(crate) use program::load;
pub use recorder::{ErrorCode, Reported};

#[cfg(test)]
mod tests;
