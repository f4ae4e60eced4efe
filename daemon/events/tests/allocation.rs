//! A step allocates while its buffers grow, and never again.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use visiond_events::{Belonging, Kind, MOST_TRACKS, Object, Rule, Scene};

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

fn rules() -> Vec<Rule> {
    let (time, distance) = (Duration::from_millis(500), 30.0);
    let belonging = || Belonging { distance, time, owners: vec![1], near: 200.0 };
    let plane = [
        ([0.0, 0.0], [0.0, 0.0]),
        ([1280.0, 0.0], [12.8, 0.0]),
        ([1280.0, 720.0], [12.8, 7.2]),
        ([0.0, 720.0], [0.0, 7.2]),
    ];
    let kinds = [
        Kind::Zone,
        Kind::Dwell { time },
        Kind::Loitering { time, away: time },
        Kind::Occupancy { at_least: Some(5), at_most: None, lasting: time },
        Kind::Absence { time },
        Kind::Stopped { distance, time },
        Kind::WrongWay { direction: [1.0, 0.0], distance },
        Kind::Speed { plane, at_least: Some(0.1), at_most: None, over: time },
        Kind::LeftBehind(belonging()),
        Kind::TakenAway(belonging()),
        Kind::Line { points: vec![[640.0, 0.0], [640.0, 720.0]], sides: ["left".into(), "right".into()] },
    ];
    let zone = vec![[300.0, 100.0], [1000.0, 100.0], [1000.0, 600.0], [300.0, 600.0]];
    let rule = |(index, kind): (usize, Kind)| {
        let area = if matches!(kind, Kind::Line { .. }) { Vec::new() } else { zone.clone() };
        let settle = Duration::from_millis(60);
        Rule { area, settle, parked: index == 0, ..Rule::new(&index.to_string(), kind) }
    };
    kinds.into_iter().enumerate().map(rule).collect()
}

#[test]
fn tracks_that_come_and_go_cost_no_allocation() {
    let mut scene = Scene::new([1280, 720], rules(), Arc::default()).unwrap();
    let mut events = Vec::with_capacity(1 << 16);
    let (mut objects, mut ended) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let mut happened = 0;
    for frame in 0..600_u64 {
        objects.clear();
        ended.clear();
        for place in 0..40_u64 {
            // A third of them is new in each half second, and each is hidden now and then.
            let span = 15 + place % 3 * 200;
            let (life, age) = (frame / span, frame % span);
            let track = place * 1_000_000 + life;
            if age == 0 && life > 0 {
                ended.push(track - 1);
            }
            if (frame + place).is_multiple_of(17) {
                continue;
            }
            let x = ((place * 97 + life * 37) % 1200 + age * (place % 4)) as f32;
            let y = ((place * 61) % 700) as f32;
            let bounds = [x, y, x + 30.0, y + 60.0];
            objects.push(Object { track, bounds, class_id: (place % 2) as u32, score: 0.9 });
        }
        if frame < 40 {
            // More tracks than it holds, with events of all kinds: from then on no buffer grows.
            let one = |track: u64| {
                let x = 900.0 - (track % 2 * frame * 8) as f32;
                Object { track, bounds: [x, 300.0, x + 30.0, 360.0], class_id: (track % 4 / 2) as u32, score: 0.9 }
            };
            objects.extend((1 << 40..(1 << 40) + MOST_TRACKS as u64).map(one));
        }
        let before = ALLOCATIONS.get();
        scene.step(Duration::from_millis(frame * 33), &objects, &ended, &mut events);
        let allocated = ALLOCATIONS.get() - before;
        assert!(frame < 250 || allocated == 0, "{allocated} allocations in frame {frame}");
        happened += if frame < 250 { 0 } else { events.len() };
    }
    assert!(happened > 500, "{happened}");
}
