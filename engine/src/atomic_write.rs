//! Files that are there whole or not at all, also when the power goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes `bytes` beside `path` under another name, makes the disk keep them, and gives them the name.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.part", std::process::id()));
    let written = write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it takes room on a disk that may have none.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    // The name is in the folder, which some file systems cannot be asked to keep.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.engine");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        write_atomically(&taken, b"x").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
