//! Streams of JetStream: what buckets and object stores are made of.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::answer::{STREAM_NAME_EXIST, STREAM_NOT_FOUND};
use crate::client::{Client, NO_RESPONDERS, Request};
use crate::error::NatsError;
use crate::protocol::ServerMessage;

/// How long a stream remembers the ids of messages. It must be longer than a request is repeated.
const DUPLICATE_WINDOW_NS: u64 = 120_000_000_000;

/// The part of a stream's state that visiond reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StreamInfo {
    pub config: StreamConfig,
    pub state: StreamState,
    /// The server's time, in RFC 3339; servers before 2.10 do not say it.
    #[serde(default)]
    pub ts: Option<String>,
}

/// The part of a stream's configuration that visiond reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StreamConfig {
    /// The largest message, in bytes; -1: no limit.
    pub max_msg_size: i64,
    /// Whether replicas answer direct reads.
    pub allow_direct: bool,
    /// Whether a message may replace all others of the stream or of its subject.
    pub allow_rollup_hdrs: bool,
    /// On how many servers it is.
    pub num_replicas: u8,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { max_msg_size: -1, allow_direct: false, allow_rollup_hdrs: false, num_replicas: 1 }
    }
}

/// The numbers of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StreamState {
    pub messages: u64,
    pub bytes: u64,
    pub last_seq: u64,
    /// When the last message was stored, in RFC 3339.
    pub last_ts: Option<String>,
}

/// What a new stream should be like.
#[derive(Debug, Clone, Copy)]
pub struct NewStream<'a> {
    pub name: &'a str,
    pub subjects: &'a [String],
    /// What people read in lists.
    pub description: &'a str,
    /// On how many servers: 1, 3 or 5.
    pub replicas: u8,
    /// How many messages of a subject; 0: no limit.
    pub history: u8,
    /// How many bytes, and then nothing more; 0: no limit.
    pub max_bytes: u64,
}

/// Returns a stream's state; `None` if there is no such stream.
pub async fn info(client: &mut Client, stream: &str) -> Result<Option<StreamInfo>, NatsError> {
    let (what, subject) = (format!("query the stream {stream}"), client.api(&format!("STREAM.INFO.{stream}")));
    match client.ask(&Request { what: &what, subject: &subject, headers: &[], payload: b"" }).await {
        Ok(info) => Ok(Some(info)),
        Err(NatsError::Refused { refusal, .. }) if refusal.err_code == STREAM_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the time at the server that leads a stream, in seconds since 1970. A server that does not say it has the time when the
/// stream's last message was stored, which is earlier.
pub async fn server_unix_s(client: &mut Client, stream: &str) -> Result<u64, NatsError> {
    let info = info(client, stream).await?;
    let time = info.and_then(|info| info.ts.or(info.state.last_ts)).and_then(|time| time.parse::<Timestamp>().ok());
    Ok(time.and_then(|time| u64::try_from(time.as_second()).ok()).unwrap_or(0))
}

/// Returns the subjects of a stream's messages that match a filter, with the number of messages of each.
pub async fn subjects(client: &mut Client, stream: &str, filter: &str) -> Result<HashMap<String, u64>, NatsError> {
    #[derive(Deserialize)]
    struct Page {
        /// Of all pages.
        #[serde(default)]
        total: usize,
        state: Subjects,
    }
    #[derive(Deserialize)]
    struct Subjects {
        #[serde(default)]
        subjects: Option<HashMap<String, u64>>,
    }
    let (what, api) = (format!("query the stream {stream}"), client.api(&format!("STREAM.INFO.{stream}")));
    let mut all = HashMap::new();
    loop {
        let payload = json!({ "subjects_filter": filter, "offset": all.len() }).to_string();
        let request = Request { what: &what, subject: &api, headers: &[], payload: payload.as_bytes() };
        let page: Page = client.ask(&request).await?;
        let before = all.len();
        all.extend(page.state.subjects.unwrap_or_default());
        if all.len() >= page.total || all.len() == before {
            return Ok(all);
        }
    }
}

/// Creates a stream with the settings of buckets and object stores, unless there is one of this name.
pub async fn create_if_missing(client: &mut Client, wanted: &NewStream<'_>) -> Result<StreamInfo, NatsError> {
    let NewStream { name, subjects, description, replicas, history, max_bytes } = wanted;
    if let Some(info) = info(client, name).await? {
        return Ok(info);
    }
    let limit = |number: u64| if number == 0 { -1 } else { i64::try_from(number).unwrap_or(i64::MAX) };
    let config = json!({
        "name": name,
        "description": description,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": limit(u64::from(*history)),
        "max_msg_size": -1,
        "max_bytes": limit(*max_bytes),
        "max_age": 0,
        "duplicate_window": DUPLICATE_WINDOW_NS,
        // With it, who may write one key of a bucket could remove all others.
        "allow_rollup_hdrs": *history == 0,
        "allow_direct": true,
        "deny_delete": *history > 0,
    });
    let (what, subject) = (format!("create the stream {name}"), client.api(&format!("STREAM.CREATE.{name}")));
    let payload = config.to_string();
    let request = Request { what: &what, subject: &subject, headers: &[], payload: payload.as_bytes() };
    match client.ask::<StreamInfo>(&request).await {
        Ok(info) => Ok(info),
        // Another client created it first.
        Err(NatsError::Refused { refusal, .. }) if refusal.err_code == STREAM_NAME_EXIST => {
            info(client, name).await?.ok_or_else(|| client.invalid(&what, "the stream exists and does not"))
        }
        Err(error) => Err(error),
    }
}

/// Removes the messages of a subject.
pub async fn purge(client: &mut Client, stream: &str, subject: &str) -> Result<(), NatsError> {
    let (what, api) =
        (format!("purge {subject} of the stream {stream}"), client.api(&format!("STREAM.PURGE.{stream}")));
    let payload = json!({ "filter": subject }).to_string();
    let request = Request { what: &what, subject: &api, headers: &[], payload: payload.as_bytes() };
    client.ask::<IgnoredAny>(&request).await.map(drop)
}

/// Returns the last message of a subject, and its sequence; `None` if there is none. Any replica answers: it may not have a
/// message yet that was stored a moment ago.
pub async fn last(client: &mut Client, stream: &str, subject: &str) -> Result<Option<(u64, ServerMessage)>, NatsError> {
    let (what, api) = (format!("read {subject}"), client.api(&format!("DIRECT.GET.{stream}.{subject}")));
    let message = client.request(&Request { what: &what, subject: &api, headers: &[], payload: b"" }).await?;
    read_stored(client, &what, message)
}

/// Returns a message and its sequence from the answer of a direct read; `None` if there is none.
pub fn read_stored(
    client: &Client,
    what: &str,
    message: ServerMessage,
) -> Result<Option<(u64, ServerMessage)>, NatsError> {
    match message.status {
        Some(404) => Ok(None),
        Some(status) if status != NO_RESPONDERS => {
            Err(client.invalid(what, format!("status {status} {}", message.status_text())))
        }
        _ => match message.last_header("Nats-Sequence").and_then(|sequence| sequence.parse().ok()) {
            // No stream gets to the last number.
            Some(sequence) if sequence < u64::MAX => Ok(Some((sequence, message))),
            _ => Err(client.invalid(what, "it has no Nats-Sequence")),
        },
    }
}

/// Returns the payload of a direct read of the first message of `subject` at or after `sequence`.
pub fn next_by_subject(subject: &str, sequence: u64) -> String {
    let value: Value = json!({ "seq": sequence, "next_by_subj": subject });
    value.to_string()
}
