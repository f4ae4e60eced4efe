//! Runs preprocess, inference and candidate filter on the GPU, without the host in between.
//!
//! If the GPU is free, a run is one CUDA graph on one stream. If another run is in flight, preprocess and filter use streams of
//! their own, so that they overlap the other run's inference and the frames are free sooner; only inference waits its turn. The
//! same happens with frames that must be attached to a stream, which a graph cannot do. Inferences run one at a time:
//! contexts, scratch memory and inputs that do not change exist once. The image, the outputs, the frames' descriptions, the
//! candidates and the events exist once per run in flight.
//!
//! The first run of each index, batch size and kind is queued call by call; then the same calls are recorded as the graph
//! that every later run launches. If CUDA or TensorRT rejects the recording, runs continue call by call, and the recording is
//! retried a few times, because CUDA rejects it while another thread creates a video decoder. The very first run records
//! nothing, so that its result is available sooner. A model with an open batch has an execution context per batch size:
//! changing the shapes of a context would invalidate the graphs that were recorded with it.
//!
//! Masks are not part of the graph, because the objects that need one are known only after the suppression on the host. One
//! launch then computes all masks of a frame.
//!
//! Once every index has run every batch size and frame size that occurs, nothing is allocated except the detections' masks.

mod gpu_masks;
mod gpu_model;
mod readback;
mod recording;
mod run_state;
mod runner;

pub(crate) use runner::CudaRunner;
