//! `visiond compare`: compares a model with one that the daemon runs, on live frames.
//!
//! The daemon gives frames with what its model detected in them; the other model runs in this process. The daemon, its model and what
//! it publishes stay as they are, and a model that crashes or hangs takes only this process with it.

mod live_frame;
mod report;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use visiond_config::types::{CameraConfig, Config, ModelConfig};
use visiond_config::units::format_duration;
use visiond_engine::compare::{Agreement, MatchLimits};
use visiond_engine::detector::{Detection, Detector, DetectorError, DetectorOptions, MaskForm, ViewMerger};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::view::ViewSpec;
use visiond_pipeline::collector::{IgnoredArea, Selection, drop_ignored};
use visiond_service::{ServiceError, detector_exit, model_trial};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;
use visiond_system::priority::{Rank, give_way};
use visiond_system::stop::Stop;
use visiond_web::status::report::StatusReport;

use self::live_frame::LiveFrame;
use self::report::{LiveReport, Measured};
use crate::client::{Client, DaemonAddress, DaemonArgs};
use crate::load_limits::LoadLimits;
use crate::output::print_report;
use crate::progress::Progress;
use crate::value_parsers::{duration, fraction, rate};

/// Compare a new model with one that the daemon runs, on live frames
///
/// The new model runs in this process, on frames of the cameras that the daemon gives it. The daemon goes on with its own model, and
/// publishes what that one detects.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The new model
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// Compare with this model of the daemon [default: its only one]
    #[arg(long, value_name = "NAME")]
    with: Option<String>,

    /// Compare for this long
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = duration)]
    time: Duration,

    /// Compare at most this many frames in a second, of all cameras together
    #[arg(long, value_name = "FPS", default_value_t = 4.0, value_parser = rate)]
    max_fps: f64,

    /// Require that the new model finds this share of what the daemon's model detects, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = fraction)]
    min_found: f64,

    /// Use this model card for the new model [default: its own]
    #[arg(short, long)]
    card: Option<PathBuf>,

    #[command(flatten)]
    trial: LoadLimits,

    /// Read the daemon's address from this configuration [default: /etc/visiond/visiond.toml, otherwise ./visiond.toml]
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Connect to the daemon at ADDRESS: http://HOST:PORT or unix:/PATH [default: from CONFIG, or this user's daemon, or the service]
    #[arg(long, value_name = "ADDRESS", value_parser = DaemonAddress::parse)]
    url: Option<DaemonAddress>,

    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Boxes of the same class match from an IoU of 0.5 on. With fewer than 20 detections of the daemon's model there is nothing to judge, and the status is 0. It is 8 if the new model finds too few of them, or far more objects than the daemon's model.

It works for models that detect objects in whole frames, with the settings that their cameras have in the daemon's configuration.

Examples:
  visiond compare new.onnx
  visiond compare yolo11s.engine --with objects --time 10min
  visiond compare --json new.onnx --min-found 0.8 | jq .reasons";

/// The longest time without any frame before the comparison is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// Time limit for one frame, for which the daemon waits 5 s.
const FRAME: Duration = Duration::from_secs(20);

/// How far above the threshold the score of an object must be that only one of the models detects, to count. Two models rarely give an
/// object the same score.
const MARGIN: f64 = 0.1;

/// The least score that is requested of the new model.
const LEAST_SCORE: f64 = 0.01;

/// How often the temperature is read.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Compares and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let daemon = DaemonArgs { config: args.config.clone(), url: args.url.clone() };
    let client = Client::find(&daemon, args.config.as_deref())?;
    let status: StatusReport = client.get_json("/api/v1/status")?;
    let name = running_model(&status, args.with.as_deref())?;
    let path = args.config.clone().unwrap_or_else(|| PathBuf::from(&status.config));
    let config = Config::load(&path).map_err(ServiceError::from).map_err(ExitError::from)?;
    let cameras = cameras_of(&config, &name, &status)?;
    // The daemon's own work comes first, and on a machine without a GPU it needs the same cores. Threads of the model inherit it.
    give_way(Rank::Nice);
    let mut rival = Rival::load(&args, &config, &name)?;

    let mut measured = Measured::default();
    measured.note_status(&status);
    let (begin, mut progress) = (Instant::now(), Progress::new());
    let pause = Duration::from_secs_f64(1.0 / args.max_fps);
    let (mut next, mut last_frame, mut last_status) = (begin, begin, begin);
    let mut compared: Vec<_> = cameras.into_iter().map(|camera| (rival.agreement(&camera), camera)).collect();
    for at in (0..compared.len()).cycle() {
        let left = args.time.saturating_sub(begin.elapsed());
        thread::sleep(next.saturating_duration_since(Instant::now()).min(left));
        if begin.elapsed() >= args.time {
            break;
        }
        next = next.max(Instant::now()) + pause;
        let (agreement, camera) = &mut compared[at];
        let path = format!("/api/v1/cameras/{}/frame?model={name}", camera.name);
        let answer = client.ask(Method::GET, &path, None, FRAME).and_then(|reply| client.success(reply));
        let frame = match answer {
            Ok(reply) => client.json::<LiveFrame>(&reply)?,
            // It may be restarting, or this camera gives no frame at the moment.
            Err(error) if last_frame.elapsed() > SILENCE => return Err(error),
            Err(error) => {
                measured.last_error = Some(error.message);
                continue;
            }
        };
        last_frame = Instant::now();
        rival.compare(&frame, camera, agreement, &mut measured)?;
        if last_status.elapsed() >= STATUS_EVERY {
            last_status = Instant::now();
            // The next one will do as well.
            client.get_json("/api/v1/status").into_iter().for_each(|status| measured.note_status(&status));
        }
        let (frames, total) = (measured.frames(), format_duration(args.time));
        progress.tell(|| format!("{frames} frames compared, {} s of {total}", begin.elapsed().as_secs()));
    }
    clear_live_line();
    if measured.frames() == 0 {
        let why = measured.last_error.unwrap_or_else(|| "no frame came in this time".to_owned());
        return Err(ExitError::new(Exit::Input, format!("nothing was compared: {why}; allow more with --time")));
    }
    let agreements = compared.iter().map(|(agreement, _)| agreement);
    let report = LiveReport::new(&rival, &status, &name, agreements, &measured, args.min_found, begin.elapsed());
    print_report(args.json, &report, LiveReport::text)?;
    Ok(if report.agree { Exit::Success } else { Exit::Differs })
}

/// Returns the name of the daemon's model to compare with.
fn running_model(status: &StatusReport, wanted: Option<&str>) -> Result<String, ExitError> {
    let on_frames = || status.models.iter().filter(|model| model.on.is_none());
    let names = || on_frames().map(|model| &*model.name).collect::<Vec<_>>().join(", ");
    let refuse = |message: String| Err(ExitError::new(Exit::Usage, message));
    match wanted {
        Some(wanted) if on_frames().any(|model| model.name == wanted) => Ok(wanted.to_owned()),
        Some(wanted) if status.models.iter().any(|model| model.name == wanted) => refuse(format!(
            "the model {wanted} runs on detections, and only models on frames are compared: {}",
            names()
        )),
        Some(wanted) => refuse(format!("the daemon runs no model {wanted}: it runs {}", names())),
        None => match &*on_frames().collect::<Vec<_>>() {
            [only] => Ok(only.name.clone()),
            _ => refuse(format!("the daemon runs several models: choose one of {} by --with", names())),
        },
    }
}

/// A camera, and what its model sees and keeps.
struct ComparedCamera {
    name: String,
    view: ViewSpec,
    selection: Selection,
    ignored: Vec<IgnoredArea>,
}

impl ComparedCamera {
    fn of(config: &Config, camera: &CameraConfig, model: &str) -> Option<Result<Self, ExitError>> {
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

/// Returns the cameras that give frames to a model.
fn cameras_of(config: &Config, model: &str, status: &StatusReport) -> Result<Vec<ComparedCamera>, ExitError> {
    let streams = |name: &str| status.cameras.iter().any(|camera| camera.name == name && camera.phase == "streaming");
    let streaming = config.cameras.iter().filter(|camera| streams(&camera.name));
    let cameras = streaming.filter_map(|camera| ComparedCamera::of(config, camera, model));
    let cameras: Vec<_> = cameras.collect::<Result<_, _>>()?;
    if cameras.is_empty() {
        let message = format!("no camera gives frames to the model {model} now: see `visiond top`");
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(cameras)
}

/// The new model.
struct Rival {
    detector: Detector,
    file: PathBuf,
    sha256: String,
    backend: String,
    /// The least score of its detections.
    threshold: f64,
    found: Vec<Detection>,
    merger: ViewMerger,
    /// Labels of the daemon's model that this one does not have; their class numbers follow its own.
    strange: Vec<String>,
}

impl Rival {
    /// Loads it with the settings of the daemon's model.
    fn load(args: &Args, config: &Config, name: &str) -> Result<Self, ExitError> {
        let settings = config.models.iter().find(|model| model.name == name).cloned().unwrap_or_default();
        let model = ModelConfig {
            path: args.model.clone(),
            card: args.card.clone(),
            bundle: None,
            sha256: None,
            masks: MaskForm::None,
            ..settings
        };
        let engine = args.trial.of(config.engine.clone());
        let loaded = model_trial::load(&model, &engine, &Stop::new().map_err(ExitError::system)?)?;
        let family = loaded.card.head.family();
        if family.gives_values() {
            let message = format!("a model of family `{}` has no detections to compare", family.name());
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
    fn agreement(&self, camera: &ComparedCamera) -> Agreement {
        let threshold = camera.selection.score_threshold.unwrap_or(0.0).max(self.threshold);
        let limits =
            MatchLimits { unmatched_margin: MARGIN, max_score_difference: f64::INFINITY, ..MatchLimits::default() };
        Agreement::within(threshold as f32, limits)
    }

    /// Runs on a frame and compares what it detects with what the daemon's model did.
    fn compare(
        &mut self,
        live: &LiveFrame,
        camera: &ComparedCamera,
        agreement: &mut Agreement,
        measured: &mut Measured,
    ) -> Result<(), ExitError> {
        let pixels = live.pixels()?;
        let cannot = |error: String| ExitError::new(Exit::Model, format!("a frame of camera {}: {error}", camera.name));
        let layout = FrameLayout::packed(PixelFormat::Rgb, live.width, live.height, ColorDescription::JPEG);
        let layout = layout.map_err(|error| cannot(error.to_string()))?;
        let view = layout.view(&pixels).map_err(|error| cannot(error.to_string()))?;
        let took_us = self.detect(&view, &camera.view).map_err(|error| {
            let exit = Exit::Model.unless_gpu_lost(&*error);
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
        agreement.add(measured.frames(), &before, &self.found);
        measured.add(&camera.name, took_us, live.run_us());
        Ok(())
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
    fn label(&self, class: u32) -> String {
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
