//! Clocks, counters and test images.

use std::time::Duration;

/// Sorted samples.
pub struct Samples(Vec<f64>);

impl Samples {
    /// Sorts the samples.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the value that `share` (0 to 1) of the samples do not exceed; 0 without samples.
    pub fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1) as f64;
        self.0.get((share * last).round() as usize).copied().unwrap_or(0.0)
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Returns the minimum.
    pub fn best(&self) -> f64 {
        self.at(0.0)
    }
}

/// Returns the CPU time of the whole process so far: all threads, user and system.
pub fn cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(clock: libc::clockid_t) -> Duration {
    // SAFETY: all-zero is a valid `timespec`, which is two integers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` is a writable timespec; the clock is one that Linux has.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "there is such a CPU clock");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the resident set of the process in bytes.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs()
}

/// Pseudo-random bytes: xorshift, which repeats after 2^64 steps.
pub struct Noise(u64);

impl Noise {
    /// Starts from a seed; equal seeds give equal bytes.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}
