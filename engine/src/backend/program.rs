//! The traits that a backend implements: [`Program`] is a loaded model, [`ProgramContext`] runs it over
//! [`InputTensor`]s.

use std::collections::BTreeMap;
use std::sync::Arc;

use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};

use super::error::EngineError;
use super::model_file::ModelFile;
use super::options::Backend;
use super::tensor_info::TensorInfo;

/// A model that a backend has loaded.
pub(crate) trait Program: Send + Sync {
    /// Creates a new context of the model.
    fn context(&self) -> Result<Box<dyn ProgramContext>, EngineError>;
}

/// One context of a [`Program`]: runs the model and keeps the outputs of the last run.
pub(crate) trait ProgramContext: Send {
    /// Runs over `inputs`, which are in the order of the model's inputs and have their final shapes.
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError>;

    /// Returns an output of the last run; `index` is below the number of outputs.
    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError>;
}

/// A model's file that a backend has loaded.
pub(crate) struct BackendModel {
    pub(crate) program: Box<dyn Program>,
    pub(crate) backend: Backend,
    pub(crate) description: String,
    pub(crate) file: ModelFile,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) inputs: Arc<[TensorInfo]>,
    pub(crate) outputs: Arc<[TensorInfo]>,
}

/// The shape and the bytes of an input.
pub(crate) struct InputTensor {
    dtype: DType,
    /// Empty or with zeros until the shape is set.
    shape: Vec<usize>,
    /// Whether the shape is final, so that a run can use it.
    chosen: bool,
    len_bytes: usize,
    buffer: UnifiedBuffer,
}

impl InputTensor {
    pub(crate) fn new(info: &TensorInfo) -> Result<Self, EngineError> {
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

    pub(crate) fn reshape(&mut self, info: &TensorInfo, shape: &[usize]) -> Result<(), EngineError> {
        let len_bytes = shape
            .iter()
            .try_fold(self.dtype.size_bytes(), |n, &dim| n.checked_mul(dim))
            .ok_or_else(|| EngineError::shape(info, shape, "the tensor is too large; choose a smaller shape"))?;
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

    pub(crate) fn set_batch(&mut self, frames: usize) {
        if let Some((batch, rest)) = self.shape.split_first_mut() {
            let len_bytes = rest.iter().product::<usize>() * self.dtype.size_bytes() * frames;
            // The buffer was allocated for the shape that was set; a batch never exceeds it.
            debug_assert!(len_bytes <= self.buffer.len(), "a batch grows no further than its buffer");
            if len_bytes <= self.buffer.len() {
                *batch = frames;
                self.len_bytes = len_bytes;
            }
        }
    }

    /// Whether the shape is final, so that a run can use it.
    pub(crate) fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Returns the tensor to fill; it is empty while its shape is open.
    pub(crate) fn view_mut(&mut self) -> TensorMut<'_> {
        let shape: &[usize] = if self.chosen { &self.shape } else { &[0] };
        let bytes = &mut self.buffer.as_mut_slice()[..self.len_bytes];
        #[expect(
            clippy::expect_used,
            reason = "`reshape` keeps `len_bytes` and `shape` together; an open shape has no bytes"
        )]
        TensorMut::new(self.dtype, shape, bytes).expect("an input's bytes are its shape's")
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
