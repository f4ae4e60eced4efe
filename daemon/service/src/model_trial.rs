//! The trial of an ONNX model in a separate process, before visiond itself loads it.
//!
//! A damaged or hostile model can overflow a backend's stack, request all memory, or never return. So visiond first starts
//! itself as another process, which loads the same file with the same options and runs the whole detector once on a test
//! image, with limits on memory, stack and time. The output values also show whether the card describes them correctly:
//! logits or probabilities, pixels or fractions. That process prints one line: that the file is sound, or why it is rejected.
//! A TensorRT engine gets no trial, because it is a program and trusted as one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use visiond_config::format_size;
use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
use visiond_engine::card::Card;
use visiond_engine::detector::{Detection, Detector, DetectorError};
use visiond_engine::engine::{Engine, EngineError};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::tensorrt::plan;
use visiond_pipeline::model_runner::RunError;
use visiond_system::child_process::{Child, Filled, Launch, how_it_ended};
use visiond_system::exit::{self, Exit};
use visiond_system::preflight::Certainty;
use visiond_system::process_limits::{STACK_BYTES, limit_process, limit_stack};
use visiond_system::stop::Stop;

use crate::canary;
use crate::error::{CanaryError, ModelError, ServiceError, TrialError};
use crate::loaded_model::LoadedModel;

/// First argument of the process. No command has this name, so no help lists it.
const COMMAND: &str = "try-model";

/// The program of this process, even if an upgrade has replaced its file.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Whether this program calls [`answer`] at its start.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// The environment variables that the process keeps: the paths of libraries. None of them holds secrets.
const ENVIRONMENT: [&str; 4] = ["HOME", "LD_LIBRARY_PATH", "ORT_DYLIB_PATH", "XDG_CACHE_HOME"];

/// How much memory the trial may use for each byte of the model: the file, what is parsed from it, weights as f32, weights
/// packed for matrix products, and growth of the allocator.
const MEMORY_PER_BYTE: u64 = 6;

/// Stack of the thread that tries the model: less than that of any thread of the daemon, which have 2 MiB, so that what fits
/// here fits there.
const TRIAL_STACK_BYTES: usize = STACK_BYTES as usize - (256 << 10);

/// Width and height of the test image.
const FRAME_SIZE: (u32, u32) = (128, 96);

/// Width and height of the noise image.
const NOISE_SIZE: (u32, u32) = (640, 480);

/// As wait(2) has it.
const SIGKILL: i32 = 9;

/// Maximum length of the printed line, and of the error in it. Names from the file may be as long as the file.
const ANSWER_BYTES: usize = 64 << 10;
const TEXT_CHARS: usize = 4_000;

/// What libraries print when memory runs out: Rust's allocator, C++'s, ONNX Runtime's arena, the C library.
const OUT_OF_MEMORY: [&str; 4] =
    ["memory allocation of ", "bad_alloc", "Failed to allocate memory", "Cannot allocate memory"];

/// Begins the line that the process prints if the service's limit leaves less than the trial may use; the bytes follow.
const SERVICE_LEAVES: &str = "memory that the service's limit leaves: ";

/// What to load, and how; paths are separate arguments, because JSON can only hold text.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    backend: BackendChoice,
    threads: usize,
    sha256: Option<String>,
    input_shapes: BTreeMap<String, Vec<usize>>,
    max_batch: usize,
    memory_bytes: u64,
    /// Cards to try instead of the model's own, in TOML.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cards: Vec<String>,
}

/// The result of a card in a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CardTrial {
    /// It contradicts the model; holds the explanation.
    Contradicted(String),
    /// It ran on an image of a person, on one with the person in the lower right, and on noise.
    Ran {
        /// Its findings in the image of a person.
        scene: Findings,
        /// Its findings where the person is in the lower right third.
        corner: Findings,
        /// Its findings in noise.
        noise: Findings,
    },
}

/// A card's findings in one image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The number of detections.
    pub count: usize,
    /// The highest score; 0 without detections.
    pub highest: f32,
    /// How many of the boxes have no area.
    pub empty: usize,
    /// The longest side of the boxes in pixels of the image; 0 without boxes.
    pub longest_side: f32,
    /// The class of the highest score.
    pub best: Option<u32>,
    /// Whether the box of the highest score begins in the right half of the image and in its lower half.
    pub is_lower_right: bool,
}

impl Findings {
    /// Sums up the detections in an image of this width and height.
    fn of(found: &[Detection], (width, height): (u32, u32)) -> Self {
        let is_empty = |[x1, y1, x2, y2]: [f32; 4]| !(x2 > x1 && y2 > y1);
        let longer_side = |[x1, y1, x2, y2]: [f32; 4]| (x2 - x1).max(y2 - y1);
        let is_lower_right = |[x1, y1, ..]: [f32; 4]| 2.0 * x1 > width as f32 && 2.0 * y1 > height as f32;
        let best = found.iter().max_by(|a, b| a.score.total_cmp(&b.score));
        Self {
            count: found.len(),
            highest: found.iter().map(|one| one.score).fold(0.0, f32::max),
            best: best.map(|one| one.class_id),
            is_lower_right: best.and_then(|one| one.box_in_source).is_some_and(is_lower_right),
            empty: found.iter().filter_map(|one| one.box_in_source).filter(|corners| is_empty(*corners)).count(),
            longest_side: found.iter().filter_map(|one| one.box_in_source).map(longer_side).fold(0.0, f32::max),
        }
    }
}

/// The most cards of a trial, and their maximum total length in bytes: they are one process argument, which is limited to 128
/// KiB.
const MAX_CARDS: usize = 12;
const CARDS_BYTES: usize = 64 << 10;

/// The most detections that are counted in an image.
const MAX_COUNTED: usize = 3_000;

/// What the process found.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The process loaded the file with this SHA-256 and ran it.
    Sound { sha256: String },
    /// The process loaded the file and ran it with each of the cards.
    Tried { cards: Vec<CardTrial> },
    /// An error like those of [`LoadedModel::load`], its exit status, and whether it may affect only this user.
    Refused { text: String, exit: u8, only_here: bool },
}

/// Tries a model in a separate process, then loads exactly the same bytes in this one.
///
/// # Errors
/// The same as [`try_model`], or the file changed meanwhile.
pub fn load(model: &ModelConfig, engine: &EngineConfig, stop: &Stop) -> Result<LoadedModel, ServiceError> {
    match try_model(model, engine, stop)? {
        Some(sha256) => load_tried(model, engine, sha256),
        None => LoadedModel::load(model, engine),
    }
}

/// Loads the file that was tried, with this SHA-256, and no other that has taken its place.
fn load_tried(model: &ModelConfig, engine: &EngineConfig, sha256: String) -> Result<LoadedModel, ServiceError> {
    let pinned = ModelConfig { sha256: Some(sha256), ..model.clone() };
    LoadedModel::load(&pinned, engine).map_err(|error| match error {
        ServiceError::Model { error, .. }
            if model.sha256.is_none() && matches!(*error, ModelError::Engine(EngineError::OtherSha256 { .. })) =>
        {
            ServiceError::model(&model.name, TrialError::Changed(model.path.clone()))
        }
        error => error,
    })
}

/// Tries a model in a separate process.
///
/// Returns the SHA-256 of the file that was tried, or `None` for a TensorRT engine, which needs no trial, and in a program that
/// never calls [`answer`] and so cannot be started for one: a test.
///
/// # Errors
/// The model cannot be loaded or run, the process ended or reached a limit of `engine`, or `stop` was raised.
pub fn try_model(model: &ModelConfig, engine: &EngineConfig, stop: &Stop) -> Result<Option<String>, ServiceError> {
    if !ANSWERS.load(Ordering::Relaxed) || plan::is_plan_file(&model.path) {
        return Ok(None);
    }
    match ask(model, engine, &[], stop)? {
        Reply::Sound(sha256) => Ok(Some(sha256)),
        Reply::Tried(_) => Ok(None),
    }
}

/// Tries cards for a model in a separate process: each runs on images of a person and on one of noise. Returns each card's
/// result, in order, or `None` when [`try_model`] does and if there are too many or too long cards.
///
/// # Errors
/// As [`try_model`], except for what contradicts a card.
pub fn try_cards(
    model: &ModelConfig,
    engine: &EngineConfig,
    cards: &[String],
    stop: &Stop,
) -> Result<Option<Vec<CardTrial>>, ServiceError> {
    let fits = (1..=MAX_CARDS).contains(&cards.len()) && cards.iter().map(String::len).sum::<usize>() <= CARDS_BYTES;
    if !fits || !ANSWERS.load(Ordering::Relaxed) || plan::is_plan_file(&model.path) {
        return Ok(None);
    }
    match ask(model, engine, cards, stop)? {
        Reply::Tried(tried) if tried.len() == cards.len() => Ok(Some(tried)),
        Reply::Tried(_) | Reply::Sound(_) => Ok(None),
    }
}

/// Starts the process and returns its answer.
fn ask(model: &ModelConfig, engine: &EngineConfig, cards: &[String], stop: &Stop) -> Result<Reply, ServiceError> {
    let refuse = |error: TrialError| ServiceError::model(&model.name, error);
    let deadline = Instant::now() + engine.load_timeout;
    let launch = Launch { label: "trial", ..Launch::default() };
    let mut child =
        Child::spawn(command(model, engine, cards), &launch).map_err(|error| refuse(TrialError::Start(error)))?;
    let mut line = vec![0; ANSWER_BYTES];
    let filled = child.fill(&mut line, stop, deadline).map_err(|error| refuse(TrialError::Start(error)))?;
    let read = match filled {
        Filled::Ended(read) => read,
        Filled::Full => ANSWER_BYTES,
        Filled::Stopped => return Err(ServiceError::Ending),
        Filled::TimedOut => {
            return Err(refuse(TrialError::TooSlow { path: model.path.clone(), limit: engine.load_timeout }));
        }
    };
    let status = child.exit_status(stop);
    if stop.is_raised() {
        return Err(ServiceError::Ending);
    }
    judge(&model.path, engine, &line[..read], status, &child.last_lines()).map_err(refuse)
}

/// Returns the command that tries a model.
fn command(model: &ModelConfig, engine: &EngineConfig, cards: &[String]) -> Command {
    let request = Request {
        backend: engine.backend,
        threads: engine.threads,
        sha256: model.sha256.clone(),
        input_shapes: model.input_shapes.clone(),
        max_batch: model.max_batch,
        memory_bytes: engine.load_memory_bytes,
        cards: cards.to_vec(),
    };
    let mut command = Command::new(THIS_PROGRAM);
    // Text, numbers, and maps with text keys can always be written as JSON.
    command.arg0("visiond").arg(COMMAND).arg(serde_json::to_string(&request).unwrap_or_default()).arg(&model.path);
    for path in [&model.card, &engine.onnxruntime_library] {
        command.arg(path.as_deref().map_or(OsStr::new(""), Path::as_os_str));
    }
    let kept = ENVIRONMENT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept);
    limit_stack(&mut command);
    command
}

/// The process's answer about a model that it could run.
#[derive(Debug, PartialEq)]
enum Reply {
    /// The SHA-256 of the file.
    Sound(String),
    /// What each card gave.
    Tried(Vec<CardTrial>),
}

/// Returns the reply about a sound file, otherwise why the model is rejected. `said` holds the last lines of standard error.
fn judge(
    path: &Path,
    engine: &EngineConfig,
    line: &[u8],
    status: Option<ExitStatus>,
    said: &[String],
) -> Result<Reply, TrialError> {
    let left: Option<u64> = said.iter().find_map(|line| line.strip_prefix(SERVICE_LEAVES)?.parse().ok());
    let too_large = || match left {
        Some(left) => TrialError::ServiceMemory { path: path.to_owned(), left: format!("{} MiB", left >> 20) },
        None => TrialError::Memory { path: path.to_owned(), limit: format_size(engine.load_memory_bytes) },
    };
    match serde_json::from_slice(line) {
        Ok(Answer::Sound { sha256 }) if status.is_some_and(|status| status.success()) => Ok(Reply::Sound(sha256)),
        Ok(Answer::Tried { cards }) if status.is_some_and(|status| status.success()) => Ok(Reply::Tried(cards)),
        Ok(Answer::Refused { text, .. }) if is_out_of_memory(&text) => Err(too_large()),
        Ok(Answer::Refused { text, exit, only_here }) => {
            let certainty = if only_here { Certainty::OnlyHere } else { Certainty::Certain };
            Err(TrialError::Refused { text, exit: Exit::from_code(exit).unwrap_or(Exit::Model), certainty })
        }
        _ if said.iter().any(|line| is_out_of_memory(line)) => Err(too_large()),
        // The kernel's out-of-memory killer ended it when the service's memory ran out.
        _ if left.is_some() && status.and_then(|status| status.signal()) == Some(SIGKILL) => Err(too_large()),
        _ => {
            let how = status.map_or_else(|| "did not end".to_owned(), how_it_ended);
            let said = said.last().map(|line| format!(" ({line})")).unwrap_or_default();
            Err(TrialError::Ended { path: path.to_owned(), how: how + &said })
        }
    }
}

fn is_out_of_memory(text: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| text.contains(words))
}

/// Runs the trial if this process was started for one; returns the exit status, or `None` if it was not.
///
/// `arguments` are those of the process. Standard output gets the answer.
pub fn answer(arguments: impl IntoIterator<Item = OsString>) -> Option<Exit> {
    ANSWERS.store(true, Ordering::Relaxed);
    answer_to(arguments)
}

fn answer_to(arguments: impl IntoIterator<Item = OsString>) -> Option<Exit> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let mut next = || arguments.next().unwrap_or_default();
    let (request, path, card, library) = (next(), next(), next(), next());
    // Once the answer is out, it no longer matters what the backend's threads do.
    exit::skip_cleanup();
    let Ok(request) = serde_json::from_slice::<Request>(request.as_encoded_bytes()) else { return Some(Exit::Usage) };
    let some = |path: OsString| Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
    let model = ModelConfig {
        name: "model".to_owned(),
        path: path.into(),
        card: some(card),
        sha256: request.sha256,
        input_shapes: request.input_shapes,
        max_batch: request.max_batch,
        max_detections: (!request.cards.is_empty()).then_some(MAX_COUNTED),
        ..ModelConfig::default()
    };
    let engine = EngineConfig {
        backend: request.backend,
        onnxruntime_library: some(library),
        threads: request.threads,
        load_memory_bytes: request.memory_bytes,
        ..EngineConfig::default()
    };
    let cards = request.cards;
    let answer = load_and_run_in_thread(model, engine, move |model, engine| {
        if cards.is_empty() {
            return load_and_run(model, engine).map(|sha256| Answer::Sound { sha256 });
        }
        load_and_try(model, engine, &cards).map(|cards| Answer::Tried { cards })
    });
    let answer = answer.unwrap_or_else(|error| refusal(&error));
    let line = serde_json::to_vec(&answer).unwrap_or_default();
    // Without a reader, there is nobody to answer.
    let _ = std::io::stdout().write_all(&line).and_then(|()| std::io::stdout().flush());
    Some(Exit::Success)
}

fn refusal(error: &ServiceError) -> Answer {
    let text = match error {
        // The daemon prepends its own name for the model.
        ServiceError::Model { error, .. } => error.to_string(),
        other => other.to_string(),
    };
    let only_here = error.certainty() != Certainty::Certain;
    Answer::Refused { text: shortened(&text), exit: error.exit().code(), only_here }
}

/// Cuts a long error in the middle, because it begins with the file and ends with the remedy.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= TEXT_CHARS {
        return text.to_owned();
    }
    let part = |from, count| text.chars().skip(from).take(count).collect::<String>();
    format!("{} … {}", part(0, TEXT_CHARS / 2), part(count - TEXT_CHARS / 2, TEXT_CHARS / 2))
}

/// Limits this process and calls `run` on a thread with a limited stack.
fn load_and_run_in_thread(
    model: ModelConfig,
    engine: EngineConfig,
    run: impl FnOnce(&ModelConfig, &EngineConfig) -> Result<Answer, ServiceError> + Send + 'static,
) -> Result<Answer, ServiceError> {
    let threads = match engine.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    // Stacks count in full, even if little of them is used.
    let fixed = engine.load_memory_bytes.saturating_add(threads as u64 * STACK_BYTES);
    let work = move || {
        let limit = |size: u64| {
            let bytes = fixed.saturating_add(size.saturating_mul(MEMORY_PER_BYTE));
            if let Some(left) = limit_process(bytes).map_err(ServiceError::System)? {
                // The daemon reads it if memory runs out.
                eprintln!("{SERVICE_LEAVES}{left}");
            }
            Ok::<_, ServiceError>(())
        };
        let size = std::fs::metadata(&model.path).map_or(0, |metadata| metadata.len());
        limit(size)?;
        limit(size.saturating_add(external_bytes(&model.path)))?;
        run(&model, &engine)
    };
    let thread = std::thread::Builder::new().name("trial".to_owned()).stack_size(TRIAL_STACK_BYTES).spawn(work);
    // The panic hook has printed a panic.
    thread.map_err(ServiceError::System)?.join().unwrap_or(Err(ServiceError::Panic))
}

/// Returns the size of the external weight files; 0 if the model cannot be read, which loading it reports.
fn external_bytes(path: &Path) -> u64 {
    let Ok(file) = OnnxFile::read(path) else { return 0 };
    let size = |name: &PathBuf| Some(std::fs::metadata(path.parent()?.join(name)).ok()?.len());
    file.external_files.keys().filter_map(size).fold(0, u64::saturating_add)
}

/// Loads a model in this process, runs its detector once with as many test images as it takes, and checks the card against the
/// outputs; returns the file's SHA-256.
pub fn load_and_run(model: &ModelConfig, engine: &EngineConfig) -> Result<String, ServiceError> {
    let loaded = LoadedModel::load(model, engine)?;
    let Err(error) = run(model, &loaded) else { return Ok(loaded.engine.file().sha256.clone()) };
    // A smaller size would run within the memory, although the card's size may be right.
    if is_out_of_memory(&error.to_string()) {
        return Err(error);
    }
    // The card's own errors state the problem. Any other error may be due to the card's size, which is certain if another
    // size runs.
    let other = || Detector::other_size(&loaded.engine, &loaded.card);
    let Some((card, size_error)) = (error.exit() != Exit::Config).then(other).flatten() else { return Err(error) };
    let resized = loaded.with_card(card);
    if run(model, &resized).is_ok() { Err(ServiceError::model(&model.name, size_error)) } else { Err(error) }
}

/// Loads a model in this process, and runs it with each of `cards` on images of a person and on one of noise.
fn load_and_try(model: &ModelConfig, engine: &EngineConfig, cards: &[String]) -> Result<Vec<CardTrial>, ServiceError> {
    let origin = model.path.with_extension("toml");
    let [first, rest @ ..] = cards else { return Ok(Vec::new()) };
    let read = |text: &str, loaded: &Engine| Card::proposed(text, &origin, loaded.inputs());
    let mut loaded = LoadedModel::load_with(model, engine, |engine| read(first, engine))?;
    let mut tried = vec![try_card(model, &loaded)?];
    for text in rest {
        match read(text, &loaded.engine) {
            Ok(card) => {
                loaded = loaded.with_card(card);
                tried.push(try_card(model, &loaded)?);
            }
            Err(error) => tried.push(CardTrial::Contradicted(error.to_string())),
        }
    }
    Ok(tried)
}

/// Runs a loaded model with its card. An error that the card did not cause ends the trial.
fn try_card(model: &ModelConfig, loaded: &LoadedModel) -> Result<CardTrial, ServiceError> {
    let contradicted = |error: ServiceError| match (error.exit(), error) {
        (Exit::Config, ServiceError::Model { error, .. }) => Ok(CardTrial::Contradicted(shortened(&error.to_string()))),
        (_, error) => Err(error),
    };
    if let Err(error) = run(model, loaded) {
        return contradicted(error);
    }
    let mut detector = match loaded.required_detector() {
        Ok(detector) => detector,
        Err(error) => return contradicted(error),
    };
    let frames = detector.batch();
    // An error ends the trial of the card.
    let mut find = |sample: Result<canary::Sample, CanaryError>| -> Result<Findings, Result<CardTrial, ServiceError>> {
        let refuse = |error: CanaryError| Err(ServiceError::model(&model.name, error));
        let sample = sample.map_err(refuse)?;
        let found = canary::detect_on(&mut detector, &sample, frames).map_err(|error| match error.contradiction {
            Some(_) => Ok(CardTrial::Contradicted(shortened(&error.to_string()))),
            None => refuse(CanaryError::Run { sample: "a test image".to_owned(), error }),
        })?;
        Ok(Findings::of(&found, sample.size()))
    };
    let mut all = || {
        let (scene, corner) = (find(canary::portrait())?, find(canary::portrait_in_corner())?);
        Ok(CardTrial::Ran { scene, corner, noise: find(canary::noise(NOISE_SIZE))? })
    };
    all().map_or_else(|ended| ended, Ok)
}

/// Runs a loaded model once on test images, and checks its card against the outputs.
fn run(model: &ModelConfig, loaded: &LoadedModel) -> Result<(), ServiceError> {
    let mut detector = loaded.required_detector()?;
    let refuse = |error: CanaryError| ServiceError::model(&model.name, error);
    let sample = canary::test_picture(FRAME_SIZE).map_err(refuse)?;
    let frames = detector.batch();
    let check =
        |detector: &Detector| detector.check_numbers(&loaded.card, loaded.engine.inputs()).map_err(TrialRunError::Card);
    let ran = canary::run_and_check(&mut detector, &sample, frames, check).map(drop);
    ran.map_err(|error| match error {
        TrialRunError::Card(error) => ServiceError::model(&model.name, error),
        TrialRunError::Run(error) => refuse(CanaryError::Run { sample: "a test image".to_owned(), error }),
    })
}

/// Why the run of a trial failed.
enum TrialRunError {
    Run(RunError),
    /// The card contradicts the outputs.
    Card(DetectorError),
}

impl From<RunError> for TrialRunError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn of_a_long_error_the_beginning_and_the_end_stay() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&format!("a.onnx: {}; export it again", "ä".repeat(1 << 20)));
        assert!(long.starts_with("a.onnx: ä") && long.ends_with("ä; export it again"));
        assert!(long.len() < ANSWER_BYTES / 2);
    }

    /// As wait(2) has them.
    const SIGABRT: i32 = 6;
    const SIGSEGV: i32 = 11;

    /// Returns the verdict for a line on standard output, a wait(2) status, and lines on standard error.
    fn judged(line: &str, status: i32, said: &[&str]) -> Result<String, String> {
        let engine = EngineConfig { load_memory_bytes: 1 << 30, ..EngineConfig::default() };
        let said: Vec<_> = said.iter().map(|line| (*line).to_owned()).collect();
        let status = Some(ExitStatus::from_raw(status));
        let judged = judge(Path::new("net.onnx"), &engine, line.as_bytes(), status, &said);
        judged.map_err(|error| error.to_string()).map(|reply| match reply {
            Reply::Sound(sha256) => sha256,
            Reply::Tried(tried) => format!("{tried:?}"),
        })
    }

    #[test]
    fn only_an_answer_and_an_end_in_order_make_a_sound_model() {
        let sound = r#"{"Sound":{"sha256":"c56a"}}"#;
        assert_eq!(judged(sound, 0, &["a warning"]), Ok("c56a".to_owned()));
        let crashed = |how: &str| {
            Err(format!(
                "cannot use net.onnx: the process that tried it {how}; the file is damaged or malicious, or the backend has a \
                 bug: export the model again, or try another backend"
            ))
        };
        assert_eq!(judged(sound, SIGSEGV, &[]), crashed("was ended by SIGSEGV"));
        assert_eq!(judged("", SIGABRT, &["a", "double free"]), crashed("was ended by SIGABRT (double free)"));
        assert_eq!(judged("", 0, &[]), crashed("exited with status 0"));
        assert_eq!(judged(&sound[..9], 0, &[]), crashed("exited with status 0"));
        assert_eq!(judged(r#"{"Sound":{}}"#, 2 << 8, &[]), crashed("exited with status 2"));
        let tried = r#"{"Tried":{"cards":[{"Contradicted":"no such output"}]}}"#;
        assert_eq!(judged(tried, 0, &[]), Ok("[Contradicted(\"no such output\")]".to_owned()));
        assert_eq!(judged(tried, 1 << 8, &[]), crashed("exited with status 1"));
    }

    #[test]
    fn an_error_is_passed_on_in_its_own_words_unless_memory_ran_out() {
        let refused = |text: &str| {
            let answer = Answer::Refused { text: text.to_owned(), exit: 3, only_here: true };
            judged(&serde_json::to_string(&answer).unwrap(), 0, &[]).unwrap_err()
        };
        assert_eq!(refused("its card has no head"), "its card has no head");
        let too_large = "cannot use net.onnx: it needs more memory than 1 GiB and six times its size; if you trust it, raise \
                         `load_memory_bytes` in [engine], or --load-memory";
        assert_eq!(refused("ONNX Runtime cannot load it: std::bad_alloc"), too_large);
        let said = ["memory allocation of 400000000000 bytes failed", "Aborted"];
        assert_eq!(judged("", SIGABRT, &said).unwrap_err(), too_large);
        // If the service's MemoryMax= leaves less than that, the remedy is another key.
        let leaves = format!("{SERVICE_LEAVES}{}", 40 << 20);
        for (status, said) in [(SIGABRT, said[0]), (SIGKILL, "")] {
            let error = judged("", status, &[&leaves, said]).unwrap_err();
            assert!(
                error.starts_with("cannot use net.onnx: it needs more than the 40 MiB that the service's"),
                "{error}"
            );
            assert!(error.contains("raise MemoryMax="), "{error}");
        }
        // Memory is the cause only if both hold.
        for (status, said) in [(SIGKILL, ""), (SIGSEGV, &*leaves)] {
            let error = judged("", status, &[said]).unwrap_err();
            assert!(error.contains("the process that tried it was ended by SIG"), "{error}");
        }
    }

    #[test]
    fn the_process_gets_no_variable_but_those_that_name_libraries() {
        let model = ModelConfig { path: "-net.onnx".into(), ..ModelConfig::default() };
        let command = command(&model, &EngineConfig::default(), &[]);
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!((arguments[0], arguments[2], arguments[3]), (COMMAND.as_ref(), "-net.onnx".as_ref(), "".as_ref()));
        for (name, _) in command.get_envs() {
            assert!(ENVIRONMENT.iter().any(|kept| name == *kept), "{name:?}");
        }
        assert!(answer_to(["visiond".into(), "run".into()]).is_none());
        assert!(answer_to(["visiond".into()]).is_none());
    }

    #[test]
    fn a_file_that_took_the_place_of_the_tried_one_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        let model = ModelConfig { path: folder.path().join("tiny.onnx"), ..ModelConfig::default() };
        let engine = EngineConfig { backend: BackendChoice::Rten, ..EngineConfig::default() };
        std::fs::copy(tests.join("tiny.onnx"), &model.path).unwrap();
        std::fs::copy(tests.join("tiny.toml"), folder.path().join("tiny.toml")).unwrap();
        let tried = load_and_run(&model, &engine).unwrap();
        assert!(load_tried(&model, &engine, tried.clone()).is_ok());

        // A different file that also runs: an unknown field is harmless.
        let mut other = std::fs::read(&model.path).unwrap();
        other.extend([0x32, 1, b'a']);
        std::fs::write(&model.path, other).unwrap();
        assert_ne!(load_and_run(&model, &engine).unwrap(), tried);
        let refused = |model: &ModelConfig| load_tried(model, &engine, tried.clone()).err().unwrap().to_string();
        assert!(refused(&model).contains("it changed during its trial"), "{}", refused(&model));
        // Other reasons are reported unchanged: a hash that the user has set, and a missing file.
        let pinned = ModelConfig { sha256: Some(tried.clone()), ..model.clone() };
        std::fs::remove_file(&model.path).unwrap();
        assert!(refused(&model).contains("no model at"), "{}", refused(&model));
        std::fs::copy(tests.join("tiny.onnx"), &model.path).unwrap();
        assert!(load_tried(&pinned, &engine, tried.clone()).is_ok());
    }

    /// The tiny model and the text of its card, in their own folder.
    fn tiny() -> (tempfile::TempDir, ModelConfig, String) {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        let model =
            ModelConfig { name: "model".to_owned(), path: folder.path().join("tiny.onnx"), ..ModelConfig::default() };
        std::fs::copy(tests.join("tiny.onnx"), &model.path).unwrap();
        (folder, model, std::fs::read_to_string(tests.join("tiny.toml")).unwrap())
    }

    #[test]
    fn each_card_is_tried_and_one_that_contradicts_the_model_does_not_end_the_trial() {
        let (_folder, model, card) = tiny();
        let engine = EngineConfig { backend: BackendChoice::Rten, ..EngineConfig::default() };
        let few = card.replace(", \"blue\", \"black\"", "");
        let tried = load_and_try(&model, &engine, &[card.clone(), few, "nonsense".to_owned()]).unwrap();
        let [CardTrial::Ran { scene, corner, noise }, CardTrial::Contradicted(few), CardTrial::Contradicted(nonsense)] =
            &tried[..]
        else {
            panic!("{tried:?}");
        };
        // It finds black in the person's jacket, and nothing in a mean of grey.
        assert!(scene.count > 0 && scene.highest > 0.6 && scene.longest_side > 0.0, "{scene:?}");
        assert!(corner.count <= 8 && noise.count == 0 && noise.best.is_none(), "{corner:?} {noise:?}");
        assert!(few.contains("6") && nonsense.contains("tiny.toml"), "{few} {nonsense}");
        assert!(load_and_try(&model, &engine, &[]).unwrap().is_empty());
        assert!(load_and_try(&model, &engine, &["nonsense".to_owned()]).is_err(), "the first loads the model");
    }

    #[test]
    fn findings_are_of_all_boxes_and_of_the_best() {
        let one = |class_id, score, box_in_source| Detection { class_id, score, box_in_source, ..Detection::default() };
        let size = (100, 60);
        let nothing =
            Findings { count: 0, highest: 0.0, empty: 0, longest_side: 0.0, best: None, is_lower_right: false };
        assert_eq!(Findings::of(&[], size), nothing);
        let found = [
            one(1, 0.5, Some([60.0, 40.0, 70.0, 55.0])),
            one(2, 0.9, Some([51.0, 31.0, 51.0, 40.0])),
            one(3, 0.2, Some([0.0, 5.0, 20.0, 5.0])),
            one(4, 0.1, None),
            one(5, 0.1, Some([60.0, 40.0, 65.0, 50.0])),
        ];
        let expected =
            Findings { count: 5, highest: 0.9, empty: 2, longest_side: 20.0, best: Some(2), is_lower_right: true };
        assert_eq!(Findings::of(&found, size), expected);
        // A tall box, and a wide one, away from the edges.
        for (corners, longest) in [([40.0, 20.0, 44.0, 50.0], 30.0), ([40.0, 20.0, 90.0, 24.0], 50.0)] {
            assert_eq!(Findings::of(&[one(1, 0.5, Some(corners))], size).longest_side, longest);
        }
        // It begins in the middle, or in only one of the two halves.
        for corners in [[50.0, 31.0, 80.0, 50.0], [51.0, 30.0, 80.0, 50.0], [10.0, 40.0, 20.0, 50.0]] {
            assert!(!Findings::of(&[one(1, 0.5, Some(corners))], size).is_lower_right, "{corners:?}");
        }
    }

    #[test]
    fn a_refusal_has_the_status_and_the_words_without_the_name_that_the_daemon_adds() {
        let answer = |error: ServiceError| match refusal(&error) {
            Answer::Refused { text, exit, only_here } => (text, Exit::from_code(exit), only_here),
            other => panic!("{other:?}"),
        };
        let read = |kind: std::io::ErrorKind| {
            answer(ServiceError::model("model", EngineError::Unreadable("net.onnx".into(), kind.into())))
        };
        let (text, exit, only_here) = read(std::io::ErrorKind::PermissionDenied);
        assert!(text.contains("net.onnx") && !text.starts_with("model model"), "{text}");
        assert_eq!((exit, only_here), (Some(Exit::Model), true));
        assert!(!read(std::io::ErrorKind::InvalidData).2);
        let panicked = answer(ServiceError::Panic);
        assert_eq!(panicked, (ServiceError::Panic.to_string(), Some(Exit::Failure), false));
    }

    #[test]
    fn more_cards_than_a_trial_takes_and_a_program_that_does_not_answer_get_no_trial() {
        let (_folder, model, card) = tiny();
        let engine = EngineConfig::default();
        let stop = Stop::new().unwrap();
        // This program is a test, and would run all tests instead of answering.
        for cards in [vec![], vec![card.clone(); MAX_CARDS + 1], vec!["#".repeat(CARDS_BYTES + 1)], vec![card]] {
            assert_eq!(try_cards(&model, &engine, &cards, &stop).unwrap(), None);
        }
        assert_eq!(try_model(&model, &engine, &stop).unwrap(), None);
        assert_eq!(external_bytes(Path::new("/nowhere/net.onnx")), 0);
        assert_eq!(external_bytes(&model.path), 0);
    }

    #[test]
    fn another_visiond_that_asks_otherwise_gets_a_status_and_no_answer() {
        assert_eq!(answer_to(["visiond".into(), COMMAND.into(), "{}".into()]), Some(Exit::Usage));
    }
}
