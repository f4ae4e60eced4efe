//! Who the cameras of this process are, so that none takes what is another's.
//!
//! Cameras lost together (a hub) come back in any order and under each other's nodes. One that is given as a node and finds
//! a strange camera there, or one like its own at another port, asks here whether that is another's first.

use std::sync::{Mutex, PoisonError};

use super::identity::Identity;

static RESERVED: Mutex<Vec<(u64, Identity)>> = Mutex::new(Vec::new());

/// One camera's entry; gone when dropped.
#[derive(Debug)]
pub struct Reservation {
    key: u64,
}

impl Reservation {
    /// Of nobody yet.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { key: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The camera is this one from now on.
    pub fn set(&self, identity: Option<&Identity>) {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.retain(|(key, _)| *key != self.key);
        reserved.extend(identity.map(|identity| (self.key, identity.clone())));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Whether `identity` belongs to a camera of this process that is not `own`.
pub fn is_anothers(identity: &Identity, own: &Identity) -> bool {
    let reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    identity != own && reserved.iter().any(|(_, taken)| taken == identity)
}
