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

mod gpu_model;
mod readback;
mod run_state;
mod runner;

pub(crate) use runner::CudaRunner;
