//! Signals, reported through a descriptor. SIGTERM and SIGINT end the daemon; a second one, or a time limit, ends the process
//! at once. SIGHUP reloads the configuration.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::exit::Exit;
use crate::threads::finished_by;
use crate::wake_pipe::WakePipe;

/// A signal within this time is a repetition: `timeout` and Ctrl-C in a terminal signal the process and then its whole group.
const ECHO: Duration = Duration::from_millis(250);

/// Maximum time from the first signal to the end of the process, even if something hangs: a model that is being loaded, a
/// lock, a disk, the log.
const LIMIT: Duration = Duration::from_millis(1_950);

/// The signals that the daemon handles.
#[derive(Debug)]
pub struct Signals {
    wake_pipe: Arc<WakePipe>,
    /// Number of the signal that ends the daemon; 0 before one arrived.
    end: Arc<AtomicUsize>,
    reload: Arc<AtomicBool>,
}

/// Request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// End the daemon; with the name of the signal.
    End(&'static str),
    /// Reload the configuration.
    Reload,
}

impl Signals {
    /// Installs the signal handlers, for the rest of the process.
    ///
    /// # Errors
    /// The system refuses a handler, a socket or a thread.
    pub fn register() -> io::Result<Self> {
        let signals = Self::unbound()?;
        let armed = Arc::new(AtomicBool::new(false));
        let (mut first, first_writer) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            // Once armed, a signal ends the process with 128 plus its number, the status that a shell reports.
            // Child processes also end, see `child_process::die_with_parent`.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
            low_level::pipe::register(signal, first_writer.try_clone()?)?;
            flag::register_usize(signal, Arc::clone(&signals.end), signal as usize)?;
            low_level::pipe::register(signal, signals.wake_pipe.writer()?)?;
        }
        flag::register(SIGHUP, Arc::clone(&signals.reload))?;
        low_level::pipe::register(SIGHUP, signals.wake_pipe.writer()?)?;
        // On a separate thread, because the first signal may arrive while a model is being loaded.
        let arm = move || {
            if first.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ECHO);
                armed.store(true, Ordering::SeqCst);
                std::thread::sleep(LIMIT - ECHO);
                end_process();
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(arm)?;
        Ok(signals)
    }

    fn unbound() -> io::Result<Self> {
        Ok(Self { wake_pipe: Arc::new(WakePipe::new()?), end: Arc::default(), reload: Arc::default() })
    }

    /// Returns a descriptor that is readable from a signal or a wake-up until [`Signals::take_request`].
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.wake_pipe.reader.as_fd()
    }

    /// Returns the request since the last call. A request to end takes precedence.
    pub fn take_request(&self) -> Option<SignalRequest> {
        self.wake_pipe.clear();
        let reload = self.reload.swap(false, Ordering::SeqCst);
        match i32::try_from(self.end.load(Ordering::SeqCst)) {
            Ok(SIGINT) => Some(SignalRequest::End("SIGINT")),
            Ok(SIGTERM) => Some(SignalRequest::End("SIGTERM")),
            _ => reload.then_some(SignalRequest::Reload),
        }
    }

    /// Returns the pipe that makes [`Signals::readable`] readable.
    pub fn wake_pipe(&self) -> Arc<WakePipe> {
        Arc::clone(&self.wake_pipe)
    }
}

/// Ends the process without waiting for anything.
fn end_process() -> ! {
    let log = || log::error!("shutdown did not finish within 2 s of the signal: ending the process");
    // On another thread, because the log may be what hangs.
    if let Ok(logging) = std::thread::Builder::new().spawn(log) {
        finished_by([&logging], Instant::now() + Duration::from_millis(40));
    }
    // SAFETY: the call ends the process and runs no more of its code.
    unsafe { libc::_exit(Exit::Success.code().into()) }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Simulated signals.

    use super::*;

    /// Sends simulated signals.
    #[derive(Clone)]
    pub struct Sender(Arc<WakePipe>, Arc<AtomicUsize>, Arc<AtomicBool>);

    impl Sender {
        /// Simulates SIGTERM.
        pub fn end(&self) {
            self.1.store(SIGTERM as usize, Ordering::SeqCst);
            self.0.wake();
        }

        /// Simulates SIGHUP.
        pub fn reload(&self) {
            self.2.store(true, Ordering::SeqCst);
            self.0.wake();
        }
    }

    /// Returns simulated signals and their sender.
    pub fn signals() -> io::Result<(Signals, Sender)> {
        let signals = Signals::unbound()?;
        let sender = Sender(signals.wake_pipe(), Arc::clone(&signals.end), Arc::clone(&signals.reload));
        Ok((signals, sender))
    }
}
