//! What an engine file does not tell of itself: `MODEL.engine.json`, written beside it when it is built.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::atomic_write::write_atomically;

/// The version of this file's layout.
const LAYOUT: u64 = 1;

/// How an engine came to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sidecar {
    /// The version of visiond that built it.
    pub visiond: String,
    /// When, as RFC 3339.
    pub built_at: String,
    /// How long it took.
    pub build_seconds: f64,
    /// SHA-256 of the engine file.
    pub engine_sha256: String,
    /// What built it, as "TensorRT 10.3.0".
    pub tensorrt: String,
    /// The newest CUDA that the driver runs, as "12.6"; `None` where there was no GPU.
    pub cuda: Option<String>,
    /// The GPU that it was built on.
    pub gpu: Option<String>,
    /// Its compute capability, as "8.7".
    pub sm: Option<String>,
    /// Compute capabilities that TensorRT for RTX built it for; empty for any.
    pub compute_capabilities: Vec<String>,
    /// The options of the build, as on the command line.
    pub options: Vec<String>,
    /// The network's file.
    pub onnx: PathBuf,
    /// SHA-256 of the network's file.
    pub onnx_sha256: String,
    /// Shapes of the inputs, one map a profile: "1x3x640x640", or "1x3x640x640..4x3x640x640".
    pub profiles: Vec<BTreeMap<String, String>>,
    /// What became of the network's numbers, for people.
    pub precision: String,
    /// The notes that the exporter left in the network's file.
    pub metadata: BTreeMap<String, String>,
}

/// A sidecar cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be read ({reason}): delete it, or build the engine again")]
pub struct SidecarError {
    path: PathBuf,
    reason: String,
}

impl Sidecar {
    /// Where the sidecar of an engine is: `net.engine.json` for `net.engine`.
    pub fn path_of(engine: &Path) -> PathBuf {
        let mut path = engine.as_os_str().to_owned();
        path.push(".json");
        path.into()
    }

    /// The sidecar of an engine; `None` where it has none.
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

    /// Writes it beside an engine.
    pub fn write(&self, engine: &Path) -> io::Result<()> {
        let text = format!("{:#}\n", self.to_json());
        write_atomically(&Self::path_of(engine), text.as_bytes())
    }

    /// As it stands in the file.
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

    /// Reads it; keys of later versions are passed over. The error is the key that is wrong.
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
            assert!(error.contains(expected) && error.contains("build the engine again"), "{error}");
        }
    }
}
