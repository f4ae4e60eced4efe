//! The candidate filter on the GPU: the kernel of cuda/filter.cu and its memory.

use std::ffi::c_void;
use std::sync::Arc;

use super::launch::{Launch, THREADS};
use super::{FilterSpec, FilterSpecError, Filtered};
use crate::buffer::{BufferError, Memory, MemoryKind, UnifiedBuffer};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, Function, Module, ModuleError};
use crate::tensor::DType;

/// Compiled from cuda/filter.cu, packed by build.rs; see kernels/examples/ptx.rs.
const PTX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/filter"));

/// The maximum number of frames in a launch: the grid's second dimension.
const MAX_FRAMES: usize = 65_535;

/// Why a filter cannot be made or run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The spec is invalid.
    #[error(transparent)]
    Spec(#[from] FilterSpecError),
    /// The kernel cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The memory for the candidates cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// There are more frames, the first number, than the filter was created for, or than a launch takes.
    #[error("the candidate filter takes {1} frames per launch, not {0}")]
    Frames(usize, usize),
    /// The filter needs more outputs, the first number, than there are.
    #[error("the candidate filter reads {0} outputs, not {1}")]
    Outputs(usize, usize),
}

/// The candidate filter of one run in flight: its kernel, counters and list.
///
/// A launch reads the outputs once and writes each candidate directly into mapped host memory (32 bytes and its points). So the
/// CPU has the candidates when the stream has passed the launch, and no copy follows, however many there are. The kernel clears
/// its own counters, so nothing precedes it either: one node in a graph. Only one launch of a filter may be in flight; each run
/// in flight has its own filter.
#[derive(Debug)]
pub struct CudaFilter {
    function: Function,
    launch: Launch,
    results: UnifiedBuffer,
    /// The kernel's counters; the CPU never accesses them after `new`.
    state: DeviceBuffer,
    max_batch: usize,
}

impl CudaFilter {
    /// Allocates everything. The first filter of a GPU compiles the kernel, or takes it from the driver's cache.
    pub fn new(spec: &FilterSpec, device: &Arc<Device>, max_batch: usize) -> Result<Self, FilterError> {
        if max_batch > MAX_FRAMES {
            return Err(FilterError::Frames(max_batch, MAX_FRAMES));
        }
        let mut launch = Launch::new(spec)?;
        let function = Module::shared(device, "filter", PTX)?.function("filter")?;
        let results = Memory::on(device, MemoryKind::Mapped)?.allocate(launch.results_bytes(max_batch))?;
        let mut state = DeviceBuffer::new(device, Launch::state_bytes(max_batch))?;
        let stream = CudaStream::new(device)?;
        state.zero(&stream)?;
        stream.synchronize()?;
        // Mapped memory always has an address.
        let address = results.device_address().unwrap_or_default();
        launch.set_memory(address.0, state.address().0);
        Ok(Self { function, launch, results, state, max_batch })
    }

    /// Queues filtering the first `frames` frames of the outputs on `stream` and returns without waiting. In a capture the
    /// outputs' addresses become part of the graph.
    ///
    /// # Safety
    /// Each of the outputs, in the model's order, holds at least `frames` times the elements per frame that the spec gives, of
    /// the given type, until the work is done. No other launch of this filter is in flight, and
    /// [`candidates`](Self::candidates) is not called until the work is done.
    pub unsafe fn enqueue(
        &mut self,
        outputs: &[(DeviceAddress, DType)],
        frames: usize,
        stream: &CudaStream,
    ) -> Result<(), FilterError> {
        if frames > self.max_batch {
            return Err(FilterError::Frames(frames, self.max_batch));
        }
        let (wanted, given) = (self.launch.outputs(), outputs.len());
        if given < wanted {
            return Err(FilterError::Outputs(wanted, given));
        }
        self.launch.set_outputs(outputs.iter().map(|&(address, dtype)| (address.0, dtype)));
        let mut arguments: [*mut c_void; 1] = [self.launch.argument()];
        let grid = [self.launch.blocks(), frames as u32, 1];
        if frames == 0 {
            return Ok(());
        }
        // SAFETY: the kernel has one parameter, of the type that `Launch` lays out; `results` and `state` are as long as it
        // requires for `max_batch` frames, and live as long as `self`, which the caller keeps until the work is done (below);
        // the spec was checked to stay inside the outputs, which are the caller's promise.
        unsafe { self.function.launch(grid, [THREADS, 1, 1], 0, stream, &mut arguments) }?;
        Ok(())
    }

    /// Returns the candidates of the last launch in the frame `slot`, after its work is done. `None` for a slot beyond the batch.
    pub fn candidates(&self, slot: usize) -> Option<Filtered<'_>> {
        self.launch.found(self.results.as_slice(), slot)
    }

    /// Returns the bytes of the GPU's own memory and of the host's pinned memory.
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.state.len(), self.results.len())
    }
}
