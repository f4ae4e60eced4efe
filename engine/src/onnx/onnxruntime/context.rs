//! One context of a session: its runs and the outputs of the last.

use std::sync::Arc;

use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{DType, TensorRef};

use super::Shared;
use super::values::{self, CpuMemory, Value};
use crate::engine::{Backend, Context, EngineError, InputTensor};
use crate::onnx::{guarded, schema};

pub(super) struct OnnxRuntimeContext {
    outputs: Vec<Output>,
    /// What the outputs point into. Declared before `shared`, so that values go before the session that made them.
    values: Vec<Value<'static>>,
    shared: Arc<Shared>,
}

/// An output of the last run.
struct Output {
    dtype: DType,
    shape: Vec<usize>,
    data: *const u8,
    len_bytes: usize,
}

// SAFETY: `data` points into a value of `OnnxRuntimeContext::values`, which is owned beside it and goes wherever it goes.
unsafe impl Send for Output {}

impl OnnxRuntimeContext {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { outputs: Vec::new(), values: Vec::new(), shared }
    }

    fn read_outputs(&mut self) -> Result<(), EngineError> {
        for (index, value) in self.values.iter().enumerate() {
            let mut shape = Vec::new();
            let name = || self.shared.output_names[index].to_string_lossy().into_owned();
            let not_tensor = |found: String| EngineError::OutputNotTensor { name: name(), found };
            let tensor = value.tensor(&mut shape, schema::dtype).map_err(|error| run_error(&error))?;
            let (element, data, len_bytes) = tensor.ok_or_else(|| not_tensor("a sequence or map".to_owned()))?;
            let dtype = schema::dtype(element);
            let dtype = dtype.ok_or_else(|| not_tensor(format!("a tensor of {}", schema::element_name(element))))?;
            self.outputs.push(Output { dtype, shape, data, len_bytes });
        }
        Ok(())
    }
}

/// The input as a value that borrows its bytes.
fn borrowed<'a>(memory: &CpuMemory, input: &'a InputTensor) -> ort::Result<Value<'a>> {
    let mut dims = [0_i64; 16];
    let dims = dims.get_mut(..input.shape().len());
    let dims = dims.ok_or_else(|| ort::Error::new("an input has more than 16 dimensions"))?;
    for (dim, &size) in dims.iter_mut().zip(input.shape()) {
        *dim = size as i64;
    }
    Value::input(memory, input.dtype(), dims, input.bytes())
}

fn run_error(error: &ort::Error) -> EngineError {
    EngineError::Run { backend: Backend::OnnxRuntime, reason: error.to_string() }
}

impl Context for OnnxRuntimeContext {
    fn run(&mut self, inputs: &[InputTensor], _stream: Stream) -> Result<(), EngineError> {
        self.outputs.clear();
        let Self { shared, values, .. } = self;
        guarded(Backend::OnnxRuntime, "ran the network", || {
            let value = |input| borrowed(&shared.memory, input);
            let inputs = inputs.iter().map(value).collect::<Result<Vec<_>, _>>().map_err(|error| run_error(&error))?;
            values::run(&shared.session, &shared.input_names, &inputs, &shared.output_names, values)
                .map_err(|error| run_error(&error))
        })?;
        self.read_outputs()
    }

    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        let outputs = self.shared.output_names.len();
        let output = self.outputs.get(index).ok_or(EngineError::NoOutput { index, outputs })?;
        let bytes: &[u8] = if output.len_bytes == 0 {
            &[]
        } else {
            // SAFETY: `data` is the address that the library gave for this value's elements, initialised by the run, `len_bytes`
            // their number times their size; the value lives in `self.values` until the next run, which needs `&mut self`.
            unsafe { std::slice::from_raw_parts(output.data, output.len_bytes) }
        };
        TensorRef::new(output.dtype, &output.shape, bytes)
            .map_err(|error| EngineError::Run { backend: Backend::OnnxRuntime, reason: error.to_string() })
    }
}
