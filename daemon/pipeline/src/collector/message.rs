//! Makes a message from a result: rounds its numbers, traces its masks.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use visiond_engine::detector::{Detection, Keypoint, class_label};
use visiond_engine::heads::{AttributeValue, DepthGrid, FrameValues, Reading, ScoredLabel};
use visiond_kernels::oriented::OrientedBox;
use visiond_message::{
    AttributeMessage, AttributesMessage, DepthMessage, DetectionMessage, EmbeddingMessage, KeypointMessage,
    LabelMessage, Message, MessageFrame, OrientedMessage, SCHEMA, TrackMessage, TrackMessageState, next_message_id,
};
use visiond_tracker::{TrackReport, TrackState};

use super::masks::MaskWriter;
use super::rounding::{box_of, rounded_part, rounded_pixels, rounded_score, significant};
use super::tracking::FrameTracks;
use crate::lane_result::{CropResults, LaneResult, ModelFacts};

/// Returns the message of a camera for the result of its first model.
pub fn message_of(camera: &Arc<str>, result: &LaneResult<'_>, tracks: FrameTracks<'_>) -> Message {
    let LaneResult { frame, model, detections, values, crops, timings } = result;
    Message {
        schema: SCHEMA,
        id: next_message_id(),
        camera: Arc::clone(camera),
        topic: Arc::clone(camera),
        sequence: frame.sequence,
        captured_at: frame.timestamp.rfc3339(),
        monotonic_ns: frame.timestamp.monotonic_ns,
        frame: MessageFrame {
            width: frame.width,
            height: frame.height,
            format: frame.format,
            damaged: frame.damaged,
            file: frame.name.clone(),
        },
        model: Arc::clone(&model.message),
        timings_us: *timings,
        detections: detections_of(detections, crops, model, [frame.width, frame.height], tracks),
        attributes: attributes_of(&values.attributes),
        embedding: embedding_of(values),
        depth: depth_of(&values.depth),
        results: Vec::new(),
    }
}

/// Returns the detections in a frame of this width and height.
fn detections_of(
    detections: &[Detection],
    crops: &[CropResults],
    model: &ModelFacts,
    frame: [u32; 2],
    tracks: FrameTracks<'_>,
) -> Vec<DetectionMessage> {
    let mut masks = MaskWriter::new(model.masks, frame);
    let message_of = |(index, detection): (usize, &Detection)| {
        let mut message =
            detection_of(detection, class_label(&model.labels, detection.class_id), &model.keypoint_names)?;
        if let Some(report) = tracks.reports.get(index).and_then(Option::as_ref) {
            message.track = track_of(report);
            if tracks.smooth {
                smooth(&mut message, report, frame);
            }
        }
        if let Some(mask) = &detection.mask {
            message.area = Some(mask.area());
            let written = masks.write(mask);
            (message.segments, message.mask, message.truncated) = (written.segments, written.mask, written.truncated);
        }
        if let Some(results) = crops.get(index) {
            results.clone().move_to(&mut message);
        }
        Some(message)
    };
    detections.iter().enumerate().filter_map(message_of).collect()
}

/// Returns the track of a detection. `None` if a number is not finite.
fn track_of(report: &TrackReport) -> Option<TrackMessage> {
    let TrackReport { id, state, age_ms, velocity, .. } = *report;
    let state = match state {
        TrackState::Tentative => TrackMessageState::Tentative,
        // A detection belongs to a track that the frame shows.
        TrackState::Confirmed | TrackState::Lost | TrackState::Ended => TrackMessageState::Confirmed,
    };
    let velocity = velocity.map(|pixels| rounded_pixels(f64::from(pixels)) as f32);
    velocity.iter().all(|v| v.is_finite()).then_some(TrackMessage { id, state, age_ms, velocity })
}

/// Gives a detection the box of its track.
fn smooth(message: &mut DetectionMessage, report: &TrackReport, frame: [u32; 2]) {
    let [width, height] = frame.map(|side| side as f32);
    let [x1, y1, x2, y2] = report.smooth;
    if report.smooth.iter().all(|v| v.is_finite()) {
        let corners = [x1.clamp(0.0, width), y1.clamp(0.0, height), x2.clamp(0.0, width), y2.clamp(0.0, height)];
        message.bounds = Some(box_of(corners));
    }
    if let Some(oriented) = report.smooth_oriented.as_ref().and_then(oriented_of) {
        message.oriented = Some(oriented);
    }
}

/// Rounds a detection without its mask: scores to 4 decimals, pixels to 3, fractions of the frame to 6. `None` if a number is NaN or
/// infinite, which JSON cannot represent.
fn detection_of(detection: &Detection, label: Arc<str>, keypoint_names: &[Arc<str>]) -> Option<DetectionMessage> {
    let bounds = match detection.box_in_source {
        None => None,
        Some(corners) if corners.iter().all(|v| v.is_finite()) => Some(box_of(corners)),
        Some(_) => return None,
    };
    let oriented = match &detection.oriented {
        None => None,
        Some(turned) => Some(oriented_of(turned)?),
    };
    let fraction = match detection.fraction {
        None => None,
        Some(fraction) => Some(rounded_part(fraction, 1e6)?),
    };
    Some(DetectionMessage {
        class_id: detection.class_id,
        label,
        score: rounded_score(detection.score)?,
        bounds,
        oriented,
        fraction,
        keypoints: keypoints_of(&detection.keypoints, keypoint_names)?,
        ..DetectionMessage::default()
    })
}

/// Returns the keypoints; `None` if a number is not finite.
fn keypoints_of(keypoints: &[Keypoint], names: &[Arc<str>]) -> Option<Vec<KeypointMessage>> {
    let keypoint = |(index, p): (usize, &Keypoint)| {
        let score = match p.score {
            None => None,
            Some(score) => Some(rounded_score(score)?),
        };
        (p.x.is_finite() && p.y.is_finite()).then(|| KeypointMessage {
            name: names.get(index).cloned(),
            x: rounded_pixels(f64::from(p.x)) as f32,
            y: rounded_pixels(f64::from(p.y)) as f32,
            score,
        })
    };
    keypoints.iter().enumerate().map(keypoint).collect()
}

impl CropResults {
    /// Adds attributes and an embedding.
    pub(crate) fn add_values(&mut self, values: &FrameValues) {
        self.attributes.0.append(&mut attributes_of(&values.attributes).0);
        self.embedding = self.embedding.take().or_else(|| embedding_of(values));
    }

    /// Adds the values of another one.
    pub(crate) fn add_values_of(&mut self, other: &Self) {
        self.attributes.0.extend_from_slice(&other.attributes.0);
        self.embedding = self.embedding.take().or_else(|| other.embedding.clone());
    }

    /// Sets the keypoints, unless a number is not finite.
    pub(crate) fn set_keypoints(&mut self, keypoints: &[Keypoint], names: &[Arc<str>]) {
        self.keypoints = keypoints_of(keypoints, names).unwrap_or_default();
    }

    /// Adds a detection of `model`, called `name`, with the results of models on its own crop, unless a number is not finite.
    pub(crate) fn add_detection(&mut self, detection: &Detection, model: &ModelFacts, name: &Arc<str>, inner: Self) {
        let label = class_label(&model.labels, detection.class_id);
        if let Some(mut message) = detection_of(detection, label, &model.keypoint_names) {
            message.model = Some(Arc::clone(name));
            inner.move_to(&mut message);
            self.detections.push(message);
        }
    }

    fn move_to(self, message: &mut DetectionMessage) {
        let Self { keypoints, attributes, embedding, detections } = self;
        if !keypoints.is_empty() {
            message.keypoints = keypoints;
        }
        (message.attributes, message.embedding, message.detections) = (attributes, embedding, detections);
    }
}

/// Rounds a box: pixels to 3 decimals, the angle to 5, so that even at the end of 4000 pixels it is off by less than a twentieth of
/// a pixel. `None` if a number is not finite.
fn oriented_of(turned: &OrientedBox) -> Option<OrientedMessage> {
    let turned = turned.regularized();
    let pixels = |v: f32| rounded_pixels(f64::from(v)) as f32;
    let corners = turned.corners();
    let is_finite = turned.is_finite() && corners.iter().flatten().all(|v| v.is_finite());
    let ([x, y], [width, height]) = (turned.center.map(pixels), turned.size.map(pixels));
    let angle = ((f64::from(turned.angle) * 1e5).round() / 1e5) as f32;
    let corners = corners.map(|corner| corner.map(pixels));
    is_finite.then_some(OrientedMessage { x, y, width, height, angle, corners })
}

fn attributes_of(attributes: &[AttributeValue]) -> AttributesMessage {
    let attribute = |AttributeValue { name, reading }: &AttributeValue| {
        let message = match reading {
            Reading::Label(one) => AttributeMessage::Label(label_of(one)?),
            Reading::Labels(all) => AttributeMessage::Labels { labels: all.iter().filter_map(label_of).collect() },
            Reading::Number(number) => AttributeMessage::Number { value: significant(*number)? },
        };
        Some((Arc::clone(name), message))
    };
    AttributesMessage(attributes.iter().filter_map(attribute).collect())
}

fn label_of(one: &ScoredLabel) -> Option<LabelMessage> {
    Some(LabelMessage { label: Arc::clone(&one.label), score: rounded_score(one.score)? })
}

fn embedding_of(values: &FrameValues) -> Option<EmbeddingMessage> {
    let length = values.embedding.len();
    (length > 0).then(|| EmbeddingMessage { length, f16: BASE64_STANDARD.encode(values.embedding_as_f16()) })
}

fn depth_of(grid: &DepthGrid) -> Option<DepthMessage> {
    let DepthGrid { columns, rows, nearest, median } = grid;
    let rounded = |depths: &[Option<f32>]| depths.iter().map(|depth| significant((*depth)?)).collect();
    let (nearest, median) = (rounded(nearest), rounded(median));
    (!grid.is_empty()).then_some(DepthMessage { columns: *columns, rows: *rows, nearest, median })
}

#[cfg(test)]
mod tests;
