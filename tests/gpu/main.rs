//! visiond-gpu: checks and figures on a machine with an NVIDIA GPU, one command per row of `tests/gpu/run`'s table.
//!
//! Every command prints JSON lines, one per figure (see [`report`]). Exit status: 0 if all passed, 1 if one did not or could not be
//! measured, 77 without a GPU (one line on standard error says why).
//!
//! A row is one module with `pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure>`.

#![allow(clippy::expect_used, reason = "a check ends at the first thing that is not as arranged")]

mod abi;
mod bare;
mod boxes;
mod camera;
mod copies;
mod crops;
mod cuda;
mod device;
mod exports;
mod filter;
mod flights;
mod masks;
mod measure;
mod memory;
mod network;
mod overhead;
mod pixels;
mod preprocess;
mod priority;
mod report;
mod selftest;
mod setup;
mod start;
mod table;
mod throughput;
mod video;
mod wrong_engine;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use visiond_system::priority::wake_on_time;

use crate::report::{Failure, Report};
use crate::setup::{Arguments, Setup};

/// Exit status without a GPU: test runners take it for "skipped".
const NO_GPU: u8 = 77;

#[derive(Parser)]
#[command(name = "visiond-gpu", about = "Checks and figures on a machine with an NVIDIA GPU")]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    #[command(subcommand)]
    row: RowCommand,
}

/// The rows.
#[derive(Subcommand, Clone)]
enum RowCommand {
    /// Measure how fast the GPU copies
    Device,
    /// Run `visiond selftest`: the GPU, each kind of memory, TensorRT
    Selftest,
    /// Check the CUDA layer: events, graphs, modules, errors
    Cuda {
        /// Run only the part that loses the GPU
        #[arg(long, hide = true)]
        fault: bool,
    },
    /// Check which bytes the daemon copies, in each kind of memory
    Copies,
    /// Compare the engine's boxes with the CPU's
    Boxes,
    /// Compare the candidate filter with the heads on the CPU, and measure it and suppression
    Filter,
    /// Compare the masks of objects on the GPU with the CPU's, and measure them
    Masks,
    /// Compare TensorRT's detections with the CPU's, for other projects' exports
    Exports,
    /// Check runs that overlap, and frames that are overwritten after they begin
    Flights,
    /// Compare 32 frames at once with the copy bandwidth and CV-CUDA
    Preprocess(preprocess::Peers),
    /// Compare the CUDA preprocess with the CPU reference
    Pixels,
    /// Decode streams on the GPU's video engine, and compare each frame with ffmpeg's
    Video(video::Streams),
    /// Compare the pipeline's time and CPU time per frame with the bare engine
    Overhead,
    /// Compare a model on 20 detections of a frame with the bare engine
    Crops,
    /// Measure a model of high priority beside one that keeps the GPU busy
    Priority,
    /// Compare frames per second with the bare engine
    Throughput,
    /// Measure memory in addition to the engine's own, and growth; check that frames are in the faster kind
    Memory,
    /// Run one half of `memory` in a separate process
    #[command(hide = true)]
    MemoryOf {
        /// `engine` or `pipeline`.
        what: String,
    },
    /// Measure from engine file to first detection, and what measuring the kinds of memory adds
    Start,
    /// Run one start in a separate process
    #[command(hide = true)]
    StartOf {
        /// `bare`, `pipeline` or `choice`.
        what: String,
    },
    /// Check TensorRT's objects: the engine, and other libraries
    Abi(abi::Libraries),
    /// Give visiond files that are not engines for this machine
    WrongEngine,
    /// Print the figures in a file of JSON lines as a table; exit with 1 if one failed
    Table {
        /// The file.
        figures: PathBuf,
    },
}

fn main() -> ExitCode {
    // SAFETY: the first statement of `main`: no other thread has been started.
    unsafe { visiond_engine::onnx::silence_telemetry() };
    let cli = Cli::parse();
    let mut report = Report::default();
    let setup = Setup::new(cli.arguments);
    let outcome = match cli.row {
        RowCommand::Device => device::run(&setup, &mut report),
        RowCommand::Selftest => selftest::run(&setup, &mut report),
        RowCommand::Cuda { fault } => cuda::run(&setup, &mut report, fault),
        RowCommand::Copies => copies::run(&setup, &mut report),
        RowCommand::Boxes => boxes::run(&setup, &mut report),
        RowCommand::Exports => exports::run(&setup, &mut report),
        RowCommand::Flights => flights::run(&setup, &mut report),
        RowCommand::Filter => filter::run(&setup, &mut report),
        RowCommand::Masks => masks::run(&setup, &mut report),
        RowCommand::Preprocess(peers) => preprocess::run(&setup, &peers, &mut report),
        RowCommand::Pixels => pixels::run(&setup, &mut report),
        RowCommand::Video(streams) => video::run(&setup, &streams, &mut report),
        RowCommand::Overhead => {
            wake_on_time();
            overhead::run(&setup, &mut report)
        }
        RowCommand::Crops => {
            wake_on_time();
            crops::run(&setup, &mut report)
        }
        RowCommand::Priority => {
            wake_on_time();
            priority::run(&setup, &mut report)
        }
        RowCommand::Throughput => {
            wake_on_time();
            throughput::run(&setup, &mut report)
        }
        RowCommand::Memory => memory::run(&setup, &mut report),
        RowCommand::MemoryOf { what } => memory::measure(&setup, &what),
        RowCommand::Start => start::run(&setup, &mut report),
        RowCommand::StartOf { what } => start::measure(&setup, &what),
        RowCommand::Abi(libraries) => abi::run(&setup, &libraries, &mut report),
        RowCommand::WrongEngine => wrong_engine::run(&setup, &mut report),
        RowCommand::Table { figures } => table::print(&figures).map(|passed| report.require(passed)),
    };
    match outcome {
        Ok(()) if report.all_passed() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(Failure::NoGpu(why)) => {
            eprintln!("visiond-gpu: no GPU here: {why}");
            ExitCode::from(NO_GPU)
        }
        Err(Failure::Broken(why)) => {
            eprintln!("visiond-gpu: {why}");
            ExitCode::FAILURE
        }
    }
}
