//! Unix sockets in the file system: each replaces a stale one, never one in use, and is removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::outage::explain;
use crate::preflight::{Certainty, Resource, folder_of, is_other_socket, is_served, may_create_in, may_write};

/// The longest path of a socket in bytes: `sun_path` has one more, for the NUL.
const LONGEST_PATH: usize = 107;

/// Why a socket cannot be created; each text names its path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path is too long for the kernel.
    #[error("cannot create the socket {0}: the path has more than 107 bytes: choose a shorter one")]
    TooLong(PathBuf),
    /// Another file has the path.
    #[error("{0} exists and is not a socket: name another path, or remove the file")]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("{0} is served by another process: stop that process, or name another path")]
    Served(PathBuf),
    /// This process may not connect to a socket that exists.
    #[error("cannot check whether another process serves {0}: {1}")]
    Unknown(PathBuf, io::Error),
    /// A socket that no process serves cannot be removed.
    #[error("cannot remove the stale socket {0}: {1}")]
    Stale(PathBuf, io::Error),
    /// The socket cannot be created.
    #[error("cannot create the socket {0}: {reason}", reason = explain(.1))]
    Make(PathBuf, io::Error),
    /// Its permissions cannot be set.
    #[error("cannot set up the socket {0}: {1}")]
    SetUp(PathBuf, io::Error),
}

impl SocketError {
    /// Returns whether the service would fail in the same way.
    pub fn certainty(&self) -> Certainty {
        match self {
            Self::TooLong(_) | Self::NotASocket(_) => Certainty::Certain,
            Self::Served(path) => Certainty::InUse(Resource::Unix(path.clone())),
            Self::Unknown(path, error)
            | Self::Stale(path, error)
            | Self::Make(path, error)
            | Self::SetUp(path, error) => Certainty::of(error, path),
        }
    }
}

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
pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), SocketError> {
    let owned = || path.to_owned();
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => SocketError::TooLong(owned()),
        _ => SocketError::Make(owned(), error),
    })?;
    let prepared = listener
        .set_nonblocking(true)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::symlink_metadata(path));
    let found = prepared.map_err(|error| SocketError::SetUp(owned(), error))?;
    let socket = SocketFile { path: owned(), id: (found.dev(), found.ino()) };
    Ok((listener, socket))
}

/// Checks whether [`bind`] would fail, without connecting to a process that may serve the socket.
pub fn check(path: &Path) -> Result<(), SocketError> {
    let owned = || path.to_owned();
    let may_create = may_create_in(folder_of(path));
    match fs::symlink_metadata(path) {
        _ if path.as_os_str().len() > LONGEST_PATH => Err(SocketError::TooLong(owned())),
        Err(_) => may_create.map_err(|error| SocketError::Make(owned(), error)),
        Ok(found) if !found.file_type().is_socket() => Err(SocketError::NotASocket(owned())),
        Ok(_) if is_served(path) => Err(SocketError::Served(owned())),
        Ok(_) if is_other_socket(path) => {
            Err(SocketError::Unknown(owned(), io::Error::from_raw_os_error(libc::EPROTOTYPE)))
        }
        Ok(_) => {
            may_write(path).map_err(|error| SocketError::Unknown(owned(), error))?;
            may_create.map_err(|error| SocketError::Stale(owned(), error))
        }
    }
}

/// Removes a stale socket. Fails on one in use, and on any other file.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    // If the folder is the problem, bind(2) reports it.
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let path = path.to_owned();
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket(path));
    }
    match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(&path).map_err(|error| SocketError::Stale(path, error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(SocketError::Unknown(path, error)),
        Ok(_) => Err(SocketError::Served(path)),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_whatever_else_has_the_path_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
        // `check` and `bind` agree.
        let refused = |path: &Path| {
            let (said, done) = (check(path).unwrap_err(), bind(path, 0o600).unwrap_err());
            assert_eq!(said.to_string(), done.to_string());
            (done.to_string(), done.certainty())
        };

        drop(UnixListener::bind(path("stale")).unwrap());
        check(&path("stale")).unwrap();
        let (listener, file) = bind(&path("stale"), 0o640).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path("stale")), 0o640);
        file.set_mode(0o606).unwrap();
        assert_eq!(mode(&path("stale")), 0o606);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it never waits");

        let served = inode(&path("stale"));
        let (text, certainty) = refused(&path("stale"));
        assert!(text.ends_with("is served by another process: stop that process, or name another path"), "{text}");
        assert_eq!(certainty, Certainty::InUse(Resource::Unix(path("stale"))));
        assert_eq!(inode(&path("stale")), served);

        fs::write(path("file"), "kept").unwrap();
        let (text, certainty) = refused(&path("file"));
        assert!(text.contains("exists and is not a socket") && certainty == Certainty::Certain, "{text}");
        assert_eq!(fs::read(path("file")).unwrap(), b"kept");

        let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        let (text, _) = refused(&path("datagrams"));
        assert!(text.contains("cannot check whether another process serves"), "{text}");
        assert!(path("datagrams").exists());

        let (text, _) = refused(&path("missing/socket"));
        assert!(text.starts_with("cannot create the socket ") && text.ends_with("; make its folder"), "{text}");
        // The longest path has 107 bytes.
        let longest = path(&"x".repeat(LONGEST_PATH - path("").as_os_str().len()));
        check(&longest).unwrap();
        drop(bind(&longest, 0o600).unwrap());
        let (text, certainty) = refused(&path(&format!("{}x", longest.file_name().unwrap().display())));
        assert!(text.ends_with("the path has more than 107 bytes: choose a shorter one"), "{text}");
        assert_eq!(certainty, Certainty::Certain);
    }

    #[test]
    fn the_socket_of_another_that_took_the_place_of_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.sock");
        let (_listener, ours) = bind(&path, 0o600).unwrap();
        // Kept, so that the next file cannot have its number.
        fs::rename(&path, folder.path().join("before")).unwrap();
        let (_other, other) = bind(&path, 0o600).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }
}
