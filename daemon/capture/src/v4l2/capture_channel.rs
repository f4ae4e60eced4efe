//! The device that NVIDIA's driver opens for a process that starts a stream.
//!
//! From Jetson Linux 36 on, STREAMON of a `tegra-video` node opens /dev/capture-vi-channelN inside the kernel, with the rights
//! of the calling process (`filp_open` in `vi5_channel_open`, vi/vi5_fops.c of linux-nv-oot, l4t-r36.4; the same in its other
//! releases). If they do not suffice, STREAMON succeeds, no frame ever comes, and the capture unit keeps a power reference that
//! STREAMOFF does not return (`err_open_ex` in `vi5_channel_start_streaming`). So visiond checks the first channel before it
//! starts a stream. access(2) opens nothing, and honours the device list of the control group (`inode_permission`).

use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use visiond_system::board::{self, Board, L4t};
use visiond_system::restart_once;

use super::device::Node;
use super::quirks::Quirk;
use crate::source::{SourceError, SourceErrorKind};

/// The first channel, which the driver tries first.
const CHANNEL: &str = "/dev/capture-vi-channel0";

/// The driver's name for the channels in /proc/devices and in a unit.
const DEVICE: &str = "capture-vi-channel";

/// The line that a unit with a device list needs.
const UNIT_LINE: &str = "DeviceAllow=char-capture-vi-channel rw";

/// Checks that the driver of `node` can open its channel for this process. Costs one system call and some small files.
///
/// # Errors
///
/// The channel is refused or missing. If a device list refuses it, the error says that a new process may have access: systemd
/// looks up the driver's number when it starts a unit.
pub(super) fn check(node: &Node) -> Result<(), SourceError> {
    if !node.has(Quirk::OpensChannelAtStart) || !opens_channel(&Board::read(&board::root())) {
        return Ok(());
    }
    // Linux's own driver of this name, for the units of Tegra 2 to X1, has another bus and no channels.
    let has_channels = node.capabilities().bus.contains("tegra-capture-vi");
    check_channel(node.path(), Path::new(CHANNEL), has_channels)?;
    restart_once::helped(DEVICE);
    Ok(())
}

fn check_channel(camera: &Path, channel: &Path, has_channels: bool) -> Result<(), SourceError> {
    let error = match access(channel, Access::READ_OK) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) if !has_channels => return Ok(()),
        Err(error) => error,
    };
    let (camera, channel) = (camera.display(), channel.display());
    let cannot = format!("cannot start {camera}: the kernel opens {channel} for visiond, ");
    Err(match error {
        Errno::PERM => SourceError {
            kind: SourceErrorKind::DeviceListOutdated,
            message: format!(
                "{cannot}and the device list of this unit or container does not allow it: add `{UNIT_LINE}` to the unit and \
                 start it again; to a container, pass the node with --device"
            )
            .into(),
        },
        Errno::ACCESS => SourceError::transient(format!(
            "{cannot}which this user may not read: add the user to the group of that node, `video` on a Jetson; a unit needs \
             `{UNIT_LINE}` as well"
        )),
        Errno::NOENT => SourceError::transient(format!(
            "{cannot}and it is missing: load NVIDIA's driver (`sudo modprobe tegra-camera`); to a container, pass the node \
             with --device"
        )),
        _ => SourceError::transient(format!("{cannot}which fails: {error}")),
    })
}

/// Suggests a new process as the remedy of an error only if that may help, because other cameras stop meanwhile.
pub(super) fn restarting_once(error: SourceError) -> SourceError {
    match error.kind {
        SourceErrorKind::DeviceListOutdated if !restart_once::may_help(DEVICE) => SourceError::transient(error.message),
        _ => error,
    }
}

/// Whether the driver opens channels by their nodes. Jetson Linux 35 and older, with Linux 5.10, has them in the kernel itself
/// (`vi_channel_open_ex` in vi/vi5_fops.c of linux-tegra-5.10).
fn opens_channel(board: &Board) -> bool {
    let by_kernel = || {
        let is_nvidias = ["tegra", "l4t"].iter().any(|word| board.kernel.contains(word));
        !is_nvidias || !["4.", "5.10."].iter().any(|old| board.kernel.starts_with(old))
    };
    board.l4t.map_or_else(by_kernel, |L4t(major, ..)| major >= 36)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn releases_before_jetpack_6_open_no_node() {
        let of = |l4t, kernel: &str| {
            opens_channel(&Board { l4t, kernel: kernel.to_owned(), ..Board::read(Path::new("/no-such-folder")) })
        };
        assert!(of(Some(L4t(36, 4, 3)), "5.15.148-tegra") && of(Some(L4t(38, 4, 0)), "6.8.12-tegra"));
        assert!(!of(Some(L4t(35, 4, 1)), "5.10.120-tegra"));
        // Third-party systems lack NVIDIA's release file.
        assert!(!of(None, "5.10.120-l4t-r35.4.1") && !of(None, "4.9.253-tegra"));
        assert!(of(None, "5.15.148-l4t-r36.4.3") && of(None, "6.1.0-40-arm64") && of(None, "5.10.0-30-arm64"));
    }

    #[test]
    fn a_channel_that_is_missing_matters_to_the_capture_unit_alone() {
        let folder = tempfile::tempdir().unwrap();
        let channel = folder.path().join("capture-vi-channel0");
        let check = |has_channels| check_channel(Path::new("/dev/video0"), &channel, has_channels);
        assert!(check(false).is_ok());
        let error = check(true).unwrap_err();
        assert!(error.message.contains("it is missing: load") && error.kind == SourceErrorKind::Transient, "{error}");
        std::fs::write(&channel, "").unwrap();
        assert!(check(true).is_ok());
    }
}
