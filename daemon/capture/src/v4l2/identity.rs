//! What distinguishes one camera from another, and stays the same while it is unplugged.

use std::fmt;
use std::path::PathBuf;

/// What stays the same of a camera while it is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Of a USB device.
    pub usb: Option<UsbIds>,
    /// Where it is plugged in: the device's folder in /sys, such as `pci0000:00/0000:00:14.0/usb1/1-2`.
    pub port: PathBuf,
    /// Of several nodes of a device this one: its USB interface, and its number there.
    pub part: (String, u32),
    /// What the driver calls the node, mostly the card's name.
    pub card: String,
}

/// What a USB device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbIds {
    /// The maker's number.
    pub vendor: u16,
    /// The maker's number of the product.
    pub product: u16,
    /// Tells two of a kind apart, where the maker took the trouble.
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
