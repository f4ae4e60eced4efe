//! What distinguishes one camera from another, and stays the same while it is unplugged.

use std::fmt;
use std::path::PathBuf;

/// What identifies a camera, also after it was unplugged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The ids of a USB device.
    pub usb: Option<UsbIds>,
    /// The port: the device's folder in /sys, such as `pci0000:00/0000:00:14.0/usb1/1-2`.
    pub port: PathBuf,
    /// Among several nodes of a device, this one: its USB interface, and its index there.
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
