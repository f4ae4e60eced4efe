//! Landlock's three system calls, and its rules for files (landlock(7)).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, open};

// Access rights to files, from include/uapi/linux/landlock.h.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// The rights that a rule for a file, as opposed to a folder, may name.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Abstract Unix sockets of, and signals to, processes outside this sandbox.
const SCOPES: u64 = 1 << 0 | 1 << 1;

/// Number of the rule that allows something below a path.
const PATH_BENEATH: libc::c_int = 1;

/// Requests the version instead of a ruleset.
const VERSION: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttr {
    files: u64,
    network: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttr {
    allowed: u64,
    parent: libc::c_int,
}

/// What a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Read and execute.
    Execute,
    /// Read, write and control a device that exists.
    Device,
}

/// Returns the version of the kernel's ABI; 0 if it has no Landlock, or does not let this process use it.
pub fn abi() -> u32 {
    // SAFETY: without attributes and with this flag, the call touches no memory.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<RulesetAttr>(), 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// A set of rules; anything that no rule allows is denied.
#[derive(Debug)]
pub struct Ruleset {
    ruleset: OwnedFd,
    /// The rights that this kernel knows.
    known: u64,
}

impl Ruleset {
    /// Creates a set that allows nothing, covering every right of this ABI version.
    pub fn new(abi: u32) -> io::Result<Self> {
        let (rights, bytes) = match abi {
            1 => (13, 8),
            2 => (14, 8),
            3 => (15, 8),
            4 => (15, 16),
            5 => (16, 16),
            _ => (16, 24),
        };
        let known = (1 << rights) - 1;
        // Seccomp decides about the network.
        let attr = RulesetAttr { files: known, network: 0, scopes: if abi >= 6 { SCOPES } else { 0 } };
        // SAFETY: `attr` is readable for at least `bytes`, which is its size or less, and laid out as the kernel's.
        let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, bytes as usize, 0_u32) };
        let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created the descriptor, closed on exec, and only this process owns it.
        Ok(Self { ruleset: unsafe { OwnedFd::from_raw_fd(fd) }, known })
    }

    /// Allows `access` to the file at `path`, or to everything below the folder there. A path that cannot be opened is
    /// ignored and stays denied.
    pub fn allow(&self, path: &Path, access: Access) {
        let Ok(place) = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { return };
        let is_folder = fstat(&place).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR);
        let rights = match access {
            Access::Read => READ_FILE | READ_DIR,
            Access::Execute => READ_FILE | READ_DIR | EXECUTE,
            Access::Device => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        };
        // Fails only if the kernel lacks memory; access then stays denied.
        let _ = self.add(&place, if is_folder { rights } else { rights & OF_FILES });
    }

    /// Allows this process to read its own data in /proc. For a child before exec: makes only system calls.
    pub fn allow_itself(&self) -> io::Result<()> {
        const ITSELF: &CStr = c"/proc/self";
        // SAFETY: the path ends with a zero byte, and lives as long as the program.
        let fd = unsafe { libc::open(ITSELF.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created the descriptor, and only this process owns it.
        let place = unsafe { OwnedFd::from_raw_fd(fd) };
        self.add(&place, READ_FILE | READ_DIR)
    }

    fn add(&self, place: impl AsFd, rights: u64) -> io::Result<()> {
        let attr = PathBeneathAttr { allowed: rights & self.known, parent: place.as_fd().as_raw_fd() };
        let ruleset = self.ruleset.as_raw_fd();
        // SAFETY: `attr` is readable and laid out as the kernel's; both descriptors are open during the call.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, PATH_BENEATH, &raw const attr, 0_u32) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Applies the set permanently to this thread and everything that it starts. Requires `PR_SET_NO_NEW_PRIVS`. Makes only a
    /// system call.
    pub fn restrict(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open during the call, which touches no memory.
        let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0_u32) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
