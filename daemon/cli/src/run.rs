//! `visiond run`: the daemon.
//!
//! First it loads the configuration and the models and opens the sinks, so that errors appear before anything runs. Then the
//! main thread waits for a signal, for the end of the pipeline or for the next status report. The first SIGTERM or SIGINT
//! shuts the daemon down cleanly within two seconds, a second one ends it at once. SIGHUP reloads the configuration, see
//! [`service`](visiond_service). Rust's runtime ignores SIGPIPE.

mod main_loop;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use visiond_config::types::Config;
use visiond_pipeline::summary::{CameraSummary, Summary};
use visiond_service::reload::Reloader;
use visiond_service::{Service, SummaryParts};
use visiond_system::exit::{self, Exit, ExitError};
use visiond_system::signals::{SignalRequest, Signals};
use visiond_system::stop::{Stop, Wake};
use visiond_system::systemd::Notifier;
use visiond_system::thermal::Thermals;
use visiond_system::{logging, process};
use visiond_telemetry::metrics::Phase;
use visiond_web::status::StatusCollector;

use crate::config_path::config_path;
use crate::output::{to_json, write_file};
use crate::value_parsers::duration;
use main_loop::{End, MainLoop};

/// Time limit from a signal to the end of the process, for flushing the queues.
const END: Duration = Duration::from_millis(1_500);
/// Extra time for a reload to log the losses of the sinks that it removed.
const RELOAD_PATIENCE: Duration = Duration::from_millis(200);
/// Time limit without a signal: the cameras have ended, or a limit is reached.
const DRAIN: Duration = Duration::from_secs(30);

/// Run the daemon: detect objects in camera frames and publish them, until SIGTERM or SIGINT
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Configuration file [default: /etc/visiond/visiond.toml, otherwise visiond.toml in this folder]
    config: Option<PathBuf>,

    /// Exit after N messages [default: no limit]
    // The alias is the name in the previous version; remove it in the next one.
    #[arg(long, alias = "max-frames", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_messages: Option<u64>,

    /// Exit after TIME, such as 10s or 5min [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Write a summary of the run to FILE as JSON [default: none]
    #[arg(long, value_name = "FILE")]
    summary_json: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
SIGTERM or SIGINT ends the daemon within two seconds with status 0. A second signal ends it at once with status \
143 or 130.

SIGHUP reloads the configuration and replaces only what has changed. An invalid configuration is rejected with its \
errors; the running one stays in force.

When every source has ended, the daemon exits with status 0. If a source failed for good or no source delivered a frame, \
the status is 5. If inference failed on every frame, the status is 4. After an unrecoverable CUDA error the daemon exits with status 7, and systemd restarts it.

Examples:
  visiond run
  visiond run config/demo.toml
  visiond -v run config/demo.toml              log more
  visiond run --duration 1min --summary-json summary.json config/demo.toml";

/// Runs the daemon until a signal, a limit or the end of all sources.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let path = config_path(args.config)?;
    let signals = Signals::register().map_err(ExitError::system)?;
    let config = Config::load(&path).map_err(|errors| ExitError::new(Exit::Config, errors))?;
    logging::configure(config.log.level, config.log.target);
    let outcome = serve(&path, config, args.max_messages, args.duration, &signals)?;
    if let Some(path) = &args.summary_json {
        write_file(path, to_json(&outcome.summary, true)?)?;
    }
    report(&outcome.summary);
    outcome.failure.map_or(Ok(Exit::Success), Err)
}

/// The result of a completed run.
struct RunOutcome {
    summary: Summary,
    failure: Option<ExitError>,
}

/// Runs `config`, which came from `path`; a reload reads `path` again. The run ends after `messages` messages or `duration`.
fn serve(
    path: &Path,
    config: Config,
    messages: Option<u64>,
    duration: Option<Duration>,
    signals: &Signals,
) -> Result<RunOutcome, ExitError> {
    let stop = Stop::new().map_err(ExitError::system)?;
    let notifier = Notifier::from_environment();
    let thermals = Thermals::start(&stop);
    notifier.status("loading the models");
    let more_time = notifier.more_time();
    // Binds the HTTP addresses before anything runs, so that a bad address is an early error.
    let prepared = visiond_web::PreparedListeners::new(&config.http, &[])?;
    let service = Arc::new(Service::start(config, messages, &stop)?);
    drop(more_time);
    let began = Instant::now();
    let mut reloader = Reloader::new(path.to_owned(), &service, signals.wake_pipe());
    let thermals = thermals.as_ref();
    let status = Arc::new(StatusCollector::new(&service, thermals, path));
    let state = visiond_web::AppState {
        service: Arc::clone(&service),
        live: Arc::clone(service.live()),
        status: Arc::clone(&status),
        reloads: reloader.reloads.clone(),
    };
    let server = Arc::new(visiond_web::Server::start(prepared, state).map_err(ExitError::system)?);
    service.is_served_by(Arc::<visiond_web::Server>::clone(&server));
    let (service, stop, notifier) = (&*service, &stop, &notifier);
    let mut main_loop =
        MainLoop { service, stop, signals, notifier, thermals, status: &status, reloader: &mut reloader };
    let end = main_loop.run(duration.map(|duration| began + duration));
    // Before anything that can wait.
    let ended = Instant::now();
    reloader.close();
    visiond_kernels::nvdec::leave_decoders_to_the_end();

    let seconds = began.elapsed().as_secs_f64();
    notifier.stopping();
    logging::clear_live_line();
    stop.raise();
    let needs_restart = service.needs_restart();
    let deadline = ended + if end == End::Signal || needs_restart.is_some() { END } else { DRAIN };
    let end_all = || {
        server.end();
        service.end(deadline, seconds)
    };
    let (SummaryParts { models, cameras, sinks }, hastened) = if end == End::Signal {
        service.hasten(deadline);
        (end_all(), None)
    } else {
        hastened_by_signal(signals, service, end_all)?
    };
    let deadline = hastened.unwrap_or(deadline);
    if !reloader.wait(deadline + RELOAD_PATIENCE) {
        log::warn!("a reload was still running and is abandoned");
        exit::skip_cleanup();
    }
    let summary = Summary {
        seconds,
        first_message_s: service.first_message().map(|age| age.as_secs_f64()),
        peak_resident_bytes: process::resident().map(|resident| resident.peak),
        gpu: thermals.map(Thermals::gpu),
        jetson: thermals.and_then(Thermals::summary),
        models,
        cameras,
        sinks,
    };
    let failure = match service.sink_failure() {
        _ if needs_restart.is_some() => needs_restart,
        // The reader of standard output has closed the pipe: exit without a message, see `Exit::Output`.
        Some(_) => Some(ExitError { message: String::new(), exit: Exit::Output }),
        None if end == End::Signal => None,
        None if service.broken().is_some() => service.broken().map(|why| ExitError::new(Exit::Failure, why)),
        None => verdict(&summary),
    };
    Ok(RunOutcome { summary, failure })
}

/// Runs `end_all`, and shortens it if a signal arrives meanwhile; returns its result, and the deadline that the signal set.
fn hastened_by_signal<T>(
    signals: &Signals,
    service: &Service,
    end_all: impl FnOnce() -> T,
) -> Result<(T, Option<Instant>), ExitError> {
    let ended = Stop::new().map_err(ExitError::system)?;
    let watch = || {
        while let Ok(Wake::Ready) = ended.wait_readable(signals.readable(), None) {
            if let Some(SignalRequest::End(name)) = signals.take_request() {
                log::info!("{name}: shutting down");
                let deadline = Instant::now() + END;
                service.hasten(deadline);
                return Some(deadline);
            }
        }
        None
    };
    thread::scope(|scope| {
        let watch = thread::Builder::new().name("hasten".to_owned()).spawn_scoped(scope, watch);
        let watch = watch.map_err(ExitError::system)?;
        let result = end_all();
        ended.raise();
        // The panic hook has logged the panic.
        Ok((result, watch.join().ok().flatten()))
    })
}

/// Returns the error of a run that ended without a signal, if it failed.
fn verdict(summary: &Summary) -> Option<ExitError> {
    let failed = summary.cameras.iter().filter(|camera| camera.state == Phase::Failed.name());
    let failed: Vec<_> = failed.map(|camera| camera.name.as_str()).collect();
    if !failed.is_empty() {
        let message = format!("failed cameras: {}; see the errors above", failed.join(", "));
        return Some(ExitError::new(Exit::Input, message));
    }
    let sum = |count: fn(&CameraSummary) -> u64| summary.cameras.iter().map(count).sum::<u64>();
    if sum(|camera| camera.captured) == 0 {
        return Some(ExitError::new(Exit::Input, "no camera delivered a frame; see the messages above"));
    }
    let message = "inference failed on every frame; see the errors above";
    (sum(|camera| camera.published) == 0).then(|| ExitError::new(Exit::Model, message))
}

/// Prints the summary on a terminal, and logs it otherwise.
fn report(summary: &Summary) {
    for line in summary.lines() {
        if logging::has_terminal() && log::log_enabled!(log::Level::Info) {
            eprintln!("{}", logging::escape(&line));
        } else {
            log::info!("{line}");
        }
    }
}

#[cfg(test)]
mod tests;
