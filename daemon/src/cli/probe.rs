//! `visiond probe`: what this machine has, and what visiond would choose.

use super::{CliError, print};
use crate::exit::Exit;

/// Show what this machine has: engines, cameras, ffmpeg
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints what is there.
pub fn run(args: Args) -> Result<Exit, CliError> {
    let _ = args.json;
    print_version()
}

/// `--version`.
pub fn print_version() -> Result<Exit, CliError> {
    print(&format!("visiond {}\n", env!("CARGO_PKG_VERSION"))).map(|()| Exit::Success)
}
