//! The cameras whose frames wait for the encoder, and which of its two threads takes them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use visiond_system::priority::Rank;
use visiond_system::threads::finished_by;

/// The queue between cameras' views and the encoder's threads.
///
/// `V` is the view; it is a parameter because a view holds its queue. A lane never waits for the lock: it uses
/// [`EncoderQueue::try_push`].
#[derive(Debug)]
pub struct EncoderQueue<V> {
    state: Mutex<QueueState<V>>,
    /// Wakes the thread that works at [`Rank::Nice`].
    nice: Condvar,
    /// Wakes the thread that works at [`Rank::Idle`].
    idle: Condvar,
    /// Time between two pictures of a camera.
    interval_ns: AtomicU64,
    start: StartThreads<V>,
}

/// Starts the threads, and adds them to the list.
type StartThreads<V> = fn(&Arc<EncoderQueue<V>>, &mut Vec<JoinHandle<()>>) -> io::Result<()>;

#[derive(Debug)]
struct QueueState<V> {
    waiting: VecDeque<Arc<V>>,
    /// The rank of the thread that takes from the queue.
    turn: Rank,
    /// Whether a thread has [`Rank::Idle`].
    has_idle: bool,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

/// The next task of a thread of the encoder.
pub enum Job<V> {
    /// Encode the frame that waits at this view.
    Encode(Arc<V>),
    /// Give the memory back: no work came for the time that was passed to [`EncoderQueue::next`].
    FreeMemory,
    /// End.
    End,
}

impl<V> EncoderQueue<V> {
    /// Creates an empty queue; `start` starts the threads when the first client watches.
    pub fn new(start: StartThreads<V>) -> Self {
        let (waiting, threads) = (VecDeque::new(), Vec::new());
        Self {
            state: Mutex::new(QueueState { waiting, turn: Rank::Nice, has_idle: false, threads, closed: false }),
            nice: Condvar::new(),
            idle: Condvar::new(),
            interval_ns: AtomicU64::new(100_000_000),
            start,
        }
    }

    /// Limits the pictures per second of each camera.
    pub fn set_max_fps(&self, fps: f64) {
        self.interval_ns.store((1e9 / fps.max(1e-3)) as u64, Ordering::Relaxed);
    }

    /// Returns the time between two pictures of a camera.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns.load(Ordering::Relaxed)
    }

    /// Starts the threads unless they run; returns `false` if there are none, or the queue is closed.
    pub fn ensure_threads(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        if !state.closed
            && state.threads.is_empty()
            && let Err(error) = (self.start)(self, &mut state.threads)
        {
            log::error!("live pictures: cannot start a thread: {error}");
        }
        !state.closed && !state.threads.is_empty()
    }

    /// Notes that a thread has [`Rank::Idle`] and can take a turn.
    pub fn add_idle(&self) {
        self.state.lock().has_idle = true;
    }

    /// Queues a view whose frame waits; returns `false` if a thread holds the lock. Never waits.
    pub fn try_push(&self, view: &Arc<V>) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        state.waiting.push_back(Arc::clone(view));
        let turn = state.turn;
        drop(state);
        self.arrived(turn).notify_one();
        true
    }

    /// Gives the turn to the thread of this rank, if there is one.
    pub fn hand_over(&self, turn: Rank) {
        let mut state = self.state.lock();
        if turn == Rank::Idle && !state.has_idle {
            return;
        }
        state.turn = turn;
        drop(state);
        self.arrived(turn).notify_one();
        match turn {
            Rank::Idle => log::debug!("live pictures: a core has idle time, encoding at idle priority"),
            _ => log::debug!("live pictures: no core has idle time, encoding at nice 10"),
        }
    }

    /// Waits for the next job of the thread of this rank; at most `idle` if the thread holds memory that it can free.
    pub fn next(&self, rank: Rank, idle: Option<Duration>) -> Job<V> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Job::End;
            }
            let turn = state.turn == rank;
            if turn && let Some(view) = state.waiting.pop_front() {
                return Job::Encode(view);
            }
            match idle {
                None => self.arrived(rank).wait(&mut state),
                Some(idle) => {
                    let timed_out = self.arrived(rank).wait_for(&mut state, idle).timed_out();
                    if timed_out && (!turn || state.waiting.is_empty()) {
                        return Job::FreeMemory;
                    }
                }
            }
        }
    }

    /// Ends the threads by `deadline`.
    pub fn close(&self, deadline: Instant) {
        let threads = {
            let mut state = self.state.lock();
            state.closed = true;
            state.waiting.clear();
            std::mem::take(&mut state.threads)
        };
        self.nice.notify_one();
        self.idle.notify_one();
        if !finished_by(&threads, deadline) {
            log::warn!("live pictures: the last picture was not encoded in time and is dropped");
        }
    }

    fn arrived(&self, turn: Rank) -> &Condvar {
        if turn == Rank::Idle { &self.idle } else { &self.nice }
    }

    /// Holds the lock until the guard is dropped.
    #[cfg(test)]
    pub fn hold(&self) -> impl Drop {
        self.state.lock()
    }
}
