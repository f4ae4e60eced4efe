//! A loaded network and its contexts, whatever runs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};

/// One dimension of a tensor's declared shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Fixed(usize),
    /// Chosen at run time; the name that the file gives it, or empty.
    Dynamic(String),
}

/// What a network declares of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape; `None` where the file does not tell even the number of dimensions.
    pub shape: Option<Vec<Dim>>,
}

/// What runs a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// ONNX Runtime's library, opened at run time.
    OnnxRuntime,
    /// rten, compiled in.
    Rten,
}

/// How to load a network.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// What must run it; `None` takes the best that is there.
    pub backend: Option<Backend>,
    /// ONNX Runtime's library; `None` looks in `ORT_DYLIB_PATH` and the usual places.
    pub onnxruntime_library: Option<PathBuf>,
    /// Threads of one run; 0 takes every core.
    pub threads: usize,
    /// Shapes that replace what the file declares, by input name.
    pub input_shapes: BTreeMap<String, Vec<usize>>,
}

/// The network's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it was read.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256 of its bytes, in lower-case hexadecimal.
    pub sha256: String,
}
