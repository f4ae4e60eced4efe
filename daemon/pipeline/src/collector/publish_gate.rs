//! Keeps results of frames with old privacy masks from being published after a reload has changed the masks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long to sleep between two looks at results that are being published.
const POLL: Duration = Duration::from_millis(1);

/// Lets the results of a camera pass until a reload changes its privacy masks. The collectors of its models share it.
///
/// A result costs two atomic additions and one load. The orders are sequentially consistent: either a lane sees that the gate is
/// closed, or [`PublishGate::wait`] sees the lane's result.
#[derive(Debug, Default)]
pub struct PublishGate {
    is_closed: AtomicBool,
    passing: AtomicUsize,
}

/// A result that passes the gate, until it is dropped.
#[derive(Debug)]
pub struct Passing<'g>(&'g PublishGate);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.passing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PublishGate {
    /// Begins to publish a result; `None` if the gate is closed.
    pub fn pass(&self) -> Option<Passing<'_>> {
        self.passing.fetch_add(1, Ordering::SeqCst);
        let passing = Passing(self);
        (!self.is_closed.load(Ordering::SeqCst)).then_some(passing)
    }

    /// Whether no further result passes.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Lets no further result pass.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Waits until every result that passes has been published; returns `false` if one has not by `deadline`.
    pub fn wait(&self, deadline: Instant) -> bool {
        while self.passing.load(Ordering::SeqCst) > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_closed_gate_waits_for_what_passes_and_lets_nothing_follow() {
        let gate = PublishGate::default();
        let (first, second) = (gate.pass().unwrap(), gate.pass().unwrap());
        gate.close();
        assert!(gate.pass().is_none());
        drop(first);
        assert!(!gate.wait(Instant::now()));
        drop(second);
        assert!(gate.wait(Instant::now()));
        assert!(gate.pass().is_none());
    }
}
