//! Row "Memory": how much memory the pipeline takes in addition to the engine's own, whether anything grows, and whether
//! `buffers.memory = "auto"` chooses the kind in which whole frames are fastest.
//!
//! The engine alone and the whole pipeline run in separate processes, so that neither sees the allocations of the other. The figure
//! is how much less memory the device has than before the process loaded anything.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{Memory, MemoryKind};

use crate::bare::Bare;
use crate::camera::Camera;
use crate::measure::{Samples, resident_bytes};
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Memory";
/// Frames during which nothing may grow.
const FRAMES: usize = 20_000;
/// Frames after which everything has been allocated.
const WARM: usize = 1000;
const SAMPLES: usize = 20;
const DEVICE_BOUND: f64 = 64.0;
/// Pages by which the allocator and the kernel may differ on their own.
const RESIDENT_SLACK: f64 = 1.0;
/// Blocks of frames in each kind of memory, in turn; the first does not count.
const BLOCKS: usize = 8;
const BLOCK_FRAMES: usize = 50;
/// Relative to the faster kind's time: a smaller difference counts as equal.
const AS_FAST: f64 = 1.05;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    setup.device()?;
    let bare = child(setup, "engine")?;
    let ours = child(setup, "pipeline")?;
    let field = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    let beyond = field(&ours, "device_mib") - field(&bare, "device_mib");
    report.figure(
        ROW,
        "device memory beyond the engine's own",
        format!("<= {DEVICE_BOUND} MiB"),
        format!("{beyond:.1} MiB: {:.1} and {:.1}", field(&ours, "device_mib"), field(&bare, "device_mib")),
        beyond <= DEVICE_BOUND,
    );
    let device = field(&ours, "device_growth_mib");
    let flat = format!("flat over {FRAMES} frames");
    report.figure(ROW, "device memory", &flat, format!("{device:+.1} MiB"), device <= 0.0);
    let resident = field(&ours, "resident_growth_mib");
    report.figure(
        ROW,
        "resident set",
        flat,
        format!("{resident:+.2} MiB, at {:.0} MiB", field(&ours, "resident_mib")),
        resident <= RESIDENT_SLACK,
    );
    choice(setup, report)
}

/// Measures whole frames, each written by the CPU first, in every kind of memory that can be chosen.
fn choice(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let network = Network::load(setup, setup.engine()?)?;
    let mut detector = network.detector(0.3)?;
    let auto = AutoMemory::of(&device);
    let mut cameras = Vec::new();
    for kind in [MemoryKind::Mapped, MemoryKind::Managed] {
        if let Ok(memory) = Memory::on(&device, kind) {
            cameras.push((kind, Camera::new(&memory)?, Vec::new()));
        }
    }
    let mut seen = Vec::new();
    for block in 0..BLOCKS {
        for (_, camera, times) in &mut cameras {
            for number in 0..BLOCK_FRAMES {
                let began = Instant::now();
                camera.write(number);
                let run_id = detector.begin(&[camera.frame(number)?])?;
                detector.finish(run_id)?;
                detector.detections(run_id, 0, &mut seen)?;
                if block > 0 {
                    times.push(began.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    let medians: Vec<_> = cameras.into_iter().map(|(kind, _, times)| (kind, Samples::new(times).median())).collect();
    let of = |wanted| medians.iter().find(|(kind, _)| *kind == wanted).map_or(f64::NAN, |(_, median)| *median);
    let best = medians.iter().map(|(_, median)| *median).fold(f64::INFINITY, f64::min);
    let text: Vec<_> = medians.iter().map(|(kind, median)| format!("{kind} {median:.0} us")).collect();
    report.figure(
        ROW,
        "kind that auto chooses, frames written and looked at",
        format!("the faster one, or within {:.0} % of it", (AS_FAST - 1.0) * 100.0),
        format!("{}; a whole frame takes in {}", auto.kind(), text.join(", in ")),
        of(auto.kind()) <= AS_FAST * best,
    );
    let why = auto.why().unwrap_or_else(|| "nothing to compare".to_owned());
    report.note(ROW, "what it was chosen by", format!("{}: {why}", auto.kind()));
    Ok(())
}

/// Runs this program again for one half and returns its figures.
fn child(setup: &Setup, what: &str) -> Result<Value, Failure> {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")));
    command.arg("memory-of").arg(what);
    setup.pass_on(&mut command);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with('{'));
    let line = line
        .ok_or_else(|| Failure::Broken(format!("the process for the {what} ended with {}: {last}", output.status)))?;
    Ok(serde_json::from_str(line)?)
}

/// Runs in the child process.
pub fn measure(setup: &Setup, what: &str) -> Result<(), Failure> {
    let device = setup.device()?;
    // The context exists already, so the memory that is free now can be taken.
    let before = device.memory_free_bytes()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let network = Network::load(setup, setup.engine()?)?;
    let taken = |now: u64| mib(before) - mib(now);
    if what == "engine" {
        let mut bare = Bare::new(&device, &network.engine)?;
        for _ in 0..WARM {
            bare.launch(0)?;
            bare.wait(0)?;
        }
        println!("{}", json!({ "device_mib": taken(device.memory_free_bytes()?) }));
        return Ok(());
    }
    let mut detector = network.detector(0.3)?;
    let camera = Camera::new(&Memory::on(&device, MemoryKind::Mapped)?)?;
    let mut seen = Vec::new();
    let mut look = |number: usize| -> Result<(), Failure> {
        let run_id = detector.begin(&[camera.frame(number)?])?;
        detector.finish(run_id)?;
        Ok(detector.detections(run_id, 0, &mut seen)?)
    };
    (0..WARM).try_for_each(&mut look)?;
    let (device_then, resident_then) = (device.memory_free_bytes()?, resident_bytes());
    let mut resident_most = resident_then;
    let mut device_least = device_then;
    for _ in 0..SAMPLES {
        (0..FRAMES / SAMPLES).try_for_each(&mut look)?;
        resident_most = resident_most.max(resident_bytes());
        device_least = device_least.min(device.memory_free_bytes()?);
    }
    println!(
        "{}",
        json!({
            "device_mib": taken(device_then),
            "device_growth_mib": mib(device_then) - mib(device_least),
            "resident_mib": mib(resident_most),
            "resident_growth_mib": mib(resident_most) - mib(resident_then),
        })
    );
    Ok(())
}
