//! What the system tells of this process as a whole.

use std::fs;

use serde::{Deserialize, Serialize};
use visiond_system::process::resident;

/// This process; a number that the system does not tell is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// Its number.
    pub pid: u32,
    /// Resident memory.
    pub resident_bytes: u64,
    /// At most so far.
    pub peak_resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// CPU time of all threads, user and system.
    pub cpu_seconds: f64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Descriptors that it may have.
    pub descriptors_limit: u64,
}

impl ProcessFacts {
    /// As it is now. Reads a few files of /proc.
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let stat = stat.as_deref().and_then(Stat::parse).unwrap_or_default();
        let resident = resident();
        Self {
            pid: std::process::id(),
            resident_bytes: resident.map_or(0, |resident| resident.now),
            peak_resident_bytes: resident.map_or(0, |resident| resident.peak),
            virtual_bytes: stat.virtual_bytes,
            cpu_seconds: stat.ticks as f64 / 100.0,
            threads: stat.threads,
            // Less the one that reads the folder.
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1) as u64),
            descriptors_limit: descriptors_limit(),
        }
    }
}

/// What is asked of /proc/self/stat. Ticks are USER_HZ, which is 100 on every machine that we run on.
#[derive(Debug, Default, PartialEq)]
struct Stat {
    ticks: u64,
    threads: u64,
    virtual_bytes: u64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The program's name may hold anything, so fields are counted from behind it: there begins the third of proc(5).
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { ticks: field(14)? + field(15)?, threads: field(20)?, virtual_bytes: field(23)? })
    }
}

fn descriptors_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes one rlimit through the pointer, which `limit` is.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { limit.rlim_cur } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_odd_name_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 0 0 0 150 25 0 0 20 0 7 0 12345 8192 1";
        assert_eq!(Stat::parse(stat), Some(Stat { ticks: 175, threads: 7, virtual_bytes: 8192 }));
    }

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let facts = ProcessFacts::now();
        assert!(facts.resident_bytes > 1 << 20 && facts.virtual_bytes >= facts.resident_bytes, "{facts:?}");
        assert!(
            facts.threads >= 1 && facts.descriptors >= 3 && facts.descriptors_limit > facts.descriptors,
            "{facts:?}"
        );
    }
}
