//! Runs two models on the same pictures and accumulates their differences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use serde::Serialize;
use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
use visiond_engine::card::{Card, CardError};
use visiond_engine::compare::{
    Agreement, CompareError, OutputPairs, TensorDifference, ValueAgreement, ValueLimits, pair_outputs, same_feed,
};
use visiond_engine::detector::{Detection, Detector, DetectorError, DetectorOptions};
use visiond_engine::engine::{Engine, EngineOptions, ModelFile};
use visiond_frames::frame::Frame;
use visiond_kernels::frame::FrameView;
use visiond_service::{ServiceError, detector_exit, model_trial};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;
use visiond_system::stop::Stop;

use super::track_comparison::TrackComparison;
use crate::load_limits::LoadLimits;
use crate::media_decoder::MediaItem;
use crate::mot_file::MotFile;
use crate::output::complain;
use crate::progress::Progress;
use crate::sample_model::stem;

/// The two models, and their accumulated differences.
pub struct Comparison {
    pub runners: [FrameRunner; 2],
    pairs: OutputPairs,
    pub tensors: Vec<TensorDifference>,
    pub agreement: Agreement,
    /// The differences of whole-frame values.
    pub values: ValueAgreement,
    /// The tracks of objects in videos.
    pub tracks: TrackComparison,
    /// The name of each compared picture.
    pub pictures: Vec<String>,
    progress: Progress,
    /// The exit status of the first picture that could not be read.
    pub exit: Exit,
}

impl Comparison {
    pub fn new(
        models: &[ModelWithCard; 2],
        agreement: Agreement,
        values: ValueLimits,
        floor: f64,
        mot: Option<MotFile>,
    ) -> Result<Self, ExitError> {
        let [a, b] = models.each_ref().map(|model| model.card.head.family().name());
        if a != b {
            let message = format!(
                "the card of the first model has the head {a}, that of the second {b}: set the right card for both with --card"
            );
            return Err(ExitError::new(Exit::Config, message));
        }
        let runner = |model| FrameRunner::new(model, floor as f32, models[0].card.iou_threshold, true);
        let (first, second) = (runner(&models[0])?, runner(&models[1])?);
        let [a, b] = [&first.detector, &second.detector];
        let refuse = |error: CompareError| ExitError::new(Exit::Model, error);
        let agreement = agreement.with_keypoints(a.keypoint_names());
        let pairs = pair_outputs(a.outputs(), b.outputs()).map_err(refuse)?;
        same_feed(a.preprocess_spec(), b.preprocess_spec()).map_err(refuse)?;
        let tracks = TrackComparison::new([a, b], values.score_threshold as f32, mot);
        let tensors = a.outputs().iter().map(|info| TensorDifference::new(&info.name)).collect();
        Ok(Self {
            runners: [first, second],
            pairs,
            tensors,
            agreement,
            values: ValueAgreement::within(values),
            tracks,
            pictures: Vec::new(),
            progress: Progress::new(),
            exit: Exit::Success,
        })
    }

    pub fn run(&mut self, items: &Receiver<MediaItem>) -> Result<(), ExitError> {
        for item in items {
            match item {
                MediaItem::Begun { .. } => self.tracks.begin(),
                MediaItem::Frame { is_video: false, frame, .. } if self.tracks.mot.is_some() => {
                    return Err(MotFile::refuse_picture(&frame));
                }
                MediaItem::Frame { is_video, frame, .. } => self.compare(is_video, &frame)?,
                MediaItem::Failed { reason } => self.fail(&reason),
                // The source has logged the error.
                MediaItem::Damaged => self.exit = Exit::Input,
            }
        }
        Ok(())
    }

    fn compare(&mut self, is_video: bool, frame: &Frame) -> Result<(), ExitError> {
        let name = escape(frame.name.as_deref().unwrap_or_default());
        let name = if is_video { format!("{name} frame {}", frame.sequence) } else { name };
        let view = match frame.view() {
            Ok(view) => view,
            Err(error) => {
                self.fail(&format!("{name}: {error}"));
                return Ok(());
            }
        };
        for runner in &mut self.runners {
            runner
                .run(&view)
                .map_err(|error| ExitError::new(Exit::Model.unless_gpu_lost(&error), format!("{name}: {error}")))?;
        }
        let picture = self.pictures.len();
        if is_video {
            self.tracks.add(frame, self.runners.each_ref().map(|runner| (&runner.detector, &*runner.found)))?;
        }
        let [first, second] = &self.runners;
        let [a, b] = [&first.detector, &second.detector];
        let frames = (a.frames_run(), b.frames_run());
        let refuse = |error: &dyn std::fmt::Display| ExitError::new(Exit::Model, format!("{name}: {error}"));
        for (index, (difference, &other)) in self.tensors.iter_mut().zip(&self.pairs).enumerate() {
            let a = a.raw_output(index).map_err(|error| refuse(&error))?;
            let b = b.raw_output(other).map_err(|error| refuse(&error))?;
            difference.add(picture, a, b, frames).map_err(|error| refuse(&error))?;
        }
        self.agreement.add(picture, &first.found, &second.found);
        self.values.add(picture, first.detector.values(), second.detector.values());
        self.pictures.push(name);
        let (count, name) = (self.pictures.len(), &self.pictures[picture]);
        self.progress.tell(|| format!("{count} pictures compared, the last {name}"));
        Ok(())
    }

    fn fail(&mut self, reason: &str) {
        complain(reason);
        self.exit = Exit::Input;
    }
}

/// A model with its card.
pub struct ModelWithCard {
    pub engine: Engine,
    pub card: Card,
}

/// Loads both models. If only one of them has a card, both use it.
pub fn load_both(
    named: [(&Path, BackendChoice); 2],
    card: Option<&Path>,
    trial: &LoadLimits,
) -> Result<[ModelWithCard; 2], ExitError> {
    let [a, b] = named.map(|(path, backend)| load_engine(path, backend, card, trial));
    let ((engine_a, card_a), (engine_b, card_b)) = (a?, b?);
    let card_a = own_or_other(card_a, card_b.as_ref().ok(), &engine_a)?;
    let card_b = own_or_other(card_b, Some(&card_a), &engine_b)?;
    Ok([ModelWithCard { engine: engine_a, card: card_a }, ModelWithCard { engine: engine_b, card: card_b }])
}

/// Loads a model that has a card.
pub fn load(
    path: &Path,
    backend: BackendChoice,
    card: Option<&Path>,
    trial: &LoadLimits,
) -> Result<ModelWithCard, ExitError> {
    let (engine, card) = load_engine(path, backend, card, trial)?;
    let card = own_or_other(card, None, &engine)?;
    Ok(ModelWithCard { engine, card })
}

/// Tries a model, loads it, and looks for its card.
fn load_engine(
    path: &Path,
    backend: BackendChoice,
    card: Option<&Path>,
    trial: &LoadLimits,
) -> Result<(Engine, Result<Card, CardError>), ExitError> {
    let stop = Stop::new().map_err(ExitError::system)?;
    let config = trial.of(EngineConfig { backend, ..EngineConfig::default() });
    let card_file = card.map(Path::to_owned);
    let model = ModelConfig { name: stem(path), path: path.to_owned(), card: card_file, ..ModelConfig::default() };
    let sha256 = match model_trial::try_model(&model, &config, &stop) {
        // The model loads without it, and the other model's card may fit.
        Err(error) if error.exit() == Exit::Config => None,
        Err(error) => {
            let exit = error.exit();
            // The error names the model by its path.
            return Err(match error {
                ServiceError::Model { error, .. } => ExitError::new(exit, error),
                other => ExitError::new(exit, other),
            });
        }
        Ok(sha256) => sha256,
    };
    let options = EngineOptions { sha256, ..config.options(&BTreeMap::new()) };
    let engine =
        Engine::load(path, &options).map_err(|error| ExitError::new(Exit::Model.unless_gpu_lost(&error), error))?;
    let card = Card::for_model(path, card, engine.metadata(), engine.inputs(), engine.outputs());
    Ok((engine, card))
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

/// A model as the report lists it.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedModel {
    pub file: PathBuf,
    sha256: String,
    /// The backend with its version.
    pub backend: String,
}

/// Runs a model on pictures.
pub struct FrameRunner {
    pub model: ComparedModel,
    pub detector: Detector,
    /// The detections of the last picture, best first.
    pub found: Vec<Detection>,
}

impl FrameRunner {
    /// Prepares a detector that returns detections with a score of at least `score_threshold`, and `raw_outputs` if asked.
    pub fn new(
        model: &ModelWithCard,
        score_threshold: f32,
        iou_threshold: f32,
        raw_outputs: bool,
    ) -> Result<Self, ExitError> {
        let limits = DetectorOptions {
            score_threshold: Some(score_threshold),
            iou_threshold: Some(iou_threshold),
            max_batch: 1,
            raw_outputs,
            ..DetectorOptions::default()
        };
        let ModelFile { path, sha256, .. } = model.engine.file().clone();
        let detector = Detector::new(&model.engine, &model.card, &limits)
            .map_err(|error| ExitError::new(detector_exit(&error), format!("{}: {error}", path.display())))?;
        let backend = model.engine.backend_description().to_owned();
        Ok(Self { model: ComparedModel { file: path, sha256, backend }, detector, found: Vec::new() })
    }

    /// Runs the model on a picture.
    pub fn run(&mut self, picture: &FrameView<'_>) -> Result<(), DetectorError> {
        let run_id = self.detector.begin(std::slice::from_ref(picture))?;
        self.detector.finish(run_id)?;
        self.detector.detections(run_id, 0, &mut self.found)
    }
}
