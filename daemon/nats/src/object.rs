//! Object stores of JetStream, as other clients make and use them (NATS's ADR-20).
//!
//! A store is a stream. An object is a number of chunks with the subject `$O.STORE.C.NUID`, and a message that describes it with
//! the subject `$O.STORE.M.NAME`, the name in Base64. A replaced object has another NUID.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::client::{Client, Request};
use crate::consumer;
use crate::error::NatsError;
use crate::kv::bucket_name;
use crate::protocol::ServerMessage;
use crate::stream::{self, NewStream, StreamInfo};
use crate::wire::random_digits;

/// The size of a chunk, in bytes.
pub const CHUNK_BYTES: usize = 128 << 10;
/// How many bytes of chunks are requested at a time, and at most how many chunks.
const AHEAD_BYTES: u64 = 1 << 20;
const MOST_AHEAD: usize = 8;
/// How long a server may take for a chunk before it is requested again.
const SILENCE: Duration = Duration::from_secs(3);
/// How long a replica may take to get a chunk that the stream has.
const LAG: Duration = Duration::from_secs(5);
const DIGEST: &str = "SHA-256=";

/// An object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    name: String,
    stream: String,
    replicas: u8,
}

/// What a new store should be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewStore<'a> {
    /// What people read in lists.
    pub description: &'a str,
    /// On how many servers: 1, 3 or 5.
    pub replicas: u8,
    /// How many bytes the store may have; 0: no limit.
    pub max_bytes: u64,
}

/// The description of an object, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectInfo {
    /// Its name in the store.
    pub name: String,
    /// What people read in lists.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Values of the application.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<ObjectOptions>,
    bucket: String,
    /// The name of these contents, which no others ever have.
    pub nuid: String,
    /// Its size, in bytes.
    pub size: u64,
    /// How many chunks it has.
    pub chunks: u64,
    /// `SHA-256=` and the digest in Base64 for URLs.
    pub digest: String,
    #[serde(skip_serializing_if = "is_false")]
    deleted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct ObjectOptions {
    max_chunk_size: u64,
    /// The object is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl ObjectInfo {
    /// Returns the SHA-256 of the contents; `None` if the store has no such digest.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        let digest = self.digest.strip_prefix(DIGEST)?.trim_end_matches('=');
        URL_SAFE_NO_PAD.decode(digest).ok()?.try_into().ok()
    }

    fn chunk_bytes(&self) -> u64 {
        self.options.as_ref().map_or(CHUNK_BYTES as u64, |options| options.max_chunk_size).max(1)
    }
}

/// Where a chunk of an object is, so that a later read does not have to find it. It holds for one NUID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    nuid: String,
    /// The first byte of the chunk.
    offset: u64,
    /// Its sequence in the stream, or a lower one after the chunk before it.
    sequence: u64,
}

impl Store {
    /// Opens a store.
    ///
    /// # Errors
    /// If there is none of this name, or no server answers in time.
    pub async fn open(client: &mut Client, name: &str) -> Result<Self, NatsError> {
        let store = Self::named(name)?;
        match stream::info(client, &store.stream).await? {
            Some(info) => store.checked(client, &info),
            None => Err(NatsError::MissingStore { servers: client.servers().to_owned(), bucket: name.to_owned() }),
        }
    }

    /// Opens a store, and creates it before that if there is none of this name. An existing one stays as it is.
    ///
    /// # Errors
    /// If it cannot be created, or no server answers in time.
    pub async fn create_if_missing(client: &mut Client, name: &str, new: &NewStore<'_>) -> Result<Self, NatsError> {
        let store = Self::named(name)?;
        let NewStore { description, replicas, max_bytes } = *new;
        let subjects = [store.chunks(">"), format!("$O.{name}.M.>")];
        let wanted =
            NewStream { name: &store.stream, subjects: &subjects, description, replicas, history: 0, max_bytes };
        let info = stream::create_if_missing(client, &wanted).await?;
        store.checked(client, &info)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns on how many servers it is.
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// Stores an object, in place of one of the same name, and returns its description. `progress` gets the number of bytes
    /// stored so far.
    ///
    /// Readers see the former object until the new one is complete; its chunks are removed then. Each chunk is acknowledged before
    /// the next one is sent, so that their order is right whatever the servers do. The description follows once all of them are
    /// counted. An object that cannot be completed is removed, as far as a server answers.
    ///
    /// # Errors
    /// If the contents cannot be read, the store is full, chunks were removed meanwhile, or no server answers in time.
    pub async fn put(
        &self,
        client: &mut Client,
        name: &str,
        contents: &mut (impl Read + ?Sized),
        mut progress: impl FnMut(u64),
    ) -> Result<ObjectInfo, NatsError> {
        let what = format!("store the object {name}");
        let former = self.last(client, name).await?;
        let nuid = random_digits().map_err(|why| client.invalid(&what, why))?;
        let mut info = ObjectInfo {
            name: name.to_owned(),
            bucket: self.name.clone(),
            options: Some(ObjectOptions { max_chunk_size: CHUNK_BYTES as u64, link: None }),
            nuid,
            ..ObjectInfo::default()
        };
        let stored = self.put_contents(client, &what, &mut info, contents, &mut progress).await;
        let of_no_use = match &stored {
            // If it fails, the description may be there, and the chunks must be.
            Ok(()) => {
                self.describe(client, &what, &info).await?;
                former.filter(|former| former.chunks > 0 && is_word(&former.nuid)).map(|former| former.nuid)
            }
            Err(_) => Some(info.nuid.clone()).filter(|_| info.chunks > 0),
        };
        if let Some(nuid) = of_no_use
            && let Err(error) = stream::purge(client, &self.stream, &self.chunks(&nuid)).await
        {
            log::warn!("the store {} still has chunks of no use, of the object {name}: {error}", self.name);
        }
        stored.map(|()| info)
    }

    async fn put_contents(
        &self,
        client: &mut Client,
        what: &str,
        info: &mut ObjectInfo,
        contents: &mut (impl Read + ?Sized),
        progress: &mut impl FnMut(u64),
    ) -> Result<(), NatsError> {
        let (subject, mut sha256) = (self.chunks(&info.nuid), Sha256::new());
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let filled =
                fill(contents, &mut chunk).map_err(|error| NatsError::Source { name: info.name.clone(), error })?;
            if filled == 0 {
                break;
            }
            // Counted first: it may be stored although it is not acknowledged.
            info.chunks += 1;
            client.store(what, &subject, &[], &chunk[..filled]).await?;
            sha256.update(&chunk[..filled]);
            info.size += filled as u64;
            progress(info.size);
        }
        info.digest = format!("{DIGEST}{}", URL_SAFE.encode(sha256.finalize()));
        if self.is_complete(client, info).await? {
            return Ok(());
        }
        Err(self.broken(info, "lost chunks while it was stored"))
    }

    /// Returns an object's description; `None` if there is no such object.
    ///
    /// # Errors
    /// If no server answers in time, or the description is invalid.
    pub async fn info(&self, client: &mut Client, name: &str) -> Result<Option<ObjectInfo>, NatsError> {
        match self.last(client, name).await? {
            Some(info) if info.deleted => Ok(None),
            Some(ObjectInfo { options: Some(ObjectOptions { link: Some(_), .. }), .. }) => {
                let (bucket, name) = (self.name.clone(), name.to_owned());
                let what = "is a link, which visiond does not follow".to_owned();
                Err(NatsError::BrokenObject { bucket, name, what })
            }
            info => Ok(info),
        }
    }

    /// Gives the bytes of an object in `range` to `take`, in order, until the range's end or until it breaks.
    ///
    /// `position` remembers where the next chunk is: a read that goes on there costs no more than its bytes. Elsewhere, and in a
    /// new process, the read finds its first chunk by reading the first and the last one, 256 KiB. If other messages lie between the
    /// chunks, because two objects were stored at once, it reads all chunks before that.
    ///
    /// Up to 1 MiB of chunks is requested at a time and held.
    ///
    /// # Errors
    /// If the object was replaced or deleted, or no server answers in time. `take` got the bytes before that.
    pub async fn read_range(
        &self,
        client: &mut Client,
        info: &ObjectInfo,
        range: Range<u64>,
        position: &mut Position,
        take: &mut (dyn FnMut(&[u8]) -> ControlFlow<()> + '_),
    ) -> Result<(), NatsError> {
        let range = range.start..range.end.min(info.size);
        if range.is_empty() {
            return Ok(());
        }
        if !is_word(&info.nuid) {
            return Err(self.broken(info, "has an invalid description"));
        }
        if position.nuid != info.nuid || position.offset > range.start {
            *position = Position { nuid: info.nuid.clone(), offset: 0, sequence: 0 };
        }
        if range.start - position.offset >= info.chunk_bytes() {
            self.find(client, info, range.start, position).await?;
        }
        let mut chunks = Chunks::new(info, self.chunks(&info.nuid), &self.stream, position.sequence > 0);
        while position.offset < range.end {
            let most = (range.end - position.offset).div_ceil(info.chunk_bytes());
            let Some((sequence, chunk)) = chunks.next(client, position.sequence, most).await? else {
                return Err(self.broken(info, "was replaced, deleted or damaged"));
            };
            let end = position.offset.saturating_add(chunk.len() as u64);
            let cut = |at: u64| usize::try_from(at.clamp(position.offset, end) - position.offset).unwrap_or(usize::MAX);
            let wanted = &chunk[cut(range.start)..cut(range.end)];
            // The same chunk may have to be read again for the rest of it.
            let is_whole = end <= range.end;
            let flow = if wanted.is_empty() { ControlFlow::Continue(()) } else { take(wanted) };
            if !is_whole {
                break;
            }
            (position.offset, position.sequence) = (end, sequence + 1);
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Gives the descriptions of all objects to `take`, with the time when each was stored, by the server's clock, in seconds since 1970.
    ///
    /// # Errors
    /// If no server answers in time, or a description is invalid.
    pub async fn list(
        &self,
        client: &mut Client,
        mut take: impl FnMut(ObjectInfo, u64) -> ControlFlow<()>,
    ) -> Result<(), NatsError> {
        let filter = format!("$O.{}.M.>", self.name);
        consumer::last_of_each(client, &self.stream, &filter, |client, delivered| {
            let info = self.parse(client, &delivered.message.payload)?;
            Ok(if info.deleted { ControlFlow::Continue(()) } else { take(info, delivered.stored_unix_s) })
        })
        .await
    }

    /// Returns whether each chunk of an object is in the store.
    ///
    /// # Errors
    /// If no server answers in time.
    pub async fn is_complete(&self, client: &mut Client, info: &ObjectInfo) -> Result<bool, NatsError> {
        if info.chunks == 0 || !is_word(&info.nuid) {
            return Ok(info.size == 0);
        }
        let chunks = self.chunks(&info.nuid);
        let stored = stream::subjects(client, &self.stream, &chunks).await?;
        Ok(stored.get(&chunks) == Some(&info.chunks))
    }

    /// Removes chunks of objects that were never completed: those without a description whose last one is at least `age` old by the
    /// server's clock, so that no [`Store::put`] can still be under way. Returns of how many objects.
    ///
    /// # Errors
    /// If no server answers in time, or a description is invalid.
    pub async fn remove_leftovers(&self, client: &mut Client, age: Duration) -> Result<usize, NatsError> {
        let before_unix_s = stream::server_unix_s(client, &self.stream).await?.saturating_sub(age.as_secs());
        // The chunks first: what is completed meanwhile has its description then.
        let mut chunks: BTreeSet<_> =
            stream::subjects(client, &self.stream, &self.chunks(">")).await?.into_keys().collect();
        self.list(client, |info, _| {
            chunks.remove(&self.chunks(&info.nuid));
            ControlFlow::Continue(())
        })
        .await?;
        let mut count = 0;
        for subject in chunks {
            let mut is_old = false;
            consumer::last_of_each(client, &self.stream, &subject, |_, delivered| {
                is_old = delivered.stored_unix_s <= before_unix_s;
                Ok(ControlFlow::Break(()))
            })
            .await?;
            if is_old {
                stream::purge(client, &self.stream, &subject).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Deletes an object; returns whether there was one.
    ///
    /// # Errors
    /// If no server answers in time.
    pub async fn delete(&self, client: &mut Client, name: &str) -> Result<bool, NatsError> {
        let Some(mut info) = self.last(client, name).await?.filter(|info| !info.deleted) else { return Ok(false) };
        (info.deleted, info.size, info.chunks) = (true, 0, 0);
        info.digest.clear();
        self.describe(client, &format!("delete the object {name}"), &info).await?;
        if is_word(&info.nuid) {
            stream::purge(client, &self.stream, &self.chunks(&info.nuid)).await?;
        }
        Ok(true)
    }

    /// Returns a store that may not exist.
    #[cfg(test)]
    pub(crate) fn unchecked(name: &str) -> Self {
        Self::named(name).expect("a valid name")
    }

    fn named(name: &str) -> Result<Self, NatsError> {
        Ok(Self { name: bucket_name(name)?.to_owned(), stream: format!("OBJ_{name}"), replicas: 1 })
    }

    fn checked(self, client: &Client, info: &StreamInfo) -> Result<Self, NatsError> {
        if !info.config.allow_direct {
            return Err(NatsError::NoDirectReads { servers: client.servers().to_owned(), stream: self.stream });
        }
        Ok(Self { replicas: info.config.num_replicas, ..self })
    }

    fn chunks(&self, nuid: &str) -> String {
        format!("$O.{}.C.{nuid}", self.name)
    }

    fn description(&self, name: &str) -> Result<String, NatsError> {
        if name.is_empty() {
            let (what, allowed) = ("name of an object", "a text that is not empty");
            return Err(NatsError::Name { name: name.to_owned(), what, allowed });
        }
        Ok(format!("$O.{}.M.{}", self.name, URL_SAFE.encode(name)))
    }

    /// Publishes a description in place of the former one.
    async fn describe(&self, client: &mut Client, what: &str, info: &ObjectInfo) -> Result<(), NatsError> {
        let json = serde_json::to_vec(info).map_err(|error| client.invalid(what, error.to_string()))?;
        let subject = self.description(&info.name)?;
        client.store(what, &subject, &[("Nats-Rollup", "sub")], &json).await.map(drop)
    }

    /// Returns the description of an object, which may be deleted.
    async fn last(&self, client: &mut Client, name: &str) -> Result<Option<ObjectInfo>, NatsError> {
        let Some((_, message)) = stream::last(client, &self.stream, &self.description(name)?).await? else {
            return Ok(None);
        };
        self.parse(client, &message.payload).map(Some)
    }

    fn parse(&self, client: &Client, payload: &[u8]) -> Result<ObjectInfo, NatsError> {
        let what = format!("read an object's description in {}", self.name);
        serde_json::from_slice(payload).map_err(|error| client.invalid(&what, error.to_string()))
    }

    /// Moves `position` to the chunk that has the byte at `offset`, if the chunks follow each other in the stream, and all but the last
    /// one are full. A consumer would find it in any case. But who may make one could let the server write to any bucket.
    async fn find(
        &self,
        client: &mut Client,
        info: &ObjectInfo,
        offset: u64,
        position: &mut Position,
    ) -> Result<(), NatsError> {
        let (chunks, chunk_bytes) = (self.chunks(&info.nuid), info.chunk_bytes());
        let Some((first, _)) = first_from(client, &self.stream, &chunks, position.sequence).await? else {
            return Err(self.broken(info, "was replaced, deleted or damaged"));
        };
        let Some((last, message)) = stream::last(client, &self.stream, &chunks).await? else { return Ok(()) };
        // No chunk is larger, so this is the size if no other message lies between them and each is full, and only then.
        let full = last.checked_sub(first).and_then(|full| full.checked_mul(chunk_bytes));
        let size = full.and_then(|full| full.checked_add(message.payload.len() as u64));
        if size == Some(info.size - position.offset) {
            let skipped = (offset - position.offset) / chunk_bytes;
            position.offset += skipped * chunk_bytes;
            position.sequence = first + skipped;
        }
        Ok(())
    }

    fn broken(&self, info: &ObjectInfo, what: &str) -> NatsError {
        let (bucket, name) = (self.name.clone(), info.name.clone());
        NatsError::BrokenObject { bucket, name, what: what.to_owned() }
    }
}

/// Reads the chunks of an object in their order, several at a time.
///
/// Each request asks for the first chunk at or after a sequence. As long as no other message lies between two chunks, those at
/// the next sequences are the next chunks; if one does, two answers are the same chunk, and one of them is dropped. None is skipped,
/// because each request asks for the sequence after the one before it.
struct Chunks<'a> {
    stream: &'a str,
    subject: String,
    what: String,
    most_ahead: usize,
    /// How many to request at a time: fewer while other messages lie between them.
    ahead: usize,
    generation: u64,
    /// The requests in flight, oldest first: the number of the answer, and the answer if it came before an older one's.
    requested: VecDeque<(u64, Option<ServerMessage>)>,
    /// The sequence that the next request asks for.
    next: u64,
}

impl<'a> Chunks<'a> {
    /// `is_known`: whether the first chunk is where the first request asks for it. Otherwise all of the first requests would get that
    /// same chunk, because other objects lie before it.
    fn new(info: &ObjectInfo, subject: String, stream: &'a str, is_known: bool) -> Self {
        let most = usize::try_from(AHEAD_BYTES / info.chunk_bytes()).unwrap_or(MOST_AHEAD).clamp(1, MOST_AHEAD);
        let what = format!("read the object {}", info.name);
        let requested = VecDeque::with_capacity(most);
        let ahead = if is_known { most } else { 1 };
        Self { stream, subject, what, most_ahead: most, ahead, generation: 0, requested, next: 0 }
    }

    /// Returns the first chunk at or after `sequence`, with its own; `None` if there is none. The sequence must be the one after
    /// the last chunk. Requests as many as `most` at a time.
    async fn next(&mut self, client: &mut Client, sequence: u64, most: u64) -> Result<Option<(u64, Bytes)>, NatsError> {
        loop {
            let Some(answer) = self.answer(client, sequence, most).await? else {
                return self.one(client, sequence).await;
            };
            // A replica may not have the newest chunks yet.
            if answer.status.is_some() {
                return self.one(client, sequence).await;
            }
            match stream::read_stored(client, &self.what, answer)? {
                Some((found, message)) if found >= sequence => {
                    self.ahead = (self.ahead + 1).min(self.most_ahead);
                    return Ok(Some((found, message.payload)));
                }
                // The same chunk again: other messages lie between.
                _ => self.ahead = 1,
            }
        }
    }

    /// Returns the answer of the oldest request; `None` if it is lost.
    async fn answer(
        &mut self,
        client: &mut Client,
        sequence: u64,
        most: u64,
    ) -> Result<Option<ServerMessage>, NatsError> {
        let ahead = self.ahead.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
        let subject = direct(client, self.stream);
        while self.requested.len() < ahead {
            self.next = self.next.max(sequence);
            let payload = stream::next_by_subject(&self.subject, self.next);
            let request = Request { what: &self.what, subject: &subject, headers: &[], payload: payload.as_bytes() };
            let number = if self.requested.is_empty() {
                let (generation, number) = client.start(&request).await?;
                self.generation = generation;
                number
            } else {
                match client.also(self.generation, &request).await {
                    Some(number) => number,
                    None => return Ok(None),
                }
            };
            self.requested.push_back((number, None));
            self.next = self.next.saturating_add(1);
        }
        loop {
            if let Some((_, answer)) = self.requested.front_mut()
                && let Some(answer) = answer.take()
            {
                self.requested.pop_front();
                return Ok(Some(answer));
            }
            let Ok((number, message)) = client.answer(self.generation, SILENCE.min(client.patience())).await? else {
                return Ok(None);
            };
            if let Some((_, answer)) = self.requested.iter_mut().find(|(requested, _)| *requested == number) {
                *answer = Some(message);
            }
        }
    }

    /// Does the same for one chunk alone, and repeats it as often as it takes.
    async fn one(&mut self, client: &mut Client, sequence: u64) -> Result<Option<(u64, Bytes)>, NatsError> {
        self.requested.clear();
        let (started, lag) = (Instant::now(), LAG.min(client.patience()));
        loop {
            match first_from(client, self.stream, &self.subject, sequence).await? {
                Some((found, message)) => {
                    self.next = found + 1;
                    return Ok(Some((found, message.payload)));
                }
                None if started.elapsed() > lag => return Ok(None),
                None => tokio::time::sleep(lag / 20).await,
            }
        }
    }
}

/// Returns the first message of a subject at or after a sequence, with its own; `None` if there is none.
async fn first_from(
    client: &mut Client,
    stream: &str,
    subject: &str,
    sequence: u64,
) -> Result<Option<(u64, ServerMessage)>, NatsError> {
    let what = format!("read {subject}");
    let (api, payload) = (direct(client, stream), stream::next_by_subject(subject, sequence));
    let answer =
        client.request(&Request { what: &what, subject: &api, headers: &[], payload: payload.as_bytes() }).await?;
    stream::read_stored(client, &what, answer)
}

fn direct(client: &Client, stream: &str) -> String {
    client.api(&format!("DIRECT.GET.{stream}"))
}

/// Reads until the buffer is full or the source ends; returns how many bytes.
fn fill(source: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns whether a name that others have written can be a word of a subject.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_description_is_read_as_other_clients_write_it() {
        let text = r#"{"name":"a","bucket":"b","nuid":"X1","size":3,"mtime":"0001-01-01T00:00:00Z","chunks":1,
            "digest":"SHA-256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0=","options":{"max_chunk_size":131072}}"#;
        let info: ObjectInfo = serde_json::from_str(text).unwrap();
        assert_eq!(info.sha256().unwrap(), <[u8; 32]>::from(Sha256::digest(b"abc")));
        let written = serde_json::to_value(&info).unwrap();
        assert_eq!(written["options"], serde_json::json!({ "max_chunk_size": 131_072 }));
        assert!(written.get("deleted").is_none() && written.get("description").is_none(), "{written}");
        for digest in ["", "SHA-256=", "SHA-256=AAAA", "MD5=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0="] {
            assert_eq!(ObjectInfo { digest: digest.to_owned(), ..ObjectInfo::default() }.sha256(), None, "{digest}");
        }
    }

    #[test]
    fn a_buffer_is_filled_by_a_source_that_gives_one_byte_at_a_time() {
        struct Slow(u8);
        impl Read for Slow {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.0 == 5 {
                    return Ok(0);
                }
                self.0 += 1;
                buffer[0] = self.0;
                Ok(1)
            }
        }
        let (mut source, mut buffer) = (Slow(0), [0; 3]);
        assert_eq!((fill(&mut source, &mut buffer).unwrap(), buffer), (3, [1, 2, 3]));
        assert_eq!((fill(&mut source, &mut buffer).unwrap(), buffer[..2].to_vec()), (2, vec![4, 5]));
        assert_eq!(fill(&mut source, &mut buffer).unwrap(), 0);
    }
}
