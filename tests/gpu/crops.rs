//! Row "Crops": a model on 20 detections of a 1080p frame, from the crops to the labels on the CPU, against the bare run of its engine
//! at a batch of 20.
//!
//! The crops have sizes of their own, and move from run to run. Both are waited for in the same way and take turns in blocks, as in
//! the row "Overhead".

use std::fs;
use std::path::Path;
use std::time::Instant;

use visiond_engine::card::Card;
use visiond_engine::detector::{Detector, DetectorOptions};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::view::{Orientation, View};
use visiond_tests::onnx::convolutions;

use crate::bare::Bare;
use crate::camera::Camera;
use crate::measure::{Noise, Samples};
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Crops";
const CROPS: usize = 20;
const SIDE: u64 = 224;
const SIZE: (u32, u32) = (1920, 1080);
const ROUNDS: usize = 3;
const BLOCKS: usize = 15;
const RUNS: usize = 40;
/// Relative to the bare engine's time.
const BOUND: f64 = 1.3;
const CARD: &str = "[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n\
    [detect]\nscore_threshold = 0.0\n";

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let folder = tempfile::tempdir()?;
    let (model, path) = (folder.path().join("crops.onnx"), folder.path().join("crops.engine"));
    fs::write(&model, convolutions(CROPS as u64, SIDE))?;
    fs::write(&path, build::build(&model, BuildOptions::default(), &Monitor::new())?.plan)?;
    let engine = Engine::load(&path, &EngineOptions::default())?;
    let card = Card::from_toml(CARD, Path::new("crops.toml"))?;
    let options = DetectorOptions { max_batch: CROPS, ..DetectorOptions::default() };
    let mut bare = Bare::new(&device, &engine)?;
    // Frames of the host, whose pixels cross the bus each time that they are read, and frames that are on the GPU as a decoder's are.
    for (kind, place) in [(MemoryKind::Mapped, "the host's memory"), (MemoryKind::Managed, "the GPU's memory")] {
        let mut detector = Detector::new(&engine, &card, &options)?;
        let camera = Camera::new(&Memory::on(&device, kind)?)?;
        measure(&mut detector, &mut bare, &camera, place, report)?;
    }
    Ok(())
}

/// Compares the detector on crops of a camera's frames, in this memory, with the bare engine.
fn measure(
    detector: &mut Detector,
    bare: &mut Bare,
    camera: &Camera,
    place: &str,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut noise = Noise::new(7);
    let mut best = (f64::INFINITY, 0.0, 0.0);
    let mut all = Vec::new();
    let mut labels = 0;
    let (mut begun, mut finished, mut stages) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    for _ in 0..ROUNDS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..BLOCKS {
            for number in 0..RUNS {
                let frame = camera.frame(number)?;
                let mut views = Vec::with_capacity(CROPS);
                for _ in 0..CROPS {
                    let mut below = |most: u32| noise.number() as u32 % most;
                    let (width, height) = (48 + below(200), 48 + below(300));
                    let crop = [below(SIZE.0 - width), below(SIZE.1 - height), width, height];
                    let view = View::new(SIZE, crop, Orientation::UPRIGHT);
                    views.push(frame.viewed(view.ok_or_else(|| Failure::Broken("a crop is outside".to_owned()))?)?);
                }
                let began = Instant::now();
                let run_id = detector.begin(&views)?;
                begun.push(began.elapsed().as_secs_f64() * 1e6);
                let timings = detector.finish(run_id)?;
                for (all, stage) in stages.iter_mut().zip([timings.launch_us, timings.preprocess_us, timings.infer_us])
                {
                    all.push(stage as f64);
                }
                finished.push(began.elapsed().as_secs_f64() * 1e6);
                let mut seen = Vec::new();
                for slot in 0..CROPS {
                    detector.detections(run_id, slot, &mut seen)?;
                    labels += usize::from(!seen.is_empty());
                }
                ours.push(began.elapsed().as_secs_f64() * 1e6);
            }
            for _ in 0..RUNS {
                let began = Instant::now();
                bare.launch(0)?;
                bare.wait(0)?;
                theirs.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        let (ours, theirs) = (Samples::new(ours).median(), Samples::new(theirs).median());
        all.push(format!("{:.2}", ours / theirs));
        if ours / theirs < best.0 {
            best = (ours / theirs, ours, theirs);
        }
    }
    let (times, ours, theirs) = best;
    report.figure(
        ROW,
        &format!("{CROPS} crops in one run, of frames in {place}"),
        format!("<= {BOUND} times the bare engine at a batch of {CROPS}"),
        format!("{ours:.0} us, bare {theirs:.0} us: {times:.2} times; {ROUNDS} rounds: {}", all.join(", ")),
        times <= BOUND && labels == ROUNDS * BLOCKS * RUNS * CROPS,
    );
    let median = |of: Vec<f64>| Samples::new(of).median();
    let [launch, preprocess, inference] = stages.map(median);
    report.note(
        ROW,
        &format!("its parts, {place}"),
        format!(
            "launched after {launch:.0} us, frames read after {:.0}, over after {:.0}; on the GPU: preprocess {preprocess:.0}, \
             inference {inference:.0}",
            median(begun),
            median(finished)
        ),
    );
    let counts = detector.counts();
    let seen = format!("{} runs by graph, {} call by call", counts.graph_runs, counts.single_runs);
    report.figure(ROW, &format!("crops of any size, {place}"), "one graph for all", seen, counts.single_runs <= 4);
    Ok(())
}
