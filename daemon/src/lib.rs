//! visiond: a camera goes in, detections come out.

mod annotate;
mod board;
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

/// Does what the command line says; its exit status.
///
/// # Safety
/// No other thread has been started: it sets variables of the environment.
pub unsafe fn main() -> ExitCode {
    // SAFETY: the caller's promise.
    unsafe {
        visiond_engine::onnx::silence_telemetry();
        cache::keep_kernels();
    }
    cli::main()
}
