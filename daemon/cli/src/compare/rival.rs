//! The new model of a comparison, which sees frames as the cameras' model does.

use std::path::{Path, PathBuf};

use visiond_config::types::{CameraConfig, Config, EngineConfig, ModelConfig};
use visiond_engine::compare::{Agreement, MatchLimits};
use visiond_engine::detector::{Detection, Detector, DetectorError, DetectorOptions, MaskForm, ViewMerger};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::view::ViewSpec;
use visiond_pipeline::collector::{IgnoredArea, Selection, drop_ignored};
use visiond_service::{detector_exit, model_trial};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use super::live_frame::LiveFrame;

/// How far above the threshold the score of an object must be that only one of the models detects, to count. Two models rarely give an
/// object the same score.
const MARGIN: f64 = 0.1;

/// The least score that is requested of the new model.
const LEAST_SCORE: f64 = 0.01;

/// A camera, and what its model sees and keeps.
pub struct ComparedCamera {
    pub name: String,
    view: ViewSpec,
    selection: Selection,
    ignored: Vec<IgnoredArea>,
}

impl ComparedCamera {
    /// Returns a camera's settings for a model; `None` if the model does not run on its frames.
    pub fn of(config: &Config, camera: &CameraConfig, model: &str) -> Option<Result<Self, ExitError>> {
        let (_, of_camera) = config.models_of(camera).find(|(_, settings)| settings.name == model)?;
        let ignored = camera.ignore.iter().map(|ignore| {
            let polygon = ignore.area().map_err(|error| ExitError::new(Exit::Config, error))?;
            Ok(IgnoredArea { polygon, classes: ignore.classes.clone() })
        });
        Some(ignored.collect::<Result<_, ExitError>>().map(|ignored| Self {
            name: camera.name.clone(),
            view: camera.view_of(&of_camera),
            selection: Selection {
                classes: of_camera.classes,
                score_threshold: of_camera.score_threshold,
                min_size: of_camera.min_size,
                max_size: of_camera.max_size,
            },
            ignored,
        }))
    }
}

/// The new model.
pub struct Rival {
    detector: Detector,
    pub file: PathBuf,
    pub sha256: String,
    pub backend: String,
    /// The least score of its detections.
    threshold: f64,
    found: Vec<Detection>,
    merger: ViewMerger,
    /// Labels of the daemon's model that this one does not have; their class numbers follow its own.
    strange: Vec<String>,
}

impl Rival {
    /// Loads it with the settings of the daemon's model.
    pub fn load(
        path: &Path,
        card: Option<&Path>,
        settings: ModelConfig,
        engine: &EngineConfig,
    ) -> Result<Self, ExitError> {
        let model = ModelConfig {
            path: path.to_owned(),
            card: card.map(Path::to_owned),
            bundle: None,
            sha256: None,
            masks: MaskForm::None,
            ..settings
        };
        let loaded = model_trial::load(&model, engine, &Stop::new().map_err(ExitError::system)?)?;
        let family = loaded.card.head.family();
        if family.gives_values() {
            let message =
                format!("a model of family `{}` has no detections to compare: choose a detector", family.name());
            return Err(ExitError::new(Exit::Usage, message));
        }
        let threshold = model.score_threshold.unwrap_or_else(|| f64::from(loaded.card.score_threshold));
        let options = DetectorOptions {
            // An object that has a lower score now is found all the same.
            score_threshold: Some((threshold - MARGIN).max(LEAST_SCORE).min(threshold) as f32),
            iou_threshold: model.iou_threshold.map(|iou| iou as f32),
            max_detections: model.max_detections,
            classes: model.classes,
            max_batch: 1,
            masks: MaskForm::None,
            ..DetectorOptions::default()
        };
        let detector = Detector::new(&loaded.engine, &loaded.card, &options)
            .map_err(|error| ExitError::new(detector_exit(&error), format!("{}: {error}", model.path.display())))?;
        Ok(Self {
            detector,
            file: model.path,
            sha256: loaded.engine.file().sha256.clone(),
            backend: loaded.engine.backend_description().to_owned(),
            threshold,
            found: Vec::new(),
            merger: ViewMerger::default(),
            strange: Vec::new(),
        })
    }

    /// Returns an agreement with nothing in it yet.
    pub fn agreement(&self, camera: &ComparedCamera) -> Agreement {
        let threshold = camera.selection.score_threshold.unwrap_or(0.0).max(self.threshold);
        let limits =
            MatchLimits { unmatched_margin: MARGIN, max_score_difference: f64::INFINITY, ..MatchLimits::default() };
        Agreement::within(threshold as f32, limits).with_all_of_first()
    }

    /// Runs on a frame and compares what it detects with what the daemon's model did; returns how long its runs took, in microseconds.
    pub fn compare(
        &mut self,
        live: &LiveFrame,
        camera: &ComparedCamera,
        agreement: &mut Agreement,
        picture: usize,
    ) -> Result<u64, ExitError> {
        let pixels = live.pixels()?;
        let cannot = |error: String| ExitError::new(Exit::Model, format!("a frame of camera {}: {error}", camera.name));
        let layout = FrameLayout::packed(PixelFormat::Rgb, live.width, live.height, ColorDescription::JPEG);
        let layout = layout.map_err(|error| cannot(error.to_string()))?;
        let view = layout.view(&pixels).map_err(|error| cannot(error.to_string()))?;
        let took_us = self.detect(&view, &camera.view).map_err(|error| {
            let exit = match &*error {
                DetectError::View(_) => Exit::Input,
                DetectError::Run(error) => Exit::Model.unless_gpu_lost(error),
            };
            ExitError::new(exit, format!("a frame of camera {}: {error}", camera.name))
        })?;
        let labels = self.detector.labels();
        let size = (live.width, live.height);
        drop_ignored(&camera.ignored, camera.view.orientation, size, labels, &mut self.found);
        // Scores are judged with their margin.
        let selection = Selection { score_threshold: None, ..camera.selection.clone() };
        selection.keep_wanted(&mut self.found, labels);
        let (labels, strange) = (labels.to_vec(), &mut self.strange);
        let class_of = |label: &str| {
            let own = labels.iter().position(|own| **own == *label);
            own.unwrap_or_else(|| {
                let at = strange.iter().position(|known| known == label).unwrap_or_else(|| {
                    strange.push(label.to_owned());
                    strange.len() - 1
                });
                labels.len() + at
            }) as u32
        };
        let before = live.detections(class_of);
        agreement.add(picture, &before, &self.found);
        Ok(took_us)
    }

    /// Replaces `found` with what it detects in a frame, best first; returns how long its runs took, in microseconds.
    fn detect(&mut self, frame: &FrameView<'_>, view: &ViewSpec) -> Result<u64, Box<DetectError>> {
        let views = view.views(frame.view().picture_size()).map_err(|error| DetectError::View(error.to_string()))?;
        let mut took_us = 0;
        self.merger.clear();
        for index in 0..views.len() {
            let part = frame.viewed(views.get(index)).map_err(|error| DetectError::View(error.to_string()))?;
            let run_id = self.detector.begin(&[part]).map_err(DetectError::Run)?;
            let timings = self.detector.finish(run_id).map_err(DetectError::Run)?;
            took_us += timings.preprocess_us + timings.infer_us;
            self.detector.detections(run_id, 0, &mut self.found).map_err(DetectError::Run)?;
            if views.len() > 1 {
                self.merger.add(&views.get(index), &mut self.found);
            }
        }
        if views.len() > 1 {
            self.merger.merge(&mut self.found);
        }
        Ok(took_us)
    }

    /// Returns the label of a class, of its own or of those that only the daemon's model has.
    pub fn label(&self, class: u32) -> String {
        let labels = self.detector.labels();
        let own = labels.get(class as usize).map(|label| label.to_string());
        let strange = || self.strange.get((class as usize).checked_sub(labels.len())?).cloned();
        own.or_else(strange).unwrap_or_else(|| class.to_string())
    }
}

/// Why a frame has no result.
#[derive(Debug, thiserror::Error)]
enum DetectError {
    #[error("{0}")]
    View(String),
    #[error(transparent)]
    Run(#[from] DetectorError),
}
