//! What can go wrong with TensorRT, each with what to do about it.

use std::fmt;
use std::path::PathBuf;

use super::error_recorder::Reported;
use super::version::Version;
use crate::backend::EngineError;

/// TensorRT is not there, does not serve, or refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorRtError {
    /// No library was found.
    #[error(
        "TensorRT is not installed: the loader knows none of {names}{seen}; install it (on a Jetson: `sudo apt install \
         tensorrt`), or name the library in VISIOND_TENSORRT_LIBRARY or the configuration",
        seen = also(.seen)
    )]
    NotInstalled {
        /// Names that were asked for.
        names: String,
        /// Libraries of other versions that lie in the system's directories.
        seen: Vec<PathBuf>,
    },
    /// A library is there and cannot be opened, or is another.
    #[error("{path} does not serve as TensorRT's library: {reason}")]
    Unusable {
        /// The library.
        path: PathBuf,
        /// What the loader says, word for word, or what the file is.
        reason: String,
    },
    /// The version's objects are laid out in a way that is not known.
    #[error("{path} is {version}, which visiond does not run: {remedy}")]
    Unsupported {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// What to do.
        remedy: &'static str,
    },
    /// The loaded version lacks a method.
    #[error("{version} has no `{what}`, which this needs: a newer version has it", what = method(.what))]
    Missing {
        /// Class and method.
        what: &'static str,
        /// The version.
        version: Version,
    },
    /// The library gave no object.
    #[error("{version} could not start its {what}: {reason}")]
    NotStarted {
        /// The version.
        version: Version,
        /// "runtime", "builder".
        what: &'static str,
        /// What it says, or the likeliest cause.
        reason: String,
    },
    /// An engine of the time before named tensors.
    #[error(
        "the engine was built from a network with an implicit batch, as UFF and Caffe models were: export the network to ONNX \
         and build it with `visiond build`"
    )]
    ImplicitBatch,
    /// A tensor's elements are of a type that is neither fed nor read.
    #[error(
        "the engine's tensor `{name}` is {found}, which visiond neither feeds nor reads: build it with inputs and outputs in \
         FP32, FP16, INT8, UINT8, INT32, INT64 or BOOL"
    )]
    DataType {
        /// The tensor.
        name: String,
        /// Its type.
        found: String,
    },
    /// A tensor's elements do not lie one behind the other.
    #[error(
        "the engine's tensor `{name}` is laid out as {found}, which visiond neither feeds nor reads: build it with linear \
         inputs and outputs, as `visiond build` does (with trtexec, leave out --inputIOFormats and --outputIOFormats)"
    )]
    Format {
        /// The tensor.
        name: String,
        /// The layout in TensorRT's words.
        found: String,
    },
    /// A name that the engine does not know.
    #[error("the engine has no tensor `{name}` that goes in or out")]
    UnknownTensor {
        /// The name.
        name: String,
    },
    /// An input's shape was not chosen.
    #[error("the engine's input `{name}` has no shape yet: set the input's size in the model card or `input_shapes`")]
    ShapeOpen {
        /// The input.
        name: String,
    },
    /// An output's shape is known only after the run.
    #[error(
        "the engine's output `{name}` has as many elements as it finds objects, which visiond does not read: export the network \
         without its own suppression (Ultralytics: nms=False), or with a fixed number of boxes"
    )]
    DependsOnData {
        /// The output.
        name: String,
    },
    /// A tensor in host memory was to be given an address on the GPU.
    #[error("the engine's tensor `{name}` holds numbers for shapes, which are in host memory: run it in a session")]
    OnHost {
        /// The tensor.
        name: String,
    },
    /// A call was refused.
    #[error("{version} could not {doing}: {}", sentence(.reported))]
    Refused {
        /// The version.
        version: Version,
        /// What was asked for, to read behind "could not".
        doing: String,
        /// What it reported.
        reported: Vec<Reported>,
    },
}

impl From<TensorRtError> for EngineError {
    fn from(error: TensorRtError) -> Self {
        Self::Backend(Box::new(error))
    }
}

/// `IRuntime::setMaxThreads` for `VRuntime::setMaxThreads`: the name that NVIDIA's documents have.
fn method(name: &str) -> String {
    match name.strip_prefix('V') {
        Some(rest) => format!("I{rest}"),
        None => name.to_owned(),
    }
}

fn also(seen: &[PathBuf]) -> impl fmt::Display {
    match seen {
        [] => String::new(),
        _ => {
            let seen: Vec<_> = seen.iter().map(|path| path.display().to_string()).collect();
            format!(" (there is {}, of a version that visiond does not run)", seen.join(", "))
        }
    }
}

/// What was reported, the first first: later ones mostly follow from it.
fn sentence(reported: &[Reported]) -> String {
    match reported {
        [] => "it gives no reason; `visiond --log-level debug` shows its messages".to_owned(),
        _ => reported.iter().map(Reported::to_string).collect::<Vec<_>>().join("; "),
    }
}
