//! Unix sockets in the file system: each replaces a stale one, never one in use, and is removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::outage::explain;

/// The file of a socket; dropping it removes the file, if it is still this socket's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    /// Sets the permissions: who may connect.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
    }
}

/// Creates the non-blocking socket `path` with these permissions. Replaces a stale socket, but no other file.
///
/// The error is a sentence that names the path, because users only read it.
pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let shown = path.display();
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            format!("cannot make the socket {shown}: the path has more than 107 bytes: choose a shorter one")
        }
        _ => format!("cannot make the socket {shown}: {}", explain(&error)),
    })?;
    let prepared = listener
        .set_nonblocking(true)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::symlink_metadata(path));
    let found = prepared.map_err(|error| format!("cannot set up the socket {shown}: {error}"))?;
    let socket = SocketFile { path: path.to_owned(), id: (found.dev(), found.ino()) };
    Ok((listener, socket))
}

/// Removes a stale socket. Fails on one in use, and on any other file.
fn remove_stale(path: &Path) -> Result<(), String> {
    let shown = path.display();
    // If the folder is the problem, the error of bind(2) says so.
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(format!("{shown} exists and is not a socket: name another path, or remove the file"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| format!("cannot remove the stale socket {shown}: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot find out whether another process serves {shown}: {error}")),
        Ok(_) => Err(format!("{shown} is served by another process: stop that process, or name another path")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}
