//! One context of a model with its own tensors.

use std::sync::Arc;

use visiond_kernels::tensor::{TensorMut, TensorRef};

use crate::backend::{Backend, BackendModel, Dim, EngineError, InputTensor, ProgramContext, TensorInfo};

/// One context of a model: fill the input tensors, run, read the output tensors.
///
/// The session owns its inputs, and the backend reads them in place; outputs are read in place from the backend. Sessions of
/// one engine share its weights and may run at the same time.
pub struct Session {
    backend: Backend,
    inputs: Arc<[TensorInfo]>,
    outputs: Arc<[TensorInfo]>,
    tensors: Vec<InputTensor>,
    context: Box<dyn ProgramContext>,
}

impl Session {
    pub(crate) fn new(model: &BackendModel) -> Result<Self, EngineError> {
        let context = model.program.context()?;
        let tensors = model.inputs.iter().map(InputTensor::new).collect::<Result<_, _>>()?;
        let (inputs, outputs) = (model.inputs.clone(), model.outputs.clone());
        Ok(Self { backend: model.backend, inputs, outputs, tensors, context })
    }

    /// Returns the backend that runs the model.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the inputs as the model declares them.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// Returns the outputs as the model declares them.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// Sets the shape of an input and fills the input with zeros.
    ///
    /// This cannot change a dimension that the model fixes; see
    /// [`Engine::session_with_shapes`](crate::engine::Engine::session_with_shapes).
    ///
    /// # Panics
    /// If there is no input `index`.
    pub fn set_input_shape(&mut self, index: usize, shape: &[usize]) -> Result<(), EngineError> {
        let info = &self.inputs[index];
        if let Some(dims) = &info.shape {
            if dims.len() != shape.len() {
                return Err(EngineError::shape(
                    info,
                    shape,
                    "the number of dimensions differs: give as many as the model has",
                ));
            }
            if dims.iter().zip(shape).any(|(dim, &size)| matches!(dim, Dim::Fixed(fixed) if *fixed != size)) {
                let reason =
                    "the model fixes its size; export it with dynamic axes, or override it with `input_shapes`";
                return Err(EngineError::shape(info, shape, reason));
            }
        }
        if shape.contains(&0) {
            return Err(EngineError::shape(info, shape, "every dimension must be at least 1"));
        }
        self.tensors[index].reshape(info, shape)
    }

    /// Returns the shape of an input; a dimension that is still open is 0.
    ///
    /// # Panics
    /// If there is no input `index`.
    pub fn input_shape(&self, index: usize) -> &[usize] {
        self.tensors[index].shape()
    }

    /// Returns an input to fill. It keeps its content between runs, and is empty while its shape is open.
    ///
    /// # Panics
    /// If there is no input `index`.
    pub fn input_mut(&mut self, index: usize) -> TensorMut<'_> {
        self.tensors[index].view_mut()
    }

    /// Sets the batch size of an input whose first dimension is open, up to the size of its shape. The buffer keeps its
    /// frames, even those beyond `frames`.
    pub(crate) fn set_batch(&mut self, index: usize, frames: usize) {
        self.tensors[index].set_batch(frames);
    }

    /// Runs the model over the inputs and returns when the outputs can be read.
    pub fn run(&mut self) -> Result<(), EngineError> {
        if let Some(open) = self.tensors.iter().position(|tensor| !tensor.is_chosen()) {
            let info = &self.inputs[open];
            return Err(EngineError::ShapeOpen(info.clone()));
        }
        self.context.run(&self.tensors)
    }

    /// Returns an output of the last run, borrowed from the backend.
    ///
    /// Its element type is the backend's: rten uses i32 if the model declares i64 or bool, and f32 if it declares f16.
    pub fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        if index >= self.outputs.len() {
            return Err(EngineError::NoOutput { index, outputs: self.outputs.len() });
        }
        self.context.output(index)
    }
}
