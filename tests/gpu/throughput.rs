//! Row "Throughput": frames a second of the whole pipeline against the bare engine's, each with as many runs under way as it
//! takes.

use std::collections::VecDeque;
use std::time::Instant;

use visiond_engine::detector::{Detector, Flight};
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
/// Of the bare engine's.
const SHARE: f64 = 0.95;

/// Takes the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let network = Network::load(setup, setup.engine()?)?;
    let mut detector = network.detector(0.3)?;
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
            format!("{share:.3}: {rate:.0} frames/s, bare {bare_rate:.0}; {} runs under way", detector.flights());
        let what = format!("frames in {kind} memory");
        if kind == MemoryKind::Managed {
            report.figure(ROW, &what, format!(">= {SHARE} of the bare engine"), seen, share >= SHARE);
        } else {
            // On a discrete GPU the bus bounds this one; the figure is for frames that live where the GPU reads.
            report.note(ROW, &what, seen);
        }
    }
    Ok(())
}

fn ours(detector: &mut Detector, camera: &Camera, frames: usize) -> Result<f64, Failure> {
    let mut seen = Vec::new();
    let mut under_way: VecDeque<Flight> = VecDeque::new();
    let began = Instant::now();
    for number in 0..frames {
        if under_way.len() == detector.flights()
            && let Some(flight) = under_way.pop_front()
        {
            detector.finish(flight)?;
            detector.detections(flight, 0, &mut seen)?;
        }
        under_way.push_back(detector.begin(&[camera.frame(number)?])?);
    }
    for flight in under_way {
        detector.finish(flight)?;
        detector.detections(flight, 0, &mut seen)?;
    }
    Ok(frames as f64 / began.elapsed().as_secs_f64())
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
