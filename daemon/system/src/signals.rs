//! SIGTERM and SIGINT: the first is told through a descriptor, a second ends the process at once. SIGHUP: to read the
//! configuration again, told through the same descriptor.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// A signal that follows another sooner is the same wish: `timeout` and a terminal's Ctrl-C signal the process and then its
/// whole group.
const ECHO: Duration = Duration::from_millis(250);

/// The signals that the daemon listens to.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    bell: Bell,
    /// The number of the signal that ends it; 0 before one came.
    end: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
}

/// What a signal wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The daemon is to end; by the signal of this name.
    End(&'static str),
    /// The configuration is to be read again.
    Reload,
}

/// Wakes whoever waits for signals.
#[derive(Debug, Clone)]
pub struct Bell(Arc<UnixStream>);

impl Bell {
    /// Makes the signals readable.
    pub fn ring(&self) {
        // Full means that it rang already.
        let _ = (&*self.0).write(&[1]);
    }
}

impl Signals {
    /// Takes the signals over, for the rest of the process's life.
    pub fn register() -> io::Result<Self> {
        let signals = Self::unbound()?;
        let armed = Arc::new(AtomicBool::new(false));
        let (mut first, first_ring) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            // A signal that finds it armed ends the process with 128 and its number, as a shell would tell a death by it.
            // Children die with us, see `capture::child`.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
            low_level::pipe::register(signal, first_ring.try_clone()?)?;
            flag::register_usize(signal, Arc::clone(&signals.end), signal as usize)?;
            low_level::pipe::register(signal, signals.bell.0.try_clone()?)?;
        }
        flag::register(SIGHUP, Arc::clone(&signals.reload))?;
        low_level::pipe::register(SIGHUP, signals.bell.0.try_clone()?)?;
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

    fn unbound() -> io::Result<Self> {
        let (wake, ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        Ok(Self { wake, bell: Bell(Arc::new(ring)), end: Arc::default(), reload: Arc::default() })
    }

    /// Readable once a signal came or the bell rang, until [`Signals::heard`].
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What came since it was asked last. An end outweighs all else.
    pub fn heard(&self) -> Option<Wish> {
        while matches!((&self.wake).read(&mut [0; 64]), Ok(64)) {}
        let reload = self.reload.swap(false, Ordering::SeqCst);
        match i32::try_from(self.end.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Some(Wish::End("SIGINT")),
            Ok(SIGTERM) => Some(Wish::End("SIGTERM")),
            _ => reload.then_some(Wish::Reload),
        }
    }

    /// Another bell beside the signals.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Signals that are not the process's.

    use super::*;

    /// Sends them.
    #[derive(Clone)]
    pub struct Sender(Bell, Arc<AtomicUsize>, Arc<AtomicBool>);

    impl Sender {
        /// As SIGTERM does.
        pub fn end(&self) {
            self.1.store(SIGTERM as usize, Ordering::SeqCst);
            self.0.ring();
        }

        /// As SIGHUP does.
        pub fn reload(&self) {
            self.2.store(true, Ordering::SeqCst);
            self.0.ring();
        }
    }

    /// Signals and who sends them.
    pub fn signals() -> io::Result<(Signals, Sender)> {
        let signals = Signals::unbound()?;
        let sender = Sender(signals.bell(), Arc::clone(&signals.end), Arc::clone(&signals.reload));
        Ok((signals, sender))
    }
}
