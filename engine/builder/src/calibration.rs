//! Calibration: pictures that have been made tensors, on their way into the GPU's memory.

use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How ranges follow from the numbers seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// As little information lost as possible: best for most networks.
    Entropy,
    /// From the least to the most.
    MinMax,
    /// As wide as this percentage of the numbers.
    Percentile(f64),
}

/// `entropy`, `minmax`, `percentile:99.99`
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entropy => f.write_str("entropy"),
            Self::MinMax => f.write_str("minmax"),
            Self::Percentile(percent) => write!(f, "percentile:{percent}"),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USUAL: f64 = 99.99;
        match text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value))) {
            ("entropy", None) => Ok(Self::Entropy),
            ("minmax", None) => Ok(Self::MinMax),
            ("percentile", None) => Ok(Self::Percentile(USUAL)),
            ("percentile", Some(value)) => {
                let percent = value.parse().ok().filter(|percent| *percent > 50.0 && *percent <= 100.0);
                percent.map(Self::Percentile).ok_or_else(|| "a percentile is above 50 and at most 100".to_owned())
            }
            _ => Err("there is entropy, minmax and percentile (percentile:99.99)".to_owned()),
        }
    }
}

/// Tensors of pictures, one after the other.
pub trait CalibrationFeed: Send {
    /// How many there are.
    fn count(&self) -> usize;

    /// The next picture as the network's input: FP32, of the shape that the engine is built for, for one picture or a batch.
    /// `None` behind the last.
    fn next(&mut self) -> Result<Option<Vec<u8>>, String>;
}

/// How to find the ranges of a network's numbers.
pub struct CalibrationOptions {
    /// How ranges follow from numbers.
    pub algorithm: Algorithm,
    /// The pictures.
    pub feed: Box<dyn CalibrationFeed>,
    /// Where ranges are kept for next time.
    pub cache: Option<PathBuf>,
}

impl fmt::Debug for CalibrationOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CalibrationOptions({} over {} pictures)", self.algorithm, self.feed.count())
    }
}

/// Batches of pictures in the GPU's memory.
pub(super) trait Batches: Send {
    /// Pictures of one batch.
    fn size(&self) -> i32;

    /// The addresses of the next batch's tensors, for inputs of these names; `None` behind the last.
    fn next(&mut self, inputs: &[String]) -> Result<Option<Vec<*mut c_void>>, String>;
}

#[cfg(test)]
impl CalibrationOptions {
    /// Options without pictures.
    pub(super) fn untested() -> Self {
        struct Nothing;
        impl CalibrationFeed for Nothing {
            fn count(&self) -> usize {
                0
            }
            fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
                Ok(None)
            }
        }
        Self { algorithm: Algorithm::Entropy, feed: Box::new(Nothing), cache: None }
    }
}

#[cfg(test)]
mod tests {
    use super::Algorithm;

    #[test]
    fn algorithms_are_named() {
        for (text, expected) in [
            ("entropy", Some(Algorithm::Entropy)),
            ("minmax", Some(Algorithm::MinMax)),
            ("percentile", Some(Algorithm::Percentile(99.99))),
            ("percentile:99.9", Some(Algorithm::Percentile(99.9))),
            ("percentile:9", None),
            ("entropy:3", None),
            ("kl", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
