//! Handles inotify's events of a watched folder: files that are created, closed, renamed and removed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, ReadFlags};

use super::super::listing::{is_hidden, leads_into};
use super::completeness::is_link;
use super::{File, FileState, FolderWatch, Moved, Phase, Sign};

/// The two events of a rename are not atomic: the second may come this much later.
pub(super) const MOVE_PAIR: Duration = Duration::from_millis(20);

/// The most renames whose second event is awaited.
pub(super) const MAX_MOVES: usize = 8192;

/// The most events to read at once.
const MAX_EVENTS: usize = 8192;

pub(super) struct Event {
    watch: i32,
    events: ReadFlags,
    cookie: u32,
    name: OsString,
}

impl FolderWatch {
    pub(super) fn drain(&mut self, now_ns: u64) {
        let events = self.read_events();
        // The rest is read next time, including the second events of renames.
        let is_all = events.len() < MAX_EVENTS;
        for event in events {
            if self.is_stopping() {
                return;
            }
            self.handle(event, now_ns);
        }
        while let Some(&(deadline_ns, cookie)) = self.move_deadlines.front()
            && ((is_all && deadline_ns <= now_ns) || !self.moves.contains_key(&cookie))
        {
            self.move_deadlines.pop_front();
            self.give_up(cookie);
        }
    }

    /// Notes the first event of a rename.
    pub(super) fn note_move(&mut self, cookie: u32, path: PathBuf, moved: Moved, now_ns: u64) {
        while self.moves.len() >= MAX_MOVES
            && let Some((_, oldest)) = self.move_deadlines.pop_front()
        {
            self.give_up(oldest);
        }
        self.moves.insert(cookie, (path, moved));
        self.move_deadlines.push_back((now_ns.saturating_add(MOVE_PAIR.as_nanos() as u64), cookie));
    }

    pub(super) fn is_in_moved_folder(&self, path: &Path) -> bool {
        let mut moves = self.moves.values();
        moves.any(|(before, moved)| matches!(moved, Moved::Folder(_)) && path.starts_with(before))
    }

    /// The second event of a rename did not come: the file or folder has left the tree.
    fn give_up(&mut self, cookie: u32) {
        match self.moves.remove(&cookie) {
            Some((_, Moved::File(file))) => self.lost += u64::from(file.phase == Phase::Waiting),
            Some((path, Moved::Folder(id))) if self.folders.get(&path).is_some_and(|folder| folder.id == id) => {
                self.remove_folder(&path);
            }
            _ => {}
        }
    }

    pub(super) fn read_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(inotify) = &self.inotify else { return events };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        // The reader takes as many events from the kernel as fit into the buffer.
        while (events.len() < MAX_EVENTS || !reader.is_buffer_empty())
            && let Ok(event) = reader.next()
        {
            let name = event.file_name().map_or(&[][..], |name| name.to_bytes());
            let name = OsStr::from_bytes(name).to_owned();
            events.push(Event { watch: event.wd(), events: event.events(), cookie: event.cookie(), name });
        }
        events
    }

    pub(super) fn handle(&mut self, event: Event, now_ns: u64) {
        if event.events.contains(ReadFlags::QUEUE_OVERFLOW) {
            log::warn!("{}: inotify queue overflow in {}: comparing all files", self.label, self.root.display());
            self.needs_resync = true;
            return;
        }
        let Some(parent) = self.by_watch.get(&event.watch).cloned() else { return };
        let is_unmounted = event.events.contains(ReadFlags::UNMOUNT);
        if is_unmounted || event.events.contains(ReadFlags::IGNORED) {
            self.by_watch.remove(&event.watch);
            if let Some(folder) = self.folders.get_mut(&parent) {
                folder.watch = None;
            }
            if is_unmounted || parent == self.root {
                self.needs_resync = true;
            } else {
                self.remove_folder(&parent);
            }
            return;
        }
        let path = parent.join(&event.name);
        if event.events.contains(ReadFlags::ISDIR) {
            if self.recursive && !event.name.is_empty() {
                self.handle_folder(&event, path, now_ns);
            }
            return;
        }
        if event.events.contains(ReadFlags::MOVED_FROM) {
            if let Some(file) = self.take_file(&path) {
                self.note_move(event.cookie, path, Moved::File(file), now_ns);
            }
        } else if event.events.contains(ReadFlags::DELETE) {
            self.forget(&path);
        } else if self.is_wanted(&event.name) {
            if event.events.contains(ReadFlags::MOVED_TO) {
                match self.moves.remove(&event.cookie) {
                    Some((_, Moved::File(file))) => self.renamed(&path, file, now_ns),
                    _ => self.look(&path, Sign::Renamed, now_ns),
                }
            } else if event.events.contains(ReadFlags::CLOSE_WRITE) {
                self.look(&path, Sign::Closed, now_ns);
            } else {
                self.look(&path, Sign::Created, now_ns);
            }
        }
    }

    fn handle_folder(&mut self, event: &Event, path: PathBuf, now_ns: u64) {
        if event.events.contains(ReadFlags::MOVED_FROM) {
            if let Some(id) = self.folders.get(&path).map(|folder| folder.id) {
                self.note_move(event.cookie, path, Moved::Folder(id), now_ns);
            }
        } else if event.events.contains(ReadFlags::DELETE) {
            self.remove_folder(&path);
        } else if !is_hidden(&event.name) {
            let depth = self.depth(&path);
            let moved = self.moves.remove(&event.cookie);
            // A different folder with the name of one that no longer exists.
            let gone =
                self.moves.iter().find(|(_, (before, moved))| *before == path && matches!(moved, Moved::Folder(_)));
            if let Some(cookie) = gone.map(|(cookie, _)| *cookie) {
                self.give_up(cookie);
            }
            let is_known = |before: &Path, id| self.folders.get(before).is_some_and(|folder| folder.id == id);
            let sign = match moved {
                Some((before, Moved::Folder(id))) if is_known(&before, id) => {
                    self.move_folder(&before, &path);
                    Sign::Listed
                }
                _ if event.events.contains(ReadFlags::MOVED_TO) => Sign::Present,
                _ => Sign::Listed,
            };
            self.add_subfolder(&path, depth, sign, now_ns);
        }
    }

    /// A known file was renamed within the folder. If it was read, it is not read again.
    fn renamed(&mut self, path: &Path, moved: File, now_ns: u64) {
        let is_same = fs::metadata(path).is_ok_and(|metadata| FileState::of(&metadata).is_same(&moved.state, false));
        let is_link = is_link(path);
        let leads_out = is_link && self.recursive && !leads_into(&self.root, path);
        if !is_same || leads_out || moved.phase == Phase::Growing {
            return self.look(path, Sign::Renamed, now_ns);
        }
        // The file that had this name before is replaced.
        self.forget(path);
        if is_link {
            self.links.insert(path.to_owned());
        }
        self.insert(path, moved);
        if moved.phase == Phase::Waiting {
            self.complete.push(path.to_owned());
        }
    }
}
