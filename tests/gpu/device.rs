//! The GPU's copy speed, to which the preprocess is compared. `visiond selftest` reports the GPU itself.

use std::sync::Arc;

use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer, Event};

use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Device";
/// Larger than any cache: the copy reads and writes 1 GiB.
const COPY_BYTES: usize = 1 << 30;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    report.note(ROW, "copy within the GPU", format!("{:.0} GB/s read and written", copy_gb_per_s(&device)?));
    let bus = bus_copy_us(&device, FRAME_BYTES)?;
    report.note(ROW, "copy of a 1080p YUYV frame over the bus", format!("{bus:.0} us"));
    Ok(())
}

/// The bytes of a 1080p YUYV frame.
const FRAME_BYTES: usize = 1920 * 1080 * 2;

/// Returns the bandwidth of a copy within device memory, bytes read and written, the best of twenty, in GB/s.
pub fn copy_gb_per_s(device: &Arc<Device>) -> Result<f64, Failure> {
    let (from, to) = (DeviceBuffer::new(device, COPY_BYTES)?, DeviceBuffer::new(device, COPY_BYTES)?);
    let stream = CudaStream::new(device)?;
    let mut best_us = f64::INFINITY;
    for _ in 0..20 {
        let (begin, end) = (Event::new(device)?, Event::new(device)?);
        begin.record(&stream)?;
        // SAFETY: both buffers are of that length and outlive the synchronisation below.
        unsafe { stream.copy_on_device(from.address(), to.address(), COPY_BYTES) }?;
        end.record(&stream)?;
        stream.synchronize()?;
        best_us = best_us.min(end.elapsed_us(&begin)?);
    }
    Ok(2.0 * COPY_BYTES as f64 / best_us / 1e3)
}

/// Returns the time of a copy of `bytes` bytes from pinned memory to the GPU, the median of a hundred, in microseconds.
pub fn bus_copy_us(device: &Arc<Device>, bytes: usize) -> Result<f64, Failure> {
    let from = Memory::on(device, MemoryKind::Mapped)?.allocate(bytes)?;
    let to = DeviceBuffer::new(device, bytes)?;
    let stream = CudaStream::new(device)?;
    let mut times = Vec::new();
    for _ in 0..110 {
        let (begin, end) = (Event::new(device)?, Event::new(device)?);
        begin.record(&stream)?;
        // SAFETY: `to` has room; both outlive the synchronisation below.
        unsafe { stream.copy_to_device(from.as_slice(), to.address()) }?;
        end.record(&stream)?;
        stream.synchronize()?;
        times.push(end.elapsed_us(&begin)?);
    }
    Ok(crate::measure::Samples::new(times.split_off(10)).median())
}
