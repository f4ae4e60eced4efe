//! `MODEL.engine.json`, written beside an engine when it is built: the facts that the engine file does not record.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use visiond_ground::atomic_write::write_atomically;

use crate::backend::read_small_file;

/// The version of this file's format.
const LAYOUT: u64 = 1;

/// How an engine was built. Keys of later versions are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The version of visiond that built it.
    pub visiond: String,
    /// When it was built, as RFC 3339.
    pub built_at: String,
    /// How long the build took.
    pub build_seconds: f64,
    /// The engine file.
    pub engine: EngineFile,
    /// The version of TensorRT that built it, such as "TensorRT 10.3.0".
    pub tensorrt: String,
    /// The newest CUDA that the driver supports, such as "12.6"; `None` if there was no GPU.
    pub cuda: Option<String>,
    /// The GPU that it was built on.
    pub gpu: Option<String>,
    /// The GPU's compute capability, such as "8.7".
    pub sm: Option<String>,
    /// The compute capabilities that TensorRT for RTX built it for; empty for any.
    pub compute_capabilities: Vec<String>,
    /// The options of the build, as on the command line.
    pub options: Vec<String>,
    /// The model's file.
    pub onnx: OnnxSource,
    /// The shapes of the inputs, one map per profile: "1x3x640x640", or "1x3x640x640..4x3x640x640".
    pub profiles: Vec<BTreeMap<String, String>>,
    /// The precision of the engine as text.
    pub precision: String,
    /// The metadata that the exporter wrote into the model's file.
    pub metadata: BTreeMap<String, String>,
    /// The command that builds the engine again, if it is another one than `visiond build` with these options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<String>,
}

/// The engine file that a sidecar describes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineFile {
    /// In lower-case hexadecimal, of the whole file.
    pub sha256: String,
}

/// The file that an engine was built from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnnxSource {
    /// Where it was.
    pub path: PathBuf,
    /// In lower-case hexadecimal, of the whole file.
    pub sha256: String,
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
        match read_small_file(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.to_string())),
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
        let mut value = json!(self);
        value["layout"] = json!(LAYOUT);
        value
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
            engine: EngineFile { sha256: "ab".to_owned() },
            tensorrt: "TensorRT 10.3.0".to_owned(),
            cuda: Some("12.6".to_owned()),
            gpu: Some("Orin".to_owned()),
            sm: Some("8.7".to_owned()),
            options: vec!["--fp16".to_owned()],
            onnx: OnnxSource { path: "net.onnx".into(), sha256: "cd".to_owned() },
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
        for (text, expected) in [("", "EOF"), ("[]", "invalid length 0"), ("{\"profiles\": []}", "`visiond`")] {
            std::fs::write(Sidecar::path_of(&engine), text).unwrap();
            let error = Sidecar::of(&engine).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("rebuild the engine"), "{error}");
        }
    }
}
