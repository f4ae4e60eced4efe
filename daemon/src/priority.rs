//! Which threads have the processor first.
//!
//! Frames come first: what sends messages, serves readers and draws pictures gives way to what captures and looks, where
//! cores are few. It is a favour, not a need: a sandbox that forbids it (`visiond.service` does; `priorities.conf` beside it
//! does not) costs some tenths of a millisecond at the 99th percentile, measured by `tests/bench/load.py`.

use std::io::Error;
use std::sync::Once;

/// What a thread that gives way works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Little work, which readers wait for.
    Messages,
    /// Much work, and what is late is left out.
    Pictures,
}

/// By how much a thread that makes pictures is nicer than the process: a tenth of the weight, see sched(7).
const NICER: libc::c_int = 10;

static REFUSED: Once = Once::new();

/// Has this thread, and those that it starts, give way to the others: woken, it takes the processor from none
/// (`SCHED_BATCH`), and for pictures it gets less of it where it is wanted. It cannot be taken back, so never on a thread
/// that starts a camera or a network.
pub fn give_way(work: Work) {
    let nicer = if work == Work::Pictures { be_nicer() } else { Ok(()) };
    if let Err(why) = leave_others_their_core().and(nicer) {
        REFUSED
            .call_once(|| log::debug!("sinks and pictures have the processor as soon as cameras and networks: {why}"));
    }
}

/// Nothing where the process runs under another policy already (`CPUSchedulingPolicy=`).
fn leave_others_their_core() -> Result<(), Error> {
    // SAFETY: it is plain numbers, for which 0 is a value.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: sched_getscheduler(2) takes a number, and 0 is the calling thread; sched_setscheduler(2) reads `none`, which
    // outlives the call.
    let refused = unsafe {
        libc::sched_getscheduler(0) == libc::SCHED_OTHER && libc::sched_setscheduler(0, libc::SCHED_BATCH, &none) != 0
    };
    if refused { Err(Error::last_os_error()) } else { Ok(()) }
}

fn be_nicer() -> Result<(), Error> {
    // The process's own, so that a thread that was started by one that gives way is not nicer still.
    let process = libc::id_t::try_from(std::process::id()).unwrap_or(0);
    // SAFETY: getpriority(2) and setpriority(2) take numbers and touch no memory. 0 is the calling thread.
    let refused = unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, libc::getpriority(libc::PRIO_PROCESS, process) + NICER) != 0
    };
    if refused { Err(Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy and niceness of the calling thread.
    fn own() -> (i32, i32) {
        // SAFETY: as above.
        unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) }
    }

    #[test]
    fn a_thread_gives_way_once_and_so_do_those_that_it_starts() {
        let before = own();
        let policy = if before.0 == libc::SCHED_OTHER { libc::SCHED_BATCH } else { before.0 };
        let expected = (policy, (before.1 + NICER).min(19));
        let inner = std::thread::spawn(move || {
            give_way(Work::Pictures);
            assert_eq!(own(), expected);
            let started = std::thread::spawn(move || {
                assert_eq!(own(), expected);
                give_way(Work::Pictures);
                assert_eq!(own(), expected);
            });
            started.join()
        });
        assert!(inner.join().is_ok_and(|started| started.is_ok()));
        assert_eq!(own(), before, "the others stay as they are");
    }
}
