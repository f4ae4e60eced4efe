//! rten, compiled in: the backend that is always available.
//!
//! rten computes in f32, i32, i8 and u8. An input or output declared as i64 or bool becomes i32, and f16 becomes f32. Weights
//! are converted when the model is loaded, inputs on each run into memory that the context keeps.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use rten::{Model as Graph, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueType, ValueView};
use rten_tensor::{AsView, Layout};
use visiond_kernels::tensor::{DType, TensorRef};

use super::model::{OnnxModel, guarded};
use super::rten_attributes::{AttributeError, with_attributes};
use crate::backend::{Backend, EngineError, EngineOptions, InputTensor, Program, ProgramContext, TensorInfo};

/// The text that [`crate::engine::Engine::backend_description`] returns for rten.
pub const DESCRIPTION: &str = "rten 0.27 (built in)";

/// A graph that rten has loaded.
struct RtenProgram {
    graph: Graph,
    input_ids: Vec<NodeId>,
    input_names: Vec<String>,
    output_ids: Vec<NodeId>,
    output_names: Vec<String>,
    threads: Arc<ThreadPool>,
}

/// Loads `model`.
pub(super) fn load(model: OnnxModel<'_>, options: &EngineOptions) -> Result<Box<dyn Program>, EngineError> {
    let path = model.path;
    let mut loader = ModelOptions::with_all_ops();
    // Keeps a second copy of the weights of matrix products, which would otherwise be packed on each run. It makes no
    // difference for a convolutional model, but a large one for a model with attention.
    loader.prepack_weights(true);
    for name in &model.external_files {
        let file = model.directory().join(name);
        let bytes =
            std::fs::read(&file).map_err(|error| EngineError::ExternalData { path: path.to_owned(), file, error })?;
        loader.external_data(&name.to_string_lossy(), bytes);
    }
    let bytes = with_attributes(model.bytes).map_err(|error| attribute_error(path, error))?;
    let graph = loader.load(bytes).map_err(|error| load_error(path, &error))?;
    let names = |infos: &[TensorInfo]| infos.iter().map(|info| info.name.clone()).collect::<Vec<_>>();
    let ids = |infos: &[TensorInfo]| {
        let id = |info: &TensorInfo| {
            let missing = || format!("`{}` is not in its graph", info.name);
            let found = graph.find_node(&info.name);
            found.ok_or_else(|| EngineError::Load(Backend::Rten, path.to_owned(), missing()))
        };
        infos.iter().map(id).collect::<Result<Vec<_>, _>>()
    };
    let (input_ids, output_ids) = (ids(model.inputs)?, ids(model.outputs)?);
    let threads = Arc::new(ThreadPool::with_num_threads(options.thread_count()));
    let (input_names, output_names) = (names(model.inputs), names(model.outputs));
    Ok(Box::new(Arc::new(RtenProgram { graph, input_ids, input_names, output_ids, output_names, threads })))
}

fn load_error(path: &Path, error: &rten::LoadError) -> EngineError {
    let path = path.to_owned();
    let text = error.to_string();
    match unsupported_operator(&text) {
        Some(operator) => {
            let node = error.node().filter(|node| !node.is_empty()).map(str::to_owned);
            EngineError::UnknownOperator { path, operator: operator.to_owned(), node, backend: Backend::Rten }
        }
        None => EngineError::Load(Backend::Rten, path, text),
    }
}

fn attribute_error(path: &Path, error: AttributeError) -> EngineError {
    let reason = match error {
        AttributeError::SameLower { operator, node } => format!(
            "`{operator}` node `{node}` has `auto_pad = SAME_LOWER`, which rten pads otherwise: install ONNX Runtime, or export the \
             model with `pads`"
        ),
        AttributeError::Wire => "its graph cannot be read: export the model again".to_owned(),
    };
    EngineError::Load(Backend::Rten, path.to_owned(), reason)
}

/// Returns the operator (without its domain) that rten's message calls unknown: only the text of its error names the operator.
fn unsupported_operator(text: &str) -> Option<&str> {
    [" operator not supported", " operator not enabled"]
        .iter()
        .find_map(|phrase| text.split_once(phrase))
        .and_then(|(before, _)| before.split([' ', '/']).next_back())
}

impl Program for Arc<RtenProgram> {
    fn context(&self) -> Result<Box<dyn ProgramContext>, EngineError> {
        let converted = vec![Converted::default(); self.input_ids.len()];
        Ok(Box::new(RtenContext { program: self.clone(), converted, outputs: Vec::new() }))
    }
}

/// An input in the type that rten expects, if the model declares another; the memory is reused.
#[derive(Default, Clone)]
struct Converted {
    floats: Vec<f32>,
    ints: Vec<i32>,
}

struct RtenContext {
    program: Arc<RtenProgram>,
    converted: Vec<Converted>,
    /// The outputs of the last run; empty before the first.
    outputs: Vec<Value>,
}

impl ProgramContext for RtenContext {
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError> {
        self.outputs.clear();
        for (input, converted) in inputs.iter().zip(&mut self.converted) {
            convert(input, converted);
        }
        let program = &*self.program;
        let mut values: Vec<(NodeId, ValueOrView<'_>)> = Vec::with_capacity(inputs.len());
        for (index, (input, converted)) in inputs.iter().zip(&self.converted).enumerate() {
            values.push((program.input_ids[index], view(input, converted, &program.input_names[index])?.into()));
        }
        let options = RunOptions::default().with_thread_pool(Some(program.threads.clone()));
        self.outputs = guarded(Backend::Rten, "ran the model", || {
            let run = program.graph.run(values, &program.output_ids, Some(options));
            run.map_err(|error| EngineError::Run(Backend::Rten, error.to_string()))
        })?;
        for (value, name) in self.outputs.iter_mut().zip(&program.output_names) {
            make_readable(value, name)?;
        }
        Ok(())
    }

    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        let outputs = self.program.output_ids.len();
        let value = self.outputs.get(index).ok_or(EngineError::NoOutput { index, outputs })?;
        let not_tensor = || EngineError::OutputNotTensor {
            name: self.program.output_names[index].clone(),
            found: value.dtype().to_string(),
        };
        macro_rules! tensor {
            ($tensor:expr, $dtype:expr) => {{
                let data = $tensor.data().ok_or_else(not_tensor)?;
                TensorRef::new($dtype, $tensor.shape(), bytes_of(data)).map_err(|_| not_tensor())
            }};
        }
        match value {
            Value::FloatTensor(tensor) => tensor!(tensor, DType::F32),
            Value::Int32Tensor(tensor) => tensor!(tensor, DType::I32),
            Value::Int8Tensor(tensor) => tensor!(tensor, DType::I8),
            Value::UInt8Tensor(tensor) => tensor!(tensor, DType::U8),
            _ => Err(not_tensor()),
        }
    }
}

/// Fills `converted` if rten expects another type than the model declares.
fn convert(input: &InputTensor, converted: &mut Converted) {
    let Converted { floats, ints } = converted;
    floats.clear();
    ints.clear();
    match input.dtype() {
        DType::F16 => floats.extend(chunks(input.bytes()).map(|b| f16::from_ne_bytes(b).to_f32())),
        DType::I64 => {
            let clamp = |b| i64::from_ne_bytes(b).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            ints.extend(chunks(input.bytes()).map(clamp));
        }
        DType::Bool => ints.extend(input.bytes().iter().map(|&b| i32::from(b != 0))),
        _ => {}
    }
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

fn view<'a>(input: &'a InputTensor, converted: &'a Converted, name: &str) -> Result<ValueView<'a>, EngineError> {
    let shape = input.shape();
    let view = match input.dtype() {
        DType::F16 => ValueView::from_shape(shape, &converted.floats).ok(),
        DType::I64 | DType::Bool => ValueView::from_shape(shape, &converted.ints).ok(),
        DType::F32 => typed::<f32>(input.bytes()).and_then(|data| ValueView::from_shape(shape, data).ok()),
        DType::I32 => typed::<i32>(input.bytes()).and_then(|data| ValueView::from_shape(shape, data).ok()),
        DType::I8 => typed::<i8>(input.bytes()).and_then(|data| ValueView::from_shape(shape, data).ok()),
        DType::U8 => ValueView::from_shape(shape, input.bytes()).ok(),
        _ => None,
    };
    view.ok_or_else(|| EngineError::dtype(Backend::Rten, name, input.dtype()))
}

/// A number type for which every bit pattern is valid and which has no padding.
trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for i8 {}
impl Plain for u8 {}

fn typed<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every bit pattern is a valid `Plain` number; `align_to` hands out only the aligned middle.
    let (head, middle, tail) = unsafe { bytes.align_to::<T>() };
    (head.is_empty() && tail.is_empty()).then_some(middle)
}

fn bytes_of<T: Plain>(data: &[T]) -> &[u8] {
    // SAFETY: `data` is initialised and `Plain` numbers have no padding; `u8` has no alignment; the length is its size in bytes.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), std::mem::size_of_val(data)) }
}

/// Makes a tensor contiguous, so that its bytes can be borrowed; rejects other values.
fn make_readable(value: &mut Value, name: &str) -> Result<(), EngineError> {
    match value {
        Value::FloatTensor(tensor) if tensor.data().is_none() => *tensor = tensor.to_tensor(),
        Value::Int32Tensor(tensor) if tensor.data().is_none() => *tensor = tensor.to_tensor(),
        Value::Int8Tensor(tensor) if tensor.data().is_none() => *tensor = tensor.to_tensor(),
        Value::UInt8Tensor(tensor) if tensor.data().is_none() => *tensor = tensor.to_tensor(),
        Value::FloatTensor(_) | Value::Int32Tensor(_) | Value::Int8Tensor(_) | Value::UInt8Tensor(_) => {}
        other => {
            let found = match other.dtype() {
                ValueType::Sequence(item) => format!("a sequence of {item} tensors"),
                other => other.to_string(),
            };
            return Err(EngineError::OutputNotTensor { name: name.to_owned(), found });
        }
    }
    Ok(())
}
