//! One context of a network with its own tensors.

use std::sync::Arc;

use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};

use super::{Backend, Context, Dim, EngineError, TensorInfo};

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

/// An input's shape and bytes.
pub(crate) struct InputTensor {
    dtype: DType,
    /// Empty, or with zeros, where not chosen yet.
    shape: Vec<usize>,
    /// Whether the shape is final enough to run.
    chosen: bool,
    len_bytes: usize,
    buffer: UnifiedBuffer,
}

impl InputTensor {
    fn new(info: &TensorInfo) -> Result<Self, EngineError> {
        let dims = info.shape.as_deref();
        let shape: Vec<usize> = dims.unwrap_or_default().iter().map(|dim| dim.fixed().unwrap_or(0)).collect();
        let chosen = dims.is_some_and(|dims| dims.iter().all(|dim| dim.fixed().is_some()));
        let mut tensor =
            Self { dtype: info.dtype, shape: Vec::new(), chosen: false, len_bytes: 0, buffer: UnifiedBuffer::host(0)? };
        if chosen {
            tensor.reshape(info, &shape)?;
        } else {
            tensor.shape = shape;
        }
        Ok(tensor)
    }

    fn reshape(&mut self, info: &TensorInfo, shape: &[usize]) -> Result<(), EngineError> {
        let len_bytes = shape
            .iter()
            .try_fold(self.dtype.size_bytes(), |n, &dim| n.checked_mul(dim))
            .ok_or_else(|| EngineError::shape(info, shape, "so large a tensor cannot be addressed"))?;
        if len_bytes > self.buffer.len() {
            self.buffer = UnifiedBuffer::host(len_bytes)?;
        }
        self.buffer.as_mut_slice()[..len_bytes].fill(0);
        self.len_bytes = len_bytes;
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.chosen = true;
        Ok(())
    }

    fn set_batch(&mut self, frames: usize) {
        if let Some((batch, rest)) = self.shape.split_first_mut() {
            let len_bytes = rest.iter().product::<usize>() * self.dtype.size_bytes() * frames;
            // The buffer was made for the shape that was set, and no more than that is ever taken back.
            debug_assert!(len_bytes <= self.buffer.len(), "a batch grows no further than its buffer");
            if len_bytes <= self.buffer.len() {
                *batch = frames;
                self.len_bytes = len_bytes;
            }
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.len_bytes]
    }
}

impl Session {
    pub(super) fn new(
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
    /// Fixed dimensions of the network cannot be changed here, see [`super::Engine::session_with_shapes`].
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
        let InputTensor { dtype, shape, chosen, len_bytes, buffer } = &mut self.tensors[index];
        let shape: &[usize] = if *chosen { shape } else { &[0] };
        let bytes = &mut buffer.as_mut_slice()[..*len_bytes];
        #[expect(
            clippy::expect_used,
            reason = "`reshape` keeps `len_bytes` and `shape` together; an open shape has no bytes"
        )]
        TensorMut::new(*dtype, shape, bytes).expect("an input's bytes are its shape's")
    }

    /// Cuts an input to its first `frames`, or takes cut ones back; what they hold stays. For inputs whose first dimension is
    /// open, up to the number that their shape was set to.
    pub(crate) fn set_batch(&mut self, index: usize, frames: usize) {
        self.tensors[index].set_batch(frames);
    }

    /// Runs the network over the inputs; returns when the outputs can be read.
    pub fn run(&mut self, stream: Stream) -> Result<(), EngineError> {
        if let Some(open) = self.tensors.iter().position(|tensor| !tensor.chosen) {
            let info = &self.inputs[open];
            return Err(EngineError::ShapeOpen { name: info.name.clone(), declared: info.shape.clone() });
        }
        self.context.run(&self.tensors, stream)
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
