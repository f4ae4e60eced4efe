//! A step allocates while its buffers grow, and never again.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::oriented::OrientedBox;
use visiond_tracker::{Observation, Parameters, Step, Tracker};

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Of this thread, because the test harness allocates beside it.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn tracks_that_come_and_go_cost_no_allocation() {
    let looks = [0.5_f32; 128];
    let (mut tracker, mut step) = (Tracker::new(Parameters::default(), Arc::default()), Step::default());
    let mut observations = Vec::with_capacity(64);
    let mut ended = 0;
    for frame in 0..2400_u32 {
        observations.clear();
        for object in 0..40_u32 {
            // A third of them is new in each half second, and some are hidden for a while.
            let life = frame / (15 + object % 3 * 200);
            if (frame + object).is_multiple_of(17) {
                continue;
            }
            let (x, y) =
                ((object % 8 * 110 + life * 370 % 1000) as f32 + 0.5 * (frame % 15) as f32, (object / 8 * 150) as f32);
            let bounds = [x, y, x + 50.0, y + 120.0];
            let oriented = (object % 5 == 0).then(|| OrientedBox::from_upright(bounds, 0.3));
            let score = if frame % 7 == object % 7 { 0.3 } else { 0.9 };
            observations.push(Observation { bounds, oriented, score, class_id: object % 3, embedding: Some(&looks) });
        }
        let before = ALLOCATIONS.get();
        tracker.step(Duration::from_millis(u64::from(frame) * 33), &observations, &mut step);
        let over = step.ended.len();
        let allocated = ALLOCATIONS.get() - before;
        assert!(frame < 1200 || allocated == 0, "{allocated} allocations in frame {frame}, where {over} tracks ended");
        ended += if frame < 1200 { 0 } else { over };
    }
    assert!(ended > 100, "{ended}");
}
