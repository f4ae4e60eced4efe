//! The sample model as the rows use it: loaded, with its card, as a detector.

use std::path::Path;

use visiond_engine::card::Card;
use visiond_engine::detector::{Detector, DetectorOptions};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_kernels::cuda::StreamPriority;

use crate::report::Failure;
use crate::setup::Setup;

/// A model with its card.
pub struct Network {
    /// The model.
    pub engine: Engine,
    card: Card,
}

impl Network {
    /// Loads the model at `path`, an engine or an ONNX file, with the card beside the ONNX file.
    pub fn load(setup: &Setup, path: &Path) -> Result<Self, Failure> {
        let engine = Engine::load(path, &options(setup))?;
        let card = setup.arguments.model.with_extension("toml");
        let card = Card::for_model(path, Some(&card), engine.metadata(), engine.inputs(), engine.outputs())?;
        Ok(Self { engine, card })
    }

    /// Makes a detector for scores of `threshold` or more, without suppression of overlapping boxes.
    pub fn candidates(&self, threshold: f32) -> Result<Detector, Failure> {
        let limits = DetectorOptions {
            score_threshold: Some(threshold),
            iou_threshold: Some(1.0),
            max_detections: Some(10_000),
            ..DetectorOptions::default()
        };
        Ok(Detector::new(&self.engine, &self.card, &limits)?)
    }

    /// Makes a detector whose work on the GPU has this priority.
    pub fn with_priority(&self, priority: StreamPriority) -> Result<Detector, Failure> {
        let options = DetectorOptions { priority, ..DetectorOptions::default() };
        Ok(Detector::new(&self.engine, &self.card, &options)?)
    }

    /// Makes a detector for scores of `threshold` or more.
    pub fn detector(&self, threshold: f32) -> Result<Detector, Failure> {
        let limits = DetectorOptions { score_threshold: Some(threshold), ..DetectorOptions::default() };
        Ok(Detector::new(&self.engine, &self.card, &limits)?)
    }
}

/// Returns the options that engines are opened with.
pub fn options(_setup: &Setup) -> EngineOptions {
    EngineOptions::default()
}
