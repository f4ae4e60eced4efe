//! The subjects of a sink's messages, and the stream that stores them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use visiond_config::types::NatsSinkConfig;
use visiond_message::camera_of_events;
use visiond_nats::answer::{
    NOT_ENABLED, NOT_ENABLED_FOR_ACCOUNT, Refusal, STREAM_NAME_EXIST, STREAM_NOT_FOUND, api_answer,
};

use super::connection::NatsConnection;

/// The last part of the subject of events, in place of `detections`.
const EVENTS: &str = "events";

/// Creates the configured stream if it is missing and should be created.
pub async fn prepare(
    connection: &mut NatsConnection,
    config: &NatsSinkConfig,
    subjects: &Subjects,
) -> Result<(), String> {
    let Some(name) = &config.stream else { return Ok(()) };
    let Some(found) = ask(connection, &format!("$JS.API.STREAM.INFO.{name}"), b"").await? else {
        let why = "no answer from JetStream: start the server with -js, and allow this login to query streams";
        return Err(connection.at(why));
    };
    let Err(refusal) = found else { return Ok(()) };
    let why = match refusal.err_code {
        STREAM_NOT_FOUND if config.create_stream => None,
        STREAM_NOT_FOUND => {
            Some(format!("there is no stream {name}: create it (`nats stream add`), or set `create_stream`"))
        }
        NOT_ENABLED | NOT_ENABLED_FOR_ACCOUNT => {
            Some("JetStream is off: start the server with -js, or enable it for this account".to_owned())
        }
        _ => Some(format!("cannot query the stream {name}: {refusal}")),
    };
    if let Some(why) = why {
        return Err(connection.at(&why));
    }
    let limit = |bytes: u64| if bytes == 0 { -1 } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
    let wanted = json!({
        "name": name,
        "subjects": subjects.all,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": 1,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": limit(config.stream_max_bytes),
        // In nanoseconds; at most 584 years.
        "max_age": u64::try_from(config.stream_max_age.as_nanos()).unwrap_or(u64::MAX),
        "description": "what visiond sees",
    });
    let created = ask(connection, &format!("$JS.API.STREAM.CREATE.{name}"), wanted.to_string().as_bytes()).await?;
    let reason = match created {
        Some(Ok(())) => {
            log::info!("sink {}: created the stream {name} for {}", connection.sink, subjects.all.join(" and "));
            return Ok(());
        }
        // Another device created it first.
        Some(Err(refusal)) if refusal.err_code == STREAM_NAME_EXIST => return Ok(()),
        Some(Err(refusal)) => refusal.to_string(),
        None => format!("no answer within {} s", connection.ack_timeout.as_secs_f32()),
    };
    Err(connection.at(&format!("cannot create the stream {name}: {reason}")))
}

/// Asks JetStream; `None` if it does not answer.
async fn ask(
    connection: &mut NatsConnection,
    subject: &str,
    payload: &[u8],
) -> Result<Option<Result<(), Refusal>>, String> {
    let answer = connection.request(subject, payload).await?;
    // Anything that does not come from JetStream counts as no answer.
    Ok(answer.and_then(|answer| api_answer(&answer)))
}

#[derive(Debug)]
pub struct Subjects {
    /// Contains {camera}.
    template: String,
    /// The same of events.
    events: String,
    /// Wildcards for every device and camera: of frames, and of events.
    pub all: [String; 2],
    cameras: HashMap<Arc<str>, String>,
}

impl Subjects {
    /// Creates the subjects from the configured `template`. Names contain only characters that a subject may have.
    pub fn new(template: &str, device: &str) -> Self {
        let wild = |word: &str| if word.contains(['{', '}']) { "*".to_owned() } else { word.to_owned() };
        let events = format!("{}.{EVENTS}", template.strip_suffix(".detections").unwrap_or(template));
        let all = [template, &events].map(|subject| subject.split('.').map(wild).collect::<Vec<_>>().join("."));
        Self {
            template: template.replace("{device}", device),
            events: events.replace("{device}", device),
            all,
            cameras: HashMap::new(),
        }
    }

    /// Returns the subject of a camera's messages, which all its models share, or of its events. `topic` may name a model after the
    /// camera.
    pub fn of(&mut self, topic: &Arc<str>) -> &str {
        let camera = topic.split_once('/').map_or(&**topic, |(camera, _)| camera);
        let subject = || match camera_of_events(topic) {
            Some(camera) => self.events.replace("{camera}", camera),
            None => self.template.replace("{camera}", camera),
        };
        self.cameras.entry(Arc::clone(topic)).or_insert_with(subject)
    }
}

#[cfg(test)]
mod tests {
    use visiond_message::event_topic;

    use super::*;

    #[test]
    fn names_stand_in_their_places_and_a_stream_takes_them_all() {
        let mut subjects = Subjects::new("visiond.{device}.cam-{camera}.detections", "gate-7");
        assert_eq!(subjects.of(&"door".into()), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.of(&"door/plates".into()), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.of(&"yard".into()), "visiond.gate-7.cam-yard.detections");
        assert_eq!(subjects.of(&"door".into()), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.of(&event_topic("door")), "visiond.gate-7.cam-door.events");
        assert_eq!(subjects.all, ["visiond.*.*.detections", "visiond.*.*.events"]);
        let mut shared = Subjects::new("all", "gate-7");
        assert_eq!(shared.of(&event_topic("door")), "all.events");
        assert_eq!(shared.all, ["all", "all.events"]);
    }
}
