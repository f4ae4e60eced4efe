//! A board's name, its system, and on a Jetson the release of NVIDIA's software.
//!
//! Everything is read below a root folder, `/` on the board itself. `tests/boards` has such folders for several Jetsons.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use visiond_ground::jetson;

/// Environment variable with the folder to use instead of `/`, for tests with the files of another board.
const ROOT_VARIABLE: &str = "VISIOND_SYSTEM_ROOT";

/// Releases of Jetson Linux, each with its JetPack.
///
/// From <https://developer.nvidia.com/embedded/jetpack-archive>, the release notes in `docs/release-notes` of
/// github.com/OE4T/meta-tegra, and `jtop/core/jetson_variables.py` of github.com/rbonghi/jetson_stats.
#[rustfmt::skip]
const JETPACKS: &[((u32, u32, u32), &str)] = &[
    ((35, 1, 0), "5.0.2"), ((35, 2, 1), "5.1"), ((35, 3, 1), "5.1.1"), ((35, 4, 1), "5.1.2"), ((35, 5, 0), "5.1.3"),
    ((35, 6, 0), "5.1.4"), ((35, 6, 1), "5.1.5"), ((35, 6, 2), "5.1.5"), ((35, 6, 3), "5.1.5"), ((35, 6, 4), "5.1.6"),
    ((36, 3, 0), "6.0"), ((36, 4, 0), "6.1"), ((36, 4, 2), "6.1"), ((36, 4, 3), "6.2"), ((36, 4, 4), "6.2.1"),
    ((36, 4, 7), "6.2.1"), ((36, 5, 0), "6.2.2"),
    ((38, 2, 0), "7.0"), ((38, 2, 1), "7.0"), ((38, 2, 2), "7.0"), ((38, 4, 0), "7.1"),
    ((39, 2, 0), "7.2"), ((39, 2, 1), "7.2.1"),
];

/// Returns the folder that VISIOND_SYSTEM_ROOT names, otherwise `/`.
pub fn root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// Returns the names in the board's device tree, from the board to its processor. Empty without a device tree.
pub fn compatible(root: &Path) -> Vec<String> {
    let names = fs::read(root.join("sys/firmware/devicetree/base/compatible")).unwrap_or_default();
    names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into())
        .collect()
}

/// A board or computer and its system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Board {
    /// Its name, if the firmware has one: `NVIDIA Jetson AGX Orin Developer Kit`.
    #[serde(rename = "board")]
    pub name: Option<String>,
    /// The distribution: `Ubuntu 22.04.5 LTS`.
    pub system: String,
    /// The kernel's release: `5.15.148-tegra`.
    pub kernel: String,
    /// The release of Jetson Linux, on a Jetson.
    pub l4t: Option<L4t>,
    /// The JetPack of that release, if known: `6.2`.
    pub jetpack: Option<&'static str>,
    /// The memory that the kernel manages.
    pub memory_bytes: Option<u64>,
}

impl Board {
    /// Reads the files below `root`. Facts without a file stay empty.
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| {
            fs::read_to_string(root.join(path)).ok().map(|text| text.trim_matches(['\0', '\n', ' ']).to_owned())
        };
        let value = |text: String, key: &str, separator: char| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(separator));
            found.map(|value| value.trim().trim_matches('"').to_owned())
        };
        let memory = text("proc/meminfo").and_then(|text| value(text, "MemTotal", ':'));
        let kib = memory.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let l4t = jetson::release(root).map(|(major, minor, patch)| L4t(major, minor, patch));
        Self {
            name: text("sys/firmware/devicetree/base/model").or_else(|| text("sys/class/dmi/id/product_name")),
            system: text("etc/os-release")
                .and_then(|text| value(text, "PRETTY_NAME", '='))
                .unwrap_or_else(|| "an unknown system".to_owned()),
            kernel: text("proc/sys/kernel/osrelease").unwrap_or_else(|| "an unknown kernel".to_owned()),
            l4t,
            jetpack: l4t.and_then(L4t::jetpack),
            memory_bytes: kib.map(|kib| kib * 1024),
        }
    }

    /// Returns the release of NVIDIA's software on a Jetson: `JetPack 6.2 (L4T 36.4.3)`, or `L4T 36.9.9` if the JetPack is unknown.
    pub fn release(&self) -> Option<String> {
        let l4t = self.l4t?;
        Some(self.jetpack.map_or_else(|| format!("L4T {l4t}"), |jetpack| format!("JetPack {jetpack} (L4T {l4t})")))
    }
}

/// A release of Jetson Linux, which NVIDIA also calls L4T: 36.4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct L4t(pub u32, pub u32, pub u32);

impl L4t {
    /// Returns its JetPack, if known.
    fn jetpack(self) -> Option<&'static str> {
        let Self(major, minor, patch) = self;
        JETPACKS.iter().find(|(release, _)| *release == (major, minor, patch)).map(|(_, jetpack)| *jetpack)
    }
}

impl fmt::Display for L4t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Serialize for L4t {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let board = Board::read(Path::new("/"));
        assert!(board.memory_bytes.is_some_and(|bytes| bytes > 1 << 20) && board.kernel.contains('.'), "{board:?}");
    }

    #[test]
    fn a_release_after_this_version_has_no_jetpack() {
        let board = Board { l4t: Some(L4t(40, 1, 0)), ..Board::read(Path::new("/no-such-folder")) };
        assert_eq!(board.release().as_deref(), Some("L4T 40.1.0"));
        assert_eq!((board.name, board.memory_bytes), (None, None));
    }

    #[test]
    fn a_jetson_has_a_name_a_release_and_the_names_of_its_device_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards/thor-38.4.0");
        assert_eq!(compatible(&root), ["nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"]);
        let board = Board::read(&root);
        assert_eq!(board.name.as_deref(), Some("NVIDIA Jetson AGX Thor Developer Kit"));
        assert!(board.system.starts_with("Ubuntu 24.04"), "{}", board.system);
        assert_eq!(board.kernel, "6.8.12-tegra");
        assert_eq!(board.release().as_deref(), Some("JetPack 7.1 (L4T 38.4.0)"));
        assert_eq!(board.memory_bytes, None);
        assert!(compatible(Path::new("/no-such-folder")).is_empty());
    }
}
