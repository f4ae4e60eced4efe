//! Reads the messages of a stream in their order, without a gap, over any number of connections.
//!
//! A reader has an ephemeral pull consumer, and asks for a bounded number of messages at a time. The server numbers what it
//! delivers: after a gap, a lost connection or a lost consumer, the reader makes another one that starts after the last message.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::sleep;

use crate::client::{Client, NO_RESPONDERS, NoMore, Request};
use crate::error::NatsError;
use crate::protocol::ServerMessage;
use crate::stream;
use crate::wire::random_digits;

/// How many messages are requested at a time: at first, and at most. The server sends all of them without a wait, and disconnects
/// a client that has not taken 64 MiB. A limit of bytes in the request would help, but nats-server 2.9 then skips messages.
const BATCH: [u64; 2] = [32, 512];
/// How many bytes should be requested at a time, as far as the last messages show.
const BATCH_BYTES: usize = 8 << 20;
/// How long a request of messages waits at the server.
const EXPIRES: Duration = Duration::from_secs(20);
/// How often the server tells that it still waits.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a request of messages waits that are there. They may have been removed in the meantime.
const EXPIRES_WHILE_BEHIND: Duration = Duration::from_secs(2);
/// How long a cluster may take to make a consumer.
const CREATED_WITHIN: Duration = Duration::from_secs(4);
/// How long the removal of a consumer may take.
const REMOVED_WITHIN: Duration = Duration::from_secs(2);
/// When the server removes a consumer that nobody reads from.
const INACTIVE: Duration = Duration::from_secs(60);
/// The pause before a reader starts again for the first time; the next ones are longer.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the messages of a stream whose subjects match a filter: the last one of each subject, then what comes.
#[derive(Debug)]
pub struct StreamReader {
    stream: String,
    filter: String,
    consumer: Option<Consumer>,
    /// The sequence of the last message.
    last: u64,
    /// How many messages were in the stream after the last one.
    pending: Option<u64>,
    /// How often it started again since the last message or heartbeat, and since when.
    restarts: u32,
    failing_since: Option<Instant>,
    /// The sequence up to which it reads what is there.
    until: Option<u64>,
}

#[derive(Debug)]
struct Consumer {
    name: String,
    /// How many messages it has delivered.
    delivered: u64,
    /// The generation and number of the client's reader.
    reader: (u64, u64),
    /// How many messages to request next.
    batch: u64,
    /// The size of the largest message of the last request, in bytes.
    largest: usize,
    /// How many of the requested messages are still to come.
    left: u64,
    /// Whether fewer messages came than should be there.
    in_doubt: bool,
    /// How long to wait for the next of them, or for a heartbeat.
    patience: Duration,
}

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When it was stored, in seconds since 1970.
    pub stored_unix_s: u64,
    /// The message.
    pub message: ServerMessage,
}

impl StreamReader {
    /// Creates a reader.
    pub fn new(stream: &str, filter: &str) -> Self {
        let (stream, filter) = (stream.to_owned(), filter.to_owned());
        Self { stream, filter, consumer: None, last: 0, pending: None, restarts: 0, failing_since: None, until: None }
    }

    /// Returns whether the reader has everything that was in the stream when the last message was sent.
    pub fn is_caught_up(&self) -> bool {
        self.pending == Some(0)
    }

    /// Returns the next of the messages that were in the stream at the first call; `None` if there is none. One that was replaced
    /// meanwhile is gone: [`last_of_each`] finds the new one.
    ///
    /// # Errors
    /// If no server answers in time, or forbids it.
    pub async fn next_present(&mut self, client: &mut Client) -> Result<Option<Delivered>, NatsError> {
        // What is replaced all the time must not keep the reader for ever, so what the server calls pending does not count alone.
        let until = match self.until {
            Some(until) => until,
            None => *self.until.insert(newest(client, &self.stream).await?),
        };
        while !self.is_caught_up() && self.last < until {
            if let Some(delivered) = self.step(client).await? {
                return Ok(Some(delivered));
            }
        }
        Ok(None)
    }

    /// Gives what [`StreamReader::next_present`] returns to `take`, until it breaks, and removes the consumer.
    async fn each_present(
        &mut self,
        client: &mut Client,
        mut take: impl FnMut(&Client, Delivered) -> Result<ControlFlow<()>, NatsError>,
    ) -> Result<ControlFlow<()>, NatsError> {
        let mut flow = Ok(ControlFlow::Continue(()));
        while let Some(delivered) = self.next_present(client).await? {
            flow = take(client, delivered);
            if !matches!(flow, Ok(ControlFlow::Continue(()))) {
                break;
            }
        }
        self.remove_consumer(client).await;
        flow
    }

    /// Removes the consumer. A server does so by itself, but only after a minute.
    async fn remove_consumer(&mut self, client: &mut Client) {
        let Some(Consumer { name, .. }) = self.consumer.take() else { return };
        let subject = client.api(&format!("CONSUMER.DELETE.{}.{name}", self.stream));
        let (what, patience) = (read(&self.stream), REMOVED_WITHIN.min(client.patience()));
        let request = Request { what: &what, subject: &subject, headers: &[], payload: b"" };
        if let Err(error) = client.ask_within::<IgnoredAny>(&request, patience).await {
            log::debug!("{what}: the server still has the consumer: {error}");
        }
    }

    /// Waits for the next message. Cancel-safe: no message is lost if the future is dropped.
    ///
    /// # Errors
    /// If no server answers in time, or forbids it.
    pub async fn next(&mut self, client: &mut Client) -> Result<Delivered, NatsError> {
        loop {
            if let Some(delivered) = self.step(client).await? {
                return Ok(delivered);
            }
        }
    }

    /// Waits for one word of the server; returns a message if it is one.
    async fn step(&mut self, client: &mut Client) -> Result<Option<Delivered>, NatsError> {
        if self.consumer.is_none() {
            if self.restarts > 0 {
                sleep((PAUSE * self.restarts).min(client.patience())).await;
            }
            self.consumer = Some(self.create(client).await?);
            if self.is_caught_up() {
                return Ok(None);
            }
        }
        let Some(consumer) = &mut self.consumer else { return Ok(None) };
        if consumer.left == 0 {
            consumer.request_messages(client, &self.stream, self.pending.unwrap_or(0)).await;
        }
        let (generation, reader) = consumer.reader;
        let (number, message) = match client.answer(generation, consumer.patience).await? {
            Ok(answer) => answer,
            Err(NoMore::Superseded) => {
                self.consumer = None;
                return Ok(None);
            }
            Err(NoMore::Lost(reason)) => return self.restart(client, &reason).map(|()| None),
        };
        if number != reader {
            return Ok(None);
        }
        match message.status {
            None => {}
            // A heartbeat, which says what was delivered.
            Some(100) => {
                (self.restarts, self.failing_since) = (0, None);
                let said = message.header("Nats-Last-Consumer").and_then(|number| number.parse::<u64>().ok());
                if said.is_some_and(|said| said > consumer.delivered) {
                    return self.restart(client, "messages are missing").map(|()| None);
                }
                return Ok(None);
            }
            // There is nothing.
            Some(404) => {
                (consumer.left, self.pending) = (0, Some(0));
                return Ok(None);
            }
            // The request has expired. What was there may be gone, or the server is slow.
            Some(408) => {
                (consumer.left, consumer.in_doubt) = (0, self.pending != Some(0));
                return Ok(None);
            }
            Some(NO_RESPONDERS) => return self.restart(client, "the consumer is gone").map(|()| None),
            Some(_) => return self.restart(client, &message.status_text()).map(|()| None),
        }
        let Some(position) = message.reply.as_deref().and_then(Position::parse) else {
            return Err(client.invalid(&read(&self.stream), "a message has no position"));
        };
        if position.number != consumer.delivered + 1 {
            return self.restart(client, "messages are missing").map(|()| None);
        }
        consumer.delivered = position.number;
        consumer.left -= 1;
        consumer.largest = consumer.largest.max(message.payload.len());
        if consumer.in_doubt && position.pending == 0 {
            // The server has answered with what was there.
            (consumer.left, consumer.in_doubt) = (0, false);
        }
        (self.last, self.pending) = (position.sequence, Some(position.pending));
        (self.restarts, self.failing_since) = (0, None);
        Ok(Some(Delivered { sequence: position.sequence, stored_unix_s: position.stored_unix_s, message }))
    }

    /// Drops the consumer, so that the next step makes another.
    fn restart(&mut self, client: &Client, reason: &str) -> Result<(), NatsError> {
        self.consumer = None;
        self.restarts += 1;
        if self.failing_since.get_or_insert_with(Instant::now).elapsed() > client.patience() {
            (self.restarts, self.failing_since) = (0, None);
            return Err(NatsError::Lost { servers: client.servers().to_owned(), reason: reason.to_owned() });
        }
        log::debug!("{}: {reason}; continuing after message {}", read(&self.stream), self.last);
        Ok(())
    }

    /// Makes a consumer. A cluster may assign it to a node that was just lost, and then never answers; so each attempt makes
    /// another one.
    async fn create(&mut self, client: &mut Client) -> Result<Consumer, NatsError> {
        let (started, patience) = (Instant::now(), client.patience());
        loop {
            let left = patience.saturating_sub(started.elapsed());
            match self.create_once(client, CREATED_WITHIN.min(left)).await {
                Err(NatsError::NoAnswer { .. }) if left > CREATED_WITHIN => {}
                result => return result,
            }
        }
    }

    async fn create_once(&mut self, client: &mut Client, patience: Duration) -> Result<Consumer, NatsError> {
        #[derive(Deserialize)]
        struct Created {
            #[serde(default)]
            num_pending: u64,
        }
        let what = read(&self.stream);
        let name = random_digits().map_err(|why| client.invalid(&what, why))?;
        let mut config = json!({
            "name": name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self.filter,
            "inactive_threshold": u64::try_from(INACTIVE.as_nanos()).unwrap_or(u64::MAX),
            "num_replicas": 1,
            "mem_storage": true,
        });
        if self.last == 0 {
            config["deliver_policy"] = "last_per_subject".into();
        } else {
            config["deliver_policy"] = "by_start_sequence".into();
            config["opt_start_seq"] = (self.last + 1).into();
        }
        let payload = json!({ "stream_name": self.stream, "config": config }).to_string();
        let subject = client.api(&format!("CONSUMER.CREATE.{}.{name}.{}", self.stream, self.filter));
        let request = Request { what: &what, subject: &subject, headers: &[], payload: payload.as_bytes() };
        let created: Created = client.ask_within(&request, patience).await?;
        self.pending = Some(created.num_pending);
        let reader = client.open_reader().await?;
        Ok(Consumer {
            name,
            delivered: 0,
            reader,
            batch: BATCH[0],
            largest: 0,
            left: 0,
            in_doubt: false,
            patience: HEARTBEAT,
        })
    }
}

impl Consumer {
    /// Requests messages: those that are there, or the next ones.
    async fn request_messages(&mut self, client: &mut Client, stream: &str, pending: u64) {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let most = (BATCH_BYTES / self.largest.max(1)) as u64;
        self.left = self.batch.min(most).min(if pending == 0 { BATCH[1] } else { pending }).max(1);
        (self.batch, self.largest) = ((self.batch * 2).min(BATCH[1]), 0);
        let mut wanted = json!({ "batch": self.left });
        if pending == 0 {
            self.patience = HEARTBEAT * 2;
            wanted["expires"] = ns(EXPIRES).into();
            wanted["idle_heartbeat"] = ns(HEARTBEAT).into();
        } else {
            self.patience = (EXPIRES_WHILE_BEHIND * 2).min(client.patience());
            if self.in_doubt {
                wanted["no_wait"] = true.into();
            } else {
                wanted["expires"] = ns(EXPIRES_WHILE_BEHIND).into();
            }
        }
        let subject = client.api(&format!("CONSUMER.MSG.NEXT.{stream}.{}", self.name));
        client.request_messages(self.reader, &subject, wanted.to_string().as_bytes()).await;
    }
}

/// Gives the last message of each subject that matches a filter to `take`, until it breaks: of each subject that has one
/// throughout the call, once or more often, one that is not older than the call. Remembers the subjects.
///
/// # Errors
/// If no server answers in time, or forbids it.
pub async fn last_of_each(
    client: &mut Client,
    stream: &str,
    filter: &str,
    mut take: impl FnMut(&Client, Delivered) -> Result<ControlFlow<()>, NatsError>,
) -> Result<(), NatsError> {
    let mut seen = HashSet::new();
    let mut reader = StreamReader::new(stream, filter);
    let flow = reader.each_present(client, |client, delivered| {
        seen.insert(delivered.message.subject.clone());
        take(client, delivered)
    });
    if flow.await?.is_break() {
        return Ok(());
    }
    if reader.until == Some(newest(client, stream).await?) {
        return Ok(());
    }
    // What was replaced before it was read.
    for subject in stream::subjects(client, stream, filter).await?.into_keys() {
        if seen.contains(&subject) {
            continue;
        }
        if StreamReader::new(stream, &subject).each_present(client, &mut take).await?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the sequence of the newest message of a stream, whatever its subject.
async fn newest(client: &mut Client, stream: &str) -> Result<u64, NatsError> {
    Ok(stream::info(client, stream).await?.map_or(0, |info| info.state.last_seq))
}

fn read(stream: &str) -> String {
    format!("read the stream {stream}")
}

/// Where a delivered message is, as its reply subject says.
#[derive(Debug, PartialEq, Eq)]
struct Position {
    /// In the stream.
    sequence: u64,
    /// Among what the consumer has delivered, from 1.
    number: u64,
    /// When it was stored, in seconds since 1970.
    stored_unix_s: u64,
    /// How many messages come after it.
    pending: u64,
}

impl Position {
    /// Parses `$JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.NUMBER.TIME.PENDING`; newer servers may put DOMAIN and ACCOUNT before
    /// the stream, and a token at the end.
    fn parse(reply: &str) -> Option<Self> {
        let words: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let rest = match words.len() {
            7 => &words[3..],
            9.. => &words[5..],
            _ => return None,
        };
        let number = |at: usize| rest.get(at)?.parse::<u64>().ok();
        let stored_unix_s = number(2)? / 1_000_000_000;
        // No stream gets to the last number.
        let sequence = number(0).filter(|&number| number < u64::MAX)?;
        Some(Self { sequence, number: number(1)?, stored_unix_s, pending: number(3)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_where_it_is() {
        let position = Some(Position { sequence: 7, number: 2, stored_unix_s: 1, pending: 5 });
        assert_eq!(Position::parse("$JS.ACK.s.c.1.7.2.1700000000.5"), position);
        assert_eq!(Position::parse("$JS.ACK.domain.hash.s.c.1.7.2.1700000000.5"), position);
        assert_eq!(Position::parse("$JS.ACK.domain.hash.s.c.1.7.2.1700000000.5.token"), position);
        for wrong in ["", "$JS.ACK.s.c", "$JS.ACK.s.c.1.x.2.3.4", "$JS.ACK.s.c.1.7.2.3.4.5", "x.s.c.1.7.2.3.4"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }
}
