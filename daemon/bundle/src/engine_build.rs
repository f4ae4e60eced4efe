//! How a device builds an engine of a bundle's ONNX model.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The flags of `visiond build` that a bundle may set: those that shape the engine. The others name files or GPUs of the device,
/// which are not the maker's to choose.
const FLAGS: [&str; 21] = [
    "--fp16",
    "--bf16",
    "--tf32",
    "--int8",
    "--half-io",
    "--precision",
    "--calibration",
    "--calibration-pictures",
    "--shape",
    "--min-shapes",
    "--opt-shapes",
    "--max-shapes",
    "--profile",
    "--workspace-mb",
    "--optimization-level",
    "--no-timing-cache",
    "--version-compatible",
    "--hardware-compatible",
    "--dla",
    "--gpu-fallback",
    "--sm",
];

/// How a device with a GPU builds an engine of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineBuild {
    /// Flags of `visiond build`, a value after `=`: `--fp16`, `--shape=images=8x3x640x640`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// When the ONNX model itself is used.
    #[serde(default, skip_serializing_if = "Fallback::is_default")]
    pub fallback: Fallback,
    /// Pictures for calibration, all in one folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibration: Vec<String>,
    /// Timings that `visiond build` has measured on devices of the same kind, by the names that it gave them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timing_caches: Vec<String>,
}

/// When a device uses the ONNX model instead of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// If the device has no GPU. One that has a GPU and cannot build refuses the version.
    #[default]
    WithoutGpu,
    /// Also if no engine can be built or loaded.
    Always,
    /// Never.
    Never,
}

impl Fallback {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl EngineBuild {
    /// Returns the folder of the calibration pictures in the bundle; `None` without pictures.
    pub fn calibration_folder(&self) -> Option<&Path> {
        Path::new(self.calibration.first()?).parent()
    }

    /// Returns the keys and the files that they name.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let calibration = self.calibration.iter().map(|path| ("calibration", path));
        calibration.chain(self.timing_caches.iter().map(|path| ("timing_caches", path)))
    }

    /// Checks what the types leave open, for the model in this file.
    pub(crate) fn validate(&self, model: &str) -> Result<(), String> {
        if !model.ends_with(".onnx") {
            return Err(format!("`build` must be of an .onnx model, not of {model:?}"));
        }
        for flag in &self.flags {
            let name = flag.split_once('=').map_or(flag.as_str(), |(name, _)| name);
            if !FLAGS.contains(&name) {
                return Err(format!("`flags` must have flags of `visiond build` that shape the engine, not {flag:?}"));
            }
        }
        if !self.calibration.is_empty() && !self.flags.iter().any(|flag| flag == "--int8") {
            return Err("`calibration` requires `--int8` in `flags`".to_owned());
        }
        if !self.timing_caches.iter().all(|path| path.ends_with(".timing")) {
            return Err(
                "`timing_caches` must have the names that `visiond build` gave them, which end with .timing".to_owned()
            );
        }
        let folder = self.calibration_folder();
        let is_there = |path: &String| Path::new(path).parent() == folder;
        if folder.is_some_and(|folder| folder.as_os_str().is_empty()) || !self.calibration.iter().all(is_there) {
            return Err("`calibration` must name pictures of one folder".to_owned());
        }
        Ok(())
    }
}
