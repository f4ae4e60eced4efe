//! What a configuration asks for, made ready to run: networks loaded once each, cameras by model, pictures' folders.

use std::path::PathBuf;
use std::sync::Arc;

use visiond_kernels::buffer::MemoryKind;

use crate::annotate::annotator::Annotator;
use crate::capture::{self, Buffers};
use crate::cli::CliError;
use crate::cli::network::Network;
use crate::config::types::{CameraConfig, Config, ModelConfig, Pace, SourceConfig};
use crate::exit::Exit;
use crate::pipeline::inbox::Delivery;
use crate::pipeline::lane::LaneNetwork;
use crate::pipeline::supervisor::{CameraPlan, LanePlan};

/// Everything that runs.
pub struct Plan {
    /// A lane for each model that a camera names.
    pub lanes: Vec<LanePlan>,
    /// What runs each lane's model, and the memory that its frames live in.
    pub backends: Vec<(String, MemoryKind)>,
    /// Cameras that pictures are drawn of.
    pub pictures: Vec<Pictures>,
}

/// A camera's pictures.
pub struct Pictures {
    /// The camera.
    pub camera: Arc<str>,
    /// Their folder.
    pub directory: PathBuf,
    /// Who draws them.
    pub annotator: Arc<Annotator>,
}

impl Plan {
    /// Loads every network that is used, and makes the pictures' folders.
    pub fn new(config: &Config) -> Result<Self, CliError> {
        let mut plan = Self { lanes: Vec::new(), backends: Vec::new(), pictures: Vec::new() };
        for model in &config.models {
            let cameras: Vec<_> = config.cameras.iter().filter(|camera| looks_at(config, camera, model)).collect();
            if !cameras.is_empty() {
                plan.add_lane(config, model, &cameras)?;
            }
        }
        if plan.lanes.is_empty() {
            let message = "no camera to run: write a [[camera]], or set `enabled` of one to true";
            return Err(CliError::new(Exit::Config, message));
        }
        Ok(plan)
    }

    fn add_lane(&mut self, config: &Config, model: &ModelConfig, cameras: &[&CameraConfig]) -> Result<(), CliError> {
        let network = Network::load(model, &config.engine)?;
        let backend = network.engine.backend_description().to_owned();
        log::info!("model {}: {} on {backend}", model.name, model.path.display());
        let detector = network.required_detector()?;
        let facts = Arc::new(network.facts());
        let buffers = Buffers::new(&config.buffers, network.device())
            .map_err(|error| CliError::new(Exit::Config, format!("buffers.memory: {error}")))?;
        log::info!("model {}: frames in {}", model.name, buffers.describe());
        let cameras = cameras.iter().map(|camera| self.camera(camera, &buffers)).collect::<Result<_, _>>()?;
        let network = LaneNetwork {
            model: facts,
            ready: Some(Box::new(detector)),
            build: Box::new(move || Ok(Box::new(network.detector()?))),
        };
        self.lanes.push(LanePlan { model: model.name.as_str().into(), network: Some(network), cameras });
        self.backends.push((backend, buffers.memory.kind()));
        Ok(())
    }

    fn camera(&mut self, camera: &CameraConfig, buffers: &Buffers) -> Result<CameraPlan, CliError> {
        let name: Arc<str> = camera.name.as_str().into();
        let annotator = match &camera.annotate {
            None => None,
            Some(config) => {
                let annotator = Annotator::start(config, &name).map_err(|error| CliError::new(Exit::Output, error))?;
                let annotator = Arc::new(annotator);
                self.pictures.push(Pictures {
                    camera: Arc::clone(&name),
                    directory: config.directory.clone(),
                    annotator: Arc::clone(&annotator),
                });
                Some(annotator)
            }
        };
        let open = capture::opener(&camera.source, &name, buffers);
        Ok(CameraPlan { name, open: Some(open), delivery: delivery(&camera.source), annotator })
    }
}

/// Whether `camera` runs and its frames go to `model`. The configuration was checked: a camera without a model means the
/// only one.
fn looks_at(config: &Config, camera: &CameraConfig, model: &ModelConfig) -> bool {
    let named = camera.model.as_deref().or_else(|| config.models.first().map(|only| only.name.as_str()));
    camera.enabled && named == Some(model.name.as_str())
}

/// Sources that are read as fast as they are taken must not lose anything.
fn delivery(source: &SourceConfig) -> Delivery {
    let fastest = match source {
        SourceConfig::Video(video) => video.pace == Pace::Fastest,
        SourceConfig::Command(command) => command.pace == Pace::Fastest,
        SourceConfig::Images(images) => images.fps.is_none(),
        SourceConfig::V4l2(_) | SourceConfig::Pattern(_) => false,
    };
    if fastest { Delivery::Lossless } else { Delivery::NewestWins }
}
