//! What belongs to one flight, and what is queued for a run of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_kernels::cuda::{CudaError, CudaStream, Device, Event, Graph};
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;

use super::gpu_model::GpuModel;
use super::readback::Readback;
use crate::detector::error::DetectorError;
use crate::detector::run::RunTimings;

/// A run that is not over when a nap is.
const LONG_RUN_US: u64 = 200;
/// How long the mark behind the preprocess of a shorter run is looked at before the first nap, and the first nap at most.
const SPIN: Duration = Duration::from_micros(25);

/// What belongs to one flight.
pub(super) struct RunState {
    /// By the number of frames, from 1 on.
    pub(super) graphs: Vec<Graphs>,
    pub(super) preprocessor: CudaPreprocessor,
    pub(super) readback: Readback,
    /// Before the preprocess, and behind it.
    pub(super) preprocess_start: Event,
    pub(super) preprocess_end: Event,
    /// Before the network and behind it, where they are apart from the rest.
    pub(super) network_start: Event,
    pub(super) network_end: Event,
    /// Behind it all.
    pub(super) end: Event,
    /// Whether preprocess and filter of the run were beside another run's network.
    pub(super) overlapped: bool,
    pub(super) launch_us: u64,
    /// Frames of the run under way, or of the last.
    pub(super) frames: usize,
    /// Whether that run is finished.
    pub(super) done: bool,
}

/// What was recorded for one number of frames.
#[derive(Default)]
pub(super) struct Graphs {
    /// Preprocess, network, filter.
    whole: Option<Graph>,
    /// Network.
    model: Option<Graph>,
}

impl Graphs {
    pub(super) fn of(&mut self, overlapped: bool) -> &mut Option<Graph> {
        if overlapped { &mut self.model } else { &mut self.whole }
    }
}

impl RunState {
    /// Allocates all that it will need but the graphs.
    pub(super) fn new(
        spec: &PreprocessSpec,
        device: &Arc<Device>,
        batch: usize,
        readback: Readback,
    ) -> Result<Self, DetectorError> {
        Ok(Self {
            graphs: (0..batch).map(|_| Graphs::default()).collect(),
            preprocessor: CudaPreprocessor::new(spec, device, batch)?,
            readback,
            preprocess_start: Event::silent(device)?,
            preprocess_end: Event::silent(device)?,
            network_start: Event::silent(device)?,
            network_end: Event::silent(device)?,
            end: Event::new(device)?,
            overlapped: false,
            launch_us: 0,
            frames: 0,
            done: false,
        })
    }

    /// Waits until the frames were read.
    ///
    /// Waiting for an event asleep costs several times the CPU time of a nap, most of it inside the driver. A nap takes some
    /// 60 us however short it was meant, which does not matter to frames that come every few milliseconds, nor to a run that
    /// goes on for longer; of a shorter one the mark is looked at for a moment first.
    pub(super) fn wait_for_preprocess(&self, last: &RunTimings) -> Result<(), CudaError> {
        if last.infer_us >= LONG_RUN_US {
            std::thread::sleep(Duration::from_micros(last.preprocess_us).min(SPIN));
            return self.preprocess_end.wait();
        }
        let began = Instant::now();
        while began.elapsed() < SPIN {
            if self.preprocess_end.is_done()? {
                return Ok(());
            }
        }
        self.preprocess_end.wait()
    }
}

/// How an event marks a place in a stream: at once, or in a recording for those outside.
pub(super) type Mark = fn(&Event, &CudaStream) -> Result<(), CudaError>;

/// Queues the preprocess into the picture of a place, and the mark behind it.
///
/// # Safety
/// The place's preprocessor has prepared at least `count` frames, which stay until the mark is reached; its last run is done;
/// place and network outlive the run, and in a recording every launch of it.
pub(super) unsafe fn enqueue_preprocess(
    run: &mut RunState,
    model: &GpuModel,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    // SAFETY: the picture's buffer has room for the whole batch; the rest is the caller's promise.
    unsafe {
        run.preprocessor.enqueue(model.picture(index), count, stream)?;
        model.clear_from(index, count, stream)?;
    }
    Ok(mark(&run.preprocess_end, stream)?)
}

/// Queues a run: preprocess, network, filter or copies, and the marks; of a run apart, the network.
///
/// # Safety
/// As for [`load`]; a preprocess apart is done by then. The stream is the one of all networks.
pub(super) unsafe fn enqueue_run(
    run: &mut RunState,
    model: &mut GpuModel,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    if run.overlapped {
        mark(&run.network_start, stream)?;
        // SAFETY: the network owns its tensors, and its outputs are for `count` frames; the rest is the caller's promise.
        return unsafe { model.enqueue(index, count, stream) };
    }
    mark(&run.preprocess_start, stream)?;
    // SAFETY: as above.
    unsafe {
        enqueue_preprocess(run, model, index, count, stream, mark)?;
        model.enqueue(index, count, stream)?;
        enqueue_readback(run, model, index, count, stream, mark)
    }
}

/// Queues filter or copies of a place's outputs, and the mark at the end.
///
/// # Safety
/// As for [`load`]; the outputs are written by then.
pub(super) unsafe fn enqueue_readback(
    run: &mut RunState,
    model: &GpuModel,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    // SAFETY: the caller's promise.
    unsafe { run.readback.enqueue(model, index, count, stream) }?;
    Ok(mark(&run.end, stream)?)
}
