//! A stream's work recorded once and launched as one.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::driver::flags;
use super::{CudaError, CudaStream, Device};

/// Recorded work, ready to be launched: one call for what took many.
pub struct Graph {
    device: Arc<Device>,
    runnable: CUgraphExec,
}

// SAFETY: a graph may be launched on any thread; `launch` takes `&mut self`, so never on two at once.
unsafe impl Send for Graph {}

impl CudaStream {
    /// Records what `body` queues on this stream instead of running it.
    ///
    /// Other threads go on as they like (capture mode thread-local); `body` itself must not allocate, synchronise, or wait:
    /// CUDA then ends the recording with an error. When `body` fails, what it recorded is dropped and nothing ran.
    pub fn capture<T, E: From<CudaError>>(&self, body: impl FnOnce(&Self) -> Result<T, E>) -> Result<(Graph, T), E> {
        let device = self.device();
        device.bind()?;
        // SAFETY: the stream is alive; the context is current. `recording` ends the capture on every way out.
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
    /// Queues the recorded work on `stream`; returns without waiting. A launch waits on the GPU for the one before it.
    ///
    /// # Safety
    /// All that was recorded is still there: buffers, modules, engine contexts, and events recorded for the outside. The
    /// promises given for each recorded call hold again for this launch, until its work is done.
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
            // SAFETY: made by `capture` and destroyed once, here; the driver finishes launches under way.
            unsafe { self.device.driver.graph_runnable_destroy(self.runnable) }
        });
        if let Err(error) = destroyed {
            log::warn!("{error}");
        }
    }
}

/// A capture under way: ended on every way out, or the stream would stay unusable.
struct Recording<'a> {
    stream: &'a CudaStream,
    open: bool,
}

impl Recording<'_> {
    /// Ends the capture and hands out what was recorded, which the caller destroys.
    fn finish(mut self) -> Result<CUgraph, CudaError> {
        self.open = false;
        self.end()
    }

    fn end(&self) -> Result<CUgraph, CudaError> {
        let device = self.stream.device();
        device.bind()?;
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` outlives the call; this thread began the capture on this stream. A capture that CUDA has
        // invalidated is ended by this call too, with an error and a null graph.
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
            Err(error) => log::debug!("a recording was given up: {error}"),
        }
    }
}

fn destroy_template(device: &Device, graph: CUgraph) {
    if graph.is_null() {
        return;
    }
    // SAFETY: `graph` is a graph that nobody else holds; what was made from it is independent of it.
    if let Err(error) = unsafe { device.driver.graph_destroy(graph) } {
        log::warn!("{error}");
    }
}
