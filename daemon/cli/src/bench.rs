//! `visiond bench`: measures each stage of the pipeline on this machine.
//!
//! It processes one frame at a time, as a lane does: preprocess, inference, postprocess, message. Frames are decoded
//! beforehand, so that decoding and disks do not count. For a GPU they are written again each time, as a source does. There
//! are several frames, so that neither caches nor one favourable picture improve the figures. A TensorRT engine is also
//! measured alone: nothing can be faster than that.

mod engine;
mod figures;
mod frames;
mod iterations;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_capture::Buffers;
use visiond_config::parse_word;
use visiond_config::types::{BackendChoice, BufferConfig, EngineConfig, ModelConfig};
use visiond_engine::detector::DetectorError;
use visiond_flow::message::{Message, Timings};
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::nvtx;
use visiond_service::loaded_model::{LoadedModel, run_exit};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;
use visiond_system::process;

use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::sample_model;
use crate::value_parsers::duration;
use engine::{EngineReport, WholeFrames};
use figures::Figures;
use frames::{Supply, Writer};
use iterations::Iterations;
use report::{Machine, Memory, Report, Stage};

/// Measure how long each stage of a frame takes on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Measure this model [default: the sample NanoDet]
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Use this model card [default: MODEL with the extension .toml, else the model's own metadata]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Read frames from a video, a picture, a folder of pictures, or `pattern`, a moving test picture of 1280x720
    #[arg(short, long, value_name = "FILE", default_value = "pattern")]
    source: String,

    /// Measure N frames
    #[arg(short = 'n', long, visible_alias = "iterations", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    frames: u64,

    /// Measure for TIME, for example 10s, instead of a number of frames
    #[arg(long, value_name = "TIME", conflicts_with = "frames", value_parser = duration)]
    duration: Option<Duration>,

    /// Process N frames before measuring
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    warmup: u64,

    /// Use N threads for inference on the CPU; 0 uses every core
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,

    /// Run an .onnx model with this backend: auto, onnxruntime or rten
    #[arg(long, default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend: BackendChoice,

    /// Keep frames for a GPU in this kind of memory: mapped, managed, host, or auto to choose as the daemon does
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = memory)]
    memory: MemoryChoice,

    /// Show the time of each layer of a TensorRT engine
    #[arg(long)]
    layers: bool,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Times are microseconds per frame, without decoding. `message` makes the JSON that a sink gets.

A TensorRT engine is also measured alone, by calls and as one CUDA graph: CPU time to enqueue a run,
GPU time of the run, time until the CPU knows that it is done, the same with copies of inputs and
outputs, runs per second, and whole frames per second with one and with two runs in flight. On the
GPU, `write` is the CPU's time to write the frame into its memory, which the total leaves out,
`launch` the CPU's time to enqueue the work, and preprocess and inference are GPU times. Nsight
Systems shows the stages as NVTX ranges.

Examples:
  visiond bench
  visiond bench --source street.mp4 --threads 1
  visiond bench --json --model yolo11n.onnx --backend rten
  visiond bench --model yolo11n.engine --duration 10s --layers
  nsys profile --trace cuda,nvtx visiond bench --model yolo11n.engine";

/// A kind of memory; `None` chooses the fastest.
#[derive(Debug, Clone, Copy)]
struct MemoryChoice(Option<MemoryKind>);

fn memory(text: &str) -> Result<MemoryChoice, String> {
    parse_word(text).map(MemoryChoice)
}

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= 1024);
    number.ok_or_else(|| "expected a number from 0 to 1024".to_owned())
}

/// Measures the stages and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let path = args.model.map_or_else(sample_model::path, Ok)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let model = ModelConfig { name, path, card: args.card, ..ModelConfig::default() };
    let engine = EngineConfig { backend: args.backend, threads: args.threads, ..EngineConfig::default() };
    let network = LoadedModel::load(&model, &engine)?;
    if args.layers && network.engine.tensorrt().is_none() {
        let message = "--layers requires a TensorRT engine; build one with `visiond build`";
        return Err(ExitError::new(Exit::Usage, message));
    }
    let iterations = Iterations { frames: args.frames, warmup: args.warmup, duration: args.duration };
    let mut bench = Bench::new(&network)?;

    let buffers = BufferConfig { memory: args.memory.0, ..BufferConfig::default() };
    let buffers = Buffers::new(&buffers, network.device()).map_err(|error| ExitError::new(Exit::Usage, error))?;
    let most = if args.duration.is_some() { u64::MAX } else { args.frames };
    let mut supply = Supply::open(&args.source, most)?;
    let first = supply.next()?.ok_or_else(|| ExitError::new(Exit::Input, format!("{} has no frames", args.source)))?;
    bench.frame(&Writer::new(std::slice::from_ref(&first), &buffers)?, 0)?;
    let first_detection = process::age();
    let frames = supply.rest(first)?;
    let writer = Writer::new(&frames, &buffers)?;

    for n in 0..iterations.warmup {
        bench.frame(&writer, n)?;
    }
    let mut progress = Progress::new();
    let mut times = Vec::new();
    let mut detections = 0;
    let began = Instant::now();
    while iterations.goes_on(times.len() as u64, began) {
        times.push(bench.frame(&writer, times.len() as u64)?);
        detections += bench.found.len();
        progress.tell(|| format!("whole frames: {}", times.len()));
    }
    let Bench { mut detector, facts, .. } = bench;
    let input = detector.input_size();
    let engine = match network.engine.tensorrt() {
        Some(engine) => {
            let whole = WholeFrames::measure(&mut detector, &frames, &iterations, &buffers)?;
            // In TensorRT 8 only one context can use a profile, and the measurement of the engine needs one.
            drop(detector);
            Some(EngineReport::measure(&network, engine, &iterations, args.layers, whole)?)
        }
        None => None,
    };
    clear_live_line();

    let layout = &frames[0].layout;
    let report = Report {
        visiond: env!("CARGO_PKG_VERSION"),
        machine: Machine::this(),
        model: facts.name.clone(),
        sha256: facts.sha256.clone(),
        backend: network.engine.backend_description().to_owned(),
        threads: args.threads,
        source: args.source,
        frame: format!("{}x{} {}", layout.width(), layout.height(), layout.format()),
        input,
        distinct_frames: frames.len(),
        frames: times.len() as u64,
        warmup: args.warmup,
        stages_us: stages(&times),
        frames_per_second: times.len() as f64 / times.iter().map(|time| time.total.as_secs_f64()).sum::<f64>(),
        detections_per_frame: detections as f64 / times.len() as f64,
        first_detection_s: first_detection.map(|age| age.as_secs_f64()),
        memory: Memory::now(&frames),
        engine,
    };
    if args.json {
        print_json(&report)?
    } else {
        print(&report.table())?
    }
    Ok(Exit::Success)
}

/// Returns the figures of each stage that took place.
fn stages(times: &[Times]) -> BTreeMap<&'static str, Figures> {
    let only_for_a_gpu = |stage: &Stage| matches!(stage, Stage::Write | Stage::Launch);
    let has = |stage: &Stage| !only_for_a_gpu(stage) || times.iter().any(|time| time.of(*stage) > Duration::ZERO);
    let figures = |stage: Stage| (stage.name(), Figures::of(times.iter().map(|time| time.of(stage))));
    Stage::ALL.into_iter().filter(has).map(figures).collect()
}

/// The times of one frame.
struct Times {
    /// Time to write the frame into memory that the GPU sees; 0 without a GPU. The total leaves it out.
    write: Duration,
    /// Time until the GPU has the work; 0 without a GPU.
    launch: Duration,
    preprocess: Duration,
    infer: Duration,
    postprocess: Duration,
    message: Duration,
    total: Duration,
}

impl Times {
    fn of(&self, stage: Stage) -> Duration {
        match stage {
            Stage::Write => self.write,
            Stage::Launch => self.launch,
            Stage::Preprocess => self.preprocess,
            Stage::Infer => self.infer,
            Stage::Postprocess => self.postprocess,
            Stage::Message => self.message,
            Stage::Total => self.total,
            Stage::Rest => self.total.saturating_sub(self.infer),
        }
    }
}

/// Runs one frame after the other through one detector.
struct Bench {
    detector: visiond_engine::detector::Detector,
    facts: Arc<visiond_flow::message::ModelFacts>,
    camera: Arc<str>,
    found: Vec<visiond_engine::detector::Detection>,
}

impl Bench {
    fn new(network: &LoadedModel) -> Result<Self, ExitError> {
        let detector = network.required_detector()?;
        Ok(Self { detector, facts: Arc::new(network.facts()), camera: "bench".into(), found: Vec::new() })
    }

    /// Processes frame `n` and returns its times.
    fn frame(&mut self, writer: &Writer<'_>, n: u64) -> Result<Times, ExitError> {
        let before = Instant::now();
        let frame = writer.frame(n)?;
        let begin = Instant::now();
        let range = nvtx::range(c"preprocess");
        let name = &self.facts.name;
        let view = frame.view().map_err(|error| ExitError::new(Exit::Input, format!("{name}: {error}")))?;
        let failed = |error: DetectorError| ExitError::new(run_exit(&error), format!("model {name}: {error}"));
        let flight = self.detector.begin(&[view]).map_err(failed)?;
        let loaded = Instant::now();
        drop(range);
        let range = nvtx::range(c"engine");
        let timings = self.detector.finish(flight).map_err(failed)?;
        let inferred = Instant::now();
        drop(range);
        let range = nvtx::range(c"filter");
        self.detector.detections(flight, 0, &mut self.found).map_err(failed)?;
        let found = Instant::now();
        drop(range);
        let _range = nvtx::range(c"publish");
        let label = |class| self.detector.label(class);
        let message = Message::new(&self.camera, &self.facts, &frame, Timings::default(), &self.found, label);
        std::hint::black_box(message.to_line());
        let end = Instant::now();
        let us = Duration::from_micros;
        // The GPU works concurrently with this thread, so take its own measurements.
        let on_gpu = timings.launch_us > 0;
        Ok(Times {
            write: if writer.writes() { begin - before } else { Duration::ZERO },
            launch: us(timings.launch_us),
            preprocess: if on_gpu { us(timings.preprocess_us) } else { loaded - begin },
            infer: if on_gpu { us(timings.infer_us) } else { inferred - loaded },
            postprocess: found - inferred,
            message: end - found,
            total: end - begin,
        })
    }
}
