//! Remembers images that crashed visiond, so that a restart does not read them again.
//!
//! An image that crashes a decoder, or makes the kernel kill visiond for its memory, would do so at every start. So visiond writes
//! a note into its state folder before it reads an image, and removes it afterwards. A note that is still there when the source
//! opens names the image that was being read at the crash. That image is skipped until its size or time changes.
//!
//! A note costs three system calls of a few microseconds per image, and is not synced: an image does not cause a power cut.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// The folder within the state folder.
const FOLDER: &str = "pictures";

/// The longest note or list to read.
const MAX_BYTES: u64 = 1 << 20;

/// Identifies an image, and changes when the image is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Picture {
    /// Arbitrary bytes, not only text.
    path: OsString,
    bytes: u64,
    modified_ns: u128,
}

impl Picture {
    /// Describes the image at `path`; `None` if it does not exist.
    fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Self { path: path.into(), bytes: metadata.len(), modified_ns: modified.as_nanos() })
    }

    fn is_unchanged(&self) -> bool {
        Self::at(Path::new(&self.path)).as_ref() == Some(self)
    }
}

/// The images of one camera that crashed visiond.
#[derive(Debug, Default)]
pub struct Quarantine {
    pictures: Vec<Picture>,
    /// Names the image that is being read; empty in between. `None` without a state folder.
    note: Option<File>,
}

impl Quarantine {
    /// Loads the list of the camera `name`, and logs each image that is skipped. Without a state folder nothing is remembered.
    pub fn open(state: Option<&Path>, name: &str) -> Self {
        let Some(state) = state else { return Self::default() };
        let folder = state.join(FOLDER);
        Self::read(&folder, name).unwrap_or_else(|error| {
            let folder = folder.display();
            log::warn!("camera {name}: cannot note in {folder} which image is being read, continuing without: {error}");
            Self::default()
        })
    }

    fn read(folder: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let list = folder.join(format!("{name}.skipped"));
        let mut pictures: Vec<Picture> = match fs::metadata(&list) {
            Ok(metadata) if metadata.len() <= MAX_BYTES => {
                serde_json::from_slice(&fs::read(&list)?).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let note = folder.join(format!("{name}.reading"));
        let note = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(note)?;
        let left = if note.metadata()?.len() <= MAX_BYTES { io::read_to_string(&note)? } else { String::new() };
        // A partial note comes from a power cut.
        pictures.extend(serde_json::from_str::<Picture>(&left));
        pictures.retain(Picture::is_unchanged);
        let temporary = folder.join(format!("{name}.skipped.new"));
        fs::write(&temporary, serde_json::to_vec(&pictures)?)?;
        fs::rename(&temporary, &list)?;
        note.set_len(0)?;
        for Picture { path, .. } in &pictures {
            let path = Path::new(path).display();
            log::warn!(
                "camera {name}: skipping {path}: visiond ended while it read this image; to try again, replace it or change its \
                 time (`touch {path}`)"
            );
        }
        Ok(Self { pictures, note: Some(note) })
    }

    /// Whether no image is skipped.
    pub fn is_empty(&self) -> bool {
        self.pictures.is_empty()
    }

    /// Whether the image at `path` crashed visiond and is unchanged.
    pub fn holds(&self, path: &Path) -> bool {
        self.pictures.iter().any(|picture| picture.path == path && picture.is_unchanged())
    }

    /// Notes that reading the image at `path` starts now.
    pub fn begin(&self, path: &Path) {
        let Some(note) = &self.note else { return };
        let written = serde_json::to_vec(&Picture::at(path)).map_err(io::Error::from);
        if let Err(error) = written.and_then(|bytes| note.write_all_at(&bytes, 0)) {
            log::debug!("cannot note that {} is read: {error}", path.display());
        }
    }

    /// Notes that the image was read.
    pub fn end(&self) {
        // Only a full or broken disk fails here, and then `begin` has failed before.
        let _ = self.note.as_ref().map(|note| note.set_len(0));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    fn picture(folder: &TempDir, name: &[u8], bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(OsString::from_vec(name.to_vec()));
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn the_picture_that_was_being_read_is_skipped_until_it_changes() {
        let (folder, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let open = |name| Quarantine::open(Some(state.path()), name);
        let (good, bad) = (picture(&folder, b"good.png", b"12"), picture(&folder, b"b\xffd\n.png", b"123"));
        let first = open("door");
        first.begin(&good);
        first.end();
        first.begin(&bad);
        drop(first);
        // Every later start remembers it, no matter which other images are read.
        for _ in 0..2 {
            let later = open("door");
            assert!(later.holds(&bad) && !later.holds(&good));
            later.begin(&good);
            later.end();
        }
        assert!(open("gate").is_empty(), "another camera's");
        let later = open("door");
        later.begin(&good);
        drop(later);
        let both = open("door");
        assert!(both.holds(&bad) && both.holds(&good) && !both.is_empty());
        fs::write(&bad, b"1234").unwrap();
        assert!(!both.holds(&bad), "it was replaced");
        fs::remove_file(&good).unwrap();
        assert!(open("door").is_empty());
    }

    #[test]
    fn a_damaged_memory_and_none_at_all_stop_nothing() {
        let (folder, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let bad = picture(&folder, b"bad.png", b"123");
        fs::create_dir(state.path().join(FOLDER)).unwrap();
        for name in ["door.skipped", "door.reading"] {
            fs::write(state.path().join(FOLDER).join(name), b"{\"path\":\"/\xff").unwrap();
        }
        let damaged = Quarantine::open(Some(state.path()), "door");
        damaged.begin(&bad);
        drop(damaged);
        Quarantine::open(Some(&bad), "door").begin(&bad);
        Quarantine::open(None, "door").begin(&bad);
    }
}
