//! Calibration: pictures that have been made tensors, on their way into the GPU's memory.

use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceBuffer};

use super::calibrator::Batches;
use super::monitor::Monitor;

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

/// A feed's tensors in the GPU's memory.
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
        // TensorRT calls on threads of its own.
        device.bind()?;
        let buffer = match self.buffer.take().filter(|buffer| buffer.len() >= bytes.len()) {
            Some(buffer) => buffer,
            None => DeviceBuffer::new(&device, bytes.len())?,
        };
        let buffer = self.buffer.insert(buffer);
        // SAFETY: the buffer holds that many bytes; both outlive the copy, which is waited for.
        unsafe { self.stream.copy_to_device(bytes, buffer.address()) }?;
        self.stream.synchronize()?;
        Ok(buffer.address().as_ptr())
    }
}

impl Batches for Upload {
    fn size(&self) -> i32 {
        self.batch
    }

    fn next(&mut self, inputs: &[String]) -> Result<Option<Vec<*mut c_void>>, String> {
        if self.monitor.is_cancelled() {
            return Err("it was ended".to_owned());
        }
        if inputs.len() != 1 {
            return Err(format!("TensorRT asks for {} inputs, and pictures fill one", inputs.len()));
        }
        let Some(bytes) = self.feed.next()? else { return Ok(None) };
        self.done += 1;
        self.monitor.step(self.done, self.feed.count());
        let address = self.upload(&bytes).map_err(|error| error.to_string())?;
        Ok(Some(vec![address]))
    }
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
