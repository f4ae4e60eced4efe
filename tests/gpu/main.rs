//! visiond-gpu: what visiond shows on a machine with an NVIDIA GPU, one command a row of `tests/gpu/run`'s table.
//!
//! Every command prints JSON lines, one a figure (see [`report`]), and ends with 0 when all of them passed, 1 when one did
//! not or could not be taken, 77 when there is no GPU here (one line on standard error says why).
//!
//! A row is one module with `pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure>`.

#![allow(clippy::expect_used, reason = "a check ends at the first thing that is not as arranged")]

mod abi;
mod bare;
mod boxes;
mod camera;
mod copies;
mod cuda;
mod device;
mod filter;
mod flights;
mod measure;
mod memory;
mod network;
mod overhead;
mod pixels;
mod preprocess;
mod report;
mod selftest;
mod setup;
mod start;
mod table;
mod throughput;
mod wrong_engine;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::{Failure, Report};
use crate::setup::{Arguments, Setup};

/// Exit status where there is no GPU: what test runners take for "skipped".
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
    /// How fast the GPU copies.
    Device,
    /// What `visiond selftest` finds: the GPU, each kind of memory, TensorRT.
    Selftest,
    /// The CUDA layer: events, graphs, modules, errors.
    Cuda {
        /// Only the part that loses the GPU.
        #[arg(long, hide = true)]
        fault: bool,
    },
    /// What the daemon copies, in each kind of memory.
    Copies,
    /// The engine's boxes against the CPU's.
    Boxes,
    /// The candidate filter against the heads on the CPU; what it and suppression take.
    Filter,
    /// Runs that overlap, and frames overwritten behind them.
    Flights,
    /// 32 frames at once: against the copy bandwidth and CV-CUDA.
    Preprocess(preprocess::Peers),
    /// The CUDA preprocess against the CPU reference.
    Pixels,
    /// The pipeline's time a frame, and the CPU's, against the bare engine.
    Overhead,
    /// Frames a second against the bare engine.
    Throughput,
    /// Memory beyond the engine's own, and growth; whether frames are in the faster kind.
    Memory,
    /// One half of `memory`, in a process of its own.
    #[command(hide = true)]
    MemoryOf {
        /// `engine` or `pipeline`.
        what: String,
    },
    /// Engine file to first detection against TensorRT's own; what measuring the kinds of memory adds.
    Start,
    /// One start, in a process of its own.
    #[command(hide = true)]
    StartOf {
        /// `bare`, `pipeline` or `choice`.
        what: String,
    },
    /// TensorRT's objects: the engine, and other libraries.
    Abi(abi::Libraries),
    /// Files that are no engine for this machine, each given to visiond.
    WrongEngine,
    /// Prints the figures of a file of JSON lines as a table; ends with 1 where one failed.
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
        RowCommand::Flights => flights::run(&setup, &mut report),
        RowCommand::Filter => filter::run(&setup, &mut report),
        RowCommand::Preprocess(peers) => preprocess::run(&setup, &peers, &mut report),
        RowCommand::Pixels => pixels::run(&setup, &mut report),
        RowCommand::Overhead => overhead::run(&setup, &mut report),
        RowCommand::Throughput => throughput::run(&setup, &mut report),
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
