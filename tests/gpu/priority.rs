//! Row "Priority": the latency of a model of high priority beside one that keeps the GPU busy, against its latency alone.
//!
//! The sample model gets a frame at a time, as from a camera. The other model is large, and has two runs in flight all the time. For
//! comparison, the sample model has normal priority as well.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use visiond_engine::card::Card;
use visiond_engine::detector::{Detector, DetectorOptions};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::cuda::StreamPriority;
use visiond_tests::onnx::convolutions;

use crate::camera::Camera;
use crate::measure::Samples;
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Priority";
/// The frames and the side of a run of the large model.
const LARGE: (usize, u64) = (8, 640);
const CARD: &str = "[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n\
    [detect]\nscore_threshold = 0.0\n";
const ROUNDS: usize = 3;
const WARM_RUNS: usize = 50;
const RUNS: usize = 1000;
/// Between two frames.
const PAUSE: Duration = Duration::from_millis(1);
/// Relative to the latency alone.
const BOUND: f64 = 1.3;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let folder = tempfile::tempdir()?;
    let (model, path) = (folder.path().join("large.onnx"), folder.path().join("large.engine"));
    fs::write(&model, convolutions(LARGE.0 as u64, LARGE.1))?;
    fs::write(&path, build::build(&model, BuildOptions::default(), &Monitor::new())?.plan)?;
    let large = Engine::load(&path, &EngineOptions::default())?;
    let card = Card::from_toml(CARD, Path::new("large.toml"))?;
    let network = Network::load(setup, setup.engine()?)?;
    let camera = Camera::new(&Memory::on(&device, MemoryKind::Mapped)?)?;
    let mut normal = network.with_priority(StreamPriority::Normal)?;
    let mut high = network.with_priority(StreamPriority::High)?;
    let mut best: Option<[f64; 3]> = None;
    let mut all = Vec::new();
    let mut large_us = Vec::new();
    for _ in 0..ROUNDS {
        let alone = latency(&mut high, &camera)?;
        let mut beside = |detector: &mut Detector| {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let load = scope.spawn(|| keep_busy(&large, &card, &camera, &stop));
                let seen = latency(detector, &camera);
                stop.store(true, Ordering::Relaxed);
                let runs = load.join().map_err(|_| Failure::Broken("the large model panicked".to_owned()))??;
                large_us.push(runs);
                seen
            })
        };
        let p99s = [alone.at(0.99), beside(&mut high)?.at(0.99), beside(&mut normal)?.at(0.99)];
        all.push(format!("{:.2} and {:.2}", p99s[1] / p99s[0], p99s[2] / p99s[0]));
        if best.is_none_or(|best| p99s[1] / p99s[0] < best[1] / best[0]) {
            best = Some(p99s);
        }
    }
    let [alone, high, normal] = best.unwrap_or_default();
    report.figure(
        ROW,
        "p99 of a frame with high priority, beside a busy GPU",
        format!("<= {BOUND} times alone"),
        format!("{high:.0} us, alone {alone:.0} us: {:.2} times", high / alone),
        high <= BOUND * alone,
    );
    report.note(
        ROW,
        "the same with normal priority",
        format!("{normal:.0} us: {:.2} times; {ROUNDS} rounds, high and normal: {}", normal / alone, all.join(", ")),
    );
    let text = format!("{:.0} us a run of {} frames, two in flight", Samples::new(large_us).median(), LARGE.0);
    report.note(ROW, "the large model beside them", text);
    Ok(())
}

/// Returns the times from frame to detections, in microseconds.
fn latency(detector: &mut Detector, camera: &Camera) -> Result<Samples, Failure> {
    let mut times_us = Vec::with_capacity(RUNS);
    let mut seen = Vec::new();
    for number in 0..WARM_RUNS + RUNS {
        thread::sleep(PAUSE);
        let frame = camera.frame(number)?;
        let began = Instant::now();
        let run_id = detector.begin(&[frame])?;
        detector.finish(run_id)?;
        detector.detections(run_id, 0, &mut seen)?;
        if number >= WARM_RUNS {
            times_us.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Samples::new(times_us))
}

/// Keeps two runs of the large model in flight until `stop`; returns the mean time of a run in microseconds.
fn keep_busy(engine: &Engine, card: &Card, camera: &Camera, stop: &AtomicBool) -> Result<f64, Failure> {
    let options = DetectorOptions { max_batch: LARGE.0, ..DetectorOptions::default() };
    let mut detector = Detector::new(engine, card, &options)?;
    let frames: Vec<_> = (0..detector.batch()).map(|number| camera.frame(number)).collect::<Result<_, _>>()?;
    let mut in_flight = VecDeque::new();
    let (began, mut runs) = (Instant::now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        in_flight.push_back(detector.begin(&frames)?);
        if in_flight.len() == detector.max_in_flight()
            && let Some(oldest) = in_flight.pop_front()
        {
            detector.finish(oldest)?;
            runs += 1;
        }
    }
    for run_id in in_flight {
        detector.finish(run_id)?;
        runs += 1;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(runs.max(1)))
}
