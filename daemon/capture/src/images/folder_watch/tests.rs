//! Tests with the file operations of cameras, upload servers and people.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::symlink;

use rustix::io::Errno;
use tempfile::TempDir;

use super::super::listing::MAX_DEPTH;
use super::completeness::{OPEN_QUIET, SETTLE};
use super::events::{MAX_MOVES, MOVE_PAIR};
use super::scan::SCAN_BUDGET;
use super::*;

const INTERVAL: Duration = Duration::from_millis(500);

/// A watched folder, and the time.
struct Inbox {
    folder: TempDir,
    watch: FolderWatch,
    now: Duration,
}

impl Inbox {
    /// A folder with one old image, which was read.
    fn open(recursive: bool) -> Self {
        Self::with(recursive, |_| {}, true)
    }

    /// Like [`open`](Self::open), on a file system without inotify.
    fn scanned() -> Self {
        Self::with(true, |_| {}, false)
    }

    fn with(recursive: bool, fill: impl FnOnce(&Path), has_inotify: bool) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("old.png"), "old").unwrap();
        fill(folder.path());
        let inotify = if has_inotify { init_inotify } else { || Err(Errno::MFILE) };
        let watch =
            FolderWatch::with_inotify(folder.path(), None, recursive, INTERVAL, "camera test", 0, inotify).unwrap();
        let mut inbox = Self { folder, watch, now: Duration::ZERO };
        assert!(inbox.read().contains(&"old.png".to_owned()));
        assert_eq!(inbox.watch.is_scanned(), !has_inotify);
        inbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Replaces an image as a camera does.
    fn replace(&self, name: &str, text: &str) {
        self.write("new.tmp", text);
        self.rename("new.tmp", name);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Reads all complete images; returns their names in order of arrival.
    fn read(&mut self) -> Vec<String> {
        let now_ns = self.now.as_nanos() as u64;
        self.watch.refresh(now_ns).unwrap();
        let mut read = Vec::new();
        for path in self.watch.take_complete() {
            if self.watch.begin(&path, now_ns) {
                read.push(path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap().to_owned());
            }
        }
        read
    }

    /// Handles what has happened without reading.
    fn refresh(&mut self) {
        self.watch.refresh(self.now.as_nanos() as u64).unwrap();
    }

    /// Reads after each of `turns` intervals.
    fn read_for(&mut self, turns: usize) -> Vec<String> {
        (0..turns)
            .flat_map(|_| {
                self.pass(INTERVAL);
                self.read()
            })
            .collect()
    }
}

#[test]
fn a_picture_that_is_renamed_into_the_folder_is_complete_at_once() {
    let mut inbox = Inbox::open(false);
    inbox.replace("a.png", "1");
    assert_eq!(inbox.read(), ["a.png"]);
    inbox.replace("a.png", "2");
    assert_eq!(inbox.read(), ["a.png"], "as large as before");
    assert_eq!((inbox.read_for(30), inbox.watch.take_lost()), (vec![], 0));
}

#[test]
fn a_picture_that_is_written_in_place_is_complete_when_its_writer_closes_it() {
    let mut inbox = Inbox::open(false);
    let mut file = fs::File::create(inbox.path("a.png")).unwrap();
    file.write_all(b"half").unwrap();
    // A slow upload pauses for several scans.
    assert_eq!(inbox.read_for(15), [""; 0]);
    file.write_all(b" and half").unwrap();
    assert_eq!(inbox.read_for(15), [""; 0]);
    drop(file);
    assert_eq!(inbox.read(), ["a.png"]);
    inbox.write("a.png", "written again");
    assert_eq!(inbox.read(), ["a.png"]);
    // Closing it without a change does not make a new image.
    drop(fs::OpenOptions::new().append(true).open(inbox.path("a.png")).unwrap());
    assert_eq!((inbox.read_for(30), inbox.watch.take_lost()), (vec![], 0));
}

#[test]
fn a_picture_whose_writer_never_closes_it_is_complete_after_ten_quiet_seconds() {
    let mut inbox = Inbox::open(false);
    let mut file = fs::File::create(inbox.path("a.png")).unwrap();
    file.write_all(b"whole").unwrap();
    assert_eq!(inbox.read(), [""; 0]);
    inbox.pass(OPEN_QUIET - Duration::from_millis(1));
    assert_eq!(inbox.read(), [""; 0]);
    inbox.pass(INTERVAL);
    assert_eq!(inbox.read(), ["a.png"]);
    drop(file);
    assert_eq!(inbox.read(), [""; 0], "nothing was written since");
}

#[test]
fn each_picture_is_read_or_counted_as_lost() {
    let mut inbox = Inbox::open(false);
    for n in 0..35 {
        inbox.replace("latest.png", &n.to_string());
    }
    assert_eq!(inbox.read(), ["latest.png"]);
    assert_eq!(inbox.watch.take_lost(), 34);
    // Replaced, rewritten and removed between its turn and its reading.
    inbox.replace("latest.png", "a");
    inbox.watch.refresh(0).unwrap();
    inbox.replace("latest.png", "b");
    inbox.watch.refresh(0).unwrap();
    inbox.write("latest.png", "cc");
    let waiting = inbox.watch.take_complete();
    assert!(inbox.watch.begin(&waiting[0], 0));
    assert_eq!(inbox.watch.take_lost(), 2);
    inbox.write("gone.png", "x");
    inbox.watch.refresh(0).unwrap();
    fs::remove_file(inbox.path("gone.png")).unwrap();
    let waiting = inbox.watch.take_complete();
    assert!(!inbox.watch.begin(&waiting[0], 0));
    assert_eq!(inbox.watch.take_lost(), 1);
    inbox.write("short.png", "x");
    fs::remove_file(inbox.path("short.png")).unwrap();
    assert_eq!((inbox.read(), inbox.watch.take_lost()), (vec![], 1), "gone before visiond looked");
    assert_eq!((inbox.read_for(30), inbox.watch.take_lost()), (vec![], 0));
}

#[test]
fn a_picture_that_is_being_rewritten_when_its_turn_comes_is_read_when_it_is_whole() {
    let mut inbox = Inbox::open(false);
    inbox.write("a.png", "first");
    inbox.watch.refresh(0).unwrap();
    let mut file = fs::File::create(inbox.path("a.png")).unwrap();
    file.write_all(b"ha").unwrap();
    assert_eq!(inbox.read(), [""; 0]);
    file.write_all(b"lf").unwrap();
    drop(file);
    assert_eq!((inbox.read(), inbox.watch.take_lost()), (vec!["a.png".to_owned()], 1));
}

#[test]
fn a_picture_that_gets_another_name_is_read_once() {
    let mut inbox = Inbox::open(false);
    inbox.rename("old.png", "done.png");
    assert_eq!(inbox.read(), [""; 0], "read before");
    // The name under which it was uploaded ends as an image's.
    inbox.write("upload.png", "x");
    inbox.rename("upload.png", "final.png");
    assert_eq!(inbox.read(), ["final.png"]);
    inbox.write("upload.png", "yy");
    inbox.watch.refresh(0).unwrap();
    let waiting = inbox.watch.take_complete();
    inbox.rename("upload.png", "final.png");
    assert!(!inbox.watch.begin(&waiting[0], 0), "it has gone");
    assert_eq!(inbox.read(), ["final.png"]);
    // Between the begin and the reading.
    inbox.write("upload.png", "zzz");
    inbox.watch.refresh(0).unwrap();
    let waiting = inbox.watch.take_complete();
    assert!(inbox.watch.begin(&waiting[0], 0));
    inbox.rename("upload.png", "final.png");
    inbox.watch.vanished(&waiting[0], 0);
    assert_eq!((inbox.read(), inbox.watch.take_lost()), (vec!["final.png".to_owned()], 0));
    inbox.write("upload.png", "z");
    inbox.watch.refresh(0).unwrap();
    let waiting = inbox.watch.take_complete();
    assert!(inbox.watch.begin(&waiting[0], 0));
    fs::remove_file(inbox.path("upload.png")).unwrap();
    inbox.watch.vanished(&waiting[0], 0);
    assert_eq!((inbox.read(), inbox.watch.take_lost()), (vec![], 1), "it was removed");
}

#[test]
fn other_files_hidden_ones_and_links_in_a_flat_folder() {
    let mut inbox = Inbox::open(false);
    let other = TempDir::new().unwrap();
    let target = other.path().join("picture");
    fs::write(&target, "1").unwrap();
    inbox.write("notes.txt", "x");
    inbox.write(".hidden.png", "x");
    inbox.write("empty.png", "");
    fs::create_dir(inbox.path("folder.png")).unwrap();
    symlink(&target, inbox.path("link.png")).unwrap();
    fs::hard_link(&target, inbox.path("same.png")).unwrap();
    assert_eq!(inbox.read_for(3), ["link.png", "same.png"], "nobody closes a link");
    fs::write(&target, "another").unwrap();
    assert_eq!(inbox.read_for(3), ["link.png"], "the picture that the link leads to has changed");
    inbox.write("empty.png", "x");
    assert_eq!(inbox.read(), ["empty.png"]);
}

#[test]
fn pictures_of_dated_folders_that_appear_later_are_read_once() {
    for mut inbox in [Inbox::open(true), Inbox::scanned()] {
        fs::create_dir_all(inbox.path("2024/05")).unwrap();
        inbox.write("2024/05/early.png", "x");
        assert_eq!(inbox.read_for(8), ["2024/05/early.png"]);
        inbox.write("2024/05/late.png", "x");
        assert_eq!(inbox.read_for(8), ["2024/05/late.png"]);
        // Another program moves a whole folder in.
        let other = TempDir::new_in(inbox.folder.path().parent().unwrap()).unwrap();
        fs::create_dir_all(other.path().join("06/cam")).unwrap();
        fs::write(other.path().join("06/cam/1.png"), "x").unwrap();
        fs::rename(other.path().join("06"), inbox.path("2024/06")).unwrap();
        assert_eq!(inbox.read_for(8), ["2024/06/cam/1.png"]);
        inbox.write("2024/06/cam/2.png", "x");
        assert_eq!(inbox.read_for(8), ["2024/06/cam/2.png"]);
        fs::remove_dir_all(inbox.path("2024/05")).unwrap();
        assert_eq!(inbox.read_for(8), [""; 0]);
        fs::create_dir(inbox.path("2024/05")).unwrap();
        inbox.write("2024/05/early.png", "x");
        assert_eq!(inbox.read_for(8), ["2024/05/early.png"], "another one");
        assert_eq!(inbox.watch.take_lost(), 0);
    }
}

#[test]
fn a_folder_that_gets_another_name_has_nothing_new() {
    let mut inbox = Inbox::open(true);
    fs::create_dir_all(inbox.path("upload/a")).unwrap();
    inbox.write("upload/a/1.png", "x");
    assert_eq!(inbox.read_for(8), ["upload/a/1.png"]);
    inbox.write("upload/a/2.png", "x");
    inbox.watch.refresh(inbox.now.as_nanos() as u64).unwrap();
    let waiting = inbox.watch.take_complete();
    inbox.rename("upload", "2024");
    assert!(!inbox.watch.begin(&waiting[0], 0), "it is elsewhere");
    assert_eq!(inbox.read_for(3), ["2024/a/2.png"]);
    inbox.write("2024/a/3.png", "x");
    assert_eq!(inbox.read(), ["2024/a/3.png"], "its events have the new name");
    // Moved out of the tree: its later images do not belong to this folder.
    let other = TempDir::new_in(inbox.folder.path().parent().unwrap()).unwrap();
    fs::rename(inbox.path("2024"), other.path().join("2024")).unwrap();
    assert_eq!(inbox.read(), [""; 0]);
    fs::write(other.path().join("2024/a/4.png"), "x").unwrap();
    assert_eq!((inbox.read_for(3), inbox.watch.take_lost()), (vec![], 0));
}

#[test]
fn links_lead_neither_in_circles_nor_out_and_depth_has_a_bound() {
    for has_inotify in [true, false] {
        let other = TempDir::new().unwrap();
        fs::write(other.path().join("secret.png"), "x").unwrap();
        let deep = ["d"; MAX_DEPTH + 1].join("/");
        let mut inbox = Inbox::with(
            true,
            |folder| {
                fs::create_dir_all(folder.join("a").join(&deep)).unwrap();
                symlink(folder, folder.join("a/circle")).unwrap();
                symlink(other.path(), folder.join("a/out")).unwrap();
            },
            has_inotify,
        );
        symlink(other.path().join("secret.png"), inbox.path("secret.png")).unwrap();
        symlink(other.path(), inbox.path("out")).unwrap();
        fs::create_dir(inbox.path("late")).unwrap();
        symlink(inbox.folder.path(), inbox.path("late/circle")).unwrap();
        symlink("../old.png", inbox.path("late/inside.png")).unwrap();
        fs::write(inbox.path("a").join(&deep).join("deep.png"), "x").unwrap();
        assert_eq!(inbox.read_for(8), ["late/inside.png"]);
        assert_eq!(inbox.watch.folders.len(), 1 + 1 + MAX_DEPTH - 1 + 1, "root, a, those below it, late");
    }
}

#[test]
fn where_inotify_does_not_work_a_picture_is_complete_when_two_scans_found_it_the_same() {
    let mut inbox = Inbox::scanned();
    let mut file = fs::File::create(inbox.path("a.png")).unwrap();
    assert_eq!(inbox.read_for(3), [""; 0], "empty");
    for _ in 0..3 {
        file.write_all(b"more").unwrap();
        assert_eq!(inbox.read_for(1), [""; 0]);
    }
    assert_eq!(inbox.read_for(2), ["a.png"]);
    assert_eq!(inbox.read_for(30), [""; 0]);
    // Renamed over it, and written in place, which the folder's time does not show.
    inbox.replace("a.png", "another");
    assert_eq!(inbox.read_for(3), ["a.png"]);
    inbox.write("old.png", "written again");
    assert_eq!(inbox.read_for(3), ["old.png"]);
    assert_eq!(inbox.watch.take_lost(), 0);
    // Replaced between any two scans: it is never found the same, and each is counted.
    for n in 0..5 {
        inbox.replace("a.png", &"x".repeat(20 + n));
        assert_eq!(inbox.read_for(1), [""; 0]);
    }
    assert_eq!((inbox.read_for(3), inbox.watch.take_lost()), (vec!["a.png".to_owned()], 4));
}

#[test]
fn old_pictures_cost_nothing_with_inotify_and_a_bounded_number_of_looks_without() {
    const OLD: usize = 3000;
    let fill = |folder: &Path| (0..OLD).for_each(|n| fs::write(folder.join(format!("{n}.png")), "x").unwrap());
    for has_inotify in [true, false] {
        let mut inbox = Inbox::with(false, fill, has_inotify);
        // Until the folder's time has been the same for long enough.
        inbox.read_for(10);
        inbox.watch.looks = 0;
        assert_eq!(inbox.read_for(10), [""; 0]);
        let most = if has_inotify { 0 } else { 10 * (SCAN_BUDGET + RECENT) };
        assert!(inbox.watch.looks <= most, "{} looks", inbox.watch.looks);
        // One more image does not make visiond look at the others.
        inbox.write("new.png", "x");
        inbox.watch.looks = 0;
        assert_eq!(inbox.read_for(10), ["new.png"]);
        assert!(inbox.watch.looks <= most + 20, "{} looks", inbox.watch.looks);
        // Each file has its turn.
        inbox.write("1500.png", "written again");
        assert_eq!(inbox.read_for(2 + OLD.div_ceil(SCAN_BUDGET)), ["1500.png"]);
    }
}

#[test]
fn after_more_changes_than_the_kernel_queues_everything_is_compared() {
    let mut inbox = Inbox::open(true);
    let limit: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // Two events each: from a name to another.
    inbox.write("x.png", "x");
    for _ in 0..limit / 4 + 10 {
        inbox.rename("x.png", "y.png");
        inbox.rename("y.png", "x.png");
    }
    fs::create_dir(inbox.path("missed")).unwrap();
    inbox.write("missed/1.png", "x");
    inbox.write("old.png", "written again");
    let mut read = inbox.read_for(10);
    read.sort();
    assert_eq!(read, ["missed/1.png", "old.png", "x.png"]);
    inbox.write("missed/2.png", "x");
    assert_eq!(inbox.read(), ["missed/2.png"], "it is watched");
}

#[test]
fn the_two_events_of_a_rename_may_come_apart() {
    let mut inbox = Inbox::open(true);
    fs::create_dir(inbox.path("upload")).unwrap();
    inbox.write("upload/1.png", "x");
    assert_eq!(inbox.read_for(8), ["upload/1.png"]);
    for (before, after) in [("old.png", "done.png"), ("upload", "2024")] {
        inbox.rename(before, after);
        for event in inbox.watch.read_events() {
            let now_ns = inbox.now.as_nanos() as u64;
            inbox.watch.handle(event, now_ns);
            inbox.watch.drain(now_ns);
            inbox.pass(MOVE_PAIR / 2);
        }
        assert_eq!(inbox.read_for(10), [""; 0], "{after} was read before");
    }
    inbox.write("2024/2.png", "x");
    assert_eq!(inbox.read(), ["2024/2.png"]);
    // One that leaves the folder is lost, which shows without another event.
    let other = TempDir::new_in(inbox.folder.path().parent().unwrap()).unwrap();
    inbox.write("a.png", "x");
    inbox.refresh();
    fs::rename(inbox.path("a.png"), other.path().join("a.png")).unwrap();
    inbox.refresh();
    let now_ns = inbox.now.as_nanos() as u64;
    assert_eq!((inbox.watch.take_lost(), inbox.watch.next_tick_ns()), (0, now_ns + MOVE_PAIR.as_nanos() as u64));
    inbox.pass(MOVE_PAIR);
    assert_eq!((inbox.read(), inbox.watch.take_lost()), (vec![], 1));
}

#[test]
fn the_number_of_renames_that_are_awaited_has_a_bound() {
    let mut inbox = Inbox::open(false);
    let state = FileState { bytes: 1, modified_ns: 0, inode: 1 };
    let file = File { state, phase: Phase::Waiting, was_listed: false, listed_inode: None };
    for cookie in 1..=MAX_MOVES as u32 + 9 {
        inbox.watch.note_move(cookie, inbox.path("a.png"), Moved::File(file), 0);
    }
    assert_eq!((inbox.watch.moves.len(), inbox.watch.take_lost()), (MAX_MOVES, 9));
    assert!(!inbox.watch.moves.contains_key(&9) && inbox.watch.moves.contains_key(&10), "the oldest are given up");
}

#[test]
fn stop_ends_long_work() {
    let fill = |folder: &Path| (0..500).for_each(|n| fs::write(folder.join(format!("{n}.png")), "x").unwrap());
    for has_inotify in [true, false] {
        let mut inbox = Inbox::with(true, fill, has_inotify);
        fs::create_dir(inbox.path("late")).unwrap();
        fill(&inbox.path("late"));
        let stop = Stop::new().unwrap();
        stop.raise();
        inbox.watch.heed(&stop);
        (inbox.watch.looks, inbox.watch.needs_resync) = (0, true);
        inbox.pass(INTERVAL);
        inbox.refresh();
        assert_eq!((inbox.watch.looks, inbox.watch.needs_resync), (0, true));
        // Nothing is missed if the work continues.
        inbox.watch.heed(&Stop::new().unwrap());
        assert_eq!((inbox.read_for(10).len(), inbox.watch.needs_resync), (500, false));
    }
}

#[test]
fn a_link_that_leads_out_does_not_take_the_place_of_a_picture() {
    let mut inbox = Inbox::open(true);
    let other = TempDir::new().unwrap();
    fs::write(other.path().join("secret.png"), "x").unwrap();
    inbox.write("a.png", "x");
    inbox.refresh();
    let waiting = inbox.watch.take_complete();
    symlink(other.path().join("secret.png"), inbox.path("link.tmp")).unwrap();
    inbox.rename("link.tmp", "a.png");
    assert!(!inbox.watch.begin(&waiting[0], 0));
    assert_eq!((inbox.read_for(3), inbox.watch.take_lost()), (vec![], 1));
    assert!(inbox.watch.left_out.contains(&waiting[0]));
    // It is logged again if it leads out again.
    symlink("old.png", inbox.path("link.tmp")).unwrap();
    inbox.rename("link.tmp", "a.png");
    assert_eq!(inbox.read_for(3), ["a.png"]);
    assert!(inbox.watch.left_out.is_empty());
    // A relative link may lead out under another name.
    fs::create_dir(inbox.path("in")).unwrap();
    let name = inbox.folder.path().file_name().unwrap().to_owned();
    symlink(Path::new("../../").join(other.path().file_name().unwrap()).join("secret.png"), inbox.path("in/b.png"))
        .unwrap();
    symlink(Path::new("..").join(&name).join("old.png"), inbox.path("c.png")).unwrap();
    assert_eq!(inbox.read_for(8), ["c.png"]);
}

#[test]
fn a_picture_that_was_found_in_a_list_is_whole_when_it_is_closed_or_quiet() {
    let mut inbox = Inbox::open(true);
    fs::create_dir(inbox.path("late")).unwrap();
    let mut file = fs::File::create(inbox.path("late/a.png")).unwrap();
    file.write_all(b"half").unwrap();
    inbox.write("late/done.png", "x");
    inbox.write("late/old.png", "x");
    set_age(&inbox.path("late/old.png"), SETTLE);
    assert_eq!(inbox.read_for(2), ["late/old.png"], "it was not written lately");
    file.write_all(b" and half").unwrap();
    assert_eq!(inbox.read_for(5), ["late/done.png"]);
    drop(file);
    assert_eq!(inbox.read(), ["late/a.png"]);
    assert_eq!((inbox.read_for(30), inbox.watch.take_lost()), (vec![], 0));
}

fn set_age(path: &Path, age: Duration) {
    let time = std::time::SystemTime::now() - age;
    fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn on_a_network_file_system_a_picture_is_complete_after_its_attributes_were_asked_for_and_stayed_the_same() {
    let mut inbox = Inbox::scanned();
    inbox.watch.shares_all = true;
    inbox.watch.folders.values_mut().for_each(|folder| folder.is_shared = true);
    inbox.write("a.png", "half");
    assert_eq!(inbox.read_for(5), [""; 0]);
    assert!(inbox.watch.opens >= 4, "{} opens", inbox.watch.opens);
    inbox.write("a.png", "half and half");
    assert_eq!(inbox.read_for(6), [""; 0]);
    assert_eq!(inbox.read_for(2), ["a.png"]);
    inbox.watch.opens = 0;
    assert_eq!((inbox.read_for(10), inbox.watch.opens), (vec![], 0), "old ones are not opened");
    inbox.write("new.tmp", "x");
    set_age(&inbox.path("new.tmp"), SETTLE);
    inbox.rename("new.tmp", "b.png");
    assert_eq!(inbox.read_for(2), ["b.png"], "it was not written lately");
}

#[test]
fn on_a_network_file_system_a_picture_that_is_written_again_settles_again() {
    let mut inbox = Inbox::scanned();
    inbox.watch.shares_all = true;
    inbox.watch.folders.values_mut().for_each(|folder| folder.is_shared = true);
    inbox.write("new.tmp", "half");
    set_age(&inbox.path("new.tmp"), SETTLE);
    inbox.rename("new.tmp", "a.png");
    // Found, though not yet a second time.
    assert_eq!(inbox.read_for(1), [""; 0]);
    inbox.write("a.png", "half and half");
    assert_eq!(inbox.read_for(4), [""; 0], "its writer may have more");
    assert_eq!(inbox.read_for(5), ["a.png"]);
}

#[test]
fn an_empty_picture_stays_in_sight_where_inotify_does_not_work() {
    let fill = |folder: &Path| (0..2000).for_each(|n| fs::write(folder.join(format!("{n}.png")), "x").unwrap());
    let mut inbox = Inbox::with(false, fill, false);
    inbox.write("1.a.png", "");
    assert_eq!(inbox.read_for(10), [""; 0]);
    inbox.write("1.a.png", "x");
    assert_eq!(inbox.read_for(2), ["1.a.png"]);
}

#[test]
fn a_list_with_other_numbers_than_the_files_does_not_make_every_file_new() {
    let fill = |folder: &Path| (0..2000).for_each(|n| fs::write(folder.join(format!("{n}.png")), "x").unwrap());
    let mut inbox = Inbox::with(false, fill, false);
    inbox.watch.inode_offset = 1 << 40;
    inbox.write("a.png", "x");
    assert_eq!(inbox.read_for(10), ["a.png"]);
    inbox.watch.looks = 0;
    inbox.write("b.png", "x");
    assert_eq!(inbox.read_for(10), ["b.png"]);
    assert!(inbox.watch.looks <= 10 * (SCAN_BUDGET + RECENT) + 20, "{} looks", inbox.watch.looks);
}

#[test]
fn a_long_interval_does_not_delay_what_is_not_complete() {
    let mut inbox = Inbox::open(true);
    inbox.watch.interval = Duration::from_secs(3600);
    assert!(inbox.watch.next_tick_ns() >= 3600 * 1_000_000_000);
    symlink("missing.jpg", inbox.path("link.tmp")).unwrap();
    inbox.rename("link.tmp", "a.png");
    assert_eq!(inbox.read(), [""; 0], "the picture that it leads to is missing");
    inbox.write("other.txt", "x");
    inbox.rename("other.txt", "missing.jpg");
    assert_eq!(inbox.read(), ["missing.jpg"]);
    for _ in 0..2 {
        inbox.now = Duration::from_nanos(inbox.watch.next_tick_ns());
        let read = inbox.read();
        assert!(read.is_empty() || read == ["a.png"]);
    }
    assert!(inbox.now <= Duration::from_secs(3), "{:?}", inbox.now);
    assert_eq!(inbox.watch.file(&inbox.folder.path().join("a.png")).unwrap().phase, Phase::Read);
    fs::remove_file(inbox.path("a.png")).unwrap();
    inbox.refresh();
    assert!(inbox.watch.next_tick_ns() >= 3600 * 1_000_000_000, "there is no link any more");
    inbox.watch.needs_resync = true;
    assert!(inbox.watch.next_tick_ns() <= 4_000_000_000);
}

#[test]
fn inotify_is_used_when_an_instance_is_free_again() {
    thread_local! {
        static FAILURES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    let mut inbox = Inbox::open(true);
    fs::create_dir(inbox.path("a")).unwrap();
    inbox.read_for(2);
    inbox.watch.init = || match FAILURES.get() {
        0 => init_inotify(),
        failures => {
            FAILURES.set(failures - 1);
            Err(Errno::MFILE)
        }
    };
    FAILURES.set(2);
    inbox.watch.needs_resync = true;
    inbox.read_for(1);
    assert!(inbox.watch.is_scanned() && inbox.watch.inotify.is_none());
    inbox.read_for(2);
    assert!(!inbox.watch.is_scanned());
    inbox.write("a/1.png", "x");
    assert_eq!(inbox.read(), ["a/1.png"]);
}
