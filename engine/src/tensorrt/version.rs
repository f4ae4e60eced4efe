//! Versions of TensorRT, and the memory layout of each version's objects.

use std::fmt;

/// A version of TensorRT, as `getInferLibVersion` returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Whether it is TensorRT for RTX, which has its own version numbers.
    pub rtx: bool,
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch version.
    pub patch: u32,
}

impl Version {
    /// Decodes the library's number: 8601 is 8.6.1, 100300 is 10.3.0, 10701 is 1.7.1 of TensorRT for RTX.
    pub const fn decode(number: u32) -> Self {
        let (rtx, unit) = match number {
            0..=9_999 => (false, 1_000),
            10_000..=19_999 => (true, 10_000),
            _ => (false, 10_000),
        };
        Self { rtx, major: number / unit, minor: number % unit / 100, patch: number % 100 }
    }

    /// Returns the layout of its objects, if it is known.
    pub const fn layout(&self) -> Option<Layout> {
        match (self.rtx, self.major, self.minor) {
            (true, 1, 5..) => Some(Layout::Rtx),
            (false, 8, 5..) => Some(Layout::V8),
            (false, 10, _) => Some(Layout::V10),
            (false, 11, _) => Some(Layout::V11),
            _ => None,
        }
    }
}

/// Writes `TensorRT 10.3.0` or `TensorRT for RTX 1.6.1`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.rtx { "TensorRT for RTX" } else { "TensorRT" };
        write!(f, "{name} {}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The known layouts of TensorRT's objects; every table has one column for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// TensorRT 8.5 and 8.6.
    V8,
    /// TensorRT 10.
    V10,
    /// TensorRT 11.
    V11,
    /// TensorRT for RTX from 1.5: like TensorRT 11 in nearly everything.
    Rtx,
}
