//! Determines how much memory this process's control groups allow: `MemoryMax=` of the service, or the limit of a container.
//!
//! It supports control groups version 2 only. If systemd still uses version 1, as on JetPack 5, the machine's memory is the
//! limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the groups are mounted.
const MOUNT: &str = "sys/fs/cgroup";
/// More levels than any system nests; the path comes from the kernel.
const MOST_GROUPS: usize = 64;

/// Returns how many more bytes this process may use, limited by its group and those above it; `None` without a limit.
pub fn left() -> Option<u64> {
    left_below(Path::new("/"))
}

fn left_below(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    // In a container with its own cgroup namespace, the path is `/`, or leads out of the namespace with `..`.
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = root.join(MOUNT);
    let own: PathBuf = Path::new(own).components().filter(|part| part.as_os_str() != "..").collect();
    let groups = own.ancestors().take(MOST_GROUPS).map(|group| mount.join(group));
    groups.filter_map(|group| left_in(&group)).min()
}

/// The limit of one group minus its allocated memory. Its page cache can be reclaimed.
fn left_in(group: &Path) -> Option<u64> {
    let most: u64 = fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let used = statistics.lines().find_map(|line| line.strip_prefix("anon ")?.trim().parse().ok()).unwrap_or(0);
    Some(most.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn machine(own: &str, groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(root.path().join("proc/self/cgroup"), own);
        for (group, most, statistics) in groups {
            let group = root.path().join(MOUNT).join(group);
            put(group.join("memory.max"), most);
            put(group.join("memory.stat"), statistics);
        }
        root
    }

    #[test]
    fn the_group_that_leaves_the_least_is_the_bound() {
        const SERVICE: (&str, &str, &str) = ("system.slice/visiond.service", "1000\n", "anon 300\nfile 600\n");
        let own = "0::/system.slice/visiond.service\n";
        for (groups, left) in [
            (vec![SERVICE], Some(700)),
            (vec![SERVICE, ("system.slice", "max\n", "")], Some(700)),
            (vec![SERVICE, ("system.slice", "900\n", "anon 850\n")], Some(50)),
            (vec![SERVICE, ("", "600\n", "anon 900\n")], Some(0)),
            (vec![("system.slice/visiond.service", "max\n", "anon 1\n")], None),
            (vec![], None),
        ] {
            let root = machine(own, &groups);
            assert_eq!(left_below(root.path()), left, "{groups:?}");
        }
    }

    #[test]
    fn in_a_container_and_with_other_groups_too() {
        let container = machine("0::/\n", &[("", "500\n", "anon 100\n")]);
        assert_eq!(left_below(container.path()), Some(400));
        let outside = machine("0::/../../other\n", &[("other", "500\n", "")]);
        assert_eq!(left_below(outside.path()), Some(500));
        let both = machine("12:memory:/x\n0::/y\n", &[("y", "500\n", "nonsense")]);
        assert_eq!(left_below(both.path()), Some(500));
        let old = machine("12:memory:/x\n", &[("", "500\n", "")]);
        assert_eq!(left_below(old.path()), None);
    }
}
