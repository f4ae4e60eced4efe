//! How long the CUDA preprocess takes for 1 and for 32 frames of 1080p, in the GPU's memory and in pinned memory.

use std::sync::Arc;

use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceBuffer, Event};
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::geometry::Fit;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Sampling, TensorLayout};
use visiond_kernels::tensor::DType;

use crate::measure::{Noise, Samples};
use crate::report::{Failure, Report};
use crate::setup::Setup;

/// Frames in a launch.
pub const FRAMES: usize = 32;
const WIDTH: u32 = 1920;
const HEIGHT: u32 = 1080;
/// The network's input.
pub const SIDE: u32 = 640;

/// Sets of frames and tensors that take turns, so that no set is still in the level-2 cache: four of YUYV are 850 MB.
const SETS: usize = 4;
/// Runs between two events, one behind the other, each with the copy of its descriptions; and how often that is timed.
const RUNS: usize = 40;
const LOOPS: usize = 15;

/// One measurement.
pub struct Speed {
    /// Microseconds a run, the median.
    pub median_us: f64,
    /// The least.
    pub best_us: f64,
    /// Bytes of whole frames and tensors.
    pub whole_bytes: usize,
}

impl Speed {
    /// GB/s of whole frames, read once, and tensors, written once.
    pub fn gb_per_s(&self) -> f64 {
        self.whole_bytes as f64 / self.median_us / 1e3
    }
}

/// 640x640 f16, letterboxed, as a YOLO network takes it.
pub fn spec(sampling: Sampling) -> PreprocessSpec {
    PreprocessSpec {
        width: SIDE,
        height: SIDE,
        fit: Fit::Letterbox,
        sampling,
        pad: 114.0,
        order: ChannelOrder::Rgb,
        layout: TensorLayout::Nchw,
        dtype: DType::F16,
        scale: 1.0 / 255.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    }
}

/// One 1080p frame as it is measured with.
pub fn frame(format: PixelFormat) -> Result<(FrameLayout, Vec<u8>), Failure> {
    let layout = FrameLayout::packed(format, WIDTH, HEIGHT, ColorDescription::default())?;
    let mut bytes = vec![0; layout.size_bytes()];
    Noise::new(7).fill(&mut bytes);
    Ok((layout, bytes))
}

/// Runs of `frames` frames of `format` each, which are in pinned memory or in the GPU's.
pub fn measure(
    device: &Arc<Device>,
    format: PixelFormat,
    frames: usize,
    spec: &PreprocessSpec,
    pinned: bool,
) -> Result<Speed, Failure> {
    let stream = CudaStream::new(device)?;
    let (layout, bytes) = frame(format)?;
    let each = spec.shape().iter().product::<usize>() * spec.dtype.size_bytes();
    let stride = bytes.len().next_multiple_of(512);
    let memory = Memory::on(device, MemoryKind::Mapped)?;
    let mut sets = Vec::new();
    for _ in 0..SETS {
        let target = DeviceBuffer::new(device, each * frames)?;
        let source = DeviceBuffer::new(device, if pinned { 0 } else { stride * frames })?;
        let mut host = memory.allocate(if pinned { stride * frames } else { 0 })?;
        let first = if pinned { host.device_address().unwrap_or_default() } else { source.address() };
        for i in 0..frames {
            if pinned {
                host.as_mut_slice()[i * stride..][..bytes.len()].copy_from_slice(&bytes);
            } else {
                // SAFETY: the buffer has room for `frames` such strides; the copies are waited for below.
                unsafe { stream.copy_to_device(&bytes, first.offset(i * stride)) }?;
            }
        }
        let mut preprocessor = CudaPreprocessor::new(spec, device, frames)?;
        let views: Result<Vec<FrameView<'_>>, _> =
            (0..frames).map(|i| layout.view_at(&bytes, Some(first.offset(i * stride)))).collect();
        preprocessor.prepare(&views?)?;
        sets.push((preprocessor, (source, host), target));
    }
    stream.synchronize()?;
    let mut graphs = Vec::new();
    for (preprocessor, _, target) in &mut sets {
        let target = target.address();
        // SAFETY: sets and frames live to the end of this function, which waits for every run.
        let captured = stream.capture(|stream| unsafe { preprocessor.enqueue(target, frames, stream) });
        let (graph, ()) = captured.map_err(|error: CudaError| Failure::from(error))?;
        graphs.push(graph);
    }
    let (begin, end) = (Event::new(device)?, Event::new(device)?);
    let mut times = Vec::new();
    // The first loop warms up.
    for _ in 0..LOOPS + 1 {
        begin.record(&stream)?;
        for run in 0..RUNS {
            // SAFETY: as for the capture.
            unsafe { graphs[run % SETS].launch(&stream) }?;
        }
        end.record(&stream)?;
        end.wait()?;
        times.push(end.elapsed_us(&begin)? / RUNS as f64);
    }
    let times = times.split_off(1);
    let times = Samples::new(times);
    Ok(Speed { median_us: times.median(), best_us: times.best(), whole_bytes: (bytes.len() + each) * frames })
}

/// The row: no demands, the script's `preprocess` row compares with the device's copies and with CV-CUDA.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    for format in [PixelFormat::Yuyv, PixelFormat::Nv12, PixelFormat::Bgr] {
        for (sampling, name) in [(Sampling::Opencv, "opencv"), (Sampling::Exact, "exact")] {
            for (frames, pinned) in [(1, false), (FRAMES, false), (1, true)] {
                let speed = measure(&device, format, frames, &spec(sampling), pinned)?;
                let text =
                    format!("{:.1} us (best {:.1}), {:.0} GB/s", speed.median_us, speed.best_us, speed.gb_per_s());
                let from = if pinned { ", pinned memory" } else { "" };
                report.note("Preprocess", &format!("{frames} x 1080p {format}{from} to 640x640 f16, {name}"), text);
            }
        }
    }
    Ok(())
}
