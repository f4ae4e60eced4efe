//! The proof of a bundle's model on this machine: it is loaded, timed, and compared with what it must detect.
//!
//! The model runs in processes of its own, so that one that crashes or hangs is refused like any other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use visiond_bundle::rollout::Step;
use visiond_bundle::store::Candidate;
use visiond_bundle::{BundleModel, Fallback, Proof};
use visiond_config::format_size;
use visiond_system::exit::{Exit, ExitError};

use super::child::{Job, this_program};
use super::engine::{self, BuildArgs, EngineOutcome};
use super::failure::refuse;
use crate::output::{complain, note, print};
use crate::value_parsers::load_timeout;

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

/// The limits of a proof.
#[derive(Debug, clap::Args)]
pub struct ProofArgs {
    /// Give up on a model that takes longer than this to be loaded, or to be proven, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = load_timeout)]
    timeout: Duration,

    #[command(flatten)]
    build: BuildArgs,
}

/// Runs the bundle's models until one can be loaded, and compares what it detects with the reference. Builds engines where the bundle
/// wants that. `at_step` is called where the building and the proving begin. Returns the path of the model that this machine uses.
pub fn prove(candidate: &Candidate, limits: &ProofArgs, at_step: &dyn Fn(Step)) -> Result<PathBuf, Failed> {
    let proof = candidate.manifest.proof.as_ref();
    let limit_ms = proof.and_then(|proof| proof.max_latency_p99_ms);
    let mut last = None;
    for model in &candidate.manifest.models {
        let (path, Needs { p99_ms, memory_bytes }) = match load(candidate, model, limits, at_step)? {
            Ok(loaded) => loaded,
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
        if let Some(most) = proof.and_then(|proof| proof.max_memory_bytes) {
            let [used, limit] = [memory_bytes, most].map(format_size);
            note(&format!("{name}: {used} of memory, at most {limit}"));
            if memory_bytes > most {
                let reason = format!("a process that runs it takes {used} of memory instead of {limit}");
                return Err(Failed::Proof(reason, "make a new version"));
            }
        }
        match proof {
            Some(proof) => compare(&path, proof, &candidate.folder, limits.timeout)?,
            None => note(
                "the bundle has no pictures to prove that the model works: it can be loaded, which is all that is known",
            ),
        }
        return Ok(path);
    }
    let reason = last.map(|error| error.message).unwrap_or_default();
    let message = format!("none of the bundle's models can be used on this machine: {reason}");
    Err(Failed::Other(ExitError::new(Exit::Model, message)))
}

/// A model that can be loaded: its path, and what it needs; or why it cannot.
type Loaded = Result<(PathBuf, Needs), ExitError>;

/// What a model needs on this machine.
pub struct Needs {
    /// The 99th percentile of the times of a frame, in milliseconds.
    pub p99_ms: f64,
    /// The most memory of the process that ran it, without frames that a daemon would not keep; 0 if that is not known.
    pub memory_bytes: u64,
}

/// Loads a model of the bundle: the engine that is built of it, where the bundle wants one, otherwise the file itself.
///
/// # Errors
/// If the store cannot be written.
fn load(
    candidate: &Candidate,
    model: &BundleModel,
    limits: &ProofArgs,
    at_step: &dyn Fn(Step),
) -> Result<Loaded, ExitError> {
    let proof = candidate.manifest.proof.as_ref();
    let timed = |path: PathBuf| {
        at_step(Step::Proving);
        measure(&path, proof, &candidate.folder, limits.timeout).map(|needs| (path, needs))
    };
    let file = || candidate.choose(&model.file).map(timed).map_err(refuse);
    let Some(build) = &model.build else { return file() };
    let no_engine = match engine::build(candidate, &model.file, build, &limits.build, at_step)? {
        EngineOutcome::Built(path) => match timed(path) {
            Err(error) => error.message,
            loaded => return Ok(loaded),
        },
        EngineOutcome::NoGpu if build.fallback != Fallback::Never => {
            note(&format!("{}: this machine has no GPU to build an engine for, so the ONNX model is used", model.file));
            return file();
        }
        EngineOutcome::NoGpu => {
            "this machine has no GPU that `visiond probe` finds, and the bundle requires one".to_owned()
        }
        EngineOutcome::Failed(reason) => reason,
    };
    if build.fallback == Fallback::Always {
        complain(&format!("{}: no engine can be used, so the ONNX model is: {no_engine}", model.file));
        return file();
    }
    Ok(Err(ExitError::new(Exit::Model, no_engine)))
}

/// Runs the model on some frames, and returns what it needs.
pub fn measure(model: &Path, proof: Option<&Proof>, folder: &Path, timeout: Duration) -> Result<Needs, ExitError> {
    let mut command = this_program()?;
    command.args(["bench", "--json", "--model"]).arg(model);
    if let Some(first) = proof.and_then(|proof| proof.pictures.first()) {
        command.arg("--source").arg(folder.join(first));
    }
    let limited = proof.is_some_and(|proof| proof.max_latency_p99_ms.is_some());
    let [frames, warmup] = if limited { FRAMES } else { ["1", "0"] };
    command.args(["--frames", frames, "--warmup", warmup]);
    let ended = Job { doing: "load", remedy: "allow more with --timeout", timeout }.finish(command)?;
    let report: Option<Value> = serde_json::from_slice(&ended.out).ok().filter(|_| ended.exit == Exit::Success);
    let needs = report.as_ref().and_then(|report| {
        let bytes = |key: &str| report.pointer(&format!("/memory/{key}")).and_then(Value::as_u64).unwrap_or(0);
        let p99_us = report.pointer("/stages_us/total/p99").and_then(Value::as_f64)?;
        let memory_bytes = bytes("peak_resident_bytes").saturating_sub(bytes("frames_bytes"));
        Some(Needs { p99_ms: p99_us / 1e3, memory_bytes })
    });
    needs.ok_or_else(|| ExitError::new(Exit::Model, ended.last_error))
}

/// Compares what the model detects in the proof's pictures with what it must detect. The report goes to standard output.
pub fn compare(model: &Path, proof: &Proof, folder: &Path, timeout: Duration) -> Result<(), Failed> {
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
    let ended = Job { doing: "prove", remedy: "allow more with --timeout", timeout }.finish(command)?;
    // The folder is removed or renamed afterwards.
    print(&String::from_utf8_lossy(&ended.out).replace(&format!("{}/", folder.display()), ""))?;
    match ended.exit {
        Exit::Success => Ok(()),
        Exit::Differs => {
            let reason = "it detects something else than its reference in the bundle's pictures";
            Err(Failed::Proof(reason.to_owned(), "make a new version"))
        }
        exit => Err(Failed::Other(ExitError::new(exit, ended.last_error))),
    }
}
