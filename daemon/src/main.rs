//! visiond: a camera goes in, detections come out.

mod annotate;
mod capture;
mod cli;
mod config;
mod exit;
mod logging;
mod pipeline;
mod publish;
mod systemd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
