//! Row "Same boxes": frames of vtest.avi through NanoDet, the engine on the GPU against the embedded engine on the CPU.
//!
//! Both are asked for what scores 0.2 or more and a thing counts from 0.3 in either, so that a score that falls just below
//! 0.3 in one of the two is a difference of scores and not a thing missing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use visiond_engine::compare::Agreement;
use visiond_engine::detector::{Detection, Detector};
use visiond_kernels::buffer::Memory;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};

use crate::network::Network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Same boxes";
const COUNTS_FROM: f32 = 0.3;
const ASKED_FOR: f32 = 0.2;
/// Every fourth frame is looked at: about 200 of vtest.avi's 795.
const STEP: usize = 4;

/// What is wanted of one engine.
struct Bounds {
    iou: f64,
    score: f64,
}

/// Takes the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let memory = Memory::auto(&setup.device()?);
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

    // The CPU's answers first.
    let cpu = Network::load(setup, &setup.arguments.model)?;
    let mut detector = cpu.detector(ASKED_FOR)?;
    let mut answers = Vec::new();
    each_frame(frames, buffer.as_mut_slice().len(), |bytes| {
        let mut seen = Vec::new();
        detect(&mut detector, &layout.view(bytes)?, &mut seen)?;
        answers.push(seen);
        Ok(())
    })?;
    let counted = answers.iter().flatten().filter(|seen| seen.score >= COUNTS_FROM).count();
    report.note(
        ROW,
        "reference",
        format!("{}: {} frames, {counted} detections", cpu.engine.backend_description(), answers.len()),
    );

    for (name, path, bounds) in &engines {
        let Some(path) = path else {
            report.skipped(ROW, name, wanted(bounds), "there is no such engine");
            continue;
        };
        let network = Network::load(setup, path)?;
        let mut detector = network.detector(ASKED_FOR)?;
        let mut agreement = Agreement::new(COUNTS_FROM);
        let mut seen = Vec::new();
        let mut picture = 0;
        each_frame(frames, layout.size_bytes(), |bytes| {
            buffer.as_mut_slice().copy_from_slice(bytes);
            detect(&mut detector, &layout.view_of(&buffer)?, &mut seen)?;
            let reference = answers.get(picture).map(Vec::as_slice).unwrap_or_default();
            agreement.add(picture, reference, &seen);
            picture += 1;
            Ok(())
        })?;
        let all = &agreement.all;
        let iou = all.min_iou.map_or(1.0, |worst| worst.value);
        let score = all.max_score_difference.map_or(0.0, |worst| worst.value);
        let seen = format!(
            "{} alike, {} missing, {} besides; IoU >= {iou:.4}, score within {score:.4}",
            all.matched, all.missing, all.extra
        );
        let pass = all.matched > 0 && all.missing == 0 && iou >= bounds.iou && score <= bounds.score;
        report.figure(ROW, &format!("{name} engine on the GPU"), wanted(bounds), seen, pass && all.extra == 0);
    }
    Ok(())
}

fn wanted(bounds: &Bounds) -> String {
    format!("IoU {}, score within {}, nothing missing at {COUNTS_FROM}", bounds.iou, bounds.score)
}

fn detect(detector: &mut Detector, frame: &FrameView<'_>, seen: &mut Vec<Detection>) -> Result<(), Failure> {
    let flight = detector.begin(&[*frame])?;
    detector.finish(flight)?;
    Ok(detector.detections(flight, 0, seen)?)
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
