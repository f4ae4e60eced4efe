//! An event that is under way, and its end after a crash.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use visiond_message::{EVENT_SCHEMA, EventMessage, EventPhase, EventTotals, RuleTotals, event_topic, next_message_id};

/// An event that is under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenEvent {
    pub event: Box<str>,
    pub camera: Arc<str>,
    pub rule: Arc<str>,
    pub kind: Box<str>,
    at: String,
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    track: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<Arc<str>>,
}

impl OpenEvent {
    /// Returns the event that a message is about.
    pub fn of(event: &EventMessage) -> Self {
        Self {
            event: event.event.clone(),
            camera: Arc::clone(&event.camera),
            rule: Arc::clone(&event.rule),
            kind: event.kind.clone(),
            at: event.at.clone(),
            sequence: event.sequence,
            track: event.track,
            label: event.label.clone(),
            image: event.image.clone(),
        }
    }

    /// Returns its end at the time `now`, and the totals with it. Nothing is known of the time since its last message, and a clip under way
    /// is lost with the process.
    pub fn end(self, now: &str, totals: &mut RuleTotals) -> EventMessage {
        totals.ended += 1;
        EventMessage {
            schema: EVENT_SCHEMA,
            id: next_message_id(),
            event: self.event,
            topic: event_topic(&self.camera),
            camera: self.camera,
            rule: self.rule,
            kind: self.kind,
            phase: EventPhase::End,
            at: now.to_owned(),
            since: self.at,
            sequence: self.sequence,
            track: self.track,
            label: self.label,
            image: self.image,
            reason: Some("restart".into()),
            totals: Some(EventTotals { begun: totals.begun, inside: Some(0) }),
            ..EventMessage::default()
        }
    }
}
