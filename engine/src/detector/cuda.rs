//! The way on the GPU: preprocess, network and candidate filter, without the host in between.
//!
//! A run that finds the GPU free is one CUDA graph on one stream. While another run is under way, preprocess and filter go on
//! streams of their own, so that they run beside the other's network and the frames are free sooner; only the network waits
//! its turn. The same way go frames that must be lent to a stream, which a graph cannot do. Networks run one after the other:
//! contexts and scratch memory exist once, and so do inputs that no flight changes; the picture, the outputs, the frames'
//! descriptions, the candidates and the events exist once a flight.
//!
//! The first run of each flight, number of frames and kind is queued call by call; behind it the same calls are recorded as
//! the graph that every later run launches. Where CUDA or TensorRT refuses the recording, runs go on call by call. The very
//! first run records nothing, so that its result is there sooner. Networks with an open batch have an execution context for
//! each number of frames: changing the shapes of a context would spoil the graphs that were recorded with it.
//!
//! Nothing is allocated once every flight has run every number of frames that occurs and the frames' sizes are known.

mod network;
mod place;
mod reader;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use visiond_kernels::cuda::{CudaStream, Event};
use visiond_kernels::filter::FilterSpec;
use visiond_kernels::frame::FrameView;
use visiond_kernels::geometry::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

use self::network::Network;
use self::place::{Place, load, read, run};
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
    // Graphs go before the contexts and buffers that they were recorded with; `drop` has waited for the streams by then.
    /// The first flight's from the start on, the others' when they are needed.
    places: Vec<Place>,
    network: Network,
    /// Of the networks.
    stream: CudaStream,
    /// Of a preprocess beside another run's network.
    loader: CudaStream,
    /// Of a filter beside another run's network.
    unloader: CudaStream,
    spec: PreprocessSpec,
    /// How candidates are found; `None` where the outputs are copied whole.
    filter: Option<FilterSpec>,
    /// Places of the runs under way, the oldest first.
    aloft: VecDeque<usize>,
    /// Whether a run was finished.
    warm: bool,
    /// What the last run took.
    last: RunTimings,
    /// Whether recording works.
    recording: bool,
    counts: RunCounts,
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
        let network = Network::new(engine, program, feed, card, FLIGHTS, &stream)?;
        let outputs = network.of_one_frame();
        let head = head(&outputs)?;
        let input_size = (feed.spec.width, feed.spec.height);
        let filter = head.filter(&outputs, input_size, score_threshold);
        if filter.is_none() {
            log::debug!("the outputs are copied whole: no candidate filter for this head and these shapes");
        }
        let reader = Reader::new(filter.as_ref(), &network, device, feed.batch)?;
        let mut places = Vec::with_capacity(FLIGHTS);
        places.push(Place::new(&feed.spec, device, feed.batch, reader)?);
        let way = Self {
            places,
            network,
            stream,
            loader: CudaStream::new(device)?,
            unloader: CudaStream::new(device)?,
            spec: feed.spec.clone(),
            filter,
            aloft: VecDeque::with_capacity(FLIGHTS),
            warm: false,
            last: RunTimings::default(),
            recording: true,
            counts: RunCounts::default(),
        };
        Ok((way, head))
    }

    /// A place without a run under way; made if there are fewer than flights.
    fn free_place(&mut self) -> Result<usize, DetectorError> {
        if let Some(free) = (0..self.places.len()).find(|index| !self.aloft.contains(index)) {
            return Ok(free);
        }
        if self.places.len() == FLIGHTS {
            return Err(DetectorError::Busy { flights: FLIGHTS });
        }
        let (device, batch) = (self.stream.device(), self.network.batch());
        let reader = Reader::new(self.filter.as_ref(), &self.network, device, batch)?;
        self.places.push(Place::new(&self.spec, device, batch, reader)?);
        Ok(self.places.len() - 1)
    }

    /// Queues a run whose frames the place's preprocessor has prepared.
    fn launch(&mut self, index: usize, frames: &[FrameView<'_>]) -> Result<(), DetectorError> {
        let (place, stream, count) = (&mut self.places[index], &self.stream, frames.len());
        // Frames are not lent to a stream within a graph. Apart, they are back as soon as they were read.
        let lent = frames.iter().any(FrameView::needs_attaching);
        let apart = !self.aloft.is_empty() || lent;
        place.apart = apart;
        if apart {
            place.start.record(&self.loader)?;
            for frame in frames {
                // SAFETY: `begin` holds the frames until the stream has come past their `detach`.
                unsafe { frame.attach(&self.loader) }?;
            }
            // SAFETY: the place's last run is done, so the picture is free; this run's frames were prepared, and stay until
            // `begin` has waited for the mark; `drop` waits for the streams before anything goes.
            unsafe { load(place, &self.network, index, count, &self.loader, Event::record) }?;
            if lent {
                frames.iter().try_for_each(|frame| frame.detach(&self.loader))?;
                place.loaded.record(&self.loader)?;
            }
            stream.wait(&place.loaded)?;
        }
        let recorded = match place.graphs[count - 1].of(apart) {
            Some(graph) => {
                // SAFETY: the graph was recorded by `record` with what this place, the network and the stream own, and
                // `drop` waits for the streams before any of it goes; for the frames, as above.
                unsafe { graph.launch(stream) }?;
                self.counts.graph_runs += 1;
                true
            }
            None => {
                self.network.choose(count, stream)?;
                // SAFETY: as above.
                unsafe { run(place, &mut self.network, index, count, stream, Event::record) }?;
                self.counts.single_runs += 1;
                false
            }
        };
        if apart {
            place.ran.record(stream)?;
            self.unloader.wait(&place.ran)?;
            // SAFETY: as above; the stream waits for the outputs, which are this place's own.
            unsafe { read(place, &self.network, index, count, &self.unloader, Event::record) }?;
        }
        if !recorded && self.recording && self.warm && self.network.keeps_shapes() {
            self.record(index, count)?;
        }
        Ok(())
    }

    /// Takes back the frames of a run that failed: nothing that was queued reads them, or writes to the place, behind this. What
    /// fails here as well is logged; the first error is the one to return.
    fn take_back(&self, frames: &[FrameView<'_>]) {
        let detached = frames.iter().map(|frame| frame.detach(&self.loader));
        let ended = [&self.loader, &self.stream, &self.unloader].map(CudaStream::synchronize);
        for error in detached.chain(ended).filter_map(Result::err) {
            log::debug!("after a run that failed: {error}");
        }
    }

    /// Records the graph of a place, a number of frames and a kind, just after the same was queued call by call.
    fn record(&mut self, index: usize, count: usize) -> Result<(), DetectorError> {
        let (place, network) = (&mut self.places[index], &mut self.network);
        // SAFETY: this only records; `launch` answers for each launch.
        let record = |stream: &CudaStream| unsafe { run(place, network, index, count, stream, Event::record_external) };
        let recorded = self.stream.capture(record);
        let place = &mut self.places[index];
        let apart = place.apart;
        match recorded {
            Ok((graph, ())) => *place.graphs[count - 1].of(apart) = Some(graph),
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
        let index = self.free_place()?;
        let place = &mut self.places[index];
        (place.begun, place.done) = (frames.len(), false);
        // The place's last run is done, so its descriptions and staged frames are free.
        place.preprocessor.prepare(frames)?;
        let loaded = self.launch(index, frames).and_then(|()| {
            let place = &mut self.places[index];
            place.launch_us = micros(began.elapsed());
            Ok(place.wait_for_load(&self.last)?)
        });
        if let Err(error) = loaded {
            self.take_back(frames);
            return Err(error);
        }
        self.counts.overlapped_runs += u64::from(!self.aloft.is_empty());
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
        // A run apart has its filter beside another's network, which says nothing of what it takes.
        let network_us = match place.apart {
            true => place.ran.elapsed_us(&place.ready)?,
            false => place.end.elapsed_us(&place.loaded)?,
        };
        self.last = RunTimings {
            launch_us: place.launch_us,
            preprocess_us: place.loaded.elapsed_us(&place.start)? as u64,
            infer_us: network_us as u64,
        };
        Ok(self.last)
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
        FLIGHTS
    }

    fn raw_output(&self, _index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Err(DetectorError::NoRawOutputs)
    }

    fn frames_run(&self) -> usize {
        0
    }
}

impl Drop for CudaWay {
    fn drop(&mut self) {
        for stream in [&self.loader, &self.stream, &self.unloader] {
            if let Err(error) = stream.synchronize() {
                log::debug!("{error}");
            }
        }
    }
}
