//! Powers on a Jetson's GPU. Other GPUs do not need this.
//!
//! Paths are relative to a root in place of `/`, so that tests can use their own file tree.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The node that powers the GPU on; nvgpu creates it when it finds the GPU.
const POWER: &str = "dev/nvgpu/igpu0/power";

/// The node through which CUDA controls the GPU; nvgpu creates it at the first power-on.
const CONTROL: &str = "dev/nvgpu/igpu0/ctrl";

/// How often [`power_on`] checks for the node, and how long it sleeps in between: udev needs some milliseconds to assign a new
/// node to its group.
const CHECKS: u32 = 20;
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// "Operation not permitted" in Linux.
const EPERM: i32 = 1;

/// Powers on the GPU of a Jetson whose device nodes do not exist yet, and waits for them. Returns whether they exist now and
/// did not before. `pause` sleeps between checks.
///
/// nvgpu creates one node, `power`, when it finds the GPU, and all others, under a second major number, when the GPU is powered
/// on for the first time (`gk20a_power_node_init` in os/linux/ioctl.c, `gk20a_pm_finalize_poweron` in os/linux/module.c, in
/// l4t-35.6 and rel-36 of OE4T/linux-nvgpu). Opening `power` does nothing; writing `1` powers the GPU on, or does nothing if it
/// is on already (`gk20a_power_write` in os/linux/power_ops.c). NVIDIA's udev rules give the node to the group `video`.
pub(super) fn power_on(root: &Path, mut pause: impl FnMut()) -> bool {
    let open_control = || OpenOptions::new().read(true).write(true).open(root.join(CONTROL));
    if open_control().is_ok() {
        return false;
    }
    let power = OpenOptions::new().write(true).open(root.join(POWER));
    if let Err(error) = power.and_then(|mut node| node.write_all(b"1")) {
        log::debug!("cannot power the GPU on with /{POWER}: {error}");
        return false;
    }
    for _ in 0..CHECKS {
        match open_control() {
            Ok(_) => {
                log::info!("powered the GPU on, which created its device nodes");
                return true;
            }
            // Before udev has set the permissions, the error is EACCES. EPERM comes from the list of devices that systemd made
            // for the unit before the GPU's major numbers existed (DeviceAllow=); only another start renews it.
            Err(error) if error.raw_os_error() == Some(EPERM) => return false,
            Err(_) => pause(),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn root() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_gpu_that_was_never_on_is_powered_on_and_its_nodes_waited_for() {
        let root = root();
        put(root.path(), POWER, "");
        let mut pauses = 0;
        let powered = power_on(root.path(), || {
            pauses += 1;
            if pauses == 3 {
                assert_eq!(fs::read_to_string(root.path().join(POWER)).unwrap(), "1");
                put(root.path(), CONTROL, "");
            }
        });
        assert_eq!((powered, pauses), (true, 3));
    }

    #[test]
    fn a_gpu_that_is_on_or_has_no_such_node_is_left_alone() {
        let on = root();
        put(on.path(), POWER, "0");
        put(on.path(), CONTROL, "");
        assert!(!power_on(on.path(), || panic!("there is nothing to wait for")));
        assert_eq!(fs::read_to_string(on.path().join(POWER)).unwrap(), "0");
        assert!(!power_on(root().path(), || panic!("there is nothing to wait for")), "a PC, or a Thor");
    }

    #[test]
    fn nodes_that_never_come_are_not_waited_for_for_ever() {
        let root = root();
        put(root.path(), POWER, "");
        let mut pauses = 0;
        assert!(!power_on(root.path(), || pauses += 1));
        assert_eq!(pauses, CHECKS);
    }
}
