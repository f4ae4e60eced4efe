//! The library, opened, with its environment.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;

use super::library::{FoundLibrary, find};
use crate::backend::{Backend, EngineError};
use crate::onnx::panic_guard::guarded;

/// The library, opened, with its environment. One a process, for as long as it lives: ONNX Runtime cannot be closed safely.
pub(in crate::onnx) struct Runtime {
    library: FoundLibrary,
    pub(super) environment: Environment,
}

static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);

impl Runtime {
    /// The library at `asked`, or the one found; opened on the first call.
    pub(in crate::onnx) fn get(asked: Option<&Path>) -> Result<&'static Self, EngineError> {
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
        let opened = guarded(Backend::OnnxRuntime, "started", || Self::open(library))?;
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

    pub(in crate::onnx) fn description(&self) -> String {
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

/// Keeps ONNX Runtime from writing about its use into the user's home directory and sending it.
///
/// Microsoft's builds for Linux do so from the moment that their environment is made, before the switch that their API has
/// for it can be reached; they look for this variable first. Call it as the first thing in `main`.
///
/// # Safety
/// No other thread may run: the process's environment is changed.
pub unsafe fn silence_telemetry() {
    // SAFETY: the caller has no other thread, so that nobody reads the environment meanwhile.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") }
}
