//! Delivers messages to any number of live readers.
//!
//! A lane publishes a message under one lock. The message is stored once, in a ring in which every reader has a cursor. A
//! reader that is too slow loses the oldest messages and learns how many; the other readers are not affected. Only readers
//! that wait are woken: [`Broadcast::wake`] runs on another thread, [`Broadcast::wake_readers`] is a task of the readers'
//! runtime.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use visiond_message::{Message, Published};

use crate::recent_events::RecentEvents;

/// How many messages are kept for slow readers: four seconds of eight cameras at 30 frames a second.
const RING: usize = 1024;
/// The maximum bytes of all kept messages, and of one.
const RING_BYTES: usize = 32 << 20;

/// The messages of all cameras, for any number of readers.
#[derive(Debug, Default)]
pub struct Broadcast {
    messages: Arc<Mutex<Messages>>,
    events: RecentEvents,
    /// Whether a message has arrived that a reader waits for, while the task was not woken yet.
    news: AtomicBool,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Messages {
    /// By topic: see [`Message::topic`](visiond_message::Message::topic).
    latest: HashMap<Arc<str>, Arc<Published>>,
    /// The model of each topic that runs; `None` until it is known.
    running: Option<HashMap<Arc<str>, Arc<str>>>,
    ring: Ring,
    /// The number of subscriptions.
    readers: usize,
    /// Readers that found no message for them.
    asleep: Vec<Arc<Waiter>>,
    /// No message before this number is for any of those readers.
    looked_at: u64,
}

/// The newest [`RING`] messages that arrived while there were readers, numbered in order.
#[derive(Debug, Default)]
struct Ring {
    messages: VecDeque<Arc<Published>>,
    bytes: usize,
    /// The number of the oldest message.
    first: u64,
    /// How many messages came before that one, by camera. A slow reader's losses are computed from it.
    gone: HashMap<Arc<str>, PushedOut>,
}

#[derive(Debug, Default)]
struct PushedOut {
    frames: u64,
    with_detections: u64,
    events: u64,
}

/// Which messages a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The cameras; empty means all.
    pub cameras: Vec<String>,
    /// Whether to leave out frames without detections and values.
    pub only_detections: bool,
    /// Messages of frames, of events, or both.
    pub messages: Wanted,
}

/// Which kinds of messages a reader wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// One for each frame.
    #[default]
    Frames,
    /// What lines and zones report.
    Events,
    /// Both, in the order of publishing.
    All,
}

impl Filter {
    fn wants(&self, published: &Published) -> bool {
        let is_wanted = match published.frame() {
            Some(_) => self.messages != Wanted::Events && !(self.only_detections && published.is_empty()),
            None => self.messages != Wanted::Frames,
        };
        is_wanted && self.wants_camera(published.camera())
    }

    fn wants_camera(&self, camera: &str) -> bool {
        self.cameras.is_empty() || self.cameras.iter().any(|wanted| wanted == camera)
    }
}

#[derive(Debug)]
struct Waiter {
    filter: Filter,
    /// Whether it is in [`Messages::asleep`]; written under that lock.
    asleep: AtomicBool,
    arrived: Notify,
}

/// A message that a reader receives.
#[derive(Debug)]
pub struct Delivered {
    /// The message with its JSON line.
    pub message: Arc<Published>,
    /// How many messages before it the reader lost because it was too slow.
    pub lost: u64,
}

/// One reader's messages, until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    broadcast: Arc<Mutex<Messages>>,
    reader: Arc<Waiter>,
    cursor: Cursor,
}

/// A reader's position in the ring.
#[derive(Debug)]
struct Cursor {
    /// The number of the next message for the reader to check.
    next: u64,
    /// How many messages before it the reader wanted, counted as [`Ring::gone`] counts.
    before: u64,
    /// Lost messages that the reader was not informed of yet.
    lost: u64,
}

impl Broadcast {
    /// Publishes a message; returns whether a reader waits, so that [`Broadcast::wake`] must be called.
    ///
    /// Never waits for a reader, and allocates only for events and for the first message of a camera's model.
    pub fn publish(&self, published: &Arc<Published>) -> bool {
        let pushed_out_event = published.event().and_then(|event| self.events.add(event, published));
        let mut inner = self.messages.lock();
        // The old message is freed after the lock; the results of several models are few.
        let before = match published.frame().map_or(&[][..], |message| &message.results) {
            [] => inner.keep_newest(published),
            // The newest result of each model stays by itself.
            results => {
                let kept =
                    results.iter().map(|result| inner.keep_newest(&Arc::new(Published::new(Arc::clone(result)))));
                kept.flatten().last()
            }
        };
        let pushed_out = if inner.readers > 0 { inner.ring.push(published) } else { None };
        let awaited = !inner.asleep.is_empty();
        drop(inner);
        if awaited {
            self.news.store(true, Ordering::Release);
        }
        drop((before, pushed_out, pushed_out_event));
        awaited
    }

    /// Returns the newest events.
    pub fn events(&self) -> &RecentEvents {
        &self.events
    }

    /// Wakes the readers' task if a message for it has arrived since the last call.
    pub fn wake(&self) {
        if self.news.swap(false, Ordering::Acquire) {
            self.arrived.notify_one();
        }
    }

    /// Returns the newest message of each model of a camera, the first model's first.
    pub fn latest_of(&self, camera: &str) -> Vec<Arc<Published>> {
        let inner = self.messages.lock();
        let is_ours = |message: &Message| *message.camera == *camera && inner.runs(message);
        let ours = inner.latest.values().filter(|published| published.frame().is_some_and(|message| is_ours(message)));
        let mut ours: Vec<_> = ours.cloned().collect();
        drop(inner);
        ours.sort_by(|a, b| a.topic().cmp(b.topic()));
        ours
    }

    /// Returns the newest message of a camera's first model.
    pub fn latest(&self, camera: &str) -> Option<Arc<Published>> {
        let inner = self.messages.lock();
        inner
            .latest
            .get(camera)
            .filter(|published| published.frame().is_some_and(|message| inner.runs(message)))
            .cloned()
    }

    /// Adds a reader, which gets messages from the next one on.
    pub fn subscribe(&self, filter: Filter) -> Subscription {
        let mut inner = self.messages.lock();
        inner.readers += 1;
        let ring = &mut inner.ring;
        // Allocates the whole ring, so that no lane allocates.
        ring.messages.reserve(RING - ring.messages.len());
        let kept = ring.since(0).filter(|message| filter.wants(message)).count();
        let cursor = Cursor { next: ring.end(), before: ring.gone(&filter) + kept as u64, lost: 0 };
        let reader = Arc::new(Waiter { filter, asleep: AtomicBool::new(false), arrived: Notify::new() });
        Subscription { broadcast: Arc::clone(&self.messages), reader, cursor }
    }

    /// Wakes the readers whose awaited message has arrived. Runs forever, as one task of the runtime that serves them.
    pub async fn wake_readers(&self) {
        let mut awake = Vec::new();
        loop {
            self.arrived.notified().await;
            {
                let mut inner = self.messages.lock();
                let Messages { ring, asleep, looked_at, .. } = &mut *inner;
                let wanted = |reader: &Waiter| ring.since(*looked_at).any(|message| reader.filter.wants(message));
                awake.extend(asleep.extract_if(.., |reader| wanted(reader)));
                awake.iter().for_each(|reader| reader.asleep.store(false, Ordering::Relaxed));
                *looked_at = ring.end();
            }
            awake.drain(..).for_each(|reader| reader.arrived.notify_one());
        }
    }

    /// Whether a model runs for this topic; `true` until the topics that run are known.
    pub fn runs_topic(&self, topic: &str) -> bool {
        self.messages.lock().running.as_ref().is_none_or(|running| running.contains_key(topic))
    }

    /// Forgets the newest messages of a camera. Readers that are behind still get them.
    pub(super) fn forget(&self, camera: &str) {
        let mut inner = self.messages.lock();
        inner.latest.retain(|_, published| **published.camera() != *camera);
    }

    /// Sets the model of each topic that runs, and forgets the newest messages of others.
    pub(super) fn keep(&self, running: HashMap<Arc<str>, Arc<str>>) {
        let mut inner = self.messages.lock();
        inner.running = Some(running);
        let mut latest = std::mem::take(&mut inner.latest);
        latest.retain(|_, published| published.frame().is_some_and(|message| inner.runs(message)));
        inner.latest = latest;
    }
}

impl Messages {
    /// Whether the model of a message runs for its topic. One that a reload took from its camera may finish a run after the reload.
    fn runs(&self, message: &Message) -> bool {
        self.running
            .as_ref()
            .is_none_or(|running| running.get(&message.topic).is_some_and(|model| **model == *message.model.name))
    }

    /// Makes a message the newest of its topic; returns the one before.
    fn keep_newest(&mut self, published: &Arc<Published>) -> Option<Arc<Published>> {
        let message = published.frame()?;
        if self.is_late(message) {
            return None;
        }
        match self.latest.get_mut(&message.topic) {
            Some(latest) => Some(std::mem::replace(latest, Arc::clone(published))),
            None => self.latest.insert(Arc::clone(&message.topic), Arc::clone(published)),
        }
    }

    /// Whether another model runs for the topic of a message. A topic that is not known may be that of a camera that has just started.
    fn is_late(&self, message: &Message) -> bool {
        let running = self.running.as_ref().and_then(|running| running.get(&message.topic));
        running.is_some_and(|model| **model != *message.model.name)
    }
}

impl Ring {
    /// The number of the next message.
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// The kept messages from this number on.
    fn since(&self, number: u64) -> impl Iterator<Item = &Arc<Published>> {
        let skip = number.saturating_sub(self.first).min(self.messages.len() as u64);
        self.messages.range(skip as usize..)
    }

    /// Adds a message, and returns the oldest if the ring was full.
    fn push(&mut self, published: &Arc<Published>) -> Option<Arc<Published>> {
        let mut oldest = None;
        while self.messages.len() >= RING || self.bytes > RING_BYTES {
            oldest = self.pop_front();
        }
        self.bytes += published.about_bytes();
        self.messages.push_back(Arc::clone(published));
        oldest
    }

    fn pop_front(&mut self) -> Option<Arc<Published>> {
        let oldest = self.messages.pop_front();
        if let Some(oldest) = &oldest {
            self.bytes -= oldest.about_bytes();
            let gone = match self.gone.get_mut(oldest.camera()) {
                Some(gone) => gone,
                None => self.gone.entry(Arc::clone(oldest.camera())).or_default(),
            };
            match oldest.frame() {
                Some(message) => {
                    gone.frames += 1;
                    gone.with_detections += u64::from(!message.is_empty());
                }
                None => gone.events += 1,
            }
            self.first += 1;
        }
        oldest
    }

    /// How many of the messages that are no longer kept a reader would have wanted.
    fn gone(&self, filter: &Filter) -> u64 {
        let wanted = self.gone.iter().filter(|(camera, _)| filter.wants_camera(camera));
        let of_one = |gone: &PushedOut| {
            let frames = if filter.only_detections { gone.with_detections } else { gone.frames };
            match filter.messages {
                Wanted::Frames => frames,
                Wanted::Events => gone.events,
                Wanted::All => frames + gone.events,
            }
        };
        wanted.map(|(_, gone)| of_one(gone)).sum()
    }

    /// Removes and returns all messages; the numbers go on.
    fn clear(&mut self) -> VecDeque<Arc<Published>> {
        self.first = self.end();
        self.gone.clear();
        self.bytes = 0;
        std::mem::take(&mut self.messages)
    }
}

impl Cursor {
    /// Takes the next message that the reader wants, if there is one.
    fn take(&mut self, ring: &Ring, filter: &Filter) -> Option<Delivered> {
        if self.next < ring.first {
            let gone = ring.gone(filter);
            self.lost += gone.saturating_sub(self.before);
            (self.next, self.before) = (ring.first, gone);
        }
        let Some((passed, message)) = ring.since(self.next).enumerate().find(|(_, message)| filter.wants(message))
        else {
            self.next = ring.end();
            return None;
        };
        self.next += passed as u64 + 1;
        self.before += 1;
        Some(Delivered { message: Arc::clone(message), lost: std::mem::take(&mut self.lost) })
    }
}

impl Subscription {
    /// Waits for the next message. Dropping the future before it is done loses no message.
    pub async fn next(&mut self) -> Delivered {
        loop {
            if let Some(delivered) = self.take_or_sleep() {
                return delivered;
            }
            self.reader.arrived.notified().await;
        }
    }

    /// Returns the next message, if there is one.
    pub fn try_next(&mut self) -> Option<Delivered> {
        self.cursor.take(&self.broadcast.lock().ring, &self.reader.filter)
    }

    /// Returns the next message; if there is none, the reader is woken when one arrives.
    fn take_or_sleep(&mut self) -> Option<Delivered> {
        let mut inner = self.broadcast.lock();
        let delivered = self.cursor.take(&inner.ring, &self.reader.filter);
        if delivered.is_none() && !self.reader.asleep.swap(true, Ordering::Relaxed) {
            if inner.asleep.is_empty() {
                inner.looked_at = inner.ring.end();
            }
            inner.asleep.push(Arc::clone(&self.reader));
        }
        delivered
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut inner = self.broadcast.lock();
        inner.asleep.retain(|reader| !Arc::ptr_eq(reader, &self.reader));
        inner.readers -= 1;
        let kept = if inner.readers == 0 { inner.ring.clear() } else { VecDeque::new() };
        drop(inner);
        drop(kept);
    }
}

#[cfg(test)]
mod tests;
