//! `visiond bundle install`: unpacks a bundle beside the version that is in use, lets the model prove itself on this machine, and
//! makes it the current one.
//!
//! The model runs in processes of its own, with a deadline, so that one that crashes or hangs is refused like any other. They end with
//! this one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Zoned;
use jiff::civil::Date;
use serde_json::Value;
use visiond_bundle::store::Candidate;
use visiond_bundle::{BundleError, Manifest, Proof};
use visiond_system::child_process::{Child, Filled, Launch, how_it_ended};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use super::failure::refuse;
use super::trusted_keys::KeyArgs;
use super::versions::StoreArgs;
use crate::output::{complain, note, print};
use crate::value_parsers::load_timeout;

/// Verify a bundle, let its model prove itself on this machine, and make it the current version
///
/// The version in use stays until the new one has passed. Cameras use the new one after `sudo visiond reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Install it though it was refused here before, or is not newer than a version that was installed
    #[arg(long)]
    again: bool,

    /// Give up on a model that takes longer than this to be loaded, or to be proven, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = load_timeout)]
    timeout: Duration,
}

const AFTER_HELP: &str = "\
A version that differs from its reference, or is too slow, is refused: it is not installed again without --again.

The proof chooses the backend as `visiond bench` does: [engine] of the configuration is not read.

In the configuration: bundle = \"NAME\"

Examples:
  sudo visiond bundle install street-7.visiond && sudo visiond reload
  visiond bundle install street-7.visiond --key team.pub --store /tmp/models";

/// Frames that a latency is measured with, and those before them.
const FRAMES: [&str; 2] = ["200", "20"];

/// Why a model did not pass.
pub enum Failed {
    /// It works, but not as the bundle promises: another attempt would end in the same way. The reason, and what to do.
    Proof(String, &'static str),
    /// Anything else.
    Other(ExitError),
}

impl From<ExitError> for Failed {
    fn from(error: ExitError) -> Self {
        Self::Other(error)
    }
}

/// Installs a bundle.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let keys = args.keys.read()?;
    let store = args.store.open();
    let candidate = match store.unpack(&args.bundle, &keys, args.again) {
        Err(BundleError::Installed { name, version }) => {
            note(&format!("{name} {version} is already installed"));
            return Ok(Exit::Success);
        }
        candidate => candidate.map_err(refuse)?,
    };
    let (name, version) = (candidate.manifest.name.clone(), candidate.manifest.version);
    note(&format!("{name} {version}: signed by the key {}", candidate.signer.id));
    warn_of_expiry(&candidate.manifest);
    match prove(&candidate, args.timeout) {
        Ok(()) => {}
        Err(Failed::Proof(reason, remedy)) => {
            candidate.refuse(&reason).map_err(refuse)?;
            let message = format!("{name} {version} is refused, and the version in use stays: {reason}; {remedy}");
            return Err(ExitError::new(Exit::Differs, message));
        }
        Err(Failed::Other(error)) => return Err(error),
    }
    let switched = candidate.accept().map_err(refuse)?;
    if let Some(error) = switched.left {
        note(&format!("the next installation has to tidy up: {error}"));
    }
    note(&format!(
        "{name} {version} is installed: `sudo visiond reload` makes the daemon use it, if a model has bundle = \"{name}\""
    ));
    Ok(Exit::Success)
}

/// Warns if the bundle is out of date. It is no error, because a board may have no clock.
pub fn warn_of_expiry(manifest: &Manifest) {
    let day = manifest.expires.and_then(|date| date.date);
    let day = day.and_then(|day| Date::new(day.year as i16, day.month as i8, day.day as i8).ok());
    if let Some(day) = day.filter(|day| Zoned::now().date() >= *day) {
        note(&format!("{} {} expired on {day}: ask its maker for a newer one", manifest.name, manifest.version));
    }
}

/// Runs the bundle's models until one can be loaded, and compares what it detects with the reference.
pub fn prove(candidate: &Candidate, timeout: Duration) -> Result<(), Failed> {
    let proof = candidate.manifest.proof.as_ref();
    let limit_ms = proof.and_then(|proof| proof.max_latency_p99_ms);
    let mut last = None;
    for model in &candidate.manifest.models {
        let path = candidate.choose(&model.file).map_err(refuse)?;
        let p99_ms = match latency_p99_ms(&path, proof, &candidate.folder, timeout) {
            Ok(p99_ms) => p99_ms,
            Err(error) => {
                note(&format!("{} cannot be used on this machine", model.file));
                last = Some(error);
                continue;
            }
        };
        let name = &model.file;
        if let Some(limit_ms) = limit_ms {
            note(&format!("{name}: p99 of a frame {p99_ms:.1} ms, at most {limit_ms} ms"));
            if p99_ms > limit_ms {
                let reason = format!("99 of 100 frames take up to {p99_ms:.1} ms instead of {limit_ms} ms");
                return Err(Failed::Proof(reason, "make a new version, or use --again if the machine was busy"));
            }
        }
        match proof {
            Some(proof) => compare(&path, proof, &candidate.folder, timeout)?,
            None => note(
                "the bundle has no pictures to prove that the model works: it can be loaded, which is all that is known",
            ),
        }
        return Ok(());
    }
    let reason = last.map(|error| error.message).unwrap_or_default();
    let message = format!("none of the bundle's models can be used on this machine: {reason}");
    Err(Failed::Other(ExitError::new(Exit::Model, message)))
}

/// Runs the model on some frames, and returns the 99th percentile of their times.
fn latency_p99_ms(model: &Path, proof: Option<&Proof>, folder: &Path, timeout: Duration) -> Result<f64, ExitError> {
    let mut command = this_program()?;
    command.args(["bench", "--json", "--model"]).arg(model);
    if let Some(first) = proof.and_then(|proof| proof.pictures.first()) {
        command.arg("--source").arg(folder.join(first));
    }
    let limited = proof.is_some_and(|proof| proof.max_latency_p99_ms.is_some());
    let [frames, warmup] = if limited { FRAMES } else { ["1", "0"] };
    command.args(["--frames", frames, "--warmup", warmup]);
    let Finished { exit, out, last_line } = finish(command, timeout, "load")?;
    let report: Option<Value> = serde_json::from_slice(&out).ok().filter(|_| exit == Exit::Success);
    let p99_us = report.and_then(|report| report.pointer("/stages_us/total/p99").and_then(Value::as_f64));
    match p99_us {
        Some(p99_us) => Ok(p99_us / 1e3),
        None => Err(ExitError::new(Exit::Model, last_line)),
    }
}

/// Compares what the model detects in the proof's pictures with what it must detect. The report goes to standard output.
fn compare(model: &Path, proof: &Proof, folder: &Path, timeout: Duration) -> Result<(), Failed> {
    let mut command = this_program()?;
    command.args(["verify", "--reference"]).arg(folder.join(&proof.reference)).arg(model);
    command.args(proof.pictures.iter().map(|picture| folder.join(picture)));
    for (option, value) in [
        ("--min-iou", proof.min_iou),
        ("--max-score-difference", proof.max_score_difference),
        ("--max-outside", proof.max_outside),
    ] {
        if let Some(value) = value {
            command.args([option, &value.to_string()]);
        }
    }
    let Finished { exit, out, last_line } = finish(command, timeout, "prove")?;
    print(&String::from_utf8_lossy(&out))?;
    match exit {
        Exit::Success => Ok(()),
        Exit::Differs => {
            let reason = "it detects something else than its reference in the bundle's pictures";
            Err(Failed::Proof(reason.to_owned(), "make a new version"))
        }
        exit => Err(Failed::Other(ExitError::new(exit, format!("the model could not be proven: {last_line}")))),
    }
}

fn this_program() -> Result<Command, ExitError> {
    let path = env::current_exe().map_err(|error| {
        ExitError::new(Exit::Failure, format!("cannot find this program's path: {error}; start it by its path"))
    })?;
    Ok(Command::new(path))
}

/// A process that has ended.
struct Finished {
    exit: Exit,
    /// What it wrote to standard output.
    out: Vec<u8>,
    /// Its last error.
    last_line: String,
}

/// Waits for a process. Its last errors go to standard error.
fn finish(command: Command, timeout: Duration, what: &str) -> Result<Finished, ExitError> {
    /// The most that a report may have.
    const MOST: usize = 16 << 20;
    let cannot = |error| ExitError::new(Exit::Failure, format!("cannot {what} the model: {error}"));
    let stop = Stop::new().map_err(ExitError::system)?;
    let launch = Launch { label: "the model's proof", has_children: true, ..Launch::default() };
    let mut child = Child::spawn(command, &launch).map_err(cannot)?;
    let (mut out, mut read) = (vec![0; MOST], 0);
    let filled = child.fill(&mut out, &stop, Instant::now() + timeout).map_err(cannot)?;
    match filled {
        Filled::Ended(bytes) => read = bytes,
        Filled::Full => {}
        Filled::Stopped => {
            return Err(ExitError::new(Exit::Failure, "stopped, the version in use stays; run it again"));
        }
        Filled::TimedOut => {
            let seconds = timeout.as_secs();
            let message = format!("it took more than {seconds} s to {what} the model: allow more with --timeout");
            return Err(ExitError::new(Exit::Model, message));
        }
    }
    out.truncate(read);
    let status = child.exit_status(&stop);
    let mut last_line = String::new();
    for line in child.last_lines() {
        let line = line.strip_prefix("visiond: ").unwrap_or(&line);
        complain(line);
        line.clone_into(&mut last_line);
    }
    let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    match code.and_then(Exit::from_code) {
        Some(exit) => Ok(Finished { exit, out, last_line }),
        None => {
            let how = status.map_or("did not end".to_owned(), how_it_ended);
            let message = format!("the process that was to {what} the model {how}: {last_line}");
            Err(ExitError::new(Exit::Model, message))
        }
    }
}
