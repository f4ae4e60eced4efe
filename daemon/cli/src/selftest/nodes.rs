//! Device nodes of GPUs and cameras: who owns them, and whether this process can open them.
//!
//! The nodes are those that the service's unit allows by its `DeviceAllow=` lines, and others of the same families, which the unit
//! may lack.
//!
//! A Jetson's GPU driver creates its nodes when the GPU is first powered on, under a new major number, so they are listed before
//! and after the GPU's first use.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use regex_lite::Regex;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::checks::AreaTest;
use super::child::supervise;

/// Names of nodes of GPUs and cameras, in /dev or in a folder of it.
const FAMILIES: &str = "^(nvmap|nvsci|nvhost|nvgpu|nvidia|video|media|v4l-|capture-|host1x|dma_heap|udmabuf)";

/// The maximum depth of nodes in /dev. Those of nvgpu are in /dev/nvgpu/igpu0.
const MAX_DEPTH: usize = 3;

/// Folders of /dev that hold many devices, but no GPUs or cameras.
const SKIPPED: [&str; 8] = ["block", "bus", "char", "disk", "fd", "input", "pts", "shm"];

/// The devices that a unit allows.
#[derive(Debug, Default)]
pub struct DeviceList {
    paths: Vec<PathBuf>,
    majors: Vec<u32>,
    /// The drivers' names in /proc/devices.
    drivers: Vec<Regex>,
}

impl DeviceList {
    /// Reads the `DeviceAllow=` lines of a unit and its drop-ins. An empty one resets the list.
    pub fn of_unit(unit: &str) -> Self {
        let mut list = Self::default();
        for line in unit.lines() {
            let Some(allowed) = line.trim().strip_prefix("DeviceAllow=") else { continue };
            let device = allowed.split_whitespace().next().unwrap_or_default();
            match device.strip_prefix("char-").map(|driver| (driver, driver.parse())) {
                Some((_, Ok(major))) => list.majors.push(major),
                Some((driver, Err(_))) => list.drivers.extend(glob(driver)),
                None if device.is_empty() => list = Self::default(),
                None => list.paths.push(device.into()),
            }
        }
        list
    }

    /// Whether the unit allows the device at `path`, of a driver with this number and name.
    pub fn allows(&self, path: &Path, major: u32, driver: Option<&str>) -> bool {
        self.majors.contains(&major)
            || self.paths.iter().any(|allowed| allowed == path)
            || driver.is_some_and(|driver| self.drivers.iter().any(|pattern| pattern.is_match(driver)))
    }
}

/// Returns the regular expression for an fnmatch(3) pattern.
fn glob(pattern: &str) -> Option<Regex> {
    let mut expression = String::from("^");
    let mut in_class = false;
    for character in pattern.chars() {
        match character {
            '*' if !in_class => expression += ".*",
            '?' if !in_class => expression.push('.'),
            '!' if expression.ends_with('[') => expression.push('^'),
            '[' | ']' => {
                in_class = character == '[';
                expression.push(character);
            }
            '-' if in_class => expression.push('-'),
            other => expression += &regex_lite::escape(&other.to_string()),
        }
    }
    Regex::new(&(expression + "$")).ok()
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// The path, such as /dev/video0.
    pub path: PathBuf,
    /// Its state before the GPU was used; `None` if it did not exist.
    pub before: Option<NodeState>,
    /// Its state after the GPU was used.
    pub after: Option<NodeState>,
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    pub major: u32,
    pub minor: u32,
    /// The driver's name in /proc/devices.
    pub driver: Option<String>,
    pub owner: String,
    pub group: String,
    /// Its access rights in octal: 0660.
    pub mode: String,
    /// Why it cannot be opened for reading and writing; `None` if it can.
    pub errno: Option<i32>,
}

impl NodeState {
    fn text(&self) -> String {
        let Self { major, minor, owner, group, mode, .. } = self;
        let driver = self.driver.as_deref().unwrap_or("unknown");
        format!("{owner}:{group} {mode}, {driver} {major}:{minor}, {}", self.opening())
    }

    fn opening(&self) -> String {
        self.errno.map_or("opens".to_owned(), |errno| io::Error::from_raw_os_error(errno).to_string())
    }
}

/// The states of all nodes, by path.
pub type NodeStates = BTreeMap<PathBuf, NodeState>;

/// Returns the state of every node below `dev` that `allowed` names or that belongs to one of its families. Opens each briefly,
/// which may power on a Jetson's GPU; everything else is read before that.
pub fn list(dev: &Path, allowed: &DeviceList) -> NodeStates {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (users, groups, drivers) = (read("/etc/passwd"), read("/etc/group"), drivers(&read("/proc/devices")));
    let name = |text: &str, id: u32| {
        accounts(text).find(|(_, other)| *other == id).map_or_else(|| id.to_string(), |(name, _)| name.to_owned())
    };
    let families = Regex::new(FAMILIES).ok();
    let mut states = NodeStates::new();
    for path in paths(dev) {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if !metadata.file_type().is_char_device() {
            continue;
        }
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let driver = drivers.get(&major);
        let below = path.strip_prefix(dev).unwrap_or(&path).to_string_lossy();
        let is_of_family = families.as_ref().is_some_and(|families| families.is_match(&below));
        if is_of_family || allowed.allows(&path, major, driver.map(String::as_str)) {
            let state = NodeState {
                major,
                minor,
                driver: driver.cloned(),
                owner: name(&users, metadata.uid()),
                group: name(&groups, metadata.gid()),
                mode: format!("{:04o}", metadata.mode() & 0o7777),
                errno: None,
            };
            states.insert(path, state);
        }
    }
    for (path, state) in &mut states {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        state.errno = opened.err().and_then(|error| error.raw_os_error());
    }
    states
}

/// Merges both lists into one.
pub fn merge(mut before: NodeStates, mut after: NodeStates) -> Vec<DeviceNode> {
    let paths: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
    let node = |path| DeviceNode { before: before.remove(&path), after: after.remove(&path), path };
    paths.into_iter().map(node).collect()
}

/// Adds a row for each driver, and one for each node that cannot be opened or has changed.
pub fn rows(nodes: &[DeviceNode], test: &mut AreaTest) {
    if nodes.is_empty() {
        return test.skip("device nodes", "there is no node of a GPU or camera in /dev");
    }
    let mut drivers: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for state in nodes.iter().filter_map(|node| node.after.as_ref()) {
        let driver = state.driver.clone().unwrap_or_else(|| format!("major {}", state.major));
        drivers.entry(driver).or_default()[usize::from(state.errno.is_some())] += 1;
    }
    for (driver, [opened, refused]) in drivers {
        let cannot = if refused == 0 { String::new() } else { format!(", {refused} cannot") };
        test.info(driver, format!("{opened} can be opened{cannot}"));
        test.figures([("opened", opened as f64), ("refused", refused as f64)]);
    }
    for DeviceNode { path, before, after } in nodes {
        let seen = match (before, after) {
            (Some(before), Some(after)) if before != after => {
                format!("changed by the GPU's first use: {}; now {}", before.text(), after.text())
            }
            (None, Some(after)) => format!("made by the GPU's first use: {}", after.text()),
            (Some(_), None) => "disappeared with the GPU's first use".to_owned(),
            (_, Some(after)) if after.errno.is_some() => after.text(),
            _ => continue,
        };
        test.info(path.display(), seen);
    }
}

/// Tests that a program started by another program, as a `command` source may do, has the same access to the nodes as visiond.
pub fn grandchildren(nodes: &[DeviceNode], test: &mut AreaTest) {
    const CHECK: &str = "programs of programs";
    const PATIENCE: Duration = Duration::from_secs(10);
    /// Prints each argument that is readable and writable.
    const SCRIPT: &str = r#"for node; do [ -r "$node" ] && [ -w "$node" ] && echo "$node"; done; true"#;
    let paths: Vec<_> = nodes.iter().filter(|node| node.after.is_some()).map(|node| node.path.as_path()).collect();
    if paths.is_empty() {
        return;
    }
    let mut command = Command::new("sh");
    // Without `; true` the outer shell would become the inner one.
    command.args(["-c", r#"sh -c "$0" sh "$@"; true"#, SCRIPT]).args(&paths);
    let exited = match supervise(&mut command, PATIENCE, |_| {}) {
        Ok(exited) => exited,
        Err(error) => return test.skip(CHECK, format!("cannot run a shell: {error}")),
    };
    let there: BTreeSet<_> = exited.output.split(|byte| *byte == b'\n').map(OsStr::from_bytes).collect();
    let may = Access::READ_OK | Access::WRITE_OK;
    let differs = |path: &&Path| access(*path, may).is_ok() != there.contains(path.as_os_str());
    let differing: Vec<_> = paths.iter().copied().filter(differs).map(|path| path.display().to_string()).collect();
    let seen = match differing.as_slice() {
        [] => format!("{} nodes as by visiond", paths.len()),
        some => format!("access differs from visiond's: {}", some.join(", ")),
    };
    test.verdict(CHECK, "the same access to device nodes", seen, differing.is_empty());
}

/// Returns a sentence for each node whose access differs between the sandbox and the shell.
pub fn differences(shell: &[DeviceNode], sandbox: &[DeviceNode]) -> Vec<(PathBuf, String)> {
    let mut differences = Vec::new();
    for node in shell {
        let Some(here) = &node.after else { continue };
        let there = sandbox.iter().find(|other| other.path == node.path).and_then(|other| other.after.as_ref());
        if there.is_none_or(|there| there.errno != here.errno) {
            let there = there.map_or("does not exist".to_owned(), NodeState::opening);
            let text = format!("{} in the shell, {there} in the sandbox", here.opening());
            differences.push((node.path.clone(), text));
        }
    }
    differences
}

/// Returns the nodes in `dev` and its folders.
fn paths(dev: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut folders = vec![(dev.to_owned(), 1)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_skipped = || entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name));
            // Do not follow links: one may lead back.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH && !is_skipped() => {
                    folders.push((entry.path(), depth + 1))
                }
                Ok(kind) if kind.is_dir() => {}
                _ => paths.push(entry.path()),
            }
        }
    }
    paths
}

/// Name and id of each line of /etc/passwd or /etc/group.
pub fn accounts(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

/// The character devices of /proc/devices.
fn drivers(text: &str) -> BTreeMap<u32, String> {
    let driver = |line: &str| {
        let (number, name) = line.trim().split_once(' ')?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    text.lines().take_while(|line| !line.starts_with("Block devices")).filter_map(driver).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use super::super::checks::{Area, Outcome};
    use super::*;

    fn state(errno: Option<i32>, major: u32) -> NodeState {
        let (owner, group) = ("root".to_owned(), "video".to_owned());
        NodeState { major, minor: 0, driver: Some("nvgpu".to_owned()), owner, group, mode: "0660".to_owned(), errno }
    }

    #[test]
    fn nodes_are_found_in_folders_too() {
        let dev = tempfile::tempdir().unwrap();
        for path in ["nvmap", "nvgpu/igpu0/ctrl", "dri/card0", "null", "a/b/c/deep", "char/1:3", "input/event0"] {
            let path = dev.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(dev.path(), dev.path().join("loop")).unwrap();
        let mut found: Vec<_> =
            paths(dev.path()).iter().map(|path| path.strip_prefix(dev.path()).unwrap().display().to_string()).collect();
        found.sort();
        assert_eq!(found, ["dri/card0", "loop", "null", "nvgpu/igpu0/ctrl", "nvmap"]);
        // Plain files are not devices.
        assert!(list(dev.path(), &DeviceList::default()).is_empty());
    }

    #[test]
    fn a_node_that_opens_has_its_numbers_and_owner() {
        // /dev/null replaces a camera: a link with a camera's name leads to it.
        let dev = tempfile::tempdir().unwrap();
        for name in ["video0", "other"] {
            std::os::unix::fs::symlink("/dev/null", dev.path().join(name)).unwrap();
        }
        let names = |unit: &str| -> Vec<_> {
            let states = list(dev.path(), &DeviceList::of_unit(unit));
            states.into_keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(""), ["video0"]);
        assert_eq!(names("DeviceAllow=char-mem rw"), ["other", "video0"]);
        assert_eq!(names(&format!("DeviceAllow={} rw", dev.path().join("other").display())), ["other", "video0"]);
        let states = list(dev.path(), &DeviceList::default());
        let state = &states[&dev.path().join("video0")];
        assert_eq!((state.major, state.minor, state.driver.as_deref(), state.errno), (1, 3, Some("mem"), None));
        assert_eq!((state.owner.as_str(), state.mode.as_str()), ("root", "0666"));
    }

    #[test]
    fn a_program_of_a_program_has_the_same_access() {
        let folder = tempfile::tempdir().unwrap();
        let node =
            |name: &str| DeviceNode { path: folder.path().join(name), before: None, after: Some(state(None, 1)) };
        let nodes = [node("a b"), node("missing"), node("read-only")];
        fs::write(&nodes[0].path, "").unwrap();
        fs::create_dir(&nodes[2].path).unwrap();
        let mut test = AreaTest::new(Area::Nodes, true, Instant::now());
        grandchildren(&nodes, &mut test);
        let row = &test.rows[0];
        assert_eq!((row.outcome, row.seen.as_str()), (Outcome::Pass, "3 nodes as by visiond"));
    }

    #[test]
    fn the_units_cover_what_an_orin_has() {
        const UNITS: [&str; 2] =
            [include_str!("../../../../systemd/visiond.service"), include_str!("../../../../systemd/visiond@.service")];
        const DEVICES: &str = include_str!("../../../../tests/boards/char-devices-r36.txt");
        for unit in UNITS {
            let list = DeviceList::of_unit(unit);
            let names: Vec<_> = DEVICES
                .lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(|line| line.split('\t').next())
                .collect();
            assert!(names.len() > 5);
            for name in names {
                let major = if name == "video4linux" { 81 } else { 0 };
                assert!(list.allows(Path::new(name), major, Some(name)), "{name}");
            }
            assert!(
                !list.allows(Path::new("/dev/sda"), 8, Some("sd"))
                    && !list.allows(Path::new("/dev/mem"), 1, Some("mem"))
            );
        }
    }

    #[test]
    fn a_units_list_has_paths_numbers_and_patterns_and_begins_again() {
        let list = DeviceList::of_unit(
            "[Service]\nDeviceAllow=char-mem rw\nDeviceAllow=\nDeviceAllow=char-81 rw\n DeviceAllow=char-*.gpu rw\n\
             DeviceAllow=/dev/nvmap rw\n#DeviceAllow=char-kfd rw\nDeviceAllow=char-nv[a-h]os? rw\n",
        );
        assert!(list.allows(Path::new("/dev/x"), 500, Some("nvhost")));
        assert!(!list.allows(Path::new("/dev/x"), 500, Some("nvjost")));
        let allows = |path: &str, major, driver| list.allows(Path::new(path), major, Some(driver));
        assert!(allows("/dev/video0", 81, "video4linux") && allows("/dev/nvmap", 10, "misc"));
        assert!(allows("/dev/nvgpu/igpu0/as", 500, "17000000.gpu") && !allows("/dev/x", 500, "gpu"));
        assert!(!allows("/dev/null", 1, "mem") && !allows("/dev/kfd", 511, "kfd"));
    }

    #[test]
    fn what_the_gpus_first_use_made_or_changed_has_a_line() {
        let before = NodeStates::from([("/dev/a".into(), state(None, 1)), ("/dev/b".into(), state(None, 1))]);
        let after = NodeStates::from([
            ("/dev/a".into(), state(None, 1)),
            ("/dev/b".into(), state(None, 2)),
            ("/dev/c".into(), state(Some(libc::EACCES), 2)),
        ]);
        let mut test = AreaTest::new(Area::Nodes, true, Instant::now());
        rows(&merge(before, after), &mut test);
        let lines: Vec<_> = test.rows.iter().map(|row| format!("{}: {}", row.check, row.seen)).collect();
        assert_eq!(
            lines,
            [
                "nvgpu: 2 can be opened, 1 cannot",
                "/dev/b: changed by the GPU's first use: root:video 0660, nvgpu 1:0, opens; now root:video 0660, nvgpu 2:0, opens",
                "/dev/c: made by the GPU's first use: root:video 0660, nvgpu 2:0, Permission denied (os error 13)",
            ]
        );
        let mut test = AreaTest::new(Area::Nodes, true, Instant::now());
        rows(&[], &mut test);
        assert_eq!(test.rows[0].outcome, Outcome::Skipped);
    }

    #[test]
    fn what_opens_in_one_of_the_two_alone_is_a_difference() {
        let node = |path: &str, errno| DeviceNode { path: path.into(), before: None, after: Some(state(errno, 1)) };
        let shell =
            [node("/dev/a", None), node("/dev/b", None), node("/dev/c", Some(libc::EACCES)), node("/dev/d", None)];
        let sandbox = [node("/dev/a", None), node("/dev/b", Some(libc::EPERM)), node("/dev/c", None)];
        let found: Vec<_> = differences(&shell, &sandbox)
            .into_iter()
            .map(|(path, text)| format!("{}: {text}", path.display()))
            .collect();
        assert_eq!(
            found,
            [
                "/dev/b: opens in the shell, Operation not permitted (os error 1) in the sandbox",
                "/dev/c: Permission denied (os error 13) in the shell, opens in the sandbox",
                "/dev/d: opens in the shell, does not exist in the sandbox",
            ]
        );
    }

    #[test]
    fn names_are_read_by_number() {
        assert_eq!(
            accounts("root:x:0:0:root:/root:/bin/sh\nbad\nvideo:x:44:\n").collect::<Vec<_>>(),
            [("root", 0), ("video", 44)]
        );
        let text = "Character devices:\n  1 mem\n 81 video4linux\n499 nvgpu\n\nBlock devices:\n  8 sd\n";
        assert_eq!(drivers(text).into_keys().collect::<Vec<_>>(), [1, 81, 499]);
    }

    #[test]
    fn patterns_are_those_of_fnmatch() {
        let fits = |pattern: &str, name: &str| glob(pattern).is_some_and(|pattern| pattern.is_match(name));
        for (pattern, yes, no) in [
            ("nv*", "nvidia", "xnv"),
            ("nv?", "nv1", "nv"),
            ("nv?", "nvx", "nv12"),
            ("a.b", "a.b", "axb"),
            ("a-b", "a-b", "ab"),
            ("x[a-c]y", "xby", "xdy"),
            ("x[!a-c]y", "xdy", "xby"),
            ("x[a-c]*y", "xb12y", "xb12"),
            ("x[*?]y", "x*y", "xay"),
            ("a!b", "a!b", "ab"),
            ("gpu", "gpu", "gpus"),
        ] {
            assert!(fits(pattern, yes), "{pattern} fits {yes}");
            assert!(!fits(pattern, no), "{pattern} does not fit {no}");
        }
        assert!(glob("a[b").is_none());
    }

    #[test]
    fn a_driver_counts_its_nodes_and_a_node_that_went_or_stays_closed_has_a_line() {
        let node = |path: &str, before: Option<NodeState>, after| DeviceNode { path: path.into(), before, after };
        let without_driver = NodeState { driver: None, ..state(None, 5) };
        let closed = state(Some(libc::EACCES), 1);
        let nodes = [
            node("/dev/gone", Some(state(None, 1)), None),
            node("/dev/closed", Some(closed.clone()), Some(closed)),
            node("/dev/open", Some(state(None, 1)), Some(state(None, 1))),
            node("/dev/other", None, Some(without_driver)),
        ];
        let mut test = AreaTest::new(Area::Nodes, true, Instant::now());
        rows(&nodes, &mut test);
        let lines: Vec<_> = test.rows.iter().map(|row| format!("{}: {}", row.check, row.seen)).collect();
        assert_eq!(
            lines,
            [
                "major 5: 1 can be opened",
                "nvgpu: 1 can be opened, 1 cannot",
                "/dev/gone: disappeared with the GPU's first use",
                "/dev/closed: root:video 0660, nvgpu 1:0, Permission denied (os error 13)",
                "/dev/other: made by the GPU's first use: root:video 0660, unknown 5:0, opens",
            ]
        );
        assert_eq!(test.rows[1].figures, [("opened".to_owned(), 1.0), ("refused".to_owned(), 1.0)].into());
    }

    #[test]
    fn the_depth_of_folders_ends_at_three() {
        let dev = tempfile::tempdir().unwrap();
        fs::create_dir_all(dev.path().join("a/b/c")).unwrap();
        for name in ["one", "a/two", "a/b/three", "a/b/c/four"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        let mut found: Vec<_> =
            paths(dev.path()).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, ["one", "three", "two"]);
    }

    #[test]
    fn nodes_that_are_gone_are_not_compared_and_without_any_there_is_no_row() {
        let gone = DeviceNode { path: "/dev/gone".into(), before: Some(state(None, 1)), after: None };
        let mut test = AreaTest::new(Area::Nodes, true, Instant::now());
        grandchildren(std::slice::from_ref(&gone), &mut test);
        assert!(test.rows.is_empty());
        assert!(differences(&[gone], &[]).is_empty());
    }
}
