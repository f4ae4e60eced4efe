//! The MQTT sink: publishes detections, and the cameras' states, pictures and Home Assistant discovery.
//!
//! `docs/mqtt.md` describes topics and payloads. The broker acknowledges a message (QoS 1 and 2), or the socket has taken it
//! (QoS 0). Sessions are clean: after a lost connection [`BrokerSink`](crate::broker::BrokerSink) alone decides what goes out again.

mod camera_state;
mod cameras;
mod codec;
mod connect;
mod discovery;
mod session;
mod topics;

use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_config::types::{MqttSinkConfig, SinkConfig, SinkKind};
use visiond_system::credentials::Login;

use self::cameras::RetainedCameras;
use self::codec::{Connect, JSON, Publish};
use self::session::{MqttSession, SessionEvent};
use self::topics::Topics;
use crate::broker::{BrokerClient, BrokerEvent, Loss, QueuedMessage, tls};
use crate::sink::{SinkContext, SinkError};

/// The client of an MQTT broker, and its session.
pub struct MqttClient {
    sink: String,
    config: MqttSinkConfig,
    context: SinkContext,
    topics: Topics,
    cameras: RetainedCameras,
    session: Option<MqttSession>,
}

impl MqttClient {
    /// Reads the files that the configuration names, as each connection does.
    pub fn check(config: &MqttSinkConfig) -> Result<(), SinkError> {
        if let Some(login) = &config.login {
            Login::read(login).map_err(|error| SinkError::of_secret("login", &error))?;
        }
        if config.url.starts_with("mqtts:") {
            tls::client(&config.into())?;
        }
        Ok(())
    }

    /// Creates an unconnected client. Fails if it cannot read a file that the configuration names.
    pub fn open(sink: &SinkConfig, config: &MqttSinkConfig, context: SinkContext) -> Result<Self, SinkError> {
        Self::check(config)?;
        let topics = Topics::new(&config.topic_prefix, &context.device);
        let cameras = RetainedCameras::new(sink, config, &context, &topics);
        Ok(Self { sink: sink.name.clone(), config: config.clone(), context, topics, cameras, session: None })
    }

    fn connect_packet(&self) -> Result<Connect, String> {
        let login = self.config.login.as_deref().map(Login::read).transpose().map_err(|error| error.to_string())?;
        Ok(Connect {
            client_id: self.client_id(),
            keep_alive_seconds: u16::try_from(self.config.keep_alive.as_secs()).unwrap_or(u16::MAX),
            login: login.map(Login::into_parts),
            will: Some((self.topics.availability(), Bytes::from_static(b"offline"))),
        })
    }

    fn client_id(&self) -> String {
        let own_id = || format!("visiond-{}-{}", self.context.device, self.sink);
        self.config.client_id.clone().unwrap_or_else(own_id)
    }

    /// What to do if another client has the same id.
    fn client_id_remedy(&self) -> &'static str {
        match self.config.client_id {
            Some(_) => "give each its own `client_id`",
            // Their topics are the same, too.
            None => "give each machine its own `name` under [device]",
        }
    }

    fn availability(&self, text: &'static str) -> Publish {
        Publish::retained(self.topics.availability(), Bytes::from_static(text.as_bytes()), self.config.qos_state, None)
    }

    fn detections(&self, message: &QueuedMessage) -> Publish {
        let expiry = u32::try_from(self.config.message_expiry.as_secs()).unwrap_or(u32::MAX);
        Publish {
            topic: self.topics.detections(&message.camera),
            payload: message.line.clone(),
            // 0 to 2.
            qos: self.config.qos_detections as u8,
            retain: self.config.retain,
            content_type: Some(JSON),
            id: Some(message.id.clone()),
            expiry_seconds: (expiry > 0).then_some(expiry),
        }
    }
}

impl BrokerClient for MqttClient {
    async fn connect(&mut self) -> Result<(), String> {
        self.session = None;
        let connect = self.connect_packet()?;
        let mut session = connect::open(&self.config, &connect).await?;
        session.publish(self.availability("online"));
        self.cameras.begin(&mut session, Instant::now());
        self.session = Some(session);
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        let publish = self.detections(message);
        let Some(session) = &mut self.session else { return Err(NOT_CONNECTED.to_owned()) };
        session.send(message.number, publish).await;
        Ok(())
    }

    async fn event(&mut self) -> BrokerEvent {
        let Some(session) = &mut self.session else { return BrokerEvent::Lost(NOT_CONNECTED.to_owned().into()) };
        match session.next_event().await {
            SessionEvent::Acknowledged(number) => BrokerEvent::Acknowledged(number),
            SessionEvent::Impossible(number, reason) => {
                log::error!("sink {}: cannot send a message, leaving it out: {reason}", self.sink);
                BrokerEvent::Refused(number)
            }
            SessionEvent::Incoming(message) => {
                self.cameras.incoming(session, &message);
                BrokerEvent::Nothing
            }
            SessionEvent::Lost(reason) => {
                self.session = None;
                let (id, remedy) = (self.client_id(), self.client_id_remedy());
                let remedy = format!("if another client uses the client id {id}, {remedy}; else see the broker's log");
                BrokerEvent::Lost(Loss { reason: format!("{}: {reason}", self.config.url), remedy: Some(remedy) })
            }
            SessionEvent::TakenOver => {
                self.session = None;
                let (url, id, remedy) = (&self.config.url, self.client_id(), self.client_id_remedy());
                BrokerEvent::Lost(format!("{url}: another client uses the client id {id}: {remedy}").into())
            }
        }
    }

    async fn close(&mut self, within: Duration) {
        let offline = self.availability("offline");
        if let Some(mut session) = self.session.take() {
            session.publish(offline);
            session.close(within).await;
        }
    }

    fn configure(&mut self, config: &SinkConfig) -> bool {
        let SinkKind::Mqtt(new) = &config.kind else { return true };
        let before = std::mem::replace(&mut self.config, new.clone());
        let session = |config: &MqttSinkConfig| {
            let MqttSinkConfig { url, protocol, login, ca, certificate, key, client_id, keep_alive, .. } =
                config.clone();
            (url, protocol, login, ca, certificate, key, client_id, keep_alive)
        };
        let same_name = self.sink == config.name || new.client_id.is_some();
        self.sink.clone_from(&config.name);
        self.cameras.configure(config, new, &self.context, &self.topics);
        same_name && session(&before) == session(new)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if let Some(session) = &mut self.session {
            session.tick(now);
            self.cameras.tick(session, now);
        }
    }
}

const NOT_CONNECTED: &str = "there is no connection";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_config::types::Config;
    use visiond_live::Live;

    use super::*;

    fn sink(keys: &str) -> SinkConfig {
        let text = format!("[[sink]]\ntype = \"mqtt\"\n{keys}\n");
        Config::parse(&text, Path::new("test.toml")).unwrap().sinks.remove(0)
    }

    #[test]
    fn only_what_a_session_begins_with_makes_a_new_one() {
        let proof = "url = \"mqtts://a\"\ncertificate = \"a\"\nkey = \"a\"";
        for (before, after, reconnects) in [
            (PLAIN, PLAIN, false),
            (PLAIN, "url = \"mqtt://b\"", true),
            (PLAIN, "url = \"mqtt://a\"\nprotocol = \"3.1.1\"", true),
            (PLAIN, "url = \"mqtt://a\"\nlogin = \"a\"", true),
            (PLAIN, "url = \"mqtt://a\"\nclient_id = \"a\"", true),
            (PLAIN, "url = \"mqtt://a\"\nkeep_alive = \"1s\"", true),
            // The client id has it.
            (PLAIN, "url = \"mqtt://a\"\nname = \"other\"", true),
            ("url = \"mqtts://a\"", "url = \"mqtts://a\"\nca = \"a\"", true),
            (proof, &proof.replace("certificate = \"a\"", "certificate = \"b\""), true),
            (proof, &proof.replace("key = \"a\"", "key = \"b\""), true),
            (PLAIN, "url = \"mqtt://a\"\nqos_detections = 2\nretain = true\nmessage_expiry = \"1s\"", false),
            (PLAIN, "url = \"mqtt://a\"\nqos_state = 2\nstate_interval = \"2s\"\noccupancy_hold = \"2s\"", false),
            (PLAIN, "url = \"mqtt://a\"\nsnapshot_interval = \"2s\"\nsnapshot_overlay = false", false),
            (PLAIN, "url = \"mqtt://a\"\nhome_assistant = true\ncount_labels = [\"a\"]", false),
        ] {
            let (plain, context) = (sink(PLAIN), SinkContext { live: Live::new(), device: "gate".into() });
            let SinkKind::Mqtt(config) = &plain.kind else { panic!() };
            let mut client = MqttClient::open(&plain, config, context).unwrap();
            client.configure(&sink(before));
            assert_eq!(client.configure(&sink(after)), !reconnects, "{before}\n{after}");
        }
    }

    const PLAIN: &str = "url = \"mqtt://a\"";
}
