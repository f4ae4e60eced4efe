//! Commands that arrive by MQTT: see docs/mqtt.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::command::{Action, Command, SettingsChange, Target};
use visiond_config::types::{MqttSinkConfig, SinkConfig};
use visiond_system::backoff::RateLimit;

use super::codec::{Incoming, MAX_INCOMING};
use super::topics::{CommandTopic, ENABLED, MIN_SCORE, RESET, SCORE_THRESHOLD, Topics};
use crate::broker::shorten;
use crate::sink::{Commander, SinkContext};

/// The payloads of switches and buttons.
pub const ON: &str = "ON";
pub const OFF: &str = "OFF";
pub const PRESS: &str = "PRESS";

/// How often to log commands that are ignored.
const QUIET: Duration = Duration::from_secs(10);

/// The commands to a sink's cameras.
pub struct MqttCommands {
    sink: String,
    /// Whether the configuration asks for them.
    is_on: bool,
    /// The cameras of the sink; empty: all.
    chosen: Vec<String>,
    topics: Topics,
    commander: Option<Arc<dyn Commander>>,
    warnings: RateLimit,
}

impl MqttCommands {
    pub fn new(sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) -> Self {
        Self {
            sink: sink.name.clone(),
            is_on: config.commands,
            chosen: sink.cameras.clone(),
            topics: topics.clone(),
            commander: context.commander.clone(),
            warnings: RateLimit::new(QUIET),
        }
    }

    /// Applies new settings.
    pub fn configure(&mut self, sink: &SinkConfig, config: &MqttSinkConfig) {
        self.sink.clone_from(&sink.name);
        self.is_on = config.commands;
        self.chosen.clone_from(&sink.cameras);
    }

    /// Returns the topic filters to subscribe to; `None` if commands are off.
    pub fn filters(&self) -> Option<[String; 2]> {
        (self.is_on && self.commander.is_some()).then(|| self.topics.commands())
    }

    /// Queues the command, if the message is one; returns whether it is. A wrong command changes nothing and is logged.
    pub fn obey(&mut self, message: &Incoming) -> bool {
        let Some(commander) = self.commander.as_ref().filter(|_| self.is_on) else { return false };
        let Some(topic) = self.topics.command_of(&message.topic) else { return false };
        let is_chosen = self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == topic.camera);
        let result = if message.payload.is_empty() {
            // A client clears a retained command.
            Ok(())
        } else if message.retained {
            Err("it is retained, so it may be old: clear it, and publish commands without retain".to_owned())
        } else if !is_chosen {
            Err("`cameras` of the sink does not list this camera: add it there".to_owned())
        } else {
            command(&topic, &message.payload)
                .and_then(|command| commander.request(command).map_err(|error| error.to_string()))
        };
        if let Err(reason) = result {
            self.warn("command", &message.topic, &reason);
        }
        true
    }

    /// Logs that a message was dropped for its size, whether it is a command or not.
    pub fn warn_of_size(&mut self, topic: &str, bytes: usize) {
        let most = MAX_INCOMING >> 20;
        let reason = format!("it has {bytes} bytes, more than {most} MiB: clear it there if the broker retains it");
        self.warn("message", topic, &reason);
    }

    fn warn(&mut self, what: &str, topic: &str, reason: &str) {
        let Some(held_back) = self.warnings.pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more)") } else { String::new() };
        log::warn!("sink {}: ignoring the {what} at {}: {reason}{more}", self.sink, shorten(topic));
    }
}

/// Returns the command that a message is, or why it is none.
fn command(topic: &CommandTopic<'_>, payload: &[u8]) -> Result<Command, String> {
    let text = String::from_utf8_lossy(payload);
    let wrong = |wanted: &str| Err(format!("the payload must be {wanted}, not {:?}", shorten(&text)));
    let none = SettingsChange::default();
    let action = match (topic.key, topic.rule) {
        (ENABLED, _) => match &*text {
            ON => Action::Set(SettingsChange { enabled: Some(true), ..none }),
            OFF => Action::Set(SettingsChange { enabled: Some(false), ..none }),
            _ => return wrong("ON or OFF"),
        },
        (SCORE_THRESHOLD, None) | (MIN_SCORE, Some(_)) => match text.parse::<f64>() {
            Ok(score) => Action::Set(SettingsChange { min_score: Some(score), ..none }),
            Err(_) => return wrong("a number from 0 to 1"),
        },
        (RESET, Some(_)) if text == PRESS => Action::Reset,
        (RESET, Some(_)) => return wrong(PRESS),
        (key, rule) => {
            let keys = rule.map_or("`enabled` and `score_threshold`", |_| "`enabled`, `min_score` and `reset`");
            return Err(format!("there is no `{}`: use {keys}", shorten(key)));
        }
    };
    let target = Target { camera: topic.camera.to_owned(), rule: topic.rule.map(str::to_owned) };
    Ok(Command { target, action })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use visiond_config::command::CommandError;
    use visiond_live::Live;

    use super::*;
    use crate::sink::CommandedCamera;

    #[derive(Debug, Default)]
    struct Requests(Mutex<Vec<String>>);

    impl Commander for Requests {
        fn cameras(&self) -> Arc<BTreeMap<String, CommandedCamera>> {
            Arc::default()
        }

        fn request(&self, command: Command) -> Result<(), CommandError> {
            self.0.lock().push(command.to_string());
            Ok(())
        }
    }

    #[test]
    fn only_new_and_right_commands_to_a_cameras_of_the_sink_are_carried_out() {
        let requests = Arc::new(Requests::default());
        let commander: Arc<dyn Commander> = Arc::<Requests>::clone(&requests);
        let context = SinkContext { live: Live::new(), device: "gate".into(), commander: Some(commander) };
        let sink = SinkConfig { cameras: vec!["door".to_owned()], ..SinkConfig::default() };
        let config = MqttSinkConfig { commands: true, ..MqttSinkConfig::default() };
        let topics = Topics::new("visiond", "gate");
        let mut commands = MqttCommands::new(&sink, &config, &context, &topics);
        let mut obey = |topic: &str, payload: &str, retained: bool| {
            let topic = format!("visiond/gate/cameras/{topic}");
            let payload = Bytes::copy_from_slice(payload.as_bytes());
            let is_command = commands.obey(&Incoming { topic, payload, retained });
            (is_command, requests.0.lock().pop())
        };
        for (topic, payload, wanted) in [
            ("door/enabled/set", "ON", "camera door: enabled = true"),
            ("door/enabled/set", "OFF", "camera door: enabled = false"),
            ("door/score_threshold/set", "0.45", "camera door: score_threshold = 0.45"),
            ("door/rules/entry/enabled/set", "OFF", "camera door, entry: enabled = false"),
            ("door/rules/entry/min_score/set", "1", "camera door, entry: min_score = 1"),
            ("door/rules/entry/reset/set", "PRESS", "camera door, entry: reset totals"),
        ] {
            assert_eq!(obey(topic, payload, false), (true, Some(wanted.to_owned())), "{topic}");
            assert_eq!(obey(topic, payload, true), (true, None), "{topic}: it is retained");
            assert_eq!(obey(topic, "", false), (true, None), "{topic}: it clears a retained one");
            assert_eq!(obey(&topic.replace("door", "yard"), payload, false), (true, None), "{topic}: another camera");
        }
        for (topic, payload) in [
            ("door/enabled/set", "on"),
            ("door/enabled/set", "0.5"),
            ("door/score_threshold/set", "high"),
            ("door/score_threshold/set", "0,5"),
            ("door/min_score/set", "0.5"),
            ("door/reset/set", "PRESS"),
            ("door/rules/entry/score_threshold/set", "0.5"),
            ("door/rules/entry/reset/set", "ON"),
            ("door/rules/entry/colour/set", "ON"),
        ] {
            assert_eq!(obey(topic, payload, false), (true, None), "{topic} {payload}");
        }
        for topic in ["door/state", "door/detections", "door/set", "door/a/b/set", "door/rules/a/b/c/set"] {
            assert_eq!(obey(topic, "ON", false), (false, None), "{topic}");
        }
        commands.configure(&sink, &MqttSinkConfig::default());
        assert_eq!(commands.filters(), None);
        let message = |topic: &str| Incoming { topic: topic.to_owned(), payload: "ON".into(), retained: false };
        assert!(!commands.obey(&message("visiond/gate/cameras/door/enabled/set")), "they are off");
    }
}
