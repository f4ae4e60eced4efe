//! `visiond run`: the daemon.
//!
//! Everything is made ready first, so that what is wrong is told before anything runs: configuration, networks, sinks,
//! pictures. Then this thread waits: for a signal, for the pipeline's end, or for the next time to tell how it goes. The
//! first SIGTERM or SIGINT ends it in order within two seconds, a second one at once. SIGPIPE is ignored by Rust's runtime.

mod plan;
mod signals;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{CliError, config_path};
use crate::config::parse_duration;
use crate::config::types::Config;
use crate::exit::Exit;
use crate::logging;
use crate::pipeline::camera::Patience;
use crate::pipeline::metrics::Phase;
use crate::pipeline::process;
use crate::pipeline::status::Reporter;
use crate::pipeline::stop::{Stop, Wake};
use crate::pipeline::summary::{CameraSummary, ModelSummary, SinkSummary, Summary};
use crate::pipeline::supervisor::{JOIN, LaneView, Pipeline, Surroundings};
use crate::pipeline::watchdog::Watchdog;
use crate::publish::{Publisher, SinkCounts};
use crate::systemd::Notifier;
use crate::thermal::Thermals;
use plan::Plan;
use signals::Signals;

/// From a signal until all is written out and the process ends.
const END: Duration = Duration::from_millis(1_700);
/// The same where nobody waits: the cameras have ended, or a limit is reached.
const DRAIN: Duration = Duration::from_secs(30);
/// How often readiness is looked at until systemd was told.
const READY_LOOK: Duration = Duration::from_millis(20);

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
When the GPU fails in a way that only a new process recovers from, it ends with 7, and systemd starts it again.

Examples:
  visiond run
  visiond run config/demo.toml
  visiond -v run config/demo.toml              with more in the log
  visiond run --duration 1min --summary-json summary.json config/demo.toml";

/// A duration above zero, for clap.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "not a time with its unit, such as 10s or 5min".to_owned())
}

/// What ended the waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// `--duration` is over.
    Duration,
    /// Stop was raised from inside: every camera ended, `--max-frames` is reached, or no sink is left.
    Inside,
}

/// Runs until told to stop.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let path = config_path(args.config)?;
    let config = Config::load(&path).map_err(|errors| CliError::new(Exit::Config, errors))?;
    logging::configure(&config.log);
    let limits = Limits { messages: args.max_frames, duration: args.duration };
    let signals = Signals::register().map_err(system)?;
    let outcome = serve(&config, &limits, &signals)?;
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
    failure: Option<CliError>,
}

fn system(error: std::io::Error) -> CliError {
    CliError::new(Exit::Failure, format!("the system refuses: {error}"))
}

fn serve(config: &Config, limits: &Limits, signals: &Signals) -> Result<Outcome, CliError> {
    let stop = Stop::new().map_err(system)?;
    let notifier = Notifier::from_environment();
    let thermals = Thermals::start(&stop);
    notifier.status("loading the networks");
    let more_time = notifier.more_time();
    let Plan { lanes, backends, pictures } = Plan::new(config)?;
    drop(more_time);
    let publisher = Publisher::start(&config.sinks, &stop).map_err(|error| CliError::new(Exit::Output, error))?;
    let publisher = Arc::new(publisher);
    if config.sinks.is_empty() {
        log::warn!("no [[sink]] is configured: detections go nowhere");
    }

    let first_message = Arc::new(OnceLock::new());
    let outlet = {
        let (publisher, first_message) = (Arc::clone(&publisher), Arc::clone(&first_message));
        Arc::new(move |message: &_| {
            publisher.publish(message);
            first_message.get_or_init(process::age);
        })
    };
    let around = Surroundings { outlet, messages: limits.messages, patience: Patience::default(), stop: stop.clone() };
    let began = Instant::now();
    let pipeline = Pipeline::start(lanes, around).map_err(system)?;

    let end =
        Waiting { config, stop: &stop, signals, notifier: &notifier, pipeline: &pipeline, thermals: thermals.as_ref() }
            .wait(limits.duration.map(|duration| began + duration));
    let seconds = began.elapsed().as_secs_f64();
    notifier.stopping();
    logging::clear_live_line();
    stop.raise();
    let in_haste = end == End::Signal || pipeline.lost().is_some();
    let deadline = Instant::now() + if in_haste { END } else { DRAIN };
    pipeline.halt();
    pipeline.join(Instant::now() + JOIN);
    let pictures: Vec<_> = pictures.iter().map(|picture| (picture, picture.annotator.close(deadline))).collect();
    let sinks = publisher.close(deadline);

    let views = pipeline.lanes();
    let cameras = views.iter().flat_map(|view| &view.cameras).map(|camera| {
        let summary = CameraSummary::new(&camera.name, camera.phase().name(), &camera.snapshot(), seconds);
        match pictures.iter().find(|(picture, _)| picture.camera == camera.name) {
            Some((picture, counts)) => summary.with_pictures(&picture.directory, *counts),
            None => summary,
        }
    });
    let summary = Summary {
        seconds,
        first_message_s: first_message.get().copied().flatten().map(|age| age.as_secs_f64()),
        peak_resident_bytes: None,
        jetson: thermals.as_ref().map(Thermals::summary),
        models: views
            .iter()
            .zip(&backends)
            .map(|(view, (backend, memory))| ModelSummary::new(view, backend, *memory))
            .collect(),
        cameras: cameras.collect(),
        sinks: sink_summaries(config, &sinks),
    };
    let summary = summary.with_memory(process::resident());
    let lost = pipeline.lost().map(|reason| {
        let message = format!("the GPU failed, and only a new process gets it back (systemd starts one): {reason}");
        CliError::new(Exit::Gpu, message)
    });
    let failure = match publisher.failure() {
        _ if lost.is_some() => lost,
        // A reader that has gone wants no words either, see `Exit::Output`.
        Some(_) => Some(CliError { message: String::new(), exit: Exit::Output }),
        None if end == End::Signal => None,
        None => verdict(&summary),
    };
    Ok(Outcome { summary, failure })
}

/// The loop of the main thread.
struct Waiting<'a> {
    config: &'a Config,
    stop: &'a Stop,
    signals: &'a Signals,
    notifier: &'a Notifier,
    pipeline: &'a Pipeline,
    thermals: Option<&'a Thermals>,
}

impl Waiting<'_> {
    fn wait(&self, until: Option<Instant>) -> End {
        let lanes = &self.pipeline.lanes();
        let (mut live, mut logged) = (Reporter::new(lanes), Reporter::new(lanes));
        let status = &self.config.status;
        let began = Instant::now();
        let mut live_due = (logging::has_terminal() || self.notifier.is_connected()).then_some(began + status.interval);
        // The log repeats what a terminal shows already.
        let logs = !status.log_interval.is_zero() && !logging::has_terminal();
        let mut log_due = logs.then_some(began + status.log_interval);
        let mut ready_due = self.notifier.is_connected().then_some(began);
        let mut watchdog = self.notifier.watchdog().map(Watchdog::new);
        loop {
            let due = [until, live_due, log_due, ready_due, watchdog.as_ref().map(Watchdog::due)];
            let timeout = due.into_iter().flatten().min().map(|due| due.saturating_duration_since(Instant::now()));
            match self.stop.wait_readable(self.signals.readable(), timeout) {
                Ok(Wake::Ready) => {
                    log::info!("{}: ending", self.signals.name());
                    return End::Signal;
                }
                Ok(Wake::Stopped) => return End::Inside,
                Ok(Wake::TimedOut) => {}
                Err(error) => {
                    log::error!("cannot wait for signals: {error}");
                    return End::Inside;
                }
            }
            let now = Instant::now();
            let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
            if is_due(until) {
                return End::Duration;
            }
            if is_due(ready_due) {
                ready_due = if lanes.iter().all(LaneView::is_ready) {
                    self.notifier.ready();
                    None
                } else {
                    Some(now + READY_LOOK)
                };
            }
            if is_due(live_due) {
                let mut line = live.line();
                line.extend(self.thermals.map(|thermals| format!(" | {}", thermals.short())));
                logging::live_line(&line);
                self.notifier.status(&line);
                live_due = Some(now + status.interval);
            }
            if is_due(log_due) {
                logged.lines().iter().for_each(|line| log::info!("{line}"));
                self.thermals.into_iter().for_each(|thermals| log::info!("{}", thermals.line()));
                log_due = Some(now + status.log_interval);
            }
            if let Some(watchdog) = &mut watchdog
                && watchdog.due() <= now
                && watchdog.look(now, lanes)
            {
                self.notifier.alive();
            }
        }
    }
}

/// What a run that was not told to end has to answer for.
fn verdict(summary: &Summary) -> Option<CliError> {
    let failed: Vec<_> = summary.cameras.iter().filter(|camera| camera.state == Phase::Failed.name()).collect();
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|camera| camera.name.as_str()).collect();
        return Some(CliError::new(Exit::Input, format!("failed, see above: camera {}", names.join(", "))));
    }
    let sum = |count: fn(&CameraSummary) -> u64| summary.cameras.iter().map(count).sum::<u64>();
    if sum(|camera| camera.captured) == 0 {
        return Some(CliError::new(Exit::Input, "no camera gave a frame"));
    }
    let message = "not one frame could be looked at, see above";
    (sum(|camera| camera.published) == 0).then(|| CliError::new(Exit::Model, message))
}

fn sink_summaries(config: &Config, counts: &[SinkCounts]) -> Vec<SinkSummary> {
    config.sinks.iter().zip(counts).map(|(sink, counts)| SinkSummary::new(sink, counts)).collect()
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

fn write_summary(path: &Path, summary: &Summary) -> Result<(), CliError> {
    let fail = |error: &dyn std::fmt::Display| {
        CliError::new(Exit::Output, format!("the summary cannot be written to {}: {error}", path.display()))
    };
    let mut text = serde_json::to_string_pretty(summary).map_err(|error| fail(&error))?;
    text.push('\n');
    fs::write(path, text).map_err(|error| fail(&error))
}

#[cfg(test)]
mod tests;
