//! Opens the spool's files, and sets aside anything in their place that cannot be read.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use visiond_system::outage::explain;
use visiond_system::preflight::folder_of;

/// The end of the name of a file that was set aside.
const SET_ASIDE: &str = "unreadable";
/// How many files of one name can be set aside.
const MOST_SET_ASIDE: u32 = 1000;

/// Opens a plain file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Opening a FIFO would block, and a link could lead to a file of another program.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

/// Creates a folder and its missing parents; returns the folders to sync so that a power cut does not undo it.
pub fn create_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    Ok(missing.into_iter().map(|made| folder_of(made).to_owned()).collect())
}

/// Syncs the names in a folder to disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // The file system does not support this, or a folder of another user cannot be opened.
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported | PermissionDenied) => Ok(()),
        other => other,
    }
}

pub fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
}

/// Whether the process or the machine currently lacks a resource, so that the file itself may be fine.
pub fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

/// Moves a file that cannot be read because of `error` out of the way by renaming it, and logs that.
pub fn set_aside(path: &Path, error: &io::Error) -> io::Result<()> {
    let to = rename_aside(path)?;
    let (path, to, reason) = (path.display(), to.display(), explain(error));
    log::error!("cannot read {path}: {reason}; renamed it to {to} and continued without it");
    Ok(())
}

/// Moves a file out of the way by renaming it; returns its new name.
pub fn rename_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |number| match number {
        0 => format!("{}.{SET_ASIDE}", path.display()),
        _ => format!("{}.{SET_ASIDE}.{number}", path.display()),
    };
    let is_free = |name: &PathBuf| fs::symlink_metadata(name).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let free = (0..MOST_SET_ASIDE).map(|number| PathBuf::from(name(number))).find(is_free);
    let to = free.ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(path, &to)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot rename {}: {error}", path.display())))?;
    Ok(to)
}
