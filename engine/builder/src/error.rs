//! Why an engine cannot be built.

use std::fmt;
use std::io;
use std::path::PathBuf;

use visiond_kernels::cuda::DeviceError;

use super::calibration::CalibrationError;

use crate::precision::PrecisionError;
use visiond_engine::engine::EngineError;
use visiond_engine::tensorrt::MissingPlugin;
use visiond_engine::tensorrt::TensorRtError;
use visiond_engine::tensorrt::Version;

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
    Cuda(#[from] visiond_kernels::cuda::CudaError),
    /// The model cannot be converted to half precision.
    #[error("{path} cannot be built in half precision: {error}")]
    Precision {
        /// The model.
        path: PathBuf,
        /// The reason.
        error: PrecisionError,
    },
    /// TensorRT's parser refuses the model.
    #[error(
        "{version} cannot read {path}: {}{}{}", list(.faults),
        plugin.as_ref().map_or(String::new(), |plugin| format!("; {plugin}")),
        if *.resized { " (the shapes differ from the model's own, which many models do not allow: try without)" } else { "" }
    )]
    Parser {
        /// The version.
        version: Version,
        /// The model.
        path: PathBuf,
        /// What the parser reports.
        faults: Vec<ParserFault>,
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
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Calibration failed.
    #[error("calibration failed: {0}")]
    Calibration(CalibrationError),
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

/// One thing that the parser refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserFault {
    /// The node's name and operator, if known.
    pub node: Option<String>,
    /// The parser's message.
    pub text: String,
}

/// Writes "node `conv1` (Conv): kernel has no weights".
impl fmt::Display for ParserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node {node}: ")?;
        }
        f.write_str(if self.text.is_empty() { "no reason given" } else { &self.text })
    }
}

fn list(faults: &[ParserFault]) -> String {
    match faults {
        [] => "no reason given; `visiond --log-level debug build` shows its messages".to_owned(),
        _ => faults.iter().map(ParserFault::to_string).collect::<Vec<_>>().join("; "),
    }
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
