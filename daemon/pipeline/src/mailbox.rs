//! The mailbox between camera threads and a lane: one slot per camera, the newest frame wins.
//!
//! Latency has a bound: at most one frame of a camera waits, and a newer one replaces it. A camera whose source must not lose
//! frames (pace "fastest") waits for its slot instead. The lane takes the frames of all cameras in turn, so that a fast camera
//! cannot starve a slow one. It may give frames some time to gather: it wakes for the first one, and again when that time
//! ends.
//!
//! Slots are added and removed while the mailbox is in use, and each carries the lane's data about its camera. Putting and
//! taking allocate nothing. Frames are dropped outside the lock, which gives their buffers back.
//!
//! Two ways to end:
//! - A camera calls [`Mailbox::end`] after its last frame. Once all cameras have and every slot is empty, the lane gets
//!   [`TakeResult::Ended`]. [`Mailbox::hold`] delays that while slots are to be added.
//! - [`Mailbox::stop`] ends at once: it wakes every thread that waits, and the frames in the slots are not run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The behaviour of a camera when its slot is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The new frame replaces the old one.
    NewestWins,
    /// The camera waits until the slot is free.
    Lossless,
}

/// The outcome of putting a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Put<T> {
    /// The frame is in its slot.
    Stored,
    /// The frame is in its slot, and replaced this one, which the lane had not taken.
    Displaced(T),
    /// The mailbox was stopped, or the slot was removed; the frame comes back.
    Stopped(T),
}

/// How many frames a lane takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// The most of them.
    pub most: usize,
    /// How long a frame waits for others if there are fewer.
    pub wait: Duration,
}

/// The result of [`Mailbox::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeResult {
    /// At least one frame.
    Frames,
    /// No frame arrived in time.
    TimedOut,
    /// [`Mailbox::call`] was called, or a camera has ended: the lane has work other than a frame.
    Called,
    /// Every camera has ended and every slot is empty.
    Ended,
    /// [`Mailbox::stop`] was called.
    Stopped,
}

/// One slot per camera. `C` is the lane's data about a camera, which comes with each frame.
#[derive(Debug)]
pub struct Mailbox<C, T> {
    state: Mutex<MailboxState<C, T>>,
    /// Signals a frame, the end of a camera, or a call. Only the lane waits on it.
    arrived: Condvar,
}

#[derive(Debug)]
struct MailboxState<C, T> {
    slots: Vec<Slot<C, T>>,
    /// The next slot's number. Numbers are not reused, so that a late camera cannot put into another one's slot.
    next: usize,
    /// The first slot for the next [`Mailbox::take`].
    turn: usize,
    /// How many slots are full.
    full: usize,
    /// How many full slots end the lane's wait.
    awaited: usize,
    /// How many holds are in force.
    held: usize,
    called: bool,
    /// Whether the lane got [`TakeResult::Ended`] or [`TakeResult::Stopped`].
    over: bool,
    stopped: bool,
}

#[derive(Debug)]
struct Slot<C, T> {
    number: usize,
    camera: C,
    item: Option<T>,
    /// When it became full, if it is.
    since: Instant,
    delivery: Delivery,
    ended: bool,
    /// Signals that the slot became free or was removed. Only the camera's own thread waits on it.
    freed: Arc<Condvar>,
}

impl<C, T> MailboxState<C, T> {
    fn slot(&mut self, number: usize) -> Option<&mut Slot<C, T>> {
        self.slots.iter_mut().find(|slot| slot.number == number)
    }

    /// Whether every camera has ended and every slot is empty.
    fn all_ended(&self) -> bool {
        self.slots.iter().all(|slot| slot.ended && slot.item.is_none())
    }

    /// Returns how many frames make a whole batch; a camera that has ended sends no more.
    fn whole(&self, batch: Batch) -> usize {
        self.slots.iter().filter(|slot| slot.item.is_some() || !slot.ended).take(batch.most).count()
    }

    /// Returns when the waiting frames are taken even if they do not fill a batch; `None` if there are none.
    fn due(&self, batch: Batch) -> Option<Instant> {
        let full = self.slots.iter().filter(|slot| slot.item.is_some());
        Some(full.map(|slot| slot.since).min()? + batch.wait)
    }
}

impl<C, T> Default for Mailbox<C, T> {
    fn default() -> Self {
        let (slots, next, turn, full, awaited, held) = (Vec::new(), 0, 0, 0, 1, 0);
        let state = MailboxState { slots, next, turn, full, awaited, held, called: false, over: false, stopped: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }
}

impl<C: Clone, T> Mailbox<C, T> {
    /// Adds an empty slot for a camera; returns its number.
    pub fn add(&self, camera: C, delivery: Delivery) -> usize {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let (since, freed) = (Instant::now(), Arc::default());
        state.slots.push(Slot { number, camera, item: None, since, delivery, ended: false, freed });
        number
    }

    /// Removes a slot and returns the frame in it. A later put to it returns the frame.
    pub fn remove(&self, number: usize) -> Option<T> {
        let mut state = self.state.lock();
        let at = state.slots.iter().position(|slot| slot.number == number)?;
        let slot = state.slots.remove(at);
        if state.turn > at {
            state.turn -= 1;
        }
        state.full -= usize::from(slot.item.is_some());
        drop(state);
        slot.freed.notify_all();
        self.arrived.notify_one();
        slot.item
    }

    /// Returns the data that the lane gets with a camera's frames; `None` if the camera has been removed.
    pub fn camera(&self, number: usize) -> Option<C> {
        self.state.lock().slot(number).map(|slot| slot.camera.clone())
    }

    /// Replaces the data that the lane gets with the camera's frames.
    pub fn relabel(&self, number: usize, camera: C) {
        if let Some(slot) = self.state.lock().slot(number) {
            slot.camera = camera;
        }
    }

    /// Keeps the lane from ending until [`Mailbox::release`]; returns `false` if it has ended already.
    pub fn hold(&self) -> bool {
        let mut state = self.state.lock();
        if !state.over {
            state.held += 1;
        }
        !state.over
    }

    /// Undoes one [`Mailbox::hold`].
    pub fn release(&self) {
        self.state.lock().held -= 1;
        self.arrived.notify_one();
    }

    /// Makes the lane's next [`Mailbox::take`] return at once, with [`TakeResult::Called`].
    pub fn call(&self) {
        self.state.lock().called = true;
        self.arrived.notify_one();
    }

    /// Whether a camera is [`Delivery::Lossless`].
    pub fn has_lossless(&self) -> bool {
        self.state.lock().slots.iter().any(|slot| slot.delivery == Delivery::Lossless)
    }

    /// Puts `item` into a camera's slot. Waits only if the slot is full and the camera is [`Delivery::Lossless`].
    pub fn put(&self, number: usize, item: T) -> Put<T> {
        let mut state = self.state.lock();
        let displaced = loop {
            if state.stopped {
                return Put::Stopped(item);
            }
            let Some(slot) = state.slot(number) else { return Put::Stopped(item) };
            if slot.item.is_none() {
                slot.since = Instant::now();
            }
            if slot.item.is_none() || slot.delivery == Delivery::NewestWins {
                break slot.item.replace(item);
            }
            let freed = Arc::clone(&slot.freed);
            freed.wait(&mut state);
        };
        state.full += usize::from(displaced.is_none());
        let wakes_lane = state.full >= state.awaited;
        drop(state);
        if wakes_lane {
            self.arrived.notify_one();
        }
        displaced.map_or(Put::Stored, Put::Displaced)
    }

    /// Notes that a camera will put no more. The lane still takes the frame in its slot. Then it gets [`TakeResult::Called`] or
    /// [`TakeResult::Ended`], and the camera is one of [`Mailbox::ended`].
    pub fn end(&self, number: usize) {
        let mut state = self.state.lock();
        if let Some(slot) = state.slot(number) {
            slot.ended = true;
            let is_empty = slot.item.is_none();
            state.called |= is_empty && !state.all_ended();
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Returns the cameras that have ended and whose slots are empty.
    pub fn ended(&self) -> Vec<C> {
        self.cameras(|slot| slot.ended && slot.item.is_none())
    }

    /// Returns the cameras whose slots are empty.
    pub fn idle(&self) -> Vec<C> {
        self.cameras(|slot| slot.item.is_none())
    }

    fn cameras(&self, is_wanted: impl Fn(&Slot<C, T>) -> bool) -> Vec<C> {
        self.state.lock().slots.iter().filter(|slot| is_wanted(slot)).map(|slot| slot.camera.clone()).collect()
    }

    /// Ends at once and for good: wakes every thread that waits, `put` returns its frame, `take` returns [`TakeResult::Stopped`].
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        for slot in &state.slots {
            slot.freed.notify_all();
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// Appends the frames of a batch with their cameras to `out`. Waits up to `timeout` for the first, and then until the batch is
    /// whole or its frames have waited long enough.
    ///
    /// It takes the cameras in turn, starting after the one that was served last.
    pub fn take(&self, batch: Batch, timeout: Duration, out: &mut Vec<(C, T)>) -> TakeResult {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                state.over = true;
                return TakeResult::Stopped;
            }
            if std::mem::take(&mut state.called) {
                return TakeResult::Called;
            }
            let (now, whole, due) = (Instant::now(), state.whole(batch), state.due(batch));
            if due.is_some_and(|due| state.full >= whole || now >= due) {
                collect(&mut state, batch.most, out);
                return TakeResult::Frames;
            }
            if state.held == 0 && state.all_ended() {
                state.over = true;
                return TakeResult::Ended;
            }
            let left = due.map_or(until, |due| due.min(until)).saturating_duration_since(now);
            if left.is_zero() {
                return TakeResult::TimedOut;
            }
            state.awaited = if due.is_some() { whole } else { 1 };
            self.arrived.wait_for(&mut state, left);
        }
    }

    /// Whether a batch waits to be taken.
    pub fn waits(&self, batch: Batch) -> bool {
        let state = self.state.lock();
        state.due(batch).is_some_and(|due| state.full >= state.whole(batch) || Instant::now() >= due)
    }
}

fn collect<C: Clone, T>(state: &mut MailboxState<C, T>, most: usize, out: &mut Vec<(C, T)>) {
    let cameras = state.slots.len();
    let first = state.turn;
    let mut taken = 0;
    let mut has_last = false;
    for step in 0..cameras {
        if taken == most {
            break;
        }
        let at = (first + step) % cameras;
        let slot = &mut state.slots[at];
        if let Some(item) = slot.item.take() {
            out.push((slot.camera.clone(), item));
            taken += 1;
            slot.freed.notify_one();
            has_last |= slot.ended;
            state.turn = (at + 1) % cameras;
            state.full -= 1;
        }
    }
    state.called |= has_last && !state.all_ended();
}

#[cfg(test)]
mod tests;
