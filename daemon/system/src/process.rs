//! What the system tells of this process: its age, its memory, and the CPU time of a thread.

use std::fs;
use std::time::Duration;

/// Time since the process was started, to 10 ms; `None` where /proc is not there.
pub fn age() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    age_from(&stat, &uptime)
}

fn age_from(stat: &str, uptime: &str) -> Option<Duration> {
    // The program's name may hold anything, so fields are counted from behind it; the start is the 22nd of all.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    // Ticks are USER_HZ, which Linux promises to be 100 to programs on every machine that we run on.
    Duration::try_from_secs_f64((up - ticks / 100.0).max(0.0)).ok()
}

/// Resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Now, in bytes.
    pub now: u64,
    /// At most so far, in bytes.
    pub peak: u64,
}

/// Resident memory now and at most; `None` where /proc is not there.
pub fn resident() -> Option<Resident> {
    resident_from(&fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_from(status: &str) -> Option<Resident> {
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    Some(Resident { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

/// CPU time of the calling thread since its last look.
#[derive(Debug)]
pub struct CpuWatch {
    seen_ns: u64,
}

impl CpuWatch {
    /// From now on.
    pub fn start() -> Self {
        Self { seen_ns: thread_cpu_ns() }
    }

    /// Nanoseconds of CPU time, user and system, since the start or the last call. To be called by the same thread.
    pub fn lap_ns(&mut self) -> u64 {
        let now_ns = thread_cpu_ns();
        now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns))
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write; every Linux has this clock for the calling thread, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    // It counts up from the thread's start, so neither part is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_programs_odd_name_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
        assert_eq!(age_from(stat, "130.45 200.00\n"), Some(Duration::from_secs(7)));
    }

    #[test]
    fn this_process_is_young_and_not_empty() {
        assert!(age().unwrap() < Duration::from_secs(3600));
        let resident = resident().unwrap();
        assert!(resident.peak >= 1 << 20 && resident.now >= 1 << 20);
        assert_eq!(resident_from("VmHWM:\t  10 kB\nVmRSS:\t   8 kB\n"), Some(Resident { now: 8192, peak: 10240 }));
    }

    #[test]
    fn work_costs_this_thread_cpu_time_and_sleep_does_not() {
        let mut watch = CpuWatch::start();
        std::thread::sleep(Duration::from_millis(50));
        let asleep_ns = watch.lap_ns();
        assert!(asleep_ns < 5_000_000, "{asleep_ns} ns asleep");
        // However seldom it runs: as much CPU time as it takes, and never more than there was.
        let (began, mut watch, mut awake_ns) = (std::time::Instant::now(), CpuWatch::start(), 0);
        crate::testing::wait_until("CPU time to be counted", || {
            for n in 0..1_000_000_u64 {
                std::hint::black_box(n);
            }
            awake_ns += watch.lap_ns();
            awake_ns > 5_000_000
        });
        assert!(u128::from(awake_ns) <= began.elapsed().as_nanos(), "{awake_ns} ns awake");
    }
}
