//! Restarts of the service that might help, once each.
//!
//! A process that systemd has started keeps its device list. When the driver of a device is loaded later, a new process may open
//! the device; when the unit does not list it, none may. The two look the same from inside, so the service ends once and then stays,
//! with what it can open. A file in the state folder keeps that from process to process, for the time until the machine boots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::state;

/// Returns whether the service should end so that systemd starts it again because of `device`. At most once until
/// [`helped`] or the next boot; never where systemd has made no state folder.
pub fn may_help(device: &str) -> bool {
    state::folder().is_some_and(|folder| take(&folder, device, &boot()).unwrap_or(false))
}

/// Notes that `device` can be opened, so that another restart may help when it cannot be later.
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
    // Without the note it would restart for ever.
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
