//! Why an engine cannot be built.

use std::fmt;
use std::io;
use std::path::PathBuf;

use visiond_kernels::cuda::DeviceError;

use crate::precision::PrecisionError;
use visiond_engine::engine::EngineError;
use visiond_engine::tensorrt::MissingPlugin;
use visiond_engine::tensorrt::TensorRtError;
use visiond_engine::tensorrt::Version;

/// An engine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The network's file cannot be read, or TensorRT's library cannot be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// TensorRT refuses.
    #[error(transparent)]
    TensorRt(#[from] TensorRtError),
    /// There is no GPU to build on.
    #[error("{version} builds on the GPU that the engine is for, and there is none that works: {error}")]
    NoDevice {
        /// The version.
        version: Version,
        /// Why.
        error: DeviceError,
    },
    /// The GPU fails.
    #[error("the GPU failed while the engine was built: {0}")]
    Cuda(#[from] visiond_kernels::cuda::CudaError),
    /// The network cannot be had in half precision.
    #[error("{path} cannot be built in half precision: {error}")]
    Precision {
        /// The network.
        path: PathBuf,
        /// Why not.
        error: PrecisionError,
    },
    /// TensorRT's parser does not take the network.
    #[error(
        "{version} cannot read {path}: {}{}{}", list(.faults),
        plugin.as_ref().map_or(String::new(), |plugin| format!("; {plugin}")),
        if *.resized { " (it was given other shapes than its own, which many networks do not allow: try it without)" } else { "" }
    )]
    Parser {
        /// The version.
        version: Version,
        /// The network.
        path: PathBuf,
        /// What it says.
        faults: Vec<ParserFault>,
        /// Whether its inputs were given other sizes than it fixes.
        resized: bool,
        /// The plugin that it looked for, where it knows no such operator.
        plugin: Option<MissingPlugin>,
    },
    /// What is asked for does not exist here.
    #[error("{version} cannot build with {option}: {reason}")]
    Unavailable {
        /// The version.
        version: Version,
        /// As the command line has it.
        option: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// An input's shape is missing or wrong.
    #[error("input `{input}` of {path} is {declared}: {reason}")]
    Shape {
        /// The network.
        path: PathBuf,
        /// The input.
        input: String,
        /// As declared.
        declared: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Pictures for calibration cannot be used.
    #[error("calibration failed: {reason}")]
    Calibration {
        /// Why.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written: {error}; {}", write_remedy(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It was asked to end.
    #[error("the build was ended before it was done; nothing was written")]
    Cancelled,
}

/// One thing that the parser does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserFault {
    /// The node's name and operator, where they are known.
    pub node: Option<String>,
    /// The parser's words.
    pub text: String,
}

/// `node `conv1` (Conv): kernel has no weights`
impl fmt::Display for ParserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node {node}: ")?;
        }
        f.write_str(if self.text.is_empty() { "no reason is given" } else { &self.text })
    }
}

fn list(faults: &[ParserFault]) -> String {
    match faults {
        [] => "the parser gives no reason; `visiond --log-level debug build` shows its messages".to_owned(),
        _ => faults.iter().map(ParserFault::to_string).collect::<Vec<_>>().join("; "),
    }
}

/// What to do about a file that cannot be written.
fn write_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name a file on another disk with -o"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a file in a folder that you may write to with -o"
        }
        _ => "look after that disk, or name a file elsewhere with -o",
    }
}
