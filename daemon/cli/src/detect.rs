//! `visiond detect`: detects objects in pictures and videos.
//!
//! One thread reads and decodes while this one runs the model and prints, so that a video takes only as long as the slower of
//! the two. An unreadable file is reported, and the command continues with the next one.

mod annotated;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use visiond_capture::Buffers;
use visiond_config::parse_word;
use visiond_config::types::{BackendChoice, BufferConfig, EngineConfig, ModelConfig};
use visiond_engine::detector::{Detection, Detector, DetectorError};
use visiond_flow::clock::{Clock, SystemClock};
use visiond_flow::frame::Frame;
use visiond_flow::message::{Message, ModelFacts, Timings};
use visiond_service::loaded_model::{LoadedModel, run_exit};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;
use visiond_system::stop::Stop;

use crate::media_decoder::{Item, MediaDecoder};
use crate::output::complain;
use crate::sample_model;
use crate::value_parsers::fraction;
use annotated::{AnnotatedPictures, stem};
use report::Report;

/// The camera's name in messages.
const CAMERA: &str = "detect";

/// Detect objects in pictures and videos
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Pictures and videos: files, or URLs that ffmpeg can read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Run this model [default: the sample NanoDet]
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Use this model card [default: MODEL with the extension .toml, else the model's own metadata]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Print one JSON message per frame instead of a table
    #[arg(long)]
    json: bool,

    /// Write pictures with boxes to DIR: NAME-annotated.jpg, for a video NAME-annotated-NUMBER.jpg
    #[arg(short, long, value_name = "DIR")]
    annotate: Option<PathBuf>,

    /// Show only detections with at least this score, 0 to 1 [default: the card's]
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    score_threshold: Option<f64>,

    /// Show only these classes, by label [default: all]
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    classes: Vec<String>,

    /// Run an .onnx model with this backend: auto, onnxruntime or rten
    #[arg(long, default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend: BackendChoice,

    /// Run the model on every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after N frames of each video, skipped ones included [default: all]
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
}

const AFTER_HELP: &str = "\
Examples:
  visiond detect photo.jpg
  visiond detect --annotate out --max-frames 100 street.mp4
  visiond detect --json *.jpg | jq -r '.detections[].label'
  visiond detect --model yolo11n.onnx --classes person,car photo.jpg

The type of a file comes from its content, not from its name. A file that cannot be read is
reported on standard error; the command continues with the next one and exits with status 5.";

/// Runs the model on every file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let pictures = args.annotate.as_deref().map(|folder| AnnotatedPictures::open(folder, &args.files)).transpose()?;
    let path = args.model.map_or_else(sample_model::path, Ok)?;
    let model = ModelConfig {
        name: stem(&path),
        path,
        card: args.card,
        score_threshold: args.score_threshold,
        classes: args.classes,
        max_batch: 1,
        ..ModelConfig::default()
    };
    let network = LoadedModel::load(&model, &EngineConfig { backend: args.backend, ..EngineConfig::default() })?;
    // Before the buffers, so that the GPU's kernels are loaded when kinds of memory are compared.
    let detector = network.required_detector()?;
    let buffers =
        Buffers::new(&BufferConfig::default(), network.device()).map_err(|error| ExitError::new(Exit::Model, error))?;
    let detection = DetectionRun {
        model: Arc::new(network.facts()),
        report: Report::new(args.json, &args.files, detector.labels()),
        detector,
        camera: CAMERA.into(),
        pictures,
        found: Vec::new(),
        exit: Exit::Success,
    };

    let stop =
        Stop::new().map_err(|error| ExitError::new(Exit::Failure, format!("cannot create an eventfd: {error}")))?;
    let decoder = MediaDecoder { every: args.every, max_frames: args.max_frames, buffers, stop: stop.clone() };
    std::thread::scope(|scope| {
        // One frame is decoded ahead.
        let (sender, items) = sync_channel(1);
        let files = &args.files;
        let reading = std::thread::Builder::new().name("read".to_owned());
        reading
            .spawn_scoped(scope, move || decoder.run(files, &sender))
            .map_err(|error| ExitError::new(Exit::Failure, format!("cannot start a thread: {error}")))?;
        let result = detection.run(files, &items);
        // The decoder may be waiting for a frame, or for this thread to take one.
        stop.raise();
        drop(items);
        result
    })
}

/// Runs the model on frames and reports what it detects.
struct DetectionRun {
    detector: Detector,
    model: Arc<ModelFacts>,
    camera: Arc<str>,
    report: Report,
    pictures: Option<AnnotatedPictures>,
    found: Vec<Detection>,
    /// The exit status of the first error.
    exit: Exit,
}

impl DetectionRun {
    fn run(mut self, files: &[PathBuf], items: &Receiver<Item>) -> Result<Exit, ExitError> {
        for item in items {
            match item {
                Item::Begun { file } => self.report.begin(&files[file]),
                Item::Frame { file, is_video, frame } => self.detect(file, is_video, &frame)?,
                Item::Failed { reason } => self.fail(Exit::Input, &reason),
                // The source has logged the error.
                Item::Damaged => self.remember(Exit::Input),
            }
        }
        self.report.end()?;
        Ok(self.exit)
    }

    fn detect(&mut self, file: usize, is_video: bool, frame: &Frame) -> Result<(), ExitError> {
        let name = frame.name.as_deref().unwrap_or_default();
        let failed = |error: DetectorError| ExitError::new(run_exit(&error), format!("{}: {error}", escape(name)));
        let taken_ns = SystemClock.monotonic_ns();
        let age = |now_ns: u64| now_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000;
        let view = match frame.view() {
            Ok(view) => view,
            Err(error) => {
                self.fail(Exit::Input, &format!("{}: {error}", escape(name)));
                return Ok(());
            }
        };
        let flight = self.detector.begin(&[view]).map_err(failed)?;
        let run = self.detector.finish(flight).map_err(failed)?;
        let inferred = Instant::now();
        self.detector.detections(flight, 0, &mut self.found).map_err(failed)?;
        let timings = Timings {
            capture: age(taken_ns),
            queue: 0,
            preprocess: run.preprocess_us,
            infer: run.infer_us,
            postprocess: inferred.elapsed().as_micros() as u64,
            total: age(SystemClock.monotonic_ns()),
        };
        let label = |class_id| self.detector.label(class_id);
        let message = Message::new(&self.camera, &self.model, frame, timings, &self.found, label);
        self.report.frame(&message, is_video)?;
        if let Some(pictures) = &mut self.pictures
            && let Err(reason) = pictures.store(file, is_video.then_some(frame.sequence), &view, &message)
        {
            // Detections continue, but another picture would fail in the same way.
            self.pictures = None;
            self.fail(Exit::Output, &format!("{reason}; no more pictures are written"));
        }
        Ok(())
    }

    fn fail(&mut self, exit: Exit, reason: &str) {
        self.report.clear();
        complain(reason);
        self.remember(exit);
    }

    fn remember(&mut self, exit: Exit) {
        if self.exit == Exit::Success {
            self.exit = exit;
        }
    }
}
