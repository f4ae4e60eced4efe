//! A camera's state: published when it has changed, and no more often than the configured interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use visiond_flow::message::{Message, PlainAttribute};
use visiond_flow::metrics::{CameraMetrics, Phase};

/// The version in every state's `schema`; a change that breaks readers raises it.
const SCHEMA: &str = "visiond-state/1";
/// A frame rate that differs by less counts as unchanged for [`RATE_WAIT`].
const RATE_STEP: f64 = 0.5;
const RATE_WAIT: Duration = Duration::from_secs(10);

/// A camera's state, published as JSON: see docs/mqtt.md.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StateMessage {
    schema: &'static str,
    camera: Arc<str>,
    model: Arc<str>,
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    fps: f64,
    occupied: bool,
    detections: u64,
    counts: BTreeMap<Arc<str>, u64>,
    /// The part of the frame that each class covers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fractions: BTreeMap<Arc<str>, f32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<Arc<str>, PlainAttribute>,
}

/// The sink's knowledge about one camera.
#[derive(Debug, Default)]
pub struct StateTracker {
    /// The counter's value at the last update.
    detections: Option<u64>,
    seen: Option<Instant>,
    published: Option<(StateMessage, Instant)>,
}

impl StateTracker {
    /// Returns the camera's current state. A detection makes it occupied for `hold`.
    pub fn look(
        &mut self,
        camera: &CameraMetrics,
        model: &Arc<str>,
        latest: Option<&Message>,
        hold: Duration,
        now: Instant,
    ) -> StateMessage {
        let phase = camera.phase();
        // The newest message of a camera that is away is an old one.
        let latest = latest.filter(|_| phase == Phase::Streaming);
        let total = camera.detections.get();
        // Detections from before this sink do not count.
        let new = self.detections.replace(total).is_some_and(|before| total > before);
        if new || latest.is_some_and(|message| !message.detections.is_empty()) {
            self.seen = Some(now);
        }
        let (mut counts, mut fractions) = (BTreeMap::new(), BTreeMap::new());
        for detection in latest.iter().flat_map(|message| &message.detections) {
            *counts.entry(Arc::clone(&detection.label)).or_insert(0) += 1;
            if let Some(fraction) = detection.fraction {
                fractions.insert(Arc::clone(&detection.label), fraction);
            }
        }
        let attributes = latest.iter().flat_map(|message| &message.attributes.0);
        StateMessage {
            schema: SCHEMA,
            camera: Arc::clone(&camera.name),
            model: Arc::clone(model),
            phase: phase.name(),
            reason: if phase == Phase::Streaming { None } else { camera.snapshot().reason },
            fps: to_tenths(camera.fps()),
            occupied: self.seen.is_some_and(|seen| now.saturating_duration_since(seen) <= hold),
            detections: latest.map_or(0, |message| message.detections.len() as u64),
            counts,
            fractions,
            attributes: attributes.map(|(name, attribute)| (Arc::clone(name), attribute.into())).collect(),
        }
    }

    /// Whether to publish `state`, at the earliest `interval` after the last one. If so, it counts as published.
    pub fn due(&mut self, state: &StateMessage, interval: Duration, now: Instant) -> bool {
        let due = self.published.as_ref().is_none_or(|(before, at)| {
            let since = now.saturating_duration_since(*at);
            since >= interval && differs(before, state, since)
        });
        if due {
            self.published = Some((state.clone(), now));
        }
        due
    }

    /// Forgets what was published, for a new session.
    pub fn forget(&mut self) {
        self.published = None;
    }
}

fn to_tenths(fps: f64) -> f64 {
    (fps * 10.0).round() / 10.0
}

fn differs(before: &StateMessage, now: &StateMessage, since: Duration) -> bool {
    let rate = (before.fps - now.fps).abs();
    let same_rate = rate == 0.0 || (rate < RATE_STEP && since < RATE_WAIT);
    !same_rate || StateMessage { fps: now.fps, ..before.clone() } != *now
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};
    use visiond_flow::message::{AttributeMessage, LabelMessage};
    use visiond_system::testing::strict_schema;

    use super::*;
    use visiond_flow::testing::door_message as message;

    /// A message with detections of these labels.
    fn message_of(sequence: u64, labels: &[&str]) -> Message {
        let mut message = Message::clone(&message(sequence, labels.len()));
        for (detection, label) in message.detections.iter_mut().zip(labels) {
            detection.label = (*label).into();
        }
        message
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_camera_is_occupied_for_a_while_after_what_was_seen() {
        let (camera, model) = (CameraMetrics::new("door".into()), "objects".into());
        camera.enter(Phase::Streaming);
        let (mut tracker, start) = (StateTracker::default(), Instant::now());
        let mut look = |message: Option<&Message>, at: u32| {
            tracker.look(&camera, &model, message, 5 * SECOND, start + at * SECOND)
        };
        assert!(!look(None, 0).occupied);
        let person = message_of(1, &["person", "dog", "person"]);
        camera.count_published(&person);
        // Seen between two updates; the newest message has nothing.
        let nothing = message_of(2, &[]);
        let state = look(Some(&nothing), 1);
        assert!(state.occupied && state.counts.is_empty());
        assert!(look(Some(&nothing), 6).occupied);
        assert!(!look(Some(&nothing), 7).occupied);
        let state = look(Some(&person), 8);
        assert_eq!((state.detections, state.counts.get("person"), state.counts.get("dog")), (3, Some(&2), Some(&1)));
        camera.enter(Phase::Waiting);
        camera.set_reason(Some("unplugged".into()));
        let state = look(Some(&person), 20);
        assert_eq!((state.detections, state.occupied, state.reason.as_deref()), (0, false, Some("unplugged")));
    }

    #[test]
    fn every_state_matches_its_schema_which_refuses_others() {
        let schema = strict_schema(include_str!("../../../../docs/state.schema.json"));
        let schema: Value = serde_json::from_str(&schema).unwrap();
        jsonschema::draft202012::meta::validate(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let camera = CameraMetrics::new("door".into());
        let mut written = Value::Null;
        for (phase, reason) in Phase::ALL.into_iter().flat_map(|phase| [(phase, None), (phase, Some("unplugged"))]) {
            camera.enter(phase);
            camera.set_reason(reason.map(Into::into));
            let message = message_of(1, &["person", "dog", "person"]);
            let look = |message| StateTracker::default().look(&camera, &"m".into(), message, SECOND, Instant::now());
            for state in [look(None), look(Some(&message))] {
                written = serde_json::to_value(&state).unwrap();
                let errors: Vec<_> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{errors:?} in {written}");
            }
        }
        assert_eq!(written["reason"], "unplugged");
        for (member, value) in [
            ("schema", "visiond-state/2".into()),
            ("phase", "streaming".into()),
            ("fps", (-1).into()),
            ("reason", Value::Null),
            ("colour", 1.into()),
        ] {
            let mut wrong = written.clone();
            wrong[member] = value;
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
        for member in written.as_object().unwrap().keys().filter(|member| *member != "reason") {
            let mut wrong = written.clone();
            wrong.as_object_mut().unwrap().remove(member);
            assert!(!validator.is_valid(&wrong), "without {member}");
        }
        let document = include_str!("../../../../docs/mqtt.md");
        for name in schema["properties"].as_object().unwrap().keys() {
            assert!(document.contains(&format!("`{name}`")), "docs/mqtt.md does not explain {name}");
        }
    }

    #[test]
    fn attributes_and_parts_of_the_frame_are_in_the_state() {
        let (camera, model) = (CameraMetrics::new("door".into()), "m".into());
        camera.enter(Phase::Streaming);
        let one = |label: &str| LabelMessage { label: label.into(), score: 0.5 };
        let mut message = message_of(1, &["road", "sky"]);
        message.detections[0].fraction = Some(0.25);
        message.attributes.0 = vec![
            ("gender".into(), AttributeMessage::Label(one("female"))),
            ("age".into(), AttributeMessage::Number { value: 31.5 }),
            ("clothes".into(), AttributeMessage::Labels { labels: vec![one("hat"), one("coat")] }),
        ];
        let look = |message| StateTracker::default().look(&camera, &model, message, SECOND, Instant::now());
        let state = serde_json::to_value(look(Some(&message))).unwrap();
        assert_eq!(state["attributes"], json!({ "gender": "female", "age": 31.5, "clothes": "hat, coat" }));
        assert_eq!(state["fractions"], json!({ "road": 0.25 }));
        let schema = strict_schema(include_str!("../../../../docs/state.schema.json"));
        let schema: Value = serde_json::from_str(&schema).unwrap();
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&state), "{state}");
        let nothing = serde_json::to_value(look(Some(&message_of(2, &["road"])))).unwrap();
        assert!(nothing.get("attributes").is_none() && nothing.get("fractions").is_none());
    }

    #[test]
    fn a_state_goes_out_when_it_differs_and_not_too_often() {
        let (camera, model) = (CameraMetrics::new("door".into()), "objects".into());
        camera.enter(Phase::Streaming);
        let (mut tracker, start) = (StateTracker::default(), Instant::now());
        let state = tracker.look(&camera, &model, None, SECOND, start);
        let mut due = |state: &StateMessage, ms: u64| tracker.due(state, SECOND, start + Duration::from_millis(ms));
        assert!(due(&state, 0), "the first");
        assert!(!due(&state, 5000), "the same");
        let faster = StateMessage { fps: state.fps + 0.3, ..state.clone() };
        assert!(!due(&faster, 6000), "about the same");
        assert!(due(&faster, 11_000), "after a while that too");
        assert!(!due(&state, 11_500), "too soon");
        let busy = StateMessage { occupied: true, ..faster.clone() };
        assert!(!due(&busy, 11_900), "too soon");
        assert!(due(&busy, 12_100));
        tracker.forget();
        assert!(tracker.due(&busy, SECOND, start + Duration::from_millis(12_200)), "a new session");
    }

    #[test]
    fn a_frame_rate_differs_by_half_a_frame_or_after_a_while() {
        for (fps, published) in [(0.0, 0.0), (9.96, 10.0), (24.94, 24.9), (0.25, 0.3)] {
            assert_eq!(to_tenths(fps), published);
        }
        let (camera, model) = (CameraMetrics::new("door".into()), "objects".into());
        let state = StateTracker::default().look(&camera, &model, None, SECOND, Instant::now());
        let of = |fps| StateMessage { fps, ..state.clone() };
        for (fps, seconds, wanted) in [
            (10.0, 60.0, false),
            (10.4, 9.9, false),
            (9.6, 9.9, false),
            (10.4, 10.0, true),
            (10.5, 0.0, true),
            (9.5, 0.0, true),
        ] {
            assert_eq!(differs(&of(10.0), &of(fps), Duration::from_secs_f64(seconds)), wanted, "{fps} {seconds}");
        }
    }
}
