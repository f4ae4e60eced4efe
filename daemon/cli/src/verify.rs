//! `visiond verify`: compares two builds of a model on the same pictures.
//!
//! Both run on the same pictures, one after the other, with the CPU's preprocess. The command accumulates the differences of
//! their raw outputs and detections; the exit status says whether they are within the limits.

mod comparison;
mod model;
mod report;

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use visiond_capture::Buffers;
use visiond_capture::images::pictures_in;
use visiond_config::parse_word;
use visiond_config::types::BackendChoice;
use visiond_engine::compare::{self, Agreement};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;
use visiond_system::stop::Stop;

use crate::media_decoder::MediaDecoder;
use crate::output::{print, print_json};
use crate::value_parsers::fraction;
use comparison::Comparison;
use report::{Limits, Report};

/// Minimum score of compared detections, because lower scores are noise.
const LEAST_SCORE: f64 = 0.01;

/// Compare two builds of a model on the same pictures
///
/// Each may be an ONNX file or a TensorRT engine. Compare an engine with its ONNX file to see the accuracy that FP16 or INT8
/// cost.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Reference model, usually the ONNX file
    first: PathBuf,

    /// Model to compare with the reference
    second: PathBuf,

    /// Compare on the pictures in DIR (repeatable)
    #[arg(long, value_name = "DIR", required_unless_present = "video")]
    images: Vec<PathBuf>,

    /// Compare on the frames of a video (repeatable)
    #[arg(long, value_name = "FILE")]
    video: Vec<PathBuf>,

    /// Use every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after N frames of each video, skipped ones included [default: all]
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,

    /// Use this model card for both models [default: each model's own, or the only one of the two]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Run an .onnx reference with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_a: BackendChoice,

    /// Run an .onnx model to compare with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_b: BackendChoice,

    /// Compare detections with at least this score in one of the models, 0 to 1 [default: the reference's card]
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    score_threshold: Option<f64>,

    /// Allow matched boxes to overlap with this IoU or more
    #[arg(long, value_name = "IOU", default_value_t = 0.98, value_parser = fraction, help_heading = "Allowed")]
    min_iou: f64,

    /// Allow scores of matched boxes to differ by this much
    #[arg(long, value_name = "SCORE", default_value_t = 0.02, value_parser = fraction, help_heading = "Allowed")]
    max_score_difference: f64,

    /// Allow this share of detections to differ by more, or to be found by only one model, 0 to 1
    ///
    /// The default is not 0, because rounding may decide which of two boxes with nearly the same score NMS removes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.002, value_parser = fraction, help_heading = "Allowed")]
    max_outside: f64,

    /// Require this cosine similarity of each raw output [default: shown, not required]
    #[arg(long, value_name = "COSINE", value_parser = fraction, help_heading = "Allowed")]
    min_cosine: Option<f64>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Boxes of the same class match from an IoU of 0.5 on, best score first. Suggested limits: for FP32
the defaults; for FP16 --min-iou 0.95 --max-score-difference 0.05 --max-outside 0.01; for INT8 what
your application tolerates, often --min-iou 0.8 --max-score-difference 0.15 --max-outside 0.05.
Use some hundred pictures of the scene where the model will run.

Examples:
  visiond verify yolo11n.onnx yolo11n-fp16.engine --images pictures
  visiond verify a.onnx a.onnx --backend-a onnxruntime --backend-b rten --video street.mp4
  visiond verify --json a.onnx b.engine --images pictures | jq .agree";

/// Compares the models and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let files = files(&args)?;
    let models = model::load([(&args.first, args.backend_a), (&args.second, args.backend_b)], args.card.as_deref())?;
    let of_card = || (f64::from(models[0].card.score_threshold) * 1e6).round() / 1e6;
    let threshold = args.score_threshold.unwrap_or_else(of_card);
    // A detection at the threshold of one model may score less in the other, and still match.
    let floor = (threshold - 2.0 * args.max_score_difference).max(LEAST_SCORE).min(threshold);
    let pair = compare::MatchLimits { min_iou: args.min_iou, max_score_difference: args.max_score_difference };
    let agreement = Agreement::within(threshold as f32, pair);
    let mut comparison = Comparison::new(&models, agreement, floor)?;

    let stop =
        Stop::new().map_err(|error| ExitError::new(Exit::Failure, format!("cannot create an eventfd: {error}")))?;
    let buffers = Buffers::default();
    let decoder = MediaDecoder { every: args.every, max_frames: args.max_frames, buffers, stop: stop.clone() };
    std::thread::scope(|scope| {
        // One frame is decoded ahead.
        let (sender, items) = sync_channel(1);
        std::thread::Builder::new()
            .name("read".to_owned())
            .spawn_scoped(scope, move || decoder.run(&files, &sender))
            .map_err(|error| ExitError::new(Exit::Failure, format!("cannot start a thread: {error}")))?;
        let result = comparison.run(&items);
        // The decoder may be waiting for a frame, or for this thread to take one.
        stop.raise();
        drop(items);
        result
    })?;
    clear_live_line();

    if comparison.pictures.is_empty() {
        return Err(ExitError::new(Exit::Input, "no picture could be read, so nothing was compared"));
    }
    let limits = Limits {
        score_threshold: threshold,
        min_iou: args.min_iou,
        max_score_difference: args.max_score_difference,
        max_outside: args.max_outside,
        min_cosine: args.min_cosine,
    };
    let report = Report::new(&comparison, limits);
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    if report.detection_count() == 0 && report.agree {
        let message = format!(
            "neither model detects anything with a score of {threshold} or more on these pictures, so the comparison \
             proves nothing: use pictures with objects that the model knows, or a lower --score-threshold"
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(if report.agree { comparison.exit } else { Exit::Differs })
}

/// Returns every picture and video, in order.
fn files(args: &Args) -> Result<Vec<PathBuf>, ExitError> {
    let mut files = Vec::new();
    for folder in &args.images {
        let name = folder.display();
        let found = pictures_in(folder)
            .map_err(|error| ExitError::new(Exit::Input, format!("cannot read pictures from {name}: {error}")))?;
        if found.is_empty() {
            return Err(ExitError::new(Exit::Input, format!("the folder {name} has no pictures")));
        }
        files.extend(found);
    }
    files.extend(args.video.iter().cloned());
    Ok(files)
}
