//! The mailbox between capture threads and a lane: one slot a camera, newest wins.
//!
//! Latency is bounded by construction: at most one frame of a camera waits, and a newer one takes its place. A camera whose
//! source must not lose frames (pace "fastest") waits for its slot instead. The lane takes what stands there, cameras in
//! turn, so that a fast one cannot starve a slow one.
//!
//! Slots come and go while it is in use, and each carries what the lane is to know of its camera. Putting and taking
//! allocate nothing, and frames are dropped (which gives their buffers back) outside the lock.
//!
//! Ends: a camera that has no more says [`Mailbox::end`]; once all have and every slot is empty, the lane is told
//! [`Taken::Ended`], and the mailbox is over. [`Mailbox::hold`] puts that off while slots are to be added. [`Mailbox::stop`] ends
//! at once: who waits is woken, and what still stands in a slot is not looked at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

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
    /// The mailbox was stopped, or has the slot no more; here it is back.
    Stopped(T),
}

/// What came of taking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// At least one frame.
    Frames,
    /// Nothing came in time.
    TimedOut,
    /// [`Mailbox::call`] was called: something other than a frame is to be looked at.
    Called,
    /// Every camera has ended and every slot is empty: nothing will come.
    Ended,
    /// [`Mailbox::stop`] was called.
    Stopped,
}

/// One slot a camera. `C` is what the lane gets to know of a camera with each of its frames.
#[derive(Debug)]
pub struct Mailbox<C, T> {
    state: Mutex<State<C, T>>,
    /// Something came, a camera ended, or the lane is called. Only the lane waits on it.
    arrived: Condvar,
}

#[derive(Debug)]
struct State<C, T> {
    slots: Vec<Slot<C, T>>,
    /// The next slot's number: none is given twice, so that who comes late to a slot that is gone finds none.
    next: usize,
    /// The slot that is looked at first when the lane takes next.
    turn: usize,
    /// Reasons not to end.
    held: usize,
    called: bool,
    /// The lane was told that nothing will come.
    over: bool,
    stopped: bool,
}

#[derive(Debug)]
struct Slot<C, T> {
    number: usize,
    camera: C,
    item: Option<T>,
    delivery: Delivery,
    ended: bool,
    /// The slot became free or is gone. Only the camera's own thread waits on it.
    freed: Arc<Condvar>,
}

impl<C, T> State<C, T> {
    fn slot(&mut self, number: usize) -> Option<&mut Slot<C, T>> {
        self.slots.iter_mut().find(|slot| slot.number == number)
    }
}

impl<C: Clone, T> Mailbox<C, T> {
    /// An mailbox without a slot.
    pub fn new() -> Self {
        let state = State { slots: Vec::new(), next: 0, turn: 0, held: 0, called: false, over: false, stopped: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    /// Adds an empty slot for a camera; returns its number.
    pub fn add(&self, camera: C, delivery: Delivery) -> usize {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.slots.push(Slot { number, camera, item: None, delivery, ended: false, freed: Arc::default() });
        number
    }

    /// Takes a slot away; returns what stood in it. Who puts something there from now on has it back.
    pub fn remove(&self, number: usize) -> Option<T> {
        let mut state = self.state.lock();
        let at = state.slots.iter().position(|slot| slot.number == number)?;
        let slot = state.slots.remove(at);
        if state.turn > at {
            state.turn -= 1;
        }
        drop(state);
        slot.freed.notify_all();
        self.arrived.notify_one();
        slot.item
    }

    /// What the lane gets to know of a camera from its next frame on.
    pub fn relabel(&self, number: usize, camera: C) {
        if let Some(slot) = self.state.lock().slot(number) {
            slot.camera = camera;
        }
    }

    /// Keeps the lane from ending until as many [`Mailbox::release`]; `false`: it has ended already.
    pub fn hold(&self) -> bool {
        let mut state = self.state.lock();
        if !state.over {
            state.held += 1;
        }
        !state.over
    }

    /// Takes one [`Mailbox::hold`] back.
    pub fn release(&self) {
        self.state.lock().held -= 1;
        self.arrived.notify_one();
    }

    /// Makes the lane's next [`Mailbox::take`] return at once, with [`Taken::Called`].
    pub fn call(&self) {
        self.state.lock().called = true;
        self.arrived.notify_one();
    }

    /// Whether a camera is [`Delivery::Lossless`].
    pub fn has_lossless(&self) -> bool {
        self.state.lock().slots.iter().any(|slot| slot.delivery == Delivery::Lossless)
    }

    /// Puts `item` into a camera's slot; waits only where it is taken and the camera is [`Delivery::Lossless`].
    pub fn put(&self, number: usize, item: T) -> Put<T> {
        let mut state = self.state.lock();
        let displaced = loop {
            if state.stopped {
                return Put::Stopped(item);
            }
            let Some(slot) = state.slot(number) else { return Put::Stopped(item) };
            if slot.item.is_none() || slot.delivery == Delivery::NewestWins {
                break slot.item.replace(item);
            }
            let freed = Arc::clone(&slot.freed);
            freed.wait(&mut state);
        };
        drop(state);
        self.arrived.notify_one();
        match displaced {
            Some(old) => Put::Displaced(old),
            None => Put::Stored,
        }
    }

    /// Tells that a camera will put no more. What stands in its slot is still taken.
    pub fn end(&self, number: usize) {
        if let Some(slot) = self.state.lock().slot(number) {
            slot.ended = true;
        }
        self.arrived.notify_one();
    }

    /// Ends at once and for good: every waiter is woken, `put` hands its frame back, `take` says [`Taken::Stopped`].
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        for slot in &state.slots {
            slot.freed.notify_all();
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// Moves up to `most` waiting items, each with its camera, behind what `out` holds; waits up to `timeout` for the first.
    /// Cameras come in turn, beginning behind the one that was served last.
    pub fn take(&self, most: usize, timeout: Duration, out: &mut Vec<(C, T)>) -> Taken {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                state.over = true;
                return Taken::Stopped;
            }
            if std::mem::take(&mut state.called) {
                return Taken::Called;
            }
            if collect(&mut state, most, out) {
                return Taken::Frames;
            }
            if state.held == 0 && state.slots.iter().all(|slot| slot.ended) {
                state.over = true;
                return Taken::Ended;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Taken::TimedOut;
            }
            self.arrived.wait_for(&mut state, left);
        }
    }

    /// Whether something waits to be taken.
    pub fn waits(&self) -> bool {
        self.state.lock().slots.iter().any(|slot| slot.item.is_some())
    }
}

fn collect<C: Clone, T>(state: &mut State<C, T>, most: usize, out: &mut Vec<(C, T)>) -> bool {
    let cameras = state.slots.len();
    let first = state.turn;
    let mut taken = 0;
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
            state.turn = (at + 1) % cameras;
        }
    }
    taken > 0
}

#[cfg(test)]
mod tests;
