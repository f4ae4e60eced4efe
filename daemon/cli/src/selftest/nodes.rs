//! Device nodes of GPU and cameras: who owns them, and whether this process may open them.
//!
//! A Jetson's GPU driver makes its nodes when the GPU is first powered on, under a major number that it did not have before, so
//! they are listed before the GPU's first use and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::checks::AreaTest;

/// Names of nodes in /dev.
const NODES: &str = "^(nvmap|nvsciipc|udmabuf|(nvhost-|host1x|nvidia|video|media|v4l-subdev|capture-).*)$";
/// Folders in /dev with only such nodes; those in nvgpu, one for each GPU, are further ones.
const FOLDERS: [&str; 3] = ["dri", "dma_heap", "nvidia-caps"];

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// The path, such as /dev/video0.
    pub path: PathBuf,
    /// Its state before the GPU was used; `None` if it did not exist.
    pub before: Option<NodeState>,
    /// Its state after that.
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

/// Returns the state of every node below `dev`. Opens each for a moment, which on a Jetson may power on the GPU; everything else
/// is read before that.
pub fn list(dev: &Path) -> NodeStates {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (users, groups, drivers) = (read("/etc/passwd"), read("/etc/group"), drivers(&read("/proc/devices")));
    let name = |text: &str, id: u32| {
        accounts(text).find(|(_, other)| *other == id).map_or_else(|| id.to_string(), |(name, _)| name.to_owned())
    };
    let mut states = NodeStates::new();
    for path in paths(dev) {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.file_type().is_char_device() {
            let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
            let state = NodeState {
                major,
                minor,
                driver: drivers.get(&major).cloned(),
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

/// Adds a row for each driver, and one for each node that does not open or has changed.
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

/// Returns each node that opens differently in the sandbox than in the shell, with a sentence.
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

/// Returns the paths of [`NODES`] and in [`FOLDERS`].
fn paths(dev: &Path) -> Vec<PathBuf> {
    let Ok(pattern) = Regex::new(NODES) else { return Vec::new() };
    let mut paths = entries(dev);
    paths.retain(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|name| pattern.is_match(name)));
    for folder in FOLDERS.map(|folder| dev.join(folder)).into_iter().chain(entries(&dev.join("nvgpu"))) {
        paths.extend(entries(&folder));
    }
    paths
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
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
    fn nodes_are_found_in_folders_too_and_others_are_not() {
        let dev = tempfile::tempdir().unwrap();
        for path in
            ["nvmap", "nvmap2", "nvhost-gpu", "nvgpu/igpu0/ctrl", "nvgpu/igpu0/as", "dri/card0", "null", "video12"]
        {
            let path = dev.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let mut found: Vec<_> =
            paths(dev.path()).iter().map(|path| path.strip_prefix(dev.path()).unwrap().display().to_string()).collect();
        found.sort();
        assert_eq!(found, ["dri/card0", "nvgpu/igpu0/as", "nvgpu/igpu0/ctrl", "nvhost-gpu", "nvmap", "video12"]);
        // Plain files are not devices.
        assert!(list(dev.path()).is_empty());
    }

    #[test]
    fn a_node_that_opens_has_its_numbers_and_owner() {
        // /dev/null stands for a camera: a link of a camera's name leads to it.
        let dev = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", dev.path().join("video0")).unwrap();
        let states = list(dev.path());
        let state = &states[&dev.path().join("video0")];
        assert_eq!((state.major, state.minor, state.driver.as_deref(), state.errno), (1, 3, Some("mem"), None));
        assert_eq!((state.owner.as_str(), state.mode.as_str()), ("root", "0666"));
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
}
