#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use libc::c_long;

use super::*;
use crate::testing::skip;

/// The variable that names the folder in which [`confined_program`] tries things.
const FOLDER: &str = "VISIOND_TEST_CONFINED";

/// Not a test: the program that the tests below start. Prints a line for each thing that it may do.
#[test]
fn confined_program() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let said = |what: &str, result: io::Result<()>| match result {
        Ok(()) => println!("may: {what}"),
        Err(error) => println!("may not: {what}: {}", error.raw_os_error().unwrap_or(0)),
    };
    let call = |number: c_long, arguments: [usize; 4]| {
        let [a, b, c, d] = arguments;
        // SAFETY: the calls below get no address but null, and no valid descriptor.
        let result = unsafe { libc::syscall(number, a, b, c, d) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let socket = |domain: i32, kind: i32| {
        // SAFETY: socket(2) takes three numbers.
        let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made the descriptor for this process alone.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(())
    };
    let read = |path: &Path| fs::read(path).map(drop);
    let device = |path: &str| OpenOptions::new().read(true).write(true).open(path).map(drop);
    said("read the video", read(&folder.join("video/film")));
    said("list the video's folder", fs::read_dir(folder.join("video")).map(drop));
    said("read the configuration", read(&folder.join("visiond.toml")));
    said("write beside the video", File::create(folder.join("video/new")).map(drop));
    said("write the video", OpenOptions::new().append(true).open(folder.join("video/film")).map(drop));
    said("delete the video", fs::remove_file(folder.join("video/film")));
    said("execute from the video's folder", Command::new(folder.join("video/program")).status().map(drop));
    said("execute a program", Command::new("true").status().map(drop));
    said("read the names of hosts", read(Path::new("/etc/hosts")));
    said("read the certificates", fs::read_dir("/etc/ssl/certs").map(drop));
    said("read its own status", read(Path::new("/proc/self/status")));
    said(
        "read its parent's command",
        read(Path::new(&format!("/proc/{}/cmdline", std::os::unix::process::parent_id()))),
    );
    said("use /dev/null", device("/dev/null"));
    said("use a terminal", device("/dev/ptmx"));
    said("make a Unix socket", socket(libc::AF_UNIX, libc::SOCK_STREAM));
    said("reach a Unix socket", UnixStream::connect(folder.join("socket")).map(drop));
    said("make a pair of sockets", UnixStream::pair().map(drop));
    said("make an IPv4 socket", socket(libc::AF_INET, libc::SOCK_STREAM));
    said("make an IPv6 socket", socket(libc::AF_INET6, libc::SOCK_DGRAM));
    said("make a netlink socket", socket(libc::AF_NETLINK, libc::SOCK_RAW));
    said(
        "have 1 GiB",
        Vec::<u8>::new().try_reserve_exact(1 << 30).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM)),
    );
    said("start a thread", std::thread::Builder::new().spawn(|| {}).map(drop));
    // Each would fail with another error than EPERM if it got past the filter.
    for (name, number, arguments) in [
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_CONT as usize, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0; 4]),
        ("keyctl", libc::SYS_keyctl, [usize::MAX, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, [usize::MAX, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [usize::MAX, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0; 4]),
        ("unshare", libc::SYS_unshare, [usize::MAX, 0, 0, 0]),
        ("clone of a namespace", libc::SYS_clone, [libc::CLONE_NEWNS as usize | libc::CLONE_FS as usize, 0, 0, 0]),
        ("TIOCSTI", libc::SYS_ioctl, [usize::MAX, libc::TIOCSTI as usize, 0, 0]),
        ("another ioctl", libc::SYS_ioctl, [usize::MAX, libc::TCGETS as usize, 0, 0]),
    ] {
        said(name, call(number, arguments));
    }
}

/// The results of the program: allowed, or the error.
struct Report(String);

impl Report {
    /// Runs the program with this confinement; `{}` in a path is the folder.
    fn of(confinement: impl FnOnce(&Path) -> Option<Confinement>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("video")).unwrap();
        for file in ["video/film", "visiond.toml"] {
            fs::write(path.join(file), "x").unwrap();
        }
        fs::copy("/bin/true", path.join("video/program")).unwrap();
        let _listener = UnixListener::bind(path.join("socket")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "confinement::tests::confined_program", "--nocapture"]).env(FOLDER, path);
        if let Some(confinement) = confinement(path) {
            confine(&mut command, &confinement).unwrap();
        }
        let output = command.output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
        Self(report)
    }

    fn may(&self, what: &str) -> bool {
        let line = |start: &str| self.0.lines().any(|line| line.strip_prefix(start) == Some(what));
        let is_denied = self.0.lines().any(|line| line.starts_with(&format!("may not: {what}: ")));
        assert!(line("may: ") || is_denied, "nothing about `{what}` in\n{}", self.0);
        line("may: ")
    }

    fn error(&self, what: &str) -> i32 {
        let start = format!("may not: {what}: ");
        let line = self.0.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("`{what}` is allowed in\n{}", self.0)).parse().unwrap()
    }
}

fn film(folder: &Path) -> Vec<PathBuf> {
    vec![folder.join("video/film")]
}

#[test]
fn files_are_read_as_the_confinement_names_them_and_none_is_written() {
    if available().landlock == 0 {
        skip("this kernel has no Landlock");
        return;
    }
    let report = Report::of(|folder| Some(Confinement { readable: film(folder), ..Confinement::default() }));
    for what in [
        "read the video",
        "execute a program",
        "read the names of hosts",
        "read its own status",
        "use /dev/null",
        "start a thread",
    ] {
        assert!(report.may(what), "{what}:\n{}", report.0);
    }
    for what in [
        "list the video's folder",
        "read the configuration",
        "write beside the video",
        "write the video",
        "delete the video",
        "execute from the video's folder",
        "read its parent's command",
        "use a terminal",
    ] {
        assert_eq!(report.error(what), libc::EACCES, "{what}:\n{}", report.0);
    }
    let report =
        Report::of(|folder| Some(Confinement { readable: vec![folder.join("video")], ..Confinement::default() }));
    assert!(report.may("read the video") && report.may("list the video's folder"));
    assert!(!report.may("write beside the video") && !report.may("read the configuration"));
}

#[test]
fn sockets_are_those_that_the_confinement_names() {
    if !available().seccomp {
        skip("this kernel has no seccomp filters");
        return;
    }
    let report = |sockets| Report::of(|_| Some(Confinement { sockets, ..Confinement::default() }));
    let all = ["make an IPv4 socket", "make an IPv6 socket", "make a Unix socket"];
    for (sockets, allowed) in
        [(Sockets::None, &all[..0]), (Sockets::Internet, &all[..2]), (Sockets::InternetAndUnix, &all[..])]
    {
        let report = report(sockets);
        for what in all {
            assert_eq!(report.may(what), allowed.contains(&what), "{what} with {sockets:?}:\n{}", report.0);
        }
        assert_eq!(report.error("make a netlink socket"), libc::EAFNOSUPPORT);
        assert!(report.may("make a pair of sockets"));
        assert_eq!(report.may("reach a Unix socket"), sockets == Sockets::InternetAndUnix);
    }
}

#[test]
fn calls_that_reach_further_are_denied() {
    if !available().seccomp {
        skip("this kernel has no seccomp filters");
        return;
    }
    let report = Report::of(|_| Some(Confinement::default()));
    for what in [
        "ptrace",
        "process_vm_readv",
        "io_uring_setup",
        "keyctl",
        "bpf",
        "userfaultfd",
        "mount",
        "unshare",
        "clone of a namespace",
        "TIOCSTI",
    ] {
        assert_eq!(report.error(what), libc::EPERM, "{what}:\n{}", report.0);
    }
    assert_eq!(report.error("another ioctl"), libc::EBADF);
}

#[test]
fn devices_come_with_what_their_libraries_read() {
    let report = Report::of(|_| Some(Confinement { devices: true, ..Confinement::default() }));
    assert!(report.may("use a terminal") && report.may("make a Unix socket"), "{}", report.0);
    if available().landlock > 0 {
        assert!(!report.may("read the configuration") && !report.may("write beside the video"), "{}", report.0);
    }
}

#[test]
fn a_program_that_is_not_confined_may_do_what_its_parent_may() {
    let report = Report::of(|_| None);
    for what in ["read the configuration", "write beside the video", "make a Unix socket", "use a terminal"] {
        assert!(report.may(what), "{what}:\n{}", report.0);
    }
    assert_ne!(report.error("keyctl"), libc::EPERM);
}

#[test]
fn a_missing_program_is_reported_as_without_confinement() {
    let mut command = Command::new("/nonexistent/program");
    confine(&mut command, &Confinement::default()).unwrap();
    assert_eq!(command.spawn().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn memory_is_limited_where_the_confinement_says_so() {
    assert!(Report::of(|_| Some(Confinement::default())).may("have 1 GiB"));
    let report = Report::of(|_| Some(Confinement { memory_bytes: Some(64 << 20), ..Confinement::default() }));
    assert_eq!(report.error("have 1 GiB"), libc::ENOMEM);
    assert!(report.may("start a thread"));
}

#[test]
fn of_what_a_resolver_keeps_in_run_its_own_folder_alone_can_be_read() {
    let folder = |resolver: &'static str| resolver_folder(Path::new(resolver)).map(|folder| folder.to_str().unwrap());
    assert_eq!(folder("/run/systemd/resolve/stub-resolv.conf"), Some("/run/systemd/resolve"));
    assert_eq!(folder("/run/connman/resolv.conf"), Some("/run/connman"));
    assert_eq!(["/run/resolv.conf", "/etc/resolv.conf", "/home/me/private/resolv.conf", "/"].map(folder), [None; 4]);
}
