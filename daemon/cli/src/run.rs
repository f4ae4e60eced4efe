//! `visiond run`: the daemon.
//!
//! Everything is made ready first, so that what is wrong is told before anything runs: configuration, networks, sinks,
//! pictures. Then this thread waits: for a signal, for the pipeline's end, or for the next time to tell how it goes. The
//! first SIGTERM or SIGINT ends it in order within two seconds, a second one at once. SIGHUP has the configuration read
//! again, see [`service`](visiond_service). SIGPIPE is ignored by Rust's runtime.

mod main_loop;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::Config;
use visiond_flow::metrics::Phase;
use visiond_pipeline::summary::{CameraSummary, Summary};
use visiond_service::reload::Reloader;
use visiond_service::{Parts, Service};
use visiond_system::exit::{self, Exit, ExitError};
use visiond_system::signals::Signals;
use visiond_system::stop::Stop;
use visiond_system::systemd::Notifier;
use visiond_system::thermal::Thermals;
use visiond_system::{logging, process};
use visiond_web::observe::Observer;

use crate::config_path::config_path;
use crate::value_parsers::duration;
use main_loop::{End, MainLoop};

/// From a signal until all is written out and the process ends.
const END: Duration = Duration::from_millis(1_700);
/// The same where nobody waits: the cameras have ended, or a limit is reached.
const DRAIN: Duration = Duration::from_secs(30);

/// Run the daemon: cameras in, detections out, until SIGTERM or SIGINT
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The configuration; without it /etc/visiond/visiond.toml, else visiond.toml in this folder
    config: Option<PathBuf>,

    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_frames: Option<u64>,

    /// End after so long, such as 10s or 5min
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Write what the run came to into this file, as JSON
    #[arg(long, value_name = "FILE")]
    summary_json: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
It ends with status 0 within two seconds of SIGTERM or SIGINT; a second signal ends it at once,
with status 143 or 130. When every source has come to its end, it ends by itself: with 0, or with
5 when a source failed for good or none gave a frame, or with 4 when the network failed on every frame.
SIGHUP has it read the configuration again: what has changed is exchanged while all else goes on, and a
configuration that is wrong is told of and refused, and what runs goes on.
When the GPU fails in a way that only a new process recovers from, it ends with 7, and systemd starts it again.

Examples:
  visiond run
  visiond run config/demo.toml
  visiond -v run config/demo.toml              with more in the log
  visiond run --duration 1min --summary-json summary.json config/demo.toml";

/// Runs until told to stop.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let path = config_path(args.config)?;
    let signals = Signals::register().map_err(ExitError::system)?;
    let config = Config::load(&path).map_err(|errors| ExitError::new(Exit::Config, errors))?;
    logging::configure(config.log.level, config.log.target);
    let limits = Limits { messages: args.max_frames, duration: args.duration };
    let outcome = serve(&path, config, &limits, &signals)?;
    if let Some(path) = &args.summary_json {
        write_summary(path, &outcome.summary)?;
    }
    tell(&outcome.summary);
    match outcome.failure {
        Some(failure) => Err(failure),
        None => Ok(Exit::Success),
    }
}

/// When to end without being told.
struct Limits {
    messages: Option<u64>,
    duration: Option<Duration>,
}

/// A run that began, and how it ended.
struct Outcome {
    summary: Summary,
    failure: Option<ExitError>,
}

/// Runs `config`, which was read from `path` and is read from there again.
fn serve(path: &Path, config: Config, limits: &Limits, signals: &Signals) -> Result<Outcome, ExitError> {
    let stop = Stop::new().map_err(ExitError::system)?;
    let notifier = Notifier::from_environment();
    let thermals = Thermals::start(&stop);
    notifier.status("loading the networks");
    let more_time = notifier.more_time();
    // Before anything runs, as whatever is wrong with an address is wrong then.
    let prepared = visiond_web::Prepared::new(&config.http, &[])?;
    let service = Arc::new(Service::start(config, limits.messages, &stop)?);
    drop(more_time);
    let began = Instant::now();
    let mut reloader = Reloader::new(path.to_owned(), &service, signals.bell());
    let thermals = thermals.as_ref();
    let observer = Arc::new(Observer::new(&service, thermals, path));
    let state = visiond_web::State {
        service: Arc::clone(&service),
        live: Arc::clone(service.live()),
        observer: Arc::clone(&observer),
        reloads: reloader.reloads(),
    };
    let server = Arc::new(visiond_web::Server::start(prepared, state).map_err(ExitError::system)?);
    service.is_served_by(Arc::<visiond_web::Server>::clone(&server));
    let (service, stop, notifier) = (&*service, &stop, &notifier);
    let mut main_loop =
        MainLoop { service, stop, signals, notifier, thermals, observer: &observer, reloader: &mut reloader };
    let end = main_loop.run(limits.duration.map(|duration| began + duration));
    reloader.close();

    let seconds = began.elapsed().as_secs_f64();
    notifier.stopping();
    logging::clear_live_line();
    stop.raise();
    let lost = service.lost();
    let deadline = Instant::now() + if end == End::Signal || lost.is_some() { END } else { DRAIN };
    server.end(deadline);
    let Parts { models, cameras, sinks } = service.end(deadline, seconds);
    if !reloader.wait(deadline) {
        log::warn!("a reload was under way and is left behind");
        exit::skip_cleanup();
    }
    let summary = Summary {
        seconds,
        first_message_s: service.first_message().map(|age| age.as_secs_f64()),
        peak_resident_bytes: None,
        jetson: thermals.map(Thermals::summary),
        models,
        cameras,
        sinks,
    };
    let summary = summary.with_memory(process::resident());
    let lost = lost.map(|reason| {
        let message = format!("the GPU failed, and only a new process gets it back (systemd starts one): {reason}");
        ExitError::new(Exit::Gpu, message)
    });
    let failure = match service.sink_failure() {
        _ if lost.is_some() => lost,
        // A reader that has gone wants no words either, see `Exit::Output`.
        Some(_) => Some(ExitError { message: String::new(), exit: Exit::Output }),
        None if end == End::Signal => None,
        None if service.broken().is_some() => service.broken().map(|why| ExitError::new(Exit::Failure, why)),
        None => verdict(&summary),
    };
    Ok(Outcome { summary, failure })
}

/// What a run that was not told to end has to answer for.
fn verdict(summary: &Summary) -> Option<ExitError> {
    let failed: Vec<_> = summary.cameras.iter().filter(|camera| camera.state == Phase::Failed.name()).collect();
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|camera| camera.name.as_str()).collect();
        return Some(ExitError::new(Exit::Input, format!("failed, see above: camera {}", names.join(", "))));
    }
    let sum = |count: fn(&CameraSummary) -> u64| summary.cameras.iter().map(count).sum::<u64>();
    if sum(|camera| camera.captured) == 0 {
        return Some(ExitError::new(Exit::Input, "no camera gave a frame"));
    }
    let message = "not one frame could be looked at, see above";
    (sum(|camera| camera.published) == 0).then(|| ExitError::new(Exit::Model, message))
}

/// On a terminal as it stands, else into the log.
fn tell(summary: &Summary) {
    for line in summary.lines() {
        if logging::has_terminal() && log::log_enabled!(log::Level::Info) {
            eprintln!("{}", logging::escape(&line));
        } else {
            log::info!("{line}");
        }
    }
}

fn write_summary(path: &Path, summary: &Summary) -> Result<(), ExitError> {
    let fail = |error: &dyn std::fmt::Display| {
        ExitError::new(Exit::Output, format!("the summary cannot be written to {}: {error}", path.display()))
    };
    let mut text = serde_json::to_string_pretty(summary).map_err(|error| fail(&error))?;
    text.push('\n');
    fs::write(path, text).map_err(|error| fail(&error))
}

#[cfg(test)]
mod tests;
