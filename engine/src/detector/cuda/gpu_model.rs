//! An engine's execution contexts and the GPU memory of its tensors.

use std::sync::Arc;

use visiond_kernels::cuda::{CudaError, CudaStream, DeviceAddress, DeviceBuffer};
use visiond_kernels::tensor::{DType, ShapeText, TensorMut};

use crate::backend::{Dim, TensorInfo};
use crate::card::Card;
use crate::detector::error::DetectorError;
use crate::detector::model_inputs::{self, ModelInputs};
use crate::engine::Engine;
use crate::tensorrt::{Layout, Scratch, TrtContext, TrtEngine};

/// A model on the GPU: an execution context for each batch size that changes its shapes, and a buffer for each tensor.
pub(super) struct GpuModel {
    /// By batch size, from 1 on; a single one if the batch size does not change the shapes or the version allows no more.
    /// Fields drop in order: contexts before the buffers that they point to.
    contexts: Vec<Option<TrtContext>>,
    /// The batch size that a single context has shapes for.
    chosen: usize,
    program: Arc<TrtEngine>,
    scratch: Scratch,
    /// In the engine's order.
    inputs: Vec<GpuInput>,
    /// One per run in flight.
    pictures: Vec<DeviceBuffer>,
    pub(super) outputs: Vec<GpuOutput>,
    /// The address and type of each output for the filter, by run in flight.
    addresses: Vec<Vec<(DeviceAddress, DType)>>,
    /// The outputs as the model declares them.
    pub(super) declared: Vec<TensorInfo>,
    picture: usize,
    /// The maximum number of frames in a run.
    pub(super) batch: usize,
    /// The bytes of one image if the batch is fixed and larger than 1: unused slots are cleared.
    fixed_picture_bytes: Option<usize>,
}

/// An input in the GPU's memory.
struct GpuInput {
    name: String,
    /// The shape for the whole batch, for which the memory is allocated.
    whole: Vec<usize>,
    /// Whether the first dimension is the number of frames in a run.
    has_frames: bool,
    /// `None` for the image, which is in `pictures`.
    buffer: Option<DeviceBuffer>,
}

impl GpuInput {
    /// Returns the shape in a run of this many frames; the memory fits any number.
    fn shape(&self, frames: usize) -> Vec<usize> {
        let mut shape = self.whole.clone();
        if self.has_frames
            && let Some(first) = shape.first_mut()
        {
            *first = frames.min(*first);
        }
        shape
    }
}

/// An output in the GPU's memory.
pub(super) struct GpuOutput {
    pub(super) name: String,
    pub(super) dtype: DType,
    /// For one frame.
    pub(super) shape: Vec<usize>,
    /// For one frame.
    pub(super) len_bytes: usize,
    /// One per run in flight.
    buffers: Vec<DeviceBuffer>,
}

impl GpuOutput {
    pub(super) fn address(&self, run: usize) -> DeviceAddress {
        self.buffers[run].address()
    }
}

impl GpuModel {
    /// Creates the context for the whole batch, allocates every tensor, and fills the extra inputs.
    pub(super) fn new(
        engine: &Engine,
        program: &Arc<TrtEngine>,
        inputs: &ModelInputs,
        card: &Card,
        max_in_flight: usize,
        stream: &CudaStream,
    ) -> Result<Self, DetectorError> {
        let device = program.device();
        let mut gpu_inputs = Vec::with_capacity(engine.inputs().len());
        let mut pictures = Vec::with_capacity(max_in_flight);
        for (index, info) in engine.inputs().iter().enumerate() {
            let whole = inputs.shapes.get(&info.name).cloned().unwrap_or_default();
            let bytes = bytes_of(&whole, info.dtype);
            let (name, has_frames) = (info.name.clone(), inputs.open_batch.contains(&index));
            if index == inputs.picture {
                for _ in 0..max_in_flight {
                    pictures.push(DeviceBuffer::new(device, bytes)?);
                }
                gpu_inputs.push(GpuInput { name, whole, has_frames, buffer: None });
                continue;
            }
            let buffer = DeviceBuffer::new(device, bytes)?;
            let mut host = vec![0; bytes];
            if let Some(extra) = card.extra_inputs.get(&info.name)
                && let Ok(mut tensor) = TensorMut::new(info.dtype, &whole, &mut host)
            {
                model_inputs::fill(&mut tensor, extra, (inputs.spec.width, inputs.spec.height));
            }
            // SAFETY: the buffer is as long as `host`, which lives until the stream has finished.
            unsafe { stream.copy_to_device(&host, buffer.address()) }?;
            stream.synchronize()?;
            gpu_inputs.push(GpuInput { name, whole, has_frames, buffer: Some(buffer) });
        }
        let open = inputs.batch > 1 && !inputs.open_batch.is_empty();
        // With TensorRT 8, only one context may use a profile.
        let contexts = if open && program.library().version().layout() != Some(Layout::V8) { inputs.batch } else { 1 };
        let fixed_picture_bytes =
            (inputs.batch > 1 && !open).then(|| bytes_of(&inputs.spec.shape(), inputs.spec.dtype));
        let mut model = Self {
            contexts: (0..contexts).map(|_| None).collect(),
            chosen: inputs.batch,
            program: Arc::clone(program),
            scratch: if contexts > 1 { program.shared_scratch()? } else { Scratch::Own },
            inputs: gpu_inputs,
            pictures,
            outputs: Vec::new(),
            addresses: vec![Vec::new(); max_in_flight],
            declared: engine.outputs().to_vec(),
            picture: inputs.picture,
            batch: inputs.batch,
            fixed_picture_bytes,
        };
        let mut context = model.program.context(model.scratch.clone())?;
        model.shape(&mut context, inputs.batch, stream)?;
        for info in engine.outputs() {
            let whole = context.shape(&info.name)?;
            let (mut shape, frames) = (whole.clone(), if inputs.has_batch_dim { inputs.batch } else { 1 });
            if frames > 1 {
                if shape.first() != Some(&frames) {
                    let (name, shape) = (info.name.clone(), ShapeText(&whole).to_string());
                    return Err(DetectorError::NotByFrame { name, shape, frames });
                }
                shape[0] = 1;
            }
            let len_bytes = bytes_of(&shape, info.dtype);
            let (name, dtype) = (info.name.clone(), info.dtype);
            let mut buffers = Vec::with_capacity(max_in_flight);
            for addresses in &mut model.addresses {
                let buffer = DeviceBuffer::new(device, len_bytes * frames)?;
                addresses.push((buffer.address(), dtype));
                buffers.push(buffer);
            }
            model.outputs.push(GpuOutput { name, dtype, shape, len_bytes, buffers });
        }
        model.keep(context, inputs.batch);
        Ok(model)
    }

    /// Returns the outputs for one frame.
    pub(super) fn of_one_frame(&self) -> Vec<TensorInfo> {
        let one = |output: &GpuOutput| TensorInfo {
            name: output.name.clone(),
            dtype: output.dtype,
            shape: Some(output.shape.iter().map(|&size| Dim::Fixed(size)).collect()),
        };
        self.outputs.iter().map(one).collect()
    }

    /// Returns the address and type of each output of a run.
    pub(super) fn addresses(&self, run: usize) -> &[(DeviceAddress, DType)] {
        &self.addresses[run]
    }

    /// Returns the address of a run's image.
    pub(super) fn picture(&self, run: usize) -> DeviceAddress {
        self.pictures[run].address()
    }

    /// Queues clearing the slots from `frames` on, if the batch is fixed.
    ///
    /// # Safety
    /// The run with this index is not in flight; `self` outlives the work, and every launch of a recording.
    pub(super) unsafe fn clear_from(&self, run: usize, frames: usize, stream: &CudaStream) -> Result<(), CudaError> {
        let Some(each) = self.fixed_picture_bytes else { return Ok(()) };
        let empty = self.picture(run).offset(each * frames);
        // SAFETY: the buffer holds `batch` images of `each` bytes.
        unsafe { stream.fill(empty, 0, each * (self.batch - frames)) }
    }

    /// Whether a context keeps its shapes, so that its runs can be recorded.
    pub(super) fn keeps_shapes(&self) -> bool {
        self.contexts.len() > 1 || !self.follows_frames()
    }

    /// Makes sure that a context has the shapes for this batch size.
    pub(super) fn choose(&mut self, frames: usize, stream: &CudaStream) -> Result<(), DetectorError> {
        let context_index = self.context_index(frames);
        match self.contexts[context_index].take() {
            None => {
                let mut context = self.program.context(self.scratch.clone())?;
                self.shape(&mut context, frames, stream)?;
                self.keep(context, frames);
            }
            Some(mut context) if !self.keeps_shapes() && self.chosen != frames => {
                self.shape(&mut context, frames, stream)?;
                self.keep(context, frames);
            }
            context => self.contexts[context_index] = context,
        }
        Ok(())
    }

    fn follows_frames(&self) -> bool {
        self.batch > 1 && self.inputs.iter().any(|input| input.has_frames)
    }

    /// Queues inference over the first `frames` slots of a run's image.
    ///
    /// # Safety
    /// The slots are written by then; `self` outlives the run, and every launch of a recording; `stream` is always the same.
    pub(super) unsafe fn enqueue(
        &mut self,
        run: usize,
        frames: usize,
        stream: &CudaStream,
    ) -> Result<(), DetectorError> {
        let address = self.picture(run);
        let context_index = self.context_index(frames);
        let context = self.contexts[context_index].as_mut().ok_or(DetectorError::NotInFlight)?;
        context.set_address(&self.inputs[self.picture].name, address)?;
        for output in &self.outputs {
            context.set_address(&output.name, output.address(run))?;
        }
        // SAFETY: shapes and addresses of every tensor were set by `shape` and here, with buffers for the whole batch.
        Ok(unsafe { context.enqueue(stream) }?)
    }

    fn context_index(&self, frames: usize) -> usize {
        (frames - 1).min(self.contexts.len() - 1)
    }

    /// Sets the shapes and addresses of a context's inputs for a batch size, and a profile that allows them.
    fn shape(&self, context: &mut TrtContext, frames: usize, stream: &CudaStream) -> Result<(), DetectorError> {
        let shapes: Vec<_> = self.inputs.iter().map(|input| (input, input.shape(frames))).collect();
        let wanted: Vec<_> = shapes.iter().map(|(input, shape)| (input.name.as_str(), shape.as_slice())).collect();
        // If no profile allows them, TensorRT reports it below.
        if self.program.profiles() > 1
            && let Some(profile) = self.program.profile_for(&wanted)
        {
            context.set_profile(profile, stream)?;
        }
        for (input, shape) in &shapes {
            context.set_input_shape(&input.name, shape)?;
            if let Some(buffer) = &input.buffer {
                context.set_address(&input.name, buffer.address())?;
            }
        }
        Ok(context.infer_shapes()?)
    }

    /// Stores a context that has the shapes for a batch size.
    fn keep(&mut self, context: TrtContext, frames: usize) {
        self.chosen = frames;
        let context_index = self.context_index(frames);
        self.contexts[context_index] = Some(context);
    }
}

fn bytes_of(shape: &[usize], dtype: DType) -> usize {
    shape.iter().product::<usize>() * dtype.size_bytes()
}
