//! The heartbeat of a thread, by which the watchdog distinguishes progress and waiting from a hang.
//!
//! The thread updates it around every wait ([`Stop`](super::stop::Stop) does so), the watchdog reads it. A thread that
//! neither waits nor makes progress is stuck in a call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The heartbeat of one thread.
#[derive(Debug, Default)]
pub struct Beat {
    steps: AtomicU64,
    waits: AtomicU32,
}

/// State of a heartbeat at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// The thread waits, and can be woken.
    pub waits: bool,
    /// Number of steps so far.
    pub steps: u64,
}

impl Beat {
    /// Records a step of the thread.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the thread waits while the guard lives.
    pub fn wait(&self) -> Waiting<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Waiting { beat: self }
    }

    /// Returns the current state.
    pub fn pulse(&self) -> Pulse {
        Pulse { waits: self.waits.load(Ordering::Relaxed) > 0, steps: self.steps.load(Ordering::Relaxed) }
    }
}

/// Guard for a wait of a thread.
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
