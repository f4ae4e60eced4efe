//! Device nodes of GPU and cameras: whose they are, and whether this process may open them.
//!
//! A Jetson's GPU driver makes its nodes when the GPU gets power for the first time, under a major that it did not have before,
//! so they are looked at before the GPU's first use and after it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::checks::Section;

/// Names below /dev, or in the folder that stands before the last slash; `*` ends a name that only begins so, and stands for
/// any folder.
const FAMILIES: [&str; 14] = [
    "nvmap",
    "nvhost-*",
    "nvgpu/*/*",
    "nvsciipc",
    "host1x*",
    "dri/*",
    "dma_heap/*",
    "udmabuf",
    "nvidia*",
    "nvidia-caps/*",
    "video*",
    "media*",
    "v4l-subdev*",
    "capture-*",
];

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// /dev/video0.
    pub path: PathBuf,
    /// Before the GPU was used; `None` where it was not there.
    pub before: Option<State>,
    /// After that.
    pub after: Option<State>,
}

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The number of its driver.
    pub major: u32,
    /// Its own number with the driver.
    pub minor: u32,
    /// What /proc/devices calls the driver.
    pub driver: Option<String>,
    /// Its owner.
    pub owner: String,
    /// Its group.
    pub group: String,
    /// Its rights in octal: 0660.
    pub mode: String,
    /// Why it cannot be opened for reading and writing; `None`: it can.
    pub errno: Option<i32>,
}

impl State {
    fn text(&self) -> String {
        let Self { major, minor, owner, group, mode, .. } = self;
        let driver = self.driver.as_deref().unwrap_or("unknown");
        format!("{owner}:{group} {mode}, {driver} {major}:{minor}, {}", opening(self.errno))
    }
}

fn opening(errno: Option<i32>) -> String {
    errno.map_or("opens".to_owned(), |errno| io::Error::from_raw_os_error(errno).to_string())
}

/// How all nodes stand, by path.
pub type Look = BTreeMap<PathBuf, State>;

/// Looks at every node below `dev`. Each is opened for a moment, which on a Jetson may give the GPU power; what they are is read
/// of all of them before that.
pub fn look(dev: &Path) -> Look {
    let names = Names::read();
    let mut look = Look::new();
    for family in FAMILIES {
        for path in paths(dev, family) {
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if !metadata.file_type().is_char_device() {
                continue;
            }
            let device = metadata.rdev();
            let (major, minor) = (libc::major(device), libc::minor(device));
            let state = State {
                major,
                minor,
                driver: names.drivers.get(&major).cloned(),
                owner: name(&names.users, metadata.uid()),
                group: name(&names.groups, metadata.gid()),
                mode: format!("{:04o}", metadata.mode() & 0o7777),
                errno: None,
            };
            look.insert(path, state);
        }
    }
    for (path, state) in &mut look {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        state.errno = opened.err().and_then(|error| error.raw_os_error());
    }
    look
}

/// Both looks as one list.
pub fn merge(mut before: Look, after: Look) -> Vec<DeviceNode> {
    let mut nodes: Vec<DeviceNode> = after
        .into_iter()
        .map(|(path, after)| DeviceNode { before: before.remove(&path), after: Some(after), path })
        .collect();
    // Those that have gone.
    nodes.extend(before.into_iter().map(|(path, before)| DeviceNode { path, before: Some(before), after: None }));
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    nodes
}

/// What is worth a line of the table: how many of each driver there are, those that do not open, those that changed.
pub fn rows(nodes: &[DeviceNode], section: &mut Section) {
    if nodes.is_empty() {
        section.skip("device nodes", "there is no node of a GPU or camera in /dev");
        return;
    }
    let mut families: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for state in nodes.iter().filter_map(|node| node.after.as_ref()) {
        let counts =
            families.entry(state.driver.clone().unwrap_or_else(|| format!("major {}", state.major))).or_default();
        counts[usize::from(state.errno.is_some())] += 1;
    }
    for (family, [opened, refused]) in families {
        let seen = match refused {
            0 => format!("{opened} can be opened"),
            _ => format!("{opened} can be opened, {refused} cannot"),
        };
        section.info(family, seen).figure("opened", opened as f64).figure("refused", refused as f64);
    }
    for node in nodes {
        let path = node.path.display();
        match (&node.before, &node.after) {
            (Some(before), Some(after)) if before != after => {
                section.info(path, format!("changed by the GPU's first use: {}; now {}", before.text(), after.text()));
            }
            (None, Some(after)) => {
                section.info(path, format!("made by the GPU's first use: {}", after.text()));
            }
            (Some(_), None) => {
                section.info(path, "went away with the GPU's first use");
            }
            (_, Some(after)) if after.errno.is_some() => {
                section.info(path, after.text());
            }
            _ => {}
        }
    }
}

/// What differs between two lists, in words, by path: what opens in the one and not in the other.
pub fn differences(shell: &[DeviceNode], sandbox: &[DeviceNode]) -> Vec<(PathBuf, String)> {
    let mut differences = Vec::new();
    for node in shell {
        let (Some(here), path) = (&node.after, &node.path) else { continue };
        let there = sandbox.iter().find(|other| other.path == *path).and_then(|other| other.after.as_ref());
        let text = |there: &str| format!("{} in the shell, {there} in the sandbox", opening(here.errno));
        match there {
            None => differences.push((path.clone(), text("is not there"))),
            Some(there) if there.errno != here.errno => {
                differences.push((path.clone(), text(&opening(there.errno))));
            }
            Some(_) => {}
        }
    }
    differences
}

/// The paths below `dev` that a pattern of [`FAMILIES`] means.
fn paths(dev: &Path, family: &str) -> Vec<PathBuf> {
    let (folders, last) = match family.rsplit_once('/') {
        None => (vec![dev.to_owned()], family),
        Some((folder, last)) => match folder.strip_suffix("/*") {
            Some(above) => (entries(&dev.join(above)), last),
            None => (vec![dev.join(folder)], last),
        },
    };
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        last.strip_suffix('*').map_or(name == last, |start| name.starts_with(start))
    };
    folders.iter().flat_map(|folder| entries(folder)).filter(fits).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Names of users, groups and drivers by number.
struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
    drivers: BTreeMap<u32, String>,
}

impl Names {
    fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            users: accounts(&read("/etc/passwd")),
            groups: accounts(&read("/etc/group")),
            drivers: drivers(&read("/proc/devices")),
        }
    }
}

fn name(names: &BTreeMap<u32, String>, number: u32) -> String {
    names.get(&number).cloned().unwrap_or_else(|| number.to_string())
}

/// Number and name of each line of /etc/passwd or /etc/group.
fn accounts(text: &str) -> BTreeMap<u32, String> {
    let account = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(account).collect()
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

    use super::super::checks::{Area, Outcome};
    use super::*;

    fn state(errno: Option<i32>, major: u32) -> State {
        let (owner, group) = ("root".to_owned(), "video".to_owned());
        State { major, minor: 0, driver: Some("nvgpu".to_owned()), owner, group, mode: "0660".to_owned(), errno }
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
        let found = |family| {
            let mut found: Vec<_> = paths(dev.path(), family)
                .iter()
                .map(|path| path.strip_prefix(dev.path()).unwrap().display().to_string())
                .collect();
            found.sort();
            found
        };
        assert_eq!(found("nvmap"), ["nvmap"]);
        assert_eq!(found("nvhost-*"), ["nvhost-gpu"]);
        assert_eq!(found("nvgpu/*/*"), ["nvgpu/igpu0/as", "nvgpu/igpu0/ctrl"]);
        assert_eq!(found("dri/*"), ["dri/card0"]);
        assert_eq!(found("video*"), ["video12"]);
        // Plain files are no devices.
        assert!(look(dev.path()).is_empty());
    }

    #[test]
    fn a_node_that_opens_has_its_numbers_and_owner() {
        // /dev/null stands for a camera: a link of a camera's name leads to it.
        let dev = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", dev.path().join("video0")).unwrap();
        let look = look(dev.path());
        let state = &look[&dev.path().join("video0")];
        assert_eq!((state.major, state.minor, state.driver.as_deref(), state.errno), (1, 3, Some("mem"), None));
        assert_eq!((state.owner.as_str(), state.mode.as_str()), ("root", "0666"));
    }

    #[test]
    fn what_the_gpus_first_use_made_or_changed_has_a_line() {
        let before = Look::from([("/dev/a".into(), state(None, 1)), ("/dev/b".into(), state(None, 1))]);
        let after = Look::from([
            ("/dev/a".into(), state(None, 1)),
            ("/dev/b".into(), state(None, 2)),
            ("/dev/c".into(), state(Some(libc::EACCES), 2)),
        ]);
        let mut section = Section::new(Area::Nodes);
        rows(&merge(before, after), &mut section);
        let lines: Vec<_> = section.rows.iter().map(|row| format!("{}: {}", row.check, row.seen)).collect();
        assert_eq!(
            lines,
            [
                "nvgpu: 2 can be opened, 1 cannot",
                "/dev/b: changed by the GPU's first use: root:video 0660, nvgpu 1:0, opens; now root:video 0660, nvgpu 2:0, opens",
                "/dev/c: made by the GPU's first use: root:video 0660, nvgpu 2:0, Permission denied (os error 13)",
            ]
        );
        let mut section = Section::new(Area::Nodes);
        rows(&[], &mut section);
        assert_eq!(section.rows[0].outcome, Outcome::Skipped);
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
                "/dev/d: opens in the shell, is not there in the sandbox",
            ]
        );
    }

    #[test]
    fn names_are_read_by_number() {
        assert_eq!(
            accounts("root:x:0:0:root:/root:/bin/sh\nbad\nvideo:x:44:\n"),
            [(0, "root".to_owned()), (44, "video".to_owned())].into()
        );
        let text = "Character devices:\n  1 mem\n 81 video4linux\n499 nvgpu\n\nBlock devices:\n  8 sd\n";
        assert_eq!(drivers(text).into_keys().collect::<Vec<_>>(), [1, 81, 499]);
    }
}
