//! Checks whether a file, folder or lock could be used, without touching it: nothing is created, opened or connected.
//!
//! With these checks, `visiond check` reports what `visiond run` would reject. Both use the same error texts.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, major, minor};

/// The folders that visiond.service creates when it starts (`RuntimeDirectory=`, `StateDirectory=`, `CacheDirectory=`);
/// visiond@NAME.service creates the folder NAME in each.
const SERVICE_FOLDERS: [&str; 4] = ["/run/visiond", "/var/run/visiond", "/var/lib/visiond", "/var/cache/visiond"];

/// Whether a failure in this process also affects the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certainty {
    /// It fails until the user fixes it.
    Certain,
    /// It fails for this user outside the service, which has other permissions, folders and credentials.
    OnlyHere,
    /// It fails as long as another process uses the resource.
    InUse(Resource),
}

/// A resource that only one process at a time can use.
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
    /// Classifies an error about `path`, which visiond would create.
    pub fn of(error: &io::Error, path: &Path) -> Self {
        let mut folders = path.ancestors().skip(1).take(2);
        match error.kind() {
            io::ErrorKind::NotFound if folders.any(|folder| SERVICE_FOLDERS.map(Path::new).contains(&folder)) => {
                Self::OnlyHere
            }
            _ => Self::of_reading(error),
        }
    }

    /// Classifies an error about a file that visiond only reads or runs, and that systemd does not create.
    pub fn of_reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::OnlyHere,
            _ => Self::Certain,
        }
    }
}

/// Returns the folder that contains `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether this process may connect to or write to the target of `path`.
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

/// Whether this process may create `folder` and its parents, or create files in it if it exists.
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
        // Opening a dangling link creates the file that it names.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => may_open_or_create(&folder_of(path).join(target)),
            Err(_) => may_create_in(folder_of(path)),
        },
        Err(error) => Err(error),
    }
}

/// Whether `path` leads to something that is neither a file nor a character device such as /dev/null.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !(found.is_file() || found.file_type().is_char_device()))
}

/// Whether a process listens at the Unix socket `path`, by the kernel's list of sockets.
pub fn is_served(path: &Path) -> bool {
    unix_socket_at(path, UnixSocket::serves).is_some()
}

/// Whether a process has a Unix socket at `path` that accepts no stream connections, such as a datagram socket.
pub fn is_other_socket(path: &Path) -> bool {
    unix_socket_at(path, |socket| !socket.is_stream).is_some()
}

/// Whether a listener on one address prevents a listener on the other: the same address, or a wildcard that includes it.
pub fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let includes = |wildcard: IpAddr, ip: IpAddr| match wildcard {
        // Unless a socket is IPv6-only, it also accepts IPv4.
        IpAddr::V6(wildcard) => wildcard.is_unspecified(),
        IpAddr::V4(wildcard) => wildcard.is_unspecified() && ip.is_ipv4(),
    };
    let (x, y) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (x == y || includes(x, y) || includes(y, x))
}

/// Whether a process holds a lock on the file `path`, by the kernel's list of locks.
pub fn is_locked(path: &Path) -> bool {
    lock_owner(path).is_some()
}

impl Resource {
    /// Returns the process that uses the resource; `None` if this user lacks the permission to see it.
    pub fn user(&self) -> Option<u32> {
        let inodes = match self {
            Self::Tcp(address) => listening_tcp(*address),
            Self::Unix(path) => {
                unix_socket_at(path, UnixSocket::serves).into_iter().map(|socket| socket.inode).collect()
            }
            Self::Lock(path) => return lock_owner(path),
        };
        socket_owner(&inodes)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) | Self::Lock(path) => path.display().fmt(f),
        }
    }
}

/// Returns the process that has one of the sockets open; `None` if this user lacks the permission to see it.
fn socket_owner(inodes: &[String]) -> Option<u32> {
    let sockets: Vec<PathBuf> = inodes.iter().map(|inode| format!("socket:[{inode}]").into()).collect();
    let numbers = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut owners = numbers.filter(|number: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| sockets.contains(&link))
    });
    // systemd also keeps the sockets that it passes, so prefer the later process, the service.
    owners.by_ref().last()
}

/// Returns the inodes of the TCP sockets that keep a new one from listening on `address`.
fn listening_tcp(address: SocketAddr) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // State 0A is LISTEN.
        let listens = *words.get(3)? == "0A" && overlap(kernel_address(words.get(1)?)?, address);
        listens.then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    });
    sockets.collect()
}

/// Parses an address of /proc/net/tcp or tcp6: words of 32 bits in the machine's byte order, a colon and the port.
fn kernel_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        _ => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?)
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// A Unix socket in the kernel's list.
struct UnixSocket {
    is_stream: bool,
    listens: bool,
    inode: String,
}

impl UnixSocket {
    fn serves(&self) -> bool {
        self.is_stream && self.listens
    }
}

/// Returns the Unix socket at `path` that is `wanted`; accepted connections have the path of their listener.
fn unix_socket_at(path: &Path, wanted: impl Fn(&UnixSocket) -> bool) -> Option<UnixSocket> {
    let full = path.canonicalize().ok()?;
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    table.lines().skip(1).find_map(|line| {
        let (socket, listed) = unix_socket(line)?;
        if !wanted(&socket) || listed.file_name() != full.file_name() {
            return None;
        }
        // A relative path starts at that process's working directory.
        let folder = match listed.is_absolute() {
            true => PathBuf::from("/"),
            false => format!("/proc/{}/cwd", socket_owner(std::slice::from_ref(&socket.inode))?).into(),
        };
        (folder.join(listed).canonicalize().ok()? == full).then_some(socket)
    })
}

/// Parses a line of /proc/net/unix: seven fields and, after one space, the path, which may have spaces.
fn unix_socket(line: &str) -> Option<(UnixSocket, &Path)> {
    /// The flag of a socket that accepts connections, __SO_ACCEPTCON of linux/net.h.
    const ACCEPTS: u32 = 1 << 16;
    let mut rest = line;
    let mut fields = [""; 7];
    for field in &mut fields {
        (*field, rest) = rest.trim_start().split_once(' ')?;
    }
    let [_, _, _, flags, kind, _, inode] = fields;
    let listens = u32::from_str_radix(flags, 16).ok()? & ACCEPTS != 0;
    Some((UnixSocket { is_stream: kind == "0001", listens, inode: inode.to_owned() }, Path::new(rest)))
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
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

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
        // The connections have the same path in the kernel's list, before or after the listener.
        let _connections: Vec<_> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        assert!(is_served(&socket) && is_locked(&lock));
        assert_eq!((Resource::Unix(socket.clone()).user(), Resource::Lock(lock).user()), (me, me));
        drop(listener);
        assert!(socket.exists() && !is_served(&socket), "a stale one");
        let datagrams = UnixDatagram::bind(folder.path().join("d.sock")).unwrap();
        let path = datagrams.local_addr().unwrap().as_pathname().unwrap().to_owned();
        assert!(is_other_socket(&path) && !is_served(&path));
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
        assert_eq!(Certainty::of_reading(&missing), Certainty::Certain);
        let forbidden = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(Certainty::of_reading(&forbidden), Certainty::OnlyHere, "the service has another user");
        assert_eq!(Certainty::of(&forbidden, &file), Certainty::OnlyHere);
        assert_eq!(Certainty::of(&missing, Path::new("/run/visiond/d.sock")), Certainty::OnlyHere);
        // visiond@yard.service makes this folder.
        assert_eq!(Certainty::of(&missing, Path::new("/run/visiond/yard/d.sock")), Certainty::OnlyHere);
        assert_eq!(Certainty::of(&missing, Path::new("/var/run/visiond/d.sock")), Certainty::OnlyHere);
        assert_eq!(Certainty::of(&missing, Path::new("/run/visiond/yard/sub/d.sock")), Certainty::Certain);
        assert_eq!(Certainty::of(&missing, Path::new("/run/d.sock")), Certainty::Certain);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_judged_by_the_folder_that_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("new", at("to_new")).unwrap();
        symlink("gone/new", at("to_gone")).unwrap();
        may_open_or_create(&at("to_new")).unwrap();
        assert_eq!(may_open_or_create(&at("to_gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_listener_elsewhere_on_the_port_is_not_the_user_of_an_address() {
        let other = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let user = |ip: &str| Resource::Tcp(SocketAddr::new(ip.parse().unwrap(), port)).user();
        assert_eq!(user("127.0.0.1"), None);
        assert_eq!((user("127.0.0.2"), user("0.0.0.0")), (Some(std::process::id()), Some(std::process::id())));
    }

    #[test]
    fn addresses_overlap_if_they_are_the_same_or_a_wildcard_includes_the_other() {
        let overlap = |a: &str, b: &str| {
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(overlap(a, b), overlap(b, a));
            overlap(a, b)
        };
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80") && overlap("[::]:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "0.0.0.0:80") && overlap("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
        assert!(!overlap("0.0.0.0:80", "127.0.0.1:81") && !overlap("0.0.0.0:80", "[::1]:80"));
        assert!(!overlap("127.0.0.2:80", "127.0.0.1:80"));
        assert_eq!(kernel_address("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        let six = "000080FE00000000FF01A8C0FE563412:0050";
        assert_eq!(kernel_address(six), Some("[fe80::c0a8:1ff:1234:56fe]:80".parse().unwrap()));
    }

    #[test]
    fn a_line_of_the_kernel_s_list_is_split_by_its_fields() {
        // The first field's number is contained in the inode's digits.
        let line = "0000000000012345: 00000002 00000000 00010000 0001 01 12345 /tmp/12345 b.sock";
        let (socket, path) = unix_socket(line).unwrap();
        assert_eq!((socket.is_stream, socket.listens, &*socket.inode), (true, true, "12345"));
        assert_eq!(path, Path::new("/tmp/12345 b.sock"));
        assert!(unix_socket("0000000000000000: 00000002 00000000 00000000 0002 01 12346").is_none());
    }
}
