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

use crate::tensorrt::version::Version;

/// Bytes that tell all that a header tells.
pub(super) const HEADER_BYTES: usize = 40;

/// No exporter's metadata comes near this.
pub(super) const MOST_METADATA: usize = 16 << 20;

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
