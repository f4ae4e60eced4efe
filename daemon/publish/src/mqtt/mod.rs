//! The sink that publishes to a broker of MQTT: detections as they come, and beside them what the cameras are and show.
//!
//! Topics, payloads and Home Assistant are described in `docs/mqtt.md`. Parcels are acknowledged by the broker (QoS 1 and 2)
//! or when the socket has taken them (QoS 0); sessions are clean, so that after a lost connection the sink around this
//! [`Courier`] alone decides what goes out again.

mod cameras;
mod discovery;
mod link;
mod session;
mod snapshots;
mod state;
pub mod tls;
mod topics;
mod wire;

use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_config::types::{MqttSinkConfig, SinkConfig, SinkKind};
use visiond_system::credentials::Login;

use self::cameras::Cameras;
use self::link::{Happening, Link};
use self::topics::Topics;
use self::wire::{Hello, Letter, Qos};
use super::broker::{Courier, Event, Parcel, SinkContext};

/// What detections and states are.
const JSON: &str = "application/json";

/// A broker of MQTT, and the session with it.
pub struct Mqtt {
    sink: String,
    config: MqttSinkConfig,
    context: SinkContext,
    topics: Topics,
    cameras: Cameras,
    link: Option<Link>,
}

impl Mqtt {
    /// Not connected yet. Fails where the configuration names what cannot be read.
    pub fn open(sink: &SinkConfig, config: &MqttSinkConfig, context: SinkContext) -> Result<Self, String> {
        if let Some(login) = &config.login {
            Login::read(login).map_err(|error| error.to_string())?;
        }
        if config.url.starts_with("mqtts:") {
            tls::client(config)?;
        }
        let topics = Topics::new(&config.topic_prefix, &context.device);
        let cameras = Cameras::new(sink, config, &context, &topics);
        Ok(Self { sink: sink.name.clone(), config: config.clone(), context, topics, cameras, link: None })
    }

    fn hello(&self) -> Result<Hello, String> {
        let login = self.config.login.as_deref().map(Login::read).transpose().map_err(|error| error.to_string())?;
        let own_id = || format!("visiond-{}-{}", self.context.device, self.sink);
        Ok(Hello {
            client_id: self.config.client_id.clone().unwrap_or_else(own_id),
            keep_alive_seconds: u16::try_from(self.config.keep_alive.as_secs()).unwrap_or(u16::MAX),
            login: login.map(Login::into_parts),
            will: Some((self.topics.availability(), Bytes::from_static(b"offline"))),
        })
    }

    fn availability(&self, text: &'static str) -> Letter {
        Letter {
            topic: self.topics.availability(),
            payload: Bytes::from_static(text.as_bytes()),
            qos: Qos::new(self.config.qos_state),
            retain: true,
            content_type: None,
            id: None,
            expiry_seconds: None,
        }
    }

    fn detections(&self, parcel: &Parcel) -> Letter {
        let expiry = u32::try_from(self.config.message_expiry.as_secs()).unwrap_or(u32::MAX);
        Letter {
            topic: self.topics.detections(&parcel.camera),
            payload: parcel.line.clone(),
            qos: Qos::new(self.config.qos_detections),
            retain: self.config.retain,
            content_type: Some(JSON),
            id: Some(parcel.id.clone()),
            expiry_seconds: (expiry > 0).then_some(expiry),
        }
    }
}

impl Courier for Mqtt {
    async fn connect(&mut self) -> Result<(), String> {
        self.link = None;
        let hello = self.hello()?;
        let mut link = session::begin(&self.config, &hello).await?;
        link.say(self.availability("online"));
        self.cameras.begin(&mut link, Instant::now());
        self.link = Some(link);
        Ok(())
    }

    async fn send(&mut self, parcel: &Parcel) -> Result<(), String> {
        let letter = self.detections(parcel);
        let Some(link) = &mut self.link else { return Err(NOT_CONNECTED.to_owned()) };
        link.send(parcel.number, letter).await;
        Ok(())
    }

    async fn event(&mut self) -> Event {
        let Some(link) = &mut self.link else { return Event::Lost(NOT_CONNECTED.to_owned()) };
        match link.happening().await {
            Happening::Acknowledged(number) => Event::Acknowledged(number),
            Happening::Impossible(number, reason) => {
                log::error!("sink {}: a message is left out: {reason}", self.sink);
                Event::Refused(number)
            }
            Happening::Heard(heard) => {
                self.cameras.heard(link, &heard);
                Event::Nothing
            }
            Happening::Lost(reason) => {
                self.link = None;
                Event::Lost(format!("{}: {reason}", self.config.url))
            }
        }
    }

    async fn close(&mut self, within: Duration) {
        let offline = self.availability("offline");
        if let Some(mut link) = self.link.take() {
            link.say(offline);
            link.close(within).await;
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
        if let Some(link) = &mut self.link {
            link.tick(now);
            self.cameras.tick(link, now);
        }
    }
}

const NOT_CONNECTED: &str = "there is no connection";
