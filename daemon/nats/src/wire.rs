//! A connection to a NATS server, until it is lost: what is read and written, and PINGs.
//!
//! All waiting for the server is in [`Wire::next`]. Its future may be dropped at any await, because the connection keeps what was
//! read or half written.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use crate::connect::{Accepted, ENDED, TcpOrTls, describe_io_error};
use crate::protocol::{self, PING, PONG, ServerMessage, ServerOp, decode};

/// How often to ping a silent server; the connection is lost after two unanswered pings.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How many PINGs a server may leave unanswered.
pub const MOST_PINGS: u32 = 2;
/// A server with this many unread bytes gets no PONG until it reads.
pub const MOST_UNREAD: usize = 256 << 10;

/// How many bytes a broker may send between two answers to something that visiond sent. It is far more than a broker needs to
/// send, and low enough that visiond soon gives up on a broker that never stops.
pub const UNASKED_BYTES: usize = 4 << 20;

/// Returns why visiond disconnects from a broker that sent more than `bytes`.
pub fn unasked(who: &str, bytes: usize) -> String {
    format!("the {who} sent {} MiB that visiond did not request", bytes >> 20)
}

/// The number of the subscription of answers. A reader adds its own number.
const ANSWERS: u64 = 1;
/// The number of the first subscription to what others publish; each has one of its own, as a server ignores a second one of a number.
const OTHERS: u64 = 1 << 63;

/// A connection, and the inbox whose subjects answers go to.
pub struct Wire {
    stream: Box<dyn TcpOrTls>,
    /// Bytes that were read: at most a message and its line, plus the result of one read.
    input: BytesMut,
    /// Bytes to write.
    pub output: BytesMut,
    unflushed: bool,
    /// How writing failed. The server may have sent the reason before it closed.
    broken: Option<String>,
    /// The largest message accepted from the server, in bytes.
    most_bytes: u64,
    /// The largest message that the server accepts, in bytes with its headers.
    pub max_payload: usize,
    /// The subject of answers: this prefix and a number.
    inbox: String,
    /// The number of the newest answer.
    last_reply: u64,
    /// The number of the open reader.
    reader: Option<u64>,
    /// Whether there are subscriptions to what others publish.
    is_listening: bool,
    /// Bytes since the last answer to something that visiond sent.
    unasked: usize,
    /// When the server was last heard.
    pub received_at: Instant,
    /// PINGs since then.
    pings: u32,
    /// Whether the server owes a PONG.
    pinged: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// A word of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message to the answer or reader of this number.
    Answer(u64, ServerMessage),
    /// Somebody published to a subject of [`Wire::listen`].
    Published,
    /// -ERR; the server may continue.
    Error(String),
}

impl Wire {
    /// Takes over a connection; messages from the server may have `most_bytes`.
    pub fn new(accepted: Accepted, inbox: String, most_bytes: u64) -> Self {
        Self {
            stream: accepted.stream,
            input: accepted.input,
            output: BytesMut::new(),
            unflushed: false,
            broken: None,
            most_bytes,
            max_payload: accepted.max_payload,
            inbox,
            last_reply: 0,
            reader: None,
            is_listening: false,
            unasked: 0,
            received_at: Instant::now(),
            pings: 0,
            pinged: false,
        }
    }

    /// Queues the subscription of the inbox.
    pub fn subscribe(&mut self) {
        self.output.extend_from_slice(format!("SUB {}* {ANSWERS}\r\n", self.inbox).as_bytes());
    }

    /// Queues the subscription of a reader, which gets messages under the subjects where they were stored; returns its number.
    /// Ends the former reader.
    pub fn open_reader(&mut self) -> u64 {
        if let Some(former) = self.reader {
            self.output.extend_from_slice(format!("UNSUB {}\r\n", ANSWERS + former).as_bytes());
        }
        self.last_reply += 1;
        let number = self.last_reply;
        let subscription = format!("SUB {} {}\r\n", self.reader_subject(number), ANSWERS + number);
        self.output.extend_from_slice(subscription.as_bytes());
        self.reader = Some(number);
        number
    }

    /// Queues subscriptions to what others publish to these subjects; returns whether they are new on this connection.
    pub fn listen(&mut self, subjects: &[String]) -> bool {
        if self.is_listening {
            return false;
        }
        for (number, subject) in (OTHERS..).zip(subjects) {
            self.output.extend_from_slice(format!("SUB {subject} {number}\r\n").as_bytes());
        }
        self.is_listening = true;
        true
    }

    /// Queues a message whose answers go to the reader of this number.
    pub fn publish_to_reader(&mut self, number: u64, subject: &str, payload: &[u8]) {
        protocol::publish(subject, &self.reader_subject(number), "", payload, &mut self.output);
    }

    /// Returns the subject of a reader, which the subscription of answers does not match.
    fn reader_subject(&self, number: u64) -> String {
        format!("{}reader.{number}", self.inbox)
    }

    /// Queues a message, and returns the number of its answer.
    pub fn publish(&mut self, subject: &str, headers: &str, payload: &[u8]) -> u64 {
        self.last_reply += 1;
        let reply = format!("{}{}", self.inbox, self.last_reply);
        protocol::publish(subject, &reply, headers, payload, &mut self.output);
        self.last_reply
    }

    /// Writes what the socket accepts now. [`Wire::next`] reports an error.
    pub async fn write_some(&mut self) {
        poll_fn(|context| {
            let _ = self.write(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Notes that the server sent what visiond asked for.
    pub fn was_asked(&mut self) {
        self.unasked = 0;
    }

    /// Returns the server's next word; `None` if none arrives until then. Pings a silent server meanwhile.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn next(&mut self, until: Option<Instant>) -> Result<Option<Received>, String> {
        loop {
            let ping_at = self.received_at + PING_INTERVAL * (self.pings + 1);
            let wake_at = until.map_or(ping_at, |until| until.min(ping_at));
            let received = poll_fn(|context| self.poll_received(context));
            match tokio::time::timeout_at(wake_at.into(), received).await {
                Ok(received) => return received.map(Some),
                Err(_) if until.is_some_and(|until| until <= wake_at) => return Ok(None),
                Err(_) if self.pings == MOST_PINGS => {
                    let seconds = (PING_INTERVAL * (MOST_PINGS + 1)).as_secs();
                    return Err(format!("no word from the server for {seconds} s: check the server and the network"));
                }
                Err(_) => {
                    self.output.extend_from_slice(PING);
                    self.pings += 1;
                    self.pinged = true;
                }
            }
        }
    }

    /// Sends what is queued, and closes the connection. What is not sent in time is lost.
    pub async fn close(mut self, within: Duration) {
        let ended = async {
            let _ = poll_fn(|context| self.write(context)).await;
            let _ = poll_fn(|context| Pin::new(&mut *self.stream).poll_shutdown(context)).await;
        };
        let _ = tokio::time::timeout(within, ended).await;
    }

    fn poll_received(&mut self, context: &mut Context<'_>) -> Poll<Result<Received, String>> {
        loop {
            while let Some(op) = decode(&mut self.input, self.most_bytes)? {
                if let Some(received) = self.received(op) {
                    return Poll::Ready(Ok(received));
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

    /// Handles an operation; returns what concerns the caller.
    fn received(&mut self, op: ServerOp) -> Option<Received> {
        match op {
            ServerOp::Message(message) if message.subscription >= OTHERS => return Some(Received::Published),
            ServerOp::Message(message) => {
                let number = match message.subscription.checked_sub(ANSWERS) {
                    Some(0) => message.subject.strip_prefix(&self.inbox).and_then(|number| number.parse().ok()),
                    number => number.filter(|_| number == self.reader),
                };
                return number.map(|number| Received::Answer(number, message));
            }
            ServerOp::Ping if self.output.len() < MOST_UNREAD => self.output.extend_from_slice(PONG),
            ServerOp::Pong if self.pinged => (self.pinged, self.unasked) = (false, 0),
            ServerOp::Info(info) => self.max_payload = info.max_payload,
            ServerOp::Error(error) => return Some(Received::Error(error)),
            ServerOp::Ping | ServerOp::Pong | ServerOp::Ok => {}
        }
        None
    }

    /// Reads once.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let mut chunk = [0; 16 << 10];
        let mut buffer = ReadBuf::new(&mut chunk);
        if let Err(error) = ready!(Pin::new(&mut *self.stream).poll_read(context, &mut buffer)) {
            return Poll::Ready(Err(describe_io_error(&error)));
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(ENDED.to_owned()));
        }
        self.input.extend_from_slice(buffer.filled());
        self.unasked += buffer.filled().len();
        // A message that it was asked for counts until it is whole.
        let most = UNASKED_BYTES.max(2 * self.most_bytes as usize);
        if self.unasked > most {
            return Poll::Ready(Err(unasked("server", most)));
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

/// Makes a subject that no other client can guess, so that none can answer in the server's place.
///
/// With a word, it comes after `_INBOX`.
///
/// # Errors
/// If the system provides no random numbers.
pub fn inbox(word: Option<&str>) -> Result<String, String> {
    let word = word.map(|word| format!("{word}.")).unwrap_or_default();
    Ok(format!("_INBOX.{word}{}.", random_digits()?))
}

/// Returns 32 random hexadecimal digits.
///
/// # Errors
/// If the system provides no random numbers.
pub fn random_digits() -> Result<String, String> {
    let mut random = [0; 16];
    let provider = rustls::crypto::ring::default_provider();
    let failed = |_| "the system provides no random numbers: check /dev/urandom".to_owned();
    provider.secure_random.fill(&mut random).map_err(failed)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
