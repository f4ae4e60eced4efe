//! A loaded model: its engine and its card.

use std::sync::Arc;

use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::card::{Card, CardError};
use visiond_engine::detector::{Detector, DetectorError, DetectorOptions, MaskForm};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_engine::heads::spec::{AttributeKind, AttributeSpec};
use visiond_engine::heads::{Family, HeadSpec};
use visiond_kernels::cuda::Device;
use visiond_message::MessageModel;
use visiond_pipeline::lane_result::{MaskFacts, ModelFacts};
use visiond_telemetry::metrics::ModelValues;

use crate::error::{ModelError, ServiceError};

/// A loaded model with its card. Creates detectors.
#[derive(Debug)]
pub struct LoadedModel {
    /// The engine that runs it.
    pub engine: Engine,
    /// The meaning of its inputs and outputs.
    pub card: Card,
    limits: DetectorOptions,
    masks: MaskFacts,
    name: String,
    /// Whether it runs on detections of another model.
    pub on_crops: bool,
}

impl LoadedModel {
    /// Loads a model as configured, in this process: [`model_trial::load`](crate::model_trial::load) tries it first.
    pub fn load(model: &ModelConfig, engine: &EngineConfig) -> Result<Self, ServiceError> {
        Self::load_with(model, engine, |engine| {
            let card = model.card.as_deref();
            Card::for_model(&model.path, card, engine.metadata(), engine.inputs(), engine.outputs())
        })
    }

    /// Does the same with the card that `card_of` returns.
    pub fn load_with(
        model: &ModelConfig,
        engine: &EngineConfig,
        card_of: impl FnOnce(&Engine) -> Result<Card, CardError>,
    ) -> Result<Self, ServiceError> {
        let name = &model.name;
        let refuse = |error: ModelError| ServiceError::model(name, error);
        let options = EngineOptions { sha256: model.sha256.clone(), ..engine.options(&model.input_shapes) };
        let engine = Engine::load(&model.path, &options).map_err(|error| refuse(error.into()))?;
        let card = card_of(&engine).map_err(|error| refuse(error.into()))?;
        let on_crops = model.on.is_some();
        // Detections in detections have none.
        let masks = if on_crops { MaskForm::None } else { model.masks };
        let limits = DetectorOptions {
            score_threshold: model.score_threshold.map(|score| score as f32),
            iou_threshold: model.iou_threshold.map(|iou| iou as f32),
            max_detections: model.max_detections,
            classes: model.classes.clone(),
            max_batch: model.max_batch,
            masks,
            raw_outputs: false,
            priority: model.priority,
        };
        let masks = MaskFacts { form: masks, tolerance_pixels: model.mask_tolerance_pixels };
        Ok(Self { engine, card, limits, masks, name: name.clone(), on_crops })
    }

    /// Returns the model with another card.
    pub fn with_card(self, card: Card) -> Self {
        Self { card, ..self }
    }

    /// Creates a detector with its own session.
    pub fn detector(&self) -> Result<Detector, DetectorError> {
        Detector::new(&self.engine, &self.card, &self.limits)
    }

    /// Creates a detector whose raw outputs can be read.
    pub fn raw_detector(&self) -> Result<Detector, DetectorError> {
        Detector::new(&self.engine, &self.card, &DetectorOptions { raw_outputs: true, ..self.limits.clone() })
    }

    /// Creates a detector; the error names the model.
    pub fn required_detector(&self) -> Result<Detector, ServiceError> {
        self.detector().map_err(|error| ServiceError::model(&self.name, error))
    }

    /// Returns the GPU that runs it, if one does.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.engine.tensorrt().map(|engine| engine.device())
    }

    /// Returns the facts that the results of its `detector` refer to.
    pub fn facts(&self, detector: &Detector) -> ModelFacts {
        ModelFacts {
            message: Arc::new(MessageModel {
                name: self.name.clone(),
                sha256: self.engine.file().sha256.clone(),
                skeleton: detector.skeleton().to_vec(),
            }),
            labels: detector.labels().to_vec(),
            keypoint_names: detector.keypoint_names().to_vec(),
            score_threshold: detector.score_threshold(),
            masks: self.masks,
            values: Arc::new(ModelValues { labels: detector.labels().to_vec(), ..values_of(&self.card.head) }),
        }
    }
}

/// Returns a head's outputs other than detections.
fn values_of(head: &HeadSpec) -> ModelValues {
    let attributes = match head {
        HeadSpec::Attributes(attributes) => attributes.as_slice(),
        _ => &[],
    };
    let is_number = |attribute: &AttributeSpec| matches!(attribute.kind, AttributeKind::Number { .. });
    ModelValues {
        attributes: attributes.iter().map(|one| (one.name.as_str().into(), is_number(one))).collect(),
        fractions: head.family() == Family::Semantic,
        labels: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_config::types::BackendChoice;
    use visiond_engine::heads::spec::Background;

    use super::*;

    #[test]
    fn messages_get_the_names_of_the_card() {
        // The outputs for the eight colours, read as two classes and two keypoints of three numbers.
        const CARD: &str = "[input]\nfit = \"stretch\"\n[head]\nfamily = \"yolov8\"\nkeypoints = [2, 3]\n\
                            [classes]\nnames = [\"hand\", \"face\"]\n[keypoints]\nnames = [\"wrist\", \"thumb\"]\nskeleton = [[0, 1]]\n";
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("card.toml");
        std::fs::write(&card, CARD).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vm/tiny.onnx").into();
        let config = ModelConfig { name: "hands".to_owned(), path, card: Some(card), ..ModelConfig::default() };
        let engine = EngineConfig { backend: BackendChoice::Rten, ..EngineConfig::default() };
        let loaded = LoadedModel::load(&config, &engine).unwrap();
        let facts = loaded.facts(&loaded.detector().unwrap());
        let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&facts.labels), ["hand", "face"]);
        assert_eq!(names(&facts.keypoint_names), ["wrist", "thumb"]);
        assert_eq!((&*facts.message.name, facts.message.skeleton.as_slice()), ("hands", [[0, 1]].as_slice()));
        assert_eq!(facts.message.sha256, loaded.engine.file().sha256);
    }

    #[test]
    fn a_model_gives_the_attributes_of_its_card_and_the_fractions_of_its_classes() {
        let attribute =
            |name: &str, kind| AttributeSpec { name: name.to_owned(), output: "out".to_owned(), column: None, kind };
        let hair = AttributeKind::Labels { names: vec!["dark".to_owned()], activation: None, multi_label: false };
        let head = HeadSpec::Attributes(vec![
            attribute("hair", hair),
            attribute("age", AttributeKind::Number { scale: 1.0, offset: 0.0 }),
        ]);
        let attributes = vec![("hair".into(), false), ("age".into(), true)];
        assert_eq!(values_of(&head), ModelValues { attributes, ..ModelValues::default() });
        let semantic = HeadSpec::Semantic { activation: None, background: Background::None };
        assert_eq!(values_of(&semantic), ModelValues { fractions: true, ..ModelValues::default() });
    }
}
