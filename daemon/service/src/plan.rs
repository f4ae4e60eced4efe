//! What a configuration asks for, made ready to run beside what runs already: networks loaded, cameras by model, pictures'
//! folders. What has not changed is taken over from before; a start is the plan that finds nothing before it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use visiond_annotate::annotator::Annotator;
use visiond_capture::Buffers;
use visiond_config::diff::{Change, ConfigDiff, keep_until_restart};
use visiond_config::types::{CameraConfig, Config, ModelConfig};
use visiond_kernels::cuda::Device;
use visiond_pipeline::inbox::Delivery;
use visiond_pipeline::lane::LaneNetwork;
use visiond_pipeline::supervisor::{CameraPlan, LanePlan};
use visiond_system::exit::{Exit, ExitError};

use super::canary::{Canary, Candidate};
use crate::network::Network;

/// A configuration that runs, and what the next one builds on.
#[derive(Clone, Default)]
pub struct Running {
    /// As it was read.
    pub config: Config,
    /// The models that run, one for each lane, in the lanes' order.
    pub models: Vec<RunningModel>,
    /// Cameras that pictures are drawn of.
    pub pictures: Vec<Pictures>,
}

/// A model that runs.
#[derive(Clone)]
pub struct RunningModel {
    name: Arc<str>,
    /// Its file.
    pub path: PathBuf,
    files: Files,
    /// The network itself.
    pub loaded: Loaded,
    /// The memory that its frames live in.
    pub buffers: Buffers,
}

/// Facts of a network that was loaded.
#[derive(Clone)]
pub struct Loaded {
    /// What runs it.
    pub backend: String,
    /// Of its file.
    pub sha256: String,
    /// What it takes.
    pub input: String,
    device: Option<Arc<Device>>,
}

/// A camera's pictures.
#[derive(Clone)]
pub struct Pictures {
    /// The camera.
    pub camera: Arc<str>,
    /// Their folder.
    pub directory: PathBuf,
    /// Who draws them.
    pub annotator: Arc<Annotator>,
}

/// What is to run, ready.
pub struct Plan {
    /// What differs from before.
    pub changes: ConfigDiff,
    /// A lane for each model that a camera names.
    pub lanes: Vec<LanePlan>,
    /// What will run.
    pub running: Running,
}

/// Which files a network is made of: itself and its card, where they are there.
#[derive(Clone, PartialEq, Eq)]
struct Files([Option<FileId>; 2]);

/// Device, number, size, and the time of the last change in seconds and nanoseconds.
type FileId = (u64, u64, u64, i64, i64);

impl Files {
    fn of(model: &ModelConfig) -> Self {
        let id = |path: &Path| {
            let found = fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
        };
        let card = model.card.clone().unwrap_or_else(|| model.path.with_extension("toml"));
        Self([id(&model.path), id(&card)])
    }
}

impl Plan {
    /// Loads every network that is new, and makes the folders of pictures that are; what runs is not touched. `has_lane`
    /// tells whether a model's lane goes on without another network. Where there is a `canary`, it tries what is new.
    pub fn new(
        mut config: Config,
        before: &Running,
        has_lane: impl Fn(&str) -> bool,
        canary: Option<&Canary<'_>>,
    ) -> Result<Self, ExitError> {
        let changes = ConfigDiff::between(&before.config, &config);
        if canary.is_some() {
            keep_until_restart(&before.config, &mut config);
        }
        let mut plan = Self { changes, lanes: Vec::new(), running: Running::default() };
        for model in config.used_models() {
            plan.add_lane(&config, model, before, &has_lane, canary)?;
        }
        if plan.lanes.is_empty() {
            return Err(no_camera());
        }
        plan.running.config = config;
        Ok(plan)
    }

    fn add_lane(
        &mut self,
        config: &Config,
        model: &ModelConfig,
        before: &Running,
        has_lane: &impl Fn(&str) -> bool,
        canary: Option<&Canary<'_>>,
    ) -> Result<(), ExitError> {
        let name: Arc<str> = model.name.as_str().into();
        let files = Files::of(model);
        let known = before.models.iter().find(|known| known.name == name);
        let cameras: Vec<_> = config.cameras_of(model).collect();
        let one_starts = cameras.iter().any(|camera| self.changes.camera(&camera.name).is_some());
        if known.is_none_or(|known| known.files != files) || (one_starts && !has_lane(&name)) {
            self.changes.load_anew(&name);
        }
        let (network, loaded) = match known.filter(|_| self.changes.model(&name).is_none()) {
            Some(known) => (None, known.loaded.clone()),
            None => {
                let (network, loaded) = load(config, model, canary)?;
                (Some(network), loaded)
            }
        };
        let buffers = Buffers::new(&config.buffers, loaded.device.as_ref())
            .map_err(|error| ExitError::new(Exit::Config, format!("buffers.memory: {error}")))?;
        if known.is_none_or(|known| !known.buffers.are_like(&buffers)) {
            log::info!("model {name}: frames in {}", buffers.describe());
            cameras.iter().for_each(|camera| self.changes.open_anew(&camera.name));
        }
        let cameras = cameras.iter().map(|camera| self.camera(camera, &buffers, before)).collect::<Result<_, _>>()?;
        self.running.models.push(RunningModel {
            name: Arc::clone(&name),
            path: model.path.clone(),
            files,
            loaded,
            buffers,
        });
        self.lanes.push(LanePlan { model: name, network, cameras });
        Ok(())
    }

    fn camera(&mut self, camera: &CameraConfig, buffers: &Buffers, before: &Running) -> Result<CameraPlan, ExitError> {
        let name: Arc<str> = camera.name.as_str().into();
        let opens = self.changes.camera(&name).is_some();
        let open = opens.then(|| visiond_capture::opener(&camera.source, &name, buffers));
        let pictures = match (&camera.annotate, self.changes.pictures(&name)) {
            (None, _) => None,
            (Some(_), None) => before.pictures.iter().find(|pictures| pictures.camera == name).cloned(),
            (Some(config), Some(Change::Added | Change::Changed | Change::Removed)) => {
                let annotator = Annotator::start(config, &name).map_err(|error| ExitError::new(Exit::Output, error))?;
                let (camera, directory) = (Arc::clone(&name), config.directory.clone());
                Some(Pictures { camera, directory, annotator: Arc::new(annotator) })
            }
        };
        let annotator = pictures.as_ref().map(|pictures| Arc::clone(&pictures.annotator));
        self.running.pictures.extend(pictures);
        let delivery = if camera.source.is_lossless() { Delivery::Lossless } else { Delivery::NewestWins };
        Ok(CameraPlan { name, open, delivery, annotator })
    }
}

/// What `config` would change about what runs; nothing is loaded or opened.
pub fn preview(config: &Config, before: &Running) -> Result<ConfigDiff, ExitError> {
    let mut changes = ConfigDiff::between(&before.config, config);
    for model in config.used_models() {
        let known = before.models.iter().find(|known| *known.name == *model.name);
        if known.is_none_or(|known| known.files != Files::of(model)) {
            changes.load_anew(&model.name);
        }
    }
    if config.used_models().next().is_none() { Err(no_camera()) } else { Ok(changes) }
}

fn no_camera() -> ExitError {
    ExitError::new(Exit::Config, "no camera to run: write a [[camera]], or set `enabled` of one to true")
}

/// A network with a session of its own, and its facts.
fn load(config: &Config, model: &ModelConfig, canary: Option<&Canary<'_>>) -> Result<(LaneNetwork, Loaded), ExitError> {
    let network = Network::load(model, &config.engine)?;
    let backend = network.engine.backend_description().to_owned();
    log::info!("model {}: {} on {backend}", model.name, model.path.display());
    let detector = network.required_detector()?;
    let mut candidate = Candidate { network, detector };
    if let Some(canary) = canary {
        let cameras: Vec<_> = config.cameras_of(model).map(|camera| &*camera.name).collect();
        candidate = canary.prove(&model.name, candidate, &cameras, config.engine.canary_timeout)?;
    }
    let Candidate { network, detector } = candidate;
    let inputs: Vec<_> = network.engine.inputs().iter().map(ToString::to_string).collect();
    let loaded = Loaded {
        sha256: network.engine.file().sha256.clone(),
        input: inputs.join(", "),
        device: network.device().cloned(),
        backend,
    };
    let network = LaneNetwork {
        model: Arc::new(network.facts()),
        ready: Some(Box::new(detector)),
        build: Box::new(move || Ok(Box::new(network.detector()?))),
    };
    Ok((network, loaded))
}
