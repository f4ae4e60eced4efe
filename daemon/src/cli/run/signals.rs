//! SIGTERM and SIGINT: the first is told through a descriptor, a second ends the process at once.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// A signal that follows another sooner is the same wish: `timeout` and a terminal's Ctrl-C signal the process and then its
/// whole group.
const ECHO: Duration = Duration::from_millis(250);

/// The signals that end the daemon.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes the signals over, for the rest of the process's life.
    pub fn register() -> io::Result<Self> {
        let (signals, ring) = Self::with_ring()?;
        let armed = Arc::new(AtomicBool::new(false));
        let (mut first, first_ring) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            // A signal that finds it armed ends the process with 128 and its number, as a shell would tell a death by it.
            // Children die with us, see `capture::child`.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
            low_level::pipe::register(signal, first_ring.try_clone()?)?;
            flag::register_usize(signal, Arc::clone(&signals.last), signal as usize)?;
            low_level::pipe::register(signal, ring.try_clone()?)?;
        }
        // A thread of its own, because the first signal may come while a network is being loaded.
        let arm = move || {
            if first.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ECHO);
                armed.store(true, Ordering::SeqCst);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(arm)?;
        Ok(signals)
    }

    /// Not yet bound to a signal, with what stands for one when it is written to.
    pub fn with_ring() -> io::Result<(Self, UnixStream)> {
        let (wake, ring) = UnixStream::pair()?;
        Ok((Self { wake, last: Arc::new(AtomicUsize::new(0)) }, ring))
    }

    /// Readable once a signal came.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The last signal's name.
    pub fn name(&self) -> &'static str {
        match i32::try_from(self.last.load(Ordering::SeqCst)) {
            Ok(SIGINT) => "SIGINT",
            _ => "SIGTERM",
        }
    }
}
