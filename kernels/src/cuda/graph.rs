//! A stream's work, recorded once and launched as one unit.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::{CudaError, CudaStream, Device};

/// Recorded work: one call launches the work of many calls.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    runnable: CUgraphExec,
}

// SAFETY: a graph may be launched on any thread; `launch` takes `&mut self`, so never on two at once.
unsafe impl Send for Graph {}

impl CudaStream {
    /// Records the work that `body` queues on this stream instead of running it.
    ///
    /// Other threads are not affected (capture mode thread-local), but a thread that creates a video decoder meanwhile invalidates
    /// the recording; `body` itself must not allocate, synchronise, or wait. CUDA then ends the recording with an error. If `body`
    /// fails, the recording is dropped and nothing has run.
    pub fn capture<T, E: From<CudaError>>(&self, body: impl FnOnce(&Self) -> Result<T, E>) -> Result<(Graph, T), E> {
        let device = self.device();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;
        // SAFETY: the stream is alive; the context is current. `capture` ends the capture on every path.
        unsafe { device.driver()?.capture_begin(self.handle, mode) }?;
        let capture = OpenCapture(self);
        let out = body(self)?;
        let graph = capture.end();
        std::mem::forget(capture);
        let graph = graph?;
        let mut runnable = ptr::null_mut();
        // SAFETY: `runnable` outlives the call; `graph` is a graph just recorded.
        let instantiated = unsafe { device.driver()?.graph_instantiate(&mut runnable, graph, 0) };
        destroy_template(device, graph);
        instantiated?;
        Ok((Graph { device: device.clone(), runnable }, out))
    }
}

impl Graph {
    /// Queues the recorded work on `stream` and returns without waiting. A launch waits on the GPU for the previous one.
    ///
    /// # Safety
    /// All recorded objects still exist: buffers, modules, engine contexts, and external events. The promises given for each
    /// recorded call hold again for this launch, until its work is done.
    pub unsafe fn launch(&mut self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: graph and stream are alive and of this context; the rest is the caller's promise.
        unsafe { self.device.driver()?.graph_launch(self.runnable, stream.handle) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture` and destroyed once, here; the driver finishes launches in flight.
        self.device.release(|driver| unsafe { driver.graph_runnable_destroy(self.runnable) });
    }
}

/// A capture in progress. Dropping it ends the capture; otherwise the stream would stay unusable.
struct OpenCapture<'a>(&'a CudaStream);

impl OpenCapture<'_> {
    /// Ends the capture and returns the graph, which the caller destroys.
    fn end(&self) -> Result<CUgraph, CudaError> {
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` outlives the call; this thread began the capture on this stream. This call also ends a capture that
        // CUDA has invalidated, with an error and a null graph.
        unsafe { self.0.device().driver()?.capture_end(self.0.handle, &mut graph) }?;
        Ok(graph)
    }
}

impl Drop for OpenCapture<'_> {
    fn drop(&mut self) {
        match self.end() {
            Ok(graph) => destroy_template(self.0.device(), graph),
            Err(error) => log::debug!("abandoned a capture: {error}"),
        }
    }
}

fn destroy_template(device: &Device, graph: CUgraph) {
    if !graph.is_null() {
        // SAFETY: nothing else refers to `graph`; what was made from it is independent of it.
        device.release(|driver| unsafe { driver.graph_destroy(graph) });
    }
}
