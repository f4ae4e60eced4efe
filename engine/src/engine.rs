//! A loaded network and its contexts, whatever runs them.
//!
//! An [`Engine`] is a network that a backend has made ready; a [`Session`] is one context of it with its own tensors. A
//! backend implements `Program` and `Context`, and [`Engine::load`] chooses among them; nothing above sees which.

mod error;
mod session;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use visiond_kernels::cuda::{Device, DeviceError};
use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{DType, TensorRef};

use crate::onnx;
use crate::tensorrt::plan::{self, PlanError};
use crate::tensorrt::{self, TrtEngine};

pub use error::EngineError;
pub(crate) use session::InputTensor;
pub use session::Session;

/// One dimension of a tensor's declared shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Fixed(usize),
    /// Chosen at run time; the name that the file gives it, or empty.
    Dynamic(String),
}

impl Dim {
    /// The number, where it is one.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Dynamic(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic(name) if name.is_empty() => f.write_str("?"),
            Self::Dynamic(name) => f.write_str(name),
        }
    }
}

/// A declared shape as people write it: `[batch, 3, 416, 416]`.
pub fn dims_text(shape: &Option<Vec<Dim>>) -> String {
    match shape {
        None => "of unknown shape".to_owned(),
        Some(dims) => format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")),
    }
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

/// `images f32 [1, 3, 416, 416]`.
impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.dtype, dims_text(&self.shape))
    }
}

/// What runs a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// ONNX Runtime's library, opened at run time.
    OnnxRuntime,
    /// rten, compiled in.
    Rten,
    /// TensorRT's library, opened at run time: engines on the GPU.
    TensorRt,
}

impl Backend {
    /// The name used in the configuration and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Rten => "rten",
            Self::TensorRt => "tensorrt",
        }
    }
}

/// The name that people know it by.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::Rten => "rten",
            Self::TensorRt => "TensorRT",
        })
    }
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
    /// The GPU of engines; it is opened when there is one to load.
    pub device: DeviceChoice,
    /// TensorRT's library; `None` looks in `VISIOND_TENSORRT_LIBRARY` and the usual places.
    pub tensorrt_library: Option<PathBuf>,
    /// The SHA-256 that the model's file must have, in hexadecimal; any if `None`. An engine's file is a program.
    pub sha256: Option<String>,
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

/// A network that a backend has made ready to run.
pub(crate) trait Program: Send + Sync {
    /// A new context of it.
    fn context(&self) -> Result<Box<dyn Context>, EngineError>;

    /// The engine on the GPU, where it is one.
    fn tensorrt(&self) -> Option<&Arc<TrtEngine>> {
        None
    }
}

/// One context of a [`Program`]: runs, and keeps the outputs of the last run.
pub(crate) trait Context: Send {
    /// Runs over `inputs`, which are in the order of the network's inputs and have their final shapes.
    fn run(&mut self, inputs: &[InputTensor], stream: Stream) -> Result<(), EngineError>;

    /// An output of the last run; `index` is one of the network's.
    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError>;
}

/// What a backend makes of a file.
pub(crate) struct Loaded {
    pub(crate) program: Box<dyn Program>,
    pub(crate) backend: Backend,
    pub(crate) description: String,
    pub(crate) file: ModelFile,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
}

/// A loaded network.
pub struct Engine {
    program: Box<dyn Program>,
    backend: Backend,
    description: String,
    file: ModelFile,
    metadata: BTreeMap<String, String>,
    inputs: Arc<[TensorInfo]>,
    outputs: Arc<[TensorInfo]>,
    options: EngineOptions,
}

impl Engine {
    /// Loads the network at `path`: an engine with TensorRT, an ONNX model with the backend of `options` or the best that is
    /// there. What it is, its content says, not its name.
    pub fn load(path: &Path, options: &EngineOptions) -> Result<Self, EngineError> {
        let Loaded { program, backend, description, file, metadata, inputs, outputs } =
            if plan::is_plan_file(path) { tensorrt::load(path, options)? } else { load_onnx(path, options)? };
        let (inputs, outputs) = (inputs.into(), outputs.into());
        Ok(Self { program, backend, description, file, metadata, inputs, outputs, options: options.clone() })
    }

    /// The most frames of one run, where the inputs leave their number open and the engine limits it.
    pub(crate) fn most_frames(&self) -> Option<usize> {
        let open = |info: &&TensorInfo| matches!(info.shape.as_deref(), Some([Dim::Dynamic(_), ..]));
        let limits = |info: &TensorInfo| {
            let tensor = self.tensorrt()?.tensor(&info.name).filter(|tensor| !tensor.on_host)?;
            tensor.limits.iter().filter_map(|limits| limits.max.first()).max().copied()
        };
        self.inputs.iter().filter(open).filter_map(limits).min()
    }

    /// The inputs, in the file's order, with the shapes of [`EngineOptions::input_shapes`].
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The outputs, in the file's order.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// What runs it.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// What runs it, with version and place: "ONNX Runtime 1.31.1 (/usr/lib/libonnxruntime.so)", "rten 0.27 (built in)".
    pub fn backend_description(&self) -> &str {
        &self.description
    }

    /// The engine on the GPU, where TensorRT runs it.
    pub fn tensorrt(&self) -> Option<&Arc<TrtEngine>> {
        self.program.tensorrt()
    }

    /// The file that it was read from.
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// The notes that its exporter left in the file, by name.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Whether the shape of an input was asked for in [`EngineOptions::input_shapes`].
    pub(crate) fn overrides(&self, input: &str) -> bool {
        self.options.input_shapes.contains_key(input)
    }

    /// A new context with its own tensors.
    pub fn session(&self) -> Result<Session, EngineError> {
        Session::new(self.backend, self.inputs.clone(), self.outputs.clone(), self.program.context()?)
    }

    /// A new context whose inputs have these shapes.
    ///
    /// Where a shape contradicts a dimension that the file fixes, the file is loaded once more with that dimension rewritten,
    /// because many networks work at other sizes than the one they were exported with.
    pub fn session_with_shapes(&self, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Session, EngineError> {
        let contradicts = |info: &TensorInfo| {
            let (Some(asked), Some(dims)) = (shapes.get(&info.name), &info.shape) else { return false };
            asked.len() == dims.len()
                && dims.iter().zip(asked).any(|(dim, size)| dim.fixed().is_some_and(|d| d != *size))
        };
        let mut session = if self.inputs.iter().any(contradicts) {
            let mut options = self.options.clone();
            options.backend = Some(self.backend);
            options.input_shapes.extend(shapes.clone());
            Self::load(&self.file.path, &options)?.session()?
        } else {
            self.session()?
        };
        for (name, shape) in shapes {
            let index = session.inputs().iter().position(|info| info.name == *name);
            let index = index.ok_or_else(|| onnx::no_such_input(&self.file.path, name, &self.inputs))?;
            session.set_input_shape(index, shape)?;
        }
        Ok(session)
    }
}

/// Loads the ONNX model at `path`. What has an engine's name and is none is refused: its owner expects the GPU.
fn load_onnx(path: &Path, options: &EngineOptions) -> Result<Loaded, EngineError> {
    if !plan::has_plan_name(path) {
        return onnx::load(path, options);
    }
    let (path, command) = (path.to_owned(), plan::rebuild_command(path));
    Err(match onnx::file::OnnxFile::read(&path) {
        Ok(_) => PlanError::Onnx { path, command }.into(),
        Err(EngineError::NotOnnx { .. }) => PlanError::NotAPlan { path, command }.into(),
        Err(EngineError::Empty { .. }) => PlanError::Empty { path, command }.into(),
        Err(other) => other,
    })
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} on {})", self.file.path.display(), self.description)
    }
}
