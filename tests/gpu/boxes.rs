//! Row "Same boxes": frames of vtest.avi through NanoDet, the engine on the GPU against the embedded engine on the CPU.
//!
//! Both return candidates from a score of 0.2 on, and objects count from 0.3 in either. So a score that falls just below 0.3 in
//! one of the two is a difference of scores and not a missing object. If two boxes of one object, or two classes of one box, have
//! almost equal scores, rounding decides which is kept. Such ties are counted and reported separately, and may be one object in a
//! hundred.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use visiond_engine::compare::Agreement;
use visiond_engine::detector::{Detection, Detector};
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::Memory;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::nms::iou;

use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Same boxes";
const COUNTS_FROM: f32 = 0.3;
const ASKED_FOR: f32 = 0.2;
/// One object in this many may be a tie.
const THINGS_A_TIE: usize = 100;
/// Uses every fourth frame: about 200 of vtest.avi's 795.
const STEP: usize = 4;

/// The limits for one engine.
struct Bounds {
    iou: f64,
    score: f64,
}

/// The detections of a model on a frame.
#[derive(Default)]
struct Sight {
    /// After suppression.
    seen: Vec<Detection>,
    /// Before suppression.
    candidates: Vec<Detection>,
}

/// A model with and without suppression.
struct Eyes {
    detector: Detector,
    candidates: Detector,
}

impl Eyes {
    fn new(network: &Network) -> Result<Self, Failure> {
        Ok(Self { detector: network.detector(ASKED_FOR)?, candidates: network.candidates(ASKED_FOR - 0.1)? })
    }

    fn look(&mut self, frame: &FrameView<'_>) -> Result<Sight, Failure> {
        let mut sight = Sight::default();
        detect(&mut self.detector, frame, &mut sight.seen)?;
        detect(&mut self.candidates, frame, &mut sight.candidates)?;
        Ok(sight)
    }
}

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let memory = Memory::on(&device, AutoMemory::of(&device).kind())?;
    let fp16 = setup.arguments.engine_fp16.clone();
    let engines = [
        ("FP32", setup.arguments.engine.clone(), Bounds { iou: 0.98, score: 0.02 }),
        ("FP16", fp16, Bounds { iou: 0.95, score: 0.05 }),
    ];
    let Some(frames) = &setup.arguments.frames else {
        for (name, _, bounds) in &engines {
            report.skipped(ROW, name, wanted(bounds), "neither ffmpeg nor Python's cv2 is here to decode the video");
        }
        return Ok(());
    };
    let layout = FrameLayout::packed(PixelFormat::Bgr, 768, 576, ColorDescription::default())?;
    let mut buffer = memory.allocate(layout.size_bytes())?;

    // The CPU's detections first.
    let cpu = Network::load(setup, &setup.arguments.model)?;
    let mut eyes = Eyes::new(&cpu)?;
    let mut answers: Vec<Sight> = Vec::new();
    each_frame(frames, layout.size_bytes(), |bytes| {
        answers.push(eyes.look(&layout.view(bytes)?)?);
        Ok(())
    })?;
    let counted = answers.iter().flat_map(|sight| &sight.seen).filter(|seen| seen.score >= COUNTS_FROM).count();
    let text = format!("{}: {} frames, {counted} detections", cpu.engine.backend_description(), answers.len());
    report.note(ROW, "reference", text);

    for (name, path, bounds) in &engines {
        let Some(path) = path else {
            report.skipped(ROW, name, wanted(bounds), "there is no such engine");
            continue;
        };
        let network = Network::load(setup, path)?;
        let mut eyes = Eyes::new(&network)?;
        let mut agreement = Agreement::new(COUNTS_FROM);
        let (mut spread, mut twins) = (Spread::default(), Twins::default());
        let mut references = answers.iter().enumerate();
        each_frame(frames, layout.size_bytes(), |bytes| {
            buffer.as_mut_slice().copy_from_slice(bytes);
            let sight = eyes.look(&layout.view_of(&buffer)?)?;
            if let Some((picture, reference)) = references.next() {
                agreement.add(picture, &reference.seen, &sight.seen);
                spread.add(reference, &sight, bounds);
                twins.add(&reference.candidates, &sight.candidates, bounds);
                twins.add(&sight.candidates, &reference.candidates, bounds);
            }
            Ok(())
        })?;
        let limits = format!("IoU {}, score within {}", bounds.iou, bounds.score);
        let what = format!("{name}, every candidate before suppression");
        report.figure(ROW, &what, limits, twins.summary(), twins.pass());
        let all = &agreement.all;
        let iou = all.min_iou.map_or(1.0, |worst| worst.value);
        let score = all.max_score_difference.map_or(0.0, |worst| worst.value);
        let seen = format!(
            "{} alike, {} missing, {} extra; IoU >= {iou:.4}, score within {score:.4}; {}",
            all.matched,
            all.missing,
            all.extra,
            spread.summary()
        );
        report.figure(ROW, &format!("{name} engine on the GPU"), wanted(bounds), seen, spread.pass());
    }
    Ok(())
}

/// How close each model's candidates are to the other's, before suppression.
#[derive(Default)]
struct Twins {
    candidates: usize,
    beyond: usize,
    /// Candidates with another class because of a tie.
    ties: usize,
    least_iou: Option<f64>,
    score: f64,
}

impl Twins {
    fn add(&mut self, of: &[Detection], others: &[Detection], bounds: &Bounds) {
        for candidate in of.iter().filter(|candidate| candidate.score >= COUNTS_FROM) {
            self.candidates += 1;
            // Adjacent rows find the same object: of those that overlap enough, the one with the nearest score is the
            // counterpart. A row has the class of its highest score; if two scores are almost equal, rounding decides.
            let same_class = others.iter().filter(|other| other.class_id == candidate.class_id);
            let difference = |other: &Detection| f64::from((candidate.score - other.score).abs());
            let rank = |other: &&Detection| {
                let overlap = overlap(candidate, other);
                if overlap < bounds.iou { 2.0 - overlap } else { difference(other).min(1.0) }
            };
            let twin = same_class.min_by(|a, b| rank(a).total_cmp(&rank(b)));
            let Some(twin) = twin.filter(|twin| bounds.hold(candidate, twin)) else {
                let tied = others.iter().any(|other| bounds.hold_but_class(candidate, other));
                self.ties += usize::from(tied);
                self.beyond += usize::from(!tied);
                continue;
            };
            let (overlap, difference) = (overlap(candidate, twin), difference(twin));
            self.least_iou = Some(self.least_iou.unwrap_or(1.0).min(overlap));
            self.score = self.score.max(difference);
        }
    }

    fn pass(&self) -> bool {
        self.candidates > 0 && self.beyond == 0 && self.ties * THINGS_A_TIE <= self.candidates
    }

    fn summary(&self) -> String {
        let Self { candidates, beyond, ties, least_iou, score } = self;
        let iou = least_iou.unwrap_or(0.0);
        format!(
            "{candidates} candidates of both, {beyond} beyond that, {ties} of another class by a tie; the rest IoU >= \
             {iou:.4}, score within {score:.4}"
        )
    }
}

/// Counts the objects beyond the limits, and those that differ only because of suppression.
#[derive(Default)]
struct Spread {
    things: usize,
    beyond: usize,
    ties: usize,
}

impl Spread {
    /// Whether it is a tie: before suppression the other model has the same object within the limits, and suppression kept another
    /// box of it there, or its box has another class there, because their scores are almost equal.
    fn add(&mut self, reference: &Sight, sight: &Sight, bounds: &Bounds) {
        let pairs = [(reference, sight), (sight, reference)];
        for (of, other) in pairs {
            for thing in of.seen.iter().filter(|thing| thing.score >= COUNTS_FROM) {
                self.things += 1;
                if other.seen.iter().any(|choice| bounds.hold(thing, choice)) {
                    continue;
                }
                self.beyond += 1;
                self.ties +=
                    usize::from(other.candidates.iter().any(|candidate| bounds.hold_but_class(thing, candidate)));
            }
        }
    }

    fn pass(&self) -> bool {
        self.things > 0 && self.beyond == self.ties && self.ties * THINGS_A_TIE <= self.things
    }

    fn summary(&self) -> String {
        let Self { things, beyond, ties } = self;
        format!("{beyond} of {things} things beyond that, {ties} of them ties")
    }
}

impl Bounds {
    fn hold(&self, a: &Detection, b: &Detection) -> bool {
        a.class_id == b.class_id && self.hold_but_class(a, b)
    }

    fn hold_but_class(&self, a: &Detection, b: &Detection) -> bool {
        overlap(a, b) >= self.iou && f64::from((a.score - b.score).abs()) <= self.score
    }
}

fn overlap(a: &Detection, b: &Detection) -> f64 {
    match (a.box_in_source, b.box_in_source) {
        (Some(a), Some(b)) => f64::from(iou(a, b)),
        _ => 0.0,
    }
}

fn wanted(bounds: &Bounds) -> String {
    format!(
        "IoU {}, score within {}, nothing missing at {COUNTS_FROM}, but for ties, at most one in {THINGS_A_TIE}",
        bounds.iou, bounds.score
    )
}

fn detect(detector: &mut Detector, frame: &FrameView<'_>, seen: &mut Vec<Detection>) -> Result<(), Failure> {
    let run_id = detector.begin(&[*frame])?;
    detector.finish(run_id)?;
    Ok(detector.detections(run_id, 0, seen)?)
}

/// Calls `take` with every fourth whole frame of a file.
fn each_frame(
    path: &Path,
    frame_bytes: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut file = File::open(path)?;
    let mut frame = vec![0; frame_bytes];
    for number in 0.. {
        if file.read_exact(&mut frame).is_err() {
            break;
        }
        if number % STEP == 0 {
            take(&frame)?;
        }
    }
    Ok(())
}
