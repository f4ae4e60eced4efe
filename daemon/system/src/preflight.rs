//! Whether a file, folder or lock could be used, found out without touching it: nothing is created, opened or connected.
//!
//! `visiond check` reports with these what `visiond run` would refuse. Both take the text of an error from one place.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, major, minor};

/// The folders that visiond.service makes when it starts (`RuntimeDirectory=`, `StateDirectory=`, `CacheDirectory=`).
const SERVICE_FOLDERS: [&str; 3] = ["/run/visiond", "/var/lib/visiond", "/var/cache/visiond"];

/// Whether what fails for this process fails for the service, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certainty {
    /// It fails until somebody changes something.
    Certain,
    /// It fails for this user and outside of the service, which has other rights, folders and credentials.
    OnlyHere,
    /// It fails as long as another process uses the resource.
    InUse(Resource),
}

/// A resource that one process at a time can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// A TCP address to listen on.
    Tcp(SocketAddr),
    /// A Unix socket to listen on.
    Unix(PathBuf),
    /// A file to lock.
    Lock(PathBuf),
}

impl Certainty {
    /// Judges an error of `path`.
    pub fn of(error: &io::Error, path: &Path) -> Self {
        let in_service_folder = || path.parent().is_some_and(|folder| SERVICE_FOLDERS.map(Path::new).contains(&folder));
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::OnlyHere,
            io::ErrorKind::NotFound if in_service_folder() => Self::OnlyHere,
            _ => Self::Certain,
        }
    }
}

/// Returns the folder that has `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether this process may connect to, or write to, what `path` leads to.
pub fn may_write(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// Whether this process may create and remove files in `folder`, which exists.
pub fn may_create_in(folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether this process may make `folder` and all above it, or create files in it if it exists.
pub fn may_make(folder: &Path) -> io::Result<()> {
    let exists = |folder: &&Path| folder.as_os_str().is_empty() || fs::symlink_metadata(folder).is_ok();
    let existing = folder.ancestors().find(exists).unwrap_or(Path::new("/"));
    if existing == folder && !folder.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    may_create_in(if existing.as_os_str().is_empty() { Path::new(".") } else { existing })
}

/// Whether this process may open `path` for reading and writing, or create it if it is missing.
pub fn may_open_or_create(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(_) => Ok(access(path, Access::READ_OK | Access::WRITE_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => may_create_in(folder_of(path)),
        Err(error) => Err(error),
    }
}

/// Whether `path` leads to something that is neither a file nor a character device such as /dev/null.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !(found.is_file() || found.file_type().is_char_device()))
}

/// Whether a process listens at the Unix socket `path`, by the kernel's list of sockets.
pub fn is_served(path: &Path) -> bool {
    listening_unix(path).is_some()
}

/// Whether a process holds a lock on the file `path`, by the kernel's list of locks.
pub fn is_locked(path: &Path) -> bool {
    lock_owner(path).is_some()
}

impl Resource {
    /// Returns the process that uses it; `None` if this user may not find out.
    pub fn user(&self) -> Option<u32> {
        let inodes = match self {
            Self::Tcp(address) => listening_tcp(address.port()),
            Self::Unix(path) => listening_unix(path).into_iter().collect(),
            Self::Lock(path) => return lock_owner(path),
        };
        let sockets: Vec<PathBuf> = inodes.iter().map(|inode| format!("socket:[{inode}]").into()).collect();
        let numbers =
            fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut owners = numbers.filter(|number: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
            descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| sockets.contains(&link))
        });
        // systemd keeps the sockets that it passes: the service is the later one.
        owners.by_ref().last()
    }
}

/// Returns the inodes of the TCP sockets that listen on `port`.
fn listening_tcp(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let here = words.get(1)?.rsplit_once(':')?.1;
        // State 0A is LISTEN.
        let listens = *words.get(3)? == "0A" && u16::from_str_radix(here, 16) == Ok(port);
        listens.then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    });
    sockets.collect()
}

/// Returns the inode of the Unix socket that listens at `path`.
fn listening_unix(path: &Path) -> Option<String> {
    /// The flag of a socket that accepts connections, __SO_ACCEPTCON of linux/net.h.
    const ACCEPTS: u32 = 1 << 16;
    let full = path.canonicalize().ok()?;
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let (flags, inode) = (words.nth(3)?, words.nth(2)?);
        let listed = Path::new(line.split_once(inode)?.1.trim_start());
        let same = listed == path || (listed.is_absolute() && listed.canonicalize().is_ok_and(|listed| listed == full));
        (same && u32::from_str_radix(flags, 16).ok()? & ACCEPTS != 0).then(|| inode.to_owned())
    })
}

/// Returns the process that holds a lock on `path`.
fn lock_owner(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(found.st_dev()), minor(found.st_dev()), found.st_ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&&*file)).then(|| words.get(4)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_in_use_is_found_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let me = Some(std::process::id());
        let (socket, lock) = (folder.path().join("a b.sock"), folder.path().join("lock"));
        let file = fs::File::create(&lock).unwrap();
        assert!(!is_served(&socket) && !is_locked(&lock));
        let listener = UnixListener::bind(&socket).unwrap();
        file.lock().unwrap();
        assert!(is_served(&socket) && is_locked(&lock));
        assert_eq!((Resource::Unix(socket.clone()).user(), Resource::Lock(lock).user()), (me, me));
        drop(listener);
        assert!(socket.exists() && !is_served(&socket), "a stale one");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(Resource::Tcp(tcp.local_addr().unwrap()).user(), me);
    }

    #[test]
    fn a_file_is_judged_as_opening_it_would_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let (file, new) = (folder.path().join("file"), folder.path().join("new"));
        fs::write(&file, "text").unwrap();
        may_open_or_create(&file).unwrap();
        may_open_or_create(&new).unwrap();
        may_make(&new.join("and/below")).unwrap();
        assert!(!new.exists());
        assert_eq!(kind(may_open_or_create(folder.path())), io::ErrorKind::IsADirectory);
        assert_eq!(kind(may_open_or_create(&new.join("x"))), io::ErrorKind::NotFound);
        assert_eq!(kind(may_make(&file.join("below"))), io::ErrorKind::NotADirectory);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(Certainty::of(&missing, Path::new("/run/visiond/d.sock")), Certainty::OnlyHere);
        assert_eq!(Certainty::of(&missing, Path::new("/run/visiond/sub/d.sock")), Certainty::Certain);
    }
}
