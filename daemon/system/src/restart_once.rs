//! Restarts the service when that might help, once for each device.
//!
//! A process that systemd has started keeps its device list. If the driver of a device is loaded later, a new process can
//! open the device; if the unit does not list it, no process can. The two look the same from inside, so the service restarts
//! once and then continues with the devices that it can open. A file in the state folder remembers that until the next boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::state;

/// Returns whether the service should end so that systemd starts it again because of `device`. At most once until
/// [`helped`] or the next boot; never if systemd has created no state folder.
pub fn may_help(device: &str) -> bool {
    state::folder().is_some_and(|folder| take(&folder, device, &boot()).unwrap_or(false))
}

/// Notes that `device` can be opened, so that another restart is allowed if it cannot be opened later.
pub fn helped(device: &str) {
    if let Some(folder) = state::folder() {
        // Most often there is no such file.
        let _ = fs::remove_file(note(&folder, device));
    }
}

fn take(folder: &Path, device: &str, boot: &str) -> io::Result<bool> {
    let note = note(folder, device);
    if fs::read_to_string(&note).is_ok_and(|noted| noted == boot) {
        return Ok(false);
    }
    // Without the note, it would restart forever.
    fs::write(&note, boot)?;
    Ok(!boot.is_empty())
}

fn note(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("restarted-for-{device}"))
}

/// Returns the kernel's number of this boot; empty if it has none.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_restart_is_tried_once_for_each_boot() {
        let folder = tempfile::tempdir().unwrap();
        let take = |boot: &str| take(folder.path(), "capture-vi-channel", boot).unwrap();
        assert!(take("first"));
        assert!(!take("first"));
        assert!(take("second"));
        assert!(!take("second"));
        fs::remove_file(note(folder.path(), "capture-vi-channel")).unwrap();
        assert!(take("second"));
        assert!(!take(""), "a kernel without a number might restart for ever");
    }

    #[test]
    fn a_note_that_cannot_be_written_restarts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(take(&folder.path().join("missing"), "capture-vi-channel", "first").is_err());
        assert!(!boot().is_empty());
    }
}
