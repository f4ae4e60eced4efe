//! Row "Start": from the engine's file to the first detection, compared with TensorRT's own deserialisation, context and first run.
//!
//! Then the time that `buffers.memory = "auto"` adds, which measures the kinds of memory once per process.
//!
//! Every repetition is a separate process, the two kinds in turn, with the file in the page cache. The GPU is opened and the library
//! loaded before the clock starts, because both sides need that.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use visiond_engine::tensorrt::Library;
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{Memory, MemoryKind};

use crate::bare::first_run;
use crate::camera::Camera;
use crate::measure::Samples;
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Start";
const REPETITIONS: usize = 7;
/// Relative to TensorRT's own time.
const BOUND: f64 = 1.5;
/// The allowed share of a start for choosing the memory of frames.
const CHOICE_BOUND_MS: f64 = 20.0;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    setup.device()?;
    // The first run of each fills caches: the file's, and the driver's cache of compiled kernels.
    child(setup, "bare")?;
    let first = child(setup, "pipeline")?;
    report.note(ROW, "the very first, kernels compiled by the driver", format!("{first:.0} ms"));
    let (mut ours, mut bare, mut choice) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        bare.push(child(setup, "bare")?);
        ours.push(child(setup, "pipeline")?);
        choice.push(child(setup, "choice")?);
    }
    let (ours, bare, choice) = (Samples::new(ours), Samples::new(bare), Samples::new(choice));
    let times = ours.median() / bare.median();
    report.figure(
        ROW,
        "engine file to first detection",
        format!("<= {BOUND} times TensorRT's own"),
        format!("{times:.2} times: {:.1} ms, TensorRT's own {:.1} ms", ours.median(), bare.median()),
        times <= BOUND,
    );
    report.figure(
        ROW,
        "memory auto, measured at start",
        format!("<= {CHOICE_BOUND_MS:.0} ms more"),
        format!("{:.1} ms more; {REPETITIONS} starts: {:.1} to {:.1}", choice.median(), choice.best(), choice.at(1.0)),
        choice.median() <= CHOICE_BOUND_MS,
    );
    Ok(())
}

/// Runs this program again for one half and returns milliseconds.
fn child(setup: &Setup, what: &str) -> Result<f64, Failure> {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")));
    command.arg("start-of").arg(what);
    setup.pass_on(&mut command);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line =
        text.lines().find(|line| line.starts_with('{')).and_then(|line| serde_json::from_str::<Value>(line).ok());
    line.and_then(|line| line["ms"].as_f64()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure::Broken(format!("a start ended with {}: {}", output.status, said.lines().last().unwrap_or_default()))
    })
}

/// Runs in the child process.
pub fn measure(setup: &Setup, what: &str) -> Result<(), Failure> {
    let device = setup.device()?;
    let library = Library::get(None)?;
    let path = setup.engine()?;
    let milliseconds = match what {
        "bare" => {
            let began = Instant::now();
            first_run(&device, library, path)?;
            began.elapsed()
        }
        // As in the daemon: the model is loaded already, and with it the kernels.
        "choice" => {
            let network = Network::load(setup, path)?;
            let _detector = network.detector(0.3)?;
            let began = Instant::now();
            AutoMemory::of(&device);
            began.elapsed()
        }
        _ => {
            let camera = Camera::new(&Memory::on(&device, MemoryKind::Mapped)?)?;
            let mut seen = Vec::new();
            let began = Instant::now();
            let network = Network::load(setup, path)?;
            let mut detector = network.detector(0.3)?;
            let run_id = detector.begin(&[camera.frame(0)?])?;
            detector.finish(run_id)?;
            detector.detections(run_id, 0, &mut seen)?;
            began.elapsed()
        }
    };
    println!("{}", json!({ "ms": milliseconds.as_secs_f64() * 1e3 }));
    Ok(())
}
