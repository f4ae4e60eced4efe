//! The `visiond build` commands that error messages suggest, and the names of engine files.

use std::path::{Path, PathBuf};

use crate::tensorrt::sidecar::Sidecar;

/// Returns the command that rebuilds the engine at `path`, with the model and the options of its sidecar if it has one.
pub fn rebuild_command(path: &Path) -> String {
    let sidecar = Sidecar::of(path).ok().flatten();
    if let Some(command) = sidecar.as_ref().and_then(|sidecar| sidecar.rebuild.clone()) {
        return command;
    }
    let by_name = || match path.extension() {
        // An engine that is named like an ONNX model: the location of its model is unknown.
        Some(extension) if extension == "onnx" => PathBuf::from("MODEL.onnx"),
        _ => path.with_extension("onnx"),
    };
    let (onnx, options) =
        sidecar.map_or_else(|| (by_name(), Vec::new()), |sidecar| (sidecar.onnx.path, sidecar.options));
    let engine = if has_plan_name(path) { path.to_owned() } else { path.with_extension("engine") };
    let options: String = options.iter().map(|option| format!(" {option}")).collect();
    format!("visiond build {} -o {}{options}", onnx.display(), engine.display())
}

/// Returns the command that builds an engine from the model at `onnx`.
pub fn build_command(onnx: &Path) -> String {
    format!("visiond build {} -o {}", onnx.display(), onnx.with_extension("engine").display())
}

/// Whether a file is named like an engine.
pub fn has_plan_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["engine", "plan", "trt"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}
