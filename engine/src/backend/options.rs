//! How to load a model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use visiond_kernels::cuda::{Device, DeviceError};

use super::error::EngineError;
use super::kind::Backend;
use super::model_file::ModelFile;

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
    /// The GPU of engines; it is opened when there is one to load.
    pub device: DeviceChoice,
    /// TensorRT's library; `None` looks in `VISIOND_TENSORRT_LIBRARY` and the usual places.
    pub tensorrt_library: Option<PathBuf>,
    /// The SHA-256 that the model's file must have, in hexadecimal; any if `None`. An engine's file is a program.
    pub sha256: Option<String>,
}

impl EngineOptions {
    /// Refuses a file whose bytes are not those that are trusted.
    pub(crate) fn check_sha256(&self, file: &ModelFile) -> Result<(), EngineError> {
        match &self.sha256 {
            Some(pinned) if !pinned.eq_ignore_ascii_case(&file.sha256) => Err(EngineError::OtherSha256 {
                path: file.path.clone(),
                found: file.sha256.clone(),
                pinned: pinned.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Threads of one run, with 0 resolved.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// Which GPU.
#[derive(Debug, Clone)]
pub enum DeviceChoice {
    /// The one with this index.
    Index(u32),
    /// One that is open.
    Open(Arc<Device>),
}

impl Default for DeviceChoice {
    fn default() -> Self {
        Self::Index(0)
    }
}

impl DeviceChoice {
    /// The GPU, opened where it is not yet.
    pub fn open(&self) -> Result<Arc<Device>, DeviceError> {
        match self {
            Self::Index(index) => Device::open(*index),
            Self::Open(device) => Ok(device.clone()),
        }
    }
}
