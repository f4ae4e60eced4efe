//! The kind of memory that suits frames for a GPU, by measuring.
//!
//! No attribute of a GPU tells which kind is faster. NVIDIA's "CUDA for Tegra" (Memory Management, table 1; Memory Selection):
//! an integrated GPU before Thor caches managed memory and not pinned memory, but managed memory costs maintenance of caches at
//! each launch, so either may win; on Thor both are uncached. On a discrete GPU pinned memory is read over the bus, and managed
//! memory moves to the GPU and, when the CPU writes the next frame, back.

use std::fmt;
use std::hint::spin_loop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::{BufferError, Memory, MemoryKind, UnifiedBuffer};
use crate::color::ColorDescription;
use crate::cuda::{CudaError, CudaStream, Device, DeviceBuffer, Event};
use crate::frame::{FrameError, FrameLayout, PixelFormat};
use crate::preprocess::cuda::CudaPreprocessor;
use crate::preprocess::{PreprocessError, PreprocessSpec};
use crate::tensor::DType;

/// The kinds that are compared.
const KINDS: [MemoryKind; 2] = [MemoryKind::Mapped, MemoryKind::Managed];
/// Share of mapped memory's time that another kind must stay below. What is closer is noise, and mapped memory needs no lending
/// to a stream and takes every camera driver's frames.
const CLEARLY_FASTER: f64 = 0.95;

/// The frame that is measured with, 1.8 MB. A third of its rows would be read of 1920x1080, all of them are of this: as many
/// bytes for the GPU, half as many for the CPU to write.
const FRAME: (u32, u32) = (1280, 720);
/// Side of the tensor.
const SIDE: u32 = 640;

/// Rounds that do not count: the first writing of managed memory moves nothing yet, the first run makes tables.
const WARM_UP: usize = 1;
/// Rounds that count, at least and at most.
const ROUNDS: (usize, usize) = (2, 8);
/// Time after which a kind has had rounds enough. Together with the allocations that keeps a start from taking 20 ms longer.
const PATIENCE: Duration = Duration::from_millis(3);

/// What a frame takes in one kind of memory, in microseconds: the least of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameCost {
    /// The kind.
    pub kind: MemoryKind,
    /// The CPU writes the frame.
    pub write_us: f64,
    /// The GPU preprocesses it: from handing it over until the CPU has it back.
    pub preprocess_us: f64,
}

impl FrameCost {
    fn total_us(&self) -> f64 {
        self.write_us + self.preprocess_us
    }
}

impl fmt::Display for FrameCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {:.0} us, preprocess {:.0} us", self.write_us, self.preprocess_us)
    }
}

/// The kind of memory that `buffers.memory = "auto"` means on a GPU, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoMemory {
    kind: MemoryKind,
    /// What was measured; empty where there was nothing to compare, or it failed.
    costs: Vec<FrameCost>,
}

impl AutoMemory {
    /// Chooses for `device`. The first call for a GPU measures, which takes some milliseconds, and logs what it found; later
    /// calls in this process return the same.
    pub fn of(device: &Arc<Device>) -> Self {
        static CHOSEN: Mutex<Vec<(u32, AutoMemory)>> = Mutex::new(Vec::new());
        let index = device.facts().index;
        // Held while it is measured: nobody else measures meanwhile.
        let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = chosen.iter().find(|(known, _)| *known == index) {
            return known.clone();
        }
        let memories: Vec<Memory> = KINDS.iter().filter_map(|&kind| Memory::on(device, kind).ok()).collect();
        let costs = if memories.len() < 2 { Ok(Vec::new()) } else { measure(device, &memories) };
        let found = match costs {
            Ok(costs) => Self::new(costs, device.facts().can_map_host_memory),
            Err(error) => {
                let found = Self::new(Vec::new(), device.facts().can_map_host_memory);
                log::warn!("GPU {index}: cannot measure which memory suits frames, taking {}: {error}", found.kind);
                found
            }
        };
        if let Some(why) = found.why() {
            log::info!("GPU {index}: frames in {} memory: {why}", found.kind);
        }
        chosen.push((index, found.clone()));
        found
    }

    fn new(costs: Vec<FrameCost>, can_map: bool) -> Self {
        let unmeasured = if can_map { MemoryKind::Mapped } else { MemoryKind::Host };
        Self { kind: fastest(&costs).unwrap_or(unmeasured), costs }
    }

    /// The kind.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// What was measured of each kind; empty where there was nothing to compare, or it failed.
    pub fn costs(&self) -> &[FrameCost] {
        &self.costs
    }

    /// What was measured, in one line, the chosen kind first.
    pub fn why(&self) -> Option<String> {
        let chosen = self.costs.iter().find(|cost| cost.kind == self.kind)?;
        let others = self.costs.iter().filter(|cost| cost.kind != self.kind);
        let others: String = others.map(|cost| format!("; {}: {cost}", cost.kind)).collect();
        Some(format!("{chosen}{others}"))
    }
}

/// The kind in which a frame is written and preprocessed soonest, mapped memory where that is as good as it.
fn fastest(costs: &[FrameCost]) -> Option<MemoryKind> {
    let best = costs.iter().min_by(|a, b| a.total_us().total_cmp(&b.total_us()))?;
    let as_good =
        |cost: &&FrameCost| cost.kind == MemoryKind::Mapped && best.total_us() > CLEARLY_FASTER * cost.total_us();
    Some(costs.iter().find(as_good).unwrap_or(best).kind)
}

/// Measures a frame in each of `memories`, in turns, so that clocks that rise meanwhile favour none.
fn measure(device: &Arc<Device>, memories: &[Memory]) -> Result<Vec<FrameCost>, MeasureError> {
    let mut bench = Bench::new(device)?;
    let trial = |memory: &Memory| Trial::new(memory, bench.layout.size_bytes());
    let mut trials = memories.iter().map(trial).collect::<Result<Vec<_>, _>>()?;
    let (least, most) = ROUNDS;
    for round in 0..WARM_UP + most {
        for trial in trials.iter_mut().filter(|trial| round < WARM_UP + least || trial.spent < PATIENCE) {
            let (write, preprocess) = bench.round(&mut trial.buffer)?;
            trial.spent += write + preprocess;
            if round >= WARM_UP {
                trial.write = trial.write.min(write);
                trial.preprocess = trial.preprocess.min(preprocess);
            }
        }
    }
    Ok(trials.iter().map(Trial::cost).collect())
}

/// A kind of memory that is measured.
struct Trial {
    buffer: UnifiedBuffer,
    /// All rounds.
    spent: Duration,
    /// The quickest.
    write: Duration,
    /// The quickest.
    preprocess: Duration,
}

impl Trial {
    fn new(memory: &Memory, len_bytes: usize) -> Result<Self, MeasureError> {
        let buffer = memory.allocate(len_bytes)?;
        Ok(Self { buffer, spent: Duration::ZERO, write: Duration::MAX, preprocess: Duration::MAX })
    }

    fn cost(&self) -> FrameCost {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        FrameCost { kind: self.buffer.kind(), write_us: us(self.write), preprocess_us: us(self.preprocess) }
    }
}

/// The real kernel, with what it needs.
struct Bench {
    layout: FrameLayout,
    stream: CudaStream,
    preprocessor: CudaPreprocessor,
    tensor: DeviceBuffer,
    done: Event,
    rounds: u8,
}

impl Bench {
    /// How long the end of a run is looked at before it is slept for: waking up takes as long as a run, now more, now less.
    const LOOK: Duration = Duration::from_millis(2);

    fn new(device: &Arc<Device>) -> Result<Self, MeasureError> {
        let spec = PreprocessSpec::yolo(SIDE, SIDE, DType::F16);
        let (width, height) = FRAME;
        let tensor_bytes = spec.shape().iter().product::<usize>() * spec.dtype.size_bytes();
        Ok(Self {
            layout: FrameLayout::packed(PixelFormat::Yuyv, width, height, ColorDescription::default())?,
            stream: CudaStream::new(device)?,
            preprocessor: CudaPreprocessor::new(&spec, device, 1)?,
            tensor: DeviceBuffer::new(device, tensor_bytes)?,
            done: Event::new(device)?,
            rounds: 0,
        })
    }

    /// What it takes to write a frame into `buffer`, and to preprocess it.
    fn round(&mut self, buffer: &mut UnifiedBuffer) -> Result<(Duration, Duration), MeasureError> {
        self.rounds = self.rounds.wrapping_add(1);
        let began = Instant::now();
        buffer.as_mut_slice().fill(self.rounds);
        let written = Instant::now();
        let ran = self.preprocess(buffer);
        let read = Instant::now();
        // Nothing that was queued may outlive the buffers, whatever failed.
        self.stream.synchronize()?;
        ran?;
        Ok((written - began, read - written))
    }

    fn preprocess(&mut self, buffer: &UnifiedBuffer) -> Result<(), MeasureError> {
        let began = Instant::now();
        self.preprocessor.prepare(&[self.layout.view_of(buffer)?])?;
        // SAFETY: nothing touches the bytes before `round` has waited for the stream.
        unsafe { buffer.attach(&self.stream) }?;
        // SAFETY: the tensor has room for the one frame that was prepared; all of it stays until `round` has waited.
        let queued = unsafe { self.preprocessor.enqueue(self.tensor.address(), 1, &self.stream) };
        buffer.detach(&self.stream)?;
        queued?;
        self.done.record(&self.stream)?;
        while !self.done.is_done()? {
            if began.elapsed() < Self::LOOK { spin_loop() } else { self.done.wait()? }
        }
        Ok(())
    }
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(mapped: (f64, f64), managed: (f64, f64)) -> Vec<FrameCost> {
        let cost = |kind, (write_us, preprocess_us)| FrameCost { kind, write_us, preprocess_us };
        vec![cost(MemoryKind::Mapped, mapped), cost(MemoryKind::Managed, managed)]
    }

    #[test]
    fn the_kind_in_which_a_frame_is_written_and_read_soonest_is_chosen() {
        // An integrated GPU that caches managed memory alone.
        assert_eq!(fastest(&costs((180.0, 95.0), (182.0, 41.0))), Some(MemoryKind::Managed));
        // A discrete one, where managed memory moves there and back.
        assert_eq!(fastest(&costs((180.0, 95.0), (600.0, 300.0))), Some(MemoryKind::Mapped));
        // Quick for the GPU, but the CPU pays for it.
        assert_eq!(fastest(&costs((180.0, 95.0), (600.0, 41.0))), Some(MemoryKind::Mapped));
    }

    #[test]
    fn a_tie_goes_to_mapped_memory() {
        assert_eq!(fastest(&costs((180.0, 50.0), (180.0, 45.0))), Some(MemoryKind::Mapped));
        let mut turned = costs((180.0, 50.0), (180.0, 45.0));
        turned.reverse();
        assert_eq!(fastest(&turned), Some(MemoryKind::Mapped));
    }

    #[test]
    fn without_figures_it_is_mapped_memory_where_the_gpu_can() {
        let unmeasured = |can_map| AutoMemory::new(Vec::new(), can_map);
        assert_eq!(unmeasured(true).kind(), MemoryKind::Mapped);
        assert_eq!(unmeasured(false).kind(), MemoryKind::Host);
        assert_eq!(unmeasured(true).why(), None);
    }

    #[test]
    fn the_chosen_kind_is_told_first() {
        let auto = AutoMemory::new(costs((182.4, 95.0), (180.0, 41.2)), true);
        assert_eq!(
            auto.why().as_deref(),
            Some("write 180 us, preprocess 41 us; mapped: write 182 us, preprocess 95 us")
        );
    }
}
