//! What runs at one instant: counters that go on counting, and facts that hold until the next change.

use std::path::PathBuf;

use visiond_flow::metrics::LaneView;
use visiond_kernels::buffer::MemoryKind;
use visiond_pipeline::supervisor::Pipeline;

use crate::prepared_config::{Pictures, Running};

/// The models, lanes and annotated cameras that run.
pub struct Snapshot {
    /// The models, one for each of `lanes`.
    pub models: Vec<ModelSnapshot>,
    /// The lanes with their cameras.
    pub lanes: Vec<LaneView>,
    /// The cameras whose pictures are drawn.
    pub pictures: Vec<Pictures>,
}

/// A running model.
pub struct ModelSnapshot {
    /// The model's file.
    pub file: PathBuf,
    /// The SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The backend, with its version and device.
    pub backend: String,
    /// The inputs, such as "images f32 [1, 3, 640, 640]".
    pub input: String,
    /// The memory that holds its frames.
    pub memory: MemoryKind,
}

impl Snapshot {
    pub(super) fn new(running: &Running, pipeline: &Pipeline) -> Self {
        let models = running.models.iter().map(|model| ModelSnapshot {
            file: model.path.clone(),
            sha256: model.loaded.sha256.clone(),
            backend: model.loaded.backend.clone(),
            input: model.loaded.input.clone(),
            memory: model.buffers.memory.kind(),
        });
        let models = models.collect();
        Self { models, lanes: pipeline.lanes(), pictures: running.pictures.clone() }
    }
}
