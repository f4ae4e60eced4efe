//! What can go wrong with a network, each with what to do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use visiond_kernels::buffer::BufferError;
use visiond_kernels::cuda::CudaError;
use visiond_kernels::tensor::DType;

use super::kind::Backend;
use super::tensor_info::{Dim, TensorInfo, dims_text};

/// A network could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no such file.
    #[error("no model at {path}: check the name, or download the model again")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("{path} is a directory: name the .onnx or .engine file in it")]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the model {path}: {error}{}", may_not_read(.path, .error))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file holds nothing.
    #[error("{path} is empty: the copy was cut off, copy or download it again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not an ONNX model but {found}")]
    NotOnnx {
        /// The file.
        path: PathBuf,
        /// What it looks like, and what to do.
        found: String,
    },
    /// The file ends too early.
    #[error("{path} is cut off: its {size_bytes} bytes end in the middle of the model, copy or download it again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes there.
        size_bytes: u64,
    },
    /// The file is ONNX, but not as it must be.
    #[error("{path} is a broken ONNX model: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Weights are in another file, which is not there or too short.
    #[error("{path} keeps weights in {file}, which cannot be read ({error}): copy it into the same directory")]
    ExternalData {
        /// The model.
        path: PathBuf,
        /// The file with the weights.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// An input or output is not a tensor of a type that can be fed or read.
    #[error(
        "{path}: {direction} `{name}` is {found}, which cannot be {verb}: export the network with tensors of f32, f16, u8, i8, \
         i32, i64 or bool there"
    )]
    ValueType {
        /// The model.
        path: PathBuf,
        /// "input" or "output".
        direction: &'static str,
        /// "fed" or "read".
        verb: &'static str,
        /// Name of the input or output.
        name: String,
        /// What it is.
        found: String,
    },
    /// The backend does not know an operator.
    #[error(
        "{path} needs the operator {operator}{at}, which {backend} does not know: {remedy}",
        at = .node.as_ref().map(|node| format!(" (node `{node}`)")).unwrap_or_default(),
        remedy = .backend.other_may_know()
    )]
    UnknownOperator {
        /// The model.
        path: PathBuf,
        /// The operator's type.
        operator: String,
        /// The node that uses it, where it has a name.
        node: Option<String>,
        /// Who does not know it.
        backend: Backend,
    },
    /// The backend refuses the model for another reason.
    #[error("{backend} cannot load {path}: {reason}")]
    Load {
        /// The model.
        path: PathBuf,
        /// Who refuses.
        backend: Backend,
        /// What it says.
        reason: String,
    },
    /// A shape was given for an input that is not there.
    #[error("{path} has no input `{name}` to give a shape to; its inputs are {inputs}")]
    NoSuchInput {
        /// The model.
        path: PathBuf,
        /// Name asked for.
        name: String,
        /// Those there.
        inputs: String,
    },
    /// A shape does not go with the input.
    #[error("input `{name}` is {declared} in the model and cannot be {asked}: {reason}", declared = dims_text(.declared))]
    Shape {
        /// Name of the input.
        name: String,
        /// What the model declares.
        declared: Option<Vec<Dim>>,
        /// What was asked for, as text.
        asked: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// An input's shape was never chosen.
    #[error(
        "input `{name}` has no shape yet: the model leaves {declared} open, set the input's size in the model card or `input_shapes`",
        declared = dims_text(.declared)
    )]
    ShapeOpen {
        /// Name of the input.
        name: String,
        /// What the model declares.
        declared: Option<Vec<Dim>>,
    },
    /// A run failed.
    #[error("{backend} could not run the network: {reason}")]
    Run {
        /// Who ran it.
        backend: Backend,
        /// What it says.
        reason: String,
    },
    /// A run gave something that is not a tensor, or of an unknown type.
    #[error("output `{name}` came out as {found}, which cannot be read: export the network with a plain tensor there")]
    OutputNotTensor {
        /// Name of the output.
        name: String,
        /// What it is.
        found: String,
    },
    /// An output was asked for before a run, or one that does not exist.
    #[error("there is no output {index} to read: the network has {outputs} and must have run")]
    NoOutput {
        /// Asked for.
        index: usize,
        /// How many there are.
        outputs: usize,
    },
    /// The backend broke.
    #[error("{backend} broke while it {doing}: {message}; this is a fault in {backend}, another backend may do")]
    Panicked {
        /// Who broke.
        backend: Backend,
        /// What it did.
        doing: &'static str,
        /// Its last words.
        message: String,
    },
    /// ONNX Runtime was asked for and is not there.
    #[error(
        "ONNX Runtime's library is not installed: looked for {names} in the loader's path and in {}; install it, or name the \
         file in ORT_DYLIB_PATH or the configuration, or use the rten backend",
        list(.searched), names = "libonnxruntime.so.1 and libonnxruntime.so"
    )]
    LibraryNotFound {
        /// Directories looked into.
        searched: Vec<PathBuf>,
    },
    /// A library is there and does not serve.
    #[error("{path} does not serve as ONNX Runtime's library: {reason}")]
    LibraryUnusable {
        /// The library.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Another library is in use already.
    #[error("this process runs {loaded} already and cannot also open {asked}: restart it with the one you want")]
    LibraryLoaded {
        /// In use.
        loaded: PathBuf,
        /// Asked for.
        asked: PathBuf,
    },
    /// An error of one backend alone, such as `TensorRtError` or `PlanError`.
    #[error(transparent)]
    Backend(Box<dyn Error + Send + Sync>),
    /// A call of CUDA's failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The file's bytes are not those that are trusted.
    #[error(
        "{path} has the SHA-256 {found}, not {pinned} as the configuration wants, and is not loaded: put the right file there, \
         or its SHA-256 into `sha256`"
    )]
    OtherSha256 {
        /// The file.
        path: PathBuf,
        /// Its SHA-256.
        found: String,
        /// The one that is trusted.
        pinned: String,
    },
    /// No memory for a tensor.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

impl EngineError {
    /// Whether the process has lost the GPU, so that only a new process can go on.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Cuda(error) => error.is_sticky(),
            _ => false,
        }
    }

    /// Returns the error for a shape given to an input that the model at `path` lacks.
    pub fn no_such_input(path: &Path, name: &str, inputs: &[TensorInfo]) -> Self {
        let inputs = inputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
        Self::NoSuchInput { path: path.to_owned(), name: name.to_owned(), inputs }
    }

    /// The shape asked for is not one that `info` allows.
    pub(crate) fn shape(info: &TensorInfo, asked: &[usize], reason: impl Into<String>) -> Self {
        Self::Shape {
            name: info.name.clone(),
            declared: info.shape.clone(),
            asked: visiond_kernels::tensor::ShapeText(asked).to_string(),
            reason: reason.into(),
        }
    }

    /// The backend cannot take a tensor of this type.
    pub(crate) fn dtype(backend: Backend, name: &str, dtype: DType) -> Self {
        Self::Run { backend, reason: format!("it takes no {dtype} tensor, as `{name}` is") }
    }
}

impl Backend {
    /// The remedy for an operator that this backend lacks.
    fn other_may_know(self) -> &'static str {
        match self {
            Self::OnnxRuntime => {
                "export the network with standard operators, or with an opset that the installed ONNX Runtime knows"
            }
            Self::TensorRt => "build the engine again with a newer TensorRT",
            Self::Rten => "ONNX Runtime may know it, install its library; or export the network without it",
        }
    }
}

/// What to do about a file that the user may not read.
fn may_not_read(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("; give the user that runs visiond the right to: `sudo chmod a+r {}`", path.display())
        }
        _ => String::new(),
    }
}

/// Paths as one list.
fn list(paths: &[PathBuf]) -> impl fmt::Display {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
