//! Why an engine file cannot be loaded.

use std::path::PathBuf;

use crate::backend::EngineError;
use crate::tensorrt::plugins::MissingPlugin;
use crate::tensorrt::version::Version;

/// An engine's file is no engine, or not for what is here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file has an engine's name and is something else.
    #[error("{path} is no TensorRT engine (nor an ONNX model): build one with `{command}`")]
    NotAPlan {
        /// The file.
        path: PathBuf,
        /// What builds it.
        command: String,
    },
    /// The file has an engine's name and is an ONNX model.
    #[error(
        "{path} is an ONNX model, not a TensorRT engine: rename it to {} to run it on the CPU, and build an engine of that with \
         `{command}`", .path.with_extension("onnx").display()
    )]
    Onnx {
        /// The file.
        path: PathBuf,
        /// What builds an engine.
        command: String,
    },
    /// The file holds nothing.
    #[error("{path} is an empty file, not a TensorRT engine: copy it again, or build it with `{command}`")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What builds it.
        command: String,
    },
    /// The file ends too early.
    #[error("{path} is cut off: it holds {found} bytes of {expected}; copy it again, or build it with `{command}`")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes there.
        found: u64,
        /// Bytes that its header tells of, in words.
        expected: String,
        /// What builds it.
        command: String,
    },
    /// Another TensorRT built it.
    #[error("{path} was built by {built}, this device has {installed}: build it again here with `{command}`{}", said(.reason))]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// What is here.
        installed: Version,
        /// What builds it.
        command: String,
        /// What TensorRT says of it; empty where it was not asked.
        reason: String,
    },
    /// It was built for other GPUs.
    #[error("{path} was built for {built}, this device has {installed}: build it again here with `{command}`")]
    OtherGpu {
        /// The file.
        path: PathBuf,
        /// GPUs that it was built for.
        built: String,
        /// What is here.
        installed: String,
        /// What builds it.
        command: String,
    },
    /// TensorRT does not take it.
    #[error(
        "{installed} does not take {path}, which was built by {built}: {reason}; build it again here with `{command}`"
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// What is here.
        installed: Version,
        /// What TensorRT says.
        reason: String,
        /// What builds it.
        command: String,
    },
    /// It needs a plugin that TensorRT does not have.
    #[error("{installed} cannot load {path}: {plugin}")]
    Plugin {
        /// The file.
        path: PathBuf,
        /// What is here.
        installed: Version,
        /// The plugin, and what to do.
        plugin: MissingPlugin,
    },
    /// There is no GPU to run it.
    #[error(
        "{path} is an engine for a GPU ({built}), and there is none to use: {reason}; without a GPU name the .onnx file instead"
    )]
    NoGpu {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// Why there is none.
        reason: String,
    },
    /// There is no TensorRT to run it.
    #[error("{path} was built by {built}, and {reason}")]
    NoLibrary {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// Why there is none.
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
