//! The stop flag, which every thread watches and every wait includes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::heartbeat::{Beat, Waiting};

/// A flag with an eventfd that stays readable once the flag is raised, so that it wakes `poll`. Clones share it.
///
/// A [`Stop::child`] is raised with its parent, or alone: it ends one camera or lane; the parent ends them all.
#[derive(Debug, Clone)]
pub struct Stop {
    shared: Arc<StopFlag>,
    /// Heartbeat of the thread that owns this clone.
    beat: Option<Arc<Beat>>,
}

#[derive(Debug)]
struct StopFlag {
    raised: AtomicBool,
    wake: OwnedFd,
    children: Mutex<Vec<Weak<StopFlag>>>,
}

impl StopFlag {
    fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        // The result does not matter: a full counter is also readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        let children = self.children.lock();
        children.iter().filter_map(Weak::upgrade).for_each(|child| child.raise());
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The descriptor is ready, or its other end is closed.
    Ready,
    /// The flag was raised.
    Stopped,
    /// The time limit passed.
    TimedOut,
}

impl Stop {
    /// Creates a flag that is not raised.
    ///
    /// # Errors
    /// The process has run out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = StopFlag { raised: AtomicBool::new(false), wake, children: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), beat: None })
    }

    /// Creates a flag that is raised with this one at the latest.
    pub fn child(&self) -> io::Result<Self> {
        let child = Self::new()?;
        let mut children = self.shared.children.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child.shared));
        drop(children);
        // If this flag was raised before the child was in the list, it is set by now.
        if self.is_raised() {
            child.raise();
        }
        Ok(child)
    }

    /// Returns a clone that records the waits of its thread in `beat`.
    pub fn with_beat(&self, beat: Arc<Beat>) -> Self {
        Self { shared: Arc::clone(&self.shared), beat: Some(beat) }
    }

    /// Records that this thread waits while the guard lives.
    pub fn waiting(&self) -> Option<Waiting<'_>> {
        self.beat.as_ref().map(|beat| beat.wait())
    }

    /// Raises the flag, which asks every thread to end. Idempotent.
    pub fn raise(&self) {
        self.shared.raise();
    }

    /// Records that this thread makes progress, for a loop whose turns do not wait through this flag.
    pub fn mark_progress(&self) {
        if let Some(beat) = &self.beat {
            beat.step();
        }
    }

    /// Returns whether the flag was raised.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// Waits until `fd` is readable, the flag is raised, or `timeout` passes (`None`: no limit).
    pub fn wait_readable(&self, fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
        self.poll(Some((fd, libc::POLLIN)), timeout)
    }

    /// Waits like [`wait_readable`](Self::wait_readable), for any of the `events` of poll(2).
    pub fn wait_events(&self, fd: BorrowedFd<'_>, events: i16, timeout: Option<Duration>) -> io::Result<Wake> {
        self.poll(Some((fd, events)), timeout)
    }

    /// Returns a descriptor that is readable once the flag is raised.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Sleeps for `duration` or until the flag is raised; returns whether it was raised.
    pub fn sleep(&self, duration: Duration) -> bool {
        // `poll` handles EINTR; any other error counts as a timeout.
        matches!(self.poll(None, Some(duration)), Ok(Wake::Stopped))
    }

    fn poll(&self, fd: Option<(BorrowedFd<'_>, i16)>, timeout: Option<Duration>) -> io::Result<Wake> {
        let until = timeout.map(|t| std::time::Instant::now() + t);
        loop {
            self.mark_progress();
            if self.is_raised() {
                return Ok(Wake::Stopped);
            }
            // Without another descriptor, only the first entry is used.
            let (other, events) = fd.unwrap_or((self.as_fd(), 0));
            let events = PollFlags::from_bits_retain(events as u16);
            let mut fds = [PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::from_borrowed_fd(other, events)];
            let used = if fd.is_some() { &mut fds[..] } else { &mut fds[..1] };
            let left = until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            let _waiting = self.waiting();
            match poll(used, left.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(0) => return Ok(Wake::TimedOut),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Wake::Stopped),
                Ok(_) => return Ok(Wake::Ready),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::heartbeat::Pulse;

    #[test]
    fn raise_wakes_a_sleeper_and_stays() {
        let stop = Stop::new().unwrap();
        let other = stop.clone();
        let sleeper = std::thread::spawn(move || other.sleep(Duration::from_secs(60)));
        stop.raise();
        assert!(sleeper.join().unwrap());
        assert!(stop.sleep(Duration::from_secs(60)));
    }

    #[test]
    fn a_child_is_raised_alone_or_with_its_parent() {
        let parent = Stop::new().unwrap();
        let (one, other) = (parent.child().unwrap(), parent.child().unwrap());
        one.raise();
        assert!(one.is_raised() && !parent.is_raised() && !other.is_raised());
        parent.raise();
        assert!(other.sleep(Duration::from_secs(60)));
        assert!(parent.child().unwrap().is_raised(), "one that is born late is raised, too");
    }

    #[test]
    fn the_watchdog_sees_waits_and_steps_of_a_thread_that_has_a_heartbeat() {
        let beat = Arc::new(Beat::default());
        let stop = Stop::new().unwrap();
        stop.mark_progress();
        assert!(stop.waiting().is_none(), "a flag without a heartbeat records nothing");
        let stop = stop.with_beat(Arc::clone(&beat));
        stop.mark_progress();
        assert_eq!(beat.pulse(), Pulse { waits: false, steps: 1 });
        let waiting = stop.waiting();
        assert!(beat.pulse().waits);
        drop(waiting);
        let after = beat.pulse();
        assert!(!after.waits && after.steps > 1, "{after:?}");
        // Each wait counts as progress, even one that ends at once.
        stop.raise();
        assert!(stop.sleep(Duration::from_secs(60)));
        assert!(beat.pulse().steps > after.steps && !beat.pulse().waits);
    }

    #[test]
    fn children_that_are_gone_leave_nothing_behind() {
        let parent = Stop::new().unwrap();
        (0..100).for_each(|_| drop(parent.child().unwrap()));
        assert!(parent.shared.children.lock().len() <= 1);
    }

    #[test]
    fn a_wait_ends_by_data_or_by_time() {
        let stop = Stop::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(stop.wait_readable(reader.as_fd(), Some(Duration::from_millis(5))).unwrap(), Wake::TimedOut);
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert_eq!(stop.wait_readable(reader.as_fd(), None).unwrap(), Wake::Ready);
    }
}
