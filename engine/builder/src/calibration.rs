//! INT8 calibration: its options, its source of images, and copying them to the GPU.

use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::monitor::Monitor;
use super::option_error::OptionError;
use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceBuffer};

/// How the ranges are derived from the observed numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// Minimise the loss of information: best for most models.
    Entropy,
    /// From the minimum to the maximum.
    MinMax,
    /// Wide enough for this percentage of the numbers.
    Percentile(f64),
}

/// Writes `entropy`, `minmax` or `percentile:99.99`.
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
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text.strip_prefix("percentile:") {
            None if text == "entropy" => Ok(Self::Entropy),
            None if text == "minmax" => Ok(Self::MinMax),
            None if text == "percentile" => Ok(Self::Percentile(99.99)),
            None => {
                Err(OptionError("unknown algorithm: use entropy, minmax or percentile (percentile:99.99)".to_owned()))
            }
            Some(value) => {
                let percent = value.parse().ok().filter(|percent| *percent > 50.0 && *percent <= 100.0);
                percent
                    .map(Self::Percentile)
                    .ok_or_else(|| OptionError("a percentile must be above 50 and at most 100".to_owned()))
            }
        }
    }
}

/// A sequence of images as tensors.
pub trait CalibrationFeed: Send {
    /// Returns the number of tensors.
    fn count(&self) -> usize;

    /// Returns the next tensor for the model's input: FP32, in the shape that the engine is built for, for one image or a
    /// batch. `None` after the last.
    fn next(&mut self) -> Result<Option<Vec<u8>>, CalibrationError>;
}

/// Why calibration ended before its last image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// An image cannot be read or preprocessed.
    #[error("{0}")]
    Picture(String),
    /// The build was cancelled.
    #[error("the build was cancelled")]
    Cancelled,
    /// The model has several inputs.
    #[error("TensorRT asks for {0} inputs, but images fill only one: quantise the model during export")]
    Inputs(usize),
    /// The GPU failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The feed panicked.
    #[error("visiond has a bug; see the log above")]
    Panicked,
}

/// How to find the ranges of a model's numbers.
pub struct CalibrationOptions {
    /// How the ranges are derived.
    pub algorithm: Algorithm,
    /// The images.
    pub feed: Box<dyn CalibrationFeed>,
    /// The file that stores the ranges for the next build.
    pub cache: Option<PathBuf>,
}

impl fmt::Debug for CalibrationOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CalibrationOptions({} over {} pictures)", self.algorithm, self.feed.count())
    }
}

/// Batches of images in the GPU's memory.
pub(super) trait Batches: Send {
    /// Returns the number of images per batch.
    fn size(&self) -> i32;

    /// Returns the addresses of the next batch's tensors, for inputs of these names; `None` after the last.
    fn next(&mut self, inputs: &[String]) -> Result<Option<Vec<*mut c_void>>, CalibrationError>;
}

/// Copies a feed's tensors to the GPU.
pub(super) struct Upload {
    feed: Box<dyn CalibrationFeed>,
    stream: CudaStream,
    buffer: Option<DeviceBuffer>,
    batch: i32,
    done: usize,
    monitor: Arc<Monitor>,
}

impl Upload {
    pub(super) fn new(
        feed: Box<dyn CalibrationFeed>,
        device: &Arc<Device>,
        batch: i32,
        monitor: &Arc<Monitor>,
    ) -> Result<Self, CudaError> {
        let stream = CudaStream::new(device)?;
        Ok(Self { feed, stream, buffer: None, batch, done: 0, monitor: Arc::clone(monitor) })
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<*mut c_void, CudaError> {
        let device = Arc::clone(self.stream.device());
        // TensorRT calls this on its own threads.
        device.bind()?;
        let buffer = match self.buffer.take().filter(|buffer| buffer.len() >= bytes.len()) {
            Some(buffer) => buffer,
            None => DeviceBuffer::new(&device, bytes.len())?,
        };
        let buffer = self.buffer.insert(buffer);
        // SAFETY: the buffer holds that many bytes; both outlive the copy, which this waits for.
        unsafe { self.stream.copy_to_device(bytes, buffer.address()) }?;
        self.stream.synchronize()?;
        Ok(buffer.address().as_ptr())
    }
}

impl Batches for Upload {
    fn size(&self) -> i32 {
        self.batch
    }

    fn next(&mut self, inputs: &[String]) -> Result<Option<Vec<*mut c_void>>, CalibrationError> {
        if self.monitor.is_cancelled() {
            return Err(CalibrationError::Cancelled);
        }
        if inputs.len() != 1 {
            return Err(CalibrationError::Inputs(inputs.len()));
        }
        let Some(bytes) = self.feed.next()? else { return Ok(None) };
        self.done += 1;
        self.monitor.step(self.done, self.feed.count());
        let address = self.upload(&bytes)?;
        Ok(Some(vec![address]))
    }
}

#[cfg(test)]
impl CalibrationOptions {
    /// Returns options without images.
    pub(super) fn untested() -> Self {
        struct Nothing;
        impl CalibrationFeed for Nothing {
            fn count(&self) -> usize {
                0
            }
            fn next(&mut self) -> Result<Option<Vec<u8>>, CalibrationError> {
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
