//! The loaded library and its environment.

use std::path::Path;
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;

use super::library::{FoundLibrary, find};
use crate::backend::{Backend, EngineError};
use crate::onnx::model::guarded;

/// The loaded library and its environment. One per process, for its whole life: ONNX Runtime cannot be closed safely.
pub(in crate::onnx) struct Runtime {
    library: FoundLibrary,
    pub(super) environment: Environment,
}

static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);

impl Runtime {
    /// Returns the library at `asked`, or the one that the search finds; the first call opens it.
    pub(in crate::onnx) fn get(asked: Option<&Path>) -> Result<&'static Self, EngineError> {
        let mut runtime = RUNTIME.lock();
        if let Some(runtime) = *runtime {
            let Some(asked) = asked else { return Ok(runtime) };
            let found = find(Some(asked))?;
            if found.path == runtime.library.path {
                return Ok(runtime);
            }
            return Err(EngineError::LibraryLoaded { loaded: runtime.library.path.clone(), asked: found.path });
        }
        let library = find(asked)?;
        let opened = guarded(Backend::OnnxRuntime, "started", || Self::open(library))?;
        Ok(runtime.insert(Box::leak(Box::new(opened))))
    }

    fn open(library: FoundLibrary) -> Result<Self, EngineError> {
        let unusable = |reason: String| EngineError::LibraryUnusable(library.path.clone(), reason);
        let environment = ort::init_from(&library.path)
            .map_err(|error| unusable(error.to_string()))?
            .with_name("visiond")
            .with_telemetry(false)
            .with_logger(Arc::new(forward_log))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self { library, environment })
    }

    pub(super) fn minor_version(&self) -> u32 {
        self.library.minor_version
    }

    pub(in crate::onnx) fn description(&self) -> String {
        format!("ONNX Runtime {} ({})", self.library.version, self.library.path.display())
    }
}

/// Forwards ONNX Runtime's log to ours, one level lower: its warnings are for the person who exports a model, not the one who
/// runs it, and its errors are also returned as errors.
fn forward_log(level: LogLevel, category: &str, _id: &str, _location: &str, message: &str) {
    let level = match level {
        LogLevel::Verbose => log::Level::Trace,
        LogLevel::Info | LogLevel::Warning | LogLevel::Error => log::Level::Debug,
        LogLevel::Fatal => log::Level::Error,
    };
    log::log!(target: "onnxruntime", level, "{category}: {message}");
}

/// Keeps ONNX Runtime from writing usage data into the user's home directory and sending it.
///
/// Microsoft's builds for Linux do so as soon as their environment is created, before their API's own switch is available;
/// they check this variable first. Call this as the first thing in `main`.
///
/// # Safety
/// No other thread may run, because this changes the process's environment.
pub unsafe fn silence_telemetry() {
    // SAFETY: the caller has no other thread, so nothing reads the environment at the same time.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") }
}
