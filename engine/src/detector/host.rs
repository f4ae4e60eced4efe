//! Runs through host memory: the CPU preprocesses into the session's input, the session runs, the head reads its outputs.
//!
//! One run at a time: [`HostRunner::begin`] preprocesses, [`HostRunner::finish`] runs the model.

use std::time::Instant;

use visiond_kernels::frame::FrameView;
use visiond_kernels::mask::{Mask, MaskAssembler, MaskFrame, MaskJob};
use visiond_kernels::placement::Mapping;
use visiond_kernels::preprocess::{PreprocessSpec, Preprocessor};
use visiond_kernels::tensor::{ShapeText, TensorRef};

use super::error::DetectorError;
use super::model_inputs::{self, ModelInputs};
use super::run::{RunCounts, RunId, RunTimings};
use super::runner::{Runner, micros};
use crate::backend::TensorInfo;
use crate::card::Card;
use crate::heads::{Decoded, Head, HeadInput, NamedOutput};
use crate::session::Session;

/// A session and the preprocessor that feeds it.
pub(super) struct HostRunner {
    session: Session,
    preprocessor: Preprocessor,
    inputs: ModelInputs,
    /// Maps each slot that holds a frame back to the frame.
    mappings: Vec<Option<Mapping>>,
    run: HostRun,
    /// The shape of each output, for the slot being read.
    slot_shapes: Vec<Vec<usize>>,
    assembler: MaskAssembler,
    /// The last frame that was in the GPU's memory.
    copy: Vec<u8>,
}

/// The one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostRun {
    /// There are no results to read.
    Empty,
    /// The frames are preprocessed.
    Begun { frames: usize, preprocess_us: u64 },
    /// The outputs can be read.
    Done { frames: usize },
}

impl HostRunner {
    /// Fills the extra inputs.
    pub(super) fn new(mut session: Session, mut inputs: ModelInputs, card: &Card) -> Result<Self, DetectorError> {
        // A session for a size other than the declared one was rewritten, and its batch is fixed.
        inputs.open_batch.retain(|&index| {
            let dims = session.inputs()[index].shape.as_ref();
            dims.is_none_or(|dims| dims.first().is_some_and(|dim| dim.fixed().is_none()))
        });
        let preprocessor = Preprocessor::new(inputs.spec.clone())?;
        let input_size = (inputs.spec.width, inputs.spec.height);
        let extras = session.inputs().iter().map(|info| card.extra_inputs.get(&info.name)).collect::<Vec<_>>();
        for (index, extra) in extras.into_iter().enumerate().filter(|(index, _)| *index != inputs.picture) {
            if let Some(extra) = extra {
                model_inputs::fill(&mut session.input_mut(index), extra, input_size);
            }
        }
        Ok(Self {
            preprocessor,
            mappings: vec![None; inputs.batch],
            run: HostRun::Empty,
            slot_shapes: vec![Vec::new(); session.outputs().len()],
            assembler: MaskAssembler::default(),
            copy: Vec::new(),
            session,
            inputs,
        })
    }

    fn load(&mut self, slot: usize, frame: &FrameView<'_>) -> Result<(), DetectorError> {
        self.mappings[slot] = None;
        let tensor = self.session.input_mut(self.inputs.picture);
        let tensor = if self.inputs.has_batch_dim { tensor.slot(slot) } else { Some(tensor) };
        let mut tensor = tensor.ok_or_else(|| DetectorError::Slot(slot, "the model's input has no such slot"))?;
        let frame =
            frame.on_host(&mut self.copy).map_err(|error| DetectorError::Frame { slot, error: error.into() })?;
        let mapping = self.preprocessor.run(&frame, &mut tensor);
        self.mappings[slot] = Some(mapping.map_err(|error| DetectorError::Frame { slot, error })?);
        Ok(())
    }

    /// Sets the batch size, if the model leaves it open. The slots keep their content.
    fn set_frames(&mut self, frames: usize) {
        for &index in &self.inputs.open_batch {
            self.session.set_batch(index, frames);
        }
    }

    /// Finds the shape of each output for one frame.
    fn find_slot_shapes(&mut self) -> Result<(), DetectorError> {
        let frames = self.frames_run();
        for (index, shape) in self.slot_shapes.iter_mut().enumerate() {
            shape.clear();
            shape.extend_from_slice(self.session.output(index)?.shape());
            if frames > 1 {
                if shape.first() != Some(&frames) {
                    let name = self.session.outputs()[index].name.clone();
                    return Err(DetectorError::NotByFrame { name, shape: ShapeText(shape).to_string(), frames });
                }
                shape[0] = 1;
            }
        }
        Ok(())
    }

    /// Returns the outputs of a slot. Their shapes are those that [`Self::find_slot_shapes`] found.
    fn outputs_of(&self, slot: usize) -> Result<Vec<NamedOutput<'_>>, DetectorError> {
        let frames = self.frames_run();
        let mut outputs = Vec::with_capacity(self.slot_shapes.len());
        for (index, (shape, info)) in self.slot_shapes.iter().zip(self.session.outputs()).enumerate() {
            let whole = self.session.output(index)?;
            let each = whole.bytes().len() / frames;
            let bytes = &whole.bytes()[slot * each..(slot + 1) * each];
            let tensor = TensorRef::new(whole.dtype(), shape, bytes)
                .map_err(|_| DetectorError::Slot(slot, "the backend's output is not of its shape"))?;
            outputs.push(NamedOutput { name: &info.name, tensor });
        }
        Ok(outputs)
    }

    /// Clears unused slots of a fixed batch, so that they do not hold an old frame.
    fn clear_slots_from(&mut self, frames: usize) {
        if self.inputs.open_batch.contains(&self.inputs.picture) {
            return;
        }
        for slot in frames..self.inputs.batch {
            if self.mappings[slot].take().is_some()
                && let Some(mut tensor) = self.session.input_mut(self.inputs.picture).slot(slot)
            {
                tensor.bytes().fill(0);
            }
        }
    }
}

impl Runner for HostRunner {
    fn spec(&self) -> &PreprocessSpec {
        &self.inputs.spec
    }

    fn outputs(&self) -> &[TensorInfo] {
        self.session.outputs()
    }

    fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Ok(self.session.output(index)?)
    }

    fn frames_run(&self) -> usize {
        if self.inputs.has_batch_dim { self.session.input_shape(self.inputs.picture)[0] } else { 1 }
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, DetectorError> {
        if matches!(self.run, HostRun::Begun { .. }) {
            return Err(DetectorError::Busy { max_in_flight: self.max_in_flight() });
        }
        let start = Instant::now();
        self.run = HostRun::Empty;
        // Slots keep their position in the whole tensor while they are written.
        self.set_frames(self.inputs.batch);
        for (slot, frame) in frames.iter().enumerate() {
            self.load(slot, frame)?;
        }
        self.clear_slots_from(frames.len());
        self.set_frames(frames.len());
        self.run = HostRun::Begun { frames: frames.len(), preprocess_us: micros(start.elapsed()) };
        Ok(RunId(0))
    }

    fn finish(&mut self, _run: RunId) -> Result<RunTimings, DetectorError> {
        let HostRun::Begun { frames, preprocess_us } = self.run else { return Err(DetectorError::NotInFlight) };
        self.run = HostRun::Empty;
        let start = Instant::now();
        self.session.run()?;
        self.run = HostRun::Done { frames };
        Ok(RunTimings { launch_us: 0, preprocess_us, infer_us: micros(start.elapsed()) })
    }

    fn mapping(&self, _run: RunId, slot: usize) -> Option<Mapping> {
        let HostRun::Done { frames } = self.run else { return None };
        self.mappings.get(slot).copied().flatten().filter(|_| slot < frames)
    }

    fn decode(
        &mut self,
        _run: RunId,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError> {
        self.find_slot_shapes()?;
        let outputs = self.outputs_of(slot)?;
        let input_size = (self.inputs.spec.width, self.inputs.spec.height);
        let mapping = self.mappings.get(slot).copied().flatten();
        Ok(head.decode(&HeadInput { outputs: &outputs, input_size, score_threshold, mapping }, decoded)?)
    }

    fn masks(
        &mut self,
        run: RunId,
        slot: usize,
        decoded: &Decoded,
        jobs: &[MaskJob],
        out: &mut Vec<Mask>,
    ) -> Result<Option<usize>, DetectorError> {
        let (Some(spec), Some(mapping)) = (decoded.masks, self.mapping(run, slot)) else { return Ok(None) };
        let mut assembler = std::mem::take(&mut self.assembler);
        let outputs = self.outputs_of(slot)?;
        let tensors: Vec<TensorRef<'_>> = outputs.iter().map(|output| output.tensor).collect();
        let frame = MaskFrame::new(&mapping, (spec.width, spec.height));
        let lost = assembler.run(&spec, &frame, &tensors, jobs, out);
        self.assembler = assembler;
        Ok(Some(lost))
    }

    fn max_in_flight(&self) -> usize {
        1
    }

    fn counts(&self) -> RunCounts {
        RunCounts::default()
    }
}
