//! What runs, at one instant: counters that go on counting, and facts that stay until the next change.

use std::path::PathBuf;

use visiond_flow::metrics::LaneView;
use visiond_kernels::buffer::MemoryKind;
use visiond_pipeline::supervisor::Pipeline;

use super::plan::{Pictures, Running};

/// What runs.
pub struct View {
    /// The models, one for each of `lanes`.
    pub models: Vec<ModelView>,
    /// The lanes with their cameras.
    pub lanes: Vec<LaneView>,
    /// Cameras that pictures are drawn of.
    pub pictures: Vec<Pictures>,
}

/// A model that runs.
pub struct ModelView {
    /// Its file.
    pub file: PathBuf,
    /// Of its file.
    pub sha256: String,
    /// What runs it.
    pub backend: String,
    /// What it takes.
    pub input: String,
    /// The memory that its frames live in.
    pub memory: MemoryKind,
}

impl View {
    pub(super) fn new(running: &Running, pipeline: &Pipeline) -> Self {
        let models = running.models.iter().map(|model| ModelView {
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
