//! Notifications to systemd: readiness, reloads, status, watchdog. The protocol is that of sd_notify(3), datagrams on a socket.
//!
//! Without `NOTIFY_SOCKET` in the environment, visiond sends nothing. A datagram that cannot be sent is logged once; systemd
//! notices by its own timeouts.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time per extension, interval of the requests, and the limit; a start or reload that takes longer hangs.
const MORE_TIME: Duration = Duration::from_secs(60);
const MORE_TIME_EVERY: Duration = Duration::from_secs(20);
const MORE_TIME_IN_ALL: Duration = Duration::from_secs(20 * 60);

/// Connection to systemd, if there is one. Clones share it.
#[derive(Debug, Clone)]
pub struct Notifier {
    socket: Option<Arc<Socket>>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Socket {
    socket: UnixDatagram,
    address: SocketAddr,
    complained: AtomicBool,
}

impl Notifier {
    /// Connects according to `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_environment() -> Self {
        Self::new(env::var_os("NOTIFY_SOCKET").as_deref(), watchdog_timeout(variable, std::process::id()))
    }

    fn new(address: Option<&OsStr>, watchdog: Option<Duration>) -> Self {
        let socket = address.filter(|address| !address.is_empty()).and_then(|address| match connect(address) {
            Ok((socket, address)) => Some(Arc::new(Socket { socket, address, complained: AtomicBool::new(false) })),
            Err(error) => {
                log::warn!("cannot notify systemd at {}: {error}", address.display());
                None
            }
        });
        Self { socket, watchdog }
    }

    /// Returns whether systemd listens.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns the watchdog timeout of systemd; `None` without a watchdog.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.is_connected())
    }

    /// Reports that the start or a reload is complete.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that a reload has started. [`ready`](Self::ready) ends it, whether the configuration was accepted or rejected.
    pub fn reloading(&self) {
        // systemd distinguishes reloads by their time.
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
    }

    /// Extends the timeout of the start or reload while the returned guard lives, up to a limit.
    pub fn more_time(&self) -> MoreTime {
        let Some(socket) = self.socket.clone() else { return MoreTime(None) };
        let (held, dropped) = channel::<()>();
        let ask = move || {
            let began = Instant::now();
            let state = format!("EXTEND_TIMEOUT_USEC={}", MORE_TIME.as_micros());
            while began.elapsed() < MORE_TIME_IN_ALL {
                socket.send(&state);
                if dropped.recv_timeout(MORE_TIME_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        match std::thread::Builder::new().name("more time".to_owned()).spawn(ask) {
            Ok(thread) => MoreTime(Some((held, thread))),
            Err(error) => {
                log::warn!("cannot ask systemd for more time: {error}");
                MoreTime(None)
            }
        }
    }

    /// Sets the line in `systemctl status`.
    pub fn status(&self, line: &str) {
        self.send(&format!("STATUS={}", line.replace('\n', " ")));
    }

    /// Resets the watchdog.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the daemon is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        if let Some(socket) = &self.socket {
            socket.send(state);
        }
    }
}

impl Socket {
    fn send(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address)
            && !self.complained.swap(true, Ordering::Relaxed)
        {
            log::warn!("cannot send `{state}` to systemd: {error}");
        }
    }
}

/// Returns the sockets that systemd passed (sd_listen_fds(3)) at the first call, and none after it.
pub fn passed_sockets() -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let count = passed_count(variable, std::process::id());
    if count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    // SAFETY: fcntl(2) takes numbers and touches no memory. It fails if the descriptor is not open.
    let is_open = |fd: i32| unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the descriptor is open, and this is its only owner: LISTEN_PID says that systemd passed it to this process, and
    // TAKEN lets only one call come here.
    (3..3 + count).filter(|fd| is_open(*fd)).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Returns the watchdog's timeout if the environment has one for the process `pid`.
fn watchdog_timeout(variable: impl Fn(&str) -> Option<String>, pid: u32) -> Option<Duration> {
    let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
    let ours = number("WATCHDOG_PID").is_none_or(|watched| watched == u64::from(pid));
    number("WATCHDOG_USEC").filter(|&usec| usec > 0 && ours).map(Duration::from_micros)
}

/// Returns how many sockets systemd passed to the process `pid`, from descriptor 3 on.
fn passed_count(variable: impl Fn(&str) -> Option<String>, pid: u32) -> i32 {
    let ours = variable("LISTEN_PID").and_then(|text| text.parse::<u32>().ok()) == Some(pid);
    let count = variable("LISTEN_FDS").and_then(|text| text.parse::<i32>().ok());
    count.filter(|count| ours && (1..=64).contains(count)).unwrap_or(0)
}

/// See [`Notifier::more_time`].
#[derive(Debug)]
#[must_use = "the timeout is extended while this lives"]
pub struct MoreTime(Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for MoreTime {
    fn drop(&mut self) {
        if let Some((held, thread)) = self.0.take() {
            drop(held);
            // The thread never blocks in a send; the panic hook logged a panic.
            let _ = thread.join();
        }
    }
}

/// Returns CLOCK_MONOTONIC, which systemd uses for the time of reloads.
fn monotonic_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Parses a path, or `@name` in the abstract namespace.
fn connect(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => {
            let message = "not a path or an abstract name (vsock is not supported)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the daemon.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(crate::testing::HANG)).unwrap();
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    }

    #[test]
    fn systemd_hears_on_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), Some(Duration::from_secs(30)));
        assert_eq!(notifier.watchdog(), Some(Duration::from_secs(30)));
        notifier.ready();
        assert_eq!(heard(&systemd), "READY=1");
        notifier.status("street 10.0/s\nREADY=1");
        assert_eq!(heard(&systemd), "STATUS=street 10.0/s READY=1");
        notifier.alive();
        assert_eq!(heard(&systemd), "WATCHDOG=1");
        notifier.stopping();
        assert_eq!(heard(&systemd), "STOPPING=1");
    }

    #[test]
    fn a_reload_is_dated_and_what_takes_long_asks_for_time_while_it_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), None);
        let before = monotonic_us();
        notifier.reloading();
        let said = heard(&systemd);
        let dated = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse::<u64>().unwrap();
        assert!((before..=monotonic_us()).contains(&dated));
        // In microseconds of the clock that systemd compares it with.
        let seconds = clock_gettime(ClockId::Monotonic).tv_sec as u64;
        assert!((before / 1_000_000..=seconds).contains(&(dated / 1_000_000)) && dated / 1_000_000 + 600 > seconds);
        let more = notifier.more_time();
        assert_eq!(heard(&systemd), "EXTEND_TIMEOUT_USEC=60000000");
        drop(more);
        notifier.ready();
        assert_eq!(heard(&systemd), "READY=1");
        drop(Notifier::new(None, None).more_time());
    }

    #[test]
    fn systemd_hears_on_an_abstract_name() {
        let name = format!("visiond-test-{}", std::process::id());
        let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::new(Some(OsStr::new(&format!("@{name}"))), None).ready();
        assert_eq!(heard(&systemd), "READY=1");
    }

    #[test]
    fn without_systemd_nothing_is_told_and_a_wrong_address_harms_nothing() {
        let alone = Notifier::new(None, Some(Duration::from_secs(1)));
        assert!(!alone.is_connected() && alone.watchdog().is_none());
        alone.ready();
        assert!(!Notifier::new(Some(OsStr::new("vsock:2:1")), None).is_connected());
        Notifier::new(Some(OsStr::new("/nowhere/notify")), None).ready();
    }

    #[test]
    fn a_watchdog_and_sockets_of_another_process_are_not_ours() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let watchdog = |set| watchdog_timeout(with(set), 42);
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "42")]), second);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000")]), second, "of the service, whatever its processes");
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "41")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "0"), ("WATCHDOG_PID", "42")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_PID", "42")]), None);
        let sockets = |set| passed_count(with(set), 42);
        assert_eq!(sockets(&[("LISTEN_FDS", "2"), ("LISTEN_PID", "42")]), 2);
        assert_eq!(sockets(&[("LISTEN_FDS", "2"), ("LISTEN_PID", "41")]), 0);
        assert_eq!(sockets(&[("LISTEN_FDS", "2")]), 0, "without LISTEN_PID");
        for count in ["-1", "0", "65", "2147483648", "two"] {
            let set = move |name: &str| Some(if name == "LISTEN_PID" { "42" } else { count }.to_owned());
            assert_eq!(passed_count(set, 42), 0, "{count}");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_does_not_hold_us_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()), None);
        (0..10_000).for_each(|_| notifier.alive());
    }

    #[test]
    fn the_units_of_the_service_and_of_an_instance_differ_in_configuration_and_folders_alone() {
        let settings = |unit: &str| -> Vec<String> {
            let lines = unit.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            lines.map(|line| line.replace("%i.toml", "visiond.toml").replace("/%i", "").replace(" (%i)", "")).collect()
        };
        let (service, instance) =
            (include_str!("../../../systemd/visiond.service"), include_str!("../../../systemd/visiond@.service"));
        assert_eq!(settings(service), settings(instance));
        assert_eq!(instance.lines().filter(|line| line.contains("%i")).count(), 5);
    }
}
