//! Row "Flights": frames may be overwritten once a run has begun, however it was begun, and overlapping runs give the same
//! results as separate runs.
//!
//! Processes frames of the sample video one at a time, call by call; then by graph, then two at a time. The buffer of every
//! frame is overwritten with noise as soon as `begin` returns: if that were too early, the boxes would differ.
//!
//! Then runs batches of changing size through a model that reports each slot's brightness.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use visiond_engine::card::Card;
use visiond_engine::detector::{Detection, Detector, DetectorOptions, RunId};
use visiond_engine::engine::{Engine, EngineOptions};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::buffer::{Memory, MemoryKind, UnifiedBuffer};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};

use crate::measure::Noise;
use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Flights";
/// Low, so that there are many boxes to compare.
const THRESHOLD: f32 = 0.1;
const FRAMES: usize = 16;
const ROUNDS: usize = 20;

/// The card of the model that reports brightness. The padding is black, so that a wide image has half of the brightness.
const CARD: &str = "[input]\nfit = \"letterbox\"\npad = 0\n[head]\nfamily = \"ssd\"\nunit = \"pixels\"\n\
    [detect]\nscore_threshold = 0.1\n[classes]\nnames = [\"lamp\", \"candle\"]\n";

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let open = include_bytes!("brightness-open.onnx");
    batches(&Memory::on(&device, MemoryKind::Mapped)?, open, Some("x=1x3x4x4,4x3x4x4,4x3x4x4"), report)?;
    batches(&Memory::on(&device, MemoryKind::Mapped)?, include_bytes!("brightness-fixed.onnx"), None, report)?;
    let Some(path) = &setup.arguments.frames else {
        report.skipped(ROW, "frames", "the sample video", "neither ffmpeg nor Python's cv2 is here to decode it");
        return Ok(());
    };
    let layout = FrameLayout::packed(PixelFormat::Bgr, 768, 576, ColorDescription::default())?;
    let mut pictures = Vec::new();
    let mut file = File::open(path)?;
    for _ in 0..FRAMES {
        let mut picture = vec![0; layout.size_bytes()];
        file.read_exact(&mut picture)?;
        pictures.push(picture);
    }
    let network = Network::load(setup, setup.engine()?)?;
    let mut expected = Vec::new();
    for picture in &pictures {
        // A new detector each time: the very first run is queued call by call.
        let mut detector = network.detector(THRESHOLD)?;
        let run_id = detector.begin(&[layout.view(picture)?])?;
        detector.finish(run_id)?;
        let mut seen = Vec::new();
        detector.detections(run_id, 0, &mut seen)?;
        expected.push(seen);
    }
    let boxes: usize = expected.iter().map(Vec::len).sum();
    report.note(ROW, "reference", format!("{boxes} boxes on {FRAMES} frames, each by calls"));

    let mut memories = vec![("mapped", Memory::on(&device, MemoryKind::Mapped)?)];
    memories.push(("host", Memory::on(&device, MemoryKind::Host)?));
    match Memory::lent(&device) {
        Ok(memory) => memories.push(("managed, lent to a stream", memory)),
        Err(error) => report.skipped(ROW, "frames in managed memory, lent to a stream", "no frame differs", error),
    }
    for (name, memory) in memories {
        for under_way in [1, 2] {
            let mut detector = network.detector(THRESHOLD)?;
            let mut check = Check { layout: &layout, expected: &expected, wrong: 0, order: VecDeque::new() };
            let buffers = [memory.allocate(layout.size_bytes())?, memory.allocate(layout.size_bytes())?];
            check.run(&mut detector, buffers, &pictures, under_way)?;
            let counts = detector.counts();
            let seen = format!(
                "{} of {} frames differ; {} runs by graph, {} call by call, {} overlapped; {} bytes copied",
                check.wrong,
                FRAMES * ROUNDS,
                counts.graph_runs,
                counts.single_runs,
                counts.overlapped_runs,
                counts.copied_bytes
            );
            let what = format!("{under_way} under way, overwritten frames in memory: {name}");
            let mostly_recorded = counts.graph_runs > counts.single_runs;
            let overlaps = under_way == 1 || counts.overlapped_runs > 0;
            let copies = (memory.kind() == MemoryKind::Host) == (counts.copied_bytes > 0);
            report.figure(
                ROW,
                &what,
                "no frame differs",
                seen,
                check.wrong == 0 && boxes > 0 && mostly_recorded && overlaps && copies,
            );
        }
    }
    Ok(())
}

/// Runs batches of 1 to all frames through the model that reports brightness, two in flight.
fn batches(memory: &Memory, onnx: &[u8], profile: Option<&str>, report: &mut Report) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (model, path) = (folder.path().join("brightness.onnx"), folder.path().join("brightness.engine"));
    fs::write(&model, onnx)?;
    let parse = |text| build::parse_profile(text).map_err(|error| Failure::Broken(error.to_string()));
    let profiles = profile.map(parse).transpose()?.into_iter().collect();
    let options = BuildOptions { profiles, ..BuildOptions::default() };
    fs::write(&path, build::build(&model, options, &Monitor::new())?.plan)?;
    let engine = Engine::load(&path, &EngineOptions::default())?;
    let card = Card::from_toml(CARD, Path::new("brightness.toml"))?;
    let mut detector = Detector::new(&engine, &card, &DetectorOptions { max_batch: 4, ..DetectorOptions::default() })?;
    let layout = FrameLayout::packed(PixelFormat::Rgb, 8, 4, ColorDescription::default())?;
    let mut noise = Noise::new(5);
    let (mut wrong, mut frames) = (0, 0);
    let mut under_way: VecDeque<(Vec<u8>, RunId)> = VecDeque::new();
    for number in 0..400 {
        let shades: Vec<u8> = (0..number % detector.batch() + 1).map(|_| 110 + (noise.number() % 146) as u8).collect();
        let mut buffers = Vec::new();
        for &shade in &shades {
            let mut buffer = memory.allocate(layout.size_bytes())?;
            buffer.as_mut_slice().fill(shade);
            buffers.push(buffer);
        }
        let views: Vec<_> = buffers.iter().map(|buffer| layout.view_of(buffer)).collect::<Result<_, _>>()?;
        under_way.push_back((shades, detector.begin(&views)?));
        while under_way.len() == 2 || (number == 399 && !under_way.is_empty()) {
            let Some((shades, run_id)) = under_way.pop_front() else { break };
            detector.finish(run_id)?;
            for (slot, &shade) in shades.iter().enumerate() {
                let mut seen = Vec::new();
                detector.detections(run_id, slot, &mut seen)?;
                let wanted = f32::from(shade) / 255.0 / 2.0;
                let score = seen.first().map_or(0.0, |best| best.score);
                wrong += usize::from((score - wanted).abs() > 2e-3 || seen.len() != 2);
                frames += 1;
            }
        }
    }
    let counts = detector.counts();
    let what =
        if profile.is_some() { "runs of 1 to 4 frames, open batch" } else { "runs of 1 to 3 frames, batch of 3" };
    let seen = format!(
        "{wrong} of {frames} frames differ; {} runs by graph, {} call by call, {} overlapped",
        counts.graph_runs, counts.single_runs, counts.overlapped_runs
    );
    let as_meant = counts.graph_runs > counts.single_runs && counts.overlapped_runs > 0;
    report.figure(ROW, what, "no frame differs", seen, wrong == 0 && as_meant);
    Ok(())
}

/// Runs the detector and compares its detections.
struct Check<'a> {
    layout: &'a FrameLayout,
    expected: &'a [Vec<Detection>],
    wrong: usize,
    order: VecDeque<(usize, RunId)>,
}

impl Check<'_> {
    fn run(
        &mut self,
        detector: &mut Detector,
        mut buffers: [UnifiedBuffer; 2],
        pictures: &[Vec<u8>],
        under_way: usize,
    ) -> Result<(), Failure> {
        let mut noise = Noise::new(3);
        for number in 0..FRAMES * ROUNDS {
            // Another order each round, so that the neighbours change.
            let picture = (number * 7 + number / FRAMES) % FRAMES;
            let buffer = &mut buffers[number % 2];
            buffer.as_mut_slice().copy_from_slice(&pictures[picture]);
            let run_id = detector.begin(&[self.layout.view_of(buffer)?])?;
            noise.fill(buffer.as_mut_slice());
            self.order.push_back((picture, run_id));
            if self.order.len() == under_way {
                self.compare(detector)?;
            }
        }
        while !self.order.is_empty() {
            self.compare(detector)?;
        }
        Ok(())
    }

    fn compare(&mut self, detector: &mut Detector) -> Result<(), Failure> {
        let Some((picture, run_id)) = self.order.pop_front() else { return Ok(()) };
        let mut seen = Vec::new();
        detector.finish(run_id)?;
        detector.detections(run_id, 0, &mut seen)?;
        self.wrong += usize::from(seen != self.expected[picture]);
        Ok(())
    }
}
