//! Computes the masks of a finished run's objects on the GPU, where prototypes and coefficients are.

use visiond_kernels::cuda::{CudaError, CudaStream, DeviceAddress, Event};
use visiond_kernels::mask::{CudaMasks, Mask, MaskFrame, MaskJob, MaskSpec};
use visiond_kernels::placement::Mapping;
use visiond_kernels::tensor::DType;

use crate::detector::error::DetectorError;

/// Computes masks after the suppression, for the surviving objects: only their bits leave the GPU.
///
/// It has its own stream, so that it need not wait for the inference of another run. A frame costs one launch and one wake-up of
/// the host.
pub(super) struct GpuMasks {
    spec: MaskSpec,
    /// Created with the first mask, so that `masks = "none"` needs no memory.
    masks: Option<CudaMasks>,
    stream: CudaStream,
    end: Event,
    /// The masks of one launch.
    part: Vec<Mask>,
}

impl GpuMasks {
    pub(super) fn new(spec: MaskSpec, stream: CudaStream) -> Result<Self, CudaError> {
        let end = Event::new(stream.device())?;
        Ok(Self { spec, masks: None, stream, end, part: Vec::new() })
    }

    /// Replaces `out` with the masks of `jobs` in the frame `slot`; returns how many are empty because they did not fit.
    ///
    /// # Safety
    /// `outputs` come from a finished run, for at least `slot + 1` frames, in the types and shapes that the spec was made
    /// from, and nothing writes to them meanwhile.
    pub(super) unsafe fn run(
        &mut self,
        outputs: &[(DeviceAddress, DType)],
        slot: usize,
        mapping: &Mapping,
        jobs: &[MaskJob],
        out: &mut Vec<Mask>,
    ) -> Result<usize, DetectorError> {
        let masks = match &mut self.masks {
            Some(masks) => masks,
            empty => empty.insert(CudaMasks::new(&self.spec, self.stream.device())?),
        };
        let frame = MaskFrame::new(mapping, (self.spec.width, self.spec.height));
        let (mut lost, mut words) = (0, 0);
        out.clear();
        // One part, unless masks are as large as the frame.
        for jobs in jobs.chunks(masks.most_at_once(&frame)) {
            // SAFETY: the caller guarantees the outputs; the last launch was waited for, or the stream failed and its error
            // also ends this run.
            lost += unsafe { masks.enqueue(outputs, slot, &frame, jobs, &self.stream) }?;
            self.end.record(&self.stream)?;
            self.end.wait()?;
            masks.masks(&mut self.part);
            // The limit for all masks of a frame applies to all parts together.
            lost += self.part.iter_mut().filter_map(|mask| (!mask.fits(&mut words)).then_some(())).count();
            out.append(&mut self.part);
        }
        Ok(lost)
    }

    /// Waits for the queued work.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize()
    }
}
