//! Builds the engine of a bundle's model on this machine, by `visiond build` in a process that yields to everything else: the daemon
//! serves its cameras meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use visiond_bundle::rollout::Step;
use visiond_bundle::store::{Candidate, FOLDER};
use visiond_bundle::{EngineBuild, Manifest};
use visiond_config::parse_duration;
use visiond_config::units::format_duration;
use visiond_engine::tensorrt::sidecar::Sidecar;
use visiond_ground::atomic_write::write_atomically;
use visiond_system::cache;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::priority::run_when_idle;
use visiond_system::process_limits::{limit_memory, machine_memory};

use super::child::{Job, this_program};
use super::failure::refuse;
use crate::output::{complain, note};
use crate::value_parsers::size;

/// How long to wait for the driver, which a start of the GPU keeps busy for some seconds.
const GPU_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest and the longest time limit of a build.
const BUILD_TIMES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 3600)];

/// The part of the machine's memory that a build may use if nothing else is set.
const MEMORY_PERCENT: u64 = 75;

/// The limits of a build.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {
    /// Give up building an engine after this time, from 1s to 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = build_time)]
    build_timeout: Duration,

    /// Give up building an engine that needs more memory than this [default: 75 % of this machine's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    build_memory: Option<u64>,
}

fn build_time(text: &str) -> Result<Duration, String> {
    let [least, most] = BUILD_TIMES;
    let time = parse_duration(text).ok().filter(|time| (least..=most).contains(time));
    time.ok_or_else(|| format!("expected a time from {} to {}", format_duration(least), format_duration(most)))
}

/// How a build ended.
pub enum EngineOutcome {
    /// The engine is the candidate's model, which has this path.
    Built(PathBuf),
    /// There is no GPU, and nothing was built.
    NoGpu,
    /// There is a GPU, and the engine cannot be built; why.
    Failed(String),
}

/// Says that an engine is built, in the command of a person. Everything else, the command says itself.
pub fn note_building(name: &str, version: u64, step: Step) {
    if step == Step::Building {
        note(&format!("{name} {version}: builds an engine for this machine's GPU, which may take many minutes"));
    }
}

/// Builds an engine of the model in `file`, and chooses it.
///
/// # Errors
/// If the store cannot be written.
pub fn build(
    candidate: &Candidate,
    file: &str,
    build: &EngineBuild,
    limits: &BuildArgs,
    at_step: &dyn Fn(Step),
) -> Result<EngineOutcome, ExitError> {
    match has_gpu() {
        Ok(true) => {}
        Ok(false) => return Ok(EngineOutcome::NoGpu),
        Err(error) => return Ok(EngineOutcome::Failed(error.message)),
    }
    at_step(Step::Building);
    let folder = &candidate.folder;
    add_timings(folder, &build.timing_caches);
    let engine = candidate.prepare_engine().map_err(refuse)?;
    let mut command = this_program()?;
    command.arg("build").arg(folder.join(file)).arg("-o").arg(&engine).arg("--json").args(&build.flags);
    if let Some(card) = &candidate.manifest.card {
        command.arg("--card").arg(folder.join(card));
    }
    if let Some(pictures) = build.calibration_folder() {
        command.arg("--calibrate").arg(folder.join(pictures));
    }
    run_when_idle(&mut command);
    limit_memory(&mut command, limits.build_memory.unwrap_or_else(|| machine_memory() / 100 * MEMORY_PERCENT));
    let job =
        Job { doing: "build an engine of", remedy: "allow more with --build-timeout", timeout: limits.build_timeout };
    match job.finish(command) {
        Ok(ended) if ended.exit == Exit::Success => {}
        Ok(ended) => {
            return Ok(EngineOutcome::Failed(format!("no engine of {file} can be built: {}", ended.last_error)));
        }
        Err(error) => return Ok(EngineOutcome::Failed(error.message)),
    }
    complete_record(&engine, file, &candidate.manifest, folder)?;
    candidate.choose_engine().map(EngineOutcome::Built).map_err(refuse)
}

/// Returns whether this machine has a GPU that CUDA can use. A process of its own asks the driver, which would stay in this one.
///
/// # Errors
/// If there is a GPU, and it does not work.
fn has_gpu() -> Result<bool, ExitError> {
    let mut command = this_program()?;
    command.args(["probe", "--has-gpu"]);
    let ended = Job { doing: "find a GPU for", remedy: "see `visiond probe`", timeout: GPU_TIMEOUT }.finish(command)?;
    match (ended.exit, serde_json::from_slice(&ended.out)) {
        (Exit::Success, Ok(Value::Bool(found))) => Ok(found),
        (exit, _) => Err(ExitError::new(exit, ended.last_error)),
    }
}

/// Gives the bundle's timings to `visiond build`, which looks for those of this GPU and TensorRT by their names. What this device has
/// measured itself stays.
fn add_timings(folder: &Path, files: &[String]) {
    let Some(cache) = cache::own_folder().map(|cache| cache.join("tensorrt")) else { return };
    for file in files {
        let name = Path::new(file).file_name().unwrap_or_default();
        let to = cache.join(name);
        if to.exists() {
            continue;
        }
        let copied = fs::create_dir_all(&cache).and_then(|()| fs::read(folder.join(file)));
        // A build without them takes longer, and gives the same.
        if let Err(error) = copied.and_then(|bytes| write_atomically(&to, &bytes)) {
            complain(&format!("cannot copy the timings {file} to {}: {error}; the build takes longer", to.display()));
        }
    }
}

/// Writes into the record of a build what it is in a store: a model without a path of its own, and the command that builds it again.
fn complete_record(engine: &Path, file: &str, manifest: &Manifest, folder: &Path) -> Result<(), ExitError> {
    let cannot = |reason: String| ExitError::new(Exit::Output, format!("cannot write the build record: {reason}"));
    let record = Sidecar::of(engine).map_err(|error| cannot(error.to_string()))?;
    let mut record = record.ok_or_else(|| cannot("`visiond build` wrote none; run the command again".to_owned()))?;
    record.onnx.path = file.into();
    // STORE/NAME/candidate
    let store = folder.ancestors().nth(2).filter(|store| *store != Path::new(FOLDER));
    let store = store.map(|store| format!(" --store {}", store.display())).unwrap_or_default();
    record.rebuild = Some(format!("visiond bundle rebuild {}{store}", manifest.name));
    record.write(engine).map_err(|error| cannot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_may_take_a_day_and_no_longer() {
        assert_eq!(build_time("24h"), Ok(Duration::from_secs(86_400)));
        assert!(build_time("25h").is_err() && build_time("0").is_err() && build_time("fast").is_err());
    }
}
