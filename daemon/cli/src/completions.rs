//! `visiond completions`: prints a shell's completion script.

use clap_complete::Shell;
use visiond_system::exit::{Exit, ExitError};

use crate::output::print_bytes;

/// Print a completion script for your shell
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Shell to print the script for
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  visiond completions bash > /etc/bash_completion.d/visiond
  visiond completions zsh > \"${fpath[1]}/_visiond\"
  visiond completions fish > ~/.config/fish/completions/visiond.fish";

/// Prints the script.
pub fn run(args: Args, mut command: clap::Command) -> Result<Exit, ExitError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "visiond", &mut script);
    print_bytes(&script).map(|()| Exit::Success)
}
