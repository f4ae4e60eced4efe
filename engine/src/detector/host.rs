//! The way through host memory: the CPU's preprocess writes the session's input, the session runs, heads read its outputs.
//!
//! One run at a time: [`HostWay::begin`] preprocesses, [`HostWay::finish`] runs the network.

use std::time::Instant;

use visiond_kernels::frame::FrameView;
use visiond_kernels::geometry::Mapping;
use visiond_kernels::preprocess::{PreprocessSpec, Preprocessor};
use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{ShapeText, TensorRef};

use super::error::DetectorError;
use super::feed::{self, Feed};
use super::{Flight, RunCounts, RunTimings, Way, micros, slot_error};
use crate::card::Card;
use crate::engine::{Session, TensorInfo};
use crate::heads::{Decoded, Head, HeadInput, NamedOutput};

/// A session and what feeds it.
pub(super) struct HostWay {
    session: Session,
    preprocessor: Preprocessor,
    feed: Feed,
    /// The way back from each slot that holds a frame.
    mappings: Vec<Option<Mapping>>,
    state: State,
    /// Shape of each output's slot, of the slot being read.
    slot_shapes: Vec<Vec<usize>>,
}

/// Where the one run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing to read.
    Empty,
    /// Preprocessed.
    Begun { frames: usize, preprocess_us: u64 },
    /// Its outputs can be read.
    Done { frames: usize },
}

impl HostWay {
    /// Fills the inputs besides the picture.
    pub(super) fn new(mut session: Session, feed: Feed, card: &Card) -> Result<Self, DetectorError> {
        let preprocessor = Preprocessor::new(feed.spec.clone())?;
        let input_size = (feed.spec.width, feed.spec.height);
        let extras = session.inputs().iter().map(|info| card.extra_inputs.get(&info.name)).collect::<Vec<_>>();
        for (index, extra) in extras.into_iter().enumerate().filter(|(index, _)| *index != feed.picture) {
            if let Some(extra) = extra {
                feed::fill(&mut session.input_mut(index), extra, input_size);
            }
        }
        Ok(Self {
            preprocessor,
            mappings: vec![None; feed.batch],
            state: State::Empty,
            slot_shapes: vec![Vec::new(); session.outputs().len()],
            session,
            feed,
        })
    }

    fn load(&mut self, slot: usize, frame: &FrameView<'_>) -> Result<(), DetectorError> {
        self.mappings[slot] = None;
        let tensor = self.session.input_mut(self.feed.picture);
        let tensor = if self.feed.has_batch_dim { tensor.slot(slot) } else { Some(tensor) };
        let mut tensor = tensor.ok_or_else(|| slot_error(slot, "the network's input has no such slot"))?;
        let mapping = self.preprocessor.run(frame, &mut tensor, Stream::Host);
        self.mappings[slot] = Some(mapping.map_err(|error| DetectorError::Frame { slot, error })?);
        Ok(())
    }

    /// Lets the network see so many slots, where it leaves their number open. What they hold stays.
    fn set_frames(&mut self, frames: usize) {
        for &index in &self.feed.open_batch {
            self.session.set_batch(index, frames);
        }
    }

    /// Empties the slots that a fixed batch runs for nothing, so that they cannot hold a frame of long ago.
    fn clear_slots_from(&mut self, frames: usize) {
        if self.feed.open_batch.contains(&self.feed.picture) {
            return;
        }
        for slot in frames..self.feed.batch {
            if self.mappings[slot].take().is_some()
                && let Some(mut tensor) = self.session.input_mut(self.feed.picture).slot(slot)
            {
                tensor.bytes().fill(0);
            }
        }
    }
}

impl Way for HostWay {
    fn spec(&self) -> &PreprocessSpec {
        &self.feed.spec
    }

    fn outputs(&self) -> &[TensorInfo] {
        self.session.outputs()
    }

    fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Ok(self.session.output(index)?)
    }

    fn frames_run(&self) -> usize {
        if self.feed.has_batch_dim { self.session.input_shape(self.feed.picture)[0] } else { 1 }
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<Flight, DetectorError> {
        if matches!(self.state, State::Begun { .. }) {
            return Err(DetectorError::Busy { flights: self.flights() });
        }
        let start = Instant::now();
        self.state = State::Empty;
        // Slots keep their place in the whole tensor while they are written.
        self.set_frames(self.feed.batch);
        for (slot, frame) in frames.iter().enumerate() {
            self.load(slot, frame)?;
        }
        self.clear_slots_from(frames.len());
        self.set_frames(frames.len());
        self.state = State::Begun { frames: frames.len(), preprocess_us: micros(start.elapsed()) };
        Ok(Flight::new(0))
    }

    fn finish(&mut self, _flight: Flight) -> Result<RunTimings, DetectorError> {
        let State::Begun { frames, preprocess_us } = self.state else { return Err(DetectorError::NotUnderWay) };
        self.state = State::Empty;
        let start = Instant::now();
        self.session.run(Stream::Host)?;
        self.state = State::Done { frames };
        Ok(RunTimings { launch_us: 0, preprocess_us, infer_us: micros(start.elapsed()) })
    }

    fn mapping(&self, _flight: Flight, slot: usize) -> Option<Mapping> {
        let State::Done { frames } = self.state else { return None };
        self.mappings.get(slot).copied().flatten().filter(|_| slot < frames)
    }

    fn decode(
        &mut self,
        _flight: Flight,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError> {
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
        let mut outputs = Vec::with_capacity(self.slot_shapes.len());
        for (index, (shape, info)) in self.slot_shapes.iter().zip(self.session.outputs()).enumerate() {
            let whole = self.session.output(index)?;
            let each = whole.bytes().len() / frames;
            let bytes = &whole.bytes()[slot * each..(slot + 1) * each];
            let tensor = TensorRef::new(whole.dtype(), shape, bytes)
                .map_err(|_| slot_error(slot, "the backend's output is not of its shape"))?;
            outputs.push(NamedOutput { name: &info.name, tensor });
        }
        let input_size = (self.feed.spec.width, self.feed.spec.height);
        Ok(head.decode(&HeadInput { outputs: &outputs, input_size, score_threshold }, decoded)?)
    }

    fn flights(&self) -> usize {
        1
    }

    fn counts(&self) -> RunCounts {
        RunCounts::default()
    }
}
