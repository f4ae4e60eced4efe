//! The memory, descriptors and threads that this process holds.

use std::fs;

use serde::Serialize;
use visiond_system::process::ProcessFacts;

/// The resources of this process, read from /proc; 0 where it has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Number of open file descriptors.
    pub descriptors: usize,
    /// Number of threads.
    pub threads: usize,
    /// Number of memory mappings.
    pub mappings: usize,
}

impl Footprint {
    /// Reads the current values.
    pub fn now() -> Self {
        let process = ProcessFacts::now();
        Self {
            resident_bytes: process.resident_bytes,
            descriptors: process.descriptors as usize,
            threads: process.threads as usize,
            mappings: fs::read_to_string("/proc/self/maps").unwrap_or_default().lines().count(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memory_that_is_touched_is_seen() {
        let before = Footprint::now();
        let memory = vec![1_u8; 64 << 20];
        let with = Footprint::now();
        assert!(with.resident_bytes >= before.resident_bytes + (60 << 20), "{before:?} {with:?}");
        assert!(before.descriptors >= 3 && before.threads >= 1 && before.mappings > 10, "{before:?}");
        assert!(std::hint::black_box(memory).len() > 1);
    }
}
