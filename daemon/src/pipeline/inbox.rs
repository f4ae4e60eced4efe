//! The mailbox between capture threads and a lane: one slot a camera, newest wins.
//!
//! Latency is bounded by construction: at most one frame of a camera waits, and a newer one takes its place. A camera whose
//! source must not lose frames (pace "fastest") waits for its slot instead. The lane takes what stands there, cameras in
//! turn, so that a fast one cannot starve a slow one.
//!
//! Nothing is allocated after the inbox is made, and frames are dropped (which gives their buffers back) outside the lock.
//!
//! Ends: a camera that has no more says [`Inbox::end`]; once all have and every slot is empty, the lane is told
//! [`Taken::Ended`]. [`Inbox::stop`] ends at once: who waits is woken, and what still stands in a slot is not looked at.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a camera does when its slot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The new frame takes the place of the old.
    NewestWins,
    /// The camera waits until the slot is free.
    Lossless,
}

/// What became of a frame that was put.
#[derive(Debug, PartialEq, Eq)]
pub enum Put<T> {
    /// It stands in its slot.
    Stored,
    /// It stands in its slot; this one stood there before and nobody looked at it.
    Displaced(T),
    /// The inbox was stopped; here it is back.
    Stopped(T),
}

/// What came of taking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// At least one frame.
    Frames,
    /// Nothing came in time.
    TimedOut,
    /// Every camera has ended and every slot is empty: nothing will come.
    Ended,
    /// [`Inbox::stop`] was called.
    Stopped,
}

/// One slot a camera. Cameras are numbered in the order given to [`Inbox::new`].
#[derive(Debug)]
pub struct Inbox<T> {
    state: Mutex<State<T>>,
    /// Something came, a camera ended, or all is to stop. Only the lane waits on it.
    arrived: Condvar,
    /// A slot became free, or all is to stop; one for each camera. Only the camera's own thread waits on it.
    freed: Vec<Condvar>,
}

#[derive(Debug)]
struct State<T> {
    slots: Vec<Slot<T>>,
    /// The camera that is looked at first when the lane takes next.
    turn: usize,
    stopped: bool,
}

#[derive(Debug)]
struct Slot<T> {
    item: Option<T>,
    delivery: Delivery,
    ended: bool,
}

impl<T> Inbox<T> {
    /// An inbox with an empty slot for each camera.
    pub fn new(cameras: &[Delivery]) -> Self {
        let slot = |&delivery: &Delivery| Slot { item: None, delivery, ended: false };
        Self {
            state: Mutex::new(State { slots: cameras.iter().map(slot).collect(), turn: 0, stopped: false }),
            arrived: Condvar::new(),
            freed: cameras.iter().map(|_| Condvar::new()).collect(),
        }
    }

    /// Puts `item` into the slot of `camera`; waits only where the slot is taken and the camera is [`Delivery::Lossless`].
    pub fn put(&self, camera: usize, item: T) -> Put<T> {
        let mut state = self.lock();
        while !state.stopped && state.slots[camera].item.is_some() && state.slots[camera].delivery == Delivery::Lossless
        {
            state = self.freed[camera].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped {
            return Put::Stopped(item);
        }
        let displaced = state.slots[camera].item.replace(item);
        drop(state);
        self.arrived.notify_one();
        match displaced {
            Some(old) => Put::Displaced(old),
            None => Put::Stored,
        }
    }

    /// Tells that `camera` will put no more. What stands in its slot is still taken.
    pub fn end(&self, camera: usize) {
        self.lock().slots[camera].ended = true;
        self.arrived.notify_one();
    }

    /// Ends at once and for good: every waiter is woken, `put` hands its frame back, `take` says [`Taken::Stopped`].
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.arrived.notify_all();
        for freed in &self.freed {
            freed.notify_all();
        }
    }

    /// Moves up to `most` waiting items, each with its camera's number, behind what `out` holds; waits up to `timeout` for
    /// the first. Cameras come in turn, beginning behind the one that was served last.
    pub fn take(&self, most: usize, timeout: Duration, out: &mut Vec<(usize, T)>) -> Taken {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Taken::Stopped;
            }
            if self.collect(&mut state, most, out) {
                return Taken::Frames;
            }
            if state.slots.iter().all(|slot| slot.ended) {
                return Taken::Ended;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Taken::TimedOut;
            }
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether something waits to be taken.
    pub fn waits(&self) -> bool {
        self.lock().slots.iter().any(|slot| slot.item.is_some())
    }

    fn collect(&self, state: &mut State<T>, most: usize, out: &mut Vec<(usize, T)>) -> bool {
        let cameras = state.slots.len();
        let first = state.turn;
        let mut taken = 0;
        for step in 0..cameras {
            if taken == most {
                break;
            }
            let camera = (first + step) % cameras;
            if let Some(item) = state.slots[camera].item.take() {
                out.push((camera, item));
                taken += 1;
                state.turn = (camera + 1) % cameras;
                self.freed[camera].notify_one();
            }
        }
        taken > 0
    }

    /// No code that can panic runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
