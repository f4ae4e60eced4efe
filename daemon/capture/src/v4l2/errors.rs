//! The sentences for a camera that does not open, does not start, or breaks.

use std::io;
use std::path::Path;

use crate::source::SourceError;

/// The node could not be opened. All of these may pass: udev makes a node before it sets who may open it.
pub(super) fn unopened(device: &Path, error: &io::Error) -> SourceError {
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            format!(
                "{device} is not there: plug the camera in, or correct its name (`visiond probe` lists the cameras)"
            )
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("{device} may not be opened by this user: add the user to the group `video`")
        }
        Some(libc::EBUSY) => format!("{device} is in use: another program has it, end that"),
        _ => format!("cannot open {device}: {error}"),
    })
}

/// The node does not say what it is.
pub(super) fn unknown(device: &Path, error: &io::Error) -> SourceError {
    if error.raw_os_error() == Some(libc::ENODEV) {
        return gone(device, error);
    }
    SourceError::permanent(format!(
        "{} is not a V4L2 device (QUERYCAP: {error}): `visiond probe` lists the cameras, name one of those",
        device.display()
    ))
}

/// The stream did not start.
pub(super) fn unstarted(device: &Path, error: &io::Error) -> SourceError {
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::EBUSY) => format!("{device} is in use: another program streams from it, end that"),
        Some(libc::ENOLINK | libc::ENOLCK) => format!("{device} has no signal at its input: check the cable"),
        Some(libc::ENOSPC) => format!(
            "{device} does not start: the USB bus has no bandwidth left for it; use \"mjpeg\", a smaller size or \
             rate, or another port"
        ),
        Some(libc::ENOMEM) => format!(
            "{device} does not start: the driver has no memory for its buffers; use a smaller size, or fewer buffers (`count` in [buffers])"
        ),
        _ => format!("{device} does not start: {error}"),
    })
}

/// The stream broke.
pub(super) fn gone(device: &Path, error: &io::Error) -> SourceError {
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::EIO) => format!("{device} broke off (the driver reports an error of the device: {error})"),
        Some(libc::EPIPE) => format!("{device} ended its stream: {error}"),
        Some(libc::ENODEV) | None => format!("{device} went away (unplugged?): {error}"),
        Some(_) => format!("{device} does not go on: {error}"),
    })
}
