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
    /// Time between two images of a camera.
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
    /// Give the memory back: no work arrived for the time that was passed to [`EncoderQueue::next`].
    FreeMemory,
    /// Return: the queue is closed.
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

    /// Limits the images per second of each camera.
    pub fn set_max_fps(&self, fps: f64) {
        self.interval_ns.store((1e9 / fps.max(1e-3)) as u64, Ordering::Relaxed);
    }

    /// Returns the time between two images of a camera.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns.load(Ordering::Relaxed)
    }

    /// Starts the threads unless they are running; returns `false` if there are none or the queue is closed.
    pub fn ensure_threads(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        if !state.closed
            && state.threads.is_empty()
            && let Err(error) = (self.start)(self, &mut state.threads)
        {
            log::error!("live images: cannot start a thread: {error}");
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
            Rank::Idle => log::debug!("live images: a core has idle time, encoding at idle priority"),
            _ => log::debug!("live images: no core has idle time, encoding at nice 10"),
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
            log::warn!("live images: the last image was not encoded in time and is dropped");
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_system::testing::{finishes, hang};

    use super::*;

    const SOON: Option<Duration> = Some(Duration::from_millis(5));

    /// A queue with threads that end at once instead of the encoder's.
    fn queue() -> Arc<EncoderQueue<u32>> {
        let start: StartThreads<u32> = |_, threads| {
            threads.push(std::thread::spawn(|| {}));
            Ok(())
        };
        Arc::new(EncoderQueue::new(start))
    }

    fn next(queue: &EncoderQueue<u32>, rank: Rank) -> Option<u32> {
        match queue.next(rank, SOON) {
            Job::Encode(view) => Some(*view),
            Job::FreeMemory => None,
            Job::End => panic!("it is not closed"),
        }
    }

    #[test]
    fn views_go_in_their_order_to_the_thread_whose_turn_it_is() {
        let queue = queue();
        assert!(queue.try_push(&Arc::new(1)) && queue.try_push(&Arc::new(2)));
        assert_eq!(next(&queue, Rank::Idle), None);
        assert_eq!(
            [next(&queue, Rank::Nice), next(&queue, Rank::Nice), next(&queue, Rank::Nice)],
            [Some(1), Some(2), None]
        );
        // Without a thread at idle priority, nothing is passed to it.
        queue.hand_over(Rank::Idle);
        assert!(queue.try_push(&Arc::new(3)));
        assert_eq!([next(&queue, Rank::Idle), next(&queue, Rank::Nice)], [None, Some(3)]);
        queue.add_idle();
        queue.hand_over(Rank::Idle);
        assert!(queue.try_push(&Arc::new(4)) && queue.try_push(&Arc::new(5)));
        assert_eq!([next(&queue, Rank::Nice), next(&queue, Rank::Idle)], [None, Some(4)]);
        queue.hand_over(Rank::Nice);
        assert_eq!([next(&queue, Rank::Idle), next(&queue, Rank::Nice)], [None, Some(5)]);
        // A lane never waits for the lock.
        let held = queue.hold();
        assert!(!queue.try_push(&Arc::new(6)));
        drop(held);
        assert_eq!(next(&queue, Rank::Nice), None);
    }

    #[test]
    fn a_thread_that_waits_is_woken_by_a_view_by_its_turn_and_by_the_end() {
        for rank in [Rank::Nice, Rank::Idle] {
            let queue = queue();
            queue.add_idle();
            let wait = |queue: &Arc<EncoderQueue<u32>>| {
                let queue = Arc::clone(queue);
                std::thread::spawn(move || match queue.next(rank, None) {
                    Job::Encode(view) => Some(*view),
                    Job::FreeMemory | Job::End => None,
                })
            };
            if rank == Rank::Idle {
                // The view waits for the turn, or arrives after it.
                let waiting = wait(&queue);
                assert!(queue.try_push(&Arc::new(1)));
                queue.hand_over(Rank::Idle);
                assert_eq!(finishes("the turn", move || waiting.join().unwrap()), Some(1));
            }
            let waiting = wait(&queue);
            assert!(queue.try_push(&Arc::new(2)));
            assert_eq!(finishes("a view", move || waiting.join().unwrap()), Some(2));
            let waiting = wait(&queue);
            queue.close(hang());
            assert_eq!(finishes("the end", move || waiting.join().unwrap()), None);
        }
    }

    #[test]
    fn threads_are_started_once_and_none_after_the_end() {
        let first = queue();
        assert!(first.ensure_threads() && first.ensure_threads());
        assert_eq!(first.state.lock().threads.len(), 1);
        assert!(first.try_push(&Arc::new(1)));
        first.close(hang());
        assert!(!first.ensure_threads());
        assert!(matches!(first.next(Rank::Nice, None), Job::End), "what waited is dropped");
        let none: EncoderQueue<u32> = EncoderQueue::new(|_, _| Err(io::ErrorKind::OutOfMemory.into()));
        assert!(!Arc::new(none).ensure_threads());
    }

    #[test]
    fn the_pictures_of_a_second_are_an_interval() {
        let queue = queue();
        assert_eq!(queue.interval_ns(), 100_000_000);
        queue.set_max_fps(4.0);
        assert_eq!(queue.interval_ns(), 250_000_000);
        queue.set_max_fps(0.0);
        assert_eq!(queue.interval_ns(), 1_000_000_000_000);
    }
}
