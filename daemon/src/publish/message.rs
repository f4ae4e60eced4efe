//! The message: one frame's detections, as every sink sends them. `docs/message.schema.json` says the same to machines.

use std::sync::Arc;

use serde::Serialize;

/// The version in every message's `schema`; a change that breaks readers raises it.
pub const SCHEMA: &str = "visiond/1";

/// One frame's detections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// [`SCHEMA`].
    pub schema: &'static str,
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
