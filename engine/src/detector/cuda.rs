//! The way on the GPU: preprocess, network and candidate filter on one stream, without the host in between.
//!
//! All runs go through one stream, so the network's inputs and outputs exist once: the preprocess of a run begins when the
//! run before has ended. What differs between flights is what the host writes and reads: frame descriptions, candidates,
//! events. The frames' bytes are read by the preprocess alone, which an event behind it tells.
//!
//! The first run of each flight and number of frames is queued call by call; behind it the same calls are recorded as a CUDA
//! graph, which every later run launches as one. Where CUDA or TensorRT refuses the recording, runs go on call by call. The
//! very first run records nothing, so that its result is there sooner. Networks with an open batch have an execution context
//! for each number of frames: changing the shapes of a context would spoil the graphs that were recorded with it.
//!
//! Nothing is allocated once every flight has run every number of frames that occurs and the frames' sizes are known.

mod network;
mod reader;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use visiond_kernels::cuda::{CudaError, CudaStream, Event, Graph};
use visiond_kernels::frame::FrameView;
use visiond_kernels::geometry::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::tensor::TensorRef;

use self::network::Network;
use self::reader::Reader;
use super::error::DetectorError;
use super::feed::Feed;
use super::{Flight, Made, RunCounts, RunTimings, Way, micros};
use crate::card::Card;
use crate::engine::{Engine, TensorInfo};
use crate::heads::{Decoded, Head, HeadError};
use crate::tensorrt::TrtEngine;

/// Runs that may be under way at once: while the GPU works on one, the host reads the other.
pub(super) const FLIGHTS: usize = 2;

/// A network on the GPU and everything that feeds and reads it there.
pub(super) struct CudaWay {
    // Graphs go before the contexts and buffers that they were recorded with; `drop` has waited for the stream by then.
    places: Vec<Place>,
    network: Network,
    stream: CudaStream,
    spec: PreprocessSpec,
    /// Places of the runs under way, the oldest first.
    aloft: VecDeque<usize>,
    /// Whether a run was finished.
    warm: bool,
    /// Whether recording works.
    recording: bool,
    counts: RunCounts,
}

/// What belongs to one flight.
struct Place {
    /// By the number of frames, from 1 on.
    graphs: Vec<Option<Graph>>,
    preprocessor: CudaPreprocessor,
    reader: Reader,
    /// Before the preprocess, behind it, and behind it all.
    start: Event,
    loaded: Event,
    end: Event,
    launch_us: u64,
    /// Frames of the run under way, or of the last.
    begun: usize,
    /// Whether that run is finished.
    done: bool,
}

impl CudaWay {
    /// Makes all that a first run needs. `head` says how to read the outputs.
    pub(super) fn new(
        engine: &Engine,
        program: &Arc<TrtEngine>,
        feed: &Feed,
        card: &Card,
        head: impl FnOnce(&[TensorInfo]) -> Result<Box<dyn Head>, HeadError>,
        score_threshold: f32,
    ) -> Result<Made<Self>, DetectorError> {
        let device = program.device();
        let stream = CudaStream::new(device)?;
        let network = Network::new(engine, program, feed, card, &stream)?;
        let outputs = network.of_one_frame();
        let head = head(&outputs)?;
        let input_size = (feed.spec.width, feed.spec.height);
        let filter = head.filter(&outputs, input_size, score_threshold);
        if filter.is_none() {
            log::debug!("the outputs are copied whole: no candidate filter for this head and these shapes");
        }
        let mut places = Vec::with_capacity(FLIGHTS);
        for _ in 0..FLIGHTS {
            places.push(Place {
                graphs: (0..feed.batch).map(|_| None).collect(),
                preprocessor: CudaPreprocessor::new(&feed.spec, device, feed.batch)?,
                reader: Reader::new(filter.as_ref(), &network, device, feed.batch)?,
                start: Event::new(device)?,
                loaded: Event::new(device)?,
                end: Event::new(device)?,
                launch_us: 0,
                begun: 0,
                done: false,
            });
        }
        let way = Self {
            places,
            network,
            stream,
            spec: feed.spec.clone(),
            aloft: VecDeque::with_capacity(FLIGHTS),
            warm: false,
            recording: true,
            counts: RunCounts::default(),
        };
        Ok((way, head))
    }

    /// Queues a run whose frames the place's preprocessor has prepared.
    fn launch(&mut self, index: usize, frames: &[FrameView<'_>]) -> Result<(), DetectorError> {
        let (place, stream, count) = (&mut self.places[index], &self.stream, frames.len());
        for frame in frames {
            // SAFETY: `begin` holds the frames until the stream has come past the `detach` below.
            unsafe { frame.attach(stream) }?;
        }
        place.start.record(stream)?;
        let recorded = match &mut place.graphs[count - 1] {
            Some(graph) => {
                // SAFETY: the graph was recorded by `record` with what this place, the network and the stream own, and
                // `drop` waits for the stream before any of it goes; the place's run before is done, and this run's frames
                // were prepared, and stay until it has read them (`begin`).
                unsafe { graph.launch(stream) }?;
                self.counts.graph_runs += 1;
                true
            }
            None => {
                self.network.choose(count, stream)?;
                // SAFETY: as above.
                unsafe { queue(place, &mut self.network, count, stream, Event::record) }?;
                self.counts.single_runs += 1;
                false
            }
        };
        for frame in frames {
            frame.detach(stream)?;
        }
        place.end.record(stream)?;
        if !recorded && self.recording && self.warm && self.network.keeps_shapes() {
            self.record(index, count)?;
        }
        Ok(())
    }

    /// Records the graph of a place and a number of frames, just after the same was queued call by call.
    fn record(&mut self, index: usize, count: usize) -> Result<(), DetectorError> {
        let (place, network) = (&mut self.places[index], &mut self.network);
        let recorded = self.stream.capture(|stream| {
            // SAFETY: this only records; `launch` answers for each launch.
            unsafe { queue(place, network, count, stream, Event::record_external) }
        });
        match recorded {
            Ok((graph, ())) => place.graphs[count - 1] = Some(graph),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                log::warn!("this network is not run as one CUDA graph, which costs the CPU some time: {error}");
                self.recording = false;
            }
        }
        Ok(())
    }
}

impl Way for CudaWay {
    fn spec(&self) -> &PreprocessSpec {
        &self.spec
    }

    fn outputs(&self) -> &[TensorInfo] {
        self.network.outputs()
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<Flight, DetectorError> {
        let began = Instant::now();
        let free = (0..self.places.len()).find(|index| !self.aloft.contains(index));
        let index = free.ok_or(DetectorError::Busy { flights: self.places.len() })?;
        let place = &mut self.places[index];
        (place.begun, place.done) = (frames.len(), false);
        // The place's last run is done, so its descriptions and staged frames are free.
        place.preprocessor.prepare(frames)?;
        if let Err(error) = self.launch(index, frames) {
            // Whatever was queued must not read the frames, or write to the place, once this has returned.
            self.stream.synchronize()?;
            return Err(error);
        }
        let place = &mut self.places[index];
        place.launch_us = micros(began.elapsed());
        // Frames that were lent to the stream come back at the end of all that is on it.
        let lent = frames.iter().any(FrameView::needs_attaching);
        if lent { place.end.wait() } else { place.loaded.wait() }?;
        self.aloft.push_back(index);
        Ok(Flight::new(index))
    }

    fn finish(&mut self, flight: Flight) -> Result<RunTimings, DetectorError> {
        if self.aloft.front() != Some(&flight.index()) {
            return Err(DetectorError::NotUnderWay);
        }
        self.aloft.pop_front();
        let place = &mut self.places[flight.index()];
        place.end.wait()?;
        self.warm = true;
        place.done = true;
        Ok(RunTimings {
            launch_us: place.launch_us,
            preprocess_us: place.loaded.elapsed_us(&place.start)? as u64,
            infer_us: place.end.elapsed_us(&place.loaded)? as u64,
        })
    }

    fn mapping(&self, flight: Flight, slot: usize) -> Option<Mapping> {
        let place = self.places.get(flight.index())?;
        (place.done && slot < place.begun).then(|| place.preprocessor.mapping(slot))
    }

    fn decode(
        &mut self,
        flight: Flight,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError> {
        let place = self.places.get(flight.index()).ok_or(DetectorError::NotUnderWay)?;
        let input_size = (self.spec.width, self.spec.height);
        place.reader.decode(slot, &self.network, input_size, score_threshold, head, decoded)?;
        if decoded.lost > 0 && self.counts.lost_candidates == 0 {
            log::warn!(
                "a frame had {} candidates more than the GPU's filter has room for; any of them may be missing: raise \
                 score_threshold (told once, then counted as lost candidates)",
                decoded.lost
            );
        }
        self.counts.lost_candidates += decoded.lost as u64;
        Ok(())
    }

    fn counts(&self) -> RunCounts {
        let copied_bytes = self.places.iter().map(|place| place.preprocessor.copied_bytes()).sum();
        RunCounts { copied_bytes, ..self.counts }
    }

    fn flights(&self) -> usize {
        self.places.len()
    }

    fn raw_output(&self, _index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Err(DetectorError::NoRawOutputs)
    }

    fn frames_run(&self) -> usize {
        0
    }
}

/// Queues a run on the stream: preprocess, the mark behind it, network, filter or copies.
///
/// # Safety
/// The place's preprocessor has prepared at least `count` frames, which stay until the mark is reached; its last run is done;
/// place and network outlive the run, and in a recording every launch of it.
unsafe fn queue(
    place: &mut Place,
    network: &mut Network,
    count: usize,
    stream: &CudaStream,
    mark: impl FnOnce(&Event, &CudaStream) -> Result<(), CudaError>,
) -> Result<(), DetectorError> {
    let picture = network.picture();
    // SAFETY: the picture's buffer has room for the whole batch; the rest is the caller's promise.
    unsafe { place.preprocessor.enqueue(picture, count, stream) }?;
    mark(&place.loaded, stream)?;
    // SAFETY: the network owns its tensors; the caller keeps it.
    unsafe { network.enqueue(count, stream) }?;
    // SAFETY: the outputs were just written for `count` frames; the rest is the caller's promise.
    unsafe { place.reader.enqueue(network, count, stream) }
}

impl Drop for CudaWay {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            log::debug!("{error}");
        }
    }
}
