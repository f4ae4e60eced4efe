//! A loaded network and its contexts, whatever runs them.
//!
//! An [`Engine`] is a network that a backend has made ready; a [`Session`] is one context of it with its own tensors. A
//! backend implements `Program` and `Context`, and [`Engine::load`] chooses among them; nothing above sees which.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{Loaded, Program};
use crate::onnx;
use crate::tensorrt::plan::{self, PlanError};
use crate::tensorrt::{self, TensorRtProgram, TrtEngine};

pub use crate::backend::{Backend, DeviceChoice, Dim, EngineError, EngineOptions, ModelFile, TensorInfo, dims_text};
pub use crate::session::Session;

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
        let program: &dyn Any = &*self.program;
        program.downcast_ref::<TensorRtProgram>().map(TensorRtProgram::engine)
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
            let index = index.ok_or_else(|| EngineError::no_such_input(&self.file.path, name, &self.inputs))?;
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
