//! The message of an event, the same for every sink. `docs/event.schema.json` is its JSON schema.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::BoxMessage;
use crate::values::{NUMBER_BYTES, PlainAttribute};

/// Version in the `schema` field of every event; raised by a change that breaks readers.
pub const EVENT_SCHEMA: &str = "visiond-event/1";

/// Follows the camera in the topic of its events. No name has this character.
const MARK: &str = "!events";

/// Returns the part of a topic that names a camera's events.
pub fn event_topic(camera: &str) -> Arc<str> {
    format!("{camera}{MARK}").into()
}

/// Returns what a topic has, for the log: `messages of camera door`, `events of camera door`.
pub fn describe_topic(topic: &str) -> String {
    match camera_of_events(topic) {
        Some(camera) => format!("events of camera {camera}"),
        None => format!("messages of camera {topic}"),
    }
}

/// Returns the camera of a topic of events; `None` for a topic of frames.
pub fn camera_of_events(topic: &str) -> Option<&str> {
    topic.strip_suffix(MARK)
}

/// Something that a zone or line of a camera found.
///
/// ```
/// use visiond_message::{EventMessage, EventPhase, EVENT_SCHEMA, event_topic};
///
/// let event = EventMessage {
///     schema: EVENT_SCHEMA,
///     id: "5d0c9f3ab1e2774f-812".into(),
///     event: "5d0c9f3ab1e2774f-e7".into(),
///     camera: "gate".into(),
///     topic: event_topic("gate"),
///     rule: "door".into(),
///     kind: "line".into(),
///     phase: EventPhase::Moment,
///     at: "2026-05-04T09:30:00.123456789Z".to_owned(),
///     since: "2026-05-04T09:30:00.083456789Z".to_owned(),
///     sequence: 41,
///     to: Some("shop".into()),
///     ..EventMessage::default()
/// };
/// let line = String::from_utf8(event.to_line()).unwrap();
/// assert!(line.starts_with(r#"{"schema":"visiond-event/1","id":"5d0c9f3ab1e2774f-812","event":"5d0c9f3ab1e2774f-e7","camera":"gate","#));
/// assert!(line.ends_with("\"to\":\"shop\"}\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EventMessage {
    /// Always [`EVENT_SCHEMA`].
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// Unique id of the message, the same for every sink and retransmission.
    pub id: Box<str>,
    /// Id of the event: the same for its begin, its updates and its end, which no other event has.
    pub event: Box<str>,
    /// Name of the camera.
    pub camera: Arc<str>,
    /// See [`event_topic`]. Not a part of the line.
    #[serde(skip)]
    pub topic: Arc<str>,
    /// Name of the zone or line.
    pub rule: Arc<str>,
    /// What it looks for: `line`, `zone`, `dwell` and so on.
    pub kind: Box<str>,
    /// Where in its life the event is.
    pub phase: EventPhase,
    /// Time of the frame with which it was decided: RFC 3339, UTC, nanoseconds.
    pub at: String,
    /// When what it reports began or, at the end, was over.
    pub since: String,
    /// Number of the frame with which it was decided.
    pub sequence: u64,
    /// Id of the track that it is about; a count has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<u64>,
    /// Label of the object, if it is in the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// Score of the object, 0 to 1, if it is in the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// Box of the object, if it is in the frame.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoxMessage>,
    /// Name of the image file in the folder of `[camera.annotate]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Arc<str>>,
    /// Name of the video file in the folder of `[camera.clips]`, which is there once it is finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Arc<str>>,
    /// Attributes of the object by models on its box, without scores: those of the frame, or at the end the last ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, PlainAttribute>,
    /// At the end of an object's event, the way of its anchor since the begin, in pixels of the frame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<[f32; 2]>,
    /// The number of objects in the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The speed of the object at the begin of its event, in km/h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_kmh: Option<f32>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// The side of the line that was crossed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Arc<str>>,
    /// Totals of the rule after this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<EventTotals>,
}

/// Totals of a rule in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventTotals {
    /// Events that began; of a line, crossings to the side of the event.
    pub begun: u64,
    /// Objects in the zone now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<u32>,
}

/// All totals of a rule since it was added. They go down only when they are reset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleTotals {
    /// Events that began.
    pub begun: u64,
    /// Events that ended.
    pub ended: u64,
    /// Objects that were taken away.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u64,
    /// Crossings to each side of a line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crossed_to: BTreeMap<Arc<str>, u64>,
    /// The day that they are of, if they are reset: days since 1970, in local time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<i64>,
}

impl RuleTotals {
    /// Returns the larger of each total, and the day of the other ones if they have one.
    #[must_use]
    pub fn larger(&self, other: &Self) -> Self {
        let mut crossed_to = self.crossed_to.clone();
        for (side, crossed) in &other.crossed_to {
            let known = crossed_to.entry(Arc::clone(side)).or_default();
            *known = (*known).max(*crossed);
        }
        let (begun, ended) = (self.begun.max(other.begun), self.ended.max(other.ended));
        Self { begun, ended, taken: self.taken.max(other.taken), crossed_to, day: other.day.or(self.day) }
    }

    /// Returns the sum of each total, and the day of these if they have one.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut crossed_to = self.crossed_to.clone();
        for (side, crossed) in &other.crossed_to {
            *crossed_to.entry(Arc::clone(side)).or_default() += crossed;
        }
        let (begun, ended) = (self.begun + other.begun, self.ended + other.ended);
        Self { begun, ended, taken: self.taken + other.taken, crossed_to, day: self.day.or(other.day) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where in its life an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventPhase {
    /// It begins. An end with the same id follows.
    #[default]
    Begin,
    /// Its count or its track has changed.
    Update,
    /// It is over.
    End,
    /// It has no duration.
    Moment,
}

impl EventMessage {
    /// Returns the JSON with a line end.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.about_bytes());
        #[expect(
            clippy::expect_used,
            reason = "all keys are strings, no Serialize of it fails, and writing to a Vec cannot fail"
        )]
        serde_json::to_writer(&mut line, self).expect("an event is always JSON");
        line.push(b'\n');
        line
    }

    /// The approximate bytes of its JSON.
    pub(crate) fn about_bytes(&self) -> usize {
        let text = |value: &PlainAttribute| match value {
            PlainAttribute::Text(text) => text.len(),
            PlainAttribute::Number(_) => NUMBER_BYTES,
        };
        let attributes: usize = self.attributes.iter().map(|(name, value)| name.len() + text(value) + 6).sum();
        EVENT_BYTES + attributes + self.path.len() * (2 * NUMBER_BYTES + 4)
    }
}

fn schema() -> &'static str {
    EVENT_SCHEMA
}

/// The approximate bytes of an event as JSON, without attributes and path.
const EVENT_BYTES: usize = 420;
