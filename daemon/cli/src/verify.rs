//! `visiond verify`: compares two builds of a model on the same pictures, or a model with another program's detections.
//!
//! Two builds run on the same pictures in turn, with the CPU's preprocess. The command accumulates the differences of their raw
//! outputs and detections. A reference is a file of detections to compare the model's with. The exit status says whether the
//! differences are within the limits.

mod comparison;
mod reference;
mod reference_comparison;
mod report;
mod track_comparison;

use std::path::{Path, PathBuf};

use visiond_capture::Buffers;
use visiond_config::parse_word;
use visiond_config::types::BackendChoice;
use visiond_engine::compare::{Agreement, MatchLimits, ValueLimits};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::clear_live_line;

use crate::load_limits::LoadLimits;
use crate::media_decoder::{VideoArgs, decode, images_of};
use crate::mot_file::MotFile;
use crate::output::print_report;
use comparison::Comparison;
use reference::{CategoryIds, Reference};
use reference_comparison::ReferenceComparison;
use report::{AgreementLimits, ComparisonReport, ReferenceReport};

/// Minimum score of compared detections, because lower scores are noise.
const LEAST_SCORE: f64 = 0.01;

/// Limits on score differences: between two builds, and between a model and a reference.
const SCORE_DIFFERENCES: [f64; 2] = [0.02, 0.01];

/// The minimum cosine similarity of two builds' embeddings, without `--min-cosine`.
const EMBEDDING_COSINE: f64 = 0.99;

/// Stricter limits: a reference's report also has the share of detections within them.
const NEARLY_EQUAL: [f64; 2] = [0.99, 0.005];

/// Compare two builds of a model, or a model with another program's detections
///
/// With two models, each may be an ONNX file or a TensorRT engine. Compare an engine with its ONNX file to see the accuracy
/// lost to FP16 or INT8.
///
/// With --reference, compare the model's detections in pictures with those of another program, such as the training
/// framework.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
pub struct Args {
    /// First model, usually the ONNX file
    #[arg(value_name = "MODEL")]
    first: PathBuf,

    /// Second model; with --reference pictures, or folders of them
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,

    /// Compare with the detections in FILE: COCO results, messages of visiond, or scores of classes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["video", "backend_b"])]
    reference: Option<PathBuf>,

    /// Interpret the category ids of COCO results like this
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CategoryIds::Auto, requires = "reference")]
    category_ids: CategoryIds,

    /// Compare on the pictures in DIR (repeatable)
    #[arg(long, value_name = "DIR", required_unless_present_any = ["video", "reference"])]
    images: Vec<PathBuf>,

    /// Compare on the frames of a video (repeatable)
    #[arg(long, value_name = "FILE")]
    video: Vec<PathBuf>,

    /// Write the second model's tracks in the one video to FILE, as MOTChallenge results
    #[arg(long, value_name = "FILE", requires = "video")]
    mot: Option<PathBuf>,

    #[command(flatten)]
    frames: VideoArgs,

    /// Use this model card [default: each model's own, or the only one of the two]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Run the first model, if it is .onnx, with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_a: BackendChoice,

    /// Run the second model, if it is .onnx, with this backend: auto, onnxruntime or rten
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend_b: BackendChoice,

    #[command(flatten)]
    limits: AgreementLimits,

    #[command(flatten)]
    trial: LoadLimits,

    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

const USAGE: &str = "visiond verify [OPTIONS] <MODEL> <MODEL> <--images <DIR>|--video <FILE>>
       visiond verify [OPTIONS] --reference <FILE> <MODEL> <PICTURE>...";

const AFTER_HELP: &str = "\
Boxes of the same class match from an IoU of 0.5 on, best score first. Scores of attributes may differ by \
--max-score-difference, numbers and depths by the same part of themselves, and embeddings need a cosine of --min-cosine, \
0.99 by default. Use some hundred pictures of the scene where \
the model will run. Take the limits for INT8 only if your application allows them.

A reference is a JSON array, or has one object a line. docs/models.md shows how to write one with Ultralytics, YOLOX and \
torchvision. A detection on one side only does not count if its score is less than --max-score-difference above the \
threshold.

Entries of a reference:
  {\"image_id\": \"a.jpg\", \"category_id\": 0, \"bbox\": [X, Y, WIDTH, HEIGHT],
   \"score\": 0.9}                            and \"keypoints\": [X, Y, SCORE, ...]
  a line of visiond detect --json
  {\"image\": \"a.jpg\", \"scores\": [0.1, 0.9]}   of a classifier, by class or label

Suggested limits for two models:
  FP32  the defaults
  FP16  --min-iou 0.95 --max-score-difference 0.05 --max-outside 0.01
  INT8  --min-iou 0.8 --max-score-difference 0.15 --max-outside 0.05

Examples:
  visiond verify yolo11n.onnx yolo11n-fp16.engine --images pictures
  visiond verify a.onnx a.onnx --backend-b rten --video street.mp4
  visiond verify --json a.onnx b.engine --images pictures | jq .agree
  visiond verify --reference predictions.json yolo11n.onnx pictures";

/// Compares and prints the report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let mut files = Vec::new();
    for folder in &args.images {
        files.extend(images_of(folder)?);
    }
    match &args.reference {
        Some(reference) => run_reference(&args, reference, files),
        None => run_models(&args, files),
    }
}

/// Compares two models.
fn run_models(args: &Args, mut files: Vec<PathBuf>) -> Result<Exit, ExitError> {
    let [second] = &args.others[..] else {
        let message = "two models are compared: name two, or a reference with --reference";
        return Err(ExitError::new(Exit::Usage, message));
    };
    files.extend(args.video.iter().cloned());
    let mot = args.mot.as_deref().map(|path| MotFile::create(path, &files)).transpose()?;
    let named = [(&*args.first, args.backend_a), (&**second, args.backend_b)];
    let models = comparison::load_both(named, args.card.as_deref(), &args.trial)?;
    let (limits, matching, floor) = limits(args, SCORE_DIFFERENCES[0], models[0].card.score_threshold);
    let threshold = limits.score_threshold.unwrap_or_default();
    let values = ValueLimits {
        score_threshold: threshold,
        max_difference: limits.max_score_difference.unwrap_or_default(),
        min_cosine: limits.min_cosine.unwrap_or(EMBEDDING_COSINE),
    };
    let agreement = Agreement::within(threshold as f32, matching);
    let mut comparison = Comparison::new(&models, agreement, values, floor, mot)?;

    let buffers = Buffers::new(&args.frames.buffers(), None).map_err(|error| ExitError::new(Exit::Failure, error))?;
    decode(&files, &args.frames, &buffers, |items| comparison.run(items))?;
    clear_live_line();
    check_images(&comparison.pictures)?;

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

/// Compares a model with a reference.
fn run_reference(args: &Args, reference: &Path, mut files: Vec<PathBuf>) -> Result<Exit, ExitError> {
    for path in &args.others {
        if path.is_dir() { files.extend(images_of(path)?) } else { files.push(path.clone()) }
    }
    if files.is_empty() {
        let message = "no picture is given: name those that the reference was made from, or their folder";
        return Err(ExitError::new(Exit::Usage, message));
    }
    let model = comparison::load(&args.first, args.backend_a, args.card.as_deref(), &args.trial)?;
    let family = model.card.head.family();
    if family.gives_values() {
        let message = format!(
            "a model of family `{}` has no detections to compare with a reference: compare it with another build, \
             `visiond verify {} OTHER --images DIR`",
            family.name(),
            args.first.display()
        );
        return Err(ExitError::new(Exit::Usage, message));
    }
    let (limits, matching, floor) = limits(args, SCORE_DIFFERENCES[1], model.card.score_threshold);
    let reference = Reference::read(reference, &files, &model.card.classes, args.category_ids)?;
    let [min_iou, max_score_difference] = NEARLY_EQUAL;
    let nearly_equal = MatchLimits { min_iou, max_score_difference, ..matching };
    let threshold = limits.score_threshold.unwrap_or_default();
    let mut comparison = ReferenceComparison::new(&model, reference, [matching, nearly_equal], threshold, floor)?;

    decode(&files, &args.frames, &Buffers::default(), |items| comparison.run(items))?;
    clear_live_line();
    check_images(&comparison.pictures)?;

    let report = ReferenceReport::new(&comparison, limits);
    print_report(args.json, &report, ReferenceReport::text)?;
    if report.shows_nothing {
        let message = format!(
            "neither visiond nor the reference has a score of {threshold} or more on these pictures, so agreement is not \
             shown: use pictures with objects that the model knows, or a lower --score-threshold"
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(if report.agree { comparison.exit } else { Exit::Differs })
}

/// Returns the limits with their defaults, those of matching detections, and the minimum score to request from the models.
fn limits(args: &Args, score_difference: f64, of_card: f32) -> (AgreementLimits, MatchLimits, f64) {
    let threshold = args.limits.score_threshold.unwrap_or((f64::from(of_card) * 1e6).round() / 1e6);
    let max_score_difference = args.limits.max_score_difference.unwrap_or(score_difference);
    let limits = AgreementLimits {
        score_threshold: Some(threshold),
        max_score_difference: Some(max_score_difference),
        ..args.limits
    };
    // Both models report lower scores on request; a reference may have been made with the threshold.
    let unmatched_margin = if args.reference.is_some() { max_score_difference } else { 0.0 };
    let matching = MatchLimits {
        min_iou: limits.min_iou,
        min_oks: limits.min_oks.unwrap_or_default(),
        max_score_difference,
        unmatched_margin,
        ..MatchLimits::default()
    };
    // A detection at the threshold on one side may score less on the other and still match.
    let floor = (threshold - 2.0 * max_score_difference).max(LEAST_SCORE).min(threshold);
    (limits, matching, floor)
}

/// Rejects a comparison without pictures.
fn check_images(pictures: &[String]) -> Result<(), ExitError> {
    if pictures.is_empty() {
        let message = "no picture could be read, so nothing was compared; see the errors above";
        return Err(ExitError::new(Exit::Input, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
