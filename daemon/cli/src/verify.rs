//! `visiond verify`: compares two builds of a model on the same pictures.
//!
//! Both run on the same pictures, one after the other, with the CPU's preprocess. The command accumulates the differences of
//! their raw outputs and detections; the exit status says whether they are within the limits.

mod comparison;
mod report;

use std::path::PathBuf;

use visiond_capture::Buffers;
use visiond_config::parse_word;
use visiond_config::types::BackendChoice;
use visiond_engine::compare::{self, Agreement};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;

use crate::load_limits::LoadLimits;
use crate::media_decoder::{VideoArgs, decode, pictures_of};
use crate::output::print_report;
use comparison::Comparison;
use report::{AgreementLimits, ComparisonReport};

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

    #[command(flatten)]
    frames: VideoArgs,

    /// Use this model card for both models [default: each model's own, or the only one of the two]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Run an .onnx reference with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_a: BackendChoice,

    /// Run an .onnx model to compare with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_b: BackendChoice,

    #[command(flatten)]
    limits: AgreementLimits,

    #[command(flatten)]
    trial: LoadLimits,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Boxes of the same class match from an IoU of 0.5 on, best score first. Use some hundred pictures of the scene where \
the model will run. Take the limits for INT8 only if your application allows them.

Suggested limits:
  FP32  the defaults
  FP16  --min-iou 0.95 --max-score-difference 0.05 --max-outside 0.01
  INT8  --min-iou 0.8 --max-score-difference 0.15 --max-outside 0.05

Examples:
  visiond verify yolo11n.onnx yolo11n-fp16.engine --images pictures
  visiond verify a.onnx a.onnx --backend-b rten --video street.mp4
  visiond verify --json a.onnx b.engine --images pictures | jq .agree";

/// Compares the models and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let mut files = Vec::new();
    for folder in &args.images {
        files.extend(pictures_of(folder)?);
    }
    files.extend(args.video.iter().cloned());
    let named = [(&*args.first, args.backend_a), (&*args.second, args.backend_b)];
    let models = comparison::load(named, args.card.as_deref(), &args.trial)?;
    let of_card = || (f64::from(models[0].card.score_threshold) * 1e6).round() / 1e6;
    let threshold = args.limits.score_threshold.unwrap_or_else(of_card);
    let limits = AgreementLimits { score_threshold: Some(threshold), ..args.limits };
    let AgreementLimits { min_iou, max_score_difference, .. } = limits;
    // A detection at the threshold of one model may score less in the other, and still match.
    let floor = (threshold - 2.0 * max_score_difference).max(LEAST_SCORE).min(threshold);
    let agreement = Agreement::within(threshold as f32, compare::MatchLimits { min_iou, max_score_difference });
    let mut comparison = Comparison::new(&models, agreement, floor)?;

    decode(&files, &args.frames, &Buffers::default(), |items| comparison.run(items))?;
    clear_live_line();

    if comparison.pictures.is_empty() {
        return Err(ExitError::new(
            Exit::Input,
            "no picture could be read, so nothing was compared; see the errors above",
        ));
    }
    let report = ComparisonReport::new(&comparison, limits);
    print_report(args.json, &report, ComparisonReport::text)?;
    if report.shows_nothing {
        let message = format!(
            "neither model detects anything with a score of {threshold} or more on these pictures, so agreement is \
             not shown: use pictures with objects that the model knows, or a lower --score-threshold"
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(if report.agree { comparison.exit } else { Exit::Differs })
}
