//! The network without preprocess and filter: what the whole way is measured against.

use visiond_kernels::cuda::{CudaStream, Event, Graph};

use super::network::Network;
use crate::detector::error::DetectorError;

/// Runs of the network alone, on the detector's own context and stream.
pub struct Alone<'a> {
    // Goes before what it was recorded with, which `drop` has waited for.
    graph: Option<Graph>,
    network: &'a mut Network,
    stream: &'a CudaStream,
    frames: usize,
    start: Event,
    end: Event,
}

impl<'a> Alone<'a> {
    /// Warms up, and records the graph if there is to be one.
    pub(super) fn new(
        network: &'a mut Network,
        stream: &'a CudaStream,
        frames: usize,
        graph: bool,
    ) -> Result<Self, DetectorError> {
        let (start, end) = (Event::new(stream.device())?, Event::new(stream.device())?);
        network.choose(frames, stream)?;
        let mut alone = Self { graph: None, network, stream, frames, start, end };
        alone.launch()?;
        alone.wait()?;
        if graph {
            let network = &mut *alone.network;
            // SAFETY: this only records; `launch` answers for each launch.
            let (graph, ()) = stream.capture(|stream| unsafe { network.enqueue(frames, stream) })?;
            alone.graph = Some(graph);
        }
        Ok(alone)
    }

    /// Queues a run; returns without waiting.
    pub fn launch(&mut self) -> Result<(), DetectorError> {
        self.start.record(self.stream)?;
        match &mut self.graph {
            // SAFETY: network and stream are borrowed for as long as this lives, and `drop` waits for the runs.
            Some(graph) => unsafe { graph.launch(self.stream) }?,
            // SAFETY: the input is the detector's own, and holds whatever the last run left; the rest as above.
            None => unsafe { self.network.enqueue(self.frames, self.stream) }?,
        }
        Ok(self.end.record(self.stream)?)
    }

    /// Waits, asleep, for everything that was queued.
    pub fn wait(&mut self) -> Result<(), DetectorError> {
        Ok(self.end.wait()?)
    }

    /// What the last run took on the GPU, in microseconds, once it was waited for.
    pub fn gpu_us(&self) -> Result<f64, DetectorError> {
        Ok(self.end.elapsed_us(&self.start)?)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            log::debug!("{error}");
        }
    }
}
