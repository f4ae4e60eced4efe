//! Whether a machine is a Jetson.

use std::fs;
use std::path::Path;

/// Whether the system below `root` is a Jetson.
///
/// Containers hide the device tree, and often also NVIDIA's release file; every Jetson has /dev/nvmap (nvgpu's and, from Thor
/// on, OpenRM's), and no PC does.
pub fn is_jetson(root: &Path) -> bool {
    let compatible = || fs::read(root.join("sys/firmware/devicetree/base/compatible")).unwrap_or_default();
    root.join("etc/nv_tegra_release").exists()
        || root.join("dev/nvmap").exists()
        || compatible().windows(12).any(|name| name == b"nvidia,tegra")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
    fn a_jetson_is_known_by_its_release_file_its_device_tree_or_its_memory_manager() {
        let pc = root();
        put(pc.path(), "sys/firmware/devicetree/base/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0");
        put(pc.path(), "dev/nvidiactl", "");
        assert!(!is_jetson(pc.path()));
        for (file, text) in [
            (
                "sys/firmware/devicetree/base/compatible",
                "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
            ),
            ("etc/nv_tegra_release", "# R36 (release), REVISION: 4.7\n"),
            ("dev/nvmap", ""),
        ] {
            let jetson = root();
            put(jetson.path(), file, text);
            assert!(is_jetson(jetson.path()), "{file}");
        }
    }
}
