//! Messages to whoever reads them live, however many that are.
//!
//! A lane hands a message in: one lock. What comes is kept once, in a ring in which every reader has a place of its own: who is
//! too slow loses the oldest, is told how many, and costs nobody anything. Only who waits for something new is woken, by
//! [`Feed::wake`] on another thread and [`Feed::hand_round`], a task of the readers' runtime.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use visiond_flow::message::Published;

use super::lock;

/// Messages that are kept for who reads slowly: four seconds' of eight cameras at 30 frames a second.
const RING: usize = 1024;

/// The messages of all cameras, as they come.
#[derive(Debug, Default)]
pub struct Feed {
    inner: Arc<Mutex<Inner>>,
    /// Something came that somebody waits for, and the task was not woken yet.
    news: AtomicBool,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    latest: HashMap<Arc<str>, Arc<Published>>,
    ring: Ring,
    /// Subscriptions.
    readers: usize,
    /// Those that found nothing for them.
    asleep: Vec<Arc<Reader>>,
    /// No message before this one is for any of those.
    looked_at: u64,
}

/// What came while there were readers, the newest [`RING`] of it, numbered as it came.
#[derive(Debug, Default)]
struct Ring {
    messages: VecDeque<Arc<Published>>,
    /// The number of the oldest.
    first: u64,
    /// What came before that one, by camera: the count that who was too slow for some is told from.
    gone: HashMap<Arc<str>, Gone>,
}

#[derive(Debug, Default)]
struct Gone {
    all: u64,
    with_detections: u64,
}

/// What a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// These cameras; empty: all.
    pub cameras: Vec<String>,
    /// Nothing without detections.
    pub only_detections: bool,
}

impl Filter {
    fn wants(&self, published: &Published) -> bool {
        let message = published.message();
        self.wants_camera(&message.camera) && !(self.only_detections && message.detections.is_empty())
    }

    fn wants_camera(&self, camera: &str) -> bool {
        self.cameras.is_empty() || self.cameras.iter().any(|wanted| wanted == camera)
    }
}

#[derive(Debug)]
struct Reader {
    filter: Filter,
    /// It is in [`Inner::asleep`]; written with that locked.
    asleep: AtomicBool,
    arrived: Notify,
}

/// A message as a reader gets it.
#[derive(Debug)]
pub struct Delivered {
    /// The message with its JSON line.
    pub message: Arc<Published>,
    /// Messages before it that the reader was too slow for.
    pub lost: u64,
}

/// One reader's messages; dropped, it reads no more.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Mutex<Inner>>,
    reader: Arc<Reader>,
    place: Place,
}

/// Where in the ring a reader is.
#[derive(Debug)]
struct Place {
    /// The number of the message that it looks at next.
    next: u64,
    /// Those before it that the reader wants, counted as [`Ring::gone`] counts.
    before: u64,
    /// Those that it was too slow for and was not told of.
    lost: u64,
}

impl Feed {
    /// Hands a message in, and tells whether [`Feed::wake`] is to be called for it: somebody waits. Never waits itself, and
    /// allocates nothing but for a camera's first.
    pub fn publish(&self, published: &Arc<Published>) -> bool {
        let mut inner = lock(&self.inner);
        let message = published.message();
        // What this was the last to hold is freed after the lock.
        let before = match inner.latest.get_mut(&message.camera) {
            Some(latest) => Some(std::mem::replace(latest, Arc::clone(published))),
            None => inner.latest.insert(Arc::clone(&message.camera), Arc::clone(published)),
        };
        let pushed_out = if inner.readers > 0 { inner.ring.push(published) } else { None };
        let awaited = !inner.asleep.is_empty();
        drop(inner);
        if awaited {
            self.news.store(true, Ordering::Release);
        }
        drop((before, pushed_out));
        awaited
    }

    /// Wakes the readers' task if something came for it since it was woken last.
    pub fn wake(&self) {
        if self.news.swap(false, Ordering::Acquire) {
            self.arrived.notify_one();
        }
    }

    /// A camera's newest message.
    pub fn latest(&self, camera: &str) -> Option<Arc<Published>> {
        lock(&self.inner).latest.get(camera).cloned()
    }

    /// A new reader, from the next message on.
    pub fn subscribe(&self, filter: Filter) -> Subscription {
        let mut inner = lock(&self.inner);
        inner.readers += 1;
        let ring = &mut inner.ring;
        // All that it will ever hold, so that no lane allocates.
        ring.messages.reserve(RING - ring.messages.len());
        let kept = ring.since(0).filter(|message| filter.wants(message)).count();
        let place = Place { next: ring.end(), before: ring.gone(&filter) + kept as u64, lost: 0 };
        let reader = Arc::new(Reader { filter, asleep: AtomicBool::new(false), arrived: Notify::new() });
        Subscription { feed: Arc::clone(&self.inner), reader, place }
    }

    /// Wakes every reader that waits for what comes, for ever: one task of the runtime that serves the readers.
    pub async fn hand_round(&self) {
        let mut awake = Vec::new();
        loop {
            self.arrived.notified().await;
            {
                let mut inner = lock(&self.inner);
                let Inner { ring, asleep, looked_at, .. } = &mut *inner;
                let wanted = |reader: &Reader| ring.since(*looked_at).any(|message| reader.filter.wants(message));
                awake.extend(asleep.extract_if(.., |reader| wanted(reader)));
                awake.iter().for_each(|reader| reader.asleep.store(false, Ordering::Relaxed));
                *looked_at = ring.end();
            }
            awake.drain(..).for_each(|reader| reader.arrived.notify_one());
        }
    }

    /// Forgets the newest messages of other cameras.
    pub(super) fn keep(&self, runs: impl Fn(&str) -> bool) {
        lock(&self.inner).latest.retain(|camera, _| runs(camera));
    }
}

impl Ring {
    /// The number of the next to come.
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// What is kept of those from this number on.
    fn since(&self, number: u64) -> impl Iterator<Item = &Arc<Published>> {
        let skip = number.saturating_sub(self.first).min(self.messages.len() as u64);
        // No more than a length.
        self.messages.range(skip as usize..)
    }

    /// Takes a message in, and the oldest out where it is full.
    fn push(&mut self, published: &Arc<Published>) -> Option<Arc<Published>> {
        let oldest = if self.messages.len() < RING { None } else { self.messages.pop_front() };
        if let Some(oldest) = &oldest {
            let message = oldest.message();
            let gone = match self.gone.get_mut(&message.camera) {
                Some(gone) => gone,
                None => self.gone.entry(Arc::clone(&message.camera)).or_default(),
            };
            gone.all += 1;
            gone.with_detections += u64::from(!message.detections.is_empty());
            self.first += 1;
        }
        self.messages.push_back(Arc::clone(published));
        oldest
    }

    /// How many of those that are kept no more a reader would have wanted.
    fn gone(&self, filter: &Filter) -> u64 {
        let wanted = self.gone.iter().filter(|(camera, _)| filter.wants_camera(camera));
        wanted.map(|(_, gone)| if filter.only_detections { gone.with_detections } else { gone.all }).sum()
    }

    /// Forgets all; the numbers go on. Returns what was kept.
    fn clear(&mut self) -> VecDeque<Arc<Published>> {
        self.first = self.end();
        self.gone.clear();
        std::mem::take(&mut self.messages)
    }
}

impl Place {
    /// The next message that the reader wants, if it is there.
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
    /// The next message, once there is one. What was not awaited to its end has taken nothing.
    pub async fn next(&mut self) -> Delivered {
        loop {
            if let Some(delivered) = self.take_or_sleep() {
                return delivered;
            }
            self.reader.arrived.notified().await;
        }
    }

    /// The next message, if it is there.
    pub fn try_next(&mut self) -> Option<Delivered> {
        self.place.take(&lock(&self.feed).ring, &self.reader.filter)
    }

    /// As [`Subscription::try_next`]; where there is none, what comes wakes the reader.
    fn take_or_sleep(&mut self) -> Option<Delivered> {
        let mut inner = lock(&self.feed);
        let delivered = self.place.take(&inner.ring, &self.reader.filter);
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
        let mut inner = lock(&self.feed);
        inner.asleep.retain(|reader| !Arc::ptr_eq(reader, &self.reader));
        inner.readers -= 1;
        let kept = if inner.readers == 0 { inner.ring.clear() } else { VecDeque::new() };
        drop(inner);
        drop(kept);
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
