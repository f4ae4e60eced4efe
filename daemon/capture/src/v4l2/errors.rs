//! The errors of a camera that does not open, does not start, or fails while streaming.

use std::io;
use std::path::Path;

use super::device::Node;
use crate::source::SourceError;

/// The node cannot be opened. All of these may pass: udev creates a node before it sets its permissions.
pub(super) fn unopened(device: &Path, error: &io::Error) -> SourceError {
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            format!("{device} is missing: plug the camera in, or correct `device` (`visiond probe` lists the cameras)")
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("permission denied for {device}: add this user to the `video` group")
        }
        Some(libc::EBUSY) => format!("{device} is in use: end the other program that has it open"),
        _ => format!("cannot open {device}: {error}"),
    })
}

/// The node does not answer QUERYCAP.
pub(super) fn unknown(device: &Path, error: &io::Error) -> SourceError {
    if error.raw_os_error() == Some(libc::ENODEV) {
        return gone(device, error);
    }
    SourceError::permanent(format!(
        "{} is not a V4L2 device (QUERYCAP: {error}): set `device` to a camera from `visiond probe`",
        device.display()
    ))
}

/// Another program streams from the node.
pub(super) fn in_use(device: &Path) -> SourceError {
    SourceError::transient(format!("{} is in use: end the other program that streams from it", device.display()))
}

/// The stream cannot be started.
pub(super) fn unstarted(device: &Path, error: &io::Error) -> SourceError {
    if error.raw_os_error() == Some(libc::EBUSY) {
        return in_use(device);
    }
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::ENOLINK | libc::ENOLCK) => format!("{device} has no signal at its input: check the cable"),
        Some(libc::ENOSPC) => format!(
            "cannot start {device}: the USB bus has no bandwidth left for it; use \"mjpeg\", a smaller size or rate, \
             or another port"
        ),
        Some(libc::ENOMEM) => format!(
            "cannot start {device}: the driver has no memory for its buffers; use a smaller size, or fewer buffers (`count` in [buffers])"
        ),
        _ => format!("cannot start {device}: {error}"),
    })
}

/// The stream has failed.
pub(super) fn gone(device: &Path, error: &io::Error) -> SourceError {
    let device = device.display();
    SourceError::transient(match error.raw_os_error() {
        Some(libc::EIO) => format!("{device} failed: the driver reports a device error: {error}"),
        Some(libc::EPIPE) => format!("{device} ended its stream: {error}"),
        Some(libc::ENODEV) | None => format!("{device} was unplugged or reset: {error}"),
        Some(_) => format!("{device} stopped streaming: {error}"),
    })
}

/// The driver refuses an ioctl.
pub(super) fn refused(node: &Node, what: &str, error: &io::Error) -> SourceError {
    match error.raw_os_error() {
        Some(libc::ENODEV) => gone(node.path(), error),
        Some(libc::EBUSY) => in_use(node.path()),
        _ => SourceError::transient(format!("{} cannot {what}: {error}", node.path().display())),
    }
}
