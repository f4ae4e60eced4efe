//! `visiond check`: every error of a configuration at once.

use std::path::PathBuf;

use super::{CliError, complain, config_path};
use crate::config::types::Config;
use crate::exit::Exit;

/// Check configurations: every error at once, with file, line and column
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configurations; without any /etc/visiond/visiond.toml, else visiond.toml in this folder
    #[arg(value_name = "CONFIG")]
    configs: Vec<PathBuf>,
}

/// Checks every file.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let configs = if args.configs.is_empty() { vec![config_path(None)?] } else { args.configs };
    let mut exit = Exit::Success;
    for path in configs {
        if let Err(errors) = Config::load(&path) {
            complain(&errors.to_string());
            exit = Exit::Config;
        }
    }
    Ok(exit)
}
