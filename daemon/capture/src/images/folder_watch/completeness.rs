//! Examines one file of a watched folder, and decides whether its image is complete.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use super::super::listing::leads_into;
use super::{File, FileState, FolderWatch, Growing, Phase, RECENT, Sign};

/// A file whose writer does not close it is complete when it has not changed for this long.
pub(super) const OPEN_QUIET: Duration = Duration::from_secs(10);

/// A file whose close event may have been missed, or whose attributes are cached, is complete when it has not changed for this
/// long. NFS caches attributes for three seconds.
pub(super) const SETTLE: Duration = Duration::from_secs(3);

impl FolderWatch {
    pub(super) fn insert(&mut self, path: &Path, file: File) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        if let Some(folder) = self.folders.get_mut(parent) {
            folder.files.insert(name.to_owned(), file);
        }
    }

    pub(super) fn take_file(&mut self, path: &Path) -> Option<File> {
        self.growing.remove(path);
        self.links.remove(path);
        self.folders.get_mut(path.parent()?)?.files.remove(path.file_name()?)
    }

    /// Forgets a file that no longer exists. If it was waiting to be read, it is lost.
    pub(super) fn forget(&mut self, path: &Path) {
        let file = self.take_file(path);
        self.lost += u64::from(file.is_some_and(|file| file.phase == Phase::Waiting));
    }

    /// Examines a file and decides whether it is complete.
    pub(super) fn look(&mut self, path: &Path, sign: Sign, now_ns: u64) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let is_event = matches!(sign, Sign::Closed | Sign::Renamed);
        let Some(folder) = path.parent().and_then(|parent| self.folders.get(parent)) else { return };
        let (is_scanned, is_shared) = (folder.is_scanned, folder.is_shared);
        let mut found = fs::metadata(path);
        if is_shared && self.growing.contains_key(path) && found.as_ref().is_ok_and(fs::Metadata::is_file) {
            #[cfg(test)]
            {
                self.opens += 1;
            }
            // Opening the file makes a network file system query the server. If it cannot be opened, its cached attributes remain.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(opened) = open(path, flags, Mode::empty()) {
                found = fs::File::from(opened).metadata();
            }
        }
        let metadata = match found {
            Ok(metadata) if metadata.is_file() => metadata,
            // It may return at once: a short outage of a network file system must not make all images count as new.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return,
            Err(_) if is_link(path) => {
                // The target image may appear later.
                self.forget(path);
                self.links.insert(path.to_owned());
                return;
            }
            // Its folder was renamed and is listed under the new name, or has left the tree.
            Err(_) if is_event && self.is_in_moved_folder(path) => return,
            Err(_) if is_event => {
                // It was complete and no longer exists. The next event shows whether it was removed or renamed.
                let state = FileState { bytes: 0, modified_ns: 0, inode: 0 };
                self.forget(path);
                return self.insert(path, File { state, phase: Phase::Waiting, was_listed: false, listed_inode: None });
            }
            _ => return self.forget(path),
        };
        let is_link = is_link(path);
        if is_link && self.recursive && !leads_into(&self.root, path) {
            self.forget(path);
            return self.leave_out(path, || {
                format!("leaving out {}: it is a link that leads out of the folder; copy the picture", path.display())
            });
        }
        if is_link {
            self.links.insert(path.to_owned());
            self.left_out.remove(path);
        }
        let state = FileState::of(&metadata);
        let before = self.file(path).copied();
        let is_same = before.is_some_and(|before| before.state.is_same(&state, is_scanned || sign == Sign::Listed));
        let is_waiting = before.is_some_and(|before| before.phase == Phase::Waiting);
        let was_listed = matches!(sign, Sign::Listed | Sign::Present);
        let listed_inode = before.and_then(|before| before.listed_inode);
        let mut file = File { state, phase: Phase::Growing, was_listed, listed_inode };
        match before {
            // Empty files are about to be written.
            _ if state.bytes == 0 => {
                self.lost += u64::from(is_waiting);
                self.growing.remove(path);
                self.insert(path, file);
                self.note_recent(path, is_scanned);
            }
            Some(before) if is_same && before.phase != Phase::Growing => {
                // Several files were renamed to this name in turn; this is the last one.
                self.lost += u64::from(is_waiting && sign == Sign::Renamed && !before.was_listed);
                file.phase = before.phase;
                file.was_listed = before.was_listed && !is_event;
                self.insert(path, file);
            }
            _ if is_event || sign == Sign::Present => {
                self.lost += u64::from(is_waiting);
                file.phase = Phase::Waiting;
                self.growing.remove(path);
                self.insert(path, file);
                self.note_recent(path, is_scanned);
                // A waiting image already has its place in the queue.
                if !is_waiting {
                    self.complete.push(path.to_owned());
                }
            }
            _ => {
                // The previous image was not read, and another file replaced it.
                let is_replaced = before.is_some_and(|before| {
                    before.phase == Phase::Growing && before.state.bytes > 0 && before.state.inode != state.inode
                });
                self.lost += u64::from(!is_same && (is_waiting || (is_scanned && is_replaced)));
                let is_linked = is_link || metadata.nlink() > 1;
                let quiet = match sign {
                    Sign::Created if !is_linked => OPEN_QUIET,
                    Sign::Checked if !is_scanned && !is_link => OPEN_QUIET,
                    // Its writer may still have it open. If so, a close event follows, or the server has more data.
                    _ if (is_shared || (sign == Sign::Listed && !is_scanned)) && !is_settled(&metadata) => SETTLE,
                    _ => Duration::ZERO,
                };
                let growing = self.growing.entry(path.to_owned()).or_insert(Growing { since_ns: now_ns, quiet });
                if sign == Sign::Created || (!is_same && (is_shared || !is_linked)) {
                    growing.quiet = growing.quiet.max(quiet);
                }
                if !is_same {
                    growing.since_ns = now_ns;
                } else if sign == Sign::Checked
                    && now_ns.saturating_sub(growing.since_ns) >= growing.quiet.as_nanos() as u64
                {
                    self.growing.remove(path);
                    file.phase = Phase::Waiting;
                    self.complete.push(path.to_owned());
                }
                self.insert(path, file);
                self.note_recent(path, is_scanned);
            }
        }
    }

    fn note_recent(&mut self, path: &Path, is_scanned: bool) {
        if is_scanned && !self.recent.iter().any(|other| other == path) {
            self.recent.truncate(RECENT - 1);
            self.recent.push_front(path.to_owned());
        }
    }
}

/// Whether the file has not been written for a while, by its modification time.
fn is_settled(metadata: &fs::Metadata) -> bool {
    metadata.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= SETTLE))
}

pub(super) fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}
