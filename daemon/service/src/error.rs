//! Why the service cannot start, or refuses another configuration.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use visiond_annotate::annotator::AnnotateError;
use visiond_bundle::BundleError;
use visiond_clips::recorder::ClipError;
use visiond_config::command::CommandError;
use visiond_config::diagnostics::ConfigErrors;
use visiond_engine::card::CardError;
use visiond_engine::detector::DetectorError;
use visiond_engine::engine::EngineError;
use visiond_kernels::buffer::BufferError;
use visiond_kernels::frame::FrameError;
use visiond_kernels::polygon::PolygonError;
use visiond_pipeline::model_runner::RunError;
use visiond_publish::PublishError;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::preflight::Certainty;

use crate::cascade::CascadeError;
use crate::http_server::HttpError;

/// Why the service cannot start, or refuses another configuration.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The configuration file has errors.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// No camera is configured and enabled.
    #[error("no camera to run: add a [[camera]], or set `enabled` of one to true")]
    NoCamera,
    /// A model cannot be used.
    #[error("model {model}: {error}")]
    Model {
        /// The model's name.
        model: String,
        /// The reason.
        #[source]
        error: Box<ModelError>,
    },
    /// A model cannot run on the detections of another one.
    #[error(transparent)]
    Cascade(#[from] CascadeError),
    /// The memory for frames is not available.
    #[error("buffers.memory: {0}")]
    Buffers(#[source] BufferError),
    /// The models of a camera cannot share its frames.
    #[error(
        "camera {0}: several models cannot read one frame in managed memory on this GPU: set `memory` in `[buffers]` to \"mapped\""
    )]
    SharedFrames(Arc<str>),
    /// A model whose results are not objects is to run on tiles.
    #[error("camera {camera}: {}", no_tiles(.model))]
    Tiles {
        /// The camera.
        camera: Arc<str>,
        /// The model.
        model: Arc<str>,
    },
    /// The corners of an area are no polygon; a configuration that was read from a file has none such.
    #[error("camera {0}: `polygon` of an area {1}; run `visiond check`")]
    Area(Arc<str>, #[source] PolygonError),
    /// Annotated images cannot be stored.
    #[error(transparent)]
    Annotate(#[from] AnnotateError),
    /// Clips cannot be stored.
    #[error(transparent)]
    Clips(#[from] ClipError),
    /// A sink cannot be opened.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The HTTP server cannot listen.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A command cannot be carried out.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A lane waits, so that totals cannot be reset.
    #[error(
        "camera {0}: cannot reset totals, because its lane waits for a sink: try again, or use another `when_full`"
    )]
    TotalsBusy(String),
    /// The system has no thread or descriptor left.
    #[error("cannot start a thread or open a descriptor: {0}")]
    System(io::Error),
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
    /// A panic, which was logged.
    #[error("internal error, see the panic in the log: please report it")]
    Panic,
}

impl ServiceError {
    /// Creates the error of a model.
    pub(super) fn model(model: &str, error: impl Into<ModelError>) -> Self {
        Self::Model { model: model.to_owned(), error: Box::new(error.into()) }
    }

    /// Returns whether the service, whose user may read other files, would fail in the same way.
    pub fn certainty(&self) -> Certainty {
        let Self::Model { error, .. } = self else { return Certainty::Certain };
        match &**error {
            ModelError::Engine(EngineError::Unreadable(_, error) | EngineError::ExternalData { error, .. })
            | ModelError::Card(CardError::Read(_, error))
            | ModelError::Bundle(BundleError::Io { error, .. }) => Certainty::of_reading(error),
            ModelError::Trial(TrialError::Refused { certainty, .. }) => certainty.clone(),
            _ => Certainty::Certain,
        }
    }

    /// Returns the exit status of a daemon that cannot start for this reason.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_)
            | Self::NoCamera
            | Self::Cascade(_)
            | Self::Buffers(_)
            | Self::SharedFrames(_)
            | Self::Tiles { .. }
            | Self::Area(..) => Exit::Config,
            Self::Model { error, .. } => match &**error {
                ModelError::Engine(_) | ModelError::Bundle(_) => Exit::Model,
                ModelError::Card(_) => Exit::Config,
                ModelError::Detector(error) => detector_exit(error),
                ModelError::Trial(error) => error.exit(),
                ModelError::Canary(error) => error.exit(),
            },
            Self::Annotate(_) | Self::Clips(_) | Self::Publish(_) => Exit::Output,
            Self::Http(error) => error.exit(),
            Self::System(_) | Self::Command(_) | Self::TotalsBusy(_) | Self::Ending | Self::Panic => Exit::Failure,
        }
        .unless_gpu_lost(self)
    }
}

impl From<ServiceError> for ExitError {
    fn from(error: ServiceError) -> Self {
        Self::new(error.exit(), error)
    }
}

/// Returns why a model cannot run on tiles.
pub fn no_tiles(model: &str) -> String {
    format!("model {model} gives results of a whole picture, which tiles cannot be merged into: remove its `tiles`")
}

/// Why a model cannot be used; the texts follow its name.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Its file cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its bundle is not installed, or cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Its card is missing or wrong.
    #[error(transparent)]
    Card(#[from] CardError),
    /// It does not fit its card or limits.
    #[error(transparent)]
    Detector(#[from] DetectorError),
    /// Its trial in a separate process failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// Its trial failed.
    #[error(transparent)]
    Canary(#[from] CanaryError),
}

/// Why a trial in a separate process failed; the texts follow the model's name.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The process refused the model, as visiond would have.
    #[error("{text}")]
    Refused {
        /// The error.
        text: String,
        /// Its exit status.
        exit: Exit,
        /// Whether the service would fail in the same way.
        certainty: Certainty,
    },
    /// The process crashed or was killed.
    #[error(
        "cannot use {path}: the process that tried it {how}; the file is damaged or malicious, or the backend has a \
         bug: export the model again, or try another backend"
    )]
    Ended {
        /// The model.
        path: PathBuf,
        /// "was ended by SIGSEGV", "exited with status 1".
        how: String,
    },
    /// The process needs more memory than it may use.
    #[error(
        "cannot use {path}: it needs more memory than {limit} and six times its size; if you trust it, raise \
         `load_memory_bytes` in [engine], or --load-memory"
    )]
    Memory {
        /// The model.
        path: PathBuf,
        /// `load_memory_bytes`, with its unit.
        limit: String,
    },
    /// The service's memory limit is below what the process needs.
    #[error(
        "cannot use {path}: it needs more than the {left} that the service's memory limit leaves; raise MemoryMax= in the unit \
         (`systemctl edit visiond`), or free memory"
    )]
    ServiceMemory {
        /// The model.
        path: PathBuf,
        /// The available memory, with its unit.
        left: String,
    },
    /// The process did not end in time.
    #[error(
        "cannot use {path}: it did not load and run once within {} s; it is too slow or never ends: use a smaller model, or \
         raise `load_timeout` in [engine], or --load-timeout",
        limit.as_secs_f64()
    )]
    TooSlow {
        /// The model.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// The file was replaced after the trial.
    #[error("cannot use {0}: it changed during its trial; write a new model to a file beside it, then rename that")]
    Changed(PathBuf),
    /// The process cannot be started.
    #[error("cannot start the process that tries the model: {0}")]
    Start(io::Error),
}

impl TrialError {
    /// Returns the exit status for this error.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Refused { exit, .. } => *exit,
            Self::Ended { .. }
            | Self::Memory { .. }
            | Self::ServiceMemory { .. }
            | Self::TooSlow { .. }
            | Self::Changed(_) => Exit::Model,
            Self::Start(_) => Exit::Failure,
        }
    }
}

/// Returns the exit status for a detector that cannot be created.
pub fn detector_exit(error: &DetectorError) -> Exit {
    match error {
        DetectorError::Engine(_) | DetectorError::Preprocess(_) => Exit::Model,
        // The card or the limits require something that the model does not have.
        _ => Exit::Config,
    }
    .unless_gpu_lost(error)
}

/// Why a trial failed; the texts follow the model's name.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// No result in time.
    #[error(
        "no result within {} s on {sample}: use a faster model, or raise [engine] `canary_timeout`",
        limit.as_secs_f64()
    )]
    TooSlow {
        /// The frame.
        sample: String,
        /// The limit for one run.
        limit: Duration,
    },
    /// The run failed.
    #[error("inference fails on {sample}: {error}")]
    Run {
        /// The frame.
        sample: String,
        /// The reason.
        #[source]
        error: RunError,
    },
    /// An output does not have its declared shape.
    #[error("on {sample} the output is {found}, but the model declares {output}: export it again")]
    Shape {
        /// The frame.
        sample: String,
        /// The output as declared.
        output: String,
        /// The actual type and shape.
        found: String,
    },
    /// An output holds infinities or NaNs.
    #[error(
        "on {sample} {count} of the {of} numbers of output {output} are infinite or NaN: train or convert the model again, or \
         build it with more precision"
    )]
    NotFinite {
        /// The frame.
        sample: String,
        /// The output's name.
        output: String,
        /// How many numbers are not finite.
        count: usize,
        /// How many numbers the output has.
        of: usize,
    },
    /// A detector that exposes the raw outputs cannot be created.
    #[error(transparent)]
    Detector(DetectorError),
    /// The grey frame cannot be created.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// There is not enough memory for the grey frame.
    #[error(transparent)]
    Memory(#[from] BufferError),
    /// The trial's thread cannot be started.
    #[error("cannot start a thread or open a descriptor: {0}")]
    Thread(io::Error),
    /// The trial panicked.
    #[error("internal error in its trial, see the panic in the log: please report it")]
    Panic,
}

impl CanaryError {
    /// Returns the exit status for this error.
    pub fn exit(&self) -> Exit {
        match self {
            Self::TooSlow { .. } | Self::Run { .. } | Self::Shape { .. } | Self::NotFinite { .. } => Exit::Model,
            Self::Detector(error) => detector_exit(error),
            Self::Frame(_) | Self::Memory(_) | Self::Thread(_) | Self::Panic => Exit::Failure,
        }
        .unless_gpu_lost(self)
    }
}

#[cfg(test)]
mod tests {
    use visiond_kernels::buffer::MemoryKind;
    use visiond_kernels::cuda::{CudaError, ModuleError};
    use visiond_kernels::filter::FilterError;
    use visiond_kernels::frame::FrameCopyError;
    use visiond_kernels::mask::MaskError;
    use visiond_kernels::preprocess::PreprocessError;
    use visiond_pipeline::model_runner::Fault;

    use super::*;

    #[test]
    fn each_reason_has_the_exit_status_that_the_help_promises() {
        let model = |error: ModelError| ServiceError::model("objects", error).exit();
        let trial = |error: TrialError| model(ModelError::Trial(error));
        let path = || PathBuf::from("net.onnx");
        let limit = Duration::from_secs(1);
        let refused = |exit| trial(TrialError::Refused { text: String::new(), exit, certainty: Certainty::OnlyHere });
        assert_eq!([refused(Exit::Config), refused(Exit::GpuLost)], [Exit::Config, Exit::GpuLost]);
        for error in [
            TrialError::Ended { path: path(), how: String::new() },
            TrialError::Memory { path: path(), limit: String::new() },
            TrialError::ServiceMemory { path: path(), left: String::new() },
            TrialError::TooSlow { path: path(), limit },
            TrialError::Changed(path()),
        ] {
            assert_eq!(trial(error), Exit::Model);
        }
        assert_eq!(trial(TrialError::Start(io::ErrorKind::OutOfMemory.into())), Exit::Failure);

        let canary = |error: CanaryError| model(ModelError::Canary(error));
        let fails = RunError::new(Fault::Run, "it fails");
        assert_eq!(canary(CanaryError::Run { sample: String::new(), error: fails }), Exit::Model);
        assert_eq!(canary(CanaryError::TooSlow { sample: String::new(), limit }), Exit::Model);
        assert_eq!(canary(CanaryError::Panic), Exit::Failure);

        for (error, exit) in [
            (ServiceError::NoCamera, Exit::Config),
            (ServiceError::Http(HttpError::PassedSocket(io::ErrorKind::OutOfMemory.into())), Exit::Output),
            (ServiceError::System(io::ErrorKind::OutOfMemory.into()), Exit::Failure),
            (ServiceError::Ending, Exit::Failure),
            (ServiceError::Panic, Exit::Failure),
        ] {
            assert_eq!(ExitError::from(error).exit, exit);
        }
        let unread = EngineError::Unreadable(path(), io::ErrorKind::InvalidData.into());
        assert_eq!(detector_exit(&DetectorError::Engine(unread)), Exit::Model);
        assert_eq!(detector_exit(&DetectorError::NoRawOutputs), Exit::Config);
    }

    #[test]
    fn a_gpu_that_is_lost_ends_with_7_wherever_it_shows() {
        // An illegal address, and too little memory.
        for (code, lost) in [(700, true), (2, false)] {
            let cuda = || CudaError { call: "cuMemAlloc", code, name: String::new() };
            let buffer = || BufferError::Cuda { bytes: 1, kind: MemoryKind::Mapped, error: cuda() };
            let module = || ModuleError::NoFunction { module: "filter", function: "filter".into(), error: cuda() };
            let detectors: [fn(CudaError, BufferError, ModuleError) -> DetectorError; 12] = [
                |cuda, _, _| cuda.into(),
                |_, buffer, _| buffer.into(),
                |cuda, _, _| EngineError::from(cuda).into(),
                |_, buffer, _| EngineError::from(buffer).into(),
                |cuda, _, _| FilterError::from(cuda).into(),
                |_, _, module| FilterError::from(module).into(),
                |_, buffer, _| MaskError::from(buffer).into(),
                |_, _, module| MaskError::from(module).into(),
                |_, _, module| PreprocessError::from(module).into(),
                |cuda, _, _| PreprocessError::from(FrameCopyError::from(cuda)).into(),
                |_, buffer, _| DetectorError::Frame { slot: 0, error: buffer.into() },
                |cuda, _, _| EngineError::Backend(Box::new(cuda)).into(),
            ];
            for make in detectors {
                let detector = || make(cuda(), buffer(), module());
                let sample = String::new;
                let errors = [
                    ModelError::from(detector()),
                    ModelError::from(CanaryError::Detector(detector())),
                    ModelError::from(CanaryError::Run { sample: sample(), error: detector().into() }),
                ];
                for error in errors {
                    let error = ServiceError::model("objects", error);
                    assert_eq!(error.exit() == Exit::GpuLost, lost, "{error:?}");
                }
            }
            let others: [ServiceError; 4] = [
                ServiceError::model("objects", EngineError::from(cuda())),
                ServiceError::model("objects", EngineError::from(buffer())),
                ServiceError::model("objects", CanaryError::from(buffer())),
                ServiceError::Buffers(buffer()),
            ];
            for error in others {
                assert_eq!(error.exit() == Exit::GpuLost, lost, "{error:?}");
            }
        }
    }

    #[test]
    fn a_file_that_only_this_user_may_not_read_is_no_error_of_the_service() {
        let certainty = |kind: io::ErrorKind| {
            ServiceError::model("objects", ModelError::Card(CardError::Read("net.toml".into(), kind.into())))
                .certainty()
        };
        assert_eq!(certainty(io::ErrorKind::PermissionDenied), Certainty::OnlyHere);
        assert_eq!(certainty(io::ErrorKind::InvalidData), Certainty::Certain);
        let text = String::new();
        let refused = TrialError::Refused { text, exit: Exit::Model, certainty: Certainty::OnlyHere };
        assert_eq!(ServiceError::model("objects", refused).certainty(), Certainty::OnlyHere);
        assert_eq!(ServiceError::Ending.certainty(), Certainty::Certain);
    }
}
