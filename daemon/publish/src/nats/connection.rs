//! A connection to a NATS server, until it is lost.
//!
//! All waiting for the server is in [`NatsConnection::next`] and [`NatsConnection::request`]. The future of `next` may be
//! dropped at any await, because the connection keeps what was read or half written.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::ReadBuf;
use visiond_config::types::NatsSinkConfig;

use super::answer::{Rejection, acknowledgement};
use super::auth::ClientAuth;
use super::connect::{Accepted, ENDED, describe_io_error, explain_server, open};
use super::protocol::{self, PING, PONG, Reply, ServerOp, decode};
use crate::broker::{QueuedMessage, TcpOrTls, UNASKED_BYTES, unasked};
use crate::sink::SinkError;

/// How often to ping a silent server; the connection is lost after two unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const MOST_PINGS: u32 = 2;
/// A server with this many unread bytes gets no PONG until it reads.
const MOST_UNREAD: usize = 256 << 10;
/// The status of an answer that reports that the request has no receiver.
const NO_RESPONDERS: u16 = 503;

pub struct NatsConnection {
    stream: Box<dyn TcpOrTls>,
    /// Bytes that were read: at most a message and its line, plus the result of one read.
    input: BytesMut,
    output: BytesMut,
    unflushed: bool,
    /// How writing failed. The server may have sent the reason before it closed.
    broken: Option<String>,
    /// The sink's name, for the log.
    pub sink: String,
    /// The servers, for errors.
    servers: String,
    /// The stream that must accept the messages.
    stream_name: Option<String>,
    pub ack_timeout: Duration,
    max_payload: usize,
    /// The subject of answers: this prefix and a number.
    inbox: String,
    last_reply: u64,
    /// Sent messages without an acknowledgement, oldest first, by the number of their answer.
    in_flight: BTreeMap<u64, InFlight>,
    /// Messages that are too large for this server: the reason, and the number unless the sink already has the
    /// acknowledgement.
    pub left_out: VecDeque<(Option<u64>, String)>,
    /// When the newest acknowledged message was sent.
    acknowledged_of: Option<Instant>,
    /// The headers of one message, in a reused buffer.
    headers: String,
    /// Bytes since the last answer to something that visiond sent.
    unasked: usize,
    received_at: Instant,
    /// PINGs since then.
    pings: u32,
    /// Whether the server owes a PONG.
    pinged: bool,
}

/// The number of a message with its answer, or why this login may not publish it.
type Numbered = (u64, Result<Reply, String>);

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
    pub async fn open(config: &NatsSinkConfig, auth: &ClientAuth, device: &str, sink: &str) -> Result<Self, String> {
        let servers = config.url.join(", ");
        let inbox = inbox().map_err(|error| error.reason)?;
        let accepted = open(config, auth, &format!("visiond {device} {sink}")).await?;
        let mut connection = Self::new(accepted, inbox, servers, sink, config);
        let subscription = format!("SUB {}* 1\r\n", connection.inbox);
        connection.output.extend_from_slice(subscription.as_bytes());
        Ok(connection)
    }

    fn new(accepted: Accepted, inbox: String, servers: String, sink: &str, config: &NatsSinkConfig) -> Self {
        Self {
            stream: accepted.stream,
            input: accepted.input,
            output: BytesMut::new(),
            unflushed: false,
            broken: None,
            sink: sink.to_owned(),
            servers,
            stream_name: config.stream.clone(),
            ack_timeout: config.ack_timeout,
            max_payload: accepted.max_payload,
            inbox,
            last_reply: 0,
            in_flight: BTreeMap::new(),
            left_out: VecDeque::new(),
            acknowledged_of: None,
            headers: String::new(),
            unasked: 0,
            received_at: Instant::now(),
            pings: 0,
            pinged: false,
        }
    }

    /// Queues a message and writes what the socket accepts now. `news`: the sink waits for its acknowledgement. Copies the
    /// message once; the sink bounds how many are in flight.
    pub async fn send(&mut self, subject: &str, message: &QueuedMessage, news: bool) {
        protocol::headers(&message.id, self.stream_name.as_deref(), &mut self.headers);
        if self.headers.len() + message.line.len() > self.max_payload {
            let (servers, id, camera) = (&self.servers, &message.id, &message.camera);
            let reason = format!("{servers} rejects {id} of camera {camera} as too large; raise max_payload there");
            self.left_out.push_back((news.then_some(message.number), reason));
            return;
        }
        let reply = self.reply_subject();
        protocol::publish(subject, &reply, &self.headers, &message.line, &mut self.output);
        let (message, subject) = (message.clone(), subject.into());
        self.in_flight.insert(self.last_reply, InFlight { message, subject, news, sent: Instant::now() });
        poll_fn(|context| {
            // `next` reports the error.
            let _ = self.write(context);
            Poll::Ready(())
        })
        .await;
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
            self.unasked = 0;
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
        let (reply, until) = (self.reply_subject(), Instant::now() + self.ack_timeout);
        let wanted = self.last_reply;
        protocol::publish(subject, &reply, "", payload, &mut self.output);
        while let Some((number, reply)) = self.reply(Some(until)).await? {
            if number == wanted {
                self.unasked = 0;
                return Ok(reply.ok().filter(|reply| reply.status != Some(NO_RESPONDERS)).map(|reply| reply.payload));
            }
        }
        Ok(None)
    }

    /// Sends what is queued, and closes the connection.
    pub async fn close(mut self, within: Duration) {
        let ended = async {
            let _ = poll_fn(|context| self.write(context)).await;
            let _ = poll_fn(|context| Pin::new(&mut *self.stream).poll_shutdown(context)).await;
        };
        // The next connection sends messages that are not sent in time.
        let _ = tokio::time::timeout(within, ended).await;
    }

    /// Prefixes `what` with the servers' addresses.
    pub fn at(&self, what: &str) -> String {
        format!("{}: {what}", self.servers)
    }

    /// Returns the subject of the next answer.
    fn reply_subject(&mut self) -> String {
        self.last_reply += 1;
        format!("{}{}", self.inbox, self.last_reply)
    }

    /// Returns why the stream does not accept a message; `None` if it does.
    fn refusal(&self, answered: &InFlight, reply: Result<Reply, String>) -> Option<Rejection> {
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

    /// Returns the next answer and its number; `None` if none arrives until then. Pings a silent server meanwhile.
    async fn reply(&mut self, until: Option<Instant>) -> Result<Option<Numbered>, String> {
        loop {
            let ping_at = self.received_at + PING_INTERVAL * (self.pings + 1);
            let wake_at = until.map_or(ping_at, |until| until.min(ping_at));
            let answer = poll_fn(|context| self.poll_reply(context));
            match tokio::time::timeout_at(wake_at.into(), answer).await {
                Ok(Ok(answer)) => return Ok(Some(answer)),
                Ok(Err(reason)) => return Err(self.at(&reason)),
                Err(_) if until.is_some_and(|until| until <= wake_at) => return Ok(None),
                Err(_) if self.pings == MOST_PINGS => {
                    let seconds = (PING_INTERVAL * (MOST_PINGS + 1)).as_secs();
                    let silent = format!("no word from the server for {seconds} s: check the server and the network");
                    return Err(self.at(&silent));
                }
                Err(_) => {
                    self.output.extend_from_slice(PING);
                    self.pings += 1;
                    self.pinged = true;
                }
            }
        }
    }

    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Numbered, String>> {
        loop {
            while let Some(op) = decode(&mut self.input)? {
                if let Some(answer) = self.received(op)? {
                    return Poll::Ready(Ok(answer));
                }
            }
            if self.broken.is_none()
                && let Poll::Ready(Err(error)) = self.write(context)
            {
                self.broken = Some(describe_io_error(&error));
            }
            match (self.read(context), &self.broken) {
                (Poll::Ready(Ok(())), _) => {}
                (_, Some(reason)) => return Poll::Ready(Err(reason.clone())),
                (Poll::Ready(Err(reason)), None) => return Poll::Ready(Err(reason)),
                (Poll::Pending, None) => return Poll::Pending,
            }
        }
    }

    /// Handles an operation; returns an answer.
    fn received(&mut self, op: ServerOp) -> Result<Option<Numbered>, String> {
        match op {
            ServerOp::Message(reply) => {
                let number = reply.subject.strip_prefix(&self.inbox).and_then(|number| number.parse().ok());
                return Ok(number.map(|number| (number, Ok(reply))));
            }
            ServerOp::Ping if self.output.len() < MOST_UNREAD => self.output.extend_from_slice(PONG),
            ServerOp::Pong if self.pinged => (self.pinged, self.unasked) = (false, 0),
            ServerOp::Info(info) => self.max_payload = info.max_payload,
            // The server continues; it reports this once for each message.
            ServerOp::Error(error) => match self.forbidden(&error) {
                Some(number) => return Ok(Some((number, Err(explain_server(&error))))),
                None => return Err(explain_server(&error)),
            },
            ServerOp::Ping | ServerOp::Pong | ServerOp::Ok => {}
        }
        Ok(None)
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

    /// Reads once.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let mut chunk = [0; 4096];
        let mut buffer = ReadBuf::new(&mut chunk);
        if let Err(error) = ready!(Pin::new(&mut *self.stream).poll_read(context, &mut buffer)) {
            return Poll::Ready(Err(describe_io_error(&error)));
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(ENDED.to_owned()));
        }
        self.input.extend_from_slice(buffer.filled());
        self.unasked += buffer.filled().len();
        if self.unasked > UNASKED_BYTES {
            return Poll::Ready(Err(unasked("server")));
        }
        (self.received_at, self.pings) = (Instant::now(), 0);
        Poll::Ready(Ok(()))
    }

    /// Writes what is queued; ready when nothing is left to write.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let n = ready!(Pin::new(&mut *self.stream).poll_write(context, &self.output))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(n);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Makes a subject that no other client can guess, so that none can acknowledge messages in the stream's place.
fn inbox() -> Result<String, SinkError> {
    let mut random = [0; 16];
    let provider = rustls::crypto::ring::default_provider();
    let failed = |_| SinkError::certain("url", "the system provides no random numbers: check /dev/urandom");
    provider.secure_random.fill(&mut random).map_err(failed)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("_INBOX.{digits}."))
}

#[cfg(test)]
mod tests;
