//! Confines programs that decode untrusted data: files with Landlock, system calls with seccomp.
//!
//! Both are best effort. A kernel before 5.13 has no Landlock (JetPack 5 has 5.10), and some are built without it.
//! [`available`] reports what this system supports.
//!
//! The parent prepares everything before the fork, because the child may only make async-signal-safe calls before exec.

mod landlock;
mod seccomp;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::find_program::find_program;
use crate::process_limits::limit_data;
use landlock::{Access, Ruleset};

/// The resources of a confined program. It may also read the system's libraries and settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Files, and folders with everything below them, that it may read. A path that does not exist is ignored.
    pub readable: Vec<PathBuf>,
    /// The sockets that it may create.
    pub sockets: Sockets,
    /// Whether it may use devices, such as GPUs and hardware decoders. Their libraries also use Unix sockets, /proc and /sys.
    pub devices: bool,
    /// The limit of its private memory, without the stacks of its threads.
    pub memory_bytes: Option<u64>,
}

/// The sockets that a program may create.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sockets {
    /// No sockets at all.
    #[default]
    None,
    /// IPv4 and IPv6.
    Internet,
    /// IPv4, IPv6 and Unix sockets; Avahi resolves local names over the latter.
    InternetAndUnix,
}

/// The mechanisms that confine programs on this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Available {
    /// Whether the kernel filters system calls.
    pub seccomp: bool,
    /// Version of Landlock's ABI; 0 without Landlock.
    pub landlock: u32,
}

impl std::fmt::Display for Available {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.seccomp, self.landlock) {
            (false, 0) => f.write_str("nothing: this kernel has neither seccomp nor Landlock"),
            (true, 0) => f.write_str("seccomp; this kernel has no Landlock, or the service's sandbox refuses it"),
            (false, abi) => write!(f, "Landlock (ABI {abi}); this kernel has no seccomp filters"),
            (true, abi) => write!(f, "seccomp and Landlock (ABI {abi})"),
        }
    }
}

/// Returns the mechanisms that confine programs on this system.
pub fn available() -> Available {
    Available { seccomp: seccomp::is_available(), landlock: landlock::abi() }
}

/// Folders of programs and libraries, which a confined program may read and execute.
const PROGRAMS: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store", "/snap"];

/// Files that libraries read to learn about the machine.
const MACHINE: [&str; 7] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/version",
    "/sys/devices/system",
];

/// Devices without state.
const PLAIN_DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines the program of `command` from its start.
///
/// # Errors
/// The kernel has Landlock but refuses a ruleset.
pub fn confine(command: &mut Command, confinement: &Confinement) -> io::Result<()> {
    let ruleset = match landlock::abi() {
        0 => None,
        abi => Some(ruleset(abi, Path::new(command.get_program()), confinement)?),
    };
    let filter = seccomp::filter(match (confinement.devices, confinement.sockets) {
        // Drivers talk to daemons.
        (true, Sockets::None) => &[libc::AF_UNIX],
        (true, Sockets::Internet) | (_, Sockets::InternetAndUnix) => &[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX],
        (_, Sockets::Internet) => &[libc::AF_INET, libc::AF_INET6],
        (_, Sockets::None) => &[],
    });
    if let Some(bytes) = confinement.memory_bytes {
        limit_data(command, bytes);
    }
    let hook = move || {
        // SAFETY: prctl(2) with these arguments touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(ruleset) = &ruleset {
            // The child's own /proc folder, whose number is not known before the fork. The program works without it.
            let _ = ruleset.allow_itself();
            ruleset.restrict()?;
        }
        // This comes last: the filter denies no call above, but a system without filters must still get Landlock.
        let _ = seccomp::install(&filter);
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes only system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
    Ok(())
}

fn ruleset(abi: u32, program: &Path, confinement: &Confinement) -> io::Result<Ruleset> {
    let ruleset = Ruleset::new(abi)?;
    let run = PROGRAMS.iter().map(PathBuf::from).chain(program_folders(program)).chain(library_folders());
    run.for_each(|folder| ruleset.allow(&folder, Access::Execute));
    MACHINE.iter().for_each(|path| ruleset.allow(Path::new(path), Access::Read));
    settings().iter().for_each(|path| ruleset.allow(path, Access::Read));
    PLAIN_DEVICES.iter().for_each(|path| ruleset.allow(Path::new(path), Access::Device));
    if confinement.devices {
        ruleset.allow(Path::new("/dev"), Access::Device);
        ["/proc", "/sys", "/run/udev"].iter().for_each(|path| ruleset.allow(Path::new(path), Access::Read));
    }
    confinement.readable.iter().for_each(|path| ruleset.allow(path, Access::Read));
    Ok(ruleset)
}

/// The folder of the program and, if that is called `bin`, its parent, which has the libraries. For a link, the folders of
/// both ends.
fn program_folders(program: &Path) -> Vec<PathBuf> {
    let Some(found) = find_program(program) else { return Vec::new() };
    let target = fs::canonicalize(&found).ok();
    let folder = |program: &PathBuf| {
        let folder = program.parent()?;
        let above = folder.parent().filter(|above| folder.ends_with("bin") && above.parent().is_some());
        Some(above.unwrap_or(folder).to_owned())
    };
    let is_folder = |folder: &PathBuf| folder.parent().is_some();
    [Some(found), target].iter().flatten().filter_map(folder).filter(is_folder).collect()
}

/// The folders of LD_LIBRARY_PATH.
fn library_folders() -> Vec<PathBuf> {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&folders).filter(|folder| folder.is_absolute() && folder.parent().is_some()).collect()
}

/// The parts of /etc that every user may read, for the resolver, certificates and libraries, without visiond's own folder.
/// Also the folder in which another program keeps resolv.conf, because it replaces the file.
fn settings() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let is_public = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0);
    let mut paths: Vec<_> =
        entries.filter(|entry| entry.file_name() != "visiond").map(|entry| entry.path()).filter(is_public).collect();
    let resolver = fs::canonicalize("/etc/resolv.conf").ok();
    paths.extend(resolver.as_deref().and_then(resolver_folder).map(Path::to_owned));
    paths
}

/// Returns the program's own folder in /run that holds this resolv.conf; never /run itself, which holds much else.
fn resolver_folder(resolver: &Path) -> Option<&Path> {
    resolver.parent().filter(|folder| folder.starts_with("/run") && folder.components().count() > 2)
}

#[cfg(test)]
mod tests;
