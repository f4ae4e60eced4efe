//! What an engine's file says of itself, read before TensorRT sees it.
//!
//! | file | beginning |
//! |---|---|
//! | TensorRT 8.6 and newer | `ftrt`; bytes 24 to 27 are major, minor, patch and build of the TensorRT that built it |
//! | TensorRT 8.5 and older | `ptrt`; the ninth byte is the number of the format: 232 is 8.5.3 |
//! | TensorRT for RTX | `vtrt`; the file's size at 16, the version at 24, a mask of GPUs at 32 |
//! | Ultralytics | length and text of a JSON object, then one of the above |
//!
//! Deserializing an engine can run code that is in it: an engine file is a program, and is to be trusted like one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::abi::Version;
use super::file::PlanBytes;
use super::plugins::MissingPlugin;
use super::sidecar::Sidecar;
use crate::engine::EngineError;

/// Bytes that tell all that a header tells.
const HEADER_BYTES: usize = 40;

/// No exporter's metadata comes near this.
const MOST_METADATA: usize = 16 << 20;

/// Compute capabilities that TensorRT for RTX builds for, by the bit of its mask.
const RTX_GPUS: [(u32, u32); 6] = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)];

/// The header of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanHeader {
    /// TensorRT 8.6 and newer.
    TensorRt {
        /// What built it.
        version: Version,
    },
    /// TensorRT 8.5 and older, which tell no version.
    OldTensorRt {
        /// The number of the format.
        format: u8,
    },
    /// TensorRT for RTX.
    Rtx {
        /// What built it.
        version: Version,
        /// Length of the whole engine.
        size_bytes: u64,
        /// GPUs that it was built for, one bit each.
        gpus: u64,
    },
}

impl PlanHeader {
    /// Reads the header of the file at `path`; `None` where it is no engine.
    pub fn read(path: &Path) -> Result<Option<Self>, EngineError> {
        Ok(Plan::parse(PlanBytes::open(path, false)?.as_slice()).map(|plan| plan.header))
    }

    /// The header at the beginning of `bytes`; `None` where they are no engine, or too few to tell.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let version = |rtx| {
            let &[major, minor, patch] = bytes.get(24..27)?.as_array()?;
            Some(Version { rtx, major: major.into(), minor: minor.into(), patch: patch.into() })
        };
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..at + 8)?.as_array()?));
        match bytes.get(..4)? {
            b"ftrt" => Some(Self::TensorRt { version: version(false)? }),
            b"ptrt" => Some(Self::OldTensorRt { format: *bytes.get(8)? }),
            b"vtrt" => Some(Self::Rtx { version: version(true)?, size_bytes: number(16)?, gpus: number(32)? }),
            _ => None,
        }
    }

    /// What built it; for TensorRT 8.5 and older a guess at 8.5.
    pub fn version(&self) -> Version {
        match *self {
            Self::TensorRt { version } | Self::Rtx { version, .. } => version,
            Self::OldTensorRt { .. } => Version { rtx: false, major: 8, minor: 5, patch: 0 },
        }
    }

    /// Whether TensorRT for RTX built it.
    pub fn is_rtx(&self) -> bool {
        matches!(self, Self::Rtx { .. })
    }

    /// Whether it runs on GPUs of `sm`: `None` where the header does not tell.
    pub fn is_for(&self, sm: (u32, u32)) -> Option<bool> {
        let Self::Rtx { gpus, .. } = self else { return None };
        match RTX_GPUS.iter().position(|known| *known == sm) {
            _ if *gpus == 0 => None,
            Some(bit) => Some(gpus >> bit & 1 == 1),
            // A bit behind the named ones is set in engines that were not built for certain GPUs.
            None if gpus >> RTX_GPUS.len() != 0 => None,
            None => Some(false),
        }
    }

    /// Compute capabilities that it was built for; empty where the header does not tell.
    pub fn gpus(&self) -> Vec<(u32, u32)> {
        let Self::Rtx { gpus, .. } = self else { return Vec::new() };
        (0..).zip(RTX_GPUS).filter(|(bit, _)| gpus >> bit & 1 == 1).map(|(_, sm)| sm).collect()
    }
}

/// `TensorRT 10.3.0`, `TensorRT 8.5 or older (format 232)`.
impl fmt::Display for PlanHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorRt { version } | Self::Rtx { version, .. } => version.fmt(f),
            Self::OldTensorRt { format } => write!(f, "TensorRT 8.5 or older (format {format})"),
        }
    }
}

/// Where the engine is in a file, and what was put around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The engine's header.
    pub header: PlanHeader,
    /// First byte of the engine.
    pub offset: usize,
    /// Ultralytics' notes, as text by name; empty where there are none.
    pub metadata: BTreeMap<String, String>,
}

impl Plan {
    /// Finds the engine in a file's bytes; `None` where there is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (offset, metadata) = wrapping(bytes).unwrap_or_default();
        let header = PlanHeader::parse(bytes.get(offset..)?)?;
        Some(Self { header, offset, metadata })
    }
}

/// Whether the beginning of a file is an engine's: a whole header, a beginning of one, or Ultralytics' wrapping.
pub fn is_plan(bytes: &[u8]) -> bool {
    bytes.get(..4).is_some_and(|magic| [b"ftrt", b"ptrt", b"vtrt"].iter().any(|known| *known == magic))
        || wrapping(bytes).is_some()
}

/// Whether the file at `path` is an engine; false where it cannot be read.
pub fn is_plan_file(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    // A pipe may wait for a writer for ever.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut bytes = Vec::new();
    let mut read = |count: u64| file.by_ref().take(count).read_to_end(&mut bytes).is_ok();
    if !read(8) {
        return false;
    }
    if let (Some(len), Some(b'{')) = (bytes.first_chunk().map(|len| u32::from_le_bytes(*len)), bytes.get(4))
        && len as usize <= MOST_METADATA
    {
        let mut rest = Vec::new();
        if file.take(u64::from(len)).read_to_end(&mut rest).is_err() {
            return false;
        }
        bytes.extend(rest);
    }
    is_plan(&bytes)
}

/// Length of Ultralytics' wrapping and the notes in it.
fn wrapping(bytes: &[u8]) -> Option<(usize, BTreeMap<String, String>)> {
    let len = u32::from_le_bytes(*bytes.get(..4)?.as_array()?) as usize;
    // Two bytes are the shortest object; the brace keeps everything else out.
    if !(2..=MOST_METADATA).contains(&len) || bytes.get(4) != Some(&b'{') {
        return None;
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes.get(4..4 + len)?).ok()?;
    Some((4 + len, object.into_iter().map(|(name, value)| (name, note(value))).collect()))
}

/// A note as it stands in an ONNX file's metadata: text as it is, the rest as JSON, which reads the same.
fn note(value: serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text,
        serde_json::Value::Bool(true) => "True".to_owned(),
        serde_json::Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

/// An engine's file is no engine, or not for what is here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file has an engine's name and is something else.
    #[error("{path} is no TensorRT engine (nor an ONNX model): build one with `{command}`")]
    NotAPlan {
        /// The file.
        path: PathBuf,
        /// What builds it.
        command: String,
    },
    /// The file has an engine's name and is an ONNX model.
    #[error(
        "{path} is an ONNX model, not a TensorRT engine: rename it to {} to run it on the CPU, and build an engine of that with \
         `{command}`", .path.with_extension("onnx").display()
    )]
    Onnx {
        /// The file.
        path: PathBuf,
        /// What builds an engine.
        command: String,
    },
    /// The file holds nothing.
    #[error("{path} is an empty file, not a TensorRT engine: copy it again, or build it with `{command}`")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What builds it.
        command: String,
    },
    /// The file ends too early.
    #[error("{path} is cut off: it holds {found} bytes of {expected}; copy it again, or build it with `{command}`")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes there.
        found: u64,
        /// Bytes that its header tells of, in words.
        expected: String,
        /// What builds it.
        command: String,
    },
    /// Another TensorRT built it.
    #[error("{path} was built by {built}, this device has {installed}: build it again here with `{command}`{}", said(.reason))]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// What is here.
        installed: Version,
        /// What builds it.
        command: String,
        /// What TensorRT says of it; empty where it was not asked.
        reason: String,
    },
    /// It was built for other GPUs.
    #[error("{path} was built for {built}, this device has {installed}: build it again here with `{command}`")]
    OtherGpu {
        /// The file.
        path: PathBuf,
        /// GPUs that it was built for.
        built: String,
        /// What is here.
        installed: String,
        /// What builds it.
        command: String,
    },
    /// TensorRT does not take it.
    #[error(
        "{installed} does not take {path}, which was built by {built}: {reason}; build it again here with `{command}`"
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// What is here.
        installed: Version,
        /// What TensorRT says.
        reason: String,
        /// What builds it.
        command: String,
    },
    /// It needs a plugin that TensorRT does not have.
    #[error("{installed} cannot load {path}: {plugin}")]
    Plugin {
        /// The file.
        path: PathBuf,
        /// What is here.
        installed: Version,
        /// The plugin, and what to do.
        plugin: MissingPlugin,
    },
    /// There is no GPU to run it.
    #[error(
        "{path} is an engine for a GPU ({built}), and there is none to use: {reason}; without a GPU name the .onnx file instead"
    )]
    NoGpu {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// Why there is none.
        reason: String,
    },
    /// There is no TensorRT to run it.
    #[error("{path} was built by {built}, and {reason}")]
    NoLibrary {
        /// The file.
        path: PathBuf,
        /// What built it.
        built: String,
        /// Why there is none.
        reason: String,
    },
}

fn said(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// The command that builds the engine at `path` anew: from the model and with the options of its sidecar, where it has one.
pub fn rebuild_command(path: &Path) -> String {
    let sidecar = Sidecar::of(path).ok().flatten();
    let by_name = || match path.extension() {
        // An engine by an ONNX model's name: where the model is, nobody knows.
        Some(extension) if extension == "onnx" => PathBuf::from("MODEL.onnx"),
        _ => path.with_extension("onnx"),
    };
    let (onnx, options) = sidecar.map_or_else(|| (by_name(), Vec::new()), |sidecar| (sidecar.onnx, sidecar.options));
    let engine = if has_plan_name(path) { path.to_owned() } else { path.with_extension("engine") };
    let options: String = options.iter().map(|option| format!(" {option}")).collect();
    format!("visiond build {} -o {}{options}", onnx.display(), engine.display())
}

/// The command that builds an engine of the model at `onnx`.
pub fn build_command(onnx: &Path) -> String {
    format!("visiond build {} -o {}", onnx.display(), onnx.with_extension("engine").display())
}

/// Whether a file's name is one that engines have.
pub fn has_plan_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["engine", "plan", "trt"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Refuses what the file's length alone tells to be cut off.
pub(crate) fn check_length(path: &Path, bytes: &[u8]) -> Result<(), PlanError> {
    let truncated = |expected: String| PlanError::Truncated {
        path: path.to_owned(),
        found: bytes.len() as u64,
        expected,
        command: rebuild_command(path),
    };
    match Plan::parse(bytes) {
        None => Err(truncated(format!("a header of {HEADER_BYTES}"))),
        Some(Plan { header: PlanHeader::Rtx { size_bytes, .. }, offset, .. }) => {
            let expected = size_bytes.saturating_add(offset as u64);
            if (bytes.len() as u64) < expected { Err(truncated(expected.to_string())) } else { Ok(()) }
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
