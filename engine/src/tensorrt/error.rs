//! Errors of TensorRT, with remedies.

use std::path::{Path, PathBuf};

use visiond_ground::jetson;
use visiond_kernels::cuda::refusal_of_free_memory;

use super::error_recorder::Reported;
use super::version::Version;
use crate::backend::EngineError;

/// Why TensorRT cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorRtError {
    /// No library of these names was found, only libraries of unsupported versions in the system's directories.
    #[error(
        "TensorRT is not installed: the loader finds none of {0}{seen}; install it (on a Jetson: `sudo apt install tensorrt`), or name \
         the library in VISIOND_TENSORRT_LIBRARY or the configuration",
        seen = also(.1)
    )]
    NotInstalled(String, Vec<PathBuf>),
    /// A file cannot be opened (the loader's own message), or is a different library.
    #[error("cannot use {0} as TensorRT's library: {1}")]
    Unusable(PathBuf, String),
    /// The layout of this version's objects is unknown.
    #[error("{path} is {version}, which visiond does not support: {remedy}")]
    Unsupported {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// The version to install, as an imperative.
        remedy: &'static str,
    },
    /// The loaded version lacks a method, named with its class.
    #[error("{0} has no `{method}`: install a newer version", method = method(.1))]
    Missing(Version, &'static str),
    /// The library returned no object.
    #[error("{version} cannot start its {what}: {reason}")]
    NotStarted {
        /// The version.
        version: Version,
        /// "runtime", "builder" or "ONNX parser".
        what: &'static str,
        /// The library's message, or the most likely cause.
        reason: String,
    },
    /// The engine has an implicit batch dimension, which predates named tensors.
    #[error(
        "the engine was built from a model with an implicit batch, as UFF and Caffe models were: export the model to ONNX \
         and build it with `visiond build`"
    )]
    ImplicitBatch,
    /// The elements of a tensor have an unsupported type.
    #[error(
        "the engine's tensor `{name}` is {found}, which visiond does not support: build it with inputs and outputs in \
         FP32, FP16, INT8, UINT8, INT32, INT64 or BOOL"
    )]
    DataType {
        /// The tensor.
        name: String,
        /// Its element type.
        found: String,
    },
    /// The elements of a tensor are not contiguous.
    #[error(
        "the engine's tensor `{name}` is laid out as {found}, which visiond does not support: build it with linear \
         inputs and outputs, as `visiond build` does (with trtexec, leave out --inputIOFormats and --outputIOFormats)"
    )]
    Format {
        /// The tensor.
        name: String,
        /// The layout in TensorRT's words.
        found: String,
    },
    /// The engine has no tensor of this name.
    #[error("the engine has no input or output `{0}`")]
    UnknownTensor(String),
    /// The shape of an input was not set.
    #[error("the engine's input `{0}` has no shape yet: set the input's size in the model card or `input_shapes`")]
    ShapeOpen(String),
    /// The shape of an output is known only after the run.
    #[error(
        "the engine's output `{0}` has one element per object found, which visiond does not support: export the model \
         without its own NMS (Ultralytics: nms=False), or with a fixed number of boxes"
    )]
    DependsOnData(String),
    /// A tensor in host memory cannot have an address on the GPU.
    #[error("the engine's tensor `{0}` holds numbers for shapes, which are in host memory: run it in a session")]
    OnHost(String),
    /// TensorRT refused a call.
    #[error("{version} cannot {doing}: {}", sentence(.reported))]
    Refused {
        /// The version.
        version: Version,
        /// The attempted task, as in "cannot load the engine".
        doing: String,
        /// The errors that it reported.
        reported: Vec<Reported>,
    },
}

impl From<TensorRtError> for EngineError {
    fn from(error: TensorRtError) -> Self {
        Self::Backend(Box::new(error))
    }
}

/// Returns `IRuntime::setMaxThreads` for `VRuntime::setMaxThreads`: the name in NVIDIA's documentation.
fn method(name: &str) -> String {
    name.strip_prefix('V').map_or_else(|| name.to_owned(), |rest| format!("I{rest}"))
}

fn also(seen: &[PathBuf]) -> String {
    if seen.is_empty() {
        return String::new();
    }
    let seen: Vec<_> = seen.iter().map(|path| path.display().to_string()).collect();
    format!(" (found {}, a version that visiond does not support)", seen.join(", "))
}

/// Joins the reported errors, first one first: later ones mostly follow from it.
fn sentence(reported: &[Reported]) -> String {
    match reported {
        [] => "no reason given; `visiond --log-level debug` shows its messages".to_owned(),
        _ => reported.iter().map(Reported::to_string).collect::<Vec<_>>().join("; ") + of_memory(reported, release()),
    }
}

fn release() -> Option<(u32, u32, u32)> {
    jetson::release(Path::new("/"))
}

/// Returns what an error of memory means on this release of Jetson Linux; empty for other errors and elsewhere.
///
/// TensorRT's own allocations report `Cuda Runtime (out of memory)` and `OutOfMemory (Requested size was ... bytes.)`.
fn of_memory(reported: &[Reported], release: Option<(u32, u32, u32)>) -> &'static str {
    let is_memory = |text: &str| text.to_lowercase().replace(' ', "").contains("outofmemory");
    if reported.iter().any(|error| is_memory(&error.text)) { refusal_of_free_memory(release) } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_of_tensorrts_that_fails_asks_for_a_reboot_where_the_release_refuses_free_memory() {
        for text in
            ["Error Code 1: Cuda Runtime (out of memory)", "Error Code 2: OutOfMemory (Requested size was 9 bytes.)"]
        {
            let reported = [Reported { code: None, text: text.to_owned() }];
            assert!(of_memory(&reported, Some((36, 4, 7))).contains("reboot the board"), "{text}");
            assert_eq!(of_memory(&reported, Some((38, 4, 0))), "", "{text}");
        }
        let other = [Reported { code: Some(4), text: "Error Code 4: Internal Error".to_owned() }];
        assert_eq!(of_memory(&other, Some((36, 4, 7))), "");
    }
}
