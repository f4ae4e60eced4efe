//! A loaded model, independent of its backend.
//!
//! An [`Engine`] is a model that a backend has loaded; a [`Session`] is one context of it with its own tensors. A backend
//! implements `Program` and `ProgramContext`, and [`Engine::load`] selects the backend. Nothing above this module depends on the
//! choice.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::backend::BackendModel;
use crate::onnx;
use crate::tensorrt::plan::{self, PlanError};
use crate::tensorrt::{self, TrtEngine};

pub use crate::backend::{Backend, DeviceChoice, Dim, EngineError, EngineOptions, ModelFile, TensorInfo, dims_text};
pub use crate::session::Session;

/// A loaded model.
///
/// # Examples
/// Runs a model on an empty input:
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
///
/// use visiond_engine::engine::{Engine, EngineOptions};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vm/tiny.onnx");
/// let engine = Engine::load(Path::new(path), &EngineOptions::default())?;
/// let mut session = engine.session()?;
/// assert_eq!(session.input_shape(0), [1, 3, 64, 128]);
/// session.input_mut(0).bytes().fill(0);
/// session.run()?;
/// assert_eq!(session.output(0)?.shape(), [1, 12, 8]);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    model: BackendModel,
    /// The engine on the GPU, if TensorRT runs the model.
    tensorrt: Option<Arc<TrtEngine>>,
    options: EngineOptions,
}

impl Engine {
    /// Loads the model at `path`: a TensorRT engine with TensorRT, an ONNX model with the backend that `options` names, otherwise
    /// the fastest one installed. The file's content decides which it is, not its name.
    pub fn load(path: &Path, options: &EngineOptions) -> Result<Self, EngineError> {
        let (model, tensorrt) = if plan::is_plan_file(path) {
            tensorrt::load(path, options).map(|(model, engine)| (model, Some(engine)))?
        } else {
            (load_onnx(path, options)?, None)
        };
        Ok(Self { model, tensorrt, options: options.clone() })
    }

    /// Returns the largest batch size, if the model leaves it open and the engine limits it.
    pub(crate) fn batch_limit(&self) -> Option<usize> {
        let open = |info: &&TensorInfo| matches!(info.shape.as_deref(), Some([Dim::Dynamic(_), ..]));
        let limits = |info: &TensorInfo| {
            let tensor = self.tensorrt()?.tensor(&info.name).filter(|tensor| !tensor.on_host)?;
            tensor.limits.iter().filter_map(|limits| limits.max.first()).max().copied()
        };
        self.inputs().iter().filter(open).filter_map(limits).min()
    }

    /// Returns the inputs in the file's order, with the shapes of [`EngineOptions::input_shapes`].
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.model.inputs
    }

    /// Returns the outputs in the file's order.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.model.outputs
    }

    /// Returns the backend that runs the model.
    pub fn backend(&self) -> Backend {
        self.model.backend
    }

    /// Returns the backend with its version and path: "ONNX Runtime 1.32.0 (/usr/lib/libonnxruntime.so)", "rten 0.27 (built
    /// in)".
    pub fn backend_description(&self) -> &str {
        &self.model.description
    }

    /// Returns the engine on the GPU if TensorRT runs the model.
    pub fn tensorrt(&self) -> Option<&Arc<TrtEngine>> {
        self.tensorrt.as_ref()
    }

    /// Returns the file that the model was read from.
    pub fn file(&self) -> &ModelFile {
        &self.model.file
    }

    /// Returns the metadata that the exporter wrote into the file, by key.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.model.metadata
    }

    /// Whether [`EngineOptions::input_shapes`] sets the shape of an input.
    pub(crate) fn overrides(&self, input: &str) -> bool {
        self.options.input_shapes.contains_key(input)
    }

    /// Creates a context with its own tensors.
    pub fn session(&self) -> Result<Session, EngineError> {
        Session::new(&self.model)
    }

    /// Creates a context whose inputs have the given shapes.
    ///
    /// If a shape contradicts a dimension that the file fixes, this loads the file again with that dimension rewritten: many
    /// models work at sizes other than the one they were exported with.
    pub fn session_with_shapes(&self, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Session, EngineError> {
        let contradicts = |info: &TensorInfo| {
            let (Some(asked), Some(dims)) = (shapes.get(&info.name), &info.shape) else { return false };
            asked.len() == dims.len()
                && dims.iter().zip(asked).any(|(dim, size)| dim.fixed().is_some_and(|d| d != *size))
        };
        let mut session = if self.inputs().iter().any(contradicts) {
            let mut options = self.options.clone();
            options.backend = Some(self.model.backend);
            options.input_shapes.extend(shapes.clone());
            Self::load(&self.file().path, &options)?.session()?
        } else {
            self.session()?
        };
        for (name, shape) in shapes {
            let index = session.inputs().iter().position(|info| info.name == *name);
            let index = index.ok_or_else(|| EngineError::no_such_input(&self.file().path, name, self.inputs()))?;
            session.set_input_shape(index, shape)?;
        }
        Ok(session)
    }
}

/// Loads the ONNX model at `path`. A file that is named like an engine but is not one is rejected, because its owner expects
/// the GPU.
fn load_onnx(path: &Path, options: &EngineOptions) -> Result<BackendModel, EngineError> {
    if !plan::has_plan_name(path) {
        return onnx::load(path, options);
    }
    let (path, command) = (path.to_owned(), plan::rebuild_command(path));
    Err(match onnx::file::OnnxFile::read(&path) {
        Ok(_) => PlanError::Onnx(path, command).into(),
        Err(EngineError::NotOnnx { .. }) => PlanError::NotAPlan(path, command).into(),
        Err(EngineError::Empty { .. }) => PlanError::Empty(path, command).into(),
        Err(other) => other,
    })
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} on {})", self.file().path.display(), self.model.description)
    }
}
