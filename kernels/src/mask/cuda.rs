//! Masks on the GPU: the kernel of cuda/mask.cu and its memory.

use std::ffi::c_void;
use std::sync::Arc;

use super::launch::{MaskLaunch, Piece, THREADS};
use super::{Mask, MaskFrame, MaskJob, MaskSpec, MaskSpecError};
use crate::buffer::{BufferError, Memory, MemoryKind, UnifiedBuffer};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, Function, Module, ModuleError};
use crate::tensor::DType;

/// Compiled from cuda/mask.cu, packed by build.rs; see kernels/examples/ptx.rs.
const PTX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mask"));

/// The initial capacity in words: 1 MiB, twenty objects of 600 x 600 pixels.
const FIRST_WORDS: usize = 256 * 1024;

/// The initial capacity in pieces: as many as fill those words.
const FIRST_PIECES: usize = 2048;

/// Why masks cannot be computed on the GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The spec is invalid.
    #[error(transparent)]
    Spec(#[from] MaskSpecError),
    /// The kernel cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The memory for the masks cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The masks need more outputs, the first number, than there are.
    #[error("masks are made of {0} outputs, not {1}: correct [head] in the model card")]
    Outputs(usize, usize),
}

/// Makes the masks of one frame's objects on the GPU, equal to [`MaskAssembler`](super::MaskAssembler)'s to the last bit.
///
/// One launch per frame, for the objects that survived NMS. The CPU writes the jobs into mapped host memory and reads the bits
/// from there, so that no copy precedes or follows the launch. The kernel reads each cell of the prototypes that an object
/// touches about once for every 256 words of its mask. Only one launch may be in flight.
#[derive(Debug)]
pub struct CudaMasks {
    function: Function,
    launch: MaskLaunch,
    memory: Memory,
    pieces: UnifiedBuffer,
    bits: UnifiedBuffer,
}

impl CudaMasks {
    /// Allocates memory for some objects. The first masks of a GPU compile the kernel, or take it from the driver's cache.
    pub fn new(spec: &MaskSpec, device: &Arc<Device>) -> Result<Self, MaskError> {
        let launch = MaskLaunch::new(spec)?;
        let function = Module::shared(device, "mask", PTX)?.function("masks")?;
        let memory = Memory::on(device, MemoryKind::Mapped)?;
        let pieces = memory.allocate(FIRST_PIECES * size_of::<Piece>())?;
        let bits = memory.allocate(FIRST_WORDS * size_of::<u32>())?;
        Ok(Self { function, launch, memory, pieces, bits })
    }

    /// Queues making the masks of `jobs` from the frame `slot` of the outputs and returns without waiting.
    ///
    /// Returns how many masks stay empty because there is no room: beyond 64 MiB of them. The memory grows if these objects need
    /// more than any before, so this is no part of a recorded graph.
    ///
    /// # Safety
    /// Each of the outputs, in the model's order, holds at least `slot + 1` times the elements per frame that the spec gives,
    /// of the given type, until the work is done. No other launch of these masks is in flight, and [`masks`](Self::masks) is
    /// not called until the work is done.
    pub unsafe fn enqueue(
        &mut self,
        outputs: &[(DeviceAddress, DType)],
        slot: usize,
        frame: &MaskFrame,
        jobs: &[MaskJob],
        stream: &CudaStream,
    ) -> Result<usize, MaskError> {
        let (wanted, given) = (self.launch.outputs(), outputs.len());
        if given < wanted {
            return Err(MaskError::Outputs(wanted, given));
        }
        let lost = self.launch.set_jobs(frame, slot, jobs);
        let blocks = self.launch.pieces().len();
        if blocks == 0 {
            return Ok(lost);
        }
        for (buffer, bytes) in [
            (&mut self.pieces, size_of_val(self.launch.pieces())),
            (&mut self.bits, self.launch.words() * size_of::<u32>()),
        ] {
            if buffer.len() < bytes {
                *buffer = self.memory.allocate(bytes.next_power_of_two())?;
            }
        }
        // SAFETY: every bit pattern is a valid `Piece`; `align_to_mut` hands out only the aligned middle.
        let (unaligned, pieces, _) = unsafe { self.pieces.as_mut_slice().align_to_mut::<Piece>() };
        debug_assert!(unaligned.is_empty(), "mapped memory begins with a page");
        for (to, from) in pieces.iter_mut().zip(self.launch.pieces()) {
            *to = *from;
        }
        // Mapped memory always has an address.
        let address = |buffer: &UnifiedBuffer| buffer.device_address().unwrap_or_default().0;
        self.launch.set_memory(address(&self.pieces), address(&self.bits));
        self.launch.set_outputs(outputs.iter().map(|&(address, dtype)| (address.0, dtype)));
        let mut arguments: [*mut c_void; 1] = [self.launch.argument()];
        // SAFETY: the kernel has one parameter, of the type that `MaskLaunch` lays out; there is a piece for each block, and a
        // word in `bits` for each word of a piece; both live as long as `self`, which the caller keeps until the work is done;
        // the spec and the rows were checked to stay inside the outputs, which are the caller's promise.
        unsafe { self.function.launch([blocks as u32, 1, 1], [THREADS, 1, 1], 0, stream, &mut arguments) }?;
        Ok(lost)
    }

    /// Returns how many masks of a frame one launch should make, so that their bits take little memory.
    pub fn most_at_once(&self, frame: &MaskFrame) -> usize {
        self.launch.most_at_once(frame)
    }

    /// Copies the masks of the last launch, after its work is done: one for each job, in their order.
    ///
    /// The memory of the masks already in `out` is reused.
    pub fn masks(&self, out: &mut Vec<Mask>) {
        // SAFETY: every bit pattern is a valid `u32`; `align_to` hands out only the aligned middle.
        let (unaligned, words, _) = unsafe { self.bits.as_slice().align_to::<u32>() };
        debug_assert!(unaligned.is_empty(), "mapped memory begins with a page");
        self.launch.read(words, out);
    }
}
