//! A model that ONNX Runtime runs.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use ort::logging::LogLevel;
use ort::session::Session;
use visiond_kernels::tensor::{DType, TensorRef};

use super::runtime::Runtime;
use super::values::{self, CpuMemory, RuntimeValue};
use crate::backend::{Backend, EngineError, EngineOptions, InputTensor, Program, ProgramContext, TensorInfo};
use crate::onnx::file::node_using;
use crate::onnx::known_faults::disabled_optimizers;
use crate::onnx::model::{OnnxModel, guarded};
use crate::onnx::schema;

/// A session of ONNX Runtime, and the data that its contexts share.
struct OnnxRuntimeProgram {
    session: Session,
    memory: CpuMemory,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
}

impl Program for Arc<OnnxRuntimeProgram> {
    fn context(&self) -> Result<Box<dyn ProgramContext>, EngineError> {
        Ok(Box::new(OnnxRuntimeContext { outputs: Vec::new(), values: Vec::new(), program: self.clone() }))
    }
}

/// Loads `model`.
pub(in crate::onnx) fn load(
    runtime: &Runtime,
    model: OnnxModel<'_>,
    options: &EngineOptions,
) -> Result<Box<dyn Program>, EngineError> {
    let weights = model.external_files.iter().map(|name| external_file(&model, name)).collect::<Result<Vec<_>, _>>()?;
    let session = build(runtime, &model, weights, options).map_err(|error| load_error(&model, &error.to_string()))?;
    let zero = |_| load_error(&model, "a tensor's name has a zero byte in it");
    let names = |infos: &[TensorInfo]| {
        infos.iter().map(|info| CString::new(info.name.as_str()).map_err(zero)).collect::<Result<Vec<_>, _>>()
    };
    let (input_names, output_names) = (names(model.inputs)?, names(model.outputs)?);
    let memory = CpuMemory::new().map_err(|error| load_error(&model, &error.to_string()))?;
    Ok(Box::new(Arc::new(OnnxRuntimeProgram { session, memory, input_names, output_names })))
}

/// A file with weights, by its name in the model, and its bytes.
type ExternalFile<'a> = (&'a Path, Arc<[u8]>);

/// Reads a file with weights.
fn external_file<'a>(model: &OnnxModel<'_>, name: &'a Path) -> Result<ExternalFile<'a>, EngineError> {
    let file = model.directory().join(name);
    let bytes = std::fs::read(&file);
    let unreadable = |error| EngineError::ExternalData { path: model.path.to_owned(), file, error };
    Ok((name, bytes.map_err(unreadable)?.into()))
}

fn build(
    runtime: &Runtime,
    model: &OnnxModel<'_>,
    weights: Vec<ExternalFile<'_>>,
    options: &EngineOptions,
) -> ort::Result<Session> {
    let mut builder = Session::builder(&runtime.environment)?
        .with_log_level(log_level())?
        .with_intra_threads(options.thread_count())?
        .with_inter_threads(1)?
        // A lane waits between frames; spinning threads would burn a core each.
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // The model is loaded from memory; external weights of a subgraph are beside the file that it was read from.
        .with_config_entry(
            "session.model_external_initializers_file_folder_path",
            model.directory().to_string_lossy(),
        )?;
    let disabled = disabled_optimizers(runtime.minor_version());
    if !disabled.is_empty() {
        builder = builder.with_config_entry("optimization.disable_specified_optimizers", disabled)?;
    }
    // ONNX Runtime copies them. By default it would map the files as long as the session lives, and truncating one meanwhile
    // would end the process with SIGBUS.
    for (name, bytes) in weights {
        builder = builder.with_external_initializer_file_in_memory(name, bytes)?;
    }
    builder.commit_from_memory(&model.bytes)
}

/// Returns the log level for ONNX Runtime, so that it does not format messages that are dropped.
fn log_level() -> LogLevel {
    match log::max_level() {
        log::LevelFilter::Trace => LogLevel::Verbose,
        log::LevelFilter::Debug => LogLevel::Info,
        _ => LogLevel::Fatal,
    }
}

fn load_error(model: &OnnxModel<'_>, text: &str) -> EngineError {
    let path = model.path.to_owned();
    match unknown_operator(text) {
        Some((operator, node)) => {
            let operator = operator.to_owned();
            let node = node.map(str::to_owned).or_else(|| node_using(&model.bytes, &operator));
            EngineError::UnknownOperator { path, operator, node, backend: Backend::OnnxRuntime }
        }
        None => EngineError::Load(Backend::OnnxRuntime, path, text.to_owned()),
    }
}

/// Returns the operator that ONNX Runtime's message calls unknown, and the node if the message names it: the status has
/// neither.
fn unknown_operator(text: &str) -> Option<(&str, Option<&str>)> {
    let word_after = |phrase: &str| {
        let rest = text.split_once(phrase)?.1;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(rest.len());
        Some(&rest[..end])
    };
    if let Some(operator) = word_after("No Op registered for ") {
        return Some((operator, None));
    }
    if let Some(operator) = word_after("Could not find an implementation for ") {
        let node = text.split_once("with name '").and_then(|(_, rest)| rest.split('\'').next());
        return Some((operator, node.filter(|node| !node.is_empty())));
    }
    // "Fatal error: domain:Operator(-1) is not a registered function/op"
    let before = text.split_once(" is not a registered function/op")?.0;
    let operator = before.rsplit(' ').next()?;
    let operator = operator.split('(').next().unwrap_or(operator);
    Some((operator.rsplit(':').next().unwrap_or(operator), None))
}

struct OnnxRuntimeContext {
    outputs: Vec<OutputBytes>,
    /// The values that the outputs point into. Fields drop in order: values before the session that made them.
    values: Vec<RuntimeValue<'static>>,
    program: Arc<OnnxRuntimeProgram>,
}

/// An output of the last run.
struct OutputBytes {
    dtype: DType,
    shape: Vec<usize>,
    data: *const u8,
    len_bytes: usize,
}

// SAFETY: `data` points into a value of `OnnxRuntimeContext::values`, which is owned beside it and moves with it.
unsafe impl Send for OutputBytes {}

impl OnnxRuntimeContext {
    fn read_outputs(&mut self) -> Result<(), EngineError> {
        for (index, value) in self.values.iter().enumerate() {
            let mut shape = Vec::new();
            let name = || self.program.output_names[index].to_string_lossy().into_owned();
            let not_tensor = |found: String| EngineError::OutputNotTensor { name: name(), found };
            let tensor = value.tensor(&mut shape, schema::dtype).map_err(|error| run_error(&error))?;
            let (element, data, len_bytes) = tensor.ok_or_else(|| not_tensor("a sequence or map".to_owned()))?;
            let dtype = schema::dtype(element);
            let dtype = dtype.ok_or_else(|| not_tensor(format!("a tensor of {}", schema::element_name(element))))?;
            self.outputs.push(OutputBytes { dtype, shape, data, len_bytes });
        }
        Ok(())
    }
}

/// Wraps an input as a value that borrows its bytes.
fn borrowed<'a>(memory: &CpuMemory, input: &'a InputTensor) -> ort::Result<RuntimeValue<'a>> {
    let mut dims = [0_i64; 16];
    let dims = dims.get_mut(..input.shape().len());
    let dims = dims.ok_or_else(|| ort::Error::new("an input has more than 16 dimensions"))?;
    for (dim, &size) in dims.iter_mut().zip(input.shape()) {
        *dim = size as i64;
    }
    RuntimeValue::input(memory, input.dtype(), dims, input.bytes())
}

fn run_error(error: &ort::Error) -> EngineError {
    EngineError::Run(Backend::OnnxRuntime, error.to_string())
}

impl ProgramContext for OnnxRuntimeContext {
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError> {
        self.outputs.clear();
        let Self { program, values, .. } = self;
        guarded(Backend::OnnxRuntime, "ran the model", || {
            let value = |input| borrowed(&program.memory, input);
            let inputs = inputs.iter().map(value).collect::<Result<Vec<_>, _>>().map_err(|error| run_error(&error))?;
            values::run(&program.session, &program.input_names, &inputs, &program.output_names, values)
                .map_err(|error| run_error(&error))
        })?;
        self.read_outputs()
    }

    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        let outputs = self.program.output_names.len();
        let output = self.outputs.get(index).ok_or(EngineError::NoOutput { index, outputs })?;
        let bytes: &[u8] = if output.len_bytes == 0 {
            &[]
        } else {
            // SAFETY: `data` is the address that the library returned for this value's elements, which the run initialised;
            // `len_bytes` is their number times their size. The value stays in `self.values` until the next run, which needs
            // `&mut self`.
            unsafe { std::slice::from_raw_parts(output.data, output.len_bytes) }
        };
        TensorRef::new(output.dtype, &output.shape, bytes)
            .map_err(|error| EngineError::Run(Backend::OnnxRuntime, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::unknown_operator;

    #[test]
    fn the_operator_is_read_out_of_each_way_to_say_it() {
        let said = "Load model failed:This is an invalid model. In Node, (\"n\", Odd, \"\", -1) : (\"x\") -> (\"y\") , Error No Op \
                    registered for Odd with domain_version of 17";
        assert_eq!(unknown_operator(said), Some(("Odd", None)));
        let said = "Load model failed:Fatal error: com.acme:Odd(-1) is not a registered function/op";
        assert_eq!(unknown_operator(said), Some(("Odd", None)));
        let said = "Could not find an implementation for Odd(17) node with name 'n7'";
        assert_eq!(unknown_operator(said), Some(("Odd", Some("n7"))));
        assert_eq!(unknown_operator("Protobuf parsing failed."), None);
    }
}
