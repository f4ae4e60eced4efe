//! Watches a folder, its subfolders or one file for pictures that are complete.
//!
//! ```text
//!               closed, renamed, or unchanged for a while          read
//! Growing ------------------------------------------------> Waiting ----> Read
//!    ^                                                         |            |
//!    +---------------- written or replaced <-------------------+------------+
//! ```
//!
//! inotify reports a picture that is complete: its writer has closed it, or renamed it. Nothing is done between the events, however
//! many files there are. Where inotify does not see every change (network file systems) or cannot be used (no instance or watch
//! left), folders are scanned instead: a folder is listed when its time has changed, a file is looked at when its number in the
//! folder has, and a bounded number of old files each time, because a file that is written in place changes nothing else. There, a
//! picture is complete when two looks found the same size and time; on a network file system, which caches both, when they stayed
//! the same for three seconds.
//!
//! A picture that is replaced or removed before it was read is lost, and counted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, fstatfs, open};
use rustix::io::Errno;
use visiond_system::stop::Stop;

use super::listing::{MAX_DEPTH, is_hidden, is_picture_name, leads_into, sort, too_deep};

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);

/// A file whose writer does not close it counts as complete when it has not changed for this long.
const OPEN_QUIET: Duration = Duration::from_secs(10);

/// A file whose closing may have been missed, or whose attributes are cached, counts as complete when it has not changed for this
/// long. NFS caches attributes for three seconds.
const SETTLE: Duration = Duration::from_secs(3);

/// The two events of a rename are not atomic: the second may come this much later.
const MOVE_PAIR: Duration = Duration::from_millis(20);

/// The most renames whose second event is awaited.
const MAX_MOVES: usize = 8192;

/// The longest wait between two looks at files that are not complete.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// Progress is recorded after this many files.
const PROGRESS: usize = 64;

/// A folder is listed again until its time has been the same for this long. Some servers keep whole seconds, FAT two.
const COARSE_TIME: Duration = Duration::from_secs(3);

/// How many folders, and how many files, a scan looks at, in turn.
const SCAN_BUDGET: usize = 256;

/// How many files, and how many folders, that changed last each scan looks at, before its turn.
const RECENT: usize = 64;

/// The most folders that are watched.
const MAX_FOLDERS: usize = 65_536;

/// The most events that are read at once.
const MAX_EVENTS: usize = 8192;

/// The most left-out folders that are remembered, so that each is logged once.
const MAX_LEFT_OUT: usize = 1000;

/// File systems that others change without an event here, by the numbers in linux/magic.h and the file systems' sources: NFS, SMB,
/// CIFS, SMB2, FUSE and virtiofs, 9P, Ceph, AFS, Coda, Lustre, GPFS, VirtualBox, VMware, OCFS2, GFS2, BeeGFS, OrangeFS.
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

pub(super) struct FolderWatch {
    root: PathBuf,
    /// The one file of interest, instead of all pictures.
    only: Option<OsString>,
    recursive: bool,
    interval: Duration,
    label: String,
    /// `None` if the user has no instance left.
    inotify: Option<OwnedFd>,
    init: InitInotify,
    /// Whether it was logged that there is no instance.
    lacks_inotify: bool,
    /// Ends long work.
    stop: Option<Stop>,
    is_interrupted: bool,
    steps: usize,
    folders: BTreeMap<PathBuf, Folder>,
    /// How many of them are scanned.
    scanned: usize,
    by_watch: HashMap<i32, PathBuf>,
    /// Renames whose other half may follow, by cookie.
    moves: HashMap<u32, (PathBuf, Moved)>,
    /// When each of them is given up, oldest first.
    move_deadlines: VecDeque<(u64, u32)>,
    /// Files that may not be complete.
    growing: BTreeMap<PathBuf, Growing>,
    /// Links to pictures: inotify does not report changes of the file that a link leads to.
    links: BTreeSet<PathBuf>,
    /// Files of scanned folders that changed last.
    recent: VecDeque<PathBuf>,
    /// Scanned folders that changed last.
    recent_folders: VecDeque<PathBuf>,
    /// Where the next turn goes on.
    folder_turn: PathBuf,
    file_turn: PathBuf,
    growing_turn: PathBuf,
    link_turn: PathBuf,
    last_tick_ns: u64,
    /// The folder was not listed yet.
    is_new: bool,
    /// The last look at the folder failed.
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
    /// Treats all folders as those of a network file system.
    #[cfg(test)]
    shares_all: bool,
    /// By how much the numbers in folders differ from those of the files, as on FUSE.
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
    /// When this time was seen first, and when the folder was listed last.
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
    /// Its number in the folder's list. On FUSE, it is another one than the file's.
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

    /// Whether nothing was written in between. Some file systems number inodes again: with each look, or when mounted again.
    fn is_same(&self, other: &Self, any_inode: bool) -> bool {
        self.bytes == other.bytes && self.modified_ns == other.modified_ns && (any_inode || self.inode == other.inode)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Empty, or not complete.
    Growing,
    /// Complete, and to be read.
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

/// Why a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// It was there at the start, or came with a folder that was renamed.
    Present,
    /// It was found in a list.
    Listed,
    /// It was created, perhaps to be written.
    Created,
    /// Its writer has closed it.
    Closed,
    /// It was renamed into its place.
    Renamed,
    /// Its turn has come.
    Checked,
}

struct Event {
    watch: i32,
    events: ReadFlags,
    cookie: u32,
    name: OsString,
}

impl FolderWatch {
    /// Watches the folder `root`, or one file in it. The first [`refresh`](Self::refresh) lists it: all pictures that are there are
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

    /// Handles what has happened. Does not wait. Returns whether the folder is back. Fails once when it has gone away.
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

    /// Takes the pictures that have become complete, in natural order.
    pub fn take_complete(&mut self) -> Vec<PathBuf> {
        let mut complete = std::mem::take(&mut self.complete);
        sort(&mut complete, &mut || self.is_stopping());
        complete
    }

    /// Takes the number of pictures that were replaced or removed before they were read.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Returns whether a complete picture is to be read now, as which it counts from then on. It is not if it was removed, or is
    /// written again.
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

    /// Takes back [`begin`](Self::begin): the picture was gone. It may have been renamed, otherwise it is lost.
    pub fn vanished(&mut self, path: &Path, now_ns: u64) {
        if let Some(file) = self.file(path).filter(|file| file.phase == Phase::Read) {
            file.phase = Phase::Waiting;
        }
        self.drain(now_ns);
        self.look(path, Sign::Checked, now_ns);
        // It was replaced meanwhile by one that looks the same.
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

    /// One step of long work. Returns whether to end it, after which everything is to be compared.
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
        self.only.as_deref().map_or_else(|| is_picture_name(name), |only| only == name)
    }

    // Events.

    fn drain(&mut self, now_ns: u64) {
        let events = self.read_events();
        // The rest comes next time, with the other halves of renames.
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

    /// Notes the first half of a rename.
    fn note_move(&mut self, cookie: u32, path: PathBuf, moved: Moved, now_ns: u64) {
        while self.moves.len() >= MAX_MOVES
            && let Some((_, oldest)) = self.move_deadlines.pop_front()
        {
            self.give_up(oldest);
        }
        self.moves.insert(cookie, (path, moved));
        self.move_deadlines.push_back((now_ns.saturating_add(MOVE_PAIR.as_nanos() as u64), cookie));
    }

    fn is_in_moved_folder(&self, path: &Path) -> bool {
        let mut moves = self.moves.values();
        moves.any(|(before, moved)| matches!(moved, Moved::Folder(_)) && path.starts_with(before))
    }

    /// The other half of a rename did not come: the file or folder has left the tree.
    fn give_up(&mut self, cookie: u32) {
        match self.moves.remove(&cookie) {
            Some((_, Moved::File(file))) => self.lost += u64::from(file.phase == Phase::Waiting),
            Some((path, Moved::Folder(id))) if self.folders.get(&path).is_some_and(|folder| folder.id == id) => {
                self.remove_folder(&path);
            }
            _ => {}
        }
    }

    fn read_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(inotify) = &self.inotify else { return events };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        // The reader takes as many from the kernel as fit into the buffer.
        while (events.len() < MAX_EVENTS || !reader.is_buffer_empty())
            && let Ok(event) = reader.next()
        {
            let name = event.file_name().map_or(&[][..], |name| name.to_bytes());
            let name = OsStr::from_bytes(name).to_owned();
            events.push(Event { watch: event.wd(), events: event.events(), cookie: event.cookie(), name });
        }
        events
    }

    fn handle(&mut self, event: Event, now_ns: u64) {
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
            // Another folder with the name of one that has gone.
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

    /// A known file got another name within the folder. One that was read is not read again.
    fn renamed(&mut self, path: &Path, moved: File, now_ns: u64) {
        let is_same = fs::metadata(path).is_ok_and(|metadata| FileState::of(&metadata).is_same(&moved.state, false));
        let is_link = is_link(path);
        let leads_out = is_link && self.recursive && !leads_into(&self.root, path);
        if !is_same || leads_out || moved.phase == Phase::Growing {
            return self.look(path, Sign::Renamed, now_ns);
        }
        // What had this name before is replaced.
        self.forget(path);
        if is_link {
            self.links.insert(path.to_owned());
        }
        self.insert(path, moved);
        if moved.phase == Phase::Waiting {
            self.complete.push(path.to_owned());
        }
    }

    // Files.

    fn insert(&mut self, path: &Path, file: File) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        if let Some(folder) = self.folders.get_mut(parent) {
            folder.files.insert(name.to_owned(), file);
        }
    }

    fn take_file(&mut self, path: &Path) -> Option<File> {
        self.growing.remove(path);
        self.links.remove(path);
        self.folders.get_mut(path.parent()?)?.files.remove(path.file_name()?)
    }

    /// Forgets a file that is gone. If it was to be read, it is lost.
    fn forget(&mut self, path: &Path) {
        let file = self.take_file(path);
        self.lost += u64::from(file.is_some_and(|file| file.phase == Phase::Waiting));
    }

    /// Looks at a file and decides whether it is complete.
    fn look(&mut self, path: &Path, sign: Sign, now_ns: u64) {
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
            // Opening makes a network file system ask the server. A file that cannot be opened keeps its cached attributes.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(opened) = open(path, flags, Mode::empty()) {
                found = fs::File::from(opened).metadata();
            }
        }
        let metadata = match found {
            Ok(metadata) if metadata.is_file() => metadata,
            // It may be back at once: a network file system that is away for a moment must not make all pictures new.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return,
            Err(_) if is_link(path) => {
                // The picture that it leads to may come.
                self.forget(path);
                self.links.insert(path.to_owned());
                return;
            }
            // Its folder has another name, under which it is listed, or has left the tree.
            Err(_) if is_event && self.is_in_moved_folder(path) => return,
            Err(_) if is_event => {
                // It was complete and is gone. The next event shows whether it was removed or renamed.
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
                // Several files were renamed to this name in turn, and this is the last one.
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
                // A picture that waits already has its place.
                if !is_waiting {
                    self.complete.push(path.to_owned());
                }
            }
            _ => {
                // The picture that was here was not read, and another file took its place.
                let is_replaced = before.is_some_and(|before| {
                    before.phase == Phase::Growing && before.state.bytes > 0 && before.state.inode != state.inode
                });
                self.lost += u64::from(!is_same && (is_waiting || (is_scanned && is_replaced)));
                let is_linked = is_link || metadata.nlink() > 1;
                let quiet = match sign {
                    Sign::Created if !is_linked => OPEN_QUIET,
                    Sign::Checked if !is_scanned && !is_link => OPEN_QUIET,
                    // Its writer may still have it open. If so, its closing is reported, or the server has more of it.
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

    // Folders.

    fn add_subfolder(&mut self, path: &Path, depth: usize, sign: Sign, now_ns: u64) {
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
                    format!("cannot read the pictures in {}: {error}; they are left out", path.display())
                });
            }
            _ => {}
        }
    }

    /// Logs once that something is left out.
    fn leave_out(&mut self, path: &Path, text: impl FnOnce() -> String) {
        if self.left_out.len() < MAX_LEFT_OUT && self.left_out.insert(path.to_owned()) {
            log::warn!("{}: {}", self.label, text());
        }
    }

    /// Watches a folder and lists it. The watch comes first, so that nothing is missed.
    fn add_folder(&mut self, path: &Path, depth: usize, sign: Sign, now_ns: u64) -> io::Result<()> {
        let Some(fd) = self.watch_folder(path, depth, now_ns)? else { return Ok(()) };
        self.list(path, fd, sign, now_ns)?;
        // The root stands for the folders without a watch.
        if depth > 0 {
            self.left_out.remove(path);
        }
        Ok(())
    }

    /// Returns the folder to list, or `None` if it is one that is watched already.
    fn watch_folder(&mut self, path: &Path, depth: usize, now_ns: u64) -> io::Result<Option<OwnedFd>> {
        let fd = open_folder(path, depth == 0, self.only.is_none())?;
        let stat = fstat(&fd)?;
        let id = (stat.st_dev, stat.st_ino);
        if self.folders.get(path).is_none_or(|folder| folder.id != id || folder.watch.is_none()) {
            let watch = self.add_watch(path, depth == 0);
            if let Some(other) = watch.and_then(|watch| self.by_watch.get(&watch)).filter(|other| *other != path) {
                let other = other.clone();
                // A folder that is mounted below itself would have no end.
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

    /// Compares a folder's list with what is known.
    fn list(&mut self, path: &Path, fd: OwnedFd, sign: Sign, now_ns: u64) -> io::Result<()> {
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
            } else if is_picture_name(name) {
                let known = self.folders.get(path).and_then(|folder| folder.files.get(name));
                // The number in the folder shows a file that took the place of another; its size and time take a look.
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

    fn remove_folder(&mut self, path: &Path) {
        let paths: Vec<_> = subtree(&self.folders, path).cloned().collect();
        for path in paths {
            let Some(folder) = self.folders.remove(&path) else { continue };
            self.scanned -= usize::from(folder.is_scanned);
            if let Some((watch, inotify)) = folder.watch.zip(self.inotify.as_ref()) {
                self.by_watch.remove(&watch);
                // It is gone already with a folder that was removed.
                let _ = inotify::remove_watch(inotify, watch);
            }
            for (name, file) in folder.files {
                self.growing.remove(&path.join(&name));
                self.links.remove(&path.join(&name));
                self.lost += u64::from(file.phase == Phase::Waiting);
            }
        }
    }

    /// A folder got another name within the tree: what was read stays read.
    fn move_folder(&mut self, before: &Path, path: &Path) {
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

    fn depth(&self, path: &Path) -> usize {
        path.components().count().saturating_sub(self.root.components().count())
    }

    // Turns.

    fn tick(&mut self, now_ns: u64) -> io::Result<()> {
        let found = fs::metadata(&self.root).inspect_err(|_| self.needs_resync = true)?;
        let id = (found.dev(), found.ino());
        if self.inotify.is_none() {
            // One may be free by now.
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
            // One that is growing was looked at in this turn.
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
        // Opening makes a network file system ask the server.
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
        // A list that breaks off is taken again next time.
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

    /// The files of scanned folders whose turn it is.
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

    /// Compares everything with what is known, because events were lost or the folder is another one.
    fn resync(&mut self, now_ns: u64) -> io::Result<()> {
        self.needs_resync = true;
        // Watches follow their folders, which may have other names by now.
        // The old instance goes first: it may be the user's last one.
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

fn init_inotify() -> rustix::io::Result<OwnedFd> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Whether the file has not been written for a while, by its time.
fn is_settled(metadata: &fs::Metadata) -> bool {
    metadata.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= SETTLE))
}

/// Opens a folder, to list it or only to identify it, for which it need not be readable. Of the path to the pictures, links are
/// followed; below it, they are not.
fn open_folder(path: &Path, is_root: bool, is_listed: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags |= if is_listed { OFlags::RDONLY } else { OFlags::PATH };
    if !is_root {
        flags |= OFlags::NOFOLLOW;
    }
    Ok(open(path, flags, Mode::empty())?)
}

fn modified_ns(stat: &rustix::fs::Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// The folder `path` and those below it.
fn subtree<'a>(folders: &'a BTreeMap<PathBuf, Folder>, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    let from = folders.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
    from.map(|(path, _)| path).take_while(move |other| other.starts_with(path))
}

fn after(path: &Path) -> (Bound<&Path>, Bound<&Path>) {
    (Bound::Excluded(path), Bound::Unbounded)
}

/// The next `count` paths, and where the turn after this one goes on: at the start when none is left.
fn take_turn<'a>(paths: impl Iterator<Item = &'a PathBuf>, count: usize) -> (Vec<PathBuf>, PathBuf) {
    let taken: Vec<_> = paths.take(count).cloned().collect();
    let last = if taken.len() == count { taken.last().cloned() } else { None };
    (taken, last.unwrap_or_default())
}

#[cfg(test)]
mod tests;
