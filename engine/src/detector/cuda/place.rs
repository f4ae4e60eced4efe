//! What belongs to one flight, and what is queued for a run of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_kernels::cuda::{CudaError, CudaStream, Device, Event, Graph};
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;

use super::network::Network;
use super::reader::Reader;
use crate::detector::RunTimings;
use crate::detector::error::DetectorError;

/// A run that is not over when a nap is.
const LONG_RUN_US: u64 = 200;
/// How long the mark behind the preprocess of a shorter run is looked at before the first nap, and the first nap at most.
const LOOK: Duration = Duration::from_micros(25);

/// What belongs to one flight.
pub(super) struct Place {
    /// By the number of frames, from 1 on.
    pub(super) graphs: Vec<Graphs>,
    pub(super) preprocessor: CudaPreprocessor,
    pub(super) reader: Reader,
    /// Before the preprocess, and behind it.
    pub(super) start: Event,
    pub(super) loaded: Event,
    /// Before the network and behind it, where they are apart from the rest.
    pub(super) ready: Event,
    pub(super) ran: Event,
    /// Behind it all.
    pub(super) end: Event,
    /// Whether preprocess and filter of the run were beside another run's network.
    pub(super) apart: bool,
    pub(super) launch_us: u64,
    /// Frames of the run under way, or of the last.
    pub(super) begun: usize,
    /// Whether that run is finished.
    pub(super) done: bool,
}

/// What was recorded for one number of frames.
#[derive(Default)]
pub(super) struct Graphs {
    /// Preprocess, network, filter.
    whole: Option<Graph>,
    /// Network.
    network: Option<Graph>,
}

impl Graphs {
    pub(super) fn of(&mut self, apart: bool) -> &mut Option<Graph> {
        if apart { &mut self.network } else { &mut self.whole }
    }
}

impl Place {
    /// Allocates all that it will need but the graphs.
    pub(super) fn new(
        spec: &PreprocessSpec,
        device: &Arc<Device>,
        batch: usize,
        reader: Reader,
    ) -> Result<Self, DetectorError> {
        Ok(Self {
            graphs: (0..batch).map(|_| Graphs::default()).collect(),
            preprocessor: CudaPreprocessor::new(spec, device, batch)?,
            reader,
            start: Event::silent(device)?,
            loaded: Event::silent(device)?,
            ready: Event::silent(device)?,
            ran: Event::silent(device)?,
            end: Event::new(device)?,
            apart: false,
            launch_us: 0,
            begun: 0,
            done: false,
        })
    }

    /// Waits until the frames were read.
    ///
    /// Waiting for an event asleep costs several times the CPU time of a nap, most of it inside the driver. A nap takes some
    /// 60 us however short it was meant, which does not matter to frames that come every few milliseconds, nor to a run that
    /// goes on for longer; of a shorter one the mark is looked at for a moment first.
    pub(super) fn wait_for_load(&self, last: &RunTimings) -> Result<(), CudaError> {
        if last.infer_us >= LONG_RUN_US {
            std::thread::sleep(Duration::from_micros(last.preprocess_us).min(LOOK));
            return self.loaded.wait();
        }
        let began = Instant::now();
        while began.elapsed() < LOOK {
            if self.loaded.is_done()? {
                return Ok(());
            }
        }
        self.loaded.wait()
    }
}

/// How an event marks a place in a stream: at once, or in a recording for those outside.
pub(super) type Mark = fn(&Event, &CudaStream) -> Result<(), CudaError>;

/// Queues the preprocess into the picture of a place, and the mark behind it.
///
/// # Safety
/// The place's preprocessor has prepared at least `count` frames, which stay until the mark is reached; its last run is done;
/// place and network outlive the run, and in a recording every launch of it.
pub(super) unsafe fn load(
    place: &mut Place,
    network: &Network,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    // SAFETY: the picture's buffer has room for the whole batch; the rest is the caller's promise.
    unsafe {
        place.preprocessor.enqueue(network.picture(index), count, stream)?;
        network.clear_from(index, count, stream)?;
    }
    Ok(mark(&place.loaded, stream)?)
}

/// Queues a run: preprocess, network, filter or copies, and the marks; of a run apart, the network.
///
/// # Safety
/// As for [`load`]; a preprocess apart is done by then. The stream is the one of all networks.
pub(super) unsafe fn run(
    place: &mut Place,
    network: &mut Network,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    if place.apart {
        mark(&place.ready, stream)?;
        // SAFETY: the network owns its tensors, and its outputs are for `count` frames; the rest is the caller's promise.
        return unsafe { network.enqueue(index, count, stream) };
    }
    mark(&place.start, stream)?;
    // SAFETY: as above.
    unsafe {
        load(place, network, index, count, stream, mark)?;
        network.enqueue(index, count, stream)?;
        read(place, network, index, count, stream, mark)
    }
}

/// Queues filter or copies of a place's outputs, and the mark at the end.
///
/// # Safety
/// As for [`load`]; the outputs are written by then.
pub(super) unsafe fn read(
    place: &mut Place,
    network: &Network,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    // SAFETY: the caller's promise.
    unsafe { place.reader.enqueue(network, index, count, stream) }?;
    Ok(mark(&place.end, stream)?)
}
