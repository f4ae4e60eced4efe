//! The identity of a camera: distinguishes it from others, and stays the same while it is unplugged.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Identifies a camera, also after it was unplugged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The ids of a USB device.
    pub usb: Option<UsbIds>,
    /// The port: the device's folder in /sys, such as `pci0000:00/0000:00:14.0/usb1/1-2`.
    pub port: PathBuf,
    /// Distinguishes the node from others of its device: its USB interface, and its index there.
    pub part: (String, u32),
    /// The driver's name of the node, mostly the card's name.
    pub card: String,
}

/// The ids of a USB device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbIds {
    /// The vendor id.
    pub vendor: u16,
    /// The product id.
    pub product: u16,
    /// The serial number, if the vendor set one.
    pub serial: Option<String>,
}

impl Identity {
    /// Whether `other` is the same camera, perhaps at another port.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = self.usb == other.usb && self.part == other.part && self.card == other.card;
        same && (self.usb.is_some() || self.port == other.port)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.card)?;
        let Some(UsbIds { vendor, product, serial }) = &self.usb else { return Ok(()) };
        write!(f, " ({vendor:04x}:{product:04x}")?;
        if let Some(serial) = serial {
            write!(f, ":{serial}")?;
        }
        f.write_str(")")
    }
}

/// Which camera of this process owns which device, so that none opens another's.
///
/// Cameras that are lost together (a USB hub) come back in any order and under each other's nodes. A camera that is configured
/// by its node checks here first, when it finds a different camera there or one of its own kind at another port.
static CLAIMS: Mutex<Vec<(u64, Identity)>> = Mutex::new(Vec::new());

/// One camera's claim; released when dropped.
#[derive(Debug)]
pub(super) struct CameraClaim {
    key: u64,
}

impl CameraClaim {
    /// Creates a claim on no device yet.
    pub fn new() -> Self {
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
pub(super) fn is_claimed_by_another(identity: &Identity, own: &Identity) -> bool {
    let claims = CLAIMS.lock();
    identity != own && claims.iter().any(|(_, taken)| taken == identity)
}
