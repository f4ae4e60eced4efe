//! Options for building an engine.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::calibration::CalibrationOptions;
use super::option_error::OptionError;
use super::timing_cache::TimingCacheChoice;
use crate::precision::{Half, Rule};

/// Options for building an engine. The default builds the unchanged model for this device's GPU.
#[derive(Debug, Default)]
pub struct BuildOptions {
    /// TensorRT's library; `None` searches for it.
    pub library: Option<PathBuf>,
    /// The GPU to build on.
    pub device: u32,
    /// The half-precision type for layers where it is safe; `None` keeps FP32.
    pub half: Option<Half>,
    /// Rules for layers that differ.
    pub rules: Vec<Rule>,
    /// Whether FP32 inputs and outputs also become half precision.
    pub half_io: bool,
    /// Whether 32-bit products may round their factors to 10 bits (TF32). It is faster from Ampere on, and off by default
    /// because it moves scores by some hundredths.
    pub tf32: bool,
    /// Whether to use 8-bit integer layers.
    pub int8: bool,
    /// How to find their ranges, if the model does not contain them.
    pub calibration: Option<CalibrationOptions>,
    /// The shapes of the inputs, one set per profile. A single set of fixed shapes makes an engine with fixed shapes.
    pub profiles: Vec<ShapeProfile>,
    /// The maximum scratch memory of a layer.
    pub workspace_bytes: Option<u64>,
    /// How long to search for faster kernels, 0 to 5.
    pub optimization_level: Option<u32>,
    /// Where measured kernel times are stored.
    pub timing_cache: TimingCacheChoice,
    /// Whether later minor versions of TensorRT must be able to run the engine.
    pub version_compatible: bool,
    /// Which other GPUs must be able to run the engine.
    pub hardware_compatibility: HardwareCompatibility,
    /// The DLA core to run on.
    pub dla_core: Option<u32>,
    /// Whether layers that the DLA cannot run may use the GPU.
    pub gpu_fallback: bool,
    /// For TensorRT for RTX: the compute capabilities to build for; empty for this device's GPU, or any if there is none.
    pub compute_capabilities: Vec<ComputeCapability>,
}

/// The shapes of one profile, by input.
pub type ShapeProfile = BTreeMap<String, ShapeRange>;

/// The shapes that a profile allows for an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeRange {
    /// The smallest sizes.
    pub min: Vec<usize>,
    /// The sizes that kernels are tuned for.
    pub opt: Vec<usize>,
    /// The largest sizes.
    pub max: Vec<usize>,
}

impl ShapeRange {
    /// Returns a range of one shape.
    pub fn fixed(shape: Vec<usize>) -> Self {
        Self { min: shape.clone(), opt: shape.clone(), max: shape }
    }

    /// Whether it is a single shape.
    pub fn is_fixed(&self) -> bool {
        self.min == self.max
    }

    /// Returns why the range is invalid.
    fn fault(&self) -> Option<&'static str> {
        let ranks = [&self.min, &self.opt, &self.max].map(Vec::len);
        let rises = |a: &[usize], b: &[usize]| a.iter().zip(b).all(|(a, b)| a <= b);
        if ranks != [ranks[0]; 3] {
            Some("its shapes have different numbers of dimensions")
        } else if [&self.min, &self.opt, &self.max].iter().any(|shape| shape.contains(&0)) {
            Some("every dimension must be at least 1")
        } else if !rises(&self.min, &self.opt) || !rises(&self.opt, &self.max) {
            Some("the minimum must not exceed the optimum, nor the optimum the maximum")
        } else {
            None
        }
    }
}

/// Writes `1x3x640x640`, or `1x3x640x640..4x3x640x640` if it varies.
impl fmt::Display for ShapeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shape_text(&self.min))?;
        if self.is_fixed() { Ok(()) } else { write!(f, "..{}", shape_text(&self.max)) }
    }
}

/// Formats a shape as `1x3x640x640`.
pub(super) fn shape_text(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

fn wrong(text: &str, problem: &str) -> OptionError {
    OptionError(format!("`{text}`: {problem}: write an input and its shape, as in images=1x3x640x640"))
}

/// Reads `1x3x640x640`.
pub fn parse_shape(text: &str) -> Result<Vec<usize>, OptionError> {
    let sizes = text.split('x').map(|size| size.parse().ok().filter(|&size| size > 0));
    sizes.collect::<Option<_>>().ok_or_else(|| wrong(text, "not a shape"))
}

/// Reads an input and its shapes: `images=1x3x640x640`, or minimum, optimum and maximum:
/// `images=1x3x640x640,2x3x640x640,4x3x640x640`.
pub fn parse_input_shapes(text: &str) -> Result<(String, ShapeRange), OptionError> {
    let wrong = |problem| wrong(text, problem);
    // Names may contain either separator.
    let (name, shapes) = text.rsplit_once(['=', ':']).ok_or_else(|| wrong("not an input with its shape"))?;
    let shapes = shapes.split(',').map(parse_shape).collect::<Result<Vec<_>, _>>()?;
    let range = match <[Vec<usize>; 3]>::try_from(shapes) {
        Ok([min, opt, max]) => ShapeRange { min, opt, max },
        Err(mut shapes) => match (shapes.len(), shapes.pop()) {
            (1, Some(shape)) => ShapeRange::fixed(shape),
            _ => return Err(wrong("neither one shape nor three (minimum, optimum, maximum)")),
        },
    };
    match range.fault() {
        Some(problem) => Err(wrong(problem)),
        None if name.is_empty() => Err(wrong("a shape without its input")),
        None => Ok((name.to_owned(), range)),
    }
}

/// Reads a whole profile: inputs with their shapes, separated by semicolons.
pub fn parse_profile(text: &str) -> Result<ShapeProfile, OptionError> {
    text.split(';').map(|part| parse_input_shapes(part.trim())).collect()
}

/// Which other GPUs can run an engine, numbered as TensorRT's `HardwareCompatibilityLevel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HardwareCompatibility {
    /// Only GPUs of the same kind.
    #[default]
    None,
    /// Every GPU from Ampere on.
    AmperePlus,
    /// Every GPU of the same compute capability.
    SameComputeCapability,
}

impl HardwareCompatibility {
    /// Returns the name used in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AmperePlus => "ampere+",
            Self::SameComputeCapability => "same-sm",
        }
    }
}

impl FromStr for HardwareCompatibility {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let levels = [Self::None, Self::AmperePlus, Self::SameComputeCapability];
        let level = levels.into_iter().find(|level| level.name() == text);
        level.ok_or_else(|| OptionError("unknown level: use none, ampere+ or same-sm".to_owned()))
    }
}

/// A compute capability as TensorRT for RTX's number: 86 for 8.6, 120 for 12.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeCapability(pub(super) u32);

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

/// Reads `86`, `8.6` or `12.0`.
impl FromStr for ComputeCapability {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let number = text.replacen('.', "", 1).parse().ok().filter(|number| (50..1000).contains(number));
        number.map(Self).ok_or_else(|| OptionError(format!("`{text}` is not a compute capability: write 86 or 8.6")))
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
            ("images", "not an input with its shape"),
            ("images=1x3xW", "not a shape"),
            ("images=1x0", "not a shape"),
            ("=1x3", "without its input"),
            ("i=1x3,2x3", "neither one shape nor three"),
            ("i=2x3,1x3,4x3", "the minimum"),
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
        assert_eq!("120".parse::<ComputeCapability>().unwrap().0, 120);
        assert!("sm_86".parse::<ComputeCapability>().is_err() && "5".parse::<ComputeCapability>().is_err());
    }
}
