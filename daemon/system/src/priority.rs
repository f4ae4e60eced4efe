//! Which threads have the processor first.
//!
//! Frames come first: what sends messages, serves readers and draws pictures gives way to what captures and looks, where
//! cores are few. It is a favour, not a need: a sandbox that forbids it (`visiond.service` does; `priorities.conf` beside it
//! does not) costs some tenths of a millisecond at the 99th percentile, measured by `tests/bench/load.py`.

use std::io::Error;
use std::sync::Once;

/// How far a thread gives way, see sched(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// Woken, it takes the processor from none (`SCHED_BATCH`). For little work that readers wait for.
    Batch,
    /// And where the processor is wanted it gets a tenth of what others get (10 nicer than the process). For much work.
    Nice,
    /// It has the processor while nobody else wants it, and who wakes takes it at once (`SCHED_IDLE`). Where no core is ever
    /// free it hardly gets on, so what a camera or a network might wait for is not held meanwhile.
    Idle,
}

/// By how much [`Rank::Nice`] is nicer than the process: a tenth of the weight.
const NICER: libc::c_int = 10;

static REFUSED: Once = Once::new();

/// Has this thread, and those that it starts, give way to the others; `false`: it may not, and has the rank that it had. It
/// cannot be taken back, so never on a thread that starts a camera or a network.
pub fn give_way(rank: Rank) -> bool {
    let done = match rank {
        Rank::Batch => be(libc::SCHED_BATCH),
        Rank::Nice => be(libc::SCHED_BATCH).and(be_nicer()),
        Rank::Idle => be(libc::SCHED_IDLE),
    };
    if let Err(why) = &done {
        REFUSED
            .call_once(|| log::debug!("sinks and pictures have the processor as soon as cameras and networks: {why}"));
    }
    done.is_ok()
}

/// Takes a policy that gives way more than the thread's own; refuses where the process runs under another (`CPUSchedulingPolicy=`).
fn be(policy: libc::c_int) -> Result<(), Error> {
    // SAFETY: sched_getscheduler(2) takes a number and touches no memory; 0 is the calling thread.
    let now = unsafe { libc::sched_getscheduler(0) };
    if now == policy {
        return Ok(());
    }
    if now != libc::SCHED_OTHER && now != libc::SCHED_BATCH {
        return Err(Error::other(format!("the process runs under policy {now}, see sched(7)")));
    }
    // SAFETY: it is plain numbers, for which 0 is a value.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: sched_setscheduler(2) reads `none`, which outlives the call.
    if unsafe { libc::sched_setscheduler(0, policy, &none) } == 0 { Ok(()) } else { Err(Error::last_os_error()) }
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

    /// Where tests run under a policy of their own there is nothing to see.
    fn is_ordinary() -> bool {
        own().0 == libc::SCHED_OTHER
    }

    #[test]
    fn a_thread_gives_way_once_and_so_do_those_that_it_starts_but_no_other() {
        let before = own();
        if !is_ordinary() {
            return;
        }
        let expected = (libc::SCHED_BATCH, (before.1 + NICER).min(19));
        let inner = std::thread::spawn(move || {
            assert!(give_way(Rank::Nice));
            assert_eq!(own(), expected);
            let started = std::thread::spawn(move || {
                assert_eq!(own(), expected);
                assert!(give_way(Rank::Nice));
                assert_eq!(own(), expected);
            });
            started.join()
        });
        assert!(inner.join().is_ok_and(|started| started.is_ok()));
        assert_eq!(own(), before, "the others stay as they are");
    }

    #[test]
    fn who_has_what_nobody_wants_gets_no_more_by_giving_way_less() {
        if !is_ordinary() {
            return;
        }
        let inner = std::thread::spawn(|| {
            assert!(give_way(Rank::Batch) && give_way(Rank::Idle) && give_way(Rank::Idle));
            assert!(!give_way(Rank::Batch));
            assert_eq!(own().0, libc::SCHED_IDLE);
        });
        assert!(inner.join().is_ok());
    }
}
