//! SIGTERM and SIGINT: the first is told through a descriptor, a second ends the process at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

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
        let pending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: a signal that finds another one pending ends the process with 128 and its number, as a shell
            // would tell a death by it. Children die with us, see `capture::child`.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&pending))?;
            flag::register(signal, Arc::clone(&pending))?;
            flag::register_usize(signal, Arc::clone(&signals.last), signal as usize)?;
            low_level::pipe::register(signal, ring.try_clone()?)?;
        }
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
