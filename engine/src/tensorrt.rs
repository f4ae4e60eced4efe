//! TensorRT, opened at run time: runs prebuilt engines on the GPU.
//!
//! Building this needs nothing from NVIDIA: [`library`] opens the device's library by name, and calls its C++ objects through
//! tables of method slots (`abi`), one column per layout. A thin layer of calls lies below the safe types; everything unsafe
//! about TensorRT is in this folder and in `visiond-engine-builder`.

pub(crate) mod abi;
mod benchmark;
pub(crate) mod callback;
mod context;
mod declared;
mod engine;
pub mod error;
pub(crate) mod error_recorder;
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
pub use error_recorder::Reported;
pub use layers::{LayerFacts, layers};
pub use library::Library;
pub use plan::PlanFile;
pub use plugins::{MissingPlugin, Plugins};
pub use profiler::LayerTime;
pub(crate) use program::load;
pub use tensor::{Direction, ShapeLimits, TrtTensor};
pub use version::{Layout, Version};

#[cfg(test)]
mod tests;
