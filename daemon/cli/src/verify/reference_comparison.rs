//! Runs a model on pictures and accumulates the differences from a reference.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

use visiond_engine::compare::{Agreement, MatchLimits, overlap};
use visiond_engine::detector::Detection;
use visiond_engine::heads::Family;
use visiond_frames::frame::Frame;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use super::comparison::{FrameRunner, ModelWithCard};
use super::reference::{Form, Reference, ReferencePicture};
use crate::media_decoder::MediaItem;
use crate::output::complain;
use crate::progress::Progress;

/// Boxes that overlap by this IoU show the same object, whatever their classes are.
const SAME_OBJECT_IOU: f64 = 0.9;

/// A model and a reference, and their accumulated differences.
pub struct ReferenceComparison {
    pub runner: FrameRunner,
    pub reference: Reference,
    /// By the user's limits, and by stricter ones.
    pub agreements: [(MatchLimits, Agreement); 2],
    /// The name of each compared picture.
    pub pictures: Vec<String>,
    /// Number of detections of the reference in these pictures whose score reaches the threshold.
    pub counted: usize,
    threshold: f32,
    /// The lowest score of the reference.
    lowest: Option<f32>,
    /// How often a category id occurs where the model sees this class.
    other_classes: BTreeMap<(u32, u32), u64>,
    progress: Progress,
    /// The exit status of the first picture that could not be read.
    pub exit: Exit,
}

impl ReferenceComparison {
    pub fn new(
        model: &ModelWithCard,
        reference: Reference,
        limits: [MatchLimits; 2],
        threshold: f64,
        floor: f64,
    ) -> Result<Self, ExitError> {
        let is_classifier = model.card.head.family() == Family::Classifier;
        if is_classifier == reference.has_boxes && !reference.is_empty() {
            let [has, reads] = if is_classifier { ["boxes", "classes"] } else { ["scores of whole pictures", "boxes"] };
            let message = format!(
                "cannot use the reference {}: it has {has}, but the model's head gives {reads}: name another reference, or the \
                 right card with --card",
                escape(&reference.file.display().to_string())
            );
            return Err(ExitError::new(Exit::Input, message));
        }
        let scores = reference.pictures.iter().filter_map(|picture| picture.detections.last());
        let lowest = scores.map(|detection| detection.score).min_by(f32::total_cmp);
        let runner = FrameRunner::new(model, floor as f32, model.card.iou_threshold, false)?;
        let names = runner.detector.keypoint_names();
        let agreement = |limits| (limits, Agreement::within(threshold as f32, limits).with_keypoints(names));
        Ok(Self {
            agreements: limits.map(agreement),
            runner,
            reference,
            pictures: Vec::new(),
            counted: 0,
            threshold: threshold as f32,
            lowest,
            other_classes: BTreeMap::new(),
            progress: Progress::new(),
            exit: Exit::Success,
        })
    }

    pub fn run(&mut self, items: &Receiver<MediaItem>) -> Result<(), ExitError> {
        for item in items {
            match item {
                MediaItem::Begun { .. } => {}
                MediaItem::Frame { is_video: true, frame, .. } => {
                    let name = escape(frame.name.as_deref().unwrap_or_default());
                    let message = format!("{name} is a video, but a reference is about pictures: name pictures alone");
                    return Err(ExitError::new(Exit::Input, message));
                }
                MediaItem::Frame { file, frame, .. } => self.compare(file, &frame)?,
                MediaItem::Failed { reason } => {
                    complain(&reason);
                    self.exit = Exit::Input;
                }
                // The source has logged the error.
                MediaItem::Damaged => self.exit = Exit::Input,
            }
        }
        Ok(())
    }

    fn compare(&mut self, file: usize, frame: &Frame) -> Result<(), ExitError> {
        let name = escape(frame.name.as_deref().unwrap_or_default());
        let view = match frame.view() {
            Ok(view) => view,
            Err(error) => {
                complain(&format!("{name}: {error}"));
                self.exit = Exit::Input;
                return Ok(());
            }
        };
        self.runner
            .run(&view)
            .map_err(|error| ExitError::new(Exit::Model.unless_gpu_lost(&error), format!("{name}: {error}")))?;
        let picture = self.pictures.len();
        let ReferencePicture { mut detections, ids } = std::mem::take(&mut self.reference.pictures[file]);
        let size = [frame.layout.width() as f32, frame.layout.height() as f32];
        detections
            .iter_mut()
            .filter_map(|detection| detection.box_in_source.as_mut())
            .for_each(|b| *b = inside(*b, size));
        self.counted += detections.iter().filter(|detection| detection.score >= self.threshold).count();
        for (_, agreement) in &mut self.agreements {
            agreement.add(picture, &detections, &self.runner.found);
        }
        self.find_other_classes(&detections, &ids);
        self.pictures.push(name);
        let (count, name) = (self.pictures.len(), &self.pictures[picture]);
        self.progress.tell(|| format!("{count} pictures compared, the last {name}"));
        Ok(())
    }

    /// Counts boxes of the reference where the model sees a different class.
    fn find_other_classes(&mut self, detections: &[Detection], ids: &[u32]) {
        for (detection, id) in detections.iter().zip(ids).filter(|(detection, _)| detection.score >= self.threshold) {
            let overlap = |found: &Detection| overlap(found, detection).unwrap_or(0.0);
            let nearest = self.runner.found.iter().max_by(|a, b| overlap(a).total_cmp(&overlap(b)));
            if let Some(found) = nearest
                && overlap(found) >= SAME_OBJECT_IOU
                && found.class_id != detection.class_id
            {
                *self.other_classes.entry((*id, found.class_id)).or_default() += 1;
            }
        }
    }

    /// Returns mistakes in the reference or the options that would explain the differences.
    pub fn likely_causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let others: u64 = self.other_classes.values().sum();
        if others > 0 {
            let is_coco = self.reference.form == Form::Coco;
            let better = self
                .reference
                .category_ids
                .better(&self.other_classes, self.runner.detector.labels())
                .filter(|_| is_coco);
            let remedy = better.map_or_else(
                || "compare the names of the classes".to_owned(),
                |ids| format!("pass --category-ids {ids}"),
            );
            causes.push(format!("{others} boxes of the reference are where visiond sees another class: {remedy}"));
        }
        let margin = self.agreements[0].0.unmatched_margin as f32;
        if let Some(lowest) = self.lowest.filter(|lowest| *lowest > self.threshold + margin)
            && self.agreements[0].1.all.extra > 0
        {
            causes.push(format!(
                "the reference has no score below {lowest:.4}: if it was made with a higher threshold than {}, pass that with \
                 --score-threshold",
                self.threshold
            ));
        }
        causes
    }
}

/// Clips a box to the picture, as visiond does with its own; programs differ in this.
fn inside([left, top, right, bottom]: [f32; 4], [width, height]: [f32; 2]) -> [f32; 4] {
    [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)]
}
