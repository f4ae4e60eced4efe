//! A camera's clips in a folder: complete files only, and a limited number and size of them.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use visiond_annotate::picture_folder::{event_file, is_event};
use visiond_config::types::ClipsConfig;
use visiond_ground::atomic_write::create;
use visiond_message::event_id;
use visiond_system::preflight::may_make;

/// The extension of clips.
const EXTENSION: &str = "mp4";

/// Suffix of files that are still being written.
const TEMPORARY: &str = ".visiond-part";

/// The clips of one camera.
#[derive(Debug)]
pub struct ClipFolder {
    directory: PathBuf,
    camera: String,
    keep: usize,
    max_bytes: u64,
    /// Stored clips with their sizes, oldest first, as the folder had them when it was last read. The recorder of the configuration
    /// before a reload may add some.
    stored: VecDeque<(PathBuf, u64)>,
    /// The size of the clips that were under way then.
    under_way: u64,
    is_open: bool,
}

/// Returns the name of the clip of an event: `door-5d0c9f3ab1e2774f-e7.mp4`.
pub fn clip_name(camera: &str, event: &str) -> String {
    event_file(camera, event, EXTENSION)
}

impl ClipFolder {
    /// Finds out whether [`ClipFolder::open`] would fail, without touching the folder.
    pub fn check(directory: &Path) -> io::Result<()> {
        may_make(directory)?;
        match fs::read_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Prepares to use a folder, without touching it yet.
    pub fn new(config: &ClipsConfig, camera: &str) -> Self {
        let ClipsConfig { directory, keep, max_bytes, .. } = config;
        let (directory, camera) = (directory.clone(), camera.to_owned());
        let stored = VecDeque::new();
        Self { directory, camera, keep: *keep, max_bytes: *max_bytes, stored, under_way: 0, is_open: false }
    }

    /// Creates the folder if it is missing, removes what a killed process left of this camera's clips, and lists the others. Does nothing
    /// if that was done before.
    pub fn open(&mut self) -> io::Result<()> {
        if self.is_open {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        self.try_writing()?;
        self.read()?;
        self.remove_old();
        self.is_open = true;
        Ok(())
    }

    /// Reads which clips the folder has, and how large those under way are. The first time, removes what a killed process left.
    fn read(&mut self) -> io::Result<()> {
        let mut found: BTreeMap<PathBuf, (SystemTime, u64)> = BTreeMap::new();
        let mut under_way = 0;
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_part = self.part_of(&name).is_some();
            if !self.is_open && self.is_left_over(&name) {
                // Another program may have removed it.
                let _ = fs::remove_file(entry.path());
            } else if (is_part || self.event_of(&name).is_some())
                && let Ok(clip) = entry.metadata()
                && clip.is_file()
            {
                match is_part {
                    true => under_way += clip.len(),
                    false => drop(found.insert(entry.path(), (clip.modified()?, clip.len()))),
                }
            }
        }
        // The order of those that are known does not depend on the clock, which may be set.
        self.stored.retain(|(path, _)| found.remove(path).is_some());
        let mut new: Vec<_> = found.into_iter().map(|(path, (time, bytes))| (time, path, bytes)).collect();
        new.sort_by_cached_key(|(time, path, _)| (*time, path.as_os_str().len(), path.clone()));
        self.stored.extend(new.into_iter().map(|(_, path, bytes)| (path, bytes)));
        self.under_way = under_way;
        Ok(())
    }

    /// Reads the folder again, and removes the oldest clips until the rest and those under way are within the limits.
    pub fn make_room(&mut self) {
        // Of a folder that cannot be read now, what was there counts; the next clip says what is wrong.
        let _ = self.read();
        self.remove_old();
    }

    /// Creates the file in which a clip is written, under a temporary name.
    pub fn create(&mut self, name: &str) -> io::Result<File> {
        self.open()?;
        create(&self.temporary(name))
    }

    /// Gives a clip that is written and synced its name, which survives a power cut.
    pub fn keep(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let path = self.directory.join(name);
        fs::rename(self.temporary(name), &path)?;
        // Some file systems do not support this.
        let _ = File::open(&self.directory).and_then(|folder| folder.sync_all());
        // Others have come before it, of which this one does not know yet.
        let _ = self.read();
        if self.stored.back().is_none_or(|(last, _)| *last != path) {
            self.stored.retain(|(known, _)| *known != path);
            self.stored.push_back((path, bytes));
        }
        self.remove_old();
        Ok(())
    }

    /// Removes the file of a clip that is not kept.
    pub fn discard(&self, name: &str) {
        let _ = fs::remove_file(self.temporary(name));
    }

    fn remove_old(&mut self) {
        let mut bytes: u64 = self.under_way + self.stored.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let is_too_much = |count: usize, bytes: u64| {
            self.keep > 0 && count > self.keep || self.max_bytes > 0 && bytes > self.max_bytes
        };
        // The newest stays, however large it is.
        while self.stored.len() > 1 && is_too_much(self.stored.len(), bytes) {
            let Some((oldest, size)) = self.stored.pop_front() else { return };
            bytes -= size;
            match fs::remove_file(&oldest) {
                Ok(()) => {}
                // Another program has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => log::warn!("cannot remove {}: {error}", oldest.display()),
            }
        }
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join(format!(".{name}{TEMPORARY}"))
    }

    /// Makes an unwritable folder an error at the start.
    fn try_writing(&self) -> io::Result<()> {
        // Images may be in the same folder, and have a temporary file of the camera's name.
        let temporary = self.temporary(&format!("{}.{EXTENSION}", self.camera));
        match create(&temporary) {
            Ok(_) => fs::remove_file(&temporary),
            // A disk that is full now may have room later.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the event whose clip of this camera has this name.
    fn event_of<'a>(&self, name: &'a OsStr) -> Option<&'a str> {
        let rest = name.to_str()?.strip_prefix(&self.camera)?.strip_prefix('-')?;
        rest.strip_suffix(EXTENSION)?.strip_suffix('.').filter(|event| is_event(event))
    }

    /// Returns the event whose unfinished clip of this camera has this name.
    fn part_of<'a>(&self, name: &'a OsStr) -> Option<&'a str> {
        let clip = name.to_str()?.strip_prefix('.')?.strip_suffix(TEMPORARY)?;
        self.event_of(OsStr::new(clip))
    }

    /// Whether a file is what another process wrote of a clip of this camera. Clips that this process writes may be those of the
    /// configuration before a reload.
    fn is_left_over(&self, name: &OsStr) -> bool {
        let process = |event: &str| event.split_once('-').map(|(process, _)| process.to_owned());
        self.part_of(name).is_some_and(|event| process(event) != process(&event_id(0)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn folder(directory: &Path, keep: usize, max_bytes: u64) -> ClipFolder {
        let directory = directory.to_owned();
        ClipFolder::new(&ClipsConfig { directory, keep, max_bytes, ..ClipsConfig::default() }, "door")
    }

    fn store(folder: &mut ClipFolder, event: u64, bytes: usize) -> String {
        let name = clip_name("door", &event_id(event));
        folder.create(&name).unwrap().write_all(&vec![0; bytes]).unwrap();
        folder.keep(&name, bytes as u64).unwrap();
        name
    }

    #[test]
    fn the_newest_clips_are_kept_by_number_and_by_size_and_nothing_else_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let others = ["door-2-0123456789abcdef-e1.mp4", "door-0123456789abcdef-e1.jpg", "door-copy.mp4", "notes.txt"];
        others.iter().for_each(|name| fs::write(dir.path().join(name), "x").unwrap());
        let with = |kept: &[&String]| {
            let mut names: Vec<_> = kept.iter().map(|name| (*name).clone()).collect();
            names.extend(others.map(str::to_owned));
            names.sort();
            names
        };
        let mut clips = folder(dir.path(), 2, 0);
        let stored: Vec<_> = (0..4).map(|event| store(&mut clips, event, 10)).collect();
        assert_eq!(names(dir.path()), with(&[&stored[2], &stored[3]]));
        // A later process counts them as well.
        let mut clips = folder(dir.path(), 0, 25);
        let fifth = store(&mut clips, 4, 5);
        assert_eq!(names(dir.path()), with(&[&stored[2], &stored[3], &fifth]));
        let sixth = store(&mut clips, 5, 15);
        assert_eq!(names(dir.path()), with(&[&fifth, &sixth]));
    }

    #[test]
    fn clips_under_way_and_those_of_the_recorder_before_a_reload_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut before = folder(dir.path(), 0, 100);
        let first = store(&mut before, 0, 30);
        let late = clip_name("door", &event_id(1));
        let mut file = before.create(&late).unwrap();
        let mut after = folder(dir.path(), 0, 100);
        let second = store(&mut after, 2, 30);
        file.write_all(&[0; 40]).unwrap();
        after.make_room();
        assert!(dir.path().join(&first).exists(), "100 bytes, of which 40 are under way");
        file.write_all(&[0; 1]).unwrap();
        after.make_room();
        assert!(!dir.path().join(&first).exists() && dir.path().join(&second).exists());
        before.keep(&late, 41).unwrap();
        let third = store(&mut after, 3, 40);
        let mut kept = vec![late, third];
        kept.sort();
        assert_eq!(names(dir.path()), kept, "the late one came after the second");
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_clips_under_way_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = folder(dir.path(), 2, 0);
        let name = clip_name("door", &event_id(7));
        running.create(&name).unwrap();
        let left = |camera| format!(".{}{TEMPORARY}", clip_name(camera, "0123456789abcdef-e1"));
        ["door", "yard"].iter().for_each(|camera| fs::write(dir.path().join(left(camera)), "x").unwrap());
        folder(dir.path(), 2, 0).open().unwrap();
        let mut expected = vec![format!(".{name}{TEMPORARY}"), left("yard")];
        expected.sort();
        assert_eq!(names(dir.path()), expected);
        running.discard(&name);
        assert_eq!(names(dir.path()), [left("yard")]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(folder(&file, 2, 0).open().is_err() && ClipFolder::check(&file).is_err());
        assert!(ClipFolder::check(&dir.path().join("new")).is_ok());
        let mut new = folder(&dir.path().join("new"), 2, 0);
        new.open().unwrap();
        fs::remove_dir(dir.path().join("new")).unwrap();
        assert!(new.create("door.mp4").is_err());
    }
}
