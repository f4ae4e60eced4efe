//! The filter on the GPU: the kernel of cuda/filter.cu and its memory.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::launch::{Launch, THREADS};
use super::{FilterSpec, FilterSpecError, Filtered};
use crate::buffer::{BufferError, Memory, MemoryKind, UnifiedBuffer};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, Function, Module, ModuleError};
use crate::tensor::DType;

/// Made from cuda/filter.cu by a command; see kernels/examples/ptx.rs.
const PTX: &str = include_str!("../../ptx/filter.ptx");

/// Frames of one launch at most: the grid's second dimension.
const MAX_FRAMES: usize = 65_535;

/// Why a filter cannot be made or run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The spec.
    #[error(transparent)]
    Spec(#[from] FilterSpecError),
    /// The kernel.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The memory for what it finds.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// CUDA.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// More frames than were said, or more than a launch takes.
    #[error("the candidate filter takes {most} frames a launch, not {frames}")]
    Frames {
        /// How many were wanted.
        frames: usize,
        /// How many it takes.
        most: usize,
    },
    /// Not the outputs that the spec names.
    #[error("the candidate filter reads {wanted} outputs, {given} were given")]
    Outputs {
        /// How many it reads.
        wanted: usize,
        /// How many there were.
        given: usize,
    },
}

impl FilterError {
    /// What CUDA reported, where it was CUDA.
    pub fn cuda(&self) -> Option<&CudaError> {
        match self {
            Self::Cuda(error) | Self::Buffer(BufferError::Cuda { error, .. }) => Some(error),
            Self::Module(error) => error.cuda(),
            _ => None,
        }
    }
}

/// The candidate filter of one flight: its kernel, counters and list.
///
/// A launch reads the outputs once and writes each candidate straight into mapped host memory (32 bytes and its points), so
/// that the candidates are the CPU's when the stream has come past the launch: no copy follows, however many there are. The
/// kernel clears its own counters, so that nothing precedes it either: one node in a graph. Only one launch of a filter may be
/// under way; flights have filters of their own.
pub struct CudaFilter {
    function: Function,
    launch: Launch,
    results: UnifiedBuffer,
    /// The kernel's; never touched by the CPU after `new`.
    state: DeviceBuffer,
    max_batch: usize,
}

impl CudaFilter {
    /// Allocates all that it will need. The first filter of a GPU compiles the kernel, or takes it from the driver's cache.
    pub fn new(spec: &FilterSpec, device: &Arc<Device>, max_batch: usize) -> Result<Self, FilterError> {
        if max_batch > MAX_FRAMES {
            return Err(FilterError::Frames { frames: max_batch, most: MAX_FRAMES });
        }
        let mut launch = Launch::new(spec)?;
        let function = Module::shared(device, "filter", PTX)?.function("filter")?;
        let results = Memory::on(device, MemoryKind::Mapped)?.allocate(launch.results_bytes(max_batch))?;
        let mut state = DeviceBuffer::new(device, Launch::state_bytes(max_batch))?;
        let stream = CudaStream::new(device)?;
        state.zero(&stream)?;
        stream.synchronize()?;
        // Mapped memory always has one.
        let address = results.device_address().unwrap_or_default();
        launch.set_memory(address.0, state.address().0);
        Ok(Self { function, launch, results, state, max_batch })
    }

    /// Queues the filtering of the first `frames` frames of the outputs on `stream`; returns without waiting. In a capture
    /// the outputs' addresses become part of the graph.
    ///
    /// # Safety
    /// Each of the outputs, in the order of the network's, holds at least `frames` times the elements that the spec says a
    /// frame has there, of the type given, until the work is done. No other launch of this filter is under way then, and
    /// [`candidates`](Self::candidates) is not called until the work is done.
    pub unsafe fn enqueue(
        &mut self,
        outputs: &[(DeviceAddress, DType)],
        frames: usize,
        stream: &CudaStream,
    ) -> Result<(), FilterError> {
        if frames > self.max_batch {
            return Err(FilterError::Frames { frames, most: self.max_batch });
        }
        let (wanted, given) = (self.launch.outputs(), outputs.len());
        if given < wanted {
            return Err(FilterError::Outputs { wanted, given });
        }
        self.launch.set_outputs(outputs.iter().map(|&(address, dtype)| (address.0, dtype)));
        let mut arguments: [*mut c_void; 1] = [self.launch.argument()];
        let grid = [self.launch.blocks(), frames as u32, 1];
        if frames == 0 {
            return Ok(());
        }
        // SAFETY: the kernel has one parameter, of the type that `Launch` lays out; `results` and `state` are as long as it
        // says for `max_batch` frames, and live as long as `self`, which the caller keeps until the work is done (below);
        // the spec was checked to stay inside the outputs, which are the caller's promise.
        unsafe { self.function.launch(grid, [THREADS, 1, 1], 0, stream, &mut arguments) }?;
        Ok(())
    }

    /// What the last launch found in the frame `slot`, once its work is done. `None` for a slot beyond the batch.
    pub fn candidates(&self, slot: usize) -> Option<Filtered<'_>> {
        self.launch.found(self.results.as_slice(), slot)
    }

    /// Bytes of the GPU's own memory, and of the host's pinned memory.
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.state.len(), self.results.len())
    }
}

impl fmt::Debug for CudaFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaFilter({} candidates of {} frames)", self.launch.capacity(), self.max_batch)
    }
}
