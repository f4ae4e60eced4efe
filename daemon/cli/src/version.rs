//! The version and the inference backends of this machine.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use visiond_engine::{onnx, tensorrt};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use crate::output::print;

/// An inference backend.
#[derive(Debug, Serialize)]
pub struct EngineFacts {
    /// Its name in the configuration.
    pub name: &'static str,
    pub available: bool,
    /// Name, version and path; or why it is unavailable.
    pub description: String,
    pub path: Option<PathBuf>,
    pub version: Option<String>,
}

/// The name of the backend for engines.
pub const TENSORRT: &str = "tensorrt";

/// Prints the version and the inference backends, for `--version`.
pub fn print_version() -> Result<Exit, ExitError> {
    let mut out = format!("visiond {}\n", env!("CARGO_PKG_VERSION"));
    for engine in engines() {
        let description = if engine.available { &engine.description } else { "not found (see `visiond probe`)" };
        let _ = writeln!(out, "{}: {}", engine.name, escape(description));
    }
    print(&out).map(|()| Exit::Success)
}

/// Returns TensorRT, then the backends for `.onnx` files in the order in which `auto` tries them.
pub fn engines() -> Vec<EngineFacts> {
    let tensorrt = tensorrt::Library::get(None).map_err(|error| error.to_string());
    let tensorrt = tensorrt.map(|found| (found.description(), found.path().to_owned(), found.version().to_string()));
    let onnxruntime = onnx::onnxruntime::find(None).map_err(|error| error.to_string());
    let onnxruntime = onnxruntime
        .map(|found| (format!("ONNX Runtime {} ({})", found.version, found.path.display()), found.path, found.version));
    let mut engines: Vec<_> = [(TENSORRT, tensorrt), ("onnxruntime", onnxruntime)]
        .into_iter()
        .map(|(name, found)| match found {
            Ok((description, path, version)) => {
                EngineFacts { name, available: true, description, path: Some(path), version: Some(version) }
            }
            Err(description) => EngineFacts { name, available: false, description, path: None, version: None },
        })
        .collect();
    let description = onnx::RTEN_DESCRIPTION.to_owned();
    engines.push(EngineFacts { name: "rten", available: true, description, path: None, version: None });
    engines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_built_in() {
        assert!(engines().iter().any(|engine| engine.name == "rten" && engine.available));
    }
}
