//! Measures which kind of memory suits frames for a GPU.
//!
//! No attribute of a GPU shows which kind is faster. From NVIDIA's "CUDA for Tegra" (Memory Management, table 1; Memory
//! Selection): an integrated GPU before Thor caches managed memory but not pinned memory; however, managed memory needs cache
//! maintenance at each launch, so either may win. On Thor both are uncached. A discrete GPU reads pinned memory over the bus,
//! and managed memory moves to the GPU and back when the CPU writes the next frame.

use std::fmt;
use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::buffer::{Memory, MemoryKind, UnifiedBuffer};
use crate::color::ColorDescription;
use crate::cuda::{CudaStream, Device, DeviceBuffer, Event};
use crate::frame::{FrameLayout, PixelFormat};
use crate::preprocess::PreprocessSpec;
use crate::preprocess::cuda::CudaPreprocessor;
use crate::tensor::DType;

/// The kinds to compare.
const KINDS: [MemoryKind; 2] = [MemoryKind::Mapped, MemoryKind::Managed];
/// Another kind must take less than this share of mapped memory's time. A smaller advantage is noise, and mapped memory need
/// not be attached to a stream and accepts every camera driver's frames.
const CLEARLY_FASTER: f64 = 0.95;

/// The size of the frame for measuring, 1.8 MB. The GPU would read a third of the rows of 1920x1080 and reads all rows of this:
/// as many bytes for the GPU, half as many for the CPU to write.
const FRAME: (u32, u32) = (1280, 720);
/// The side of the tensor.
const SIDE: u32 = 640;

/// Rounds that do not count: the first write of managed memory moves nothing yet, and the first run creates tables.
const WARM_UP: usize = 1;
/// The minimum and maximum number of rounds that count.
const ROUNDS: (usize, usize) = (2, 8);
/// A kind is measured no longer than this. Together with the allocations, that limits the delay of a start to 20 ms.
const PATIENCE: Duration = Duration::from_millis(3);

/// The cost of a frame in one kind of memory: the minimum of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameCost {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The time that the CPU takes to write the frame, in microseconds.
    pub write_us: f64,
    /// The time from submitting the preprocess until the CPU has the frame back, in microseconds.
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

/// The kind of memory that `buffers.memory = "auto"` selects for a GPU, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoMemory {
    kind: MemoryKind,
    /// The measured costs; empty if there was nothing to compare or measuring failed.
    costs: Vec<FrameCost>,
}

impl AutoMemory {
    /// Chooses for `device`. The first call for a GPU measures, which takes some milliseconds, and logs the result; later calls
    /// in this process return the same.
    pub fn of(device: &Arc<Device>) -> Self {
        static CHOSEN: Mutex<Vec<(u32, AutoMemory)>> = Mutex::new(Vec::new());
        let index = device.facts().index;
        // Held while measuring, so that only one thread measures.
        let mut chosen = CHOSEN.lock();
        if let Some((_, known)) = chosen.iter().find(|(known, _)| *known == index) {
            return known.clone();
        }
        let memories: Vec<Memory> = KINDS.iter().filter_map(|&kind| Memory::on(device, kind).ok()).collect();
        let costs = if memories.len() < 2 { Ok(Vec::new()) } else { measure(device, &memories) };
        let (costs, failure) = costs.map_or_else(|error| (Vec::new(), Some(error)), |costs| (costs, None));
        let found = Self::new(costs, device.facts().can_map_host_memory);
        if let Some(error) = failure {
            log::warn!("GPU {index}: cannot measure which memory suits frames, using {}: {error}", found.kind);
        }
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

    /// Returns the kind.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns the measured cost of each kind; empty if there was nothing to compare or measuring failed.
    pub fn costs(&self) -> &[FrameCost] {
        &self.costs
    }

    /// Returns the measured costs in one line, the chosen kind first.
    pub fn why(&self) -> Option<String> {
        let chosen = self.costs.iter().find(|cost| cost.kind == self.kind)?;
        let others = self.costs.iter().filter(|cost| cost.kind != self.kind);
        let others: String = others.map(|cost| format!("; {}: {cost}", cost.kind)).collect();
        Some(format!("{chosen}{others}"))
    }
}

/// Returns the kind with the lowest total cost, or mapped memory if that is about as good.
fn fastest(costs: &[FrameCost]) -> Option<MemoryKind> {
    let best = costs.iter().min_by(|a, b| a.total_us().total_cmp(&b.total_us()))?;
    let as_good =
        |cost: &&FrameCost| cost.kind == MemoryKind::Mapped && best.total_us() > CLEARLY_FASTER * cost.total_us();
    Some(costs.iter().find(as_good).unwrap_or(best).kind)
}

/// Any error of measuring is only logged.
type MeasureError = Box<dyn std::error::Error>;

/// Measures a frame in each of `memories` in turn, so that rising clocks favour none.
fn measure(device: &Arc<Device>, memories: &[Memory]) -> Result<Vec<FrameCost>, MeasureError> {
    let mut bench = Bench::new(device)?;
    let mut measured = Vec::with_capacity(memories.len());
    for memory in memories {
        let buffer = memory.allocate(bench.layout.size_bytes())?;
        measured.push(MeasuredMemory { buffer, spent: Duration::ZERO, fastest: (Duration::MAX, Duration::MAX) });
    }
    let (least, most) = ROUNDS;
    for round in 0..WARM_UP + most {
        for memory in measured.iter_mut().filter(|it| round < WARM_UP + least || it.spent < PATIENCE) {
            let (write, preprocess) = bench.round(&mut memory.buffer)?;
            memory.spent += write + preprocess;
            if round >= WARM_UP {
                memory.fastest = (memory.fastest.0.min(write), memory.fastest.1.min(preprocess));
            }
        }
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let cost = |MeasuredMemory { buffer, fastest: (write, preprocess), .. }: &MeasuredMemory| FrameCost {
        kind: buffer.kind(),
        write_us: us(*write),
        preprocess_us: us(*preprocess),
    };
    Ok(measured.iter().map(cost).collect())
}

/// A kind of memory that is being measured.
struct MeasuredMemory {
    buffer: UnifiedBuffer,
    /// The time of all rounds.
    spent: Duration,
    /// The fastest writing, and the fastest preprocess, of a round.
    fastest: (Duration, Duration),
}

/// The real kernel and everything that it needs.
struct Bench {
    layout: FrameLayout,
    stream: CudaStream,
    preprocessor: CudaPreprocessor,
    tensor: DeviceBuffer,
    done: Event,
    rounds: u8,
}

impl Bench {
    /// How long to poll for the end of a run before sleeping: waking up takes as long as a run, and varies.
    const POLL: Duration = Duration::from_millis(2);

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

    /// Returns the times to write a frame into `buffer` and to preprocess it.
    fn round(&mut self, buffer: &mut UnifiedBuffer) -> Result<(Duration, Duration), MeasureError> {
        self.rounds = self.rounds.wrapping_add(1);
        let began = Instant::now();
        buffer.as_mut_slice().fill(self.rounds);
        let written = Instant::now();
        let ran = self.preprocess(buffer);
        let read = Instant::now();
        // Even after a failure, queued work must not outlive the buffers.
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
            if began.elapsed() < Self::POLL { spin_loop() } else { self.done.wait()? }
        }
        Ok(())
    }
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
        // An integrated GPU that caches only managed memory.
        assert_eq!(fastest(&costs((180.0, 95.0), (182.0, 41.0))), Some(MemoryKind::Managed));
        // A discrete GPU, where managed memory moves there and back.
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
        // A difference of a twentieth counts.
        assert_eq!(fastest(&costs((100.0, 100.0), (100.0, 90.0))), Some(MemoryKind::Managed));
        assert_eq!(fastest(&costs((100.0, 100.0), (100.0, 90.1))), Some(MemoryKind::Mapped));
    }

    #[test]
    fn without_figures_it_is_mapped_memory_where_the_gpu_can() {
        let unmeasured = |can_map| AutoMemory::new(Vec::new(), can_map);
        assert_eq!(unmeasured(true).kind(), MemoryKind::Mapped);
        assert_eq!(unmeasured(false).kind(), MemoryKind::Host);
        assert_eq!(unmeasured(true).why(), None);
    }

    #[test]
    fn the_chosen_kind_comes_first() {
        let auto = AutoMemory::new(costs((182.4, 95.0), (180.0, 41.2)), true);
        assert_eq!((auto.kind(), auto.costs()), (MemoryKind::Managed, &costs((182.4, 95.0), (180.0, 41.2))[..]));
        assert_eq!(
            auto.why().as_deref(),
            Some("write 180 us, preprocess 41 us; mapped: write 182 us, preprocess 95 us")
        );
    }
}
