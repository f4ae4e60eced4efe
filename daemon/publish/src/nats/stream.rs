//! The subjects of a sink's messages, and the stream that stores them.

use std::collections::HashMap;
use std::sync::Arc;

use async_nats::Subject;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::Config;
use visiond_config::types::NatsSinkConfig;

use super::connection::NatsConnection;

/// Creates the configured stream if it is missing and should be created.
pub async fn prepare(
    connection: &mut NatsConnection,
    config: &NatsSinkConfig,
    subjects: &Subjects,
) -> Result<(), String> {
    let Some(name) = &config.stream else { return Ok(()) };
    let jetstream = connection.jetstream.clone();
    let found = connection.unless_lost(jetstream.get_stream(name)).await?;
    let Err(error) = found else { return Ok(()) };
    let GetStreamErrorKind::JetStream(reason) = error.kind() else {
        let why = "no answer from JetStream: start the server with -js, and allow this login to query streams";
        return Err(connection.at(why));
    };
    let why = match reason.error_code() {
        ErrorCode::STREAM_NOT_FOUND if config.create_stream => None,
        ErrorCode::STREAM_NOT_FOUND => {
            Some(format!("there is no stream {name}: create it (`nats stream add`), or set `create_stream`"))
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            Some("JetStream is off: start the server with -js, or enable it for this account".to_owned())
        }
        _ => Some(format!("cannot query the stream {name}: {reason}")),
    };
    if let Some(why) = why {
        return Err(connection.at(&why));
    }
    let limit = |bytes: u64| if bytes == 0 { -1 } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
    let wanted = Config {
        name: name.clone(),
        subjects: vec![subjects.all.clone()],
        max_age: config.stream_max_age,
        max_bytes: limit(config.stream_max_bytes),
        description: Some("what visiond sees".to_owned()),
        ..Config::default()
    };
    let Err(error) = connection.unless_lost(jetstream.create_stream(wanted)).await? else {
        log::info!("sink {}: created the stream {name} for {}", connection.sink, subjects.all);
        return Ok(());
    };
    let reason = match error.kind() {
        // Another device created it first.
        CreateStreamErrorKind::JetStream(reason) if reason.error_code() == ErrorCode::STREAM_NAME_EXIST => {
            return Ok(());
        }
        CreateStreamErrorKind::JetStream(reason) => reason.to_string(),
        _ => error.to_string(),
    };
    Err(connection.at(&format!("cannot create the stream {name}: {reason}")))
}

#[derive(Debug)]
pub struct Subjects {
    /// Contains {camera}.
    template: String,
    /// A wildcard for every device and camera.
    pub all: String,
    cameras: HashMap<Arc<str>, Subject>,
}

impl Subjects {
    /// Creates the subjects from the configured `template`. Names contain only characters that a subject may have.
    pub fn new(template: &str, device: &str) -> Self {
        let wild = |word: &str| if word.contains(['{', '}']) { "*".to_owned() } else { word.to_owned() };
        Self {
            template: template.replace("{device}", device),
            all: template.split('.').map(wild).collect::<Vec<_>>().join("."),
            cameras: HashMap::new(),
        }
    }

    /// Returns the subject of a camera's messages.
    pub fn of(&mut self, camera: &Arc<str>) -> Subject {
        let subject = || Subject::from(self.template.replace("{camera}", camera));
        self.cameras.entry(Arc::clone(camera)).or_insert_with(subject).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_their_places_and_a_stream_takes_them_all() {
        let mut subjects = Subjects::new("visiond.{device}.cam-{camera}.detections", "gate-7");
        assert_eq!(subjects.of(&"door".into()).as_str(), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.of(&"yard".into()).as_str(), "visiond.gate-7.cam-yard.detections");
        assert_eq!(subjects.of(&"door".into()).as_str(), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.all, "visiond.*.*.detections");
        assert_eq!(Subjects::new("all", "gate-7").all, "all");
    }
}
