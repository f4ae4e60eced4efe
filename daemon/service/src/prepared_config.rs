//! A configuration that is ready to run: its models are loaded and its image folders are open, beside the running ones.
//!
//! Parts that have not changed are taken over from the running configuration; at the start that one is empty.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use visiond_annotate::annotator::Annotator;
use visiond_capture::Buffers;
use visiond_clips::recorder::ClipRecorder;
use visiond_config::diff::{Change, ConfigDiff, keep_until_restart};
use visiond_config::types::{CameraConfig, CameraModelConfig, Config, ModelConfig, PrivacyConfig, TrackConfig};
use visiond_kernels::cuda::Device;
use visiond_live::Live;
use visiond_message::MessageModel;
use visiond_pipeline::cascade::{Cascade, CropModel, CropOutput, CropSettings, CropState};
use visiond_pipeline::collector::{CameraModel, IgnoredArea, Selection, TrackSettings};
use visiond_pipeline::frame_rate::FrameRate;
use visiond_pipeline::lane::LaneModel;
use visiond_pipeline::mailbox::Delivery;
use visiond_pipeline::supervisor::{CameraSpec, LaneSpec, PipelineSpec};
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::LaneMetrics;

use crate::bundles::{self, Bundles};
use crate::canary::{self, TrialModel};
use crate::cascade::{self, CascadeRole};
use crate::error::ServiceError;
use crate::model_trial;
use crate::rules::rules_of;

/// The default of `group_timeout`: five frames at 30 frames per second for an inference of 150 ms, and one that it waits for the lane.
const GROUP_TIMEOUT: Duration = Duration::from_millis(200);

/// The running configuration, from which the next one takes over unchanged parts.
#[derive(Clone, Default)]
pub struct RunningConfig {
    /// The configuration as it was read.
    pub config: Config,
    /// The bundles of the running models.
    pub bundles: Bundles,
    /// The running models, one for each lane, in the lanes' order.
    pub models: Vec<RunningModel>,
    /// The cameras whose images are drawn.
    pub pictures: Vec<Pictures>,
    /// The cameras that store clips.
    pub clips: Vec<Clips>,
    /// The privacy masks that each camera had last, also of cameras that are off or away.
    masks: BTreeMap<String, Vec<PrivacyConfig>>,
}

/// A running model.
#[derive(Clone)]
pub struct RunningModel {
    name: Arc<str>,
    /// The model's file.
    pub path: PathBuf,
    files: ModelFiles,
    /// Facts of the loaded model.
    pub facts: LoadedFacts,
    /// The memory that holds its frames.
    pub buffers: Buffers,
    /// The models on its detections, on theirs and so on, each before its own.
    pub crop_models: Vec<RunningCropModel>,
}

/// A running model on the detections of another one.
#[derive(Clone)]
pub struct RunningCropModel {
    /// Its counters and its name.
    pub metrics: Arc<LaneMetrics>,
    /// The model on whose detections it runs.
    pub on: String,
    /// The model's file.
    pub path: PathBuf,
    files: ModelFiles,
    /// Facts of the loaded model.
    pub facts: LoadedFacts,
}

/// Facts of a loaded model.
#[derive(Clone)]
pub struct LoadedFacts {
    /// The backend, with its version and device.
    pub backend: String,
    /// The SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The inputs, such as "images f32 [1, 3, 640, 640]".
    pub input: String,
    /// Whether it can run on tiles of a frame.
    can_tile: bool,
    device: Option<Arc<Device>>,
}

/// A camera whose images are drawn.
#[derive(Clone)]
pub struct Pictures {
    /// The camera's name.
    pub camera: Arc<str>,
    /// The folder of the images.
    pub directory: PathBuf,
    /// Draws and stores them.
    pub annotator: Arc<Annotator>,
}

/// A camera that stores clips of its events.
#[derive(Clone)]
pub struct Clips {
    /// The camera's name.
    pub camera: Arc<str>,
    /// The folder of the clips.
    pub directory: PathBuf,
    /// Stores them.
    pub recorder: Arc<ClipRecorder>,
}

/// Why a configuration is to take effect.
#[derive(Clone, Copy)]
pub enum Cause<'a> {
    /// The daemon starts.
    Start,
    /// A reload: every new model is tried on frames of these cameras, and a folder that cannot be written is an error.
    Reload(&'a Live),
    /// A command, which changes only what it is about: a model's file that is another one now waits for a reload.
    Command(&'a Live),
}

impl<'a> Cause<'a> {
    fn trial_frames(self) -> Option<&'a Live> {
        match self {
            Self::Start => None,
            Self::Reload(live) | Self::Command(live) => Some(live),
        }
    }

    /// Whether models whose files are others now are loaded again.
    fn takes_new_files(self) -> bool {
        !matches!(self, Self::Command(_))
    }
}

/// A configuration that is ready to run.
pub struct PreparedConfig {
    /// The differences from the running configuration.
    pub changes: ConfigDiff,
    /// A lane for each model that a camera uses, and the cameras.
    pub pipeline: PipelineSpec,
    /// The running configuration once the change is made.
    pub running: RunningConfig,
}

/// Device, inode, size, and modification time in seconds and nanoseconds.
type FileId = (u64, u64, u64, i64, i64);

/// The files of a model: itself and its card; `None` for a file that does not exist.
type ModelFiles = [Option<FileId>; 2];

fn files_of(model: &ModelConfig) -> ModelFiles {
    let id = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    };
    let card = model.card.clone().unwrap_or_else(|| model.path.with_extension("toml"));
    [id(&model.path), id(&card)]
}

impl PreparedConfig {
    /// Loads every new model and opens every new folder of images; nothing that runs is touched.
    ///
    /// `has_lane` says whether a model's lane can continue with its current model. `stop` ends the trials in other processes.
    pub fn new(
        config: &Config,
        before: &RunningConfig,
        has_lane: impl Fn(&str) -> bool,
        cause: Cause<'_>,
        stop: &Stop,
    ) -> Result<Self, ServiceError> {
        bundles::load_whole(config, || {
            let mut config = config.clone();
            let kept = (!cause.takes_new_files()).then_some(&before.bundles);
            let bundles = bundles::resolve_running(&mut config, kept)?;
            let prepared = Self::prepare(config, before, &has_lane, cause, stop)?;
            Ok(Self { running: RunningConfig { bundles, ..prepared.running }, ..prepared })
        })
    }

    /// Does the same with a configuration whose bundles have their paths.
    fn prepare(
        mut config: Config,
        before: &RunningConfig,
        has_lane: &impl Fn(&str) -> bool,
        cause: Cause<'_>,
        stop: &Stop,
    ) -> Result<Self, ServiceError> {
        let changes = ConfigDiff::between(&before.config, &config);
        if cause.trial_frames().is_some() {
            keep_until_restart(&before.config, &mut config);
        }
        let mut prepared = Self { changes, pipeline: PipelineSpec::default(), running: RunningConfig::default() };
        prepared.running.masks.clone_from(&before.masks);
        let cameras = || config.cameras.iter().filter(|camera| camera.enabled);
        // Before the models, which may take minutes to load.
        let if_unusable = if cause.trial_frames().is_some() { IfUnusable::Refuse } else { IfUnusable::Retry };
        for camera in cameras() {
            prepared.open_pictures(camera, before, if_unusable)?;
        }
        for model in config.used_models() {
            prepared.add_lane(&config, model, before, has_lane, cause, stop)?;
        }
        for camera in cameras() {
            prepared.open_clips(camera, before, if_unusable)?;
            prepared.add_camera(&config, camera, before)?;
        }
        for camera in &config.cameras {
            let masks_before = prepared.running.masks.insert(camera.name.clone(), camera.privacy.clone());
            if masks_before.is_some_and(|before| before != camera.privacy) {
                prepared.pipeline.with_new_masks.push(camera.name.as_str().into());
            }
        }
        prepared.running.config = config;
        Ok(prepared)
    }

    fn add_lane(
        &mut self,
        config: &Config,
        model: &ModelConfig,
        before: &RunningConfig,
        has_lane: &impl Fn(&str) -> bool,
        cause: Cause<'_>,
        stop: &Stop,
    ) -> Result<(), ServiceError> {
        let name: Arc<str> = model.name.as_str().into();
        let known = before.models.iter().find(|known| known.name == name);
        let takes_new_files = cause.takes_new_files();
        let files = known.filter(|_| !takes_new_files).map_or_else(|| files_of(model), |known| known.files);
        let cameras: Vec<_> = config.cameras_of(model).collect();
        let one_starts = cameras.iter().any(|camera| self.changes.cameras.contains_key(&camera.name));
        if known.is_none_or(|known| known.files != files) || (one_starts && !has_lane(&name)) {
            self.changes.models.entry(name.to_string()).or_insert(Change::Changed);
        }
        if takes_new_files {
            note_new_files(config, model, before, &mut self.changes);
        }
        let (lane_model, facts, crop_models) = match known.filter(|_| !self.changes.models.contains_key(&*name)) {
            Some(known) => (None, known.facts.clone(), known.crop_models.clone()),
            None => {
                let trial_frames = cause.trial_frames();
                let mut loader =
                    Loader { config, before, cameras: &cameras, trial_frames, stop, crop_models: Vec::new() };
                let (lane_model, facts) = loader.lane_model(model)?;
                (Some(lane_model), facts, loader.crop_models)
            }
        };
        let buffers = Buffers::new(&config.buffers, facts.device.as_ref()).map_err(ServiceError::Buffers)?;
        if known.is_none_or(|known| !known.buffers.are_like(&buffers)) {
            log::info!("model {name}: frames in {}", buffers.describe());
            for camera in &cameras {
                self.changes.cameras.entry(camera.name.clone()).or_insert(Change::Changed);
            }
        }
        let path = model.path.clone();
        self.running.models.push(RunningModel { name: Arc::clone(&name), path, files, facts, buffers, crop_models });
        self.pipeline.lanes.push(LaneSpec { model: name, new_model: lane_model });
        Ok(())
    }

    /// Opens the folder for a camera's images, if it has one.
    fn open_pictures(
        &mut self,
        camera: &CameraConfig,
        before: &RunningConfig,
        if_unusable: IfUnusable,
    ) -> Result<(), ServiceError> {
        let name: Arc<str> = camera.name.as_str().into();
        let pictures = match (&camera.annotate, self.changes.pictures.get(&*name)) {
            (None, _) => None,
            (Some(_), None) => before.pictures.iter().find(|pictures| pictures.camera == name).cloned(),
            (Some(config), Some(Change::Added | Change::Changed | Change::Removed)) => {
                let annotator = Annotator::start(config, &name, if_unusable)?;
                let (camera, directory) = (Arc::clone(&name), config.directory.clone());
                Some(Pictures { camera, directory, annotator: Arc::new(annotator) })
            }
        };
        self.running.pictures.extend(pictures);
        Ok(())
    }

    /// Opens the folder for a camera's clips, if it has one. They are of the camera's own stream, unless it has none or privacy masks.
    fn open_clips(
        &mut self,
        camera: &CameraConfig,
        before: &RunningConfig,
        if_unusable: IfUnusable,
    ) -> Result<(), ServiceError> {
        let Some(config) = &camera.clips else { return Ok(()) };
        let name: Arc<str> = camera.name.as_str().into();
        // The source of a camera that stays open fills the ring that it was opened with.
        let clips = match self.changes.cameras.contains_key(&*name) {
            false => before.clips.iter().find(|clips| clips.camera == name).cloned(),
            true => {
                let draws = !camera.source.has_bitstream() || !camera.privacy.is_empty();
                let recorder = Arc::new(ClipRecorder::start(config, &name, draws, if_unusable)?);
                Some(Clips { camera: name, directory: config.directory.clone(), recorder })
            }
        };
        self.running.clips.extend(clips);
        Ok(())
    }

    /// Adds a camera. Its frames are in the memory of its first model, so the other models may have to copy them.
    ///
    /// Several models share a frame only if its memory needs no attaching: memory attached to one lane's stream is
    /// inaccessible to the others and to the CPU.
    fn add_camera(
        &mut self,
        config: &Config,
        camera: &CameraConfig,
        before: &RunningConfig,
    ) -> Result<(), ServiceError> {
        let name: Arc<str> = camera.name.as_str().into();
        let listed: Vec<_> = config.models_of(camera).map(|(_, model)| model).collect();
        let models: Vec<_> = listed.iter().map(|model| camera_model(camera, model)).collect();
        for model in models.iter().filter(|model| model.view.tiling.is_some()) {
            let runs = self.running.models.iter().find(|running| running.name == model.name);
            if runs.is_some_and(|running| !running.facts.can_tile) {
                return Err(ServiceError::Tiles { camera: name, model: Arc::clone(&model.name) });
            }
        }
        let first = models.first().map(|first| &first.name);
        let first = self.running.models.iter().find(|model| first == Some(&model.name));
        let Some(first) = first else { return Ok(()) };
        if models.len() > 1 && first.buffers.memory.needs_attaching() {
            return Err(ServiceError::SharedFrames(name));
        }
        // A lane holds frames of two runs until the models on their detections have seen them.
        let buffers = first.buffers.for_lanes(models.len() + config.cascades_of(camera));
        let opens = self.changes.cameras.contains_key(&*name);
        let area = |error| ServiceError::Area(Arc::clone(&name), error);
        let masks = camera.privacy_masks().map_err(area)?;
        let clips = self.running.clips.iter().find(|clips| clips.camera == name);
        let recorder = clips.map(|clips| Arc::clone(&clips.recorder));
        let coded = recorder.as_ref().and_then(|recorder| recorder.ring());
        let open = opens.then(|| visiond_capture::opener(&camera.source, masks.clone(), &name, &buffers, coded));
        let preview = camera.source.preview().filter(|_| opens);
        // No lane processes the preview.
        let preview = preview.map(|source| {
            let name = format!("{name}, preview").into();
            visiond_capture::opener(&source, masks, &name, &first.buffers, None)
        });
        let pictures = self.running.pictures.iter().find(|pictures| pictures.camera == name);
        let annotator = pictures.map(|pictures| Arc::clone(&pictures.annotator));
        let delivery = if camera.source.is_lossless() { Delivery::Lossless } else { Delivery::NewestWins };
        let max_fps = camera.max_fps;
        let smooth = camera.smooth;
        let track = camera.track.as_ref().map(|TrackConfig { unseen, score, classes }| TrackSettings {
            unseen: *unseen,
            score: *score,
            classes: classes.clone(),
            smooth,
            rules: rules_of(camera, config.device.time_zone.as_ref()),
        });
        let ignored = camera.ignore.iter().map(|ignore| {
            let polygon = ignore.area().map_err(area)?;
            Ok(IgnoredArea { polygon, classes: ignore.classes.clone() })
        });
        let ignored = ignored.collect::<Result<_, ServiceError>>()?;
        let known = before.config.cameras.iter().find(|known| known.name == camera.name);
        let changes_masks = before.masks.get(&camera.name).is_some_and(|before| *before != camera.privacy);
        // What models said of a track's crops may be about pixels that are hidden now.
        let keeps_tracks = !changes_masks
            && known.is_some_and(|known| {
                let first_before = before.config.models_of(known).next().map(|(_, model)| model.name);
                known.source.shows_what(&camera.source)
                    && first_before.as_ref() == listed.first().map(|model| &model.name)
            });
        self.pipeline.cameras.push(CameraSpec {
            name,
            open,
            preview,
            max_fps,
            delivery,
            annotator,
            recorder,
            track,
            ignored,
            keeps_tracks,
            models,
            group_timeout: camera.group.then(|| camera.group_timeout.unwrap_or(GROUP_TIMEOUT)),
        });
        Ok(())
    }
}

fn camera_model(camera: &CameraConfig, model: &CameraModelConfig) -> CameraModel {
    let CameraModelConfig { name, max_fps, every, classes, score_threshold, min_size, max_size, crop: _, tiles: _ } =
        model;
    let selection = Selection {
        classes: classes.clone(),
        score_threshold: *score_threshold,
        min_size: *min_size,
        max_size: *max_size,
    };
    CameraModel {
        name: name.as_str().into(),
        frame_rate: FrameRate::limited_to(*max_fps).every(*every),
        selection,
        view: camera.view_of(model),
    }
}

/// Returns the changes that `config` would make; loads and opens nothing.
pub fn preview(mut config: Config, before: &RunningConfig) -> Result<ConfigDiff, ServiceError> {
    bundles::resolve_running(&mut config, None)?;
    let mut changes = ConfigDiff::between(&before.config, &config);
    for model in config.used_models() {
        let known = before.models.iter().find(|known| *known.name == *model.name);
        if known.is_none_or(|known| known.files != files_of(model)) {
            changes.models.entry(model.name.clone()).or_insert(Change::Changed);
        }
    }
    config.used_models().for_each(|model| note_new_files(&config, model, before, &mut changes));
    Ok(changes)
}

/// Marks the models on the detections of `model` whose files are others now, and with them `model`.
fn note_new_files(config: &Config, model: &ModelConfig, before: &RunningConfig, changes: &mut ConfigDiff) {
    for crop_model in config.cascade_of(model) {
        if before.crop_model(&crop_model.name).is_none_or(|known| known.files != files_of(crop_model)) {
            changes.models.entry(crop_model.name.clone()).or_insert(Change::Changed);
            changes.models.entry(model.name.clone()).or_insert(Change::Changed);
        }
    }
}

impl RunningConfig {
    /// Returns a model that runs on the detections of another one.
    fn crop_model(&self, name: &str) -> Option<&RunningCropModel> {
        self.models.iter().flat_map(|model| &model.crop_models).find(|known| *known.metrics.name == *name)
    }
}

/// Loads the models of a lane.
struct Loader<'a> {
    config: &'a Config,
    before: &'a RunningConfig,
    /// The lane's cameras.
    cameras: &'a [&'a CameraConfig],
    /// Each model is tried on them, if there are some.
    trial_frames: Option<&'a Live>,
    stop: &'a Stop,
    /// The loaded models on detections.
    crop_models: Vec<RunningCropModel>,
}

impl Loader<'_> {
    /// Loads a model, and tries it if there are frames.
    fn load(&self, model: &ModelConfig) -> Result<(TrialModel, LoadedFacts, CascadeRole), ServiceError> {
        let engine = &self.config.engine;
        let loaded = model_trial::load(model, engine, self.stop)?;
        let backend = loaded.engine.backend_description().to_owned();
        match &model.on {
            None => log::info!("model {}: {} on {backend}", model.name, model.path.display()),
            Some(on) => {
                let (name, path) = (&model.name, model.path.display());
                log::info!("model {name}: {path} on {backend}, runs on detections of {on}");
            }
        }
        let detector = loaded.required_detector()?;
        let role = CascadeRole::of(&model.name, &loaded.card.head, &detector);
        let mut candidate = TrialModel { model: loaded, detector };
        if let Some(live) = self.trial_frames {
            let cameras: Vec<_> = self.cameras.iter().map(|camera| &*camera.name).collect();
            let tried = canary::prove(live, &model.name, candidate, &cameras, engine.canary_timeout);
            candidate = tried.map_err(|error| ServiceError::model(&model.name, error))?;
        }
        let loaded = &candidate.model;
        let inputs: Vec<_> = loaded.engine.inputs().iter().map(ToString::to_string).collect();
        let facts = LoadedFacts {
            sha256: loaded.engine.file().sha256.clone(),
            input: inputs.join(", "),
            can_tile: loaded.card.head.family().can_tile(),
            device: loaded.device().cloned(),
            backend,
        };
        Ok((candidate, facts, role))
    }

    /// Loads the model of a lane and its cascade.
    fn lane_model(&mut self, config: &ModelConfig) -> Result<(LaneModel, LoadedFacts), ServiceError> {
        let (TrialModel { model, detector }, loaded_facts, role) = self.load(config)?;
        let crop_models = self.crop_models_of(config, &role)?;
        let mut facts = model.facts(&detector);
        // Keypoints of its detections may come from another model.
        if let Some(pose) = crop_models.iter().find(|model| model.output == CropOutput::Keypoints) {
            let skeleton = pose.facts.message.skeleton.clone();
            facts.message = Arc::new(MessageModel { skeleton, ..(*facts.message).clone() });
        }
        let lane_model = LaneModel {
            facts,
            runner: Some(Box::new(detector)),
            batch_wait: config.batch_wait,
            build: Box::new(move || Ok(Box::new(model.detector()?))),
            cascade: Cascade::new(crop_models),
        };
        Ok((lane_model, loaded_facts))
    }

    /// Loads the models on the detections of a model, with theirs.
    fn crop_models_of(&mut self, on: &ModelConfig, on_role: &CascadeRole) -> Result<Vec<CropModel>, ServiceError> {
        let mut models = Vec::new();
        let mut roles = Vec::new();
        for config in self.config.crop_models_of(on) {
            let (TrialModel { model, detector }, facts, own) = self.load(config)?;
            let output = cascade::check(on_role, &roles, &own)?;
            let known = self.before.crop_model(&config.name).map(|known| Arc::clone(&known.metrics));
            let metrics = known.unwrap_or_else(|| Arc::new(LaneMetrics::new(config.name.as_str().into())));
            self.crop_models.push(RunningCropModel {
                metrics: Arc::clone(&metrics),
                on: on.name.clone(),
                path: config.path.clone(),
                files: files_of(config),
                facts,
            });
            let inner = self.crop_models_of(config, &own)?;
            roles.push(own);
            models.push(CropModel {
                metrics,
                facts: model.facts(&detector),
                runner: Some(Box::new(detector)),
                build: Box::new(move || Ok(Box::new(model.detector()?))),
                settings: crop_settings(config),
                output,
                models: inner,
                state: CropState::default(),
            });
        }
        Ok(models)
    }
}

fn crop_settings(model: &ModelConfig) -> CropSettings {
    let ModelConfig { min_size, margin, square, max_crops, refresh, .. } = *model;
    CropSettings { classes: model.on_classes.clone(), min_size, margin, square, max_crops, refresh }
}
