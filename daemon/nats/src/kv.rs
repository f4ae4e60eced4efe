//! Key-value buckets of JetStream, as other clients make and use them (NATS's ADR-8).
//!
//! A bucket is a stream whose subjects are its keys: `$KV.BUCKET.KEY` in `KV_BUCKET`. A value's revision is its sequence there.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::answer::WRONG_LAST_SEQUENCE;
use crate::client::{Client, Stored};
use crate::consumer::{self, Delivered, StreamReader};
use crate::error::NatsError;
use crate::protocol::ServerMessage;
use crate::stream::{self, NewStream, StreamInfo};

const OPERATION: &str = "KV-Operation";

/// A key-value bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    name: String,
    stream: String,
    /// The beginning of its subjects.
    prefix: String,
    /// The largest value with its headers, in bytes; `None`: the server's limit alone.
    most_bytes: Option<u64>,
    allows_rollup: bool,
    replicas: u8,
}

/// What a new bucket should be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewBucket<'a> {
    /// What people read in lists.
    pub description: &'a str,
    /// On how many servers: 1, 3 or 5.
    pub replicas: u8,
    /// How many values of a key: 1 to 64.
    pub history: u8,
    /// How many bytes the bucket may have; 0: no limit.
    pub max_bytes: u64,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its contents.
    pub value: Bytes,
    /// Grows with each change in the bucket.
    pub revision: u64,
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The change's revision.
    pub revision: u64,
    /// When it was made, by the server's clock, in seconds since 1970.
    pub stored_unix_s: u64,
    /// The value; `None`: the key was deleted.
    pub value: Option<Bytes>,
}

impl Bucket {
    /// Opens a bucket.
    ///
    /// # Errors
    /// If there is none of this name, or no server answers in time.
    pub async fn open(client: &mut Client, name: &str) -> Result<Self, NatsError> {
        let bucket = Self::named(name)?;
        match stream::info(client, &bucket.stream).await? {
            Some(info) => bucket.checked(client, &info),
            None => Err(NatsError::MissingBucket { servers: client.servers().to_owned(), bucket: name.to_owned() }),
        }
    }

    /// Opens a bucket, and creates it before that if there is none of this name. An existing one stays as it is.
    ///
    /// # Errors
    /// If it cannot be created, or no server answers in time.
    pub async fn create_if_missing(client: &mut Client, name: &str, new: &NewBucket<'_>) -> Result<Self, NatsError> {
        let bucket = Self::named(name)?;
        let NewBucket { description, replicas, history, max_bytes } = *new;
        let subjects = [format!("{}>", bucket.prefix)];
        let name = &bucket.stream;
        let wanted =
            NewStream { name, subjects: &subjects, description, replicas, history: history.clamp(1, 64), max_bytes };
        let info = stream::create_if_missing(client, &wanted).await?;
        bucket.checked(client, &info)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns whether who may write one key can remove all others. Buckets of other clients do.
    pub fn allows_rollup(&self) -> bool {
        self.allows_rollup
    }

    /// Returns on how many servers it is.
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// Returns the value of a key; `None` if it has none. In a cluster, any replica answers: it may not have a change yet that
    /// was made a moment ago.
    ///
    /// # Errors
    /// If no server answers in time.
    pub async fn get(&self, client: &mut Client, key: &str) -> Result<Option<Entry>, NatsError> {
        let Some((revision, message)) = self.last(client, key).await? else { return Ok(None) };
        Ok((!is_deletion(&message)).then_some(Entry { value: message.payload, revision }))
    }

    /// Sets a key, whatever its value is now; returns the new revision.
    ///
    /// # Errors
    /// If the value is too large, the bucket is full, or no server answers in time.
    pub async fn put(&self, client: &mut Client, key: &str, value: &[u8]) -> Result<u64, NatsError> {
        self.store(client, "set", key, &[], value).await
    }

    /// Sets a key that has no value; returns the new revision.
    ///
    /// # Errors
    /// `LostRace` if it has one, and those of [`Bucket::put`].
    pub async fn create(&self, client: &mut Client, key: &str, value: &[u8]) -> Result<u64, NatsError> {
        let lost = match self.update(client, key, value, 0).await {
            Err(lost @ NatsError::LostRace { .. }) => lost,
            result => return result,
        };
        // A deleted key has a revision.
        match self.last(client, key).await? {
            Some((revision, message)) if is_deletion(&message) => self.update(client, key, value, revision).await,
            _ => Err(lost),
        }
    }

    /// Sets a key whose revision is still the given one; returns the new revision.
    ///
    /// # Errors
    /// `LostRace` if it has another, and those of [`Bucket::put`].
    pub async fn update(&self, client: &mut Client, key: &str, value: &[u8], revision: u64) -> Result<u64, NatsError> {
        let headers = [("Nats-Expected-Last-Subject-Sequence", &*revision.to_string())];
        match self.store(client, "set", key, &headers, value).await {
            Err(NatsError::Refused { refusal, .. }) if WRONG_LAST_SEQUENCE.contains(&refusal.err_code) => {
                Err(NatsError::LostRace { bucket: self.name.clone(), key: key.to_owned() })
            }
            result => result,
        }
    }

    /// Deletes a key; it is no error if it has no value.
    ///
    /// # Errors
    /// If no server answers in time.
    pub async fn delete(&self, client: &mut Client, key: &str) -> Result<(), NatsError> {
        self.store(client, "delete", key, &[(OPERATION, "DEL")], b"").await.map(drop)
    }

    /// Gives the value of each key that matches `pattern` to `take`, oldest change first, until it breaks, with the key
    /// and the time when it was stored, by the server's clock, in seconds since 1970. The pattern is a key
    /// whose words may be `*`, any word, and at the end `>`, one or more words.
    ///
    /// Requests up to 512 values at a time, and holds one, and all keys. Each key that has a value throughout the call comes, however
    /// often it changes, and one that changes may come twice. After a lost connection it goes on where it was.
    ///
    /// # Errors
    /// If no server answers in time.
    pub async fn entries(
        &self,
        client: &mut Client,
        pattern: &str,
        mut take: impl FnMut(&str, Entry, u64) -> ControlFlow<()>,
    ) -> Result<(), NatsError> {
        let filter = self.filter(pattern)?;
        consumer::last_of_each(client, &self.stream, &filter, |_, delivered| {
            Ok(match self.change(delivered) {
                Some(Change { key, revision, stored_unix_s, value: Some(value) }) => {
                    take(&key, Entry { value, revision }, stored_unix_s)
                }
                _ => ControlFlow::Continue(()),
            })
        })
        .await
    }

    /// Watches the keys that match `pattern`, see [`Bucket::entries`]: first their values, then each change.
    ///
    /// # Errors
    /// If the pattern is invalid.
    pub fn watch(&self, pattern: &str) -> Result<Watch, NatsError> {
        let reader = StreamReader::new(&self.stream, &self.filter(pattern)?);
        Ok(Watch { bucket: self.clone(), reader })
    }

    /// Returns a bucket that may not exist.
    #[cfg(test)]
    pub(crate) fn unchecked(name: &str) -> Self {
        Self::named(name).expect("a valid name")
    }

    fn named(name: &str) -> Result<Self, NatsError> {
        let (stream, prefix) = (format!("KV_{name}"), format!("$KV.{name}."));
        Ok(Self {
            name: bucket_name(name)?.to_owned(),
            stream,
            prefix,
            most_bytes: None,
            allows_rollup: false,
            replicas: 1,
        })
    }

    fn checked(mut self, client: &Client, info: &StreamInfo) -> Result<Self, NatsError> {
        if !info.config.allow_direct {
            return Err(NatsError::NoDirectReads { servers: client.servers().to_owned(), stream: self.stream });
        }
        self.most_bytes = u64::try_from(info.config.max_msg_size).ok().filter(|&most| most > 0);
        (self.allows_rollup, self.replicas) = (info.config.allow_rollup_hdrs, info.config.num_replicas);
        Ok(self)
    }

    fn subject(&self, key: &str) -> Result<String, NatsError> {
        if !key.split('.').all(is_word) {
            let (what, allowed) = ("key", "letters, digits and -/_=, in words separated by dots");
            return Err(NatsError::Name { name: key.to_owned(), what, allowed });
        }
        Ok(format!("{}{key}", self.prefix))
    }

    /// Returns the subjects that a pattern of keys means.
    fn filter(&self, pattern: &str) -> Result<String, NatsError> {
        let words = match pattern.strip_suffix('>') {
            Some("") => None,
            // One word more.
            Some(start) => Some(format!("{start}*")),
            None => Some(pattern.to_owned()),
        };
        if words.is_some_and(|words| !words.split('.').all(|word| word == "*" || is_word(word))) {
            let (what, allowed) = ("pattern of keys", "a key whose words may be `*`, and the last one `>`");
            return Err(NatsError::Name { name: pattern.to_owned(), what, allowed });
        }
        Ok(format!("{}{pattern}", self.prefix))
    }

    async fn last(&self, client: &mut Client, key: &str) -> Result<Option<(u64, ServerMessage)>, NatsError> {
        stream::last(client, &self.stream, &self.subject(key)?).await
    }

    async fn store(
        &self,
        client: &mut Client,
        verb: &str,
        key: &str,
        headers: &[(&str, &str)],
        value: &[u8],
    ) -> Result<u64, NatsError> {
        let subject = client.value_subject(&self.subject(key)?);
        let what = format!("{verb} {key} in the bucket {}", self.name);
        if let Some(most) = self.most_bytes
            && value.len() as u64 > most
        {
            let (servers, bytes) = (client.servers().to_owned(), value.len() as u64);
            let limit = "the bucket's max_value_size";
            return Err(NatsError::TooLarge { servers, what: format!("the value of {key}"), bytes, limit, most });
        }
        let Stored { seq } = client.store(&what, &subject, headers, value).await?;
        Ok(seq)
    }

    /// Returns the change that a message is; `None` if it is none of this bucket.
    fn change(&self, Delivered { sequence, stored_unix_s, message }: Delivered) -> Option<Change> {
        let key = message.subject.strip_prefix(&self.prefix)?.to_owned();
        let value = (!is_deletion(&message)).then_some(message.payload);
        Some(Change { key, revision: sequence, stored_unix_s, value })
    }
}

/// Watches keys of a bucket, over any number of connections.
///
/// A client that sends other requests between two changes makes the server set up the watch again each time; a watch that lasts
/// should have a client of its own.
#[derive(Debug)]
pub struct Watch {
    bucket: Bucket,
    reader: StreamReader,
}

impl Watch {
    /// Waits for the next value or change. Cancel-safe: nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// If no server answers in time; the next call tries again, and goes on where the watch was.
    pub async fn next(&mut self, client: &mut Client) -> Result<Change, NatsError> {
        loop {
            if let Some(change) = self.bucket.change(self.reader.next(client).await?) {
                return Ok(change);
            }
        }
    }

    /// Returns the next of the values that the watch begins with; `None` after the last one.
    ///
    /// # Errors
    /// Those of [`Watch::next`].
    pub async fn next_present(&mut self, client: &mut Client) -> Result<Option<Change>, NatsError> {
        while let Some(delivered) = self.reader.next_present(client).await? {
            if let Some(change) = self.bucket.change(delivered) {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }
}

/// Returns whether a message marks a key as deleted.
fn is_deletion(message: &ServerMessage) -> bool {
    matches!(message.header(OPERATION), Some("DEL" | "PURGE")) || message.header("Nats-Marker-Reason").is_some()
}

/// Returns whether a text can be a word of a key.
fn is_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-/_=".contains(c))
}

/// Returns the name of a bucket or store if it is valid.
pub(crate) fn bucket_name(name: &str) -> Result<&str, NatsError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_fine) {
        let (what, allowed) = ("name of a bucket", "letters, digits, - and _");
        return Err(NatsError::Name { name: name.to_owned(), what, allowed });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_keys_and_patterns_are_those_of_other_clients() {
        for (name, is_valid) in
            [("fleet", true), ("a-b_9", true), ("", false), ("a.b", false), ("a b", false), ("ä", false)]
        {
            assert_eq!(Bucket::named(name).is_ok(), is_valid, "{name}");
        }
        let bucket = Bucket::named("fleet").unwrap();
        for key in ["gate-7", "gate-7.model", "a/b=c_d", "x.y.z"] {
            assert_eq!(bucket.subject(key).unwrap(), format!("$KV.fleet.{key}"));
        }
        for key in ["", ".", ".a", "a.", "a..b", "a b", "*", "a.>", "ä", "a\r\nPUB x 0"] {
            assert!(matches!(bucket.subject(key), Err(NatsError::Name { .. })), "{key}");
        }
        for pattern in [">", "gate-7.>", "*", "*.model", "a.*.>", "gate-7"] {
            assert_eq!(bucket.filter(pattern).unwrap(), format!("$KV.fleet.{pattern}"));
        }
        for pattern in ["", "gate>", "a.>.b", "a*", ".>", "a b.>", "a..>"] {
            assert!(matches!(bucket.filter(pattern), Err(NatsError::Name { .. })), "{pattern}");
        }
    }
}
