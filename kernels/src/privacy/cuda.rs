//! Blanks pictures in the GPU's memory: the kernels of cuda/privacy.cu and their table.

use std::ffi::c_void;
use std::sync::Arc;

use super::launch::{Argument, BlankLaunch, THREADS};
use super::plan::MaskPlan;
use crate::buffer::{BufferError, Memory, MemoryKind, UnifiedBuffer};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, Event, Function, Module, ModuleError};
use crate::nvdec::Surface;

/// Compiled from cuda/privacy.cu, packed by build.rs; see kernels/examples/ptx.rs.
const PTX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/privacy"));

/// Why a picture cannot be blanked on the GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlankError {
    /// Surfaces of the video engine have no such format.
    #[error("cannot blank a picture of this format on the GPU: set `decoder = \"ffmpeg\"`")]
    Format,
    /// The kernels cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The memory for the table cannot be allocated.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A CUDA call failed.
    #[error("cannot blank a picture on the GPU, restart visiond if it stays: {0}")]
    Cuda(#[from] CudaError),
}

/// The writes of a [`MaskPlan`] for pictures in the GPU's memory.
///
/// A picture costs at most three launches: the runs of colours, the means of mosaics, their runs. The kernels read the table in mapped
/// host memory, 16 bytes for each row and plane of a mask.
#[derive(Debug)]
pub struct CudaMaskPlan {
    means: Function,
    blank: Function,
    launch: BlankLaunch,
    /// The least size of a picture.
    frame_bytes: usize,
    /// Recorded after the last launch, which reads the table. Dropped, after waiting for it, before the table.
    done: Event,
    table: UnifiedBuffer,
}

impl CudaMaskPlan {
    /// Writes the table. The first one of a GPU compiles the kernels, or takes them from the driver's cache.
    ///
    /// # Errors
    /// The format is not one of NVDEC's, or CUDA fails.
    pub fn new(plan: &MaskPlan, device: &Arc<Device>) -> Result<Self, BlankError> {
        let launch = BlankLaunch::new(plan).ok_or(BlankError::Format)?;
        let module = Module::shared(device, "privacy", PTX)?;
        let mut table = Memory::on(device, MemoryKind::Mapped)?.allocate(launch.table_bytes())?;
        launch.write_table(table.as_mut_slice());
        let (means, blank) = (module.function("means")?, module.function("blank")?);
        let frame_bytes = plan.layout.needed_bytes();
        Ok(Self { means, blank, launch, frame_bytes, done: Event::silent(device)?, table })
    }

    /// Blanks a picture, and returns without waiting: whatever waits for the picture also waits for this.
    ///
    /// # Errors
    /// The plan is for a larger picture, or a CUDA call failed. The picture may then be blank, or not.
    pub fn blank(&self, picture: &mut Surface) -> Result<(), BlankError> {
        if self.frame_bytes > picture.len_bytes() {
            return Err(BlankError::Format);
        }
        // SAFETY: the runs and tiles are inside the plan's layout, which the picture has room for. It is mapped until the work is done,
        // and `&mut` excludes readers; later ones wait for the work.
        Ok(unsafe { picture.change(|frame, stream| self.enqueue(frame, stream)) }?)
    }

    /// Queues blanking the picture at `frame` and returns without waiting.
    ///
    /// # Safety
    /// `frame` has the plan's layout and exists until the work is done; nothing else accesses it meanwhile.
    unsafe fn enqueue(&self, frame: DeviceAddress, stream: &CudaStream) -> Result<(), CudaError> {
        // Mapped memory always has an address.
        let table = self.table.device_address().unwrap_or_default().0;
        let mut arguments = self.launch.arguments(table, frame.0);
        let [mosaics, colors] = &mut arguments;
        let [tiles, mosaic_runs, color_runs] = self.launch.blocks();
        let launches =
            [(&self.blank, color_runs, true), (&self.means, tiles, false), (&self.blank, mosaic_runs, false)];
        for (function, blocks, of_colors) in launches.into_iter().filter(|(_, blocks, _)| *blocks > 0) {
            let argument: *mut Argument = if of_colors { &raw mut *colors } else { &raw mut *mosaics };
            let mut list: [*mut c_void; 1] = [argument.cast()];
            // SAFETY: the kernels have one parameter of this type; there is a tile or a run in the table for each block, which lives
            // until `drop` has waited for the work; the runs and tiles are inside the plan's layout, which the caller promises.
            unsafe { function.launch([blocks, 1, 1], [THREADS, 1, 1], 0, stream, &mut list) }?;
        }
        self.done.record(stream)
    }
}

impl Drop for CudaMaskPlan {
    fn drop(&mut self) {
        // The last launch may still read the table. If the GPU is lost, nothing runs any more.
        if let Err(error) = self.done.wait() {
            log::debug!("a privacy mask is dropped while the GPU fails: {error}");
        }
    }
}
