//! What an engine is built to be.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::calibration::CalibrationOptions;
use super::timing_cache::TimingCacheChoice;
use crate::precision::{Half, Rule};

/// How to build an engine. The default is the network as its file has it, for the GPU that is here.
#[derive(Debug, Default)]
pub struct BuildOptions {
    /// TensorRT's library; `None` for the one that is found.
    pub library: Option<PathBuf>,
    /// The GPU to build on.
    pub device: u32,
    /// Half precision where it is safe.
    pub half: Option<Half>,
    /// Layers that differ from it.
    pub rules: Vec<Rule>,
    /// Whether inputs and outputs become half precision too.
    pub half_io: bool,
    /// Whether products of 32-bit floats may round their factors to 10 bits (TF32): faster from Ampere on, and off unless
    /// asked for, because it moves scores by some hundredths.
    pub tf32: bool,
    /// Whether layers of 8-bit integers are wanted.
    pub int8: bool,
    /// How to find their ranges, where the network does not hold them.
    pub calibration: Option<CalibrationOptions>,
    /// Shapes of inputs, one set a profile. A single set whose every shape is fixed makes a network of fixed shapes.
    pub profiles: Vec<ShapeProfile>,
    /// The most scratch memory that a layer may take.
    pub workspace_bytes: Option<u64>,
    /// How long to look for faster kernels, 0 to 5.
    pub optimization_level: Option<u32>,
    /// Where kernels' measured times are kept.
    pub timing_cache: TimingCacheChoice,
    /// Whether later minor versions of TensorRT shall run the engine too.
    pub version_compatible: bool,
    /// Which other GPUs shall run the engine too.
    pub hardware_compatibility: HardwareCompatibility,
    /// The deep-learning accelerator to run on.
    pub dla_core: Option<u32>,
    /// Whether layers that it cannot run go to the GPU.
    pub gpu_fallback: bool,
    /// For TensorRT for RTX: compute capabilities to build for; empty for the GPU that is here, or any where none is.
    pub compute_capabilities: Vec<ComputeCapability>,
}

/// Shapes of one profile, by input.
pub type ShapeProfile = BTreeMap<String, ShapeRange>;

/// The shapes that an input may have in a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeRange {
    /// The least of every dimension.
    pub min: Vec<usize>,
    /// What kernels are chosen for.
    pub opt: Vec<usize>,
    /// The most of every dimension.
    pub max: Vec<usize>,
}

impl ShapeRange {
    /// One shape and no other.
    pub fn fixed(shape: Vec<usize>) -> Self {
        Self { min: shape.clone(), opt: shape.clone(), max: shape }
    }

    /// Whether it is one shape.
    pub fn is_fixed(&self) -> bool {
        self.min == self.max
    }

    /// Why it is no range, to read behind the shapes.
    fn fault(&self) -> Option<&'static str> {
        let ranks = [&self.min, &self.opt, &self.max].map(Vec::len);
        let rises = |a: &[usize], b: &[usize]| a.iter().zip(b).all(|(a, b)| a <= b);
        if ranks != [ranks[0]; 3] {
            Some("its shapes have different numbers of dimensions")
        } else if [&self.min, &self.opt, &self.max].iter().any(|shape| shape.contains(&0)) {
            Some("every dimension must be at least 1")
        } else if !rises(&self.min, &self.opt) || !rises(&self.opt, &self.max) {
            Some("the least shape must not be above the usual one, and that not above the most")
        } else {
            None
        }
    }
}

/// `1x3x640x640`, or `1x3x640x640..4x3x640x640` where it varies.
impl fmt::Display for ShapeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shape_text(&self.min))?;
        if self.is_fixed() { Ok(()) } else { write!(f, "..{}", shape_text(&self.max)) }
    }
}

/// `1x3x640x640`
pub(super) fn shape_text(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// A text is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is {problem}: write an input and its shape, as in images=1x3x640x640")]
pub struct ShapeError {
    text: String,
    problem: &'static str,
}

/// `1x3x640x640`
pub fn parse_shape(text: &str) -> Result<Vec<usize>, ShapeError> {
    let wrong = || ShapeError { text: text.to_owned(), problem: "no shape" };
    text.split('x').map(|size| size.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)).collect()
}

/// An input and its shapes: `images=1x3x640x640`, or the least, the usual and the most:
/// `images=1x3x640x640,2x3x640x640,4x3x640x640`.
pub fn parse_input_shapes(text: &str) -> Result<(String, ShapeRange), ShapeError> {
    let wrong = |problem| ShapeError { text: text.to_owned(), problem };
    // Names may hold either sign themselves.
    let (name, shapes) = text.rsplit_once(['=', ':']).ok_or_else(|| wrong("no input with its shape"))?;
    let shapes = shapes.split(',').map(parse_shape).collect::<Result<Vec<_>, _>>()?;
    let range = match <[Vec<usize>; 3]>::try_from(shapes) {
        Ok([min, opt, max]) => ShapeRange { min, opt, max },
        Err(mut shapes) => match (shapes.len(), shapes.pop()) {
            (1, Some(shape)) => ShapeRange::fixed(shape),
            _ => return Err(wrong("neither one shape nor three (least, usual, most)")),
        },
    };
    match range.fault() {
        Some(problem) => Err(wrong(problem)),
        None if name.is_empty() => Err(wrong("a shape without its input")),
        None => Ok((name.to_owned(), range)),
    }
}

/// A whole profile: inputs with their shapes, separated by semicolons.
pub fn parse_profile(text: &str) -> Result<ShapeProfile, ShapeError> {
    text.split(';').map(|part| parse_input_shapes(part.trim())).collect()
}

/// Which other GPUs run an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HardwareCompatibility {
    /// None but those of the same kind.
    #[default]
    None,
    /// Every GPU from Ampere on.
    AmperePlus,
    /// Every GPU of the same compute capability.
    SameComputeCapability,
}

impl HardwareCompatibility {
    /// As in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AmperePlus => "ampere+",
            Self::SameComputeCapability => "same-sm",
        }
    }
}

impl FromStr for HardwareCompatibility {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let levels = [Self::None, Self::AmperePlus, Self::SameComputeCapability];
        levels
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| format!("there is {}", levels.map(Self::name).join(", ")))
    }
}

/// A compute capability, as 8.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeCapability {
    /// 8 of 8.6.
    pub major: u32,
    /// 6 of 8.6.
    pub minor: u32,
}

impl ComputeCapability {
    /// 86 for 8.6, 120 for 12.0: the numbers of TensorRT for RTX.
    pub(super) const fn number(self) -> u32 {
        self.major * 10 + self.minor
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// `86`, `8.6` or `12.0`.
impl FromStr for ComputeCapability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("`{text}` is no compute capability: write 86 or 8.6");
        let number: u32 = text.replacen('.', "", 1).parse().map_err(wrong)?;
        if (50..1000).contains(&number) {
            Ok(Self { major: number / 10, minor: number % 10 })
        } else {
            Err(format!("`{text}` is no compute capability: write 86 or 8.6"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn shapes_are_read_as_people_know_them_from_trtexec() {
        let fixed = ShapeRange::fixed(vec![1, 3, 640, 640]);
        assert_eq!(parse_input_shapes("images=1x3x640x640").unwrap(), ("images".to_owned(), fixed.clone()));
        assert_eq!(parse_input_shapes("input:0:1x3x640x640").unwrap(), ("input:0".to_owned(), fixed.clone()));
        let (_, range) = parse_input_shapes("images=1x3x64x64,2x3x64x64,4x3x64x64").unwrap();
        assert_eq!(range.to_string(), "1x3x64x64..4x3x64x64");
        let profile = parse_profile("a=1x2; b=3").unwrap();
        assert_eq!(profile["b"], ShapeRange::fixed(vec![3]));
        for (wrong, problem) in [
            ("images", "no input with its shape"),
            ("images=1x3xW", "no shape"),
            ("images=1x0", "no shape"),
            ("=1x3", "without its input"),
            ("i=1x3,2x3", "neither one shape nor three"),
            ("i=2x3,1x3,4x3", "least"),
            ("i=1,1x2,1", "different numbers"),
        ] {
            let error = parse_input_shapes(wrong).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("images=1x3x640x640"), "{error}");
        }
    }

    #[test]
    fn compute_capabilities_have_a_point_or_none() {
        for text in ["86", "8.6"] {
            assert_eq!(text.parse::<ComputeCapability>().unwrap().to_string(), "8.6");
        }
        assert_eq!("120".parse::<ComputeCapability>().unwrap().number(), 120);
        assert!("sm_86".parse::<ComputeCapability>().is_err() && "5".parse::<ComputeCapability>().is_err());
    }
}
