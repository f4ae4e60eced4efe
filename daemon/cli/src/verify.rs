//! `visiond verify`: whether two builds of a network see the same.
//!
//! Both look at the same pictures, one after the other, on the CPU's preprocess, whatever runs them. What their raw outputs and their
//! detections differ by is added up; the exit status says whether that is within what was allowed.

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

/// The lowest score that is asked for: below it networks see noise.
const LEAST_SCORE: f64 = 0.01;

/// Compare two builds of a network on the same pictures
///
/// Each may be an ONNX file or a TensorRT engine: the ONNX that an engine was built from, and the engine, show what FP16 or
/// INT8 cost.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The network that is right: usually the ONNX
    first: PathBuf,

    /// The network that is compared with it
    second: PathBuf,

    /// Folder of pictures to look at; may be given again
    #[arg(long, value_name = "DIR", required_unless_present = "video")]
    images: Vec<PathBuf>,

    /// Video to look at; may be given again
    #[arg(long, value_name = "FILE")]
    video: Vec<PathBuf>,

    /// Look at every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after so many frames of each video, looked at or not
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,

    /// Card of both; without it each network's own, and where only one has a card, that one for both
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// What runs the first, where it is an .onnx file: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_a: BackendChoice,

    /// What runs the second, where it is an .onnx file
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_b: BackendChoice,

    /// Compare what scores so much or more in one of the two, 0 to 1; without it what the first's card says
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    score_threshold: Option<f64>,

    /// The least overlap of two boxes of one thing
    #[arg(long, value_name = "IOU", default_value_t = 0.98, value_parser = fraction, help_heading = "Allowed")]
    min_iou: f64,

    /// The greatest difference of two scores of one thing
    #[arg(long, value_name = "SCORE", default_value_t = 0.02, value_parser = fraction, help_heading = "Allowed")]
    max_score_difference: f64,

    /// Things that differ by more than that, or that only one of the two sees, as a part of all, 0 to 1
    ///
    /// Not 0, because of two boxes of one thing that score nearly the same, the least rounding may decide which is kept.
    #[arg(long, value_name = "SHARE", default_value_t = 0.002, value_parser = fraction, help_heading = "Allowed")]
    max_outside: f64,

    /// The least cosine of each raw output; without it raw outputs are shown and not judged
    #[arg(long, value_name = "COSINE", value_parser = fraction, help_heading = "Allowed")]
    min_cosine: Option<f64>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Two boxes of a class are of one thing from an IoU of 0.5 on, matched best score first.
What to allow: FP32 the defaults; FP16 --min-iou 0.95 --max-score-difference 0.05
--max-outside 0.01; INT8 what your use bears, often --min-iou 0.8
--max-score-difference 0.15 --max-outside 0.05. Use pictures of the place that the
network will look at: some hundred tell enough.

Examples:
  visiond verify yolo11n.onnx yolo11n-fp16.engine --images pictures
  visiond verify a.onnx a.onnx --backend-a onnxruntime --backend-b rten --video street.mp4
  visiond verify --json a.onnx b.engine --images pictures | jq .agree";

/// Compares.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let files = files(&args)?;
    let models = model::load([(&args.first, args.backend_a), (&args.second, args.backend_b)], args.card.as_deref())?;
    let of_card = || (f64::from(models[0].card.score_threshold) * 1e6).round() / 1e6;
    let threshold = args.score_threshold.unwrap_or_else(of_card);
    // A thing at the threshold of one may score less in the other, and still be worth a pair.
    let floor = (threshold - 2.0 * args.max_score_difference).max(LEAST_SCORE).min(threshold);
    let pair = compare::Limits { min_iou: args.min_iou, max_score_difference: args.max_score_difference };
    let agreement = Agreement::within(threshold as f32, pair);
    let mut comparison = Comparison::new(&models, agreement, floor)?;

    let stop =
        Stop::new().map_err(|error| ExitError::new(Exit::Failure, format!("cannot make an eventfd: {error}")))?;
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
        // The reader may be waiting for a frame, or for this side to take one.
        stop.raise();
        drop(items);
        result
    })?;
    clear_live_line();

    if comparison.pictures.is_empty() {
        return Err(ExitError::new(Exit::Input, "no picture could be looked at, so nothing was compared"));
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
    if report.things() == 0 && report.agree {
        let message = format!(
            "neither network sees anything that scores {threshold} or more on these pictures, so that agreement is not shown: use \
             pictures of what it is for, or a lower --score-threshold"
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(if report.agree { comparison.exit } else { Exit::Differs })
}

/// Every picture and video, in order.
fn files(args: &Args) -> Result<Vec<PathBuf>, ExitError> {
    let mut files = Vec::new();
    for folder in &args.images {
        let name = folder.display();
        let found = pictures_in(folder)
            .map_err(|error| ExitError::new(Exit::Input, format!("cannot read pictures from {name}: {error}")))?;
        if found.is_empty() {
            return Err(ExitError::new(Exit::Input, format!("the folder {name} has no picture in it")));
        }
        files.extend(found);
    }
    files.extend(args.video.iter().cloned());
    Ok(files)
}
