//! A camera's state, which a broker retains: see docs/mqtt.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::message::Message;
use crate::status::{BundleStatus, CameraStatus, RuleStatus};
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
    /// Model that runs on its frames; of several their names, separated by commas.
    pub model: String,
    /// opening, streaming, waiting, failed, ended or disabled.
    pub phase: String,
    /// Why it does not stream, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Messages of the first model per second over the last five seconds.
    pub fps: f64,
    /// Whether there was a recent detection, of any model.
    pub occupied: bool,
    /// Detections of the first model in the newest frame.
    pub detections: u64,
    /// The same by label.
    pub counts: BTreeMap<Arc<str>, u64>,
    /// The part of the frame that each class covers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fractions: BTreeMap<String, f32>,
    /// Attributes of the newest frame.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, PlainAttribute>,
    /// The camera's models but the first; empty if there is only one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ModelStateMessage>,
    /// Crossings of each line so far, by the side that they went to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lines: BTreeMap<String, BTreeMap<String, u64>>,
    /// The camera's zones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<String, ZoneStateMessage>,
    /// The bundles that its models are, by the model's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bundles: BTreeMap<String, BundleStatus>,
    /// The settings that commands change, if the sink obeys commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsMessage>,
}

/// The settings of a camera that commands change.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SettingsMessage {
    /// Whether the camera runs.
    pub enabled: bool,
    /// The least score of its detections; 0 if it adds no limit to those of its models.
    pub score_threshold: f64,
    /// Its lines and zones by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, RuleSettingsMessage>,
}

/// The settings of a line or zone that commands change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RuleSettingsMessage {
    /// Whether it counts or reports.
    pub enabled: bool,
    /// The least score of the objects that it sees.
    pub min_score: f64,
}

/// A zone at the newest frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ZoneStateMessage {
    /// Objects in it.
    pub inside: u32,
    /// Its events by kind.
    pub events: BTreeMap<String, ZoneEventsMessage>,
}

/// A zone's events of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ZoneEventsMessage {
    /// Events so far.
    pub begun: u64,
    /// Events under way.
    pub under_way: u32,
}

/// The newest result of one of a camera's further models.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelStateMessage {
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

impl ModelStateMessage {
    fn new(newest: Option<&Message>) -> Self {
        let Some(message) = newest else { return Self::default() };
        let mut counts = BTreeMap::new();
        for detection in &message.detections {
            *counts.entry(Arc::clone(&detection.label)).or_insert(0) += 1;
        }
        let mut of_frame = CameraStatus::default();
        of_frame.add_newest(message);
        let CameraStatus { fractions, attributes, .. } = of_frame;
        Self { detections: message.detections.len() as u64, counts, fractions, attributes }
    }
}

impl StateMessage {
    /// Makes the state of a camera from its status and the newest message of each of its models.
    pub fn new(status: CameraStatus, newest: &[&Message], occupied: bool) -> Self {
        let of_first = newest.iter().find(|message| message.topic == message.camera);
        let ModelStateMessage { detections, counts, fractions, attributes } = ModelStateMessage::new(of_first.copied());
        let further = status.models.iter().skip(1).map(|model| {
            let own = newest.iter().find(|message| message.model.name == model.name);
            (model.name.clone(), ModelStateMessage::new(own.copied()))
        });
        let (mut lines, mut zones) = (BTreeMap::new(), BTreeMap::<_, ZoneStateMessage>::new());
        for RuleStatus { name, kind, begun, crossed_to, inside, under_way } in status.rules {
            match inside {
                Some(inside) => {
                    // The first rule of a zone has the zone's own classes, if any does: belongings have theirs.
                    let zone =
                        zones.entry(name).or_insert_with(|| ZoneStateMessage { inside, ..ZoneStateMessage::default() });
                    zone.events.insert(kind, ZoneEventsMessage { begun, under_way });
                }
                None => drop(lines.insert(name, crossed_to)),
            }
        }
        Self {
            schema: SCHEMA,
            lines,
            zones,
            models: further.collect(),
            fps: status.models.first().map_or(status.fps, |first| first.fps),
            camera: status.name,
            model: status.model,
            phase: status.phase,
            reason: status.reason,
            occupied,
            detections,
            counts,
            fractions,
            attributes,
            bundles: BTreeMap::new(),
            settings: None,
        }
    }
}
