//! `visiond compare`: compares a model with one that the daemon runs, on live frames.
//!
//! The daemon gives frames with what its model detected in them; the other model runs in this process. The daemon, its model and what
//! it publishes stay as they are, and a model that crashes or hangs takes only this process with it.

mod live_frame;
mod report;
mod rival;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use visiond_config::ConfigErrors;
use visiond_config::types::Config;
use visiond_config::units::format_duration;
use visiond_message::status::CameraStatus;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;
use visiond_system::priority::{Rank, give_way};
use visiond_web::status::report::StatusReport;

use self::live_frame::LiveFrame;
use self::report::{LiveReport, Measured};
use self::rival::{ComparedCamera, Rival};
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

    /// End after this many frames, if that is sooner
    #[arg(long, value_name = "FRAMES", default_value_t = u64::MAX, hide_default_value = true)]
    frames: u64,

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

The new model runs at low priority: where cores are busy, its times are longer than they would be in the daemon.

It works for models that detect objects in whole frames, with the settings that their cameras have in the daemon's configuration.

Examples:
  visiond compare new.onnx
  visiond compare yolo11s.engine --with objects --time 10min
  visiond compare --json new.onnx --min-found 0.8 | jq .reasons";

/// The longest time without any frame before the comparison is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// Time limit for one frame, for which the daemon waits 5 s.
const FRAME: Duration = Duration::from_secs(20);

/// How often the temperature is read.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Compares and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let daemon = DaemonArgs { config: args.config.clone(), url: args.url.clone() };
    let client = Client::find(&daemon, args.config.as_deref())?;
    let status: StatusReport = client.get_json("/api/v1/status")?;
    let name = running_model(&status, args.with.as_deref())?;
    let path = args.config.clone().unwrap_or_else(|| PathBuf::from(&status.config));
    // No fault of the model, so not the status of one that cannot be used.
    let unreadable = |error: ConfigErrors| {
        ExitError::new(Exit::Input, format!("cannot read the daemon's configuration, name it with --config: {error}"))
    };
    let config = Config::load(&path).map_err(unreadable)?;
    let cameras = cameras_of(&config, &name, &status)?;
    // The daemon's own work comes first, and on a machine without a GPU it needs the same cores. Threads of the model inherit it.
    give_way(Rank::Nice);
    let settings = config.models.iter().find(|model| model.name == name).cloned().unwrap_or_default();
    let engine = args.trial.of(config.engine.clone());
    let mut rival = Rival::load(&args.model, args.card.as_deref(), settings, &engine)?;

    let mut measured = Measured::default();
    measured.note_status(&status);
    let (begin, mut progress) = (Instant::now(), Progress::new());
    let pause = Duration::from_secs_f64(1.0 / args.max_fps);
    let (mut next, mut last_frame, mut last_status) = (begin, begin, begin);
    let mut compared: Vec<_> = cameras.into_iter().map(|camera| (rival.agreement(&camera), camera)).collect();
    for at in (0..compared.len()).cycle() {
        let left = args.time.saturating_sub(begin.elapsed());
        thread::sleep(next.saturating_duration_since(Instant::now()).min(left));
        if begin.elapsed() >= args.time || measured.frames() as u64 >= args.frames {
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
        match rival.compare(&frame, camera, agreement, measured.frames()) {
            Ok(took_us) => measured.add(&camera.name, took_us, frame.run_us()),
            // The camera has another size now than its settings are for.
            Err(error) if error.exit == Exit::Input => measured.last_error = Some(error.message),
            Err(error) => return Err(error),
        }
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
        let why = measured.last_error.map(|error| format!(": {error}")).unwrap_or_default();
        return Err(ExitError::new(
            Exit::Input,
            format!("no frame was compared in this time, allow more with --time{why}"),
        ));
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
            "the model {wanted} runs on detections, and only models on frames are compared: use {}",
            names()
        )),
        Some(wanted) => refuse(format!("the daemon runs no model {wanted}: use {}", names())),
        None => match &*on_frames().collect::<Vec<_>>() {
            [only] => Ok(only.name.clone()),
            _ => refuse(format!("the daemon runs several models: choose one of {} by --with", names())),
        },
    }
}

/// Returns the cameras that give frames to a model.
fn cameras_of(config: &Config, model: &str, status: &StatusReport) -> Result<Vec<ComparedCamera>, ExitError> {
    // One that only tries to connect has no size.
    let is_live = |camera: &&CameraStatus| camera.phase == "streaming" && camera.width > 0;
    let streams = |name: &str| status.cameras.iter().filter(is_live).any(|camera| camera.name == name);
    let streaming = config.cameras.iter().filter(|camera| streams(&camera.name));
    let cameras = streaming.filter_map(|camera| ComparedCamera::of(config, camera, model));
    let cameras: Vec<_> = cameras.collect::<Result<_, _>>()?;
    if cameras.is_empty() {
        let message = format!("no camera gives frames to the model {model} now: see `visiond top`");
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(cameras)
}
