//! The message: one frame's detections, as every sink sends them. `docs/message.schema.json` says the same to machines.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Serialize;
use visiond_engine::detector::Detection;

use crate::frame::Frame;
use crate::timestamp::Timestamp;

/// The version in every message's `schema`; a change that breaks readers raises it.
pub const SCHEMA: &str = "visiond/1";

/// One frame's detections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Of this message alone, wherever and however often it is sent.
    pub id: Box<str>,
    /// The camera's name.
    pub camera: Arc<str>,
    /// The frame's number from the source; gaps are frames that were not looked at.
    pub sequence: u64,
    /// When the frame was taken: RFC 3339, UTC, nanoseconds.
    pub captured_at: String,
    /// The same instant on CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// The frame.
    pub frame: FrameFacts,
    /// The network.
    pub model: Arc<ModelFacts>,
    /// What each stage took.
    pub timings_us: Timings,
    /// What was seen, best first.
    pub detections: Vec<DetectionMessage>,
}

/// Facts of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameFacts {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format, by the name that the configuration has for it.
    pub format: &'static str,
    /// The file, where a frame is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
}

/// Facts of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelFacts {
    /// Its name in the configuration.
    pub name: String,
    /// Of its file.
    pub sha256: String,
}

/// What each stage took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Timings {
    /// From the frame's timestamp until it stood in the mailbox.
    pub capture: u64,
    /// In the mailbox.
    pub queue: u64,
    /// Frame to tensor.
    pub preprocess: u64,
    /// The network.
    pub infer: u64,
    /// Raw outputs to detections.
    pub postprocess: u64,
    /// From the frame's timestamp to publishing.
    pub total: u64,
}

/// One thing seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DetectionMessage {
    /// Class, counted from 0.
    pub class_id: u32,
    /// The class's name; its number where the card has no names.
    pub label: Arc<str>,
    /// 0 to 1.
    pub score: f32,
    /// Where, in pixels of the source frame; absent from a classifier.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoxMessage>,
    /// Points of it (a face's landmarks, a body's joints), where the network tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keypoints: Vec<KeypointMessage>,
}

/// A box: top-left corner and size, in pixels of the source frame, inside it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BoxMessage {
    /// Left edge.
    pub x: f32,
    /// Top edge.
    pub y: f32,
    /// Width.
    pub width: f32,
    /// Height.
    pub height: f32,
}

/// A point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KeypointMessage {
    /// In pixels of the source frame.
    pub x: f32,
    /// In pixels of the source frame.
    pub y: f32,
    /// 0 to 1, where the network tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
}

impl Message {
    /// What a network saw in a frame. `label` names a class.
    pub fn new(
        camera: &Arc<str>,
        model: &Arc<ModelFacts>,
        frame: &Frame,
        timings_us: Timings,
        detections: &[Detection],
        label: impl Fn(u32) -> Arc<str>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            id: next_id(),
            camera: Arc::clone(camera),
            sequence: frame.sequence,
            captured_at: rfc3339(frame.timestamp),
            monotonic_ns: frame.timestamp.monotonic_ns,
            frame: FrameFacts {
                width: frame.layout.width(),
                height: frame.layout.height(),
                format: frame.layout.format().name(),
                file: frame.name.clone(),
            },
            model: Arc::clone(model),
            timings_us,
            detections: detections
                .iter()
                .filter_map(|detection| DetectionMessage::new(detection, label(detection.class_id)))
                .collect(),
        }
    }

    /// The message as JSON in one line, line end included.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(512 + 160 * self.detections.len());
        #[expect(
            clippy::expect_used,
            reason = "no map with odd keys and no fallible Serialize in it, and Vec takes all"
        )]
        serde_json::to_writer(&mut line, self).expect("a message is always JSON");
        line.push(b'\n');
        line
    }
}

impl DetectionMessage {
    /// A detection as it is sent: scores to 4 decimals, pixels to 3. `None` when a number of it is none (NaN, infinite),
    /// which JSON could not say.
    pub fn new(detection: &Detection, label: Arc<str>) -> Option<Self> {
        let bounds = match detection.box_in_source {
            None => None,
            Some(corners) if corners.iter().all(|v| v.is_finite()) => Some(BoxMessage::from_corners(corners)),
            Some(_) => return None,
        };
        let keypoint = |p: &visiond_engine::detector::Keypoint| {
            let score = match p.score {
                None => None,
                Some(score) => Some(rounded_score(score)?),
            };
            (p.x.is_finite() && p.y.is_finite()).then(|| KeypointMessage {
                x: rounded_pixels(f64::from(p.x)) as f32,
                y: rounded_pixels(f64::from(p.y)) as f32,
                score,
            })
        };
        Some(Self {
            class_id: detection.class_id,
            label,
            score: rounded_score(detection.score)?,
            bounds,
            keypoints: detection.keypoints.iter().map(keypoint).collect::<Option<_>>()?,
        })
    }
}

impl BoxMessage {
    /// Of x1, y1, x2, y2. The written numbers add up: `x + width` is the right edge's own rounded number, so that a box
    /// that ends at the frame's edge still does. (Numbers of three decimals below 16,384 are told apart by f32, so each
    /// prints as itself.)
    pub fn from_corners(corners: [f32; 4]) -> Self {
        let [x1, y1, x2, y2] = corners.map(|v| rounded_pixels(f64::from(v)));
        let size = |low: f64, high: f64| rounded_pixels((high - low).max(0.0)) as f32;
        Self { x: x1 as f32, y: y1 as f32, width: size(x1, x2), height: size(y1, y2) }
    }
}

/// The next message's id: sixteen hexadecimal digits that each start of a process draws at random, and a number that counts
/// its messages.
pub fn next_id() -> Box<str> {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Its keys come from the system's random numbers.
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    format!("{process:016x}-{}", COUNT.fetch_add(1, Ordering::Relaxed)).into()
}

/// RFC 3339 in UTC with nine decimals.
pub fn rfc3339(timestamp: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(timestamp.realtime_ns)) {
        Ok(instant) => format!("{instant:.9}"),
        // u64 nanoseconds end in 2554, jiff's instants in 9999.
        Err(_) => "1970-01-01T00:00:00.000000000Z".to_owned(),
    }
}

fn rounded_pixels(value: f64) -> f64 {
    // Adding 0.0 turns -0.0 into 0.0.
    (value * 1e3).round() / 1e3 + 0.0
}

fn rounded_score(value: f32) -> Option<f32> {
    value.is_finite().then(|| ((f64::from(value.clamp(0.0, 1.0)) * 1e4).round() / 1e4) as f32)
}

/// A message on its way, with the line that all sinks share.
#[derive(Debug)]
pub struct Published {
    message: Arc<Message>,
    line: OnceLock<Bytes>,
}

impl Published {
    /// A message whose line is not made yet.
    pub fn new(message: Arc<Message>) -> Self {
        Self { message, line: OnceLock::new() }
    }

    /// The JSON line with its line end, made by whoever asks first.
    pub fn line(&self) -> &Bytes {
        self.line.get_or_init(|| self.message.to_line().into())
    }

    /// The message.
    pub fn message(&self) -> &Arc<Message> {
        &self.message
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
