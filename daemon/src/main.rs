//! visiond: a camera goes in, detections come out.

mod annotate;
mod cache;
mod capture;
mod cli;
mod config;
mod credentials;
mod exit;
mod live;
mod logging;
mod observe;
mod pipeline;
mod priority;
mod publish;
mod service;
mod signals;
mod systemd;
#[cfg(test)]
mod testing;
mod thermal;
mod unix_socket;
mod web;

use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: the first statements of `main`: no other thread has been started.
    unsafe {
        visiond_engine::onnx::silence_telemetry();
        cache::keep_kernels();
    }
    cli::main()
}
