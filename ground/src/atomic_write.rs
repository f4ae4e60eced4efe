//! Writes a file completely or not at all, even if the power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Writes `bytes` to a temporary file beside `path`, syncs it to disk, and renames it to `path`.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    write_atomically_by(&folder.join(format!(".{name}.{}.part", std::process::id())), path, bytes)
}

/// Replaces the content of the file `path` completely or not at all. The file keeps its owner, group and permissions, and a link
/// leads to it as before.
///
/// # Errors
/// The file does not exist, or a new one in its folder cannot be written or cannot have its owner and group.
pub fn replace_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = path.canonicalize()?;
    let old = fs::metadata(&path)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let write = || {
        // Private until it has the permissions: the content may be secret.
        let mut file = create_with(&temporary, OpenOptions::new().mode(0o600))?;
        let new = file.metadata()?;
        // Not in vain: the service's sandbox forbids the call.
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    rename_or_remove(&temporary, &path, write())
}

/// Like [`write_atomically`], with a temporary file of that name in the same folder.
pub fn write_atomically_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = || {
        let mut file = create(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    rename_or_remove(temporary, path, write())
}

/// Puts a file that was written to its place.
fn rename_or_remove(temporary: &Path, path: &Path, written: io::Result<()>) -> io::Result<()> {
    let written = written.and_then(|()| fs::rename(temporary, path));
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

/// Creates a file and replaces anything with its name: a file that a killed process left, or a link or FIFO, which would lead
/// elsewhere or block.
pub fn create(path: &Path) -> io::Result<File> {
    create_with(path, &mut OpenOptions::new())
}

fn create_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options.write(true).create_new(true).open(path)
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
    fn a_replaced_file_keeps_its_permissions_and_the_link_to_it() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["visiond.toml", "link"].map(|name| folder.path().join(name));
        replace_atomically(&path, b"new").unwrap_err();
        for mode in [0o640, 0o604, 0o400] {
            fs::write(&path, b"old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink("visiond.toml", &link).unwrap();
            replace_atomically(&link, b"new").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
            assert!(link.is_symlink() && fs::read_dir(folder.path()).unwrap().count() == 2);
            fs::remove_file(&path).unwrap();
        }
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
