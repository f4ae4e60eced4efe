//! Row "Overhead": one 1080p camera through NanoDet, from the full capture buffer to the detections on the CPU, against the
//! engine's bare run in a graph.
//!
//! Both are waited for in the same way, asleep, and take turns in blocks, so that other load on the machine affects both. CPU time
//! is the whole process's, including the driver's threads.

use std::time::{Duration, Instant};

use visiond_engine::detector::Detector;
use visiond_kernels::buffer::{Memory, MemoryKind};

use crate::bare::Bare;
use crate::camera::Camera;
use crate::device::bus_copy_us;
use crate::measure::{Samples, cpu_time, thread_cpu_time};
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Overhead";
/// The machine may be shared, so only the best round is judged; all are reported.
const ROUNDS: usize = 3;
const BLOCKS: usize = 15;
const RUNS: usize = 100;
/// Relative to the bare engine's time.
const BOUND: f64 = 1.15;
const CPU_BOUND_US: f64 = 100.0;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let network = Network::load(setup, setup.engine()?)?;
    let mut detector = network.detector(0.3)?;
    let mut bare = Bare::new(&device, &network.engine)?;
    let mut bus_us = 0.0;
    for kind in [MemoryKind::Managed, MemoryKind::Mapped] {
        let camera = Camera::new(&Memory::on(&device, kind)?)?;
        if kind == MemoryKind::Mapped {
            bus_us = bus_copy_us(&device, camera.frame_bytes())?;
            report.note(ROW, "a frame's bytes over the bus", format!("{bus_us:.0} us"));
        }
        // Managed frames move to the GPU here and stay there, because the CPU does not touch them again.
        let mut times = Times::default();
        times.ours(&mut detector, &camera)?;
        times.bare(&mut bare)?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut times = Times::default();
            for _ in 0..BLOCKS {
                times.ours(&mut detector, &camera)?;
                times.bare(&mut bare)?;
            }
            rounds.push(Round::new(times));
        }
        let best = rounds.iter().min_by(|a, b| a.times().total_cmp(&b.times())).expect("there were rounds");
        let all: Vec<String> = rounds.iter().map(|round| format!("{:.2}", round.times())).collect();
        let bound = BOUND * best.theirs.median() + bus_us;
        let copied = if bus_us > 0.0 { ", and one copy over the bus" } else { "" };
        report.figure(
            ROW,
            &format!("frames in {kind} memory"),
            format!("<= {BOUND} times the bare engine{copied}: {bound:.0} us"),
            format!(
                "{:.0} us (p99 {:.0}), bare {:.0} us (p99 {:.0}): {:.2} times; {ROUNDS} rounds: {}",
                best.ours.median(),
                best.ours.at(0.99),
                best.theirs.median(),
                best.theirs.at(0.99),
                best.times(),
                all.join(", ")
            ),
            best.ours.median() <= bound,
        );
        let per_frame = rounds.iter().map(|round| round.cpu_us).fold(f64::INFINITY, f64::min);
        let all: Vec<String> = rounds.iter().map(|round| format!("{:.0}", round.cpu_us)).collect();
        report.figure(
            ROW,
            &format!("CPU time, frames in {kind} memory"),
            format!("<= {CPU_BOUND_US} us a frame"),
            format!("{per_frame:.0} us; {ROUNDS} rounds: {}", all.join(", ")),
            per_frame <= CPU_BOUND_US,
        );
        let alone = rounds.iter().map(|round| round.bare_cpu_us).fold(f64::INFINITY, f64::min);
        report.note(ROW, "CPU time of the bare engine", format!("{alone:.0} us a run"));
        let steps = steps(&mut detector, &camera)?;
        report.note(ROW, &format!("CPU time by step, {kind}"), steps);
        let paced = paced_cpu(&mut detector, &camera)?;
        report.note(ROW, &format!("CPU time at 60 frames/s, {kind}"), paced);
    }
    Ok(())
}

/// Microseconds of each run.
#[derive(Default)]
struct Times {
    ours: Vec<f64>,
    bare: Vec<f64>,
    cpu: Duration,
    bare_cpu: Duration,
}

/// The figures of a round.
struct Round {
    ours: Samples,
    theirs: Samples,
    cpu_us: f64,
    bare_cpu_us: f64,
}

impl Round {
    fn new(times: Times) -> Self {
        let each = |cpu: Duration, runs: usize| cpu.as_secs_f64() * 1e6 / runs as f64;
        Self {
            cpu_us: each(times.cpu, times.ours.len()),
            bare_cpu_us: each(times.bare_cpu, times.bare.len()),
            ours: Samples::new(times.ours),
            theirs: Samples::new(times.bare),
        }
    }

    /// Returns our time divided by the bare engine's, by their medians.
    fn times(&self) -> f64 {
        self.ours.median() / self.theirs.median()
    }
}

impl Times {
    fn ours(&mut self, detector: &mut Detector, camera: &Camera) -> Result<(), Failure> {
        let cpu = cpu_time();
        let mut seen = Vec::new();
        for number in 0..RUNS {
            let frame = camera.frame(number)?;
            let began = Instant::now();
            let run_id = detector.begin(&[frame])?;
            detector.finish(run_id)?;
            detector.detections(run_id, 0, &mut seen)?;
            self.ours.push(began.elapsed().as_secs_f64() * 1e6);
        }
        self.cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }

    fn bare(&mut self, bare: &mut Bare) -> Result<(), Failure> {
        let cpu = cpu_time();
        for _ in 0..RUNS {
            let began = Instant::now();
            bare.launch(0)?;
            bare.wait(0)?;
            self.bare.push(began.elapsed().as_secs_f64() * 1e6);
        }
        self.bare_cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }
}

/// This thread's CPU time in each call for a frame, and the other threads' CPU time.
fn steps(detector: &mut Detector, camera: &Camera) -> Result<String, Failure> {
    let mut seen = Vec::new();
    let mut spent = [Duration::ZERO; 3];
    let (all, own) = (cpu_time(), thread_cpu_time());
    for number in 0..RUNS * 5 {
        let frame = camera.frame(number)?;
        let start = thread_cpu_time();
        let run_id = detector.begin(&[frame])?;
        let begun = thread_cpu_time();
        detector.finish(run_id)?;
        let finished = thread_cpu_time();
        detector.detections(run_id, 0, &mut seen)?;
        let steps = [begun - start, finished - begun, thread_cpu_time().saturating_sub(finished)];
        spent.iter_mut().zip(steps).for_each(|(spent, step)| *spent += step);
    }
    let others = cpu_time().saturating_sub(all).saturating_sub(thread_cpu_time().saturating_sub(own));
    let mean = |time: Duration| time.as_secs_f64() * 1e6 / (RUNS * 5) as f64;
    let [begin, finish, detections] = spent.map(mean);
    let others = mean(others);
    Ok(format!(
        "begin {begin:.0} us, finish {finish:.0} us, detections {detections:.0} us; other threads {others:.0} us"
    ))
}

/// Measures CPU time per frame when frames come at a camera's rate.
fn paced_cpu(detector: &mut Detector, camera: &Camera) -> Result<String, Failure> {
    let (frames, interval) = (120, Duration::from_micros(16_667));
    let mut seen = Vec::new();
    let (cpu, own) = (cpu_time(), thread_cpu_time());
    for number in 0..frames {
        let began = Instant::now();
        let run_id = detector.begin(&[camera.frame(number)?])?;
        detector.finish(run_id)?;
        detector.detections(run_id, 0, &mut seen)?;
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
    let mean = |time: Duration| time.as_secs_f64() * 1e6 / frames as f64;
    let (all, own) = (mean(cpu_time().saturating_sub(cpu)), mean(thread_cpu_time().saturating_sub(own)));
    Ok(format!("{all:.0} us a frame, {own:.0} of them this thread's"))
}
