//! Signals, reported through a descriptor. SIGTERM and SIGINT end the daemon; a second one ends the process at once. SIGHUP reloads
//! the configuration.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// A signal within this time repeats the one before: `timeout` and Ctrl-C in a terminal signal the process and then its whole
/// group.
const ECHO: Duration = Duration::from_millis(250);

/// The signals that the daemon handles.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    bell: Bell,
    /// Number of the signal that ends the daemon; 0 before one arrived.
    end: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
}

/// Request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// End the daemon; with the name of the signal.
    End(&'static str),
    /// Reload the configuration.
    Reload,
}

/// Wakes the thread that waits for signals.
#[derive(Debug, Clone)]
pub struct Bell(Arc<UnixStream>);

impl Bell {
    /// Makes [`Signals::readable`] readable.
    pub fn ring(&self) {
        // A full socket is readable already.
        let _ = (&*self.0).write(&[1]);
    }
}

impl Signals {
    /// Installs the signal handlers, for the rest of the process.
    ///
    /// # Errors
    /// The system refuses a handler, a socket or a thread.
    pub fn register() -> io::Result<Self> {
        let signals = Self::unbound()?;
        let armed = Arc::new(AtomicBool::new(false));
        let (mut first, first_ring) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            // Once armed, a signal ends the process with 128 plus its number, the status that a shell reports.
            // Child processes end too, see `child_process::die_with_parent`.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
            low_level::pipe::register(signal, first_ring.try_clone()?)?;
            flag::register_usize(signal, Arc::clone(&signals.end), signal as usize)?;
            low_level::pipe::register(signal, signals.bell.0.try_clone()?)?;
        }
        flag::register(SIGHUP, Arc::clone(&signals.reload))?;
        low_level::pipe::register(SIGHUP, signals.bell.0.try_clone()?)?;
        // A thread of its own, because the first signal may arrive while a model is being loaded.
        let arm = move || {
            if first.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ECHO);
                armed.store(true, Ordering::SeqCst);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(arm)?;
        Ok(signals)
    }

    fn unbound() -> io::Result<Self> {
        let (wake, ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        Ok(Self { wake, bell: Bell(Arc::new(ring)), end: Arc::default(), reload: Arc::default() })
    }

    /// Returns a descriptor that is readable from a signal or a bell until [`Signals::heard`].
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Returns the request since the last call. A request to end takes precedence.
    pub fn heard(&self) -> Option<Wish> {
        while matches!((&self.wake).read(&mut [0; 64]), Ok(64)) {}
        let reload = self.reload.swap(false, Ordering::SeqCst);
        match i32::try_from(self.end.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Some(Wish::End("SIGINT")),
            Ok(SIGTERM) => Some(Wish::End("SIGTERM")),
            _ => reload.then_some(Wish::Reload),
        }
    }

    /// Returns a bell that wakes the same descriptor.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Simulated signals.

    use super::*;

    /// Sends simulated signals.
    #[derive(Clone)]
    pub struct Sender(Bell, Arc<AtomicUsize>, Arc<AtomicBool>);

    impl Sender {
        /// Simulates SIGTERM.
        pub fn end(&self) {
            self.1.store(SIGTERM as usize, Ordering::SeqCst);
            self.0.ring();
        }

        /// Simulates SIGHUP.
        pub fn reload(&self) {
            self.2.store(true, Ordering::SeqCst);
            self.0.ring();
        }
    }

    /// Returns simulated signals and their sender.
    pub fn signals() -> io::Result<(Signals, Sender)> {
        let signals = Signals::unbound()?;
        let sender = Sender(signals.bell(), Arc::clone(&signals.end), Arc::clone(&signals.reload));
        Ok((signals, sender))
    }
}
