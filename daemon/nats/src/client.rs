//! A client that repeats a request until a server answers it.

use std::fmt::Write as _;
use std::mem;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::time::sleep;
use visiond_system::setting_error::SettingError;

use crate::answer::{NOT_ENABLED, NOT_ENABLED_FOR_ACCOUNT, Refusal};
use crate::connect::open;
use crate::error::NatsError;
use crate::options::Options;
use crate::protocol::ServerMessage;
use crate::shorten;
use crate::wire::{Received, Wire, inbox, random_digits};

/// The largest message accepted from a server, in bytes. nats-server's default for what it accepts is 1 MiB; it adds headers.
pub const MESSAGE_BYTES: u64 = 8 << 20;
/// How long one server may take to answer a request, before the client repeats it.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The slowest link that a request is given time for, in bytes each second.
const SLOWEST: u64 = 32 << 10;
/// How long an answer may take that comes in slowly.
const MOST_WAIT: Duration = Duration::from_secs(300);
/// The pauses before a request is repeated: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long a request to JetStream itself is repeated while no server takes it. A stream without a leader takes longer.
const NO_JETSTREAM_AFTER: Duration = Duration::from_secs(3);
/// The status of an answer that reports that the request has no receiver.
pub const NO_RESPONDERS: u16 = 503;

/// A client of the servers of a cluster.
///
/// It has one connection and does one thing at a time. A lost connection is opened again, to any server of the cluster, by the
/// request that notices it. A request is repeated for [`Options::patience`] while the connection breaks, a server does not
/// answer, or the cluster elects a leader. What is written carries an id, so that a repeated write takes effect once.
///
/// The future of a request may be dropped; a write may then have taken effect or not.
#[derive(Debug)]
pub struct Client {
    options: Options,
    servers: String,
    wire: Option<Wire>,
    /// Counts connections and requests: answers to something older are dropped.
    generation: u64,
    /// Whether somebody published to a subject of [`Client::published`] while a request was under way.
    was_published: bool,
}

/// A request to a service of the server, which may be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What it does, as an imperative, for errors.
    pub what: &'a str,
    /// Where it goes.
    pub subject: &'a str,
    /// Its headers, without `NATS/1.0` and the empty line; may be empty.
    pub headers: &'a [(&'a str, &'a str)],
    /// Its contents.
    pub payload: &'a [u8],
}

/// Why a generation of requests gets no more answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoMore {
    /// Another request was sent since, which may have dropped some.
    Superseded,
    /// The connection is lost, or nothing came in time.
    Lost(String),
}

/// How one attempt ended that may be repeated.
enum Attempt {
    Lost(String),
    Silent,
    NoResponders,
    Unready(Refusal),
}

/// JetStream's acknowledgement of a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Stored {
    /// Its sequence in the stream.
    pub seq: u64,
}

impl Client {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// If no server can be reached, refuses the login, or a file of the options cannot be used. Nothing is repeated.
    pub async fn connect(options: Options) -> Result<Self, NatsError> {
        let servers = options.servers();
        let mut client = Self { options, servers, wire: None, generation: 0, was_published: false };
        client.reconnect().await?;
        Ok(client)
    }

    /// Returns the servers, for errors and the log.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// Returns a subject of JetStream's API.
    pub(crate) fn api(&self, name: &str) -> String {
        format!("{}.{name}", self.options.api_prefix())
    }

    /// Returns the subject to publish to for a value of a bucket. As other clients have it, a prefix of the API counts here as well.
    pub(crate) fn value_subject(&self, subject: &str) -> String {
        match &self.options.api_prefix {
            Some(prefix) => format!("{prefix}.{subject}"),
            None => subject.to_owned(),
        }
    }

    /// Returns whether JetStream itself takes the request, and not a stream.
    fn is_api(&self, request: &Request<'_>) -> bool {
        self.api_name(request).is_some_and(|name| !name.starts_with("DIRECT."))
    }

    /// Returns whether a stream's replica answers with a stored message.
    fn is_direct(&self, request: &Request<'_>) -> bool {
        self.api_name(request).is_some_and(|name| name.starts_with("DIRECT."))
    }

    /// Returns what the request asks of JetStream's API; `None` if it publishes a message.
    fn api_name<'r>(&self, request: &Request<'r>) -> Option<&'r str> {
        let name = request.subject.strip_prefix(self.options.api_prefix())?.strip_prefix('.')?;
        (!name.starts_with('$')).then_some(name)
    }

    /// Ends the connection. Dropping the client does the same without a word to the server.
    pub async fn close(mut self) {
        if let Some(wire) = self.wire.take() {
            wire.close(Duration::from_secs(1)).await;
        }
    }

    /// Returns the largest message that the server accepts, in bytes with its headers.
    pub(crate) fn max_payload(&self) -> u64 {
        self.wire.as_ref().map_or(1 << 20, |wire| wire.max_payload as u64)
    }

    /// Sends a request, and repeats it until it is answered. The answer may be an error of JetStream that lasts.
    ///
    /// # Errors
    /// If it is not answered in time, forbidden or too large.
    pub async fn request(&mut self, request: &Request<'_>) -> Result<ServerMessage, NatsError> {
        self.request_within(request, self.options.patience).await
    }

    async fn request_within(&mut self, request: &Request<'_>, patience: Duration) -> Result<ServerMessage, NatsError> {
        let started = Instant::now();
        let mut pause = PAUSES[0];
        loop {
            let left = patience.saturating_sub(started.elapsed());
            let within = ATTEMPT + Duration::from_millis(request.payload.len() as u64 * 1000 / SLOWEST);
            let failed = match self.attempt(request, within.min(left)).await? {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let elapsed = started.elapsed();
            let is_over = elapsed + pause >= patience;
            match failed {
                Attempt::NoResponders if is_over || (self.is_api(request) && elapsed > NO_JETSTREAM_AFTER) => {
                    return Err(match self.is_api(request) {
                        true => NatsError::NoJetStream { servers: self.servers.clone() },
                        false => self.no_answer(request, elapsed),
                    });
                }
                Attempt::Lost(reason) if is_over => {
                    return Err(NatsError::Lost { servers: self.servers.clone(), reason });
                }
                Attempt::Silent if is_over => return Err(self.no_answer(request, elapsed)),
                Attempt::Unready(refusal) if is_over => return Err(self.refused(request.what, refusal)),
                // Another server may do better.
                Attempt::Silent => self.wire = None,
                _ => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Sends a request to JetStream's API, and returns its answer.
    ///
    /// # Errors
    /// Those of [`Client::request`]; `Refused` and `NoJetStream`.
    pub async fn ask<T: for<'d> Deserialize<'d>>(&mut self, request: &Request<'_>) -> Result<T, NatsError> {
        self.ask_within(request, self.options.patience).await
    }

    /// Returns how long to repeat a request.
    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Does the same, and repeats the request for that time.
    pub(crate) async fn ask_within<T: for<'d> Deserialize<'d>>(
        &mut self,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<T, NatsError> {
        let message = self.request_within(request, patience).await?;
        match refusal(&message.payload) {
            Some(Refusal { err_code: NOT_ENABLED | NOT_ENABLED_FOR_ACCOUNT, .. }) => {
                return Err(NatsError::NoJetStream { servers: self.servers.clone() });
            }
            Some(refusal) => return Err(self.refused(request.what, refusal)),
            None => {}
        }
        serde_json::from_slice(&message.payload).map_err(|error| self.invalid(request.what, error.to_string()))
    }

    /// Stores a message in a stream. It has an id, so that it is stored once however often it is sent; the stream remembers the
    /// id for its duplicate window, which is longer than any patience.
    ///
    /// # Errors
    /// Those of [`Client::ask`], and `TooLarge`.
    pub async fn store(
        &mut self,
        what: &str,
        subject: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) -> Result<Stored, NatsError> {
        let id = random_digits().map_err(|why| self.invalid(what, why))?;
        let headers = [&[("Nats-Msg-Id", id.as_str())], headers].concat();
        let (bytes, most) = (headers_text(&headers).len() + payload.len(), self.max_payload());
        if bytes as u64 > most {
            let (servers, what) = (self.servers.clone(), subject.to_owned());
            return Err(NatsError::TooLarge {
                servers,
                what,
                bytes: bytes as u64,
                limit: "the server's max_payload",
                most,
            });
        }
        self.ask(&Request { what, subject, headers: &headers, payload }).await
    }

    /// Starts requests whose answers [`Client::answer`] returns; returns the number of the first.
    pub(crate) async fn start(&mut self, request: &Request<'_>) -> Result<(u64, u64), NatsError> {
        if self.wire.is_none() {
            self.reconnect_in_time().await?;
        }
        self.generation += 1;
        let generation = self.generation;
        let number = self.send(request).await;
        Ok((generation, number))
    }

    /// Adds a request to those of a generation; `None` if the connection is another by now.
    pub(crate) async fn also(&mut self, generation: u64, request: &Request<'_>) -> Option<u64> {
        if generation != self.generation || self.wire.is_none() {
            return None;
        }
        Some(self.send(request).await)
    }

    /// Opens a reader, which gets what is requested with [`Client::request_messages`]; returns its generation and number.
    pub(crate) async fn open_reader(&mut self) -> Result<(u64, u64), NatsError> {
        if self.wire.is_none() {
            self.reconnect_in_time().await?;
        }
        self.generation += 1;
        Ok((self.generation, self.wire.as_mut().map_or(0, Wire::open_reader)))
    }

    /// Requests messages for a reader. If the connection is another by now, [`Client::answer`] says so.
    pub(crate) async fn request_messages(&mut self, (generation, number): (u64, u64), subject: &str, payload: &[u8]) {
        if generation == self.generation
            && let Some(wire) = &mut self.wire
        {
            wire.publish_to_reader(number, subject, payload);
            wire.write_some().await;
        }
    }

    /// Returns the next message to an answer or reader of this generation, and its number. Cancel-safe.
    pub(crate) async fn answer(
        &mut self,
        generation: u64,
        within: Duration,
    ) -> Result<Result<(u64, ServerMessage), NoMore>, NatsError> {
        if generation != self.generation {
            return Ok(Err(NoMore::Superseded));
        }
        let lost = |reason: String| Ok(Err(NoMore::Lost(reason)));
        let started = Instant::now();
        let mut until = started + within;
        loop {
            let Some(wire) = &mut self.wire else { return lost("there is no connection".to_owned()) };
            match wire.next(Some(until)).await {
                Ok(Some(Received::Answer(number, message))) => {
                    wire.was_asked();
                    return Ok(Ok((number, message)));
                }
                Ok(Some(Received::Error(error))) => match self.forbidden(&error) {
                    Some(error) => return Err(error),
                    None => {
                        self.wire = None;
                        return lost(format!("the server says: {}", shorten(&error)));
                    }
                },
                Ok(Some(Received::Published)) => self.was_published = true,
                // It comes in slowly.
                Ok(None) if wire.received_at + within > until && started.elapsed() < MOST_WAIT => {
                    until = wire.received_at + within;
                }
                Ok(None) => return lost(format!("no answer within {} s", within.as_secs())),
                Err(reason) => {
                    self.wire = None;
                    return lost(reason);
                }
            }
        }
    }

    /// Waits until somebody publishes to one of these subjects, but not longer than `until`; returns whether somebody did. A new
    /// connection counts as that, because something may have been missed. A client has one set of subjects. Cancel-safe.
    ///
    /// # Errors
    /// If no server can be reached in time, the connection is lost, or the login may not subscribe.
    pub async fn published(&mut self, subjects: &[String], until: Instant) -> Result<bool, NatsError> {
        if self.wire.is_none() {
            self.reconnect_in_time().await?;
        }
        loop {
            let lost = |servers: &str, reason: String| NatsError::Lost { servers: servers.to_owned(), reason };
            let Some(wire) = &mut self.wire else { return Err(lost(&self.servers, "it was closed".to_owned())) };
            if wire.listen(subjects) || mem::take(&mut self.was_published) {
                return Ok(true);
            }
            match wire.next(Some(until)).await {
                Ok(Some(Received::Published)) => {
                    wire.was_asked();
                    return Ok(true);
                }
                Ok(Some(Received::Answer(..))) => {}
                Ok(Some(Received::Error(error))) => {
                    let error = self
                        .forbidden(&error)
                        .unwrap_or_else(|| lost(&self.servers, format!("the server says: {}", shorten(&error))));
                    self.wire = None;
                    return Err(error);
                }
                Ok(None) => return Ok(false),
                Err(reason) => {
                    self.wire = None;
                    return Err(lost(&self.servers, reason));
                }
            }
        }
    }

    async fn attempt(
        &mut self,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Result<ServerMessage, Attempt>, NatsError> {
        if self.wire.is_none() {
            match self.reconnect().await {
                Ok(()) => {}
                Err(NatsError::Unreachable(no_server)) => return Ok(Err(Attempt::Lost(no_server.reason))),
                Err(error) => return Err(error),
            }
        }
        self.generation += 1;
        // A direct read answers with what clients have stored.
        let is_direct = self.is_direct(request);
        let wanted = self.send(request).await;
        let started = Instant::now();
        let mut until = started + within;
        loop {
            let Some(wire) = &mut self.wire else { return Ok(Err(Attempt::Lost("it was closed".to_owned()))) };
            match wire.next(Some(until)).await {
                Ok(Some(Received::Answer(number, message))) if number == wanted => {
                    wire.was_asked();
                    let refusal = if is_direct { None } else { refusal(&message.payload) };
                    return Ok(match (message.status, refusal) {
                        (Some(NO_RESPONDERS), _) => Err(Attempt::NoResponders),
                        (_, Some(refusal)) if refusal.is_temporary() => Err(Attempt::Unready(refusal)),
                        _ => Ok(message),
                    });
                }
                // To something older.
                Ok(Some(Received::Answer(..))) => {}
                Ok(Some(Received::Published)) => self.was_published = true,
                Ok(Some(Received::Error(error))) => match self.forbidden(&error) {
                    Some(error) => return Err(error),
                    None => {
                        self.wire = None;
                        return Ok(Err(Attempt::Lost(format!("the server says: {}", shorten(&error)))));
                    }
                },
                // It comes in slowly.
                Ok(None) if wire.received_at + within > until && started.elapsed() < MOST_WAIT => {
                    until = wire.received_at + within;
                }
                Ok(None) => return Ok(Err(Attempt::Silent)),
                Err(reason) => {
                    self.wire = None;
                    return Ok(Err(Attempt::Lost(reason)));
                }
            }
        }
    }

    /// Queues a request, writes what the socket accepts, and returns the number of its answer.
    async fn send(&mut self, request: &Request<'_>) -> u64 {
        let headers = headers_text(request.headers);
        match &mut self.wire {
            Some(wire) => {
                let number = wire.publish(request.subject, &headers, request.payload);
                wire.write_some().await;
                number
            }
            None => 0,
        }
    }

    async fn reconnect(&mut self) -> Result<(), NatsError> {
        self.wire = None;
        // Read for each connection, so that renewed files take effect.
        let auth = self.options.check().map_err(|mut error| {
            error.reason = self.options.explain(error.reason);
            error
        })?;
        let inbox = inbox(self.options.inbox_word.as_deref()).map_err(|reason| SettingError::certain("url", reason))?;
        let accepted = open(&self.options, &auth).await.map_err(|no_server| match no_server.is_login {
            true => NatsError::Login(no_server),
            false => NatsError::Unreachable(no_server),
        })?;
        let mut wire = Wire::new(accepted, inbox, MESSAGE_BYTES);
        wire.subscribe();
        self.wire = Some(wire);
        self.generation += 1;
        Ok(())
    }

    /// Reconnects, and tries again until the patience is over.
    async fn reconnect_in_time(&mut self) -> Result<(), NatsError> {
        let (started, mut pause) = (Instant::now(), PAUSES[0]);
        loop {
            match self.reconnect().await {
                Err(NatsError::Unreachable(_)) if started.elapsed() + pause < self.options.patience => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                }
                result => return result,
            }
        }
    }

    /// Returns the error if the server refuses a subject.
    fn forbidden(&self, error: &str) -> Option<NatsError> {
        let (_, violation) = error.split_once("Permissions Violation for ")?;
        let (action, quoted) = match violation.strip_prefix("Publish to ") {
            Some(quoted) => ("publish to", quoted),
            None => ("subscribe to", violation.strip_prefix("Subscription to ")?),
        };
        let subject = quoted.trim_matches('"').to_owned();
        // Whoever grants the permission cannot know the random part.
        let subject = match (&self.options.inbox_word, subject.starts_with("_INBOX.")) {
            (Some(word), true) => format!("_INBOX.{word}.>"),
            (None, true) => "_INBOX.>".to_owned(),
            (_, false) => subject,
        };
        Some(NatsError::Forbidden { servers: self.servers.clone(), action, subject })
    }

    pub(crate) fn refused(&self, what: &str, refusal: Refusal) -> NatsError {
        NatsError::Refused { servers: self.servers.clone(), what: what.to_owned(), refusal }
    }

    pub(crate) fn invalid(&self, what: &str, why: impl Into<String>) -> NatsError {
        NatsError::Answer { servers: self.servers.clone(), what: what.to_owned(), why: shorten(&why.into()) }
    }

    fn no_answer(&self, request: &Request<'_>, elapsed: Duration) -> NatsError {
        NatsError::NoAnswer { servers: self.servers.clone(), what: request.what.to_owned(), seconds: elapsed.as_secs() }
    }
}

/// Returns JetStream's refusal in an answer.
fn refusal(payload: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Refusal>,
    }
    serde_json::from_slice::<Answer>(payload).ok()?.error
}

fn headers_text(headers: &[(&str, &str)]) -> String {
    let mut text = String::new();
    if !headers.is_empty() {
        text.push_str("NATS/1.0\r\n");
        for (name, value) in headers {
            // Writing to a string cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
    }
    text
}

#[cfg(test)]
mod tests;
