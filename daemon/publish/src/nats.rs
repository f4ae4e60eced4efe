//! The NATS sink: publishes each message to a JetStream stream.
//!
//! A message has its id in the header `Nats-Msg-Id`, so that a server that has it already does not store it twice. It counts as
//! written once the stream has acknowledged it; the sink does not wait for one acknowledgement before it sends the next
//! message.
//!
//! One connection keeps a camera's messages in order. [`BrokerSink`](super::broker::BrokerSink) reconnects, and starts with the
//! oldest unacknowledged message.
//!
//! The client is ours: those to be had reconnect by themselves, and send what they still hold before what was lost with the
//! connection; and they keep whatever a server sends, without a bound.

mod answer;
mod auth;
mod connect;
mod connection;
mod protocol;
mod stream;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{NatsSinkConfig, SinkConfig, SinkKind};

use crate::broker::{BrokerClient, BrokerEvent, Loss, QueuedMessage, tls};
use crate::sink::{SinkContext, SinkError};
use auth::ClientAuth;
use connection::NatsConnection;
use stream::Subjects;

/// A server that is killed may lose what it acknowledged in its last moments, because it acknowledges before the system has the
/// data. Messages that were acknowledged this shortly before the connection broke are sent again.
const RESEND_ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);

/// How many of them are sent again at most.
const MOST_RECENT: usize = 512;

pub struct NatsClient {
    name: String,
    config: NatsSinkConfig,
    device: Arc<str>,
    subjects: Subjects,
    connection: Option<NatsConnection>,
    /// Messages that were acknowledged within [`RESEND_ACKNOWLEDGED_WITHIN`], and when; oldest first.
    recent: VecDeque<(Instant, QueuedMessage)>,
    /// A message that no stream accepted; nothing else is sent before a stream accepts it.
    unclaimed: Option<QueuedMessage>,
}

impl NatsClient {
    /// Creates an unconnected client. Fails if it cannot read a file that the configuration names.
    pub fn open(name: &str, config: &NatsSinkConfig, context: &SinkContext) -> Result<Self, SinkError> {
        Self::check(config)?;
        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            device: Arc::clone(&context.device),
            subjects: Subjects::new(&config.subject, &context.device),
            connection: None,
            recent: VecDeque::new(),
            unclaimed: None,
        })
    }

    /// Reads the files that the configuration names, as each connection does; returns what the device shows to the server.
    pub fn check(config: &NatsSinkConfig) -> Result<ClientAuth, SinkError> {
        let encrypted = config.url.iter().any(|url| url.starts_with("tls:"));
        if encrypted || config.ca.is_some() || config.certificate.is_some() {
            tls::client(&config.into())?;
        }
        ClientAuth::read(config)
    }

    fn remember(&mut self, message: QueuedMessage) {
        let now = Instant::now();
        let is_old = |(acknowledged, _): &(Instant, QueuedMessage)| {
            now.duration_since(*acknowledged) > RESEND_ACKNOWLEDGED_WITHIN
        };
        while self.recent.len() >= MOST_RECENT || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, message));
    }
}

impl BrokerClient for NatsClient {
    async fn connect(&mut self) -> Result<(), String> {
        self.connection = None;
        let auth = Self::check(&self.config).map_err(|error| error.reason)?;
        let mut connection = NatsConnection::open(&self.config, &auth, &self.device, &self.name).await?;
        stream::prepare(&mut connection, &self.config, &self.subjects).await?;
        let mut again: Vec<_> = self.recent.iter().map(|(_, message)| message).collect();
        // Acknowledgements may come in any order; the messages are sent in order.
        again.sort_by_key(|message| message.number);
        for message in again {
            connection.send(self.subjects.of(&message.camera), message, false).await;
        }
        // The server refuses a camera's messages in order, so none before this one is unacknowledged.
        if let Some(message) = &self.unclaimed {
            connection.send(self.subjects.of(&message.camera), message, false).await;
            connection.settle().await?;
        }
        self.unclaimed = None;
        self.connection = Some(connection);
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => {
                connection.send(self.subjects.of(&message.camera), message, true).await;
                Ok(())
            }
            None => Err("there is no connection".to_owned()),
        }
    }

    async fn event(&mut self) -> BrokerEvent {
        let Some(connection) = &mut self.connection else { return pending().await };
        if let Some(number) = connection.left_out.pop_front() {
            return BrokerEvent::Refused(number);
        }
        match connection.next().await {
            Ok(Some(message)) => {
                let number = message.number;
                self.remember(message);
                BrokerEvent::Acknowledged(number)
            }
            Ok(None) => BrokerEvent::Nothing,
            Err(reason) => {
                self.unclaimed = connection.unclaimed.take();
                BrokerEvent::Lost(Loss { reason, remedy: Some("see the server's log".to_owned()) })
            }
        }
    }

    async fn close(&mut self, within: Duration) {
        if let Some(connection) = self.connection.take() {
            connection.close(within).await;
        }
    }

    fn configure(&mut self, config: &SinkConfig) -> bool {
        let SinkKind::Nats(nats) = &config.kind else { return true };
        self.name.clone_from(&config.name);
        let same = *nats == self.config;
        self.config.clone_from(nats);
        self.subjects = Subjects::new(&nats.subject, &self.device);
        if !same {
            // Another stream never had these messages.
            self.recent.clear();
            self.unclaimed = None;
        }
        same
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use bytes::Bytes;
    use visiond_config::types::Config;
    use visiond_live::Live;

    use super::*;

    fn sink(keys: &str) -> SinkConfig {
        let text = format!("[[sink]]\ntype = \"nats\"\nurl = [\"nats://a\"]\n{keys}\n");
        Config::parse(&text, Path::new("test.toml")).unwrap().sinks.remove(0)
    }

    #[test]
    fn another_subject_or_stream_gets_nothing_again_that_the_former_acknowledged() {
        let before = sink("");
        let SinkKind::Nats(config) = &before.kind else { panic!() };
        let context = SinkContext { live: Live::new(), device: "gate".into() };
        let message =
            QueuedMessage { number: 1, id: "0-1".into(), camera: "door".into(), line: Bytes::from_static(b"{}") };
        for (keys, subject, same) in [
            ("only_detections = true", "visiond.gate.door.detections", true),
            ("subject = \"a.{device}.{camera}\"", "a.gate.door", false),
            ("stream = \"a\"", "visiond.gate.door.detections", false),
            ("ack_timeout = \"9s\"", "visiond.gate.door.detections", false),
        ] {
            let mut client = NatsClient::open("nats", config, &context).unwrap();
            client.remember(message.clone());
            assert_eq!(client.configure(&sink(keys)), same, "{keys}");
            assert_eq!((client.subjects.of(&message.camera), client.recent.is_empty()), (subject, !same), "{keys}");
        }
    }
}
