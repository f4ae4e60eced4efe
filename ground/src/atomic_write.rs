//! Writes a file completely or not at all, even if the power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes `bytes` to a temporary file beside `path`, syncs it to disk, and renames it to `path`.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    write_atomically_by(&folder.join(format!(".{name}.{}.part", std::process::id())), path, bytes)
}

/// Like [`write_atomically`], with a temporary file of that name in the same folder.
pub fn write_atomically_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = write(temporary, bytes).and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        // Do not leave a partial file on a disk that may be full.
        let _ = fs::remove_file(temporary);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Also sync the directory, so that the rename survives. Some file systems do not support this.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Creates a file and replaces anything with its name: a file that a killed process left, or a link or FIFO, which would lead
/// elsewhere or block.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_temporary_file_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let [path, temporary, other] = ["file", "part", "other"].map(|name| folder.path().join(name));
        fs::write(&other, b"precious").unwrap();
        std::os::unix::fs::symlink(&other, &temporary).unwrap();
        write_atomically_by(&temporary, &path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"new".to_vec(), b"precious".to_vec()));
    }

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
