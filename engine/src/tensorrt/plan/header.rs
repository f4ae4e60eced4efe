//! The header of an engine file, read before TensorRT sees it.
//!
//! | file | first bytes |
//! |---|---|
//! | TensorRT 8.6 and newer | `ftrt`; bytes 24 to 27 are major, minor, patch and build of the TensorRT that built it |
//! | TensorRT 8.5 and older | `ptrt`; the ninth byte is the format number: 232 is 8.5.3 |
//! | TensorRT for RTX | `vtrt`; the file's size at 16, the version at 24, a mask of GPUs at 32 |
//! | Ultralytics | length and text of a JSON object, then one of the above |
//!
//! Deserializing an engine can run code that is in it. An engine file is a program; trust it like one.

use std::collections::BTreeMap;
use std::fmt;

use crate::tensorrt::version::Version;

/// The number of bytes that a header needs.
pub(super) const HEADER_BYTES: usize = 40;

/// The limit of an exporter's metadata, far above any real one.
pub(super) const MOST_METADATA: usize = 16 << 20;

/// The compute capabilities that TensorRT for RTX builds for, by bit of its mask.
const RTX_GPUS: [(u32, u32); 6] = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)];

/// The header of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanHeader {
    /// TensorRT 8.6 and newer.
    TensorRt {
        /// The version that built it.
        version: Version,
    },
    /// TensorRT 8.5 and older, which does not record its version.
    OldTensorRt {
        /// The format number.
        format: u8,
    },
    /// TensorRT for RTX.
    Rtx {
        /// The version that built it.
        version: Version,
        /// The length of the whole engine.
        size_bytes: u64,
        /// The GPUs that it was built for, one bit each.
        gpus: u64,
    },
}

impl PlanHeader {
    /// Reads the header at the start of `bytes`; `None` if they are not an engine, or too few.
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

    /// Returns the version that built it; 8.5 for TensorRT 8.5 and older.
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

    /// Whether it runs on GPUs with compute capability `sm`; `None` if the header does not say.
    pub fn is_for(&self, sm: (u32, u32)) -> Option<bool> {
        let Self::Rtx { gpus, .. } = self else { return None };
        match RTX_GPUS.iter().position(|known| *known == sm) {
            _ if *gpus == 0 => None,
            Some(bit) => Some(gpus >> bit & 1 == 1),
            // A bit above the known ones is set in engines that were not built for particular GPUs.
            None if gpus >> RTX_GPUS.len() != 0 => None,
            None => Some(false),
        }
    }

    /// Returns the compute capabilities that it was built for; empty if the header does not say.
    pub fn gpus(&self) -> Vec<(u32, u32)> {
        let Self::Rtx { gpus, .. } = self else { return Vec::new() };
        (0..).zip(RTX_GPUS).filter(|(bit, _)| gpus >> bit & 1 == 1).map(|(_, sm)| sm).collect()
    }
}

/// Writes `TensorRT 10.3.0` or `TensorRT 8.5 or older (format 232)`.
impl fmt::Display for PlanHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorRt { version } | Self::Rtx { version, .. } => version.fmt(f),
            Self::OldTensorRt { format } => write!(f, "TensorRT 8.5 or older (format {format})"),
        }
    }
}

/// Where the engine starts in a file, and what surrounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The engine's header.
    pub header: PlanHeader,
    /// The offset of the engine's first byte.
    pub offset: usize,
    /// Ultralytics' metadata as text, by key; empty if there is none.
    pub metadata: BTreeMap<String, String>,
}

impl Plan {
    /// Finds the engine in a file's bytes; `None` if there is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (offset, metadata) = wrapping(bytes).unwrap_or_default();
        let header = PlanHeader::parse(bytes.get(offset..)?)?;
        Some(Self { header, offset, metadata })
    }
}

/// Whether a file begins like an engine: with a whole header, the start of one, or Ultralytics' wrapping.
pub fn is_plan(bytes: &[u8]) -> bool {
    bytes.get(..4).is_some_and(|magic| [b"ftrt", b"ptrt", b"vtrt"].iter().any(|known| *known == magic))
        || wrapping(bytes).is_some()
}

/// Returns the length of Ultralytics' wrapping and the metadata in it.
fn wrapping(bytes: &[u8]) -> Option<(usize, BTreeMap<String, String>)> {
    let len = u32::from_le_bytes(*bytes.get(..4)?.as_array()?) as usize;
    // The shortest object has two bytes; the brace rules out everything else.
    if !(2..=MOST_METADATA).contains(&len) || bytes.get(4) != Some(&b'{') {
        return None;
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes.get(4..4 + len)?).ok()?;
    Some((4 + len, object.into_iter().map(|(name, value)| (name, note(value))).collect()))
}

/// Formats a value as in an ONNX file's metadata: text as it is, the rest as JSON, which reads the same.
fn note(value: serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text,
        serde_json::Value::Bool(true) => "True".to_owned(),
        serde_json::Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}
