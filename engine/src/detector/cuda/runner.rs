//! Runs a model on the GPU.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::cuda::{CudaStream, Event, StreamPriority};
use visiond_kernels::filter::FilterSpec;
use visiond_kernels::frame::FrameView;
use visiond_kernels::mask::{Mask, MaskJob};
use visiond_kernels::placement::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

use super::gpu_masks::GpuMasks;
use super::gpu_model::GpuModel;
use super::readback::Readback;
use super::recording::Recording;
use super::run_state::{RunState, enqueue_preprocess, enqueue_readback, enqueue_run};
use crate::backend::TensorInfo;
use crate::card::Card;
use crate::detector::error::DetectorError;
use crate::detector::model_inputs::ModelInputs;
use crate::detector::run::{RunCounts, RunId, RunTimings};
use crate::detector::runner::{Runner, RunnerAndHead, micros};
use crate::engine::Engine;
use crate::heads::{Decoded, Head};
use crate::tensorrt::TrtEngine;

/// How many runs may be in flight: while the GPU works on one, the host reads the other.
pub(crate) const MAX_IN_FLIGHT: usize = 2;

/// A model on the GPU, with everything that feeds and reads it there.
pub(crate) struct CudaRunner {
    // Fields drop in order: graphs before the contexts and buffers that they were recorded with. `drop` has waited for the
    // streams by then.
    /// The first is created at the start, the others on demand.
    runs: Vec<RunState>,
    model: GpuModel,
    /// For inference.
    stream: CudaStream,
    /// For a preprocess that overlaps another run's inference.
    preprocess_stream: CudaStream,
    /// For a filter that overlaps another run's inference.
    readback_stream: CudaStream,
    spec: PreprocessSpec,
    /// How the filter finds candidates; `None` if the outputs are copied whole.
    filter: Option<FilterSpec>,
    /// Makes masks; `None` if the model has none.
    masks: Option<GpuMasks>,
    /// The indices of the runs in flight, oldest first.
    in_flight: VecDeque<usize>,
    /// Whether a run has finished.
    warm: bool,
    /// The durations of the last run.
    last: RunTimings,
    /// When it was over.
    ended: Instant,
    /// Approximately the shortest inference of a run, by its number of frames from 1 on.
    usual: Vec<Duration>,
    recording: Recording,
    counts: RunCounts,
}

impl CudaRunner {
    /// Allocates everything for the first run. `head` creates the head for the outputs.
    pub(crate) fn new(
        engine: &Engine,
        program: &Arc<TrtEngine>,
        inputs: &ModelInputs,
        card: &Card,
        head: impl FnOnce(&[TensorInfo]) -> Result<Box<dyn Head>, DetectorError>,
        score_threshold: f32,
        priority: StreamPriority,
    ) -> Result<RunnerAndHead<Self>, DetectorError> {
        let device = program.device();
        let new_stream = || CudaStream::with_priority(device, priority);
        let stream = new_stream()?;
        let model = GpuModel::new(engine, program, inputs, card, MAX_IN_FLIGHT, &stream)?;
        let outputs = model.of_one_frame();
        let head = head(&outputs)?;
        let input_size = (inputs.spec.width, inputs.spec.height);
        let filter = head.filter(&outputs, input_size, score_threshold);
        if filter.is_none() {
            log::debug!("copying whole outputs: no candidate filter for this head and these shapes");
        }
        let masks = head.masks(&outputs, input_size).map(|spec| GpuMasks::new(spec, new_stream()?)).transpose()?;
        let readback = Readback::new(filter.as_ref(), &model, device, inputs.batch)?;
        let mut runs = Vec::with_capacity(MAX_IN_FLIGHT);
        runs.push(RunState::new(&inputs.spec, device, inputs.batch, readback)?);
        let runner = Self {
            runs,
            model,
            stream,
            preprocess_stream: new_stream()?,
            readback_stream: new_stream()?,
            spec: inputs.spec.clone(),
            filter,
            masks,
            in_flight: VecDeque::with_capacity(MAX_IN_FLIGHT),
            warm: false,
            last: RunTimings::default(),
            ended: Instant::now(),
            usual: vec![Duration::ZERO; inputs.batch],
            recording: Recording::default(),
            counts: RunCounts::default(),
        };
        Ok((runner, head))
    }

    /// Returns the index of a run that is not in flight; makes its state if necessary.
    fn free_run(&mut self) -> Result<usize, DetectorError> {
        if let Some(free) = (0..self.runs.len()).find(|index| !self.in_flight.contains(index)) {
            return Ok(free);
        }
        if self.runs.len() == MAX_IN_FLIGHT {
            return Err(DetectorError::Busy { max_in_flight: MAX_IN_FLIGHT });
        }
        let (device, batch) = (self.stream.device(), self.model.batch);
        let readback = Readback::new(self.filter.as_ref(), &self.model, device, batch)?;
        self.runs.push(RunState::new(&self.spec, device, batch, readback)?);
        Ok(self.runs.len() - 1)
    }

    /// Queues a run whose frames the preprocessor has prepared.
    fn launch(&mut self, index: usize, frames: &[FrameView<'_>]) -> Result<(), DetectorError> {
        let (run, stream, count) = (&mut self.runs[index], &self.stream, frames.len());
        // Frames cannot be attached to a stream within a graph. In an overlapped run they are released as soon as they were
        // read.
        let lent = frames.iter().any(FrameView::needs_attaching);
        let overlapped = !self.in_flight.is_empty() || lent;
        run.overlapped = overlapped;
        let reading = if overlapped { &self.preprocess_stream } else { stream };
        if overlapped {
            run.preprocess_start.record(reading)?;
        }
        for frame in frames {
            // SAFETY: `begin` keeps the frames until the stream has passed their `detach`.
            unsafe { frame.attach(reading) }?;
        }
        if overlapped {
            // SAFETY: the last run with this index is done, so the image is free; this run's frames were prepared and stay
            // valid until `begin` has waited for the event; `drop` waits for the streams before anything is dropped.
            unsafe { enqueue_preprocess(run, &self.model, index, count, &self.preprocess_stream, Event::record) }?;
            if lent {
                frames.iter().try_for_each(|frame| frame.detach(&self.preprocess_stream))?;
                run.preprocess_end.record(&self.preprocess_stream)?;
            }
            stream.wait(&run.preprocess_end)?;
        }
        let recorded = match &mut run.graphs[count - 1][usize::from(overlapped)] {
            Some(graph) => {
                // SAFETY: `record` recorded the graph with memory that this run state, the model and the stream own, and
                // `drop` waits for the streams before dropping any of it; for the frames, as above.
                unsafe { graph.launch(stream) }?;
                self.counts.graph_runs += 1;
                true
            }
            None => {
                self.model.choose(count, stream)?;
                // SAFETY: as above.
                unsafe { enqueue_run(run, &mut self.model, index, count, stream, Event::record) }?;
                self.counts.single_runs += 1;
                false
            }
        };
        if overlapped {
            run.inference_end.record(stream)?;
            self.readback_stream.wait(&run.inference_end)?;
            // SAFETY: as above; the stream waits for the outputs, which belong to this run.
            unsafe { enqueue_readback(run, &self.model, index, count, &self.readback_stream, Event::record) }?;
        }
        if !recorded && self.warm && self.model.keeps_shapes() && self.recording.is_due() {
            self.record(index, count)?;
        }
        Ok(())
    }

    /// Releases the frames of a failed run: after this, no queued work reads them or writes to the run's buffers. Further
    /// failures are logged; the caller returns the first error.
    fn take_back(&mut self, index: usize, frames: &[FrameView<'_>]) {
        let detached = frames.iter().map(|frame| frame.detach(&self.preprocess_stream));
        let ended = [&self.preprocess_stream, &self.stream, &self.readback_stream].map(CudaStream::synchronize);
        for error in detached.chain(ended).filter_map(Result::err) {
            log::debug!("after a run that failed: {error}");
        }
        self.runs[index].preprocessor.forget_tables();
    }

    /// Records the graph for a run, batch size and kind, after the same calls were queued one by one.
    fn record(&mut self, index: usize, count: usize) -> Result<(), DetectorError> {
        let (run, model) = (&mut self.runs[index], &mut self.model);
        // SAFETY: this only records; `launch` has the safety argument for each launch.
        let record =
            |stream: &CudaStream| unsafe { enqueue_run(run, model, index, count, stream, Event::record_external) };
        let recorded = self.stream.capture(record);
        let run = &mut self.runs[index];
        let overlapped = run.overlapped;
        match recorded {
            Ok((graph, ())) => {
                run.graphs[count - 1][usize::from(overlapped)] = Some(graph);
                self.recording.has_worked();
            }
            Err(error) if is_gpu_lost(&error) => return Err(error),
            Err(error) => match self.recording.was_refused() {
                Some(pause) => {
                    log::debug!("no CUDA graph was recorded; visiond tries again after {pause} runs: {error}")
                }
                None => log::warn!("cannot run this model as one CUDA graph, which costs some CPU time: {error}"),
            },
        }
        Ok(())
    }
}

impl Runner for CudaRunner {
    fn spec(&self) -> &PreprocessSpec {
        &self.spec
    }

    fn outputs(&self) -> &[TensorInfo] {
        &self.model.declared
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, DetectorError> {
        let began = Instant::now();
        let index = self.free_run()?;
        let run = &mut self.runs[index];
        (run.frames, run.done) = (frames.len(), false);
        // The last run with this index is done, so its descriptions and staged frames are free.
        run.preprocessor.prepare(frames)?;
        let preprocess_end = self.launch(index, frames).and_then(|()| {
            let run = &mut self.runs[index];
            run.launch_us = micros(began.elapsed());
            Ok(run.wait_for_preprocess(&self.last)?)
        });
        if let Err(error) = preprocess_end {
            self.take_back(index, frames);
            return Err(error);
        }
        self.counts.overlapped_runs += u64::from(!self.in_flight.is_empty());
        self.in_flight.push_back(index);
        Ok(RunId(index))
    }

    fn finish(&mut self, run: RunId) -> Result<RunTimings, DetectorError> {
        if self.in_flight.front() != Some(&run.0) {
            return Err(DetectorError::NotInFlight);
        }
        self.in_flight.pop_front();
        let run = &mut self.runs[run.0];
        let usual = &mut self.usual[run.frames - 1];
        self.ended = run.wait_for_end(self.ended, *usual)?;
        self.warm = true;
        run.done = true;
        // The filter of an overlapped run runs beside another run's inference, so its duration does not count.
        let inference_us = match run.overlapped {
            true => run.inference_end.elapsed_us(&run.inference_start)?,
            false => run.end.elapsed_us(&run.preprocess_end)?,
        };
        let inference = Duration::from_nanos((inference_us * 1e3) as u64);
        // A run that another process delayed must not delay the next one.
        *usual = inference.min(*usual + (inference.saturating_sub(*usual)) / 8);
        self.last = RunTimings {
            launch_us: run.launch_us,
            preprocess_us: run.preprocess_end.elapsed_us(&run.preprocess_start)? as u64,
            infer_us: inference_us as u64,
        };
        Ok(self.last)
    }

    fn mapping(&self, run: RunId, slot: usize) -> Option<Mapping> {
        let run = self.runs.get(run.0)?;
        (run.done && slot < run.frames).then(|| run.preprocessor.mapping(slot))
    }

    fn decode(
        &mut self,
        run: RunId,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError> {
        let run = self.runs.get(run.0).ok_or(DetectorError::NotInFlight)?;
        let placed = ((self.spec.width, self.spec.height), run.preprocessor.mapping(slot));
        run.readback.decode(slot, &self.model, placed, score_threshold, head, decoded)?;
        if decoded.lost > 0 && self.counts.lost_candidates == 0 {
            log::warn!(
                "a frame had {} candidates more than fit into the GPU's filter; any of them may be missing: raise \
                 score_threshold (logged once, then counted as lost candidates)",
                decoded.lost
            );
        }
        self.counts.lost_candidates += decoded.lost as u64;
        Ok(())
    }

    fn masks(
        &mut self,
        run: RunId,
        slot: usize,
        _decoded: &Decoded,
        jobs: &[MaskJob],
        out: &mut Vec<Mask>,
    ) -> Result<Option<usize>, DetectorError> {
        let Some(mapping) = self.mapping(run, slot) else { return Err(DetectorError::NotInFlight) };
        let Some(masks) = &mut self.masks else { return Ok(None) };
        // SAFETY: the run is done and has a frame in this slot; only `begin`, which needs `self`, writes to its outputs
        // again; the spec was made from the outputs' shapes.
        unsafe { masks.run(self.model.addresses(run.0), slot, &mapping, jobs, out) }.map(Some)
    }

    fn counts(&self) -> RunCounts {
        let copied_bytes = self.runs.iter().map(|run| run.preprocessor.copied_bytes()).sum();
        RunCounts { copied_bytes, ..self.counts }
    }

    fn max_in_flight(&self) -> usize {
        MAX_IN_FLIGHT
    }

    fn raw_output(&self, _index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Err(DetectorError::NoRawOutputs)
    }

    fn frames_run(&self) -> usize {
        0
    }
}

impl Drop for CudaRunner {
    fn drop(&mut self) {
        let ended = [&self.preprocess_stream, &self.stream, &self.readback_stream].map(CudaStream::synchronize);
        for error in ended.into_iter().chain(self.masks.as_ref().map(GpuMasks::synchronize)).filter_map(Result::err) {
            log::debug!("{error}");
        }
    }
}
