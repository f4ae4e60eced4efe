//! `visiond bench`: measures each stage of the pipeline on this machine.
//!
//! It processes one frame at a time, as a lane does: preprocess, inference, postprocess, message. Frames are decoded
//! beforehand, so that decoding and disks do not count. For a GPU they are written again each time, as a source does. Several
//! frames are used, so that neither caches nor one easy image improve the figures. A TensorRT engine is also measured alone,
//! as the lower bound of the time.

mod engine;
mod frames;
mod measurement;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_capture::Buffers;
use visiond_config::parse_word;
use visiond_config::types::{BackendChoice, BufferConfig, EngineConfig};
use visiond_engine::detector::DetectorError;
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::nvtx;
use visiond_message::Timings;
use visiond_pipeline::collector::{FrameTracks, message_of};
use visiond_pipeline::lane_result::{LaneResult, ModelFacts};
use visiond_service::model_trial;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;
use visiond_system::priority::wake_on_time;
use visiond_system::process;
use visiond_system::stop::Stop;

use crate::load_limits::LoadLimits;
use crate::output::print_report;
use crate::sample_model::ModelArgs;
use engine::{EngineReport, WholeFrames};
use frames::{FrameWriter, read_frames};
use measurement::{Figures, Iterations};
use report::{BenchMachine, BenchReport, MemoryUse, STAGES, TOTAL};

/// Measure how long each stage of a frame takes on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Read frames from a video, an image, a folder of images, or `pattern`, a moving test image of 1280x720
    #[arg(short, long, value_name = "FILE", default_value = "pattern")]
    source: String,

    #[command(flatten)]
    iterations: Iterations,

    /// Use N threads for inference on the CPU; 0 uses every core
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1024))]
    threads: u16,

    /// Run an .onnx model with this backend: auto, onnxruntime or rten
    #[arg(long, default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend: BackendChoice,

    /// Keep frames for a GPU in this kind of memory: mapped, managed, host, or auto to choose as the daemon does
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = parse_word::<MemoryChoice>)]
    memory: MemoryChoice,

    #[command(flatten)]
    trial: LoadLimits,

    /// Show the time of each layer of a TensorRT engine
    #[arg(long)]
    layers: bool,

    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Times are microseconds per frame, without decoding. `message` makes the JSON that a sink gets. On a GPU, `write` is the \
CPU's time to write the frame into its memory; the total leaves it out. `launch` is the CPU's time to enqueue the work. \
Preprocess and inference are GPU times. Nsight Systems shows the stages as NVTX ranges.

A TensorRT engine is also measured alone, by calls and as one CUDA graph. Whole frames are also measured with one and with two runs in flight.

Rows of a TensorRT engine:
  enqueue          CPU time to enqueue a run
  on the GPU       GPU time of the run
  until done       time until the CPU knows that the run is done
  with copies      the same with copies of inputs and outputs

Examples:
  visiond bench
  visiond bench --source street.mp4 --threads 1
  visiond bench --json --model yolo11n.onnx --backend rten
  visiond bench --model yolo11n.engine --duration 10s --layers
  nsys profile --trace cuda,nvtx visiond bench --model yolo11n.engine";

/// A kind of memory; `None` chooses the fastest. The alias keeps clap from treating the type as an optional flag.
type MemoryChoice = Option<MemoryKind>;

/// Measures the stages and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    // As lanes do.
    wake_on_time();
    let model = args.model.config()?;
    let engine = EngineConfig { backend: args.backend, threads: args.threads.into(), ..EngineConfig::default() };
    let loaded = model_trial::load(&model, &args.trial.of(engine), &Stop::new().map_err(ExitError::system)?)?;
    if args.layers && loaded.engine.tensorrt().is_none() {
        let message = "--layers requires a TensorRT engine; build one with `visiond build`";
        return Err(ExitError::new(Exit::Usage, message));
    }
    let iterations = args.iterations;
    let detector = loaded.required_detector()?;
    let mut bench = FrameBench { facts: loaded.facts(&detector), detector, camera: "bench".into(), found: Vec::new() };

    let buffers = BufferConfig { memory: args.memory, ..BufferConfig::default() };
    let buffers = Buffers::new(&buffers, loaded.device())
        .map_err(|error| ExitError::new(Exit::Usage.unless_gpu_lost(&error), error))?;
    let most = if iterations.duration.is_some() { u64::MAX } else { iterations.frames };
    let mut frames = read_frames(&args.source, most)?;
    let no_frames = || ExitError::new(Exit::Input, format!("{} has no frames: name another source", args.source));
    let first = frames.next().transpose()?.ok_or_else(no_frames)?;
    bench.frame(&FrameWriter::new(std::slice::from_ref(&first), &buffers)?, 0)?;
    let first_detection = process::age();
    let frames = std::iter::once(Ok(first)).chain(frames).collect::<Result<Vec<_>, _>>()?;
    let writer = FrameWriter::new(&frames, &buffers)?;

    for n in 0..iterations.warmup {
        bench.frame(&writer, n)?;
    }
    let mut detections = 0;
    let times = iterations.repeat("whole frames", |n| {
        let times = bench.frame(&writer, n)?;
        detections += bench.found.len();
        Ok::<_, ExitError>(times)
    })?;
    let FrameBench { mut detector, facts, .. } = bench;
    let input = detector.input_size();
    let engine = match loaded.engine.tensorrt() {
        Some(engine) => {
            let whole = WholeFrames::measure(&mut detector, &frames, &iterations, &buffers)?;
            // In TensorRT 8 only one context can use a profile, and the engine's measurement needs one.
            drop(detector);
            Some(EngineReport::measure(&loaded, engine, &iterations, args.layers, whole)?)
        }
        None => None,
    };
    clear_live_line();

    let layout = &frames[0].layout;
    let report = BenchReport {
        visiond: env!("CARGO_PKG_VERSION"),
        machine: BenchMachine::this(),
        model: facts.message.name.clone(),
        sha256: facts.message.sha256.clone(),
        backend: loaded.engine.backend_description().to_owned(),
        threads: args.threads.into(),
        source: args.source,
        frame: format!("{}x{} {}", layout.width(), layout.height(), layout.format()),
        input,
        distinct_frames: frames.len(),
        frames: times.len() as u64,
        warmup: iterations.warmup,
        stages_us: stages(&times),
        frames_per_second: times.len() as f64 / times.iter().map(|time| time[TOTAL].as_secs_f64()).sum::<f64>(),
        detections_per_frame: detections as f64 / times.len() as f64,
        first_detection_s: first_detection.map(|age| age.as_secs_f64()),
        memory: MemoryUse::now(&frames),
        engine,
    };
    print_report(args.json, &report, BenchReport::table)
}

/// The time of each of the [`STAGES`]; zero for a stage that did not take place.
type StageTimes = [Duration; STAGES.len()];

/// Returns the figures of each stage that took place.
fn stages(times: &[StageTimes]) -> BTreeMap<&'static str, Figures> {
    let took_place = |stage: &usize| times.iter().any(|time| time[*stage] > Duration::ZERO);
    let figures = |stage: usize| (STAGES[stage].0, Figures::of(times.iter().map(|time| time[stage])));
    // The first two exist only on a GPU.
    (0..STAGES.len()).filter(|stage| *stage > 1 || took_place(stage)).map(figures).collect()
}

/// Runs one frame at a time through one detector.
struct FrameBench {
    detector: visiond_engine::detector::Detector,
    facts: ModelFacts,
    camera: Arc<str>,
    found: Vec<visiond_engine::detector::Detection>,
}

impl FrameBench {
    /// Processes frame `n` and returns its times.
    fn frame(&mut self, writer: &FrameWriter<'_>, n: u64) -> Result<StageTimes, ExitError> {
        let before = Instant::now();
        let frame = writer.frame(n)?;
        let begin = Instant::now();
        let range = nvtx::range(c"preprocess");
        let name = &self.facts.message.name;
        let view = frame.view().map_err(|error| ExitError::new(Exit::Input, format!("{name}: {error}")))?;
        let failed = |error: DetectorError| {
            ExitError::new(Exit::Model.unless_gpu_lost(&error), format!("model {name}: {error}"))
        };
        let run_id = self.detector.begin(&[view]).map_err(failed)?;
        let begun = Instant::now();
        drop(range);
        let range = nvtx::range(c"engine");
        let timings = self.detector.finish(run_id).map_err(failed)?;
        let inferred = Instant::now();
        drop(range);
        let range = nvtx::range(c"filter");
        self.detector.detections(run_id, 0, &mut self.found).map_err(failed)?;
        let found = Instant::now();
        drop(range);
        let _range = nvtx::range(c"publish");
        let result = LaneResult {
            frame: frame.facts(),
            model: &self.facts,
            detections: &self.found,
            values: self.detector.values(),
            crops: &[],
            timings: Timings::default(),
        };
        std::hint::black_box(message_of(&self.camera, &result, FrameTracks::default()).to_line());
        let end = Instant::now();
        let us = Duration::from_micros;
        // The GPU works concurrently with this thread, so take its own measurements.
        let on_gpu = timings.launch_us > 0;
        let infer = if on_gpu { us(timings.infer_us) } else { inferred - begun };
        let total = end - begin;
        Ok([
            if writer.writes() { begin - before } else { Duration::ZERO },
            us(timings.launch_us),
            if on_gpu { us(timings.preprocess_us) } else { begun - begin },
            infer,
            found - inferred,
            end - found,
            total,
            total.saturating_sub(infer),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_a_gpu_are_left_out_where_none_took_place() {
        let times = |write, launch| {
            let [write, launch, rest] = [write, launch, 7].map(Duration::from_micros);
            let mut times = [rest; STAGES.len()];
            (times[0], times[1]) = (write, launch);
            times
        };
        let names = |times: &[StageTimes]| stages(times).into_keys().collect::<Vec<_>>();
        let on_cpu = ["all_but_infer", "infer", "message", "postprocess", "preprocess", "total"];
        assert_eq!(names(&[times(0, 0); 2]), on_cpu);
        let both = stages(&[times(0, 3), times(5, 0)]);
        assert_eq!(both.len(), 8);
        assert_eq!((both["write"].median, both["launch"].median, both["infer"].median), (0.0, 0.0, 7.0));
        assert_eq!(stages(&[times(4, 3)])["write"].median, 4.0);
    }
}
