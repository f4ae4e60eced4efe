//! Builds engines from `.onnx` files with TensorRT's own builder and ONNX parser.
//!
//! [`build()`] first rejects impossible options, then writes the shapes and the precision into the `.onnx`
//! (`visiond_engine::onnx`); TensorRT parses and builds it. TensorRT for RTX needs no GPU for that.
//!
//! Typing: TensorRT 10 and later build strongly typed models, which state the type of every layer. So half precision is a
//! property of the model ([`precision`]), the same for every version. TensorRT 8 does not support strong typing, and TensorRT
//! 10 does not support it together with calibration or a DLA: these get the unchanged model and the builder's flags, as with
//! `trtexec --fp16 --int8`.

mod build;
pub mod calibration;
mod calibrator;
mod config;
mod error;
mod flags;
mod input_shapes;
mod monitor;
mod option_error;
mod options;
mod parser;
pub mod precision;
mod refusals;
mod timing_cache;

pub use build::{Built, build};
pub use error::BuildError;
pub use monitor::{BuildPhase, Monitor};
pub use option_error::OptionError;
pub use options::{
    BuildOptions, ComputeCapability, HardwareCompatibility, ShapeProfile, ShapeRange, parse_input_shapes,
    parse_profile, parse_shape,
};
pub use timing_cache::TimingCacheChoice;
