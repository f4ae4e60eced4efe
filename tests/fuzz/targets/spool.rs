//! The folder of a spool: an even first byte, any files; an odd one, a spool that a disk has damaged.
//!
//! Records are read as they were written, in order, or not at all, and the spool keeps working.

#![no_main]
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use visiond_publish::fuzz::{spool, spool_damage};

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.unwrap()
});

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((kind, data)) if kind % 2 == 0 => spool(FOLDER.path(), data),
    Some((_, data)) => spool_damage(FOLDER.path(), data),
    None => {}
});
