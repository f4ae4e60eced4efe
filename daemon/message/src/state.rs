//! A camera's state, which a broker retains: see docs/mqtt.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::message::Message;
use crate::status::CameraStatus;
use crate::values::PlainAttribute;

/// The version in every state's `schema`; a change that breaks readers raises it.
const SCHEMA: &str = "visiond-state/1";

/// A camera's state. `docs/state.schema.json` is its JSON schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StateMessage {
    /// Always the same.
    pub schema: &'static str,
    /// Name of the camera.
    pub camera: String,
    /// Model that runs on its frames.
    pub model: String,
    /// opening, streaming, waiting, failed or ended.
    pub phase: String,
    /// Why it does not stream, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Messages per second over the last five seconds.
    pub fps: f64,
    /// Whether there was a recent detection.
    pub occupied: bool,
    /// Detections in the newest frame.
    pub detections: u64,
    /// The same by label.
    pub counts: BTreeMap<Arc<str>, u64>,
    /// The part of the frame that each class covers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fractions: BTreeMap<String, f32>,
    /// Attributes of the newest frame.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, PlainAttribute>,
}

impl StateMessage {
    /// Makes the state of a camera from its status, after this newest message was added to the status.
    pub fn new(status: CameraStatus, newest: Option<&Message>, occupied: bool) -> Self {
        let mut counts = BTreeMap::new();
        for detection in newest.iter().flat_map(|message| &message.detections) {
            *counts.entry(Arc::clone(&detection.label)).or_insert(0) += 1;
        }
        let CameraStatus { name, model, phase, reason, fps, fractions, attributes, .. } = status;
        let detections = newest.map_or(0, |message| message.detections.len() as u64);
        Self {
            schema: SCHEMA,
            camera: name,
            model,
            phase,
            reason,
            fps,
            occupied,
            detections,
            counts,
            fractions,
            attributes,
        }
    }
}
