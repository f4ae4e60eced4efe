//! A thread's sign of life: whether it goes on, waits for something that has a name, or hangs.
//!
//! The thread writes it around every wait of its own ([`Stop`](super::stop::Stop) does so), the watchdog reads it. A thread
//! that neither waits nor takes a step is inside of a call that does not come back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One thread's.
#[derive(Debug, Default)]
pub struct Beat {
    steps: AtomicU64,
    waits: AtomicU32,
}

/// What a thread was at when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// It waits, and can be woken.
    pub waits: bool,
    /// Rises with each step that it takes.
    pub steps: u64,
}

impl Beat {
    /// The thread goes on.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread waits as long as the guard lives.
    pub fn wait(&self) -> Waiting<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Waiting { beat: self }
    }

    /// What the thread is at.
    pub fn pulse(&self) -> Pulse {
        Pulse { waits: self.waits.load(Ordering::Relaxed) > 0, steps: self.steps.load(Ordering::Relaxed) }
    }
}

/// A wait of a thread.
#[derive(Debug)]
pub struct Waiting<'a> {
    beat: &'a Beat,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.beat.step();
        self.beat.waits.fetch_sub(1, Ordering::Relaxed);
    }
}
