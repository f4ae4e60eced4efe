//! One context of a network with its own tensors.

use std::sync::Arc;

use visiond_kernels::tensor::{TensorMut, TensorRef};

use crate::backend::{Backend, Context, Dim, EngineError, InputTensor, TensorInfo};

/// One context: input tensors to fill, a run, output tensors to read.
///
/// The session owns its inputs, and the backend reads them where they lie; outputs are read where the backend left them.
/// Sessions of one engine share its weights and may run at the same time.
pub struct Session {
    backend: Backend,
    inputs: Arc<[TensorInfo]>,
    outputs: Arc<[TensorInfo]>,
    tensors: Vec<InputTensor>,
    context: Box<dyn Context>,
}

impl Session {
    pub(crate) fn new(
        backend: Backend,
        inputs: Arc<[TensorInfo]>,
        outputs: Arc<[TensorInfo]>,
        context: Box<dyn Context>,
    ) -> Result<Self, EngineError> {
        let tensors = inputs.iter().map(InputTensor::new).collect::<Result<_, _>>()?;
        Ok(Self { backend, inputs, outputs, tensors, context })
    }

    /// What runs it.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The inputs, as declared.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The outputs, as declared.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// Chooses the shape of an input. Its contents become zero.
    ///
    /// Fixed dimensions of the network cannot be changed here, see [`Engine::session_with_shapes`](crate::engine::Engine::session_with_shapes).
    ///
    /// # Panics
    /// When there is no input `index`.
    pub fn set_input_shape(&mut self, index: usize, shape: &[usize]) -> Result<(), EngineError> {
        let info = &self.inputs[index];
        if let Some(dims) = &info.shape {
            if dims.len() != shape.len() {
                return Err(EngineError::shape(info, shape, "the number of dimensions differs"));
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

    /// The shape of an input; dimensions that are still open are 0.
    ///
    /// # Panics
    /// When there is no input `index`.
    pub fn input_shape(&self, index: usize) -> &[usize] {
        self.tensors[index].shape()
    }

    /// An input, to fill. It keeps what was written between runs. Empty while its shape is open.
    ///
    /// # Panics
    /// When there is no input `index`.
    pub fn input_mut(&mut self, index: usize) -> TensorMut<'_> {
        self.tensors[index].view_mut()
    }

    /// Cuts an input to its first `frames`, or takes cut ones back; what they hold stays. For inputs whose first dimension is
    /// open, up to the number that their shape was set to.
    pub(crate) fn set_batch(&mut self, index: usize, frames: usize) {
        self.tensors[index].set_batch(frames);
    }

    /// Runs the network over the inputs; returns when the outputs can be read.
    pub fn run(&mut self) -> Result<(), EngineError> {
        if let Some(open) = self.tensors.iter().position(|tensor| !tensor.is_chosen()) {
            let info = &self.inputs[open];
            return Err(EngineError::ShapeOpen { name: info.name.clone(), declared: info.shape.clone() });
        }
        self.context.run(&self.tensors)
    }

    /// An output of the last run, borrowed where the backend left it.
    ///
    /// Its element type is what the backend computed: rten has i32 where the model declares i64 or bool, and f32 where it
    /// declares f16.
    pub fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        if index >= self.outputs.len() {
            return Err(EngineError::NoOutput { index, outputs: self.outputs.len() });
        }
        self.context.output(index)
    }
}
