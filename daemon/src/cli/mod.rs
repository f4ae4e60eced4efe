//! The command line: one file a command.

use std::process::ExitCode;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    crate::exit::Exit::Success.into()
}
