//! Measures an engine by itself: tensors full of noise, no camera, no detector.
//!
//! The result is the lower limit for everything else: a pipeline cannot be faster than its engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half::f16;
use visiond_kernels::buffer::{Memory, MemoryKind, UnifiedBuffer};
use visiond_kernels::cuda::{CudaStream, DeviceBuffer, Event, Graph};
use visiond_kernels::tensor::DType;

use super::context::TrtContext;
use super::engine::{Scratch, TrtEngine};
use super::error::TensorRtError;
use super::profiler::LayerTime;
use super::tensor::{Direction, TrtTensor};
use crate::backend::EngineError;

/// An engine with its own tensors, to measure.
pub struct EngineBenchmark {
    // Fields drop in order: the graph before the context and the tensors that it was recorded with, the context before its
    // tensors. `drop` has waited for the stream by then.
    graph: Option<Graph>,
    context: TrtContext,
    tensors: Vec<BenchmarkTensor>,
    stream: CudaStream,
    start: Event,
    end: Event,
}

/// A tensor on the GPU and its copy in pinned host memory.
struct BenchmarkTensor {
    direction: Direction,
    on_gpu: DeviceBuffer,
    on_host: UnifiedBuffer,
}

/// How a run is submitted to the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// With TensorRT's `enqueueV3`.
    Calls,
    /// As one recorded CUDA graph.
    Graph,
}

/// The duration of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunTime {
    /// Host time to submit the run.
    pub enqueue: Duration,
    /// GPU time from the run's start to its end.
    pub gpu: Duration,
    /// Host time from before the submission until the run is known to be done.
    pub done: Duration,
}

impl EngineBenchmark {
    /// Creates a context, its tensors and the events for measuring. An input without an entry in `shapes` gets the shape that
    /// the engine was tuned for.
    pub fn new(engine: &Arc<TrtEngine>, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Self, EngineError> {
        let device = engine.device();
        let stream = CudaStream::new(device)?;
        let mut context = engine.context(Scratch::Own)?;
        let shape_of = |tensor: &TrtTensor| match shapes.get(&tensor.name) {
            Some(shape) => shape.clone(),
            None => tensor.limits.first().map(|limits| limits.opt.clone()).unwrap_or_default(),
        };
        let inputs = || engine.tensors().iter().filter(|tensor| tensor.direction == Direction::Input);
        let wanted: Vec<_> = inputs().map(|tensor| (tensor.name.as_str(), shape_of(tensor))).collect();
        let wanted: Vec<_> = wanted.iter().map(|(name, shape)| (*name, shape.as_slice())).collect();
        // If no profile allows them, TensorRT reports it below.
        if let Some(profile) = engine.profile_for(&wanted).filter(|profile| *profile > 0) {
            context.set_profile(profile, &stream)?;
        }
        for tensor in inputs() {
            if tensor.on_host {
                return Err(TensorRtError::OnHost(tensor.name.clone()).into());
            }
            context.set_input_shape(&tensor.name, &shape_of(tensor))?;
        }
        context.infer_shapes()?;
        let pinned = Memory::on(device, MemoryKind::Mapped)?;
        let mut tensors = Vec::with_capacity(engine.tensors().len());
        for tensor in engine.tensors() {
            let shape = context.shape(&tensor.name)?;
            let bytes = shape.iter().product::<usize>() * tensor.dtype.size_bytes();
            let on_gpu = DeviceBuffer::new(device, bytes)?;
            let mut on_host = pinned.allocate(bytes)?;
            if tensor.direction == Direction::Input {
                fill_with_noise(on_host.as_mut_slice(), tensor.dtype);
            }
            context.set_address(&tensor.name, on_gpu.address())?;
            tensors.push(BenchmarkTensor { direction: tensor.direction, on_gpu, on_host });
        }
        let (start, end) = (Event::new(device)?, Event::new(device)?);
        let mut benchmark = Self { graph: None, context, tensors, stream, start, end };
        benchmark.copy_in()?;
        benchmark.stream.synchronize()?;
        Ok(benchmark)
    }

    /// Records the run as a graph, for [`Launch::Graph`]. The engine must have run before.
    pub fn record(&mut self) -> Result<(), EngineError> {
        let Self { context, stream, .. } = self;
        // SAFETY: this only records; `launch` has the safety argument for each launch.
        let (graph, ()) = stream.capture(|stream| unsafe { context.enqueue(stream) })?;
        self.graph = Some(graph);
        Ok(())
    }

    /// Runs once and waits.
    pub fn run(&mut self, launch: Launch) -> Result<RunTime, EngineError> {
        let began = Instant::now();
        self.start.record(&self.stream)?;
        let handing = Instant::now();
        self.launch(launch)?;
        let enqueue = handing.elapsed();
        self.end.record(&self.stream)?;
        self.end.wait()?;
        let done = began.elapsed();
        let gpu = Duration::from_secs_f64(self.end.elapsed_us(&self.start)?.max(0.0) / 1e6);
        Ok(RunTime { enqueue, gpu, done })
    }

    /// Copies the inputs to the GPU, runs, copies the outputs back and waits, like a program whose data is on the host.
    pub fn run_with_copies(&mut self, launch: Launch) -> Result<Duration, EngineError> {
        let began = Instant::now();
        self.copy_in()?;
        self.launch(launch)?;
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.direction == Direction::Output) {
            // SAFETY: both hold the tensor and belong to `self`, which waits for the stream below and when it is dropped.
            unsafe { self.stream.copy_to_host(tensor.on_gpu.address(), tensor.on_host.as_mut_slice()) }?;
        }
        self.end.record(&self.stream)?;
        self.end.wait()?;
        Ok(began.elapsed())
    }

    /// Runs `runs` times, submitting one run while another is executing, and returns the total time.
    pub fn run_back_to_back(&mut self, launch: Launch, runs: u64) -> Result<Duration, EngineError> {
        let began = Instant::now();
        let device = self.stream.device().clone();
        let events = [Event::new(&device)?, Event::new(&device)?];
        for (run, event) in (0..runs).zip(events.iter().cycle()) {
            self.launch(launch)?;
            // With two runs in flight the GPU never waits for the host, and the queue stays short.
            if run >= 2 {
                event.wait()?;
            }
            event.record(&self.stream)?;
        }
        self.stream.synchronize()?;
        Ok(began.elapsed())
    }

    /// Runs once and returns how long each layer took; profiling slows the run down.
    pub fn layers(&mut self) -> Result<Vec<LayerTime>, EngineError> {
        // SAFETY: every tensor has memory of its size that belongs to `self`; nothing is being captured.
        unsafe { self.context.profile(&self.stream) }
    }

    /// Returns the total bytes of the inputs and of the outputs.
    pub fn tensor_bytes(&self) -> (usize, usize) {
        let sum = |direction| {
            self.tensors.iter().filter(|tensor| tensor.direction == direction).map(|tensor| tensor.on_gpu.len()).sum()
        };
        (sum(Direction::Input), sum(Direction::Output))
    }

    fn copy_in(&mut self) -> Result<(), EngineError> {
        for tensor in self.tensors.iter().filter(|tensor| tensor.direction == Direction::Input) {
            // SAFETY: both hold the tensor and belong to `self`, which waits for the stream before either changes or is
            // dropped.
            unsafe { self.stream.copy_to_device(tensor.on_host.as_slice(), tensor.on_gpu.address()) }?;
        }
        Ok(())
    }

    fn launch(&mut self, launch: Launch) -> Result<(), EngineError> {
        match (&mut self.graph, launch) {
            // SAFETY: context, tensors and stream are those of the recording and belong to `self`, which waits for the stream
            // before any of them is dropped.
            (Some(graph), Launch::Graph) => Ok(unsafe { graph.launch(&self.stream) }?),
            // SAFETY: as above; addresses and shapes were set by `new`.
            _ => unsafe { self.context.enqueue(&self.stream) },
        }
    }
}

impl Drop for EngineBenchmark {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            log::debug!("{error}");
        }
    }
}

/// Fills a tensor with pseudo-random numbers, floats from 0 to 1: a GPU that multiplies zeros draws less power and runs
/// faster than on real images.
fn fill_with_noise(bytes: &mut [u8], dtype: DType) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = dtype.size_bytes();
    for element in bytes.chunks_exact_mut(size) {
        let number = next();
        let fraction = (number >> 40) as f32 / (1_u64 << 24) as f32;
        match dtype {
            DType::F32 => element.copy_from_slice(&fraction.to_ne_bytes()),
            DType::F16 => element.copy_from_slice(&f16::from_f32(fraction).to_ne_bytes()),
            DType::Bool => element[0] = (number & 1) as u8,
            _ => {
                element.fill(0);
                // Only the lowest byte: small numbers that are also valid as an index or a size.
                element[if cfg!(target_endian = "little") { 0 } else { size - 1 }] = number as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_of_its_type() {
        let mut bytes = [0; 400];
        fill_with_noise(&mut bytes, DType::F32);
        let floats = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b));
        assert!(floats.clone().all(|f| (0.0..1.0).contains(&f)) && floats.sum::<f32>() > 20.0);
        fill_with_noise(&mut bytes, DType::I64);
        assert!(bytes.as_chunks::<8>().0.iter().all(|b| (0..256).contains(&i64::from_ne_bytes(*b))));
    }
}
