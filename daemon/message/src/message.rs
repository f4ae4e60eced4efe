//! The message with the detections of one frame, the same for every sink. `docs/message.schema.json` is its JSON schema.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::values::{AttributesMessage, DepthMessage, EmbeddingMessage, NUMBER_BYTES};

/// Version in the `schema` field of every message; raised by a change that breaks readers.
pub const SCHEMA: &str = "visiond/1";

/// The detections of one frame.
///
/// ```
/// use std::sync::Arc;
/// use visiond_message::{AttributesMessage, DetectionMessage, Message, MessageFrame, MessageModel, SCHEMA, Timings};
///
/// let person = DetectionMessage { label: "person".into(), score: 0.87, ..DetectionMessage::default() };
/// let message = Message {
///     schema: SCHEMA,
///     id: "5d0c9f3ab1e2774f-41".into(),
///     camera: "gate".into(),
///     topic: "gate".into(),
///     sequence: 41,
///     captured_at: "2026-05-04T09:30:00.123456789Z".to_owned(),
///     monotonic_ns: 83_123_456_789_012,
///     frame: MessageFrame { width: 1280, height: 720, format: "nv12", damaged: false, file: None },
///     model: Arc::new(MessageModel { name: "street".to_owned(), ..MessageModel::default() }),
///     timings_us: Timings::default(),
///     detections: vec![person],
///     attributes: AttributesMessage::default(),
///     embedding: None,
///     depth: None,
///     results: Vec::new(),
/// };
/// let line = String::from_utf8(message.to_line()).unwrap();
/// assert!(line.starts_with(r#"{"schema":"visiond/1","id":"5d0c9f3ab1e2774f-41","camera":"gate","sequence":41,"#));
/// assert!(line.contains(r#""detections":[{"class_id":0,"label":"person","score":0.87}]"#));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Unique id of the message, the same for every sink and retransmission.
    pub id: Box<str>,
    /// Name of the camera.
    pub camera: Arc<str>,
    /// The part of a topic that names the source of the message: the camera, `door`; for each model of the camera but the first
    /// also the model, `door/plates`. Not a part of the line.
    #[serde(skip)]
    pub topic: Arc<str>,
    /// Number of the frame from the source; gaps are frames without a message.
    pub sequence: u64,
    /// Time of the frame: RFC 3339, UTC, nanoseconds.
    pub captured_at: String,
    /// The same instant on CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Facts of the frame.
    pub frame: MessageFrame,
    /// Facts of the model.
    pub model: Arc<MessageModel>,
    /// Duration of each stage.
    pub timings_us: Timings,
    /// Detections, highest score first; for a class map of the frame, largest class first.
    pub detections: Vec<DetectionMessage>,
    /// Attributes of the whole frame, if the model has them.
    #[serde(skip_serializing_if = "AttributesMessage::is_empty")]
    pub attributes: AttributesMessage,
    /// The embedding of the whole frame, if the model outputs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingMessage>,
    /// Depth of the frame as a grid, if the model outputs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<DepthMessage>,
    /// The messages of which [`Message::joined`] made this one, in the order of the camera's models. The line has their models,
    /// durations and values as `models`.
    #[serde(rename = "models", serialize_with = "write_results", skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Arc<Message>>,
}

/// A model in a joined message. The values of the first one are those of the message.
#[derive(Serialize)]
struct ModelResult<'m> {
    #[serde(flatten)]
    model: &'m MessageModel,
    timings_us: Timings,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'m AttributesMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<&'m EmbeddingMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<&'m DepthMessage>,
}

fn write_results<S: Serializer>(results: &[Arc<Message>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(results.iter().enumerate().map(|(index, result)| ModelResult {
        model: &result.model,
        timings_us: result.timings_us,
        attributes: Some(&result.attributes).filter(|attributes| index > 0 && !attributes.is_empty()),
        embedding: result.embedding.as_ref().filter(|_| index > 0),
        depth: result.depth.as_ref().filter(|_| index > 0),
    }))
}

/// Facts of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageFrame {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pixel format, as in the configuration.
    pub format: &'static str,
    /// Whether the frame may show damage: with `damaged = "mark"`, after a loss, up to the next clean frame of the stream.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// Path of the file, for an image.
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
    /// Pairs of keypoints that a line connects, counted from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skeleton: Vec<[u32; 2]>,
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
    /// The oriented box, if the model outputs oriented boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oriented: Option<OrientedMessage>,
    /// Keypoints (landmarks of a face, joints of a body), if the model has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keypoints: Vec<KeypointMessage>,
    /// Part of the frame that the class covers, 0 to 1, if the model outputs a class for each pixel.
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
    /// Whether its mask is left out because the frame's masks are too large for a message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The track that it belongs to, if the camera tracks objects and this one has a track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<TrackMessage>,
    /// Attributes of the object, from models on its crop.
    #[serde(skip_serializing_if = "AttributesMessage::is_empty")]
    pub attributes: AttributesMessage,
    /// The embedding of the object, from a model on its crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingMessage>,
    /// Detections in the object, from models on its crop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub detections: Vec<DetectionMessage>,
    /// Name of the model that found it: in a joined message, and of a detection in an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

/// The track of a detection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TrackMessage {
    /// Its id, which no other track of any camera has while the daemon runs.
    pub id: u64,
    /// How sure it is that the track is an object.
    pub state: TrackMessageState,
    /// Milliseconds from its first detection to this one.
    pub age_ms: u64,
    /// x and y of the centre's velocity, in pixels of the source frame per second.
    pub velocity: [f32; 2],
}

/// How sure it is that a track is an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackMessageState {
    /// Seen once, with a score that is not high.
    Tentative,
    /// Seen twice, or once with a high score.
    Confirmed,
}

/// A box inside the source frame: top-left corner and size in its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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

/// An oriented box, in pixels of the source frame; may extend beyond it.
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

/// A mask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaskMessage {
    /// As COCO's run lengths.
    pub rle: RleMessage,
}

/// A mask as COCO's run lengths, which pycocotools reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RleMessage {
    /// Height and width of the frame.
    pub size: [u32; 2],
    /// The run lengths.
    pub counts: String,
}

/// Returns [`Message::topic`] of a camera's model.
pub fn topic(camera: &Arc<str>, model: &str, is_first: bool) -> Arc<str> {
    if is_first { Arc::clone(camera) } else { format!("{camera}/{model}").into() }
}

impl Message {
    /// Joins messages of several models about one frame, in the order of the camera's models: the detections of all, best score first,
    /// each with its model; otherwise the first message. Copies the detections, because the messages themselves stay readable for
    /// readers of one model.
    ///
    /// Returns `None` without a message.
    pub fn joined(results: Vec<Arc<Self>>) -> Option<Self> {
        let mut message = Self::clone(results.first()?);
        message.topic = Arc::clone(&message.camera);
        message.detections = Vec::with_capacity(results.iter().map(|result| result.detections.len()).sum());
        for result in &results {
            let model: Arc<str> = result.model.name.as_str().into();
            let named = |detection: &DetectionMessage| DetectionMessage {
                model: Some(Arc::clone(&model)),
                ..detection.clone()
            };
            message.detections.extend(result.detections.iter().map(named));
        }
        message.detections.sort_by(|a, b| b.score.total_cmp(&a.score));
        message.results = results;
        Some(message)
    }

    /// Returns how many detections have no mask because the frame's masks are too large for a message.
    pub fn truncated_masks(&self) -> usize {
        self.detections.iter().filter(|detection| detection.truncated).count()
    }

    /// Whether a model output values of the whole frame.
    pub fn has_values(&self) -> bool {
        let has =
            |message: &Self| !message.attributes.is_empty() || message.embedding.is_some() || message.depth.is_some();
        has(self) || self.results.iter().any(|result| has(result))
    }

    /// Whether no model found anything: there is no detection, and there are no values of the frame.
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

impl Message {
    /// Returns the approximate length of its line in bytes without writing it. Costs a few nanoseconds for each detection.
    pub(crate) fn about_bytes(&self) -> usize {
        let values = |message: &Self| {
            message.embedding.as_ref().map_or(0, EmbeddingMessage::about_bytes)
                + message.depth.as_ref().map_or(0, DepthMessage::about_bytes)
        };
        let results =
            self.results.len() * RESULT_BYTES + self.results.iter().skip(1).map(|result| values(result)).sum::<usize>();
        MESSAGE_BYTES
            + self.detections.iter().map(DetectionMessage::about_bytes).sum::<usize>()
            + values(self)
            + results
    }
}

impl DetectionMessage {
    fn about_bytes(&self) -> usize {
        DETECTION_BYTES
            + self.track.map_or(0, |_| TRACK_BYTES)
            + self.model.as_ref().map_or(0, |model| model.len() + MODEL_KEY_BYTES)
            + self.keypoints.len() * KEYPOINT_BYTES
            + mask_bytes(self.segments.as_deref(), self.mask.as_ref())
            + self.attributes.0.len() * ATTRIBUTE_BYTES
            + self.embedding.as_ref().map_or(0, EmbeddingMessage::about_bytes)
            + self.detections.iter().map(Self::about_bytes).sum::<usize>()
    }
}

/// The approximate bytes of JSON of a message without detections, of a detection, of its track, of a keypoint, of an attribute, of the
/// key and quotes of a detection's model, and of a model in a joined message.
const MESSAGE_BYTES: usize = 500;
const DETECTION_BYTES: usize = 160;
const TRACK_BYTES: usize = 80;
const KEYPOINT_BYTES: usize = 60;
const ATTRIBUTE_BYTES: usize = 60;
const MODEL_KEY_BYTES: usize = 11;
const RESULT_BYTES: usize = 200;

/// Returns the approximate bytes of a mask as JSON.
pub fn mask_bytes(segments: Option<&[Vec<f32>]>, mask: Option<&MaskMessage>) -> usize {
    let segments = segments.into_iter().flatten().map(|segment| segment.len() * NUMBER_BYTES + 2);
    segments.sum::<usize>() + mask.map_or(0, |mask| mask.rle.counts.len() + 50)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    #[test]
    fn the_document_names_every_field_of_the_schema() {
        let document = include_str!("../../../docs/message.md");
        let schema: Value = serde_json::from_str(include_str!("../../../docs/message.schema.json")).unwrap();
        fn names(schema: &Value, found: &mut Vec<String>) {
            if let Some(properties) = schema["properties"].as_object() {
                for (name, property) in properties {
                    found.push(name.clone());
                    names(property, found);
                }
            }
            for nested in ["items", "$defs", "detection"] {
                if schema[nested].is_object() {
                    names(&schema[nested], found);
                }
            }
        }
        let mut found = Vec::new();
        names(&schema, &mut found);
        assert!(found.len() > 25, "{found:?}");
        for name in found {
            let explained = ["`", "."].iter().any(|end| document.contains(&format!("{name}{end}")));
            assert!(explained, "docs/message.md does not explain {name}");
        }
    }
}
