//! The backend that loads a model, and its options.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use visiond_kernels::cuda::{Device, DeviceError};

/// The backend that runs a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// ONNX Runtime's library, opened at run time.
    OnnxRuntime,
    /// rten, compiled in.
    Rten,
    /// TensorRT's library, opened at run time: runs engines on the GPU.
    TensorRt,
}

impl Backend {
    /// Returns the name used in the configuration and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Rten => "rten",
            Self::TensorRt => "tensorrt",
        }
    }
}

/// Writes the product's name.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::Rten => "rten",
            Self::TensorRt => "TensorRT",
        })
    }
}

/// Options for loading a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The backend that must run the model; `None` selects the fastest one installed.
    pub backend: Option<Backend>,
    /// ONNX Runtime's library; `None` searches `ORT_DYLIB_PATH` and the usual places.
    pub onnxruntime_library: Option<PathBuf>,
    /// Threads per run; 0 uses every core.
    pub threads: usize,
    /// Shapes that replace what the file declares, by input.
    pub input_shapes: BTreeMap<String, Vec<usize>>,
    /// The GPU that runs TensorRT engines. It is opened only to load one.
    pub device: DeviceChoice,
    /// TensorRT's library; `None` searches `VISIOND_TENSORRT_LIBRARY` and the usual places.
    pub tensorrt_library: Option<PathBuf>,
    /// The SHA-256 that the file must have, in hexadecimal; `None` accepts any file. Set it for engines: an engine file is a
    /// program.
    pub sha256: Option<String>,
}

impl EngineOptions {
    /// Returns the number of threads per run, with 0 resolved.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// Which GPU to use.
#[derive(Debug, Clone)]
pub enum DeviceChoice {
    /// The GPU with this index.
    Index(u32),
    /// A GPU that is already open.
    Open(Arc<Device>),
}

impl Default for DeviceChoice {
    fn default() -> Self {
        Self::Index(0)
    }
}

impl DeviceChoice {
    /// Returns the GPU, and opens it if necessary.
    pub fn open(&self) -> Result<Arc<Device>, DeviceError> {
        match self {
            Self::Index(index) => Device::open(*index),
            Self::Open(device) => Ok(device.clone()),
        }
    }
}
