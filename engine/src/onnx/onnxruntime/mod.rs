//! ONNX Runtime, through its library: the faster of the two backends, where it is installed.
//!
//! [`find`] looks for the library and checks it before `ort` sees it; `ort` opens it, builds the environment and the
//! session, and owns both. Tensors and runs go through the C API (`values`), because a run there needs no exclusive session
//! and its inputs and outputs need no type parameter.

mod context;
mod library;
mod values;

use std::ffi::CString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session;

use super::{Model, file};
use crate::engine::{Backend, Context, EngineError, EngineOptions, Program};
use context::OnnxRuntimeContext;
pub use library::{FoundLibrary, MINIMUM_MINOR_VERSION, find};
use values::CpuMemory;

/// The library, opened, with its environment. One a process, for as long as it lives: ONNX Runtime cannot be closed safely.
pub(super) struct Runtime {
    library: FoundLibrary,
    environment: Environment,
}

static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);

impl Runtime {
    /// The library at `asked`, or the one found; opened on the first call.
    pub(super) fn get(asked: Option<&Path>) -> Result<&'static Self, EngineError> {
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = *runtime {
            let Some(asked) = asked else { return Ok(runtime) };
            let found = find(Some(asked))?;
            if found.path == runtime.library.path {
                return Ok(runtime);
            }
            return Err(EngineError::LibraryLoaded { loaded: runtime.library.path.clone(), asked: found.path });
        }
        let library = find(asked)?;
        let opened = super::guarded(Backend::OnnxRuntime, "started", || Self::open(library))?;
        Ok(runtime.insert(Box::leak(Box::new(opened))))
    }

    fn open(library: FoundLibrary) -> Result<Self, EngineError> {
        let unusable = |reason: String| EngineError::LibraryUnusable { path: library.path.clone(), reason };
        let environment = ort::init_from(&library.path)
            .map_err(|error| unusable(error.to_string()))?
            .with_name("visiond")
            .with_telemetry(false)
            .with_logger(Arc::new(forward_log))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self { library, environment })
    }

    pub(super) fn description(&self) -> String {
        format!("ONNX Runtime {} ({})", self.library.version, self.library.path.display())
    }
}

/// ONNX Runtime's log into ours, one step quieter: its warnings speak to whoever exports a model, not to whoever runs it, and
/// its errors come back as errors too.
fn forward_log(level: LogLevel, category: &str, _id: &str, _location: &str, message: &str) {
    let level = match level {
        LogLevel::Verbose => log::Level::Trace,
        LogLevel::Info | LogLevel::Warning | LogLevel::Error => log::Level::Debug,
        LogLevel::Fatal => log::Level::Error,
    };
    log::log!(target: "onnxruntime", level, "{category}: {message}");
}

/// How much ONNX Runtime should say, so that it does not format what nobody reads.
fn log_level() -> LogLevel {
    match log::max_level() {
        log::LevelFilter::Trace => LogLevel::Verbose,
        log::LevelFilter::Debug => LogLevel::Info,
        _ => LogLevel::Fatal,
    }
}

/// A session that ONNX Runtime has made ready, and what its contexts share.
pub(super) struct OnnxRuntimeProgram {
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    memory: CpuMemory,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
}

impl Program for OnnxRuntimeProgram {
    fn context(&self) -> Result<Box<dyn Context>, EngineError> {
        Ok(Box::new(OnnxRuntimeContext::new(self.shared.clone())))
    }
}

/// Makes `model` ready.
pub(super) fn load(
    runtime: &Runtime,
    model: Model<'_>,
    options: &EngineOptions,
) -> Result<OnnxRuntimeProgram, EngineError> {
    let session = build(runtime, &model, options).map_err(|error| load_error(&model, &error.to_string()))?;
    let names = |names: Vec<&str>| {
        let name =
            |name: &str| CString::new(name).map_err(|_| load_error(&model, "a tensor's name has a zero byte in it"));
        names.into_iter().map(name).collect::<Result<Vec<_>, _>>()
    };
    let input_names = names(model.inputs.iter().map(|info| info.name.as_str()).collect())?;
    let output_names = names(model.outputs.iter().map(|info| info.name.as_str()).collect())?;
    let memory = CpuMemory::new().map_err(|error| load_error(&model, &error.to_string()))?;
    Ok(OnnxRuntimeProgram { shared: Arc::new(Shared { session, memory, input_names, output_names }) })
}

fn build(runtime: &Runtime, model: &Model<'_>, options: &EngineOptions) -> ort::Result<Session> {
    let mut builder = Session::builder(&runtime.environment)?
        .with_log_level(log_level())?
        .with_intra_threads(options.thread_count())?
        .with_inter_threads(1)?
        // A lane waits between frames; threads that spin there would burn a core each.
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // The model comes from memory, its weights in other files from beside the file that it was read from.
        .with_config_entry(
            "session.model_external_initializers_file_folder_path",
            model.directory().to_string_lossy(),
        )?;
    builder.commit_from_memory(&model.bytes)
}

fn load_error(model: &Model<'_>, text: &str) -> EngineError {
    let path = model.path.to_owned();
    match unknown_operator(text) {
        Some((operator, node)) => {
            let operator = operator.to_owned();
            let node = node.map(str::to_owned).or_else(|| file::node_using(&model.bytes, &operator));
            EngineError::UnknownOperator { path, operator, node, backend: Backend::OnnxRuntime }
        }
        None => EngineError::Load { path, backend: Backend::OnnxRuntime, reason: text.to_owned() },
    }
}

/// The operator that ONNX Runtime's message names as unknown, and the node where it says it: the status carries neither.
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
