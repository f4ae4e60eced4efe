//! The sink's connection to a NATS server, until it is lost: messages in flight, and their acknowledgements.
//!
//! All waiting for the server is in [`NatsConnection::next`] and [`NatsConnection::request`]. The future of `next` may be
//! dropped at any await, because the [`Wire`] keeps what was read or half written.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_config::types::NatsSinkConfig;
use visiond_nats::answer::{Rejection, acknowledgement};
use visiond_nats::auth::ClientAuth;
use visiond_nats::connect::{Accepted, explain_server, open};
use visiond_nats::options::Options;
use visiond_nats::protocol::ServerMessage;
use visiond_nats::wire::{self, Received, Wire};

use crate::broker::QueuedMessage;

/// The largest message accepted from a server, in bytes. The sink receives only acknowledgements and JetStream's answers.
const MESSAGE_BYTES: u64 = 1 << 20;
/// The status of an answer that reports that the request has no receiver.
const NO_RESPONDERS: u16 = 503;

pub struct NatsConnection {
    wire: Wire,
    /// The sink's name, for the log.
    pub sink: String,
    /// The servers, for errors.
    servers: String,
    /// The stream that must accept the messages.
    stream_name: Option<String>,
    pub ack_timeout: Duration,
    /// Sent messages without an acknowledgement, oldest first, by the number of their answer.
    in_flight: BTreeMap<u64, InFlight>,
    /// Messages that are too large for this server: the reason, and the number unless the sink already has the
    /// acknowledgement.
    pub left_out: VecDeque<(Option<u64>, String)>,
    /// When the newest acknowledged message was sent.
    acknowledged_of: Option<Instant>,
    /// The headers of one message, in a reused buffer.
    headers: String,
}

/// The number of a message with its answer, or why this login may not publish it.
type Numbered = (u64, Result<ServerMessage, String>);

/// The server's answer about a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Acknowledged(QueuedMessage),
    /// No stream accepts the message of this number now, and why.
    Refused(u64, String),
    /// The stream can never accept the message of this number, and why.
    Impossible(u64, String),
    /// The sink does not wait for it.
    Nothing,
}

struct InFlight {
    message: QueuedMessage,
    subject: Box<str>,
    /// Whether the sink waits for the acknowledgement.
    news: bool,
    sent: Instant,
}

impl InFlight {
    fn refused(self, reason: String) -> Answer {
        if self.news { Answer::Refused(self.message.number, reason) } else { Answer::Nothing }
    }

    fn impossible(self, reason: String) -> Answer {
        if self.news { Answer::Impossible(self.message.number, reason) } else { Answer::Nothing }
    }
}

impl NatsConnection {
    /// Connects to the first server that answers.
    pub async fn open(
        options: &Options,
        auth: &ClientAuth,
        sink: &str,
        config: &NatsSinkConfig,
    ) -> Result<Self, String> {
        let inbox = wire::inbox(None)?;
        let accepted = open(options, auth).await.map_err(|error| error.to_string())?;
        let mut connection = Self::new(accepted, inbox, options.servers(), sink, config);
        connection.wire.subscribe();
        Ok(connection)
    }

    fn new(accepted: Accepted, inbox: String, servers: String, sink: &str, config: &NatsSinkConfig) -> Self {
        Self {
            wire: Wire::new(accepted, inbox, MESSAGE_BYTES),
            sink: sink.to_owned(),
            servers,
            stream_name: config.stream.clone(),
            ack_timeout: config.ack_timeout,
            in_flight: BTreeMap::new(),
            left_out: VecDeque::new(),
            acknowledged_of: None,
            headers: String::new(),
        }
    }

    /// Queues a message and writes what the socket accepts now. `news`: the sink waits for its acknowledgement. Copies the
    /// message once; the sink bounds how many are in flight.
    pub async fn send(&mut self, subject: &str, message: &QueuedMessage, news: bool) {
        headers(&message.id, self.stream_name.as_deref(), &mut self.headers);
        if self.headers.len() + message.line.len() > self.wire.max_payload {
            let (servers, id, camera) = (&self.servers, &message.id, &message.camera);
            let reason = format!("{servers} rejects {id} of camera {camera} as too large; raise max_payload there");
            self.left_out.push_back((news.then_some(message.number), reason));
            return;
        }
        let number = self.wire.publish(subject, &self.headers, &message.line);
        let (message, subject) = (message.clone(), subject.into());
        self.in_flight.insert(number, InFlight { message, subject, news, sent: Instant::now() });
        self.wire.write_some().await;
    }

    /// Returns the server's next answer about a message. The future may be dropped at any time.
    pub async fn next(&mut self) -> Result<Answer, String> {
        loop {
            let until = self.in_flight.values().next().map(|oldest| oldest.sent + self.ack_timeout);
            let Some((number, reply)) = self.reply(until).await? else {
                let late = format!("no acknowledgement within {} s", self.ack_timeout.as_secs_f32());
                // If the server acknowledges other messages, only this message's subject has no stream.
                let others = self.acknowledged_of;
                let oldest =
                    self.in_flight.pop_first().filter(|(_, oldest)| others.is_some_and(|of| of >= oldest.sent));
                let Some((_, oldest)) = oldest else { return Err(self.at(&late)) };
                let reason = self.at(&format!("the messages of camera {}: {late}", oldest.message.camera));
                return Ok(oldest.refused(reason));
            };
            let Some(answered) = self.in_flight.remove(&number) else { continue };
            self.wire.was_asked();
            return Ok(match self.refusal(&answered, reply) {
                None => {
                    self.acknowledged_of = self.acknowledged_of.max(Some(answered.sent));
                    if answered.news { Answer::Acknowledged(answered.message) } else { Answer::Nothing }
                }
                Some(Rejection { reason, is_final: true }) => answered.impossible(self.at(&reason)),
                Some(Rejection { reason, is_final: false }) => answered.refused(self.at(&reason)),
            });
        }
    }

    /// Sends a request to a service of the server while no message is in flight; `None` if it does not answer in time or does
    /// not exist.
    pub async fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Option<Bytes>, String> {
        let until = Instant::now() + self.ack_timeout;
        let wanted = self.wire.publish(subject, "", payload);
        while let Some((number, reply)) = self.reply(Some(until)).await? {
            if number == wanted {
                self.wire.was_asked();
                return Ok(reply.ok().filter(|reply| reply.status != Some(NO_RESPONDERS)).map(|reply| reply.payload));
            }
        }
        Ok(None)
    }

    /// Sends what is queued, and closes the connection.
    pub async fn close(self, within: Duration) {
        // The next connection sends messages that are not sent in time.
        self.wire.close(within).await;
    }

    /// Prefixes `what` with the servers' addresses.
    pub fn at(&self, what: &str) -> String {
        format!("{}: {what}", self.servers)
    }

    /// Returns why the stream does not accept a message; `None` if it does.
    fn refusal(&self, answered: &InFlight, reply: Result<ServerMessage, String>) -> Option<Rejection> {
        let QueuedMessage { camera, id, .. } = &answered.message;
        let reply = match reply {
            Ok(reply) => reply,
            Err(words) => return Some(words.into()),
        };
        if reply.status == Some(NO_RESPONDERS) {
            let reason = format!(
                "no stream accepts the messages of camera {camera}: make one (`nats stream add`), or set `stream` and \
                 `create_stream`; start the server with -js if it has no streams at all"
            );
            return Some(reason.into());
        }
        let Rejection { reason, is_final } = acknowledgement(&reply.payload).err()?;
        let reason = if is_final {
            format!("the stream rejects {id} of camera {camera}: {reason}; raise the stream's max_msg_size")
        } else {
            format!("the stream rejects the messages of camera {camera}: {reason}")
        };
        Some(Rejection { reason, is_final })
    }

    /// Returns the next answer and its number; `None` if none arrives until then.
    async fn reply(&mut self, until: Option<Instant>) -> Result<Option<Numbered>, String> {
        match self.wire.next(until).await.map_err(|reason| self.at(&reason))? {
            None | Some(Received::Published) => Ok(None),
            Some(Received::Answer(number, message)) => Ok(Some((number, Ok(message)))),
            // The server continues; it reports this once for each message.
            Some(Received::Error(error)) => match self.forbidden(&error) {
                Some(number) => Ok(Some((number, Err(explain_server(&error))))),
                None => Err(self.at(&explain_server(&error))),
            },
        }
    }

    /// Returns the oldest message that this login may not publish, if that is the error.
    fn forbidden(&self, error: &str) -> Option<u64> {
        let (_, subject) = error.split_once("Permissions Violation for Publish to \"")?;
        let is_it = |found: &str| match subject.strip_suffix('"') {
            Some(subject) => found == subject,
            // A long one is cut.
            None => subject.strip_suffix("...").is_some_and(|start| found.starts_with(start)),
        };
        self.in_flight.iter().find(|(_, sent)| is_it(&sent.subject)).map(|(number, _)| *number)
    }
}

/// Creates the headers of a message: its id, and the stream that must accept it.
fn headers(id: &str, stream: Option<&str>, out: &mut String) {
    out.clear();
    // Writing to a string cannot fail.
    let _ = write!(out, "NATS/1.0\r\nNats-Msg-Id: {id}\r\n");
    if let Some(stream) = stream {
        let _ = write!(out, "Nats-Expected-Stream: {stream}\r\n");
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests;
