//! The thread that wakes the sinks' threads.
//!
//! Waking a sleeping thread costs a lane some 20 us if that thread's core sleeps too, and may cost the lane its core. A lane
//! therefore wakes only this thread, regardless of the number of sinks and readers, and no thread while this one is running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use visiond_system::priority::{Rank, give_way};

#[derive(Debug)]
pub struct WakeThread {
    ended: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl WakeThread {
    /// Starts the thread. `wake` must not wait for anything. Fails if the system cannot start a thread.
    pub fn start(wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let handle = {
            let ended = Arc::clone(&ended);
            std::thread::Builder::new().name("publish".to_owned()).spawn(move || {
                give_way(Rank::Batch);
                while !ended.load(Ordering::SeqCst) {
                    // Returns at once if there was a call since the last round.
                    std::thread::park();
                    wake();
                }
            })?
        };
        Ok(Self { ended, handle: Some(handle) })
    }

    /// Makes the thread run once more, soon. Never waits; one system call if the thread sleeps, otherwise none.
    pub fn call(&self) {
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }
}

impl Drop for WakeThread {
    /// Ends the thread and waits for it.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.call();
        let handle = self.handle.take();
        if handle.is_some_and(|handle| handle.join().is_err()) {
            log::error!("the thread that wakes the sinks panicked, which is a bug in visiond: please report it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use visiond_system::testing::{HANG, wait_until};

    #[test]
    fn every_call_is_followed_by_a_wake_and_many_at_once_by_few() {
        let count = Arc::new(AtomicUsize::new(0));
        let (woken, wakes) = mpsc::channel();
        let go_on = Arc::new(AtomicBool::new(false));
        let wake_thread = {
            let (count, go_on) = (Arc::clone(&count), Arc::clone(&go_on));
            let wake = move || {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = woken.send(());
                // Not a channel, because waiting on one would consume the calls.
                wait_until("the test to let it go on", || go_on.load(Ordering::SeqCst));
            };
            WakeThread::start(wake).unwrap()
        };
        wake_thread.call();
        wakes.recv_timeout(HANG).unwrap();
        (0..100).for_each(|_| wake_thread.call());
        assert_eq!(count.load(Ordering::SeqCst), 1, "it is still at the first");
        go_on.store(true, Ordering::SeqCst);
        wakes.recv_timeout(HANG).unwrap();
        assert!(wakes.recv_timeout(Duration::from_millis(50)).is_err(), "there was no call");
        drop(wake_thread);
        // The drop causes the last wake.
        assert!((2..=3).contains(&count.load(Ordering::SeqCst)), "{count:?}");
    }
}
