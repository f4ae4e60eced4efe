//! Scheduling of threads: priorities, and timer precision.
//!
//! Frames come first: when cores are scarce, threads that send messages, serve readers or draw images yield to those that
//! capture and run models. visiond works without this: in a sandbox that forbids it (as `visiond.service` does, unlike
//! `priorities.conf` beside it), the 99th percentile rises by some tenths of a millisecond, measured by
//! `tests/bench/load.py`.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use rustix::process::{getpid, getpriority_process, setpriority_process};

/// How strongly a thread yields to others, see sched(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// It never preempts another thread when it wakes (`SCHED_BATCH`). For light work that readers wait for.
    Batch,
    /// Like `Batch`, but on a busy core it gets a tenth of the others' time (nice 10 above the process). For heavy work.
    Nice,
    /// It runs only on an idle core, and any thread that wakes preempts it (`SCHED_IDLE`). While all cores are busy it hardly
    /// runs, so it must not hold anything that a camera or a lane waits for.
    Idle,
}

/// Nice value of [`Rank::Nice`] above the process's: a tenth of the weight.
const NICER: i32 = 10;

/// How late a precise sleep may end.
const SLACK_ON_TIME: Duration = Duration::from_micros(1);

/// How late a relaxed sleep may end.
const SLACK_TOGETHER: Duration = Duration::from_micros(250);

static REFUSED: Once = Once::new();

/// Makes this thread, and those that it starts, yield to the others; returns `false`, and changes nothing, if the system
/// forbids it.
///
/// The thread cannot undo it, so do not call this on a thread that starts cameras or lanes.
pub fn give_way(rank: Rank) -> bool {
    let done = match rank {
        Rank::Batch => be(libc::SCHED_BATCH),
        Rank::Nice => be(libc::SCHED_BATCH).and(be_nicer()),
        Rank::Idle => be(libc::SCHED_IDLE),
    };
    if let Err(error) = &done {
        REFUSED.call_once(|| log::debug!("cannot lower the priority of sinks and pictures: {error}"));
    }
    done.is_ok()
}

/// The nice value that yields most.
const NICEST: libc::c_int = 19;

/// I/O that waits until nothing else uses the disk, see ioprio_set(2): the class for idle time, and the target "a process".
const IO_IDLE: libc::c_int = 3 << 13;
const IO_OF_PROCESS: libc::c_int = 1;

/// Makes a program run, and read and write, only while nothing else wants the cores and the disk. Where the system forbids that, it
/// runs as any other.
pub fn run_when_idle(command: &mut Command) {
    let hook = || {
        // The nice value counts where the policy is refused.
        // SAFETY: setpriority(2) takes numbers and touches no memory; 0 is the calling process. Async-signal-safe.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) };
        // SAFETY: `sched_param` is plain numbers, for which zero is valid.
        let none: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: sched_setscheduler(2) reads `none`, which outlives the call. Async-signal-safe.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) };
        // SAFETY: ioprio_set(2) takes three numbers and touches no memory. Async-signal-safe.
        let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, IO_OF_PROCESS, 0, IO_IDLE) };
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes only three system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// Makes this thread's sleeps end when they should. By default Linux lets them end 50 us later, to wake for several timers at once.
pub fn wake_on_time() {
    allow_late_wakes(SLACK_ON_TIME);
}

/// Lets this thread's sleeps end up to a quarter of a millisecond late, so that with dozens of such threads a core wakes for
/// several of them at once.
pub fn wake_together() {
    allow_late_wakes(SLACK_TOGETHER);
}

fn allow_late_wakes(by: Duration) {
    // SAFETY: prctl(2) with these arguments touches no memory. It cannot fail; if a sandbox forbids it, sleeps are as late as by
    // default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, by.as_nanos() as libc::c_ulong) };
}

/// Sets a policy that yields more than the thread's own; fails if the process already runs under a special policy
/// (`CPUSchedulingPolicy=`).
fn be(policy: libc::c_int) -> Result<(), Error> {
    // SAFETY: sched_getscheduler(2) takes a number and touches no memory; 0 is the calling thread.
    let now = unsafe { libc::sched_getscheduler(0) };
    if now == policy {
        return Ok(());
    }
    if now != libc::SCHED_OTHER && now != libc::SCHED_BATCH {
        return Err(Error::other(format!("the process runs under policy {now}, see sched(7)")));
    }
    // SAFETY: `sched_param` is plain numbers, for which zero is valid.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: sched_setscheduler(2) reads `none`, which outlives the call.
    if unsafe { libc::sched_setscheduler(0, policy, &none) } == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn be_nicer() -> Result<(), Error> {
    // Relative to the process's own value, so that a thread started by a nice one does not get even nicer.
    let nice = getpriority_process(Some(getpid()))? + NICER;
    // `None` is the calling thread.
    Ok(setpriority_process(None, nice)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy and niceness of the calling thread.
    fn own() -> (i32, i32) {
        // SAFETY: as above.
        unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) }
    }

    /// Under another policy there is nothing to test.
    fn is_ordinary() -> bool {
        own().0 == libc::SCHED_OTHER
    }

    #[test]
    fn a_thread_gives_way_once_and_so_do_those_that_it_starts_but_no_other() {
        let before = own();
        if !is_ordinary() {
            crate::testing::skip("this process has another scheduling policy than SCHED_OTHER");
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
    fn a_program_that_runs_when_idle_has_the_least_of_cores_and_disk() {
        if !is_ordinary() {
            crate::testing::skip("this process has another scheduling policy than SCHED_OTHER");
            return;
        }
        // Fields 19 and 41 of stat are the nice value and the policy.
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f19,41 /proc/self/stat; ionice 2>/dev/null || echo idle"]);
        run_when_idle(&mut command);
        let said = command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        assert_eq!(said.unwrap_or_default(), format!("19 {}\nidle\n", libc::SCHED_IDLE));
        assert_eq!(own().0, libc::SCHED_OTHER, "this process stays as it is");
    }

    #[test]
    fn an_idle_thread_gets_no_more_time_by_giving_way_less() {
        if !is_ordinary() {
            crate::testing::skip("this process has another scheduling policy than SCHED_OTHER");
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
