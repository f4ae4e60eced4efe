//! The engine alone, to which the pipeline is compared: one context, tensors that nothing fills or reads, one graph.

use std::path::Path;
use std::sync::Arc;

use visiond_engine::engine::{Engine, EngineError};
use visiond_engine::tensorrt::{Library, Scratch, TrtContext, TrtEngine};
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer, Event, Graph};

use crate::report::Failure;

/// An engine ready to be launched.
pub struct Bare {
    // Dropped before the things that it runs.
    graph: Graph,
    done: [Event; Self::SLOTS],
    run: Run,
}

/// A context, its tensors and its stream.
struct Run {
    context: TrtContext,
    stream: CudaStream,
    _tensors: Vec<DeviceBuffer>,
}

impl Bare {
    /// Events, to wait for launches separately.
    pub const SLOTS: usize = 2;

    /// Makes a context of `engine`, warms it with one run and captures it.
    pub fn new(device: &Arc<Device>, engine: &Engine) -> Result<Self, Failure> {
        let engine = engine.tensorrt().ok_or_else(|| Failure::Broken("this is not a TensorRT engine".to_owned()))?;
        let mut run = Run::new(device, engine)?;
        run.once()?;
        let Run { context, stream, .. } = &mut run;
        // SAFETY: the tensors' addresses are those of buffers of their size, which live as long as the graph; the context
        // runs on this stream alone.
        let (graph, ()) = stream.capture(|stream| unsafe { context.enqueue(stream) })?;
        let done = [Event::new(device)?, Event::new(device)?];
        Ok(Self { graph, done, run })
    }

    /// Starts a run.
    pub fn launch(&mut self, slot: usize) -> Result<(), Failure> {
        // SAFETY: context, tensors and stream are kept beside the graph.
        unsafe { self.graph.launch(&self.run.stream) }?;
        Ok(self.done[slot].record(&self.run.stream)?)
    }

    /// Waits, asleep, for the last run that was started in `slot`.
    pub fn wait(&self, slot: usize) -> Result<(), Failure> {
        Ok(self.done[slot].wait()?)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // No run may use tensors that are being dropped. `wait` has reported any error.
        let _ = self.run.stream.synchronize();
    }
}

impl Run {
    fn new(device: &Arc<Device>, engine: &Arc<TrtEngine>) -> Result<Self, Failure> {
        let stream = CudaStream::new(device)?;
        let mut context = engine.context(Scratch::Own)?;
        let mut tensors = Vec::new();
        for tensor in engine.tensors() {
            let elements: usize = context.shape(&tensor.name)?.iter().product();
            let mut buffer = DeviceBuffer::new(device, elements * tensor.dtype.size_bytes())?;
            buffer.zero(&stream)?;
            context.set_address(&tensor.name, buffer.address())?;
            tensors.push(buffer);
        }
        Ok(Self { context, stream, _tensors: tensors })
    }

    fn once(&mut self) -> Result<(), EngineError> {
        // SAFETY: every tensor has a buffer of its size, which outlives the synchronisation; nothing else runs.
        unsafe { self.context.enqueue(&self.stream) }?;
        Ok(self.stream.synchronize()?)
    }
}

/// Performs TensorRT's own steps from a file to the end of a first run: deserialise, create a context, run.
pub fn first_run(device: &Arc<Device>, library: &'static Library, path: &Path) -> Result<(), Failure> {
    let plan = std::fs::read(path)?;
    let engine = TrtEngine::load(library, device, &plan)?;
    Ok(Run::new(device, &engine)?.once()?)
}
