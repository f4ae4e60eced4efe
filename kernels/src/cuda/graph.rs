//! A stream's work, recorded once and launched as one unit.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::driver::flags;
use super::{CudaError, CudaStream, Device};

/// Recorded work: one call launches what took many calls.
pub struct Graph {
    device: Arc<Device>,
    runnable: CUgraphExec,
}

// SAFETY: a graph may be launched on any thread; `launch` takes `&mut self`, so never on two at once.
unsafe impl Send for Graph {}

impl CudaStream {
    /// Records what `body` queues on this stream instead of running it.
    ///
    /// Other threads are not affected (capture mode thread-local); `body` itself must not allocate, synchronise, or wait: CUDA
    /// then ends the recording with an error. If `body` fails, the recording is dropped and nothing has run.
    pub fn capture<T, E: From<CudaError>>(&self, body: impl FnOnce(&Self) -> Result<T, E>) -> Result<(Graph, T), E> {
        let device = self.device();
        device.bind()?;
        // SAFETY: the stream is alive; the context is current. `recording` ends the capture on every path.
        unsafe { device.driver.capture_begin(self.handle(), flags::STREAM_CAPTURE_MODE_THREAD_LOCAL) }?;
        let recording = Recording { stream: self, open: true };
        let out = body(self)?;
        let graph = recording.finish()?;
        device.bind()?;
        let mut runnable = ptr::null_mut();
        // SAFETY: `runnable` outlives the call; `graph` is a graph just recorded.
        let instantiated = unsafe { device.driver.graph_instantiate(&mut runnable, graph, 0) };
        destroy_template(device, graph);
        instantiated?;
        Ok((Graph { device: device.clone(), runnable }, out))
    }
}

impl Graph {
    /// Queues the recorded work on `stream` and returns without waiting. A launch waits on the GPU for the previous one.
    ///
    /// # Safety
    /// Everything that was recorded still exists: buffers, modules, engine contexts, and external events. The promises given
    /// for each recorded call hold again for this launch, until its work is done.
    pub unsafe fn launch(&mut self, stream: &CudaStream) -> Result<(), CudaError> {
        self.device.bind()?;
        // SAFETY: graph and stream are alive and of this context; the rest is the caller's promise.
        unsafe { self.device.driver.graph_launch(self.runnable, stream.handle()) }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:p})", self.runnable)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let destroyed = self.device.bind().and_then(|()| {
            // SAFETY: made by `capture` and destroyed once, here; the driver finishes launches in flight.
            unsafe { self.device.driver.graph_runnable_destroy(self.runnable) }
        });
        if let Err(error) = destroyed {
            log::warn!("{error}");
        }
    }
}

/// A capture in progress. Dropping it ends the capture, or the stream would stay unusable.
struct Recording<'a> {
    stream: &'a CudaStream,
    open: bool,
}

impl Recording<'_> {
    /// Ends the capture and returns the graph, which the caller destroys.
    fn finish(mut self) -> Result<CUgraph, CudaError> {
        self.open = false;
        self.end()
    }

    fn end(&self) -> Result<CUgraph, CudaError> {
        let device = self.stream.device();
        device.bind()?;
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` outlives the call; this thread began the capture on this stream. This call also ends a capture that
        // CUDA has invalidated, with an error and a null graph.
        unsafe { device.driver.capture_end(self.stream.handle(), &mut graph) }?;
        Ok(graph)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        match self.end() {
            Ok(graph) => destroy_template(self.stream.device(), graph),
            Err(error) => log::debug!("abandoned a recording: {error}"),
        }
    }
}

fn destroy_template(device: &Device, graph: CUgraph) {
    if graph.is_null() {
        return;
    }
    // SAFETY: nothing else refers to `graph`; what was made from it is independent of it.
    if let Err(error) = unsafe { device.driver.graph_destroy(graph) } {
        log::warn!("{error}");
    }
}
