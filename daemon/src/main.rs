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
    // SAFETY: the first statement of `main`: no other thread has been started.
    unsafe { visiond_engine::onnx::silence_telemetry() };
    cli::main()
}
