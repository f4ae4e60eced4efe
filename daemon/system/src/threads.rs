//! Waits for threads to end, with a deadline.

use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How often a thread is checked.
const INTERVAL: Duration = Duration::from_millis(1);

/// Waits until every thread has finished, at the latest until `deadline`; returns whether they all have.
///
/// A thread that has not finished may hang in a system call; the caller still owns its handle.
pub fn finished_by<'a, T: 'a>(threads: impl IntoIterator<Item = &'a JoinHandle<T>>, deadline: Instant) -> bool {
    for thread in threads {
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(INTERVAL);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::testing::hang;

    #[test]
    fn a_thread_that_hangs_is_waited_for_until_the_deadline_and_one_that_ends_no_longer_than_it_takes() {
        let (release, wait) = channel::<()>();
        let threads = [std::thread::spawn(|| {}), std::thread::spawn(move || wait.recv().unwrap_or_default())];
        assert!(finished_by(&threads[..1], hang()));
        assert!(!finished_by(&threads, Instant::now()));
        drop(release);
        assert!(finished_by(&threads, hang()));
    }
}
