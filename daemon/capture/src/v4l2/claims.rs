//! Who the cameras of this process are, so that none takes what is another's.
//!
//! Cameras lost together (a hub) come back in any order and under each other's nodes. One that is given as a node and finds
//! a strange camera there, or one like its own at another port, asks here whether that is another's first.

use parking_lot::Mutex;

use super::identity::Identity;

static CLAIMS: Mutex<Vec<(u64, Identity)>> = Mutex::new(Vec::new());

/// One camera's entry; gone when dropped.
#[derive(Debug)]
pub struct CameraClaim {
    key: u64,
}

impl CameraClaim {
    /// Of nobody yet.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { key: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The camera is this one from now on.
    pub fn set(&self, identity: Option<&Identity>) {
        let mut claims = CLAIMS.lock();
        claims.retain(|(key, _)| *key != self.key);
        claims.extend(identity.map(|identity| (self.key, identity.clone())));
    }
}

impl Drop for CameraClaim {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Whether `identity` belongs to a camera of this process that is not `own`.
pub fn is_claimed_by_another(identity: &Identity, own: &Identity) -> bool {
    let claims = CLAIMS.lock();
    identity != own && claims.iter().any(|(_, taken)| taken == identity)
}
