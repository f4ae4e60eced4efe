//! Copies calibration pictures to the GPU.

use std::ffi::c_void;
use std::sync::Arc;

use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceBuffer};

use super::calibration::{Batches, CalibrationError, CalibrationFeed};
use super::monitor::Monitor;

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
