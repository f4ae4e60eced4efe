//! Messages to whoever reads them live, however many that are.
//!
//! A lane hands a message in: one lock. [`Feed::wake`] on another thread wakes, where somebody reads, [`Feed::hand_round`],
//! a task of the readers' runtime that gives it to each of them. Each has a bounded ring of its own: who is too slow loses
//! the oldest, is told how many, and costs nobody else anything.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::lock;
use crate::publish::Published;

/// Messages that wait for the task; more than a second's of any device.
const WAITING: usize = 1024;
/// Messages that wait for one reader: a second's of eight cameras at 30 frames a second.
const RING: usize = 256;

/// The messages of all cameras, as they come.
#[derive(Debug, Default)]
pub struct Feed {
    inner: Mutex<Inner>,
    /// Something came that the task was not woken for.
    news: AtomicBool,
    arrived: Notify,
    readers: Arc<Readers>,
}

#[derive(Debug, Default)]
struct Inner {
    latest: HashMap<Arc<str>, Arc<Published>>,
    waiting: VecDeque<Arc<Published>>,
    /// What the task did not take in time.
    overrun: u64,
}

#[derive(Debug, Default)]
struct Readers {
    list: Mutex<Vec<Arc<Reader>>>,
    /// The list's length, for lanes.
    count: AtomicUsize,
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
        (self.cameras.is_empty() || self.cameras.iter().any(|camera| **camera == *message.camera))
            && !(self.only_detections && message.detections.is_empty())
    }
}

#[derive(Debug)]
struct Reader {
    filter: Filter,
    ring: Mutex<Ring>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    messages: VecDeque<Arc<Published>>,
    lost: u64,
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
    reader: Arc<Reader>,
    readers: Arc<Readers>,
}

impl Feed {
    /// Hands a message in, and tells whether [`Feed::wake`] is to be called for it: somebody reads. Never waits, and allocates
    /// nothing but for a camera's first.
    pub fn publish(&self, published: &Arc<Published>) -> bool {
        let read = self.readers.count.load(Ordering::Relaxed) > 0;
        let mut inner = lock(&self.inner);
        let message = published.message();
        // The one before is freed after the lock, where this was the last to hold it.
        let before = match inner.latest.get_mut(&message.camera) {
            Some(latest) => Some(std::mem::replace(latest, Arc::clone(published))),
            None => inner.latest.insert(Arc::clone(&message.camera), Arc::clone(published)),
        };
        let mut pushed_out = None;
        if read {
            if inner.waiting.len() >= WAITING {
                pushed_out = inner.waiting.pop_front();
                inner.overrun += 1;
            }
            inner.waiting.push_back(Arc::clone(published));
        }
        drop(inner);
        if read {
            self.news.store(true, Ordering::Release);
        }
        drop((before, pushed_out));
        read
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
        let reader = Arc::new(Reader { filter, ring: Mutex::default(), arrived: Notify::new() });
        self.readers.change(|list| list.push(Arc::clone(&reader)));
        Subscription { reader, readers: Arc::clone(&self.readers) }
    }

    /// Readers now.
    #[cfg(test)]
    fn readers(&self) -> usize {
        self.readers.count.load(Ordering::Relaxed)
    }

    /// Gives what comes to every reader that wants it, for ever: one task of the runtime that serves the readers.
    pub async fn hand_round(&self) {
        let mut messages = VecDeque::new();
        loop {
            self.arrived.notified().await;
            let overrun = {
                let mut inner = lock(&self.inner);
                std::mem::swap(&mut inner.waiting, &mut messages);
                std::mem::take(&mut inner.overrun)
            };
            lock(&self.readers.list).iter().for_each(|reader| reader.receive(&messages, overrun));
            messages.clear();
        }
    }

    /// Forgets the newest messages of other cameras.
    pub(super) fn keep(&self, runs: impl Fn(&str) -> bool) {
        lock(&self.inner).latest.retain(|camera, _| runs(camera));
    }
}

impl Readers {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Reader>>)) {
        let mut list = lock(&self.list);
        change(&mut list);
        self.count.store(list.len(), Ordering::Relaxed);
    }
}

impl Reader {
    /// Takes what it wants of `messages`, of which `overrun` are missing.
    fn receive(&self, messages: &VecDeque<Arc<Published>>, overrun: u64) {
        let mut ring = lock(&self.ring);
        let mut arrived = false;
        ring.lost += overrun;
        for message in messages.iter().filter(|message| self.filter.wants(message)) {
            if ring.messages.len() >= RING {
                ring.messages.pop_front();
                ring.lost += 1;
            }
            ring.messages.push_back(Arc::clone(message));
            arrived = true;
        }
        drop(ring);
        if arrived {
            self.arrived.notify_one();
        }
    }
}

impl Subscription {
    /// The next message, once there is one. What was not awaited to its end has taken nothing.
    pub async fn next(&self) -> Delivered {
        loop {
            if let Some(delivered) = self.try_next() {
                return delivered;
            }
            self.reader.arrived.notified().await;
        }
    }

    /// The next message, if it is there.
    pub fn try_next(&self) -> Option<Delivered> {
        let mut ring = lock(&self.reader.ring);
        let message = ring.messages.pop_front()?;
        Some(Delivered { message, lost: std::mem::take(&mut ring.lost) })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.readers.change(|list| list.retain(|reader| !Arc::ptr_eq(reader, &self.reader)));
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
