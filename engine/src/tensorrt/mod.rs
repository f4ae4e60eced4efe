//! TensorRT, opened at run time: prebuilt engines on the GPU.
//!
//! Nothing of NVIDIA's is needed to build this: the library that the device has is opened by name ([`library`]), and its C++
//! objects are called through tables of places (`abi`), one column a layout. Below the safe types is a thin layer of calls;
//! everything unsafe about TensorRT is in this folder.

pub(crate) mod abi;
pub(crate) mod callback;
pub mod error;
pub mod library;
pub(crate) mod logger;
pub(crate) mod recorder;

pub use abi::{Layout, Version};
pub use error::TensorRtError;
pub use library::Library;
