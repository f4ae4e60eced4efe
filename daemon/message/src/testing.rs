//! Messages for tests.

use std::sync::Arc;

use crate::message::{
    BoxMessage, DetectionMessage, MaskMessage, Message, MessageFrame, MessageModel, RleMessage, SCHEMA, Timings,
};
use crate::values::AttributesMessage;

/// Returns a message with one detection per label.
pub fn message(camera: &str, labels: &[&str]) -> Message {
    let detection = |label: &&str| DetectionMessage {
        class_id: 0,
        label: Arc::from(*label),
        score: 0.5,
        ..DetectionMessage::default()
    };
    Message {
        schema: SCHEMA,
        id: "0123456789abcdef-0".into(),
        camera: camera.into(),
        topic: camera.into(),
        sequence: 0,
        captured_at: String::new(),
        monotonic_ns: 0,
        frame: MessageFrame { width: 1, height: 1, format: "grey", damaged: false, file: None },
        model: model("fake"),
        timings_us: Timings { total: 1_000, ..Timings::default() },
        detections: labels.iter().map(detection).collect(),
        attributes: AttributesMessage::default(),
        embedding: None,
        depth: None,
        results: Vec::new(),
    }
}

/// Returns message `sequence` of camera `door`, with this number of person detections.
pub fn door_message(sequence: u64, detections: usize) -> Arc<Message> {
    let detection = DetectionMessage {
        class_id: 0,
        label: "person".into(),
        score: 0.875,
        bounds: Some(BoxMessage { x: 1.0, y: 2.0, width: 30.5, height: 60.25 }),
        ..DetectionMessage::default()
    };
    Arc::new(Message {
        schema: SCHEMA,
        id: "0123456789abcdef-1".into(),
        camera: "door".into(),
        topic: "door".into(),
        sequence,
        captured_at: "2025-01-01T00:00:00.000000000Z".into(),
        monotonic_ns: sequence * 1_000_000,
        frame: MessageFrame { width: 640, height: 480, format: "rgb", damaged: false, file: None },
        model: model("m"),
        timings_us: Timings::default(),
        detections: vec![detection; detections],
        attributes: AttributesMessage::default(),
        embedding: None,
        depth: None,
        results: Vec::new(),
    })
}

/// Returns a model of this name that does not exist.
pub fn model(name: &str) -> Arc<MessageModel> {
    Arc::new(MessageModel { name: name.into(), sha256: "0".repeat(64), ..MessageModel::default() })
}

/// A message whose line is longer than a small one by about this many bytes, as with a large mask.
pub fn sized_message(camera: &str, sequence: u64, bytes: usize) -> Arc<Message> {
    let rle = RleMessage { size: [1, 1], counts: "0".repeat(bytes) };
    let detection = DetectionMessage { mask: Some(MaskMessage { rle }), ..DetectionMessage::default() };
    let message = Arc::unwrap_or_clone(door_message(sequence, 0));
    Arc::new(Message { camera: camera.into(), topic: camera.into(), detections: vec![detection], ..message })
}
