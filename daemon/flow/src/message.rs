//! The message with the detections of one frame, the same for every sink. `docs/message.schema.json` is its JSON schema.

mod masks;
mod rounding;
mod values;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use serde::Serialize;
use visiond_engine::detector::Detection;
use visiond_engine::heads::spec::{AttributeKind, AttributeSpec};
use visiond_engine::heads::{Family, FrameValues, HeadSpec};
use visiond_kernels::oriented::OrientedBox;

use self::masks::MaskWriter;
pub use self::masks::{MaskFacts, MaskMessage, RleMessage};
use self::rounding::{rounded_part, rounded_pixels, rounded_score};
pub use self::values::{
    AttributeMessage, AttributesMessage, DepthMessage, EmbeddingMessage, LabelMessage, PlainAttribute,
};
use crate::frame::Frame;
use crate::timestamp::Timestamp;

/// Version in the `schema` field of every message; raised by a change that breaks readers.
pub const SCHEMA: &str = "visiond/1";

/// The detections of one frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Unique id of the message, the same for every sink and retransmission.
    pub id: Box<str>,
    /// Name of the camera.
    pub camera: Arc<str>,
    /// Number of the frame from the source; gaps are frames without a message.
    pub sequence: u64,
    /// Time of the frame: RFC 3339, UTC, nanoseconds.
    pub captured_at: String,
    /// The same instant on CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Facts of the frame.
    pub frame: FrameFacts,
    /// Facts of the model.
    pub model: Arc<MessageModel>,
    /// Duration of each stage.
    pub timings_us: Timings,
    /// Detections, highest score first; classes of a map of the frame: largest first.
    pub detections: Vec<DetectionMessage>,
    /// Attributes of the whole frame, if the model has them.
    #[serde(skip_serializing_if = "AttributesMessage::is_empty")]
    pub attributes: AttributesMessage,
    /// The embedding of the whole frame, if the model gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingMessage>,
    /// Depth of the frame as a grid, if the model gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<DepthMessage>,
}

/// Facts of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameFacts {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format, as in the configuration.
    pub format: &'static str,
    /// Whether the frame may show damage: with `damaged = "mark"`, after a loss, up to the next clean picture of the stream.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// Path of the file, for a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
}

/// Facts of the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MessageModel {
    /// Name in the configuration.
    pub name: String,
    /// SHA-256 of the model's file.
    pub sha256: String,
    /// The forms of its masks in messages.
    #[serde(skip)]
    pub masks: MaskFacts,
    /// Pairs of keypoints that a line connects, counted from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skeleton: Vec<[u32; 2]>,
    /// Names of the keypoints, which each keypoint has.
    #[serde(skip)]
    pub keypoint_names: Vec<Arc<str>>,
    /// What it gives besides detections.
    #[serde(skip)]
    pub values: ModelValues,
}

/// What a model gives besides detections, by its card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelValues {
    /// The attributes by name, and whether they are numbers.
    pub attributes: Vec<(Arc<str>, bool)>,
    /// Whether each class covers a part of the frame.
    pub fractions: bool,
}

impl ModelValues {
    /// Reads a card's head.
    pub fn of(head: &HeadSpec) -> Self {
        let attributes = match head {
            HeadSpec::Attributes(attributes) => attributes.as_slice(),
            _ => &[],
        };
        let is_number = |attribute: &AttributeSpec| matches!(attribute.kind, AttributeKind::Number { .. });
        Self {
            attributes: attributes.iter().map(|one| (one.name.as_str().into(), is_number(one))).collect(),
            fractions: head.family() == Family::Semantic,
        }
    }
}

/// Duration of each stage, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Timings {
    /// From the timestamp of the frame to its arrival in the inbox.
    pub capture: u64,
    /// Waiting in the inbox.
    pub queue: u64,
    /// From frame to tensor.
    pub preprocess: u64,
    /// The inference.
    pub infer: u64,
    /// From raw outputs to detections.
    pub postprocess: u64,
    /// From the timestamp of the frame to publishing.
    pub total: u64,
}

/// One detection.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DetectionMessage {
    /// Class index, from 0.
    pub class_id: u32,
    /// Name of the class; its index if the model card has no names.
    pub label: Arc<str>,
    /// Score from 0 to 1.
    pub score: f32,
    /// Box in pixels of the source frame; absent for classifiers.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoxMessage>,
    /// The turned box, if the model turns its boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oriented: Option<OrientedMessage>,
    /// Keypoints (landmarks of a face, joints of a body), if the model has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keypoints: Vec<KeypointMessage>,
    /// Part of the frame that the class covers, 0 to 1, if the model gives a class for each pixel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f32>,
    /// Number of pixels of its mask, if the model has masks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area: Option<u64>,
    /// Outlines of its mask, each x, y, x, y, ...; the even-odd rule fills the mask, holes included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<Vec<f32>>>,
    /// Its mask in other forms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<MaskMessage>,
    /// Whether its mask is left out, because the frame's masks are too much for a message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A box inside the source frame: top-left corner and size in its pixels.
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

/// A turned box, in pixels of the source frame; may reach out of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OrientedMessage {
    /// Horizontal position of the centre.
    pub x: f32,
    /// Vertical position of the centre.
    pub y: f32,
    /// Length of the sides that lie along the x axis at angle 0.
    pub width: f32,
    /// Length of the other sides.
    pub height: f32,
    /// In radians, clockwise on the screen, from 0 to below a quarter of a turn.
    pub angle: f32,
    /// x and y of the corners, clockwise on the screen.
    pub corners: [[f32; 2]; 4],
}

/// A keypoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeypointMessage {
    /// Name, if the model card has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Horizontal position in pixels of the source frame.
    pub x: f32,
    /// Vertical position in pixels of the source frame.
    pub y: f32,
    /// Score from 0 to 1, if the model has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
}

impl Message {
    /// Builds the message for the detections of a frame. `label` returns the name of a class.
    pub fn new(
        camera: &Arc<str>,
        model: &Arc<MessageModel>,
        frame: &Frame,
        timings_us: Timings,
        detections: &[Detection],
        label: impl Fn(u32) -> Arc<str>,
    ) -> Self {
        let mut message = Self {
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
                damaged: frame.damaged,
                file: frame.name.clone(),
            },
            model: Arc::clone(model),
            timings_us,
            detections: Vec::new(),
            attributes: AttributesMessage::default(),
            embedding: None,
            depth: None,
        };
        message.set_detections(detections, label);
        message
    }

    /// Replaces the detections by these. `label` returns the name of a class.
    pub fn set_detections(&mut self, detections: &[Detection], label: impl Fn(u32) -> Arc<str>) {
        let mut masks = MaskWriter::new(self.model.masks, [self.frame.width, self.frame.height]);
        let message_of = |detection: &Detection| {
            let mut message = DetectionMessage::new(detection, label(detection.class_id), &self.model.keypoint_names)?;
            if let Some(mask) = &detection.mask {
                message.area = Some(mask.area());
                let written = masks.write(mask);
                (message.segments, message.mask, message.truncated) =
                    (written.segments, written.mask, written.truncated);
            }
            Some(message)
        };
        self.detections = detections.iter().filter_map(message_of).collect();
    }

    /// Replaces the values of the whole frame by these.
    pub fn set_values(&mut self, values: &FrameValues) {
        self.attributes = AttributesMessage::new(&values.attributes);
        self.embedding = EmbeddingMessage::new(values);
        self.depth = DepthMessage::new(&values.depth);
    }

    /// Returns how many detections have no mask because the frame's masks are too much for a message.
    pub fn truncated_masks(&self) -> usize {
        self.detections.iter().filter(|detection| detection.truncated).count()
    }

    /// Whether the model gave values of the whole frame.
    pub fn has_values(&self) -> bool {
        !self.attributes.is_empty() || self.embedding.is_some() || self.depth.is_some()
    }

    /// Whether the model found nothing: there is no detection, and there are no values of the frame.
    pub fn is_empty(&self) -> bool {
        self.detections.is_empty() && !self.has_values()
    }

    /// Returns the message as one line of JSON, with its line end.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.about_bytes());
        #[expect(
            clippy::expect_used,
            reason = "the message has no map with non-string keys and no fallible Serialize, and writing to a Vec cannot fail"
        )]
        serde_json::to_writer(&mut line, self).expect("a message is always JSON");
        line.push(b'\n');
        line
    }
}

impl DetectionMessage {
    /// Rounds a detection for the message: scores to 4 decimals, pixels to 3, fractions of the frame to 6. `None` if a number is
    /// NaN or infinite, which JSON cannot represent.
    pub fn new(detection: &Detection, label: Arc<str>, keypoint_names: &[Arc<str>]) -> Option<Self> {
        let bounds = match detection.box_in_source {
            None => None,
            Some(corners) if corners.iter().all(|v| v.is_finite()) => Some(BoxMessage::from_corners(corners)),
            Some(_) => return None,
        };
        let oriented = match &detection.oriented {
            None => None,
            Some(turned) => Some(OrientedMessage::new(turned)?),
        };
        let keypoint = |(index, p): (usize, &visiond_engine::detector::Keypoint)| {
            let score = match p.score {
                None => None,
                Some(score) => Some(rounded_score(score)?),
            };
            (p.x.is_finite() && p.y.is_finite()).then(|| KeypointMessage {
                name: keypoint_names.get(index).cloned(),
                x: rounded_pixels(f64::from(p.x)) as f32,
                y: rounded_pixels(f64::from(p.y)) as f32,
                score,
            })
        };
        let fraction = match detection.fraction {
            None => None,
            Some(fraction) => Some(rounded_part(fraction, 1e6)?),
        };
        Some(Self {
            class_id: detection.class_id,
            label,
            score: rounded_score(detection.score)?,
            bounds,
            oriented,
            fraction,
            keypoints: detection.keypoints.iter().enumerate().map(keypoint).collect::<Option<_>>()?,
            ..Self::default()
        })
    }
}

impl BoxMessage {
    /// Returns the box of the corners x1, y1, x2, y2. The printed numbers add up: `x + width` is the rounded right edge, so a box
    /// that ends at the edge of the frame still does. (f32 distinguishes numbers of three decimals below 16,384.)
    pub fn from_corners(corners: [f32; 4]) -> Self {
        let [x1, y1, x2, y2] = corners.map(|v| rounded_pixels(f64::from(v)));
        let size = |low: f64, high: f64| rounded_pixels((high - low).max(0.0)) as f32;
        Self { x: x1 as f32, y: y1 as f32, width: size(x1, x2), height: size(y1, y2) }
    }
}

impl OrientedMessage {
    /// Rounds a box for the message: pixels to 3 decimals, the angle to 5, so that even at the end of 4000 pixels it is off by
    /// less than a twentieth of a pixel. `None` if a number is not finite.
    fn new(turned: &OrientedBox) -> Option<Self> {
        let turned = turned.regularized();
        let pixels = |v: f32| rounded_pixels(f64::from(v)) as f32;
        let corners = turned.corners();
        let is_finite = turned.is_finite() && corners.iter().flatten().all(|v| v.is_finite());
        let ([x, y], [width, height]) = (turned.center.map(pixels), turned.size.map(pixels));
        let angle = ((f64::from(turned.angle) * 1e5).round() / 1e5) as f32;
        is_finite.then(|| Self { x, y, width, height, angle, corners: corners.map(|corner| corner.map(pixels)) })
    }
}

/// Returns the next message id: sixteen hexadecimal digits, random for each process, and the number of the message.
pub fn next_id() -> Box<str> {
    // The keys of RandomState come from the system's random numbers.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}-{}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Formats a time as RFC 3339 in UTC with nine decimals.
pub fn rfc3339(timestamp: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(timestamp.realtime_ns)) {
        Ok(instant) => format!("{instant:.9}"),
        // Cannot happen: u64 nanoseconds end in 2554, jiff's instants in 9999.
        Err(_) => "1970-01-01T00:00:00.000000000Z".to_owned(),
    }
}

impl Message {
    /// Returns about how many bytes its line has, without writing it. Costs a few nanoseconds for each detection.
    fn about_bytes(&self) -> usize {
        let of_detection = |detection: &DetectionMessage| {
            DETECTION_BYTES
                + detection.keypoints.len() * KEYPOINT_BYTES
                + masks::about_bytes(detection.segments.as_deref(), detection.mask.as_ref())
        };
        let embedding = self.embedding.as_ref().map_or(0, EmbeddingMessage::about_bytes);
        let depth = self.depth.as_ref().map_or(0, DepthMessage::about_bytes);
        MESSAGE_BYTES + self.detections.iter().map(of_detection).sum::<usize>() + embedding + depth
    }
}

/// About how many bytes a message without detections has as JSON, a detection, and a keypoint.
const MESSAGE_BYTES: usize = 500;
const DETECTION_BYTES: usize = 160;
const KEYPOINT_BYTES: usize = 60;

/// A message to publish, with the line that all sinks share.
#[derive(Debug)]
pub struct Published {
    message: Arc<Message>,
    about_bytes: usize,
    line: OnceLock<Bytes>,
}

impl Published {
    /// Wraps a message; its line is not serialized yet.
    pub fn new(message: Arc<Message>) -> Self {
        let about_bytes = message.about_bytes();
        Self { message, about_bytes, line: OnceLock::new() }
    }

    /// Returns about how many bytes the line has; always the same, whether it is serialized or not.
    pub fn about_bytes(&self) -> usize {
        self.about_bytes
    }

    /// Returns the JSON line with its line end. The first caller serializes it.
    pub fn line(&self) -> &Bytes {
        self.line.get_or_init(|| self.message.to_line().into())
    }

    /// Returns the message.
    pub fn message(&self) -> &Arc<Message> {
        &self.message
    }
}

#[cfg(test)]
mod tests;
