//! Ids of messages and events.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random for each process. The keys of RandomState come from the system's random numbers.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// Returns the id of an event from its number, which is unique in this process.
pub fn event_id(number: u64) -> Box<str> {
    format!("{:016x}-e{number}", *PROCESS).into()
}

/// Returns the next message id: sixteen hexadecimal digits, random for each process, and the number of the message.
pub fn next_message_id() -> Box<str> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}-{}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed)).into()
}
