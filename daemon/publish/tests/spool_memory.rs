//! A durable sink whose broker is away has a large message in memory once: it is written to the spool without a copy.
//!
//! Counts what Rust allocates, in all threads.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use visiond_config::types::{Config, SinkConfig};
use visiond_message::testing::sized_message;
use visiond_publish::{Publisher, SinkContext};
use visiond_system::stop::Stop;
use visiond_system::testing::{hang, wait_until};

/// The system's allocator, counted.
struct Counted;

/// Bytes now, and at most.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
        MOST.fetch_max(now, Ordering::SeqCst);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as in `alloc`; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const MIB: usize = 1 << 20;

fn sinks(folder: &std::path::Path) -> Vec<SinkConfig> {
    // Nothing listens at port 1. With 0 s, written messages are synced and freed at once.
    let text = format!(
        "[[sink]]\nname = \"kept\"\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:1\"\ndurable = true\nspool_sync = \"0s\"\n\
         spool_directory = \"{}\"\n",
        folder.join("spool").display()
    );
    Config::parse(&text, std::path::Path::new("v.toml")).map_err(|errors| errors.to_string()).unwrap().sinks
}

#[test]
fn a_large_message_is_spooled_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let context = SinkContext { live: visiond_live::Live::new(), device: "test".into(), commander: None };
    let publisher = Publisher::start(&sinks(folder.path()), &context, &Stop::new().unwrap()).unwrap();
    let records = || publisher.counts()[0].spool.as_ref().map_or(0, |spool| spool.records);
    for number in 1..=3 {
        let message = sized_message("door", number, 8 * MIB);
        let before = NOW.load(Ordering::SeqCst);
        MOST.store(before, Ordering::SeqCst);
        publisher.publish(&message);
        drop(message);
        wait_until("the spool", || records() == number);
        let more = MOST.load(Ordering::SeqCst) - before;
        assert!(more < 10 * MIB, "its line has 8 MiB, and nothing else has that size: {more}");
    }
    publisher.close(hang());
}
