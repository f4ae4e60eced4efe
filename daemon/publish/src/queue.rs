//! A sink's queue: bounded, with counters. When it is full it drops messages or blocks, as configured.
//!
//! The lane pushes, and the sink's own thread pops. A push takes a lock and moves an `Arc`. It does no I/O and wakes no thread,
//! which [`Queue::wake`] does on another thread. The first sink thread that needs the JSON line serializes it for all sinks.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use visiond_config::types::{SinkConfig, WhenFull};
use visiond_message::Published;
use visiond_message::status::{SinkCounters, SpoolCounts};
use visiond_system::outage::Outage;
use visiond_system::stop::Stop;
use visiond_system::wake_pipe::WakePipe;

use super::rate_limit::CameraRateLimit;

/// Counts of a sink's messages by outcome: see [`SinkCounts`](visiond_message::status::SinkCounts).
#[derive(Debug, Default)]
pub struct Counters {
    /// What the status shows.
    pub shown: SinkCounters<AtomicU64>,
    /// Messages that the sink has taken from the queue.
    pub taken: AtomicU64,
    /// 0 for a sink without a broker, 1 not connected, 2 connected.
    pub connected: AtomicU64,
    /// Messages in memory that belong to refused cameras.
    pub refused: AtomicU64,
    pub outage: Mutex<Option<String>>,
    /// Durable: messages sent without being on disk, because the disk refused them.
    pub memory_only: AtomicU64,
    pub spool: Mutex<Option<SpoolCounts>>,
}

impl Deref for Counters {
    type Target = SinkCounters<AtomicU64>;

    fn deref(&self) -> &Self::Target {
        &self.shown
    }
}

impl Counters {
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Shows in the status whether the output has an outage.
    pub fn report_outage(&self, outage: &Outage) {
        *self.outage.lock() = outage.reason().map(str::to_owned);
    }

    /// Returns how many of the messages that a sink without a spool has taken are neither written nor given up.
    pub fn in_hand(&self) -> u64 {
        let done = [&self.written, &self.failed].map(|counter| counter.load(Ordering::Relaxed)).iter().sum();
        self.taken.load(Ordering::Relaxed).saturating_sub(done)
    }
}

/// A reload has removed the sink.
#[derive(Debug, Clone, Copy)]
pub struct Removed {
    /// Another sink may announce the same cameras to Home Assistant.
    pub shares_discovery: bool,
}

/// Set once another sink publishes to the same topics: their retained messages belong to that sink.
pub type Succession = Arc<OnceLock<Removed>>;

/// The result of [`Queue::pop`].
#[derive(Debug)]
pub enum Popped {
    Message(Arc<Published>),
    /// The sink has new settings; its output is the same.
    Configured(Box<SinkConfig>),
    TimedOut,
    Closed,
}

#[derive(Debug)]
pub struct Queue {
    inner: Mutex<QueueState>,
    arrived: Condvar,
    room: Condvar,
    wake_pipe: OnceLock<WakePipe>,
    /// There are messages that the sink was not woken for.
    unannounced: AtomicBool,
    stop: Stop,
    removed: OnceLock<Removed>,
    /// Counts of the messages by outcome.
    pub counters: Counters,
}

#[derive(Debug)]
struct QueueState {
    waiting: WaitingMessages,
    capacity: usize,
    capacity_bytes: usize,
    when_full: WhenFull,
    /// Set if the sink has a `max_rate`.
    rate_limit: Option<CameraRateLimit>,
    /// New settings that the sink has not taken yet.
    configured: Option<Box<SinkConfig>>,
    /// Set once: the queue accepts no more messages, and the sink must write the rest by this time.
    deadline: Option<Instant>,
    /// The sink has ended for good; later messages are lost.
    dead: bool,
}

/// Messages in order, and their size in bytes.
#[derive(Debug, Default)]
struct WaitingMessages {
    messages: VecDeque<Arc<Published>>,
    /// The bytes of each camera that has messages.
    cameras: Vec<(Arc<str>, usize)>,
    bytes: usize,
}

impl WaitingMessages {
    fn push_back(&mut self, message: Arc<Published>) {
        let (camera, bytes) = (message.camera(), message.about_bytes());
        match self.cameras.iter_mut().find(|(known, _)| known == camera) {
            Some((_, of_camera)) => *of_camera += bytes,
            None => self.cameras.push((Arc::clone(camera), bytes)),
        }
        self.bytes += bytes;
        self.messages.push_back(message);
    }

    fn pop_front(&mut self) -> Option<Arc<Published>> {
        let message = self.messages.pop_front()?;
        self.removed(&message);
        Some(message)
    }

    /// Drops the oldest message of a frame; returns `false` if only events wait. With `of_largest`, one of the camera that has the most
    /// bytes, so that a camera with large messages does not push out the others' small ones.
    fn drop_frame(&mut self, of_largest: bool) -> bool {
        let largest = self.cameras.iter().max_by_key(|(_, bytes)| *bytes).filter(|_| of_largest);
        let is_largest = |message: &Published| largest.is_some_and(|(camera, _)| message.camera() == camera);
        let is_frame = |message: &Published| message.frame().is_some();
        let place = self.messages.iter().position(|message| is_frame(message) && is_largest(message));
        let place = place.or_else(|| self.messages.iter().position(|message| is_frame(message)));
        let dropped = place.and_then(|place| self.messages.remove(place));
        dropped.iter().for_each(|message| self.removed(message));
        dropped.is_some()
    }

    fn removed(&mut self, message: &Published) {
        let (camera, bytes) = (message.camera(), message.about_bytes());
        self.bytes -= bytes;
        if let Some(place) = self.cameras.iter().position(|(known, _)| known == camera) {
            let of_camera = &mut self.cameras[place].1;
            // Every message has at least a few bytes, so a camera without messages has none.
            *of_camera -= bytes;
            if *of_camera == 0 {
                self.cameras.swap_remove(place);
            }
        }
    }
}

/// What [`Queue::push`] did with a message that can never be queued.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge {
    pub bytes: usize,
    pub limit: usize,
}

impl QueueState {
    /// Makes room for a message; returns `false` if it must wait or be dropped.
    ///
    /// An event comes once, so it takes the place of a frame. It does not wait: the lane that it comes from waits with its next frame.
    fn make_room(&mut self, message: &Published, counters: &Counters) -> bool {
        let (bytes, is_event) = (message.about_bytes(), message.frame().is_none());
        loop {
            let full = self.waiting.messages.len() >= self.capacity;
            let full_bytes = self.waiting.bytes + bytes > self.capacity_bytes;
            if !full && !full_bytes || self.waiting.messages.is_empty() {
                return true;
            }
            let is_dropped = match self.when_full {
                WhenFull::Block => return is_event,
                WhenFull::DropNewest => is_event && self.waiting.drop_frame(!full),
                WhenFull::DropOldest => {
                    self.waiting.drop_frame(!full) || is_event && self.waiting.pop_front().is_some()
                }
            };
            if !is_dropped {
                return false;
            }
            Counters::add(&counters.dropped_full, 1);
        }
    }
}

impl Queue {
    pub fn of(config: &SinkConfig, stop: &Stop) -> Self {
        let queue = Self::new(config.queue, config.when_full, stop);
        let mut inner = queue.inner.lock();
        inner.capacity_bytes = limit_bytes(config);
        inner.rate_limit = config.max_rate.map(CameraRateLimit::new);
        drop(inner);
        queue
    }

    /// Creates an empty queue. A push that waits for room gives up once `stop` is raised.
    pub fn new(capacity: usize, when_full: WhenFull, stop: &Stop) -> Self {
        let inner = QueueState {
            waiting: WaitingMessages::default(),
            capacity: capacity.max(1),
            capacity_bytes: usize::MAX,
            when_full,
            rate_limit: None,
            configured: None,
            deadline: None,
            dead: false,
        };
        Self {
            inner: Mutex::new(inner),
            arrived: Condvar::new(),
            room: Condvar::new(),
            wake_pipe: OnceLock::new(),
            unannounced: AtomicBool::new(false),
            stop: stop.clone(),
            removed: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Adds a message; [`Queue::wake`] then wakes the sink. Returns at once unless `when_full` is `Block`; calls `waits`
    /// before it waits. Drops a message that is larger than the whole queue may be, and returns its size.
    pub fn push(&self, message: &Arc<Published>, waits: impl Fn()) -> Option<TooLarge> {
        let mut inner = self.inner.lock();
        let open = inner.deadline.is_none() && !inner.dead;
        let (bytes, limit) = (message.about_bytes(), inner.capacity_bytes);
        if open && bytes > limit {
            Counters::add(&self.counters.dropped_full, 1);
            return Some(TooLarge { bytes, limit });
        }
        if let Some(rate_limit) = inner.rate_limit.as_mut().filter(|_| open && message.frame().is_some()) {
            let offered = rate_limit.offer(message, Instant::now());
            Counters::add(&self.counters.thinned, u64::from(offered.replaces));
            if !offered.passes {
                drop(inner);
                if !offered.replaces {
                    // The sink must wake at the camera's next interval.
                    self.unannounced.store(true, Ordering::Release);
                }
                return None;
            }
        }
        while inner.deadline.is_none() && !inner.dead && !inner.make_room(message, &self.counters) {
            if inner.when_full == WhenFull::Block && !self.stop.is_raised() {
                waits();
                // Bounded, because raising `stop` does not wake a condition variable.
                self.room.wait_for(&mut inner, Duration::from_millis(50));
            } else {
                Counters::add(&self.counters.dropped_full, 1);
                return None;
            }
        }
        if inner.dead {
            Counters::add(&self.counters.failed, 1);
            return None;
        }
        if inner.deadline.is_some() {
            Counters::add(&self.counters.unsent, 1);
            return None;
        }
        inner.waiting.push_back(Arc::clone(message));
        Counters::add(&self.counters.queued, 1);
        drop(inner);
        self.unannounced.store(true, Ordering::Release);
        None
    }

    /// Wakes the sink if there are messages that it was not woken for.
    pub fn wake(&self) {
        if self.unannounced.swap(false, Ordering::Acquire) {
            self.notify();
        }
    }

    /// Applies new settings to the queue, and passes them to the sink.
    pub fn configure(&self, config: &SinkConfig) {
        let mut inner = self.inner.lock();
        (inner.capacity, inner.when_full) = (config.queue.max(1), config.when_full);
        inner.capacity_bytes = limit_bytes(config);
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

    /// Returns the next message. Waits up to `timeout`, or with `None` until there is a message or the queue is closed.
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
                Counters::add(&self.counters.taken, 1);
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

    /// Moves messages that the rate limit holds back into the queue once their interval has passed. `pop` does the same.
    pub fn release_due(&self) {
        self.release(&mut self.inner.lock(), false);
    }

    /// Returns when the next held-back message is due, for a sink that does its own waiting.
    pub fn next_turn(&self) -> Option<Instant> {
        self.inner.lock().rate_limit.as_ref().and_then(CameraRateLimit::next_turn)
    }

    /// Takes the new settings, if there are any.
    pub fn configured(&self) -> Option<Box<SinkConfig>> {
        self.inner.lock().configured.take()
    }

    /// Returns the deadline for writing everything, once the queue is closed.
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.lock().deadline
    }

    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting.messages.len()
    }

    /// Closes the queue to new messages; the sink has until `deadline` to write the rest. An earlier deadline stays in force.
    pub fn close(&self, deadline: Instant) {
        let mut inner = self.inner.lock();
        inner.deadline = Some(inner.deadline.map_or(deadline, |known| known.min(deadline)));
        drop(inner);
        self.room.notify_all();
        self.notify();
    }

    /// Notes that a reload has removed the sink; its queue is closed next.
    pub fn remove(&self, removed: Removed) {
        // The first reload that does so is the only one.
        let _ = self.removed.set(removed);
    }

    pub fn removed(&self) -> Option<Removed> {
        self.removed.get().copied()
    }

    /// Whether the queue is closed and its deadline has passed.
    pub fn is_overdue(&self) -> bool {
        self.inner.lock().deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Ends the queue with its sink: counts its messages in `counter`, and later messages as failed.
    pub fn abandon(&self, counter: impl FnOnce(&Counters) -> &AtomicU64) {
        let mut inner = self.inner.lock();
        inner.dead = true;
        let rest = std::mem::take(&mut inner.waiting).messages.len();
        drop(inner);
        Counters::add(counter(&self.counters), rest as u64);
        self.room.notify_all();
    }

    /// Makes every later wake and close write to `wake_pipe`, for a sink that sleeps in `poll`.
    pub fn wake_by(&self, wake_pipe: WakePipe) -> &WakePipe {
        self.wake_pipe.get_or_init(|| wake_pipe)
    }

    /// Moves held-back messages into the queue: those that are due, or all of them.
    fn release(&self, inner: &mut QueueState, all: bool) {
        let Some(rate_limit) = &mut inner.rate_limit else { return };
        let due: Vec<_> = if all {
            rate_limit.rest().collect()
        } else if rate_limit.next_turn().is_some() {
            let now = Instant::now();
            std::iter::from_fn(|| rate_limit.due(now)).collect()
        } else {
            return;
        };
        for message in due {
            // With `block` the lane has already continued, and each camera has at most one such message.
            if inner.make_room(&message, &self.counters) || inner.when_full == WhenFull::Block {
                inner.waiting.push_back(message);
                Counters::add(&self.counters.queued, 1);
            } else {
                Counters::add(&self.counters.dropped_full, 1);
            }
        }
    }

    fn notify(&self) {
        match self.wake_pipe.get() {
            Some(wake_pipe) => wake_pipe.wake(),
            None => _ = self.arrived.notify_one(),
        }
    }
}

/// Returns the most bytes that a sink's messages in memory may have.
pub fn limit_bytes(config: &SinkConfig) -> usize {
    usize::try_from(config.queue_bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_message::EventMessage;
    use visiond_message::testing::{door_message, sized_message};
    use visiond_system::testing::{hang, never};

    use super::*;

    fn queue(when_full: WhenFull, pushed: u64) -> Queue {
        let queue = Queue::new(3, when_full, &Stop::new().unwrap());
        (0..pushed).for_each(|sequence| push(&queue, sequence));
        queue
    }

    fn push(queue: &Queue, sequence: u64) {
        queue.push(&Arc::new(Published::new(door_message(sequence, 1))), || ());
    }

    /// The messages that a sink would get at once.
    fn rest(queue: &Queue) -> Vec<u64> {
        std::iter::from_fn(|| match queue.pop(Some(Duration::ZERO)) {
            Popped::Message(message) => Some(message.sequence()),
            _ => None,
        })
        .collect()
    }

    /// Queued, taken, dropped because it was full, failed and unsent.
    fn counts(queue: &Queue) -> [u64; 5] {
        let (taken, SinkCounters { queued, dropped_full, failed, unsent, .. }) =
            (&queue.counters.taken, &queue.counters.shown);
        [queued, taken, dropped_full, failed, unsent].map(|counter| counter.load(Ordering::Relaxed))
    }

    #[test]
    fn a_full_queue_drops_as_it_was_told_and_counts_it() {
        let oldest = queue(WhenFull::DropOldest, 5);
        assert_eq!((oldest.waiting(), rest(&oldest), counts(&oldest)), (3, vec![2, 3, 4], [5, 3, 2, 0, 0]));
        let newest = queue(WhenFull::DropNewest, 5);
        assert_eq!((newest.waiting(), rest(&newest), counts(&newest)), (3, vec![0, 1, 2], [3, 3, 2, 0, 0]));
        assert!(matches!(newest.pop(Some(Duration::ZERO)), Popped::TimedOut));
    }

    #[test]
    fn an_event_outlasts_frames_and_no_rate_limits_it() {
        let stop = Stop::new().unwrap();
        let event = |queue: &Queue, sequence| {
            let event = EventMessage { camera: "door".into(), sequence, ..EventMessage::default() };
            queue.push(&Arc::new(Published::of_event(Arc::new(event), None)), || ());
        };
        let queue = Queue::of(&SinkConfig { queue: 3, max_rate: Some(0.001), ..SinkConfig::default() }, &stop);
        push(&queue, 0);
        (1..3).for_each(|sequence| event(&queue, sequence));
        // Waits for its turn, for most of an hour.
        push(&queue, 3);
        event(&queue, 4);
        assert_eq!(rest(&queue), [1, 2, 4], "the frame made room");
        (5..9).for_each(|sequence| event(&queue, sequence));
        assert_eq!(rest(&queue), [6, 7, 8], "there is no frame");
        assert_eq!(counts(&queue), [8, 6, 2, 0, 0]);
        for (when_full, kept, dropped) in [
            (WhenFull::DropOldest, vec![10, 11, 12], 3),
            (WhenFull::DropNewest, vec![10, 11, 12], 3),
            // It neither waits nor is lost, although there is no room.
            (WhenFull::Block, vec![0, 1, 10, 11, 12], 0),
        ] {
            let queue = Queue::of(&SinkConfig { queue: 3, when_full, ..SinkConfig::default() }, &stop);
            (0..2).for_each(|sequence| push(&queue, sequence));
            (10..13).for_each(|sequence| event(&queue, sequence));
            if when_full != WhenFull::Block {
                push(&queue, 2);
            }
            assert_eq!((rest(&queue), counts(&queue)[2]), (kept, dropped), "{when_full:?}");
        }
    }

    const MIB: usize = 1 << 20;

    fn config(queue: usize, queue_bytes: usize, when_full: WhenFull) -> SinkConfig {
        SinkConfig { queue, queue_bytes: queue_bytes as u64, when_full, ..SinkConfig::default() }
    }

    fn push_sized(queue: &Queue, camera: &str, sequence: u64, bytes: usize) -> Option<TooLarge> {
        queue.push(&Arc::new(Published::new(sized_message(camera, sequence, bytes))), || ())
    }

    #[test]
    fn a_camera_with_large_messages_pushes_out_its_own_alone() {
        let stop = Stop::new().unwrap();
        let queue = Queue::of(&config(100, 32 * MIB, WhenFull::DropOldest), &stop);
        for sequence in 0..10 {
            assert_eq!(push_sized(&queue, "door", 100 + sequence, 0), None);
            assert_eq!(push_sized(&queue, "yard", 200 + sequence, 15 * MIB), None);
        }
        let kept: Vec<_> = (100..109).chain([208, 109, 209]).collect();
        assert_eq!((rest(&queue), counts(&queue)), (kept, [20, 12, 8, 0, 0]));
        let newest = Queue::of(&config(100, 32 * MIB, WhenFull::DropNewest), &stop);
        for sequence in 0..10 {
            assert_eq!(push_sized(&newest, "yard", sequence, 15 * MIB), None);
        }
        assert_eq!((rest(&newest), counts(&newest)), (vec![0, 1], [2, 2, 8, 0, 0]));
    }

    #[test]
    fn a_message_larger_than_the_queue_is_dropped_and_the_others_stay() {
        for when_full in [WhenFull::DropOldest, WhenFull::DropNewest, WhenFull::Block] {
            let queue = Queue::of(&config(3, MIB, when_full), &Stop::new().unwrap());
            push(&queue, 0);
            let too_large = push_sized(&queue, "yard", 1, 2 * MIB);
            assert!(too_large.is_some_and(|one| one.limit == MIB && one.bytes > 2 * MIB));
            assert_eq!((rest(&queue), counts(&queue)), (vec![0], [1, 1, 1, 0, 0]));
            queue.configure(&config(3, 4 * MIB, when_full));
            assert_eq!(push_sized(&queue, "yard", 1, 2 * MIB), None);
        }
    }

    #[test]
    fn what_a_rate_holds_back_does_not_overfill_the_queue() {
        for (when_full, bytes) in
            [(WhenFull::DropOldest, 0), (WhenFull::DropNewest, 0), (WhenFull::DropNewest, 9 * MIB)]
        {
            let sink = SinkConfig { max_rate: Some(1000.0), ..config(3, 32 * MIB, when_full) };
            let queue = Queue::of(&sink, &Stop::new().unwrap());
            for sequence in 0..50 {
                push_sized(&queue, "door", sequence, bytes);
                std::thread::sleep(Duration::from_millis(1));
                queue.release_due();
                assert!(queue.waiting() <= 3, "{}", queue.waiting());
            }
        }
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_no_more() {
        let queue = queue(WhenFull::DropOldest, 2);
        assert!(queue.deadline().is_none() && !queue.is_overdue());
        let (soon, late) = (hang(), never());
        queue.close(soon);
        queue.close(late);
        assert_eq!(queue.deadline(), Some(soon.min(late)), "the earlier one stays in force");
        push(&queue, 9);
        assert!(!queue.is_overdue());
        assert_eq!((rest(&queue), counts(&queue)), (vec![0, 1], [2, 2, 0, 0, 1]));
        assert!(matches!(queue.pop(None), Popped::Closed));
        queue.close(Instant::now());
        assert!(queue.is_overdue());
    }

    #[test]
    fn what_an_ended_sink_had_and_what_comes_later_is_counted() {
        let queue = queue(WhenFull::Block, 2);
        queue.abandon(|counters| &counters.unsent);
        (5..10).for_each(|sequence| push(&queue, sequence));
        assert_eq!((queue.waiting(), counts(&queue)), (0, [2, 0, 0, 5, 2]), "and nobody waits for room");
    }

    #[test]
    fn new_settings_come_before_messages_and_hold_at_once() {
        let queue = queue(WhenFull::DropOldest, 3);
        queue.configure(&SinkConfig { queue: 1, when_full: WhenFull::DropNewest, ..SinkConfig::default() });
        push(&queue, 3);
        assert!(matches!(queue.pop(Some(Duration::ZERO)), Popped::Configured(config) if config.queue == 1));
        assert_eq!((rest(&queue), counts(&queue)), (vec![0, 1, 2], [3, 3, 1, 0, 0]));
        queue.configure(&SinkConfig { queue: 0, ..SinkConfig::default() });
        assert!(queue.configured().is_some() && queue.configured().is_none(), "taken once");
        push(&queue, 4);
        assert_eq!(rest(&queue), [4], "there is room for one at least");
    }

    #[test]
    fn a_sink_that_polls_is_woken_once_for_all_that_came() {
        let queue = queue(WhenFull::DropOldest, 0);
        let wake_pipe = queue.wake_by(WakePipe::new().unwrap());
        let is_woken = || {
            let mut entries = [crate::poll::entry(&wake_pipe.reader, libc::POLLIN)];
            crate::poll::poll(&mut entries, Some(Duration::ZERO)).unwrap();
            wake_pipe.clear();
            entries[0].revents != 0
        };
        push(&queue, 0);
        assert!(!is_woken(), "only when it is told to");
        queue.wake();
        assert!(is_woken());
        queue.wake();
        assert!(!is_woken(), "nothing came since");
        queue.close(hang());
        assert!(is_woken());
    }
}
