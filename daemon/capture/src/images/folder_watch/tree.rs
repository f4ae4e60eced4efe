//! The folders of a watched folder: watched by inotify, listed, removed and renamed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, fstatfs, open};
use rustix::io::Errno;

use super::super::listing::{MAX_DEPTH, is_hidden, is_image_name, too_deep};
use super::{File, Folder, FolderWatch, Phase, RECENT, Sign};

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);

/// The most folders to watch.
const MAX_FOLDERS: usize = 65_536;

/// The most left-out folders to remember, so that each is logged once.
const MAX_LEFT_OUT: usize = 1000;

/// File systems that other machines change without an event here, by the numbers in linux/magic.h and the file systems' sources:
/// NFS, SMB, CIFS, SMB2, FUSE, virtiofs, 9P, Ceph, AFS, Coda, Lustre, GPFS, VirtualBox, VMware, OCFS2, GFS2, BeeGFS, OrangeFS.
const SHARED: [u32; 17] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7375_7245,
    0x0bd0_0bd0,
    0x4750_4653,
    0x786f_4256,
    0xbacb_acbc,
    0x7461_636f,
    0x0116_1970,
    0x1983_0326,
    0x2003_0528,
];

impl FolderWatch {
    pub(super) fn add_subfolder(&mut self, path: &Path, depth: usize, sign: Sign, now_ns: u64) {
        if depth > MAX_DEPTH {
            let text = too_deep(&self.root, path);
            return self.leave_out(path, || text);
        }
        if self.folders.len() >= MAX_FOLDERS {
            return self.leave_out(path, || {
                format!(
                    "leaving out {}: visiond watches {MAX_FOLDERS} folders at most; move or remove old ones",
                    path.display()
                )
            });
        }
        match self.add_folder(path, depth, sign, now_ns) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                self.leave_out(path, || {
                    format!("cannot read the images in {}: {error}; they are left out", path.display())
                });
            }
            _ => {}
        }
    }

    /// Logs once that an entry is left out.
    pub(super) fn leave_out(&mut self, path: &Path, text: impl FnOnce() -> String) {
        if self.left_out.len() < MAX_LEFT_OUT && self.left_out.insert(path.to_owned()) {
            log::warn!("{}: {}", self.label, text());
        }
    }

    /// Watches a folder and lists it. The watch comes first, so that nothing is missed.
    pub(super) fn add_folder(&mut self, path: &Path, depth: usize, sign: Sign, now_ns: u64) -> io::Result<()> {
        let Some(fd) = self.watch_folder(path, depth, now_ns)? else { return Ok(()) };
        self.list(path, fd, sign, now_ns)?;
        // The root stands in for the folders without a watch.
        if depth > 0 {
            self.left_out.remove(path);
        }
        Ok(())
    }

    /// Returns the folder to list, or `None` if it is watched already.
    pub(super) fn watch_folder(&mut self, path: &Path, depth: usize, now_ns: u64) -> io::Result<Option<OwnedFd>> {
        let fd = open_folder(path, depth == 0, self.only.is_none())?;
        let stat = fstat(&fd)?;
        let id = (stat.st_dev, stat.st_ino);
        if self.folders.get(path).is_none_or(|folder| folder.id != id || folder.watch.is_none()) {
            let watch = self.add_watch(path, depth == 0);
            if let Some(other) = watch.and_then(|watch| self.by_watch.get(&watch)).filter(|other| *other != path) {
                let other = other.clone();
                // A folder that is mounted below itself would never end.
                if fs::metadata(&other).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == id) {
                    return Ok(None);
                }
                // It was renamed, and the event comes later.
                self.move_folder(&other, path);
            }
            let is_shared = fstatfs(&fd).is_ok_and(|found| SHARED.contains(&(found.f_type as u32)));
            #[cfg(test)]
            let is_shared = is_shared || self.shares_all;
            let before = self.folders.remove(path);
            self.scanned -= usize::from(before.as_ref().is_some_and(|folder| folder.is_scanned));
            let files = before.map(|folder| folder.files).unwrap_or_default();
            let folder = Folder {
                depth,
                id,
                watch,
                is_scanned: is_shared || watch.is_none(),
                is_shared,
                modified_ns: modified_ns(&stat),
                changed_ns: now_ns,
                listed_ns: now_ns,
                files,
            };
            if folder.is_scanned {
                self.scanned += 1;
                self.recent_folders.retain(|other| other != path);
                self.recent_folders.truncate(RECENT - 1);
                self.recent_folders.push_front(path.to_owned());
            }
            if let Some(watch) = watch {
                self.by_watch.insert(watch, path.to_owned());
            }
            self.folders.insert(path.to_owned(), folder);
        }
        Ok(Some(fd))
    }

    fn add_watch(&mut self, path: &Path, is_root: bool) -> Option<i32> {
        let inotify = self.inotify.as_ref()?;
        let flags = if is_root { EVENTS } else { EVENTS | WatchFlags::DONT_FOLLOW };
        match inotify::add_watch(inotify, path, flags) {
            Ok(watch) => Some(watch),
            Err(Errno::NOSPC) => {
                let (root, interval) = (self.root.clone(), self.interval);
                // One line for all folders.
                self.leave_out(&root, || {
                    format!(
                        "no inotify watch is left for {} and others: scanning them every {interval:?}; raise \
                         fs.inotify.max_user_watches",
                        path.display()
                    )
                });
                None
            }
            Err(_) => None,
        }
    }

    /// Compares a folder's list with the known state.
    pub(super) fn list(&mut self, path: &Path, fd: OwnedFd, sign: Sign, now_ns: u64) -> io::Result<()> {
        if let Some(only) = self.only.clone() {
            self.look(&path.join(only), sign, now_ns);
            return Ok(());
        }
        let Some(depth) = self.folders.get(path).map(|folder| folder.depth) else { return Ok(()) };
        let (mut found, mut subfolders) = (HashMap::new(), BTreeSet::new());
        let mut looks = Vec::new();
        for entry in Dir::new(fd)? {
            if self.is_stopping() {
                return Ok(());
            }
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = match entry.file_type() {
                FileType::Unknown => fs::symlink_metadata(path.join(name))
                    .map_or(FileType::Unknown, |metadata| FileType::from_raw_mode(metadata.mode())),
                kind => kind,
            };
            if kind == FileType::Directory {
                if self.recursive && !is_hidden(name) {
                    subfolders.insert(path.join(name));
                }
            } else if is_image_name(name) {
                let known = self.folders.get(path).and_then(|folder| folder.files.get(name));
                // The inode number in the folder shows a replaced file; its size and time need a lookup.
                let inode = entry.ino();
                #[cfg(test)]
                let inode = inode + self.inode_offset;
                let is_known = |file: &File| file.listed_inode.unwrap_or(file.state.inode) == inode;
                if sign != Sign::Checked || !known.is_some_and(is_known) {
                    looks.push(path.join(name));
                }
                found.insert(name.to_owned(), inode);
            }
        }
        let sign = if sign == Sign::Checked { Sign::Listed } else { sign };
        for file in looks {
            if self.is_stopping() {
                return Ok(());
            }
            self.look(&file, sign, now_ns);
        }
        let Some(folder) = self.folders.get_mut(path) else { return Ok(()) };
        let mut gone = Vec::new();
        for (name, file) in &mut folder.files {
            match found.get(name) {
                Some(inode) => file.listed_inode = Some(*inode),
                None => gone.push(name.clone()),
            }
        }
        for name in gone {
            if self.is_stopping() {
                return Ok(());
            }
            self.look(&path.join(name), Sign::Listed, now_ns);
        }
        let is_gone = |other: &&PathBuf| other.parent() == Some(path) && !subfolders.contains(*other);
        let gone: Vec<_> = subtree(&self.folders, path).filter(is_gone).cloned().collect();
        for folder in gone {
            if fs::symlink_metadata(&folder).is_err() {
                self.remove_folder(&folder);
            }
        }
        for subfolder in subfolders {
            if self.is_stopping() {
                return Ok(());
            }
            if sign != Sign::Listed || !self.folders.contains_key(&subfolder) || self.needs_resync {
                self.add_subfolder(&subfolder, depth + 1, sign, now_ns);
            }
        }
        Ok(())
    }

    pub(super) fn remove_folder(&mut self, path: &Path) {
        let paths: Vec<_> = subtree(&self.folders, path).cloned().collect();
        for path in paths {
            let Some(folder) = self.folders.remove(&path) else { continue };
            self.scanned -= usize::from(folder.is_scanned);
            if let Some((watch, inotify)) = folder.watch.zip(self.inotify.as_ref()) {
                self.by_watch.remove(&watch);
                // It was already removed together with its folder.
                let _ = inotify::remove_watch(inotify, watch);
            }
            for (name, file) in folder.files {
                self.growing.remove(&path.join(&name));
                self.links.remove(&path.join(&name));
                self.lost += u64::from(file.phase == Phase::Waiting);
            }
        }
    }

    /// A folder was renamed within the tree: images that were read stay read.
    pub(super) fn move_folder(&mut self, before: &Path, path: &Path) {
        if !self.folders.contains_key(before) {
            return;
        }
        self.remove_folder(path);
        let paths: Vec<_> = subtree(&self.folders, before).cloned().collect();
        for old in paths {
            let Some(folder) = self.folders.remove(&old) else { continue };
            let Ok(rest) = old.strip_prefix(before) else { continue };
            let new = if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) };
            if let Some(watch) = folder.watch {
                self.by_watch.insert(watch, new.clone());
            }
            for (name, file) in &folder.files {
                let (old, new) = (old.join(name), new.join(name));
                if let Some(growing) = self.growing.remove(&old) {
                    self.growing.insert(new.clone(), growing);
                }
                if self.links.remove(&old) {
                    self.links.insert(new.clone());
                }
                if file.phase == Phase::Waiting {
                    self.complete.push(new);
                }
            }
            let depth = self.depth(&new);
            self.folders.insert(new, Folder { depth, ..folder });
        }
    }

    pub(super) fn depth(&self, path: &Path) -> usize {
        path.components().count().saturating_sub(self.root.components().count())
    }
}

/// Opens a folder to list it, or only to identify it, which needs no read permission. Links are followed in the configured path,
/// but not below it.
pub(super) fn open_folder(path: &Path, is_root: bool, is_listed: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags |= if is_listed { OFlags::RDONLY } else { OFlags::PATH };
    if !is_root {
        flags |= OFlags::NOFOLLOW;
    }
    Ok(open(path, flags, Mode::empty())?)
}

pub(super) fn modified_ns(stat: &rustix::fs::Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Returns the folder `path` and those below it.
fn subtree<'a>(folders: &'a BTreeMap<PathBuf, Folder>, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    let from = folders.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
    from.map(|(path, _)| path).take_while(move |other| other.starts_with(path))
}
