//! Sockets in the file system: made in place of a stale one, never of a served one, and removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's name in the file system; removed when dropped, if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    /// Changes who may connect.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
    }
}

/// Makes the socket `path` with these permissions, and does not wait on it. One that nobody serves is replaced; a served
/// one, and anything else of that name, is left alone.
pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let shown = path.display();
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => format!("{shown} is too long for a socket: at most 107 bytes"),
        io::ErrorKind::NotFound => format!("{shown} cannot be made: {error}; make its folder"),
        io::ErrorKind::PermissionDenied => {
            format!("{shown} cannot be made: {error}; give visiond's user the right to write there")
        }
        _ => format!("{shown} cannot be made: {error}"),
    })?;
    let prepared = listener
        .set_nonblocking(true)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::symlink_metadata(path));
    let found = prepared.map_err(|error| format!("{shown} cannot be prepared: {error}"))?;
    let socket = SocketFile { path: path.to_owned(), id: (found.dev(), found.ino()) };
    Ok((listener, socket))
}

/// Removes a socket file that nobody serves. Fails on a served one and on what is no socket.
fn remove_stale(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // Whatever is wrong with the folder, binding says it better.
        Err(_) => return Ok(()),
    };
    if !found.file_type().is_socket() {
        return Err(format!("{shown} exists and is no socket: name another path, or remove it"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| format!("{shown} is stale but cannot be removed: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{shown} exists, and whether somebody serves it cannot be told: {error}")),
        Ok(_) => Err(format!("{shown} is served by another process: end that one, or name another path")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}
