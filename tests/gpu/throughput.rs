//! Row "Throughput": frames per second of the whole pipeline and of the bare engine, each with as many runs in flight as it
//! allows.

use std::collections::VecDeque;
use std::time::Instant;

use visiond_engine::detector::{Detection, Detector, RunId};
use visiond_kernels::buffer::{Memory, MemoryKind};

use crate::bare::Bare;
use crate::camera::Camera;
use crate::measure::Samples;
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Throughput";
const ROUNDS: usize = 5;
const FRAMES: usize = 2000;
/// Relative to the bare engine's.
const SHARE: f64 = 0.95;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let network = Network::load(setup, setup.engine()?)?;
    let mut detector = network.detector(0.3)?;
    check(&network, &Memory::on(&device, MemoryKind::Mapped)?, report)?;
    let mut bare = Bare::new(&device, &network.engine)?;
    for kind in [MemoryKind::Managed, MemoryKind::Mapped] {
        let camera = Camera::new(&Memory::on(&device, kind)?)?;
        ours(&mut detector, &camera, FRAMES / 4)?;
        bare_rate(&mut bare, FRAMES / 4)?;
        let (mut rates, mut bare_rates) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rates.push(ours(&mut detector, &camera, FRAMES)?);
            bare_rates.push(bare_rate(&mut bare, FRAMES)?);
        }
        let (rate, bare_rate) = (Samples::new(rates).median(), Samples::new(bare_rates).median());
        let share = rate / bare_rate;
        let seen =
            format!("{share:.3}: {rate:.0} frames/s, bare {bare_rate:.0}; {} runs under way", detector.max_in_flight());
        let what = format!("frames in {kind} memory");
        if kind == MemoryKind::Managed {
            report.figure(ROW, &what, format!(">= {SHARE} of the bare engine"), seen, share >= SHARE);
        } else {
            // On a discrete GPU the bus limits this one; the figure is for frames in memory that the GPU reads.
            report.note(ROW, &what, seen);
        }
    }
    Ok(())
}

/// Runs in flight share the engine's scratch memory: each must give the same result as alone.
fn check(network: &Network, memory: &Memory, report: &mut Report) -> Result<(), Failure> {
    // So low that every frame shows many objects, and not so low that more candidates pass than the filter keeps.
    let mut detector = network.detector(0.05)?;
    let camera = Camera::new(memory)?;
    let mut alone = Vec::new();
    for number in 0..Camera::BUFFERS {
        let mut seen = Vec::new();
        let run_id = detector.begin(&[camera.frame(number)?])?;
        detector.finish(run_id)?;
        detector.detections(run_id, 0, &mut seen)?;
        alone.push(seen);
    }
    let mut differing = 0;
    each(&mut detector, &camera, FRAMES, |number, seen| {
        differing += usize::from(*seen != alone[number % Camera::BUFFERS])
    })?;
    let things: usize = alone.iter().map(Vec::len).sum();
    let seen = format!("{differing} of {FRAMES} runs differ; {things} things on {} frames", Camera::BUFFERS);
    report.figure(ROW, "runs under way see what they see alone", "bit-equal", seen, differing == 0 && things > 0);
    Ok(())
}

fn ours(detector: &mut Detector, camera: &Camera, frames: usize) -> Result<f64, Failure> {
    let began = Instant::now();
    each(detector, camera, frames, |_, _| {})?;
    Ok(frames as f64 / began.elapsed().as_secs_f64())
}

/// Calls `take` with the number of each frame and its detections, with as many runs in flight as possible.
fn each(
    detector: &mut Detector,
    camera: &Camera,
    frames: usize,
    mut take: impl FnMut(usize, &[Detection]),
) -> Result<(), Failure> {
    let mut seen = Vec::new();
    let mut under_way: VecDeque<(usize, RunId)> = VecDeque::new();
    for number in 0..frames + detector.max_in_flight() {
        if (under_way.len() == detector.max_in_flight() || number >= frames)
            && let Some((number, run_id)) = under_way.pop_front()
        {
            detector.finish(run_id)?;
            detector.detections(run_id, 0, &mut seen)?;
            take(number, &seen);
        }
        if number < frames {
            under_way.push_back((number, detector.begin(&[camera.frame(number)?])?));
        }
    }
    Ok(())
}

fn bare_rate(bare: &mut Bare, frames: usize) -> Result<f64, Failure> {
    let began = Instant::now();
    for number in 0..frames {
        let slot = number % Bare::SLOTS;
        if number >= Bare::SLOTS {
            bare.wait(slot)?;
        }
        bare.launch(slot)?;
    }
    for slot in 0..Bare::SLOTS {
        bare.wait(slot)?;
    }
    Ok(frames as f64 / began.elapsed().as_secs_f64())
}
