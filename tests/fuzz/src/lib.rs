//! What the fuzz targets share. A target is one file in `targets`; `tests/fuzz/run` builds and runs them, CONTRIBUTING.md has the
//! rules.

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

/// The system's allocator with a limit for each allocation: a few bytes from outside must not ask for more.
struct LimitedAllocator;

#[global_allocator]
static ALLOCATOR: LimitedAllocator = LimitedAllocator;

// SAFETY: every call goes to the system's allocator as it came, or the process ends.
unsafe impl GlobalAlloc for LimitedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same.
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

/// Ends this process with the answer if it was started to try a model, as `visiond` does at its start.
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

    /// Replaces the content by `data`, and returns the path.
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
