//! The buffers and events of one run in flight, and the work queued for it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use visiond_kernels::cuda::{CudaError, CudaStream, Device, Event, Graph};
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;

use super::gpu_model::GpuModel;
use super::readback::Readback;
use crate::detector::error::DetectorError;
use crate::detector::run::RunTimings;

/// A run longer than this outlasts a short sleep.
const LONG_RUN_US: u64 = 200;
/// How long to poll the event after the preprocess of a short run before sleeping.
const SPIN: Duration = Duration::from_micros(25);
/// The maximum duration of the preprocess, including the run's start on the GPU.
const PREPROCESS: Duration = Duration::from_micros(60);
/// The minimum time before the usual end of a run to check for the end first.
const EARLY: Duration = Duration::from_micros(40);
/// The shortest pause between checks whether a run is over.
const SHORTEST_PAUSE: Duration = Duration::from_micros(15);
/// The longest one, which costs a thread 2 % of its core.
const LONGEST_PAUSE: Duration = Duration::from_micros(150);

/// The buffers, events and graphs of one run in flight.
pub(super) struct RunState {
    /// By batch size, from 1 on: the graph of preprocess, inference and filter, and that of inference only, for overlapped runs.
    pub(super) graphs: Vec<[Option<Graph>; 2]>,
    pub(super) preprocessor: CudaPreprocessor,
    pub(super) readback: Readback,
    /// Before and after the preprocess.
    pub(super) preprocess_start: Event,
    pub(super) preprocess_end: Event,
    /// Before and after inference, if preprocess and filter overlap another run.
    pub(super) inference_start: Event,
    pub(super) inference_end: Event,
    /// At the end of the run.
    pub(super) end: Event,
    /// Whether preprocess and filter of the run overlapped another run's inference.
    pub(super) overlapped: bool,
    pub(super) launch_us: u64,
    /// The batch size of the run in flight, or of the last run.
    pub(super) frames: usize,
    /// Whether that run is finished.
    pub(super) done: bool,
    /// When its preprocess was over, which is when inference starts if no other run is in flight.
    pub(super) read: Instant,
}

impl RunState {
    /// Allocates everything except the graphs.
    pub(super) fn new(
        spec: &PreprocessSpec,
        device: &Arc<Device>,
        batch: usize,
        readback: Readback,
    ) -> Result<Self, DetectorError> {
        Ok(Self {
            graphs: (0..batch).map(|_| [None, None]).collect(),
            preprocessor: CudaPreprocessor::new(spec, device, batch)?,
            readback,
            preprocess_start: Event::silent(device)?,
            preprocess_end: Event::silent(device)?,
            inference_start: Event::silent(device)?,
            inference_end: Event::silent(device)?,
            end: Event::silent(device)?,
            overlapped: false,
            launch_us: 0,
            frames: 0,
            done: false,
            read: Instant::now(),
        })
    }

    /// Waits until the frames were read.
    ///
    /// Blocking on an event costs several times the CPU time of a short sleep, most of it inside the driver. If the run takes
    /// longer anyway, a sleep is no loss; for a shorter run, this polls the event for a moment first.
    pub(super) fn wait_for_preprocess(&mut self, last: &RunTimings) -> Result<(), CudaError> {
        if last.infer_us >= LONG_RUN_US {
            thread::sleep(PREPROCESS);
        } else {
            let began = Instant::now();
            while began.elapsed() < SPIN && !self.preprocess_end.is_done()? {}
        }
        self.preprocess_end.wait()?;
        self.read = Instant::now();
        Ok(())
    }

    /// Waits until the run is over, which began at about `started` and usually takes `usual`, or longer. Returns the time at
    /// which it ended, or the latest possible time.
    ///
    /// Sleeps for most of a run, then checks after short pauses: one check and one pause cost an eighth of a wait that the GPU
    /// interrupts. Sleeping for the whole duration would wake late and delay the next run.
    pub(super) fn wait_for_end(&self, started: Instant, usual: Duration) -> Result<Instant, CudaError> {
        let started = started.max(self.read);
        if self.end.is_done()? {
            return Ok(Instant::now().min(started + usual));
        }
        let most = usual.saturating_sub((usual / 16).max(EARLY));
        thread::sleep((started + most).saturating_duration_since(Instant::now()));
        while !self.end.is_done()? {
            thread::sleep((started.elapsed() / 64).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
        Ok(Instant::now())
    }
}

/// How an event is recorded: directly, or inside a graph for waiters outside it.
pub(super) type Mark = fn(&Event, &CudaStream) -> Result<(), CudaError>;

/// Queues the preprocess into the image of a run, and the event after it.
///
/// # Safety
/// The preprocessor has prepared `count` frames, which stay valid until the event; the last run with this index is
/// done; run state and model outlive the run, and every launch of a recording.
pub(super) unsafe fn enqueue_preprocess(
    run: &mut RunState,
    model: &GpuModel,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    // SAFETY: the image's buffer has room for the whole batch; the caller guarantees the rest.
    unsafe {
        run.preprocessor.enqueue(model.picture(index), count, stream)?;
        model.clear_from(index, count, stream)?;
    }
    Ok(mark(&run.preprocess_end, stream)?)
}

/// Queues a run: preprocess, inference, filter or copies, and the events. For an overlapped run, queues inference only.
///
/// # Safety
/// The same as for [`enqueue_preprocess`]; an overlapped preprocess is done by then. The stream is the one for
/// inference.
pub(super) unsafe fn enqueue_run(
    run: &mut RunState,
    model: &mut GpuModel,
    index: usize,
    count: usize,
    stream: &CudaStream,
    mark: Mark,
) -> Result<(), DetectorError> {
    if run.overlapped {
        mark(&run.inference_start, stream)?;
        // SAFETY: the model owns its tensors, and its outputs are for `count` frames; the caller guarantees the rest.
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

/// Queues the filter or the copies of a run's outputs, and the event at the end.
///
/// # Safety
/// The same as for [`enqueue_preprocess`]; the outputs are written by then.
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
