//! Fleets: which version of a bundle each device should use, and how a rollout proceeds.
//!
//! Operators and devices meet in two key-value buckets and an object store, and nowhere else:
//!
//! ```text
//! visiond-desired    group.north.street     a Desired: the version for a group, and the waves in which it gets it
//!                    device.gate-7.street   a Pin: the version for one device, whatever its group gets
//! visiond-reported   gate-7                 a Reported: what a device uses and does
//! visiond-bundles    street/7.visiond       version 7
//!                    street/7.toml          its index
//! ```
//!
//! A device decides with [`Order::of`] what to do. A rollout proceeds by [`advance()`]. Both are functions of records and a time: no
//! connection, no clock and no file is used here.

mod advance;
mod desired;
mod error;
mod order;
mod reported;
mod window;

pub use advance::{Advance, Counts, Member, Outcome, admit, advance, is_admitted, outcome, place};
pub use desired::{
    Desired, EVERY_PLACE, Limits, MOST_FIRST, Pin, Progress, device_key, group_key, parse_device_key, parse_group_key,
};
pub use error::RecordError;
pub use order::Order;
pub use reported::{BundleReport, Reported};
pub use window::Window;

/// The key-value bucket of desired versions.
pub const DESIRED_BUCKET: &str = "visiond-desired";
/// The key-value bucket in which devices report.
pub const REPORTED_BUCKET: &str = "visiond-reported";
/// The object store of bundles.
pub const BUNDLES_STORE: &str = "visiond-bundles";

/// The format of records that this program reads and writes.
const FORMAT: u32 = 1;

/// Checks the name of a device or group: it becomes part of a key.
///
/// # Errors
/// A sentence that says which characters names have.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!("the name of a device or group must have 1 to 64 letters, digits, - and _, not {name:?}"))
}
