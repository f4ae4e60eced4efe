//! Why an engine file cannot be loaded.

use std::path::PathBuf;

use crate::backend::EngineError;
use crate::tensorrt::plugins::MissingPlugin;
use crate::tensorrt::version::Version;

/// Why an engine file cannot be used here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file is named like an engine but is something else; the command builds one.
    #[error("{0} is not a TensorRT engine (nor an ONNX model): build one with `{1}`")]
    NotAPlan(PathBuf, String),
    /// The file is named like an engine but is an ONNX model; the command builds an engine.
    #[error(
        "{0} is an ONNX model, not a TensorRT engine: rename it to {onnx} to run it on the CPU, and build an engine from that with \
         `{1}`", onnx = .0.with_extension("onnx").display()
    )]
    Onnx(PathBuf, String),
    /// The file is empty; the command builds it.
    #[error("{0} is an empty file, not a TensorRT engine: copy it again, or build it with `{1}`")]
    Empty(PathBuf, String),
    /// The file is truncated.
    #[error("{path} is truncated: {found} of {expected} bytes; copy it again, or build it with `{command}`")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The size of the file.
        found: u64,
        /// The size in its header, as text.
        expected: String,
        /// The command that builds it.
        command: String,
    },
    /// Another version of TensorRT built it.
    #[error("{path} was built by {built}, this device has {installed}: rebuild it here with `{command}`{}", said(.reason))]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The version that built it.
        built: String,
        /// The version that is installed.
        installed: Version,
        /// The command that builds it.
        command: String,
        /// TensorRT's own message; empty if TensorRT was not called.
        reason: String,
    },
    /// It was built for other GPUs.
    #[error("{path} was built for {built}, this device has {installed}: rebuild it here with `{command}`")]
    OtherGpu {
        /// The file.
        path: PathBuf,
        /// The GPUs that it was built for.
        built: String,
        /// The GPU in this device.
        installed: String,
        /// The command that builds it.
        command: String,
    },
    /// TensorRT rejects it.
    #[error("{installed} cannot load {path}, which was built by {built}: {reason}; rebuild it here with `{command}`")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The version that built it.
        built: String,
        /// The version that is installed.
        installed: Version,
        /// TensorRT's own message.
        reason: String,
        /// The command that builds it.
        command: String,
    },
    /// It needs a plugin that is not registered.
    #[error("{0} cannot load {1}: {2}")]
    Plugin(Version, PathBuf, MissingPlugin),
    /// There is no GPU to run it.
    #[error(
        "{path} is an engine for a GPU ({built}), and no GPU is usable: {reason}; without a GPU, use the .onnx file instead"
    )]
    NoGpu {
        /// The file.
        path: PathBuf,
        /// The version that built it.
        built: String,
        /// Why no GPU is usable.
        reason: String,
    },
    /// There is no TensorRT to run it.
    #[error("cannot load {path}, built by {built}: {reason}")]
    NoLibrary {
        /// The file.
        path: PathBuf,
        /// The version that built it.
        built: String,
        /// Why TensorRT is not usable.
        reason: String,
    },
}

impl From<PlanError> for EngineError {
    fn from(error: PlanError) -> Self {
        Self::Backend(Box::new(error))
    }
}

fn said(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}
