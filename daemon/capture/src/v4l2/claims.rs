//! Which camera of this process owns which device, so that none opens another's.
//!
//! Cameras that are lost together (a USB hub) come back in any order and under each other's nodes. A camera that is configured
//! by its node checks here first, when it finds a different camera there or one of its own kind at another port.

use parking_lot::Mutex;

use super::identity::Identity;

static CLAIMS: Mutex<Vec<(u64, Identity)>> = Mutex::new(Vec::new());

/// One camera's claim; released when dropped.
#[derive(Debug)]
pub struct CameraClaim {
    key: u64,
}

impl CameraClaim {
    /// Creates a claim on no device yet.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { key: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Claims the device with this identity.
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

/// Whether `identity` is claimed by a camera of this process other than `own`.
pub fn is_claimed_by_another(identity: &Identity, own: &Identity) -> bool {
    let claims = CLAIMS.lock();
    identity != own && claims.iter().any(|(_, taken)| taken == identity)
}
