//! Watches a folder, its subfolders or one file for complete images.
//!
//! ```text
//!               closed, renamed, or unchanged for a while          read
//! Growing ------------------------------------------------> Waiting ----> Read
//!    ^                                                         |            |
//!    +---------------- written or replaced <-------------------+------------+
//! ```
//!
//! inotify reports a complete image: its writer has closed it, or renamed it. Between the events there is no work, however many
//! files exist. Where inotify does not see every change (network file systems) or cannot be used (no instance or watch left),
//! folders are scanned instead: a folder is listed when its modification time changes, and a file is examined when its inode
//! number in the folder changes. Each scan also examines a bounded number of old files, because writing a file in place
//! changes neither. In scanned folders, an image is complete when two checks find the same size and time; on a network file
//! system, which caches both, they must stay the same for three seconds.
//!
//! An image that is replaced or removed before it was read is lost, and counted.

mod completeness;
mod events;
mod scan;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags};
use visiond_system::stop::Stop;

use super::listing::{is_image_name, sort};

/// The longest wait between two checks of files that are not complete.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// Progress is recorded after this many files.
const PROGRESS: usize = 64;

/// How many of the most recently changed files, and folders, each scan examines before the others.
const RECENT: usize = 64;

pub(super) struct FolderWatch {
    root: PathBuf,
    /// The only file to watch, instead of all images.
    only: Option<OsString>,
    recursive: bool,
    interval: Duration,
    label: String,
    /// `None` if the user has no inotify instance left.
    inotify: Option<OwnedFd>,
    init: InitInotify,
    /// Whether the missing instance was logged.
    lacks_inotify: bool,
    /// Ends long work.
    stop: Option<Stop>,
    is_interrupted: bool,
    steps: usize,
    folders: BTreeMap<PathBuf, Folder>,
    /// How many of them are scanned.
    scanned: usize,
    by_watch: HashMap<i32, PathBuf>,
    /// Renames whose second event may follow, by cookie.
    moves: HashMap<u32, (PathBuf, Moved)>,
    /// When to give up each of them, oldest first.
    move_deadlines: VecDeque<(u64, u32)>,
    /// Files that may not be complete.
    growing: BTreeMap<PathBuf, Growing>,
    /// Links to images: inotify does not report changes of a link's target.
    links: BTreeSet<PathBuf>,
    /// The most recently changed files of scanned folders.
    recent: VecDeque<PathBuf>,
    /// The most recently changed scanned folders.
    recent_folders: VecDeque<PathBuf>,
    /// Where the next scan continues.
    folder_turn: PathBuf,
    file_turn: PathBuf,
    growing_turn: PathBuf,
    link_turn: PathBuf,
    last_tick_ns: u64,
    /// The folder was not listed yet.
    is_new: bool,
    /// The last check of the folder failed.
    is_away: bool,
    /// Events were lost, or the folder was replaced.
    needs_resync: bool,
    left_out: HashSet<PathBuf>,
    complete: Vec<PathBuf>,
    lost: u64,
    #[cfg(test)]
    looks: usize,
    #[cfg(test)]
    opens: usize,
    /// Treats all folders like those of a network file system.
    #[cfg(test)]
    shares_all: bool,
    /// The difference between the inode numbers of folder entries and of the files, as on FUSE.
    #[cfg(test)]
    inode_offset: u64,
}

/// Creates an inotify instance.
type InitInotify = fn() -> rustix::io::Result<OwnedFd>;

struct Folder {
    depth: usize,
    /// Device and inode.
    id: (u64, u64),
    watch: Option<i32>,
    is_scanned: bool,
    /// It is on a file system that caches attributes.
    is_shared: bool,
    modified_ns: i128,
    /// When this time was first seen, and when the folder was last listed.
    changed_ns: u64,
    listed_ns: u64,
    files: BTreeMap<OsString, File>,
}

#[derive(Debug, Clone, Copy)]
struct File {
    state: FileState,
    phase: Phase,
    /// The event of its arrival may still follow.
    was_listed: bool,
    /// Its inode number in the folder's list. On FUSE it differs from the file's.
    listed_inode: Option<u64>,
}

/// Changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    bytes: u64,
    modified_ns: i128,
    inode: u64,
}

impl FileState {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { bytes: metadata.len(), modified_ns, inode: metadata.ino() }
    }

    /// Whether the file is unchanged. Some file systems assign new inode numbers at each lookup or mount.
    fn is_same(&self, other: &Self, any_inode: bool) -> bool {
        self.bytes == other.bytes && self.modified_ns == other.modified_ns && (any_inode || self.inode == other.inode)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Empty or incomplete.
    Growing,
    /// Complete, waiting to be read.
    Waiting,
    Read,
}

#[derive(Debug, Clone, Copy)]
struct Growing {
    since_ns: u64,
    quiet: Duration,
}

enum Moved {
    File(File),
    /// With its device and inode.
    Folder((u64, u64)),
}

/// Why a file is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// It existed at the start, or came with a renamed folder.
    Present,
    /// It was found in a listing.
    Listed,
    /// It was created, and may be written next.
    Created,
    /// Its writer has closed it.
    Closed,
    /// It was renamed into its place.
    Renamed,
    /// It was the file's turn in a scan.
    Checked,
}

impl FolderWatch {
    /// Watches the folder `root`, or one file in it. The first [`refresh`](Self::refresh) lists it: all images that exist then are
    /// complete.
    pub fn open(
        root: &Path,
        only: Option<&OsStr>,
        recursive: bool,
        interval: Duration,
        label: &str,
        now_ns: u64,
    ) -> io::Result<Self> {
        Self::with_inotify(root, only, recursive, interval, label, now_ns, init_inotify)
    }

    fn with_inotify(
        root: &Path,
        only: Option<&OsStr>,
        recursive: bool,
        interval: Duration,
        label: &str,
        now_ns: u64,
        init: InitInotify,
    ) -> io::Result<Self> {
        let mut watch = Self {
            root: root.to_owned(),
            only: only.map(OsStr::to_owned),
            recursive: recursive && only.is_none(),
            interval,
            label: label.to_owned(),
            inotify: None,
            init,
            lacks_inotify: false,
            stop: None,
            is_interrupted: false,
            steps: 0,
            folders: BTreeMap::new(),
            scanned: 0,
            by_watch: HashMap::new(),
            moves: HashMap::new(),
            move_deadlines: VecDeque::new(),
            growing: BTreeMap::new(),
            links: BTreeSet::new(),
            recent: VecDeque::new(),
            recent_folders: VecDeque::new(),
            folder_turn: PathBuf::new(),
            file_turn: PathBuf::new(),
            growing_turn: PathBuf::new(),
            link_turn: PathBuf::new(),
            last_tick_ns: now_ns,
            is_new: true,
            is_away: false,
            needs_resync: false,
            left_out: HashSet::new(),
            complete: Vec::new(),
            lost: 0,
            #[cfg(test)]
            looks: 0,
            #[cfg(test)]
            opens: 0,
            #[cfg(test)]
            shares_all: false,
            #[cfg(test)]
            inode_offset: 0,
        };
        watch.inotify = watch.new_inotify();
        watch.watch_folder(root, 0, now_ns)?;
        Ok(watch)
    }

    /// Makes `stop` end long work, in which progress is recorded.
    pub fn heed(&mut self, stop: &Stop) {
        self.stop = Some(stop.clone());
        self.is_interrupted = false;
    }

    /// Handles the events so far, without waiting. Returns whether the folder is back. Fails once when the folder has disappeared.
    pub fn refresh(&mut self, now_ns: u64) -> io::Result<bool> {
        let listed = std::mem::take(&mut self.is_new).then(|| {
            let root = self.root.clone();
            self.add_folder(&root, 0, Sign::Present, now_ns)
        });
        self.drain(now_ns);
        let result = match listed {
            Some(result) => result,
            None if now_ns < self.tick_due_ns() => return Ok(false),
            None => {
                self.last_tick_ns = now_ns;
                self.tick(now_ns)
            }
        };
        match result {
            Ok(()) => Ok(std::mem::take(&mut self.is_away)),
            Err(error) => {
                self.needs_resync = true;
                if std::mem::replace(&mut self.is_away, true) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Takes the images that have become complete, in natural order.
    pub fn take_complete(&mut self) -> Vec<PathBuf> {
        let mut complete = std::mem::take(&mut self.complete);
        sort(&mut complete, &mut || self.is_stopping());
        complete
    }

    /// Takes the number of images that were replaced or removed before they were read.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Returns whether a complete image is to be read now; from then on it counts as read. False if it was removed or is being
    /// rewritten.
    pub fn begin(&mut self, path: &Path, now_ns: u64) -> bool {
        self.drain(now_ns);
        if self.file(path).is_none_or(|file| file.phase != Phase::Waiting) {
            return false;
        }
        self.look(path, Sign::Checked, now_ns);
        let Some(file) = self.file(path).filter(|file| file.phase == Phase::Waiting) else { return false };
        file.phase = Phase::Read;
        true
    }

    /// Undoes [`begin`](Self::begin) for an image that has disappeared. It was either renamed or lost.
    pub fn vanished(&mut self, path: &Path, now_ns: u64) {
        if let Some(file) = self.file(path).filter(|file| file.phase == Phase::Read) {
            file.phase = Phase::Waiting;
        }
        self.drain(now_ns);
        self.look(path, Sign::Checked, now_ns);
        // Another file of the same size and time has replaced it.
        if self.file(path).is_some_and(|file| file.phase == Phase::Waiting) {
            self.complete.push(path.to_owned());
        }
    }

    /// The descriptor that is readable when something has happened.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// When [`refresh`](Self::refresh) has something to do without an event.
    pub fn next_tick_ns(&self) -> u64 {
        let due_ns = self.tick_due_ns();
        self.move_deadlines.front().map_or(due_ns, |(deadline_ns, _)| due_ns.min(*deadline_ns))
    }

    fn tick_due_ns(&self) -> u64 {
        let is_busy = self.needs_resync || !self.growing.is_empty() || !self.links.is_empty();
        let interval = if is_busy { self.interval.min(BUSY_INTERVAL) } else { self.interval };
        self.last_tick_ns.saturating_add(interval.as_nanos() as u64)
    }

    /// Records one step of long work. Returns whether to stop; everything must then be compared later.
    fn is_stopping(&mut self) -> bool {
        let Some(stop) = &self.stop else { return false };
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(PROGRESS) {
            stop.mark_progress();
        }
        if stop.is_raised() {
            self.is_interrupted = true;
            self.needs_resync = true;
        }
        self.is_interrupted
    }

    fn new_inotify(&mut self) -> Option<OwnedFd> {
        let created = (self.init)();
        if let Err(error) = &created
            && !self.lacks_inotify
        {
            log::warn!(
                "{}: cannot watch {} by inotify: {error}; scanning it every {:?}; raise fs.inotify.max_user_instances",
                self.label,
                self.root.display(),
                self.interval
            );
        }
        self.lacks_inotify = created.is_err();
        created.ok()
    }

    /// Whether events alone do not show every change.
    pub fn is_scanned(&self) -> bool {
        self.scanned > 0
    }

    fn file(&mut self, path: &Path) -> Option<&mut File> {
        self.folders.get_mut(path.parent()?)?.files.get_mut(path.file_name()?)
    }

    fn is_wanted(&self, name: &OsStr) -> bool {
        self.only.as_deref().map_or_else(|| is_image_name(name), |only| only == name)
    }
}

fn init_inotify() -> rustix::io::Result<OwnedFd> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

#[cfg(test)]
mod tests;
