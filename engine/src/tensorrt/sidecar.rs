//! `MODEL.engine.json`, written beside an engine when it is built: what the engine file does not record.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::atomic_write::write_atomically;

/// The version of this file's format.
const LAYOUT: u64 = 1;

/// How an engine was built.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sidecar {
    /// The version of visiond that built it.
    pub visiond: String,
    /// When it was built, as RFC 3339.
    pub built_at: String,
    /// How long the build took.
    pub build_seconds: f64,
    /// The SHA-256 of the engine file.
    pub engine_sha256: String,
    /// The version of TensorRT that built it, as "TensorRT 10.3.0".
    pub tensorrt: String,
    /// The newest CUDA that the driver supports, as "12.6"; `None` if there was no GPU.
    pub cuda: Option<String>,
    /// The GPU that it was built on.
    pub gpu: Option<String>,
    /// The GPU's compute capability, as "8.7".
    pub sm: Option<String>,
    /// The compute capabilities that TensorRT for RTX built it for; empty for any.
    pub compute_capabilities: Vec<String>,
    /// The options of the build, as on the command line.
    pub options: Vec<String>,
    /// The model's file.
    pub onnx: PathBuf,
    /// The SHA-256 of the model's file.
    pub onnx_sha256: String,
    /// The shapes of the inputs, one map per profile: "1x3x640x640", or "1x3x640x640..4x3x640x640".
    pub profiles: Vec<BTreeMap<String, String>>,
    /// The precision of the engine, for people.
    pub precision: String,
    /// The metadata that the exporter wrote into the model's file.
    pub metadata: BTreeMap<String, String>,
}

/// Why a sidecar cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {reason}; delete it, or rebuild the engine")]
pub struct SidecarError {
    path: PathBuf,
    reason: String,
}

impl Sidecar {
    /// Returns the path of an engine's sidecar: `net.engine.json` for `net.engine`.
    pub fn path_of(engine: &Path) -> PathBuf {
        let mut path = engine.as_os_str().to_owned();
        path.push(".json");
        path.into()
    }

    /// Reads the sidecar of an engine; `None` if there is none.
    pub fn of(engine: &Path) -> Result<Option<Self>, SidecarError> {
        let path = Self::path_of(engine);
        let failed = |reason: String| SidecarError { path: path.clone(), reason };
        match std::fs::read(&path) {
            Ok(bytes) => {
                let value = serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
                Self::from_json(&value).map(Some).map_err(|key| failed(format!("`{key}` is missing or wrong")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Writes the sidecar beside an engine.
    pub fn write(&self, engine: &Path) -> io::Result<()> {
        let text = format!("{:#}\n", self.to_json());
        write_atomically(&Self::path_of(engine), text.as_bytes())
    }

    /// Returns the content of the file.
    pub fn to_json(&self) -> Value {
        json!({
            "layout": LAYOUT,
            "visiond": self.visiond,
            "built_at": self.built_at,
            "build_seconds": self.build_seconds,
            "engine": { "sha256": self.engine_sha256 },
            "tensorrt": self.tensorrt,
            "cuda": self.cuda,
            "gpu": self.gpu,
            "sm": self.sm,
            "compute_capabilities": self.compute_capabilities,
            "options": self.options,
            "onnx": { "path": self.onnx, "sha256": self.onnx_sha256 },
            "profiles": self.profiles,
            "precision": self.precision,
            "metadata": self.metadata,
        })
    }

    /// Reads the content of a file and ignores keys of later versions. The error is the name of the wrong key.
    fn from_json(value: &Value) -> Result<Self, &'static str> {
        let text = |value: &Value, key: &'static str| value[key].as_str().map(str::to_owned).ok_or(key);
        let maybe = |key: &'static str| value[key].as_str().map(str::to_owned);
        let texts = |key: &'static str| -> Result<Vec<String>, &'static str> {
            let list = value[key].as_array().ok_or(key)?;
            list.iter().map(|item| item.as_str().map(str::to_owned).ok_or(key)).collect()
        };
        let map = |value: &Map<String, Value>, key: &'static str| -> Result<BTreeMap<String, String>, &'static str> {
            value.iter().map(|(name, text)| Ok((name.clone(), text.as_str().ok_or(key)?.to_owned()))).collect()
        };
        let profiles = value["profiles"].as_array().ok_or("profiles")?;
        Ok(Self {
            visiond: text(value, "visiond")?,
            built_at: text(value, "built_at")?,
            build_seconds: value["build_seconds"].as_f64().ok_or("build_seconds")?,
            engine_sha256: text(&value["engine"], "sha256").map_err(|_| "engine")?,
            tensorrt: text(value, "tensorrt")?,
            cuda: maybe("cuda"),
            gpu: maybe("gpu"),
            sm: maybe("sm"),
            compute_capabilities: texts("compute_capabilities")?,
            options: texts("options")?,
            onnx: text(&value["onnx"], "path").map_err(|_| "onnx")?.into(),
            onnx_sha256: text(&value["onnx"], "sha256").map_err(|_| "onnx")?,
            profiles: profiles
                .iter()
                .map(|profile| map(profile.as_object().ok_or("profiles")?, "profiles"))
                .collect::<Result<_, _>>()?,
            precision: text(value, "precision")?,
            metadata: map(value["metadata"].as_object().ok_or("metadata")?, "metadata")?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sidecar() -> Sidecar {
        Sidecar {
            visiond: "0.1.0".to_owned(),
            built_at: "2026-01-31T12:00:00Z".to_owned(),
            build_seconds: 12.5,
            engine_sha256: "ab".to_owned(),
            tensorrt: "TensorRT 10.3.0".to_owned(),
            cuda: Some("12.6".to_owned()),
            gpu: Some("Orin".to_owned()),
            sm: Some("8.7".to_owned()),
            options: vec!["--fp16".to_owned()],
            onnx: "net.onnx".into(),
            onnx_sha256: "cd".to_owned(),
            profiles: vec![[("images".to_owned(), "1x3x640x640".to_owned())].into()],
            precision: "fp16".to_owned(),
            metadata: [("names".to_owned(), "{0: 'person'}".to_owned())].into(),
            ..Sidecar::default()
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("net.engine");
        assert!(Sidecar::of(&engine).unwrap().is_none());
        sidecar().write(&engine).unwrap();
        assert!(folder.path().join("net.engine.json").exists());
        assert_eq!(Sidecar::of(&engine).unwrap().unwrap(), sidecar());
    }

    #[test]
    fn a_broken_sidecar_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("net.engine");
        for (text, expected) in [("", "EOF"), ("[]", "`profiles`"), ("{\"profiles\": []}", "`visiond`")] {
            std::fs::write(Sidecar::path_of(&engine), text).unwrap();
            let error = Sidecar::of(&engine).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("rebuild the engine"), "{error}");
        }
    }
}
