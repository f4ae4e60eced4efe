//! `visiond bench`: what each stage costs here.
//!
//! One frame at a time, as a lane does it: preprocess, network, postprocess, message. Frames are decoded beforehand into
//! memory, so that decoding and disks are left out; there are several, so that neither caches nor the network's work on one
//! picture flatter the figures.

mod frames;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_kernels::nvtx;

use super::network::Network;
use super::{CliError, default_model, print, print_json};
use crate::capture::frame::Frame;
use crate::config::types::{BackendChoice, EngineConfig, ModelConfig};
use crate::exit::Exit;
use crate::pipeline::process;
use crate::publish::message::{Message, Timings};
use frames::Supply;
use report::{Figures, Machine, Memory, Report, Stage};

/// Measure each stage and the whole on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The network; without it the sample NanoDet
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Its card; without it the TOML beside the model with the same stem
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// What to look at: a video, a picture, a folder of pictures, or pattern, the moving test picture of 1280x720
    #[arg(short, long, value_name = "FILE", default_value = "pattern")]
    source: String,

    /// Frames to measure
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    frames: u64,

    /// Frames to look at before, unmeasured
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    warmup: u64,

    /// Threads of one run of the network; 0 takes every core
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,

    /// What runs the network
    #[arg(long, default_value = "auto", value_parser = super::backend)]
    backend: BackendChoice,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
The figures are microseconds of one frame; decoding is left out. A message is what a sink gets, as JSON.

Examples:
  visiond bench
  visiond bench --source street.mp4 --threads 1
  visiond bench --json --model yolo11n.onnx --backend rten";

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= 1024);
    number.ok_or_else(|| "not a number from 0 to 1024".to_owned())
}

/// Measures and prints.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let path = args.model.map_or_else(default_model, Ok)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let model = ModelConfig { name, path, card: args.card, ..ModelConfig::default() };
    let engine = EngineConfig { backend: args.backend, threads: args.threads, ..EngineConfig::default() };
    let network = Network::load(&model, &engine)?;
    let mut bench = Bench::new(&network)?;

    let mut supply = Supply::open(&args.source, args.frames)?;
    let first = supply.next()?.ok_or_else(|| CliError::new(Exit::Input, format!("{} has no frame", args.source)))?;
    bench.look(&first)?;
    let first_detection = process::age();
    let frames = supply.rest(first)?;

    for n in 0..args.warmup {
        bench.look(pick(&frames, n))?;
    }
    let mut times = Vec::with_capacity(args.frames as usize);
    let mut detections = 0;
    for n in 0..args.frames {
        times.push(bench.look(pick(&frames, n))?);
        detections += bench.found.len();
    }

    let layout = &frames[0].layout;
    let report = Report {
        visiond: env!("CARGO_PKG_VERSION"),
        machine: Machine::this(),
        model: bench.facts.name.clone(),
        sha256: bench.facts.sha256.clone(),
        backend: network.engine.backend_description().to_owned(),
        threads: args.threads,
        source: args.source,
        frame: format!("{}x{} {}", layout.width(), layout.height(), layout.format()),
        input: bench.detector.input_size(),
        distinct_frames: frames.len(),
        frames: args.frames,
        warmup: args.warmup,
        stages_us: Stage::ALL.map(|stage| (stage.name(), Figures::of(times.iter().map(|time| time.of(stage))))).into(),
        frames_per_second: times.len() as f64 / times.iter().map(|time| time.total.as_secs_f64()).sum::<f64>(),
        detections_per_frame: detections as f64 / times.len() as f64,
        first_detection_s: first_detection.map(|age| age.as_secs_f64()),
        memory: Memory::now(&frames),
    };
    if args.json {
        print_json(&report)?
    } else {
        print(&report.table())?
    }
    Ok(Exit::Success)
}

fn pick(frames: &[Frame], n: u64) -> &Frame {
    &frames[(n % frames.len() as u64) as usize]
}

/// What one frame took.
struct Times {
    preprocess: Duration,
    infer: Duration,
    postprocess: Duration,
    message: Duration,
    total: Duration,
}

impl Times {
    fn of(&self, stage: Stage) -> Duration {
        match stage {
            Stage::Preprocess => self.preprocess,
            Stage::Infer => self.infer,
            Stage::Postprocess => self.postprocess,
            Stage::Message => self.message,
            Stage::Total => self.total,
            Stage::Rest => self.total.saturating_sub(self.infer),
        }
    }
}

/// One frame after the other through one detector.
struct Bench {
    detector: visiond_engine::detector::Detector,
    facts: Arc<crate::publish::message::ModelFacts>,
    camera: Arc<str>,
    found: Vec<visiond_engine::detector::Detection>,
}

impl Bench {
    fn new(network: &Network) -> Result<Self, CliError> {
        let detector = network.required_detector()?;
        Ok(Self { detector, facts: Arc::new(network.facts()), camera: "bench".into(), found: Vec::new() })
    }

    fn look(&mut self, frame: &Frame) -> Result<Times, CliError> {
        let fail =
            |error: &dyn std::fmt::Display| CliError::new(Exit::Model, format!("model {}: {error}", self.facts.name));
        let begin = Instant::now();
        let range = nvtx::range(c"preprocess");
        let view = frame.view().map_err(|error| fail(&error))?;
        let flight = self.detector.begin(&[view]).map_err(|error| fail(&error))?;
        let loaded = Instant::now();
        drop(range);
        let range = nvtx::range(c"engine");
        self.detector.finish(flight).map_err(|error| fail(&error))?;
        let inferred = Instant::now();
        drop(range);
        let range = nvtx::range(c"filter");
        self.detector.detections(flight, 0, &mut self.found).map_err(|error| fail(&error))?;
        let found = Instant::now();
        drop(range);
        let _range = nvtx::range(c"publish");
        let label = |class| self.detector.label(class);
        let message = Message::new(&self.camera, &self.facts, frame, Timings::default(), &self.found, label);
        std::hint::black_box(message.to_line());
        let end = Instant::now();
        Ok(Times {
            preprocess: loaded - begin,
            infer: inferred - loaded,
            postprocess: found - inferred,
            message: end - found,
            total: end - begin,
        })
    }
}
