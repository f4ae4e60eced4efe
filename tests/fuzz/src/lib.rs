//! Shared code of the fuzz targets. A target is one file in `targets`; `tests/fuzz/run` builds and runs them, and
//! CONTRIBUTING.md has the rules.

#![cfg(feature = "fuzz")]
#![allow(clippy::unwrap_used)]

pub mod web;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// The largest single allocation in bytes. libFuzzer's own limit needs a sanitizer's allocator, which stable Rust does not have.
const MOST_BYTES: usize = 512 << 20;

/// The system's allocator with a limit for each allocation: a few bytes of input must not request more.
struct LimitedAllocator;

#[global_allocator]
static ALLOCATOR: LimitedAllocator = LimitedAllocator;

// SAFETY: every call is passed unchanged to the system's allocator, or the process ends.
unsafe impl GlobalAlloc for LimitedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the system's allocator has the same contract, which the caller keeps.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the system's allocator has the same contract, which the caller keeps.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        // SAFETY: the system's allocator has the same contract, which the caller keeps.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the system's allocator has the same contract, which the caller keeps.
        unsafe { System.dealloc(old, layout) }
    }
}

fn check(bytes: usize) {
    if bytes > MOST_BYTES {
        // An allocator must not unwind.
        eprintln!("an allocation of {bytes} bytes");
        std::process::abort();
    }
}

/// If this process was started to try a model, does so and exits, as `visiond` does at its start.
pub fn answer_trial() {
    if let Some(exit) = visiond_service::model_trial::answer(std::env::args_os()) {
        std::process::exit(exit.code().into());
    }
}

/// A file in memory, with the bytes of the last input.
pub struct InputFile {
    file: File,
    path: PathBuf,
}

impl InputFile {
    /// Creates an empty file.
    pub fn new() -> Self {
        let file = File::from(memfd_create("input", MemfdFlags::CLOEXEC).unwrap());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Self { file, path }
    }

    /// Replaces the content with `data`, and returns the path.
    pub fn write(&self, data: &[u8]) -> &Path {
        self.file.set_len(0).unwrap();
        self.file.write_all_at(data, 0).unwrap();
        &self.path
    }
}

impl Default for InputFile {
    fn default() -> Self {
        Self::new()
    }
}
