//! Engines out of `.onnx` files, with TensorRT's own builder and ONNX parser.
//!
//! [`build`] goes: what cannot be had is refused; the network gets its shapes and its precision, which are rewritten into the
//! `.onnx` (`visiond_engine::onnx`); TensorRT parses it, is configured and builds. TensorRT for RTX needs no GPU for that.
//!
//! Types: TensorRT 10 and later build "strongly typed" networks, which say themselves what every layer computes in, so that
//! half precision is a matter of the network ([`precision`]) and the same in every version. TensorRT 8 knows no
//! such networks, and for TensorRT 10's calibration and DLAs they do not serve: these get the network as it is and the
//! builder's flags, as with `trtexec --fp16 --int8`.

mod build;
pub mod calibration;
mod calibrator;
mod config;
mod error;
mod flags;
mod input_shapes;
mod monitor;
mod options;
mod parser;
pub mod precision;
mod refusals;
mod timing_cache;
mod upload;

pub use build::{Built, build};
pub use error::{BuildError, ParserFault};
pub use monitor::{Monitor, Phase};
pub use options::{
    BuildOptions, ComputeCapability, HardwareCompatibility, ShapeError, ShapeProfile, ShapeRange, parse_input_shapes,
    parse_profile, parse_shape,
};
pub use timing_cache::TimingCacheChoice;
