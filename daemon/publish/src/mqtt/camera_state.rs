//! A camera's state: published when it has changed, and no more often than the configured interval.

use std::time::{Duration, Instant};

use visiond_message::status::CameraStatus;
use visiond_message::{Message, StateMessage};
use visiond_telemetry::metrics::Phase;

/// A frame rate that differs by less than this counts as unchanged for [`RATE_WAIT`].
const RATE_STEP: f64 = 0.5;
const RATE_WAIT: Duration = Duration::from_secs(10);

/// The sink's knowledge about one camera.
#[derive(Debug, Default)]
pub struct StateTracker {
    /// The counter's value at the last update.
    detections: Option<u64>,
    seen: Option<Instant>,
    published: Option<(StateMessage, Instant)>,
}

impl StateTracker {
    /// Returns the current state of a camera with these newest messages, one of each model. A detection makes it occupied for `hold`.
    pub fn look(
        &mut self,
        mut status: CameraStatus,
        newest: &[&Message],
        hold: Duration,
        now: Instant,
    ) -> StateMessage {
        let streams = status.phase == Phase::Streaming.name();
        // The newest messages of a camera that is away are old ones.
        let newest = if streams { newest } else { &[] };
        status.reason = status.reason.filter(|_| !streams);
        let total = status.detections;
        // Detections from before this sink do not count.
        let new = self.detections.replace(total).is_some_and(|before| total > before);
        if new || newest.iter().any(|message| !message.detections.is_empty()) {
            self.seen = Some(now);
        }
        let occupied = self.seen.is_some_and(|seen| now.saturating_duration_since(seen) <= hold);
        StateMessage::new(status, newest, occupied)
    }

    /// Whether to publish `state`, which must be at least `interval` after the last one. If so, it counts as published.
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

fn differs(before: &StateMessage, now: &StateMessage, since: Duration) -> bool {
    let rate = (before.fps - now.fps).abs();
    let same_rate = rate == 0.0 || (rate < RATE_STEP && since < RATE_WAIT);
    !same_rate || StateMessage { fps: now.fps, ..before.clone() } != *now
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};
    use std::sync::Arc;

    use visiond_message::status::{BundleStatus, RolloutStatus};
    use visiond_message::{AttributeMessage, LabelMessage, MessageModel};
    use visiond_system::testing::strict_schema;
    use visiond_telemetry::metrics::CameraMetrics;
    use visiond_telemetry::rules::{RuleCounts, RuleFacts};

    use super::*;
    use visiond_message::testing::door_message as message;

    /// A message with detections of these labels.
    fn message_of(sequence: u64, labels: &[&str]) -> Message {
        let mut message = Message::clone(&message(sequence, labels.len()));
        for (detection, label) in message.detections.iter_mut().zip(labels) {
            detection.label = (*label).into();
        }
        message
    }

    /// A state of the camera with this newest message.
    fn look(
        tracker: &mut StateTracker,
        camera: &CameraMetrics,
        newest: Option<&Message>,
        hold: Duration,
        now: Instant,
    ) -> StateMessage {
        tracker.look(CameraStatus { model: "objects".to_owned(), ..camera.status() }, newest.as_slice(), hold, now)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_camera_is_occupied_for_a_while_after_what_was_seen() {
        let camera = CameraMetrics::new("door".into());
        camera.enter(Phase::Streaming);
        let (mut tracker, start) = (StateTracker::default(), Instant::now());
        let mut look =
            |message: Option<&Message>, at: u32| look(&mut tracker, &camera, message, 5 * SECOND, start + at * SECOND);
        assert!(!look(None, 0).occupied);
        let person = message_of(1, &["person", "dog", "person"]);
        camera.count_published(&person);
        // Seen between two updates; the newest message has no detection.
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
    fn the_counts_of_further_models_are_their_own() {
        let camera = CameraMetrics::new("door".into());
        camera.enter(Phase::Streaming);
        let names: Vec<Arc<str>> = vec!["m".into(), "plates".into()];
        camera.set_models(&names);
        let of_plates = |message: Message| {
            let model = MessageModel { name: "plates".to_owned(), ..MessageModel::default() };
            Message { topic: "door/plates".into(), model: Arc::new(model), ..message }
        };
        let (people, plates) = (message_of(1, &["person", "person"]), of_plates(message_of(1, &["plate"])));
        let state = |newest: &[&Message]| StateTracker::default().look(camera.status(), newest, SECOND, Instant::now());
        let both = state(&[&people, &plates]);
        assert_eq!((both.detections, both.counts.get("plate"), both.counts["person"]), (2, None, 2));
        assert_eq!(
            (both.models.len(), both.models["plates"].detections, both.models["plates"].counts["plate"]),
            (1, 1, 1)
        );
        let second = state(&[&plates]);
        assert_eq!((second.detections, second.models["plates"].detections, second.occupied), (0, 1, true));
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
            let look = |message| look(&mut StateTracker::default(), &camera, message, SECOND, Instant::now());
            for state in [look(None), look(Some(&message))] {
                written = serde_json::to_value(&state).unwrap();
                let errors: Vec<_> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{errors:?} in {written}");
            }
        }
        assert_eq!(written["reason"], "unplugged");
        let rollout = RolloutStatus {
            source: "https://example.org".to_owned(),
            step: "refused".to_owned(),
            version: Some(8),
            newest: Some(8),
            since: Some("2026-01-31T12:00:00Z".to_owned()),
            percent: Some(100),
            reason: Some("it is slow".to_owned()),
        };
        let (name, since) = ("street".to_owned(), Some("2026-01-31T12:00:00Z".to_owned()));
        let bundle = BundleStatus { name, version: 7, since, signed_by: Some("1A".to_owned()), rollout: Some(rollout) };
        let mut with_bundle = written.clone();
        with_bundle["bundles"] = json!({ "objects": bundle });
        let errors: Vec<_> = validator.iter_errors(&with_bundle).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in {with_bundle}");
        with_bundle["bundles"]["objects"]["rollout"]["step"] = "other".into();
        assert!(!validator.is_valid(&with_bundle));
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
        let camera = CameraMetrics::new("door".into());
        camera.enter(Phase::Streaming);
        let one = |label: &str| LabelMessage { label: label.into(), score: 0.5 };
        let mut message = message_of(1, &["road", "sky"]);
        message.detections[0].fraction = Some(0.25);
        message.attributes.0 = vec![
            ("gender".into(), AttributeMessage::Label(one("female"))),
            ("age".into(), AttributeMessage::Number { value: 31.5 }),
            ("clothes".into(), AttributeMessage::Labels { labels: vec![one("hat"), one("coat")] }),
        ];
        let look = |message| look(&mut StateTracker::default(), &camera, message, SECOND, Instant::now());
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
    fn the_totals_of_lines_and_zones_are_in_the_state_from_the_first_frame_on() {
        let camera = CameraMetrics::new("door".into());
        let facts = |name: &str, kind: &str, sides: Option<[&str; 2]>| RuleFacts {
            name: name.into(),
            kind: kind.into(),
            sides: sides.map(|sides| sides.map(Into::into)),
        };
        let rules: [(Arc<str>, RuleFacts); 3] = [
            ("gate".into(), facts("gate", "line", Some(["in", "out"]))),
            ("dock".into(), facts("dock", "zone", None)),
            ("dock/dwell".into(), facts("dock", "dwell", None)),
        ];
        camera.set_rules(rules.iter().cloned());
        let state = || {
            let state = look(&mut StateTracker::default(), &camera, None, SECOND, Instant::now());
            serde_json::to_value(state).unwrap()
        };
        assert!(state().get("lines").is_none() && state().get("zones").is_none(), "0 would be wrong after a restart");
        let counts = |begun, crossed_to, inside, under_way| RuleCounts { begun, crossed_to, inside, under_way };
        let counted = [counts(3, [1, 2], 0, 0), counts(5, [0; 2], 2, 2), counts(4, [0; 2], 2, 1)];
        camera.count_rules(rules.iter().map(|(id, _)| id).zip(counted));
        let state = state();
        assert_eq!(state["lines"], json!({ "gate": { "in": 1, "out": 2 } }));
        let events = json!({ "zone": { "begun": 5, "under_way": 2 }, "dwell": { "begun": 4, "under_way": 1 } });
        assert_eq!(state["zones"], json!({ "dock": { "inside": 2, "events": events } }));
        let schema = strict_schema(include_str!("../../../../docs/state.schema.json"));
        let schema: Value = serde_json::from_str(&schema).unwrap();
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&state), "{state}");
    }

    #[test]
    fn a_state_goes_out_when_it_differs_and_not_too_often() {
        let camera = CameraMetrics::new("door".into());
        camera.enter(Phase::Streaming);
        let (mut tracker, start) = (StateTracker::default(), Instant::now());
        let state = look(&mut tracker, &camera, None, SECOND, start);
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
        let camera = CameraMetrics::new("door".into());
        let state = look(&mut StateTracker::default(), &camera, None, SECOND, Instant::now());
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
