//! Reads a model and passes it to a backend.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Component, Path};

use super::file::{ExternalWeights, OnnxFile, parse, read_with_bytes};
use super::model::{OnnxModel, guarded};
use super::onnxruntime::program;
use super::onnxruntime::runtime::Runtime;
use super::{reshape, rten};
use crate::backend::{Backend, BackendModel, Dim, EngineError, EngineOptions};
use crate::tensorrt::plan::build_command;

/// Reads the model at `path` and loads it with the backend that `options` names, otherwise with the fastest one installed.
pub(crate) fn load(path: &Path, options: &EngineOptions) -> Result<BackendModel, EngineError> {
    let (read, bytes) = read_usable(path)?;
    read.file.check_sha256(options.sha256.as_deref())?;
    load_parsed(path, read, bytes, options)
}

/// Loads the model `bytes`, which were parsed into `read`.
pub(super) fn load_parsed(
    path: &Path,
    read: OnnxFile,
    bytes: Vec<u8>,
    options: &EngineOptions,
) -> Result<BackendModel, EngineError> {
    let (read, bytes) = reshaped(path, read, bytes, &options.input_shapes)?;
    let runtime = choose(path, options)?;
    let external_files = read.external_files.into_keys().collect();
    let model = OnnxModel { path, bytes, inputs: &read.inputs, outputs: &read.outputs, external_files };
    let (backend, description) = match runtime {
        Some(runtime) => (Backend::OnnxRuntime, runtime.description()),
        None => (Backend::Rten, rten::DESCRIPTION.to_owned()),
    };
    let program = guarded(backend, "loaded the model", || match runtime {
        Some(runtime) => program::load(runtime, model, options),
        None => rten::load(model, options),
    })?;
    let (inputs, outputs) = (read.inputs.into(), read.outputs.into());
    Ok(BackendModel { program, backend, description, file: read.file, metadata: read.metadata, inputs, outputs })
}

/// Returns ONNX Runtime, or `None` for rten.
fn choose(path: &Path, options: &EngineOptions) -> Result<Option<&'static Runtime>, EngineError> {
    match options.backend {
        Some(Backend::Rten) => Ok(None),
        Some(backend @ Backend::TensorRt) => {
            let reason = format!("it is an ONNX model: build an engine with `{}`", build_command(path));
            Err(EngineError::Load(backend, path.to_owned(), reason))
        }
        Some(Backend::OnnxRuntime) => Runtime::get(options.onnxruntime_library.as_deref()).map(Some),
        // A library that the user named must work; one that was found by searching need not.
        None if options.onnxruntime_library.is_some() => Runtime::get(options.onnxruntime_library.as_deref()).map(Some),
        None => match Runtime::get(None) {
            Ok(runtime) => Ok(Some(runtime)),
            Err(EngineError::LibraryNotFound { .. }) => Ok(None),
            Err(error) => {
                log::warn!("{error}; using rten instead");
                Ok(None)
            }
        },
    }
}

/// Reads the model at `path` and rejects inputs and outputs that no backend supports.
pub fn read_usable(path: &Path) -> Result<(OnnxFile, Vec<u8>), EngineError> {
    let (read, bytes) = read_with_bytes(path)?;
    refuse_foreign(path, &read)?;
    check_external(path, &read)?;
    Ok((read, bytes))
}

fn refuse_foreign(path: &Path, read: &OnnxFile) -> Result<(), EngineError> {
    let Some(value) = read.foreign.first() else { return Ok(()) };
    let direction = if value.is_output { "output" } else { "input" };
    let (name, found) = (value.name.clone(), value.found.clone());
    Err(EngineError::ValueType { path: path.to_owned(), direction, name, found })
}

/// Rejects a model whose weight files are missing, too short or outside its directory. Without this check, a backend would
/// report a missing file in its own words, and a model could read system files and return them in its outputs.
fn check_external(path: &Path, read: &OnnxFile) -> Result<(), EngineError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for (name, weights) in &read.external_files {
        let outside = || {
            let reason = format!(
                "it reads weights from `{}`, outside its own directory; export it with its weights beside it",
                name.display()
            );
            EngineError::Malformed(path.to_owned(), reason)
        };
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if name.as_os_str().is_empty() || !name.components().all(inside) {
            return Err(outside());
        }
        let file = directory.join(name);
        let external = |error| EngineError::ExternalData { path: path.to_owned(), file: file.clone(), error };
        // A link may lead outside only if the model itself is a link: a cache that keeps both as links to its store.
        let real = |path: &Path| path.canonicalize().map_err(external);
        let (home, store) = (real(directory)?, real(path)?);
        let found = real(&file)?;
        if !found.starts_with(home) && !store.parent().is_some_and(|store| found.starts_with(store)) {
            return Err(outside());
        }
        // The file is not opened yet, because opening a pipe would wait for its writer.
        let metadata = file.metadata().map_err(external)?;
        if !metadata.is_file() {
            return Err(external(Error::new(
                ErrorKind::InvalidInput,
                "it is a pipe or a device; put the weights into a file",
            )));
        }
        if metadata.len() < weights.end_bytes {
            let (has, ExternalWeights { end_bytes, tensor }) = (metadata.len(), weights);
            let reason = format!("it has {has} bytes, but tensor `{tensor}` ends at byte {end_bytes}");
            return Err(external(Error::new(ErrorKind::UnexpectedEof, reason)));
        }
        std::fs::File::open(&file).map_err(external)?;
    }
    Ok(())
}

/// Returns the model with the requested shapes, and its updated declarations.
pub fn reshaped(
    path: &Path,
    mut read: OnnxFile,
    bytes: Vec<u8>,
    shapes: &BTreeMap<String, Vec<usize>>,
) -> Result<(OnnxFile, Vec<u8>), EngineError> {
    if shapes.is_empty() {
        return Ok((read, bytes));
    }
    let (mut params, mut sizes_changed) = (BTreeMap::new(), false);
    for (name, shape) in shapes {
        let info = read.inputs.iter().find(|info| info.name == *name);
        let info = info.ok_or_else(|| EngineError::no_such_input(path, name, &read.inputs))?;
        if shape.contains(&0) {
            return Err(EngineError::shape(info, shape, "every dimension must be at least 1"));
        }
        let Some(dims) = &info.shape else { continue };
        if dims.len() != shape.len() {
            return Err(EngineError::shape(
                info,
                shape,
                "the number of dimensions differs: give as many as the model has",
            ));
        }
        for (dim, &size) in dims.iter().zip(shape) {
            match dim {
                Dim::Fixed(fixed) => sizes_changed |= *fixed != size,
                Dim::Dynamic(param) if param.is_empty() => {}
                Dim::Dynamic(param) => drop(params.insert(param.clone(), size)),
            }
        }
    }
    // Parsing has already visited all of this, so an error here is a contradiction.
    let reason = "its inputs cannot be rewritten; export it at the size you need";
    let broken = |_| EngineError::Malformed(path.to_owned(), reason.to_owned());
    let bytes = reshape::with_input_shapes(&bytes, shapes, &params, sizes_changed).map_err(broken)?;
    let declared = parse(read.file.clone(), &bytes)?;
    (read.inputs, read.outputs) = (declared.inputs, declared.outputs);
    Ok((read, bytes))
}
