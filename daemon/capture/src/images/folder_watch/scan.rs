//! Scans a watched folder where events do not show every change.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstat;

use super::tree::{modified_ns, open_folder};
use super::{FolderWatch, RECENT, Sign};

/// A folder is listed again until its time has been the same for this long. Some servers round to whole seconds, FAT to two.
const COARSE_TIME: Duration = Duration::from_secs(3);

/// How many folders, and how many files, each scan examines in turn.
pub(super) const SCAN_BUDGET: usize = 256;

impl FolderWatch {
    pub(super) fn tick(&mut self, now_ns: u64) -> io::Result<()> {
        let found = fs::metadata(&self.root).inspect_err(|_| self.needs_resync = true)?;
        let id = (found.dev(), found.ino());
        if self.inotify.is_none() {
            // An instance may be free by now.
            self.inotify = self.new_inotify();
            self.needs_resync |= self.inotify.is_some();
        }
        if self.needs_resync || self.folders.get(&self.root).is_none_or(|root| root.id != id) {
            self.resync(now_ns)?;
        }
        let growing = self.growing.range::<Path, _>(after(&self.growing_turn)).map(|(path, _)| path);
        let growing = take_turn(growing, SCAN_BUDGET);
        self.growing_turn = growing.1;
        let links = take_turn(self.links.range::<Path, _>(after(&self.link_turn)), SCAN_BUDGET);
        self.link_turn = links.1;
        for path in growing.0.into_iter().chain(links.0) {
            if self.is_stopping() {
                return Ok(());
            }
            self.look(&path, Sign::Checked, now_ns);
        }
        if self.is_scanned() {
            self.scan(now_ns);
        }
        Ok(())
    }

    fn scan(&mut self, now_ns: u64) {
        let scanned = self.folders.range::<Path, _>(after(&self.folder_turn)).filter(|(_, folder)| folder.is_scanned);
        let (turn, next) = take_turn(scanned.map(|(path, _)| path), SCAN_BUDGET);
        self.folder_turn = next;
        let folders: BTreeSet<_> = self.recent_folders.iter().cloned().chain(turn).collect();
        for path in folders {
            if self.is_stopping() {
                return;
            }
            self.scan_folder(&path, now_ns);
        }
        let mut files: Vec<_> = self.recent.iter().cloned().collect();
        files.extend(self.next_files());
        for path in files {
            if self.is_stopping() {
                return;
            }
            // A growing file was already examined in this scan.
            if !self.growing.contains_key(&path) && self.file(&path).is_some() {
                self.look(&path, Sign::Checked, now_ns);
            }
        }
    }

    /// Lists a folder if it may have changed.
    fn scan_folder(&mut self, path: &Path, now_ns: u64) {
        let Some(folder) = self.folders.get(path) else {
            self.recent_folders.retain(|other| other != path);
            return;
        };
        if self.only.is_some() {
            return self.list_again(path, now_ns);
        }
        // Opening the folder makes a network file system query the server.
        let is_root = folder.depth == 0;
        let opened = open_folder(path, is_root, true).and_then(|fd| Ok((fstat(&fd)?, fd)));
        let (stat, fd) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_root => return self.remove_folder(path),
            Err(_) => return,
        };
        let Some(folder) = self.folders.get_mut(path) else { return };
        if modified_ns(&stat) != folder.modified_ns {
            (folder.modified_ns, folder.changed_ns) = (modified_ns(&stat), now_ns);
            if !self.recent_folders.iter().any(|other| other == path) {
                self.recent_folders.truncate(RECENT - 1);
                self.recent_folders.push_front(path.to_owned());
            }
        } else if folder.listed_ns >= folder.changed_ns.saturating_add(COARSE_TIME.as_nanos() as u64) {
            return;
        }
        folder.listed_ns = now_ns;
        // A listing that broke off is repeated next time.
        if self.list(path, fd, Sign::Checked, now_ns).is_err()
            && let Some(folder) = self.folders.get_mut(path)
        {
            folder.modified_ns = i128::MIN;
        }
    }

    fn list_again(&mut self, path: &Path, now_ns: u64) {
        let Some(only) = &self.only else { return };
        let file = path.join(only);
        if !self.growing.contains_key(&file) {
            self.look(&file, Sign::Checked, now_ns);
        }
    }

    /// The files of scanned folders whose turn has come.
    fn next_files(&mut self) -> Vec<PathBuf> {
        let mut paths = Vec::with_capacity(SCAN_BUDGET);
        let turn = std::mem::take(&mut self.file_turn);
        let start = turn.parent().unwrap_or(Path::new("")).to_owned();
        let folders = self.folders.range::<Path, _>((Bound::Included(start.as_path()), Bound::Unbounded));
        for (path, folder) in folders.filter(|(_, folder)| folder.is_scanned) {
            let from = turn.file_name().filter(|_| *path == start).map_or(Bound::Unbounded, Bound::Excluded);
            let names = folder.files.range::<OsStr, _>((from, Bound::Unbounded)).map(|(name, _)| path.join(name));
            paths.extend(names.take(SCAN_BUDGET - paths.len()));
            if paths.len() == SCAN_BUDGET {
                break;
            }
        }
        if paths.len() == SCAN_BUDGET {
            self.file_turn = paths.last().cloned().unwrap_or_default();
        }
        paths
    }

    /// Compares everything with the known state, because events were lost or the folder was replaced.
    fn resync(&mut self, now_ns: u64) -> io::Result<()> {
        self.needs_resync = true;
        // Watches follow their folders, which may have been renamed.
        // Drop the old instance first: it may be the user's last one.
        self.inotify = None;
        self.inotify = self.new_inotify();
        self.by_watch.clear();
        self.moves.clear();
        self.move_deadlines.clear();
        self.folders.values_mut().for_each(|folder| folder.watch = None);
        let (root, known) = (self.root.clone(), self.folders.keys().cloned().collect::<Vec<_>>());
        self.add_folder(&root, 0, Sign::Listed, now_ns)?;
        for path in known {
            if self.is_stopping() {
                return Ok(());
            }
            if fs::symlink_metadata(&path).is_err() {
                self.remove_folder(&path);
            }
        }
        self.needs_resync = self.is_interrupted;
        Ok(())
    }
}

fn after(path: &Path) -> (Bound<&Path>, Bound<&Path>) {
    (Bound::Excluded(path), Bound::Unbounded)
}

/// Returns the next `count` paths, and where the next scan continues: at the start when none is left.
fn take_turn<'a>(paths: impl Iterator<Item = &'a PathBuf>, count: usize) -> (Vec<PathBuf>, PathBuf) {
    let taken: Vec<_> = paths.take(count).cloned().collect();
    let last = if taken.len() == count { taken.last().cloned() } else { None };
    (taken, last.unwrap_or_default())
}
