//! Copies a run's results to the CPU: the filter's candidates, or whole outputs.

use std::sync::Arc;

use visiond_kernels::buffer::{Memory, MemoryKind, UnifiedBuffer};
use visiond_kernels::cuda::{CudaStream, Device};
use visiond_kernels::filter::{CudaFilter, FilterSpec};
use visiond_kernels::placement::Mapping;
use visiond_kernels::tensor::TensorRef;

use super::gpu_model::GpuModel;
use crate::detector::error::DetectorError;
use crate::heads::{Decoded, Head, HeadInput, NamedOutput};

/// The data that the CPU reads after a run, in memory that CPU and GPU share.
pub(super) enum Readback {
    /// A few kilobytes of candidates.
    Candidates(CudaFilter),
    /// Every output, for heads without a filter, whose outputs are small, or for shapes that the filter cannot read.
    Outputs(Vec<UnifiedBuffer>),
}

impl Readback {
    /// Creates a filter if there is a spec for one, otherwise buffers for copies.
    pub(super) fn new(
        filter: Option<&FilterSpec>,
        model: &GpuModel,
        device: &Arc<Device>,
        batch: usize,
    ) -> Result<Self, DetectorError> {
        if let Some(spec) = filter {
            return Ok(Self::Candidates(CudaFilter::new(spec, device, batch)?));
        }
        let pinned = Memory::on(device, MemoryKind::Mapped)?;
        let copies = model.outputs.iter().map(|output| pinned.allocate(output.len_bytes * batch));
        Ok(Self::Outputs(copies.collect::<Result<_, _>>()?))
    }

    /// Queues the filter, or the copies, for the first `frames` frames of a run.
    ///
    /// # Safety
    /// The work queued before has written the outputs of `frames` frames. `self` and the model outlive the run, and every
    /// launch of a recording; the results are not read before the run is done.
    pub(super) unsafe fn enqueue(
        &mut self,
        model: &GpuModel,
        run: usize,
        frames: usize,
        stream: &CudaStream,
    ) -> Result<(), DetectorError> {
        match self {
            Self::Candidates(filter) => {
                // SAFETY: guaranteed by the caller; the spec was made from these outputs' shapes and types.
                unsafe { filter.enqueue(model.addresses(run), frames, stream) }?;
            }
            Self::Outputs(copies) => {
                for (output, copy) in model.outputs.iter().zip(copies) {
                    let bytes = &mut copy.as_mut_slice()[..output.len_bytes * frames];
                    // SAFETY: output and copy both hold the whole batch; the caller guarantees the rest.
                    unsafe { stream.copy_to_host(output.address(run), bytes) }?;
                }
            }
        }
        Ok(())
    }

    /// Decodes a slot of a run that is done.
    pub(super) fn decode(
        &self,
        slot: usize,
        model: &GpuModel,
        (input_size, mapping): ((u32, u32), Mapping),
        score_threshold: f32,
        head: &mut dyn Head,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError> {
        let copies = match self {
            Self::Candidates(filter) => {
                let found =
                    filter.candidates(slot).ok_or_else(|| DetectorError::Slot(slot, "the filter has no such slot"))?;
                return Ok(head.decode_filtered(&found, decoded)?);
            }
            Self::Outputs(copies) => copies,
        };
        let mut outputs = Vec::with_capacity(copies.len());
        for (output, copy) in model.outputs.iter().zip(copies) {
            let bytes = &copy.as_slice()[slot * output.len_bytes..(slot + 1) * output.len_bytes];
            let tensor = TensorRef::new(output.dtype, &output.shape, bytes)
                .map_err(|_| DetectorError::Slot(slot, "an output is not of its shape"))?;
            outputs.push(NamedOutput { name: &output.name, tensor });
        }
        Ok(head
            .decode(&HeadInput { outputs: &outputs, input_size, score_threshold, mapping: Some(mapping) }, decoded)?)
    }
}
