//! Whether a machine is a Jetson, and which release of Jetson Linux it has.

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

/// Returns the release of Jetson Linux below `root`, which NVIDIA also calls L4T: (36, 4, 3). `None` on other machines, and in
/// containers that hide the file.
pub fn release(root: &Path) -> Option<(u32, u32, u32)> {
    parse_release(&fs::read_to_string(root.join("etc/nv_tegra_release")).ok()?)
}

/// Reads (35, 4, 1) from `# R35 (release), REVISION: 4.1, GCID: ...`, the first line of /etc/nv_tegra_release.
fn parse_release(text: &str) -> Option<(u32, u32, u32)> {
    let (major, rest) = text.trim_start().strip_prefix("# R")?.split_once(' ')?;
    let revision = rest.split_once("REVISION: ")?.1.split(',').next()?;
    let (minor, patch) = revision.split_once('.').unwrap_or((revision, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?, patch.trim().parse().ok()?))
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
    fn a_jetsons_release_is_read_from_its_first_line() {
        let jetson = root();
        let release = |text: &str| {
            put(jetson.path(), "etc/nv_tegra_release", text);
            release(jetson.path())
        };
        let text = "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: Tue Aug  1 2023\n# R9";
        assert_eq!(release(text), Some((35, 4, 1)));
        assert_eq!(release("# R36 (release), REVISION: 5, GCID: 1"), Some((36, 5, 0)));
        assert_eq!([release(""), release("# R36 (release)"), release("# R36 (release), REVISION: x.y,")], [None; 3]);
        assert_eq!(super::release(root().path()), None);
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
