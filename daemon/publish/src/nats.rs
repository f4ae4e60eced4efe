//! NATS JetStream: each message becomes one in a stream, whichever way it takes.
//!
//! A message goes out with its id in the header `Nats-Msg-Id`, so that a server that has it already does not store it again;
//! it counts as arrived once the stream has acknowledged it. Acknowledgements are not waited for one by one.
//!
//! The order of a camera's messages is that of one connection. The client never connects again by itself, because it would
//! send what it still holds before what was lost with the connection: [`BrokerSink`](super::broker::BrokerSink) does, and
//! begins with what was not acknowledged.

mod auth;
mod connection;
mod stream;
mod subjects;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{NatsSinkConfig, SinkConfig, SinkKind};

use super::broker::{BrokerClient, Event, QueuedMessage};
use super::sink::SinkContext;
use connection::Connection;
use subjects::Subjects;

/// A server that is killed may forget what it acknowledged in its last moments, because it acknowledges before the system
/// has it. What was acknowledged so shortly before the connection broke is sent again with the next one.
const FORGETFUL: Duration = Duration::from_secs(1);

/// And at most so many.
const MOST_RECENT: usize = 512;

/// Speaks to NATS.
pub struct NatsClient {
    name: String,
    config: NatsSinkConfig,
    device: Arc<str>,
    subjects: Subjects,
    connection: Option<Connection>,
    /// What was acknowledged a moment ago, and when; oldest first.
    recent: VecDeque<(Instant, QueuedMessage)>,
    /// What no stream took the last time; nothing else is sent before one does.
    unclaimed: Option<QueuedMessage>,
}

impl NatsClient {
    /// For a sink that is set so.
    pub fn new(name: &str, config: &NatsSinkConfig, context: &SinkContext) -> Self {
        Self {
            name: name.to_owned(),
            config: config.clone(),
            device: Arc::clone(&context.device),
            subjects: Subjects::new(&config.subject, &context.device),
            connection: None,
            recent: VecDeque::new(),
            unclaimed: None,
        }
    }

    fn remember(&mut self, message: QueuedMessage) {
        let now = Instant::now();
        let is_old = |(acknowledged, _): &(Instant, QueuedMessage)| now.duration_since(*acknowledged) > FORGETFUL;
        while self.recent.len() >= MOST_RECENT || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, message));
    }
}

impl BrokerClient for NatsClient {
    async fn connect(&mut self) -> Result<(), String> {
        self.connection = None;
        let mut connection = Connection::open(&self.config, &self.device, &self.name).await?;
        stream::prepare(&mut connection, &self.config, &self.subjects).await?;
        let mut again: Vec<_> = self.recent.iter().map(|(_, message)| message).collect();
        // Acknowledgements may come in any order; messages go out in theirs.
        again.sort_by_key(|message| message.number);
        for message in again {
            connection.send(self.subjects.of(&message.camera), message, false).await?;
        }
        // A camera's messages are refused in their order, so none of them before this one is unacknowledged.
        if let Some(message) = &self.unclaimed {
            connection.send(self.subjects.of(&message.camera), message, false).await?;
            connection.settle().await?;
        }
        self.unclaimed = None;
        self.connection = Some(connection);
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => connection.send(self.subjects.of(&message.camera), message, true).await,
            None => Err("there is no connection".to_owned()),
        }
    }

    async fn event(&mut self) -> Event {
        let Some(connection) = &mut self.connection else { return pending().await };
        if let Some(number) = connection.left_out.pop_front() {
            return Event::Refused(number);
        }
        match connection.next().await {
            Ok(Some(message)) => {
                let number = message.number;
                self.remember(message);
                Event::Acknowledged(number)
            }
            Ok(None) => Event::Nothing,
            Err(reason) => {
                self.unclaimed = connection.unclaimed.take();
                Event::Lost(reason)
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
            // Another stream has nothing to be reminded of.
            self.recent.clear();
            self.unclaimed = None;
        }
        same
    }
}
