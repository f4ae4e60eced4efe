//! Errors of loading and running a model, with remedies.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use visiond_kernels::buffer::BufferError;
use visiond_kernels::cuda::CudaError;
use visiond_kernels::tensor::DType;

use super::options::Backend;
use super::tensor_info::{TensorInfo, dims_text};

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No file exists at the path.
    #[error("no model at {0}: check the name, or download the model again")]
    Missing(PathBuf),
    /// The path is a directory.
    #[error("{0} is a directory: name the .onnx or .engine file in it")]
    Directory(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the model {0}: {1}{remedy}", remedy = may_not_read(.0, .1))]
    Unreadable(PathBuf, io::Error),
    /// The file is empty.
    #[error("{0} is empty: the copy was cut off, copy or download it again")]
    Empty(PathBuf),
    /// The file is not an ONNX model: what it looks like, and the remedy.
    #[error("{0} is not an ONNX model: it is {1}")]
    NotOnnx(PathBuf, String),
    /// The file, of this size in bytes, is truncated.
    #[error("{0} is truncated: its {1} bytes end in the middle of the model; copy or download it again")]
    Truncated(PathBuf, u64),
    /// The file is ONNX, but damaged: the fault.
    #[error("{0} is a broken ONNX model: {1}")]
    Malformed(PathBuf, String),
    /// The file that holds the weights is missing or too short.
    #[error("cannot read {file}, which holds the weights of {path}: {error}: copy it into the same directory")]
    ExternalData {
        /// The model.
        path: PathBuf,
        /// The file with the weights.
        file: PathBuf,
        /// The error from the operating system.
        error: io::Error,
    },
    /// An input or output has a type that visiond cannot feed or read.
    #[error(
        "{path}: {direction} `{name}` is {found}, which cannot be {verb}: export the model with tensors of f32, f16, u8, i8, \
         i32, i64 or bool there",
        verb = if *.direction == "input" { "fed" } else { "read" }
    )]
    ValueType {
        /// The model.
        path: PathBuf,
        /// "input" or "output".
        direction: &'static str,
        /// The name of the input or output.
        name: String,
        /// The unsupported type.
        found: String,
    },
    /// The backend does not support an operator.
    #[error(
        "{path} needs the operator {operator}{at}, which {backend} does not support: {remedy}",
        at = .node.as_ref().map(|node| format!(" (node `{node}`)")).unwrap_or_default(),
        remedy = .backend.other_may_know()
    )]
    UnknownOperator {
        /// The model.
        path: PathBuf,
        /// The operator.
        operator: String,
        /// The node that uses it, if the node has a name.
        node: Option<String>,
        /// The backend.
        backend: Backend,
    },
    /// The backend rejects the model for another reason, in its own words.
    #[error("{0} cannot load {1}: {2}")]
    Load(Backend, PathBuf, String),
    /// A shape was given for an input that the model does not have.
    #[error("{path} has no input `{name}` to set a shape for: its inputs are {inputs}")]
    NoSuchInput {
        /// The model.
        path: PathBuf,
        /// The requested name.
        name: String,
        /// The inputs that the model has.
        inputs: String,
    },
    /// The shape does not fit the input.
    #[error("input `{}` is {} in the model and cannot be {asked}: {reason}", .input.name, dims_text(&.input.shape))]
    Shape {
        /// The input as the model declares it.
        input: TensorInfo,
        /// The requested shape, as text.
        asked: String,
        /// Why it does not fit, and the remedy.
        reason: String,
    },
    /// The shape of an input was never set.
    #[error(
        "input `{}` has no shape yet: the model leaves {} open, set the input's size in the model card or `input_shapes`",
        .0.name, dims_text(&.0.shape)
    )]
    ShapeOpen(TensorInfo),
    /// A run failed, in the backend's own words.
    #[error("{0} cannot run the model: {1}")]
    Run(Backend, String),
    /// A run produced an output that is not a tensor of a supported type.
    #[error("output `{name}` is {found}, which visiond cannot read: export the model with a plain tensor there")]
    OutputNotTensor {
        /// The name of the output.
        name: String,
        /// The unsupported type.
        found: String,
    },
    /// An output was read before the first run, or does not exist.
    #[error("cannot read output {index}: the model has {outputs} outputs, and must run first")]
    NoOutput {
        /// The requested index.
        index: usize,
        /// The number of outputs.
        outputs: usize,
    },
    /// The backend panicked: what it was doing, and the panic's message.
    #[error("{0} crashed while it {1}: {2}; this is a bug in {0}: try another backend")]
    Panicked(Backend, &'static str, String),
    /// ONNX Runtime was requested, but is in none of these directories.
    #[error(
        "ONNX Runtime's library is not installed: searched for libonnxruntime.so.1 and libonnxruntime.so in the loader's path and \
         in {}; install it with the commands of docs/operations.md (section \"ONNX Runtime\"), or name the file in \
         ORT_DYLIB_PATH or the configuration, or use the rten backend",
        .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    LibraryNotFound(Vec<PathBuf>),
    /// A file is not a usable ONNX Runtime library, and why.
    #[error("cannot use {0} as ONNX Runtime's library: {1}")]
    LibraryUnusable(PathBuf, String),
    /// Another library is already loaded.
    #[error("cannot open {asked}: this process already runs {loaded}; restart visiond with the one you want")]
    LibraryLoaded {
        /// The library that is loaded.
        loaded: PathBuf,
        /// The requested library.
        asked: PathBuf,
    },
    /// An error specific to one backend, such as `TensorRtError` or `PlanError`.
    #[error(transparent)]
    Backend(Box<dyn Error + Send + Sync>),
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The file's SHA-256 is not the configured one.
    #[error(
        "{path} has the SHA-256 {found}, but the configuration requires {pinned}: put the right file there, \
         or its SHA-256 into `sha256`"
    )]
    OtherSha256 {
        /// The file.
        path: PathBuf,
        /// The file's SHA-256.
        found: String,
        /// The configured SHA-256.
        pinned: String,
    },
    /// Memory for a tensor cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

impl EngineError {
    /// Returns the error for a shape given to an input that the model at `path` does not have.
    pub fn no_such_input(path: &Path, name: &str, inputs: &[TensorInfo]) -> Self {
        let inputs = inputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
        Self::NoSuchInput { path: path.to_owned(), name: name.to_owned(), inputs }
    }

    /// Returns the error for a shape that does not fit the input `info`.
    pub(crate) fn shape(info: &TensorInfo, asked: &[usize], reason: impl Into<String>) -> Self {
        Self::Shape {
            input: info.clone(),
            asked: visiond_kernels::tensor::ShapeText(asked).to_string(),
            reason: reason.into(),
        }
    }

    /// Returns the error for a tensor of a type that the backend does not take.
    pub(crate) fn dtype(backend: Backend, name: &str, dtype: DType) -> Self {
        Self::Run(backend, format!("it does not take `{name}`, a tensor of {dtype}"))
    }
}

impl Backend {
    /// Returns the remedy for an operator that this backend does not support.
    fn other_may_know(self) -> &'static str {
        match self {
            Self::OnnxRuntime => {
                "export the model with standard operators, or with an opset that the installed ONNX Runtime supports"
            }
            Self::TensorRt => "rebuild the engine with a newer TensorRT",
            Self::Rten => "install ONNX Runtime's library, which may support it, or export the model without it",
        }
    }
}

/// Returns the remedy for a file that the user may not read.
fn may_not_read(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("; let the user that runs visiond read it: `sudo chmod a+r {}`", path.display())
        }
        io::ErrorKind::OutOfMemory => "; use a smaller model, or free memory".to_owned(),
        _ => String::new(),
    }
}
