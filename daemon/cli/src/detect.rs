//! `visiond detect`: what is on pictures and videos.
//!
//! One thread reads and decodes, this one looks and prints, so that a video costs the longer of the two. Whatever is wrong
//! with one file is said, and the others are still looked at.

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

/// What messages call the camera.
const CAMERA: &str = "detect";

/// Find things on pictures and videos
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Pictures and videos: files, or URLs that ffmpeg reads
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The network; without it the sample NanoDet
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Its card; without it the TOML beside the model with the same stem
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Print one JSON message a frame instead of a table
    #[arg(long)]
    json: bool,

    /// Write pictures with boxes drawn into this folder: NAME-annotated.jpg, of a video NAME-annotated-NUMBER.jpg
    #[arg(short, long, value_name = "DIR")]
    annotate: Option<PathBuf>,

    /// Show only what scores so much or more, 0 to 1; without it what the card says
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    score_threshold: Option<f64>,

    /// Show only these classes, by label
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    classes: Vec<String>,

    /// What runs an .onnx network: auto, onnxruntime or rten
    #[arg(long, default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend: BackendChoice,

    /// Look at every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after so many frames of each video, looked at or not
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
}

const AFTER_HELP: &str = "\
Examples:
  visiond detect photo.jpg
  visiond detect --annotate out --max-frames 100 street.mp4
  visiond detect --json *.jpg | jq -r '.detections[].label'
  visiond detect --model yolo11n.onnx --classes person,car photo.jpg

A file is what its content says, whatever its name. One that cannot be read is named
on standard error, the others are still looked at, and the exit status is 5.";

/// Looks at every file.
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
    // First, so that the GPU's kernels are there when kinds of memory are compared.
    let detector = network.required_detector()?;
    let buffers =
        Buffers::new(&BufferConfig::default(), network.device()).map_err(|error| ExitError::new(Exit::Model, error))?;
    let looker = Looker {
        model: Arc::new(network.facts()),
        report: Report::new(args.json, &args.files, detector.labels()),
        detector,
        camera: CAMERA.into(),
        pictures,
        found: Vec::new(),
        exit: Exit::Success,
    };

    let stop =
        Stop::new().map_err(|error| ExitError::new(Exit::Failure, format!("cannot make an eventfd: {error}")))?;
    let decoder = MediaDecoder { every: args.every, max_frames: args.max_frames, buffers, stop: stop.clone() };
    std::thread::scope(|scope| {
        // One frame is decoded ahead.
        let (sender, items) = sync_channel(1);
        let files = &args.files;
        let reading = std::thread::Builder::new().name("read".to_owned());
        reading
            .spawn_scoped(scope, move || decoder.run(files, &sender))
            .map_err(|error| ExitError::new(Exit::Failure, format!("cannot start a thread: {error}")))?;
        let result = looker.look(files, &items);
        // The reader may be waiting for a frame, or for this side to take one.
        stop.raise();
        drop(items);
        result
    })
}

/// What looks at frames and tells.
struct Looker {
    detector: Detector,
    model: Arc<ModelFacts>,
    camera: Arc<str>,
    report: Report,
    pictures: Option<AnnotatedPictures>,
    found: Vec<Detection>,
    /// Of the first thing that went wrong.
    exit: Exit,
}

impl Looker {
    fn look(mut self, files: &[PathBuf], items: &Receiver<Item>) -> Result<Exit, ExitError> {
        for item in items {
            match item {
                Item::Begun { file } => self.report.begin(&files[file]),
                Item::Frame { file, is_video, frame } => self.look_at(file, is_video, &frame)?,
                Item::Failed { reason } => self.fail(Exit::Input, &reason),
                // The source has said why.
                Item::Damaged => self.remember(Exit::Input),
            }
        }
        self.report.end()?;
        Ok(self.exit)
    }

    fn look_at(&mut self, file: usize, is_video: bool, frame: &Frame) -> Result<(), ExitError> {
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
        self.report.tell(&message, is_video)?;
        if let Some(pictures) = &mut self.pictures
            && let Err(reason) = pictures.store(file, is_video.then_some(frame.sequence), &view, &message)
        {
            // The detections are still wanted; another picture would fail the same way.
            self.pictures = None;
            self.fail(Exit::Output, &format!("{reason}; no more pictures are drawn"));
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
