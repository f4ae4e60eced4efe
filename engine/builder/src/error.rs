//! Why an engine cannot be built.

use std::io;
use std::path::PathBuf;

use super::calibration::CalibrationError;
use super::precision::PrecisionError;
use visiond_engine::engine::EngineError;
use visiond_engine::tensorrt::{MissingPlugin, TensorRtError, Version};
use visiond_kernels::cuda::{CudaError, DeviceError};

const MESSAGES: &str = "no reason given; `visiond --log-level debug build` shows its messages";

/// Why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The model's file cannot be read, or TensorRT's library cannot be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// TensorRT refuses.
    #[error(transparent)]
    TensorRt(#[from] TensorRtError),
    /// There is no GPU to build on.
    #[error("{version} needs the GPU that the engine is for, and no GPU works: {error}")]
    NoDevice {
        /// The version.
        version: Version,
        /// The reason.
        error: DeviceError,
    },
    /// The GPU failed.
    #[error("the GPU failed while the engine was built: {0}")]
    Cuda(#[from] CudaError),
    /// The model cannot be converted to half precision.
    #[error("cannot build {0} in half precision: {1}")]
    Precision(PathBuf, PrecisionError),
    /// TensorRT's parser refuses the model.
    #[error(
        "{version} cannot read {path}: {}{}{}", if .faults.is_empty() { MESSAGES.to_owned() } else { .faults.join("; ") },
        plugin.as_ref().map_or(String::new(), |plugin| format!("; {plugin}")),
        if *.resized { " (the shapes differ from the model's own, which many models do not allow: try without)" } else { "" }
    )]
    Parser {
        /// The version.
        version: Version,
        /// The model.
        path: PathBuf,
        /// The faults that the parser reports.
        faults: Vec<String>,
        /// Whether its inputs were given sizes other than the fixed ones.
        resized: bool,
        /// The missing plugin, if the parser looked for one.
        plugin: Option<MissingPlugin>,
    },
    /// The option does not exist for this version or device.
    #[error("{version} cannot build with {option}: {reason}")]
    Unavailable {
        /// The version.
        version: Version,
        /// The option as on the command line.
        option: &'static str,
        /// The reason, and what to do.
        reason: String,
    },
    /// An input's shape is missing or wrong.
    #[error("input `{input}` of {path} is {declared}: {reason}")]
    Shape {
        /// The model.
        path: PathBuf,
        /// The input.
        input: String,
        /// The declared shape.
        declared: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// Calibration failed.
    #[error("calibration failed: {0}")]
    Calibration(#[source] CalibrationError),
    /// A file cannot be written.
    #[error("cannot write {path}: {error}; {}", write_remedy(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        error: io::Error,
    },
    /// The build was cancelled.
    #[error("the build was cancelled; nothing was written")]
    Cancelled,
}

/// Returns what to do about a file that cannot be written.
fn write_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name a file on another disk with -o"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a file in a folder that you may write to with -o"
        }
        _ => "check that disk, or name a file elsewhere with -o",
    }
}
