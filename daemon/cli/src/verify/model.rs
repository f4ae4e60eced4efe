//! One of the two models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use visiond_config::types::{BackendChoice, EngineConfig};
use visiond_engine::card::{Card, CardError};
use visiond_engine::detector::{Detection, Detector, DetectorError, DetectorOptions};
use visiond_engine::engine::Engine;
use visiond_kernels::frame::FrameView;
use visiond_service::loaded_model::detector_exit;
use visiond_system::exit::{Exit, ExitError};

/// A model with its card.
pub struct LoadedModel {
    /// The loaded model.
    pub engine: Engine,
    /// Its model card.
    pub card: Card,
}

/// Loads both models. If only one of them has a card, both use it.
pub fn load(named: [(&Path, BackendChoice); 2], card: Option<&Path>) -> Result<[LoadedModel; 2], ExitError> {
    let [a, b] = named.map(|(path, backend)| {
        let config = EngineConfig { backend, ..EngineConfig::default() };
        let engine = Engine::load(path, &config.options(&BTreeMap::new()))
            .map_err(|error| ExitError::new(Exit::Model, error))?;
        let card = Card::for_model(path, card, engine.metadata(), engine.inputs(), engine.outputs());
        Ok::<_, ExitError>((engine, card))
    });
    let ((engine_a, card_a), (engine_b, card_b)) = (a?, b?);
    let card_a = own_or_other(card_a, card_b.as_ref().ok(), &engine_a)?;
    let card_b = own_or_other(card_b, Some(&card_a), &engine_b)?;
    Ok([LoadedModel { engine: engine_a, card: card_a }, LoadedModel { engine: engine_b, card: card_b }])
}

/// Returns the model's own card, or `other` if it has none.
fn own_or_other(card: Result<Card, CardError>, other: Option<&Card>, engine: &Engine) -> Result<Card, ExitError> {
    match (card, other) {
        (Err(CardError::Missing { .. }), Some(other)) => {
            log::info!("{} has no card of its own: using {}", engine.file().path.display(), other.origin);
            Ok(other.clone())
        }
        (card, _) => card.map_err(|error| ExitError::new(Exit::Config, error)),
    }
}

/// Runs a model on pictures.
pub struct ModelRunner {
    /// The model's file.
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The backend with its version.
    pub backend: String,
    /// The detector with the model.
    pub detector: Detector,
    /// The detections of the last picture, best first.
    pub found: Vec<Detection>,
}

impl ModelRunner {
    /// Prepares a detector that returns detections with a score of at least `score_threshold`.
    pub fn new(loaded: &LoadedModel, score_threshold: f32, iou_threshold: f32) -> Result<Self, ExitError> {
        let LoadedModel { engine, card } = loaded;
        let limits = DetectorOptions {
            score_threshold: Some(score_threshold),
            iou_threshold: Some(iou_threshold),
            max_batch: 1,
            raw_outputs: true,
            ..DetectorOptions::default()
        };
        let path = engine.file().path.clone();
        let detector = Detector::new(engine, card, &limits)
            .map_err(|error| ExitError::new(detector_exit(&error), format!("{}: {error}", path.display())))?;
        Ok(Self {
            sha256: engine.file().sha256.clone(),
            backend: engine.backend_description().to_owned(),
            path,
            detector,
            found: Vec::new(),
        })
    }

    /// Runs the model on a picture.
    pub fn run(&mut self, picture: &FrameView<'_>) -> Result<(), DetectorError> {
        let flight = self.detector.begin(std::slice::from_ref(picture))?;
        self.detector.finish(flight)?;
        self.detector.detections(flight, 0, &mut self.found)
    }
}
