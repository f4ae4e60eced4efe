//! The source of track ids.

use std::sync::atomic::{AtomicU64, Ordering};

/// Gives each track of every camera an id that no other track of this process has.
///
/// Cameras share one by `Arc`. It counts from 1: at a thousand new tracks a second it stays below 2^53, the last integer that every
/// JSON reader keeps exactly, for 285,000 years.
#[derive(Debug, Default)]
pub struct TrackIds(AtomicU64);

impl TrackIds {
    /// Returns the next id, from 1.
    pub fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
