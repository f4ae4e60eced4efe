//! A model made ready: its file, what runs it, its card; and the exit status of whatever is wrong with one of them.

use std::sync::Arc;

use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::card::Card;
use visiond_engine::detector::{Detector, DetectorError, Limits};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_flow::message::ModelFacts;
use visiond_kernels::cuda::Device;
use visiond_system::exit::{Exit, ExitError};

/// A network with its card, to make detectors of.
#[derive(Debug)]
pub struct Network {
    /// The network.
    pub engine: Engine,
    /// How to feed and read it.
    pub card: Card,
    limits: Limits,
    name: String,
}

impl Network {
    /// Loads a model as it is configured.
    pub fn load(model: &ModelConfig, engine: &EngineConfig) -> Result<Self, ExitError> {
        let name = &model.name;
        let options = EngineOptions { sha256: model.sha256.clone(), ..engine.options(&model.input_shapes) };
        let engine = Engine::load(&model.path, &options)
            .map_err(|error| ExitError::new(Exit::Model, format!("model {name}: {error}")))?;
        let card = model.card.as_deref();
        let card = Card::for_model(&model.path, card, engine.metadata(), engine.inputs(), engine.outputs())
            .map_err(|error| ExitError::new(Exit::Config, format!("model {name}: {error}")))?;
        let limits = Limits {
            score_threshold: model.score_threshold.map(|score| score as f32),
            iou_threshold: model.iou_threshold.map(|iou| iou as f32),
            max_detections: model.max_detections,
            classes: model.classes.clone(),
            max_batch: model.max_batch,
            raw_outputs: false,
        };
        Ok(Self { engine, card, limits, name: name.clone() })
    }

    /// A detector with a session of its own.
    pub fn detector(&self) -> Result<Detector, DetectorError> {
        Detector::new(&self.engine, &self.card, &self.limits)
    }

    /// A detector whose outputs can be looked at as they come out of the network.
    pub fn raw_detector(&self) -> Result<Detector, DetectorError> {
        Detector::new(&self.engine, &self.card, &Limits { raw_outputs: true, ..self.limits.clone() })
    }

    /// A detector as [`Network::detector`], for a command that cannot go on without.
    pub fn required_detector(&self) -> Result<Detector, ExitError> {
        self.detector().map_err(|error| detector_error(&format_args!("model {}", self.name), &error))
    }

    /// The GPU that runs it, where one does.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.engine.tensorrt().map(|engine| engine.device())
    }

    /// What messages say of it.
    pub fn facts(&self) -> ModelFacts {
        ModelFacts { name: self.name.clone(), sha256: self.engine.file().sha256.clone() }
    }
}

/// The exit status for a run that failed.
pub fn run_exit(error: &DetectorError) -> Exit {
    if error.is_fatal() { Exit::Gpu } else { Exit::Model }
}

/// Why a network cannot detect, with its exit status.
pub fn detector_error(name: &dyn std::fmt::Display, error: &DetectorError) -> ExitError {
    let exit = match error {
        error if error.is_fatal() => Exit::Gpu,
        DetectorError::Engine(_) | DetectorError::Preprocess(_) => Exit::Model,
        // Card or limits ask for what the network has not.
        _ => Exit::Config,
    };
    ExitError::new(exit, format!("{name}: {error}"))
}
