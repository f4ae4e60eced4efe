//! Helpers for tests of several crates, mainly waits. Events end them, not time, so a busy machine only makes them slower.

#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::heartbeat::Beat;
use crate::stop::Stop;

/// How long a wait may take before it counts as a hang and fails the test.
pub const HANG: Duration = Duration::from_secs(120);

/// Longer than any test, for a wait that another event ends.
pub const EVER: Duration = Duration::from_secs(3600);

/// Makes the text of a JSON schema strict: an object has the members that it lists, and none that a later version adds. For a
/// duplicate key, the parser uses the last one, so an object with its own `additionalProperties` keeps it.
pub fn strict_schema(open: &str) -> String {
    open.replace("\"type\": \"object\",", "\"type\": \"object\", \"additionalProperties\": false,")
}

/// Returns a deadline that only a hang reaches.
pub fn hang() -> Instant {
    Instant::now() + HANG
}

/// Returns a deadline that no test reaches.
pub fn never() -> Instant {
    Instant::now() + EVER
}

/// Waits until `done` returns true; panics if that hangs.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + HANG;
    while !done() {
        assert!(Instant::now() < until, "waited {} s for {what}", HANG.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `work` on another thread and returns its result; panics if it hangs.
#[track_caller]
pub fn finishes<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(work);
    wait_until(what, || thread.is_finished());
    match thread.join() {
        Ok(given) => given,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Starts `wait` with a [`Stop`], calls `act` with that while it waits, and returns the result of `wait`.
#[track_caller]
pub fn while_it_waits<T: Send + 'static>(wait: impl FnOnce(&Stop) -> T + Send + 'static, act: impl FnOnce(&Stop)) -> T {
    let (stop, beat) = (Stop::new().expect("an eventfd"), Arc::new(Beat::default()));
    let watched = stop.with_beat(Arc::clone(&beat));
    let thread = std::thread::spawn(move || wait(&watched));
    // It sleeps in poll(2), or checks stop in a loop.
    wait_until("the wait to begin", || beat.pulse().waits || beat.pulse().steps >= 2 || thread.is_finished());
    act(&stop);
    wait_until("the wait to end", || thread.is_finished());
    match thread.join() {
        Ok(given) => given,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Calls [`while_it_waits`] and raises stop.
#[track_caller]
pub fn stopped_while_it_waits<T: Send + 'static>(wait: impl FnOnce(&Stop) -> T + Send + 'static) -> T {
    while_it_waits(wait, Stop::raise)
}

/// Returns the result of `future`, even if the runtime's budget is used up; `None` if it would wait.
pub async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(tokio::task::unconstrained(future));
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(given) => Poll::Ready(Some(given)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Creates a FIFO, whose opening blocks without O_NONBLOCK.
pub fn make_fifo(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().expect("a path for a test")).expect("a path for a test");
    // SAFETY: mkfifo(3) reads a NUL-terminated path that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{path:?}");
}

/// Reports that the running test cannot do its job, so that `tests/steps.py` counts it as skipped. The test runner captures
/// what tests print with macros, but not direct writes.
pub fn skip(reason: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// A file system of a few pages; unmounted when dropped.
pub struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    /// Mounts a file system of `bytes`; reports a skipped test and returns `None` if this user may not mount.
    pub fn mount(bytes: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let target =
            std::ffi::CString::new(folder.path().to_str().expect("a folder for a test")).expect("a folder for a test");
        let options = std::ffi::CString::new(format!("size={bytes}")).expect("a folder for a test");
        // SAFETY: all four are NUL-terminated strings that live through the call; tmpfs reads `data` as a string.
        let mounted =
            unsafe { libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()) };
        if mounted != 0 {
            skip("mounting needs root");
            return None;
        }
        Some(Self(folder))
    }

    /// Returns a path on it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let target =
            std::ffi::CString::new(self.0.path().to_str().expect("a folder for a test")).expect("a folder for a test");
        // SAFETY: a NUL-terminated path that lives through the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}
