//! This process as the kernel sees it: its age, memory, threads and descriptors, and the CPU time of a thread.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Ticks per second in /proc/self/stat: USER_HZ, which is 100 on every machine that visiond runs on.
const TICKS_PER_S: f64 = 100.0;

/// Returns the time since the process started, to 10 ms; `None` without /proc.
pub fn age() -> Option<Duration> {
    age_from(&Stat::read()?, &fs::read_to_string("/proc/uptime").ok()?)
}

fn age_from(stat: &Stat, uptime: &str) -> Option<Duration> {
    let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64((up - stat.start_ticks as f64 / TICKS_PER_S).max(0.0)).ok()
}

/// Resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Bytes now.
    pub now: u64,
    /// Bytes at the peak so far.
    pub peak: u64,
}

/// Returns the resident memory; `None` without /proc.
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

/// The resources that this process uses; a number that the kernel does not report is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// Process number.
    pub pid: u32,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Peak of the resident memory so far.
    pub peak_resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// CPU time of all threads, user and system.
    pub cpu_seconds: f64,
    /// Number of threads, those of libraries included.
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Limit of open file descriptors.
    pub descriptors_limit: u64,
}

impl ProcessFacts {
    /// Reads a few files of /proc.
    pub fn now() -> Self {
        let stat = Stat::read().unwrap_or_default();
        let resident = resident();
        Self {
            pid: std::process::id(),
            resident_bytes: resident.map_or(0, |resident| resident.now),
            peak_resident_bytes: resident.map_or(0, |resident| resident.peak),
            virtual_bytes: stat.virtual_bytes,
            cpu_seconds: stat.cpu_ticks as f64 / TICKS_PER_S,
            threads: stat.threads,
            // Minus the descriptor that reads the folder.
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1) as u64),
            descriptors_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}

/// Fields of /proc/self/stat.
#[derive(Debug, Default, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The program's name may contain any character, so fields are counted after it. The first one there is the third in
        // proc(5).
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
        })
    }
}

/// CPU time of the calling thread, by laps.
#[derive(Debug)]
pub struct CpuWatch {
    seen_ns: u64,
}

impl CpuWatch {
    /// Starts the first lap.
    pub fn start() -> Self {
        Self { seen_ns: thread_cpu_ns() }
    }

    /// Ends a lap and returns its CPU time, user and system, in nanoseconds. Only the thread that started it may call this.
    pub fn lap_ns(&mut self) -> u64 {
        let now_ns = thread_cpu_ns();
        now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns))
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts up from the thread's start, so neither part is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_programs_odd_name_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 0 0 0 150 25 0 0 20 0 7 0 12345 8192 1";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!(stat, Stat { cpu_ticks: 175, threads: 7, start_ticks: 12345, virtual_bytes: 8192 });
        assert_eq!(age_from(&stat, "130.45 200.00\n"), Some(Duration::from_secs(7)));
    }

    #[test]
    fn this_process_is_young_and_has_memory_threads_and_descriptors() {
        assert!(age().unwrap() < Duration::from_secs(3600));
        let facts = ProcessFacts::now();
        assert!(facts.resident_bytes > 1 << 20 && facts.peak_resident_bytes > 1 << 20, "{facts:?}");
        assert!(facts.virtual_bytes >= facts.resident_bytes && facts.threads >= 1, "{facts:?}");
        assert!(facts.descriptors >= 3 && facts.descriptors_limit > facts.descriptors, "{facts:?}");
        assert_eq!(resident_from("VmHWM:\t  10 kB\nVmRSS:\t   8 kB\n"), Some(Resident { now: 8192, peak: 10240 }));
    }

    #[test]
    fn work_costs_this_thread_cpu_time_and_sleep_does_not() {
        let mut watch = CpuWatch::start();
        std::thread::sleep(Duration::from_millis(50));
        let asleep_ns = watch.lap_ns();
        assert!(asleep_ns < 5_000_000, "{asleep_ns} ns asleep");
        // However rarely it runs, it reports the CPU time that it used, and never more than elapsed.
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
