//! A sink's waiting line: bounded; a full one drops or waits as configured, and counts.
//!
//! The lane pushes, the sink's own thread pops. A push is a lock and a move of an `Arc`; it wakes nobody, which is left to
//! [`Queue::wake`] on another thread, never does I/O and never makes the JSON line, which the first sink thread that needs it
//! does for all of them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use visiond_config::types::{SinkConfig, WhenFull};
use visiond_flow::message::Published;
use visiond_flow::sink_counts::SpoolCounts;
use visiond_system::stop::Stop;

use super::rate_limit::CameraRateLimit;

/// What became of a sink's messages. Only ever grows, but for `readers` and what tells how a broker's sink is.
#[derive(Debug, Default)]
pub struct Counters {
    /// OpenError into the queue.
    pub queued: AtomicU64,
    /// Written; by a socket: handed to its readers' buffers.
    pub written: AtomicU64,
    /// Turned away by a full queue.
    pub dropped_full: AtomicU64,
    /// Lost because the output could not be written.
    pub failed: AtomicU64,
    /// Still waiting when the time to end was over.
    pub unsent: AtomicU64,
    /// Socket: readers connected now.
    pub readers: AtomicU64,
    /// Socket: messages that one reader or another was too slow for; each reader's loss counts.
    pub reader_lost: AtomicU64,
    /// Socket: readers turned away because there were too many.
    pub readers_refused: AtomicU64,
    /// Left out because of `max_rate`.
    pub thinned: AtomicU64,
    /// Broker: 0 where there is none, 1 not connected, 2 connected.
    pub connected: AtomicU64,
    /// Broker: times that it was connected again.
    pub reconnects: AtomicU64,
    /// Broker: messages that were sent again because a connection was lost before they were acknowledged.
    pub resent: AtomicU64,
    /// Why nothing can be written now.
    pub outage: Mutex<Option<String>>,
    /// Durable: sent without being on disk, which took no more.
    pub memory_only: AtomicU64,
    /// Durable: what is on disk.
    pub spool: Mutex<Option<SpoolCounts>>,
}

impl Counters {
    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// What a pop found.
#[derive(Debug)]
pub enum Popped {
    /// The next message.
    Message(Arc<Published>),
    /// The sink is set otherwise from now on; its place is the same.
    Configured(Box<SinkConfig>),
    /// Nothing came in time.
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

/// The waiting line of one sink.
#[derive(Debug)]
pub struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    room: Condvar,
    wake: OnceLock<Wake>,
    /// Something came that the sink was not woken for.
    news: AtomicBool,
    stop: Stop,
    /// What became of the messages.
    pub counters: Counters,
}

#[derive(Debug)]
struct Inner {
    waiting: VecDeque<Arc<Published>>,
    capacity: usize,
    when_full: WhenFull,
    /// Where a rate is set.
    rate_limit: Option<CameraRateLimit>,
    /// What the sink is to be from now on, as long as it does not know.
    configured: Option<Box<SinkConfig>>,
    /// Set once: no more messages come, and what waits must be out by then.
    deadline: Option<Instant>,
    /// The sink has ended for good; whatever comes is lost.
    dead: bool,
}

impl Queue {
    /// An empty queue of a sink that is set so.
    pub fn of(config: &SinkConfig, stop: &Stop) -> Self {
        let queue = Self::new(config.queue, config.when_full, stop);
        queue.inner.lock().rate_limit = config.max_rate.map(CameraRateLimit::new);
        queue
    }

    /// An empty queue. A push that waits for room gives up once `stop` is raised.
    pub fn new(capacity: usize, when_full: WhenFull, stop: &Stop) -> Self {
        let capacity = capacity.max(1);
        let waiting = VecDeque::new();
        let inner =
            Inner { waiting, capacity, when_full, rate_limit: None, configured: None, deadline: None, dead: false };
        Self {
            inner: Mutex::new(inner),
            arrived: Condvar::new(),
            room: Condvar::new(),
            wake: OnceLock::new(),
            news: AtomicBool::new(false),
            stop: stop.clone(),
            counters: Counters::default(),
        }
    }

    /// Hands a message in, of which the sink learns by [`Queue::wake`]. Returns at once, except where `when_full` is `Block`;
    /// `waits` is called before it waits.
    pub fn push(&self, message: &Arc<Published>, waits: impl Fn()) {
        let mut inner = self.inner.lock();
        let open = inner.deadline.is_none() && !inner.dead;
        if let Some(rate_limit) = inner.rate_limit.as_mut().filter(|_| open) {
            let offered = rate_limit.offer(message, Instant::now());
            Counters::add(&self.counters.thinned, u64::from(offered.replaces));
            if !offered.passes {
                drop(inner);
                if !offered.replaces {
                    // The sink's sleep is to end at the camera's turn.
                    self.news.store(true, Ordering::Release);
                }
                return;
            }
        }
        while inner.waiting.len() >= inner.capacity && inner.deadline.is_none() && !inner.dead {
            match inner.when_full {
                WhenFull::DropOldest => {
                    inner.waiting.pop_front();
                    Counters::add(&self.counters.dropped_full, 1);
                }
                WhenFull::Block if !self.stop.is_raised() => {
                    waits();
                    // Bounded, because raising `stop` does not wake a condition variable.
                    self.room.wait_for(&mut inner, Duration::from_millis(50));
                }
                WhenFull::Block | WhenFull::DropNewest => {
                    Counters::add(&self.counters.dropped_full, 1);
                    return;
                }
            }
        }
        if inner.dead {
            Counters::add(&self.counters.failed, 1);
            return;
        }
        if inner.deadline.is_some() {
            Counters::add(&self.counters.unsent, 1);
            return;
        }
        inner.waiting.push_back(Arc::clone(message));
        Counters::add(&self.counters.queued, 1);
        drop(inner);
        self.news.store(true, Ordering::Release);
    }

    /// Wakes the sink if something came since it was woken last.
    pub fn wake(&self) {
        if self.news.swap(false, Ordering::Acquire) {
            self.notify();
        }
    }

    /// Sets the queue and its sink as `config` says.
    pub fn configure(&self, config: &SinkConfig) {
        let mut inner = self.inner.lock();
        (inner.capacity, inner.when_full) = (config.queue.max(1), config.when_full);
        match (config.max_rate, &mut inner.rate_limit) {
            (Some(rate), Some(rate_limit)) => rate_limit.set_rate(rate),
            (Some(rate), none) => *none = Some(CameraRateLimit::new(rate)),
            (None, _) => {
                self.release(&mut inner, true);
                inner.rate_limit = None;
            }
        }
        inner.configured = Some(Box::new(config.clone()));
        drop(inner);
        self.room.notify_all();
        self.notify();
    }

    /// The next message, waiting for it up to `timeout` (`None`: until there is one or the queue is closed).
    pub fn pop(&self, timeout: Option<Duration>) -> Popped {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut inner = self.inner.lock();
        loop {
            if let Some(config) = inner.configured.take() {
                return Popped::Configured(config);
            }
            let closed = inner.deadline.is_some();
            self.release(&mut inner, closed);
            if let Some(message) = inner.waiting.pop_front() {
                drop(inner);
                self.room.notify_one();
                return Popped::Message(message);
            }
            if inner.deadline.is_some() {
                return Popped::Closed;
            }
            let turn = inner.rate_limit.as_ref().and_then(CameraRateLimit::next_turn);
            match [until, turn].into_iter().flatten().min() {
                None => self.arrived.wait(&mut inner),
                Some(next) => {
                    let now = Instant::now();
                    if until.is_some_and(|until| now >= until) {
                        return Popped::TimedOut;
                    }
                    let left = next.saturating_duration_since(now);
                    self.arrived.wait_for(&mut inner, left);
                }
            }
        }
    }

    /// Puts what was held back by the rate behind the others, where its turn has come. A pop does so too.
    pub fn ripen(&self) {
        self.release(&mut self.inner.lock(), false);
    }

    /// When a message that is held back by the rate has its turn, for a sink that sleeps by itself.
    pub fn next_turn(&self) -> Option<Instant> {
        self.inner.lock().rate_limit.as_ref().and_then(CameraRateLimit::next_turn)
    }

    /// What the sink is to be from now on, if that is news.
    pub fn configured(&self) -> Option<Box<SinkConfig>> {
        self.inner.lock().configured.take()
    }

    /// Until when everything is to be out, once the queue is closed.
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.lock().deadline
    }

    /// Messages waiting now.
    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// No more messages; those that wait are to be out by `deadline`.
    pub fn close(&self, deadline: Instant) {
        self.inner.lock().deadline.get_or_insert(deadline);
        self.room.notify_all();
        self.notify();
    }

    /// Whether the queue is closed and the time for the rest is over.
    pub fn is_overdue(&self) -> bool {
        self.inner.lock().deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The sink has ended: what waits now goes to `counter`, what comes later counts as failed.
    pub fn die(&self, counter: impl FnOnce(&Counters) -> &AtomicU64) {
        let mut inner = self.inner.lock();
        inner.dead = true;
        let rest = std::mem::take(&mut inner.waiting).len();
        drop(inner);
        Counters::add(counter(&self.counters), rest as u64);
        self.room.notify_all();
    }

    /// Makes every later wake and close ring this bell, for a sink that sleeps in `poll`.
    pub fn wake_by(&self, wake: Wake) -> &Wake {
        self.wake.get_or_init(|| wake)
    }

    /// Puts those behind the others that were held back and have their turn; or all of them.
    fn release(&self, inner: &mut Inner, all: bool) {
        let Some(rate_limit) = &mut inner.rate_limit else { return };
        let before = inner.waiting.len();
        if all {
            inner.waiting.extend(rate_limit.rest());
        } else if rate_limit.next_turn().is_some() {
            let now = Instant::now();
            inner.waiting.extend(std::iter::from_fn(|| rate_limit.due(now)));
        }
        Counters::add(&self.counters.queued, (inner.waiting.len() - before) as u64);
    }

    fn notify(&self) {
        match self.wake.get() {
            Some(wake) => wake.ring(),
            None => _ = self.arrived.notify_one(),
        }
    }
}

/// A bell for a thread that sleeps in `poll`.
#[derive(Debug)]
pub struct Wake {
    reader: UnixStream,
    writer: UnixStream,
}

impl Wake {
    /// A bell that has not rung. Fails when the process has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, writer })
    }

    /// Wakes the sleeper, now or when it next polls.
    pub fn ring(&self) {
        // Full means that it rang already.
        let _ = (&self.writer).write(&[1]);
    }

    /// Forgets that it rang.
    pub fn hush(&self) {
        while matches!((&self.reader).read(&mut [0; 64]), Ok(64)) {}
    }

    /// The same for a sleeper that reads the rings itself, and forgets them by that. It is set not to block.
    pub fn reader(&self) -> std::io::Result<UnixStream> {
        self.reader.try_clone()
    }

    /// Readable once it rang.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
