//! Whatever a detector and a clock return: no panic, bounded time and memory, and no id twice.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use visiond_kernels::oriented::OrientedBox;
use visiond_tracker::{MOST_OBSERVATIONS, MOST_TRACKS, Observation, Parameters, Step, Tracker};

/// Takes a step with a result of its own.
fn step_of(tracker: &mut Tracker, at: Duration, seen: &[Observation<'_>]) -> Step {
    let mut step = Step::default();
    tracker.step(at, seen, &mut step);
    step
}

fn plain(bounds: [f32; 4], score: f32) -> Observation<'static> {
    Observation { bounds, oriented: None, score, class_id: 0, embedding: None }
}

/// Checks what holds after every step.
fn check(step: &Step, observations: usize, over: &mut BTreeSet<u64>) {
    assert_eq!(step.tracks.len(), observations);
    let mut ids = BTreeSet::new();
    for track in step.tracks.iter().flatten() {
        assert!(ids.insert(track.id), "{} was given twice", track.id);
        assert!(!over.contains(&track.id), "{} came back", track.id);
        assert!(track.velocity.iter().chain(&track.smooth).all(|number| number.is_finite()), "{track:?}");
    }
    for track in &step.ended {
        assert!(over.insert(track.id), "{} ended twice", track.id);
    }
}

#[test]
fn a_hundred_thousand_ids_are_all_different() {
    let mut tracker = Tracker::new(Parameters::default(), Arc::default());
    let mut over = BTreeSet::new();
    for frame in 0..2_000_u32 {
        // Nothing is ever near what was seen in the last frames.
        let one = |place: u32| {
            let (x, y) = ((place * 200) as f32, (frame % 50 * 1000) as f32);
            plain([x, y, x + 50.0, y + 50.0], 0.9)
        };
        let seen: Vec<_> = (0..50).map(one).collect();
        check(&step_of(&mut tracker, Duration::from_secs(u64::from(frame)), &seen), 50, &mut over);
        assert!(tracker.lost().count() <= 150, "{}", tracker.lost().count());
    }
    assert!(over.len() > 99_000, "{}", over.len());
}

#[test]
fn more_detections_than_a_tracker_takes_are_those_with_the_lowest_scores() {
    let mut tracker = Tracker::new(Parameters::default(), Arc::default());
    let mut over = BTreeSet::new();
    let one = |place: usize| {
        let (x, y) = ((place % 100 * 30) as f32, (place / 100 * 30) as f32);
        plain([x, y, x + 20.0, y + 20.0], if place.is_multiple_of(2) { 0.95 } else { 0.9 })
    };
    let seen: Vec<_> = (0..2 * MOST_OBSERVATIONS).map(one).collect();
    let step = step_of(&mut tracker, Duration::ZERO, &seen);
    check(&step, seen.len(), &mut over);
    assert!(step.tracks.iter().enumerate().all(|(place, track)| track.is_some() == place.is_multiple_of(2)));
    // All at one place, and as many tracks as there may be.
    for frame in 1..4_u64 {
        let offset = 10_000.0 * frame as f32;
        let seen: Vec<_> = (0..MOST_OBSERVATIONS).map(|_| plain([offset, 0.0, offset + 100.0, 100.0], 0.9)).collect();
        check(&step_of(&mut tracker, Duration::from_millis(frame), &seen), seen.len(), &mut over);
    }
    // New ones in each frame: those that were lost longest give way.
    for frame in 4..9_u64 {
        let one = |place: usize| {
            let (x, y) = (place as f32 * 30.0, 1e4 * frame as f32);
            plain([x, y, x + 20.0, y + 20.0], 0.9)
        };
        let seen: Vec<_> = (0..MOST_OBSERVATIONS).map(one).collect();
        let step = step_of(&mut tracker, Duration::from_millis(frame), &seen);
        check(&step, seen.len(), &mut over);
        assert_eq!(step.tracks.iter().flatten().count(), MOST_OBSERVATIONS);
        assert!(tracker.lost().count() <= MOST_TRACKS - MOST_OBSERVATIONS);
    }
    assert_eq!(tracker.lost().count(), MOST_TRACKS - MOST_OBSERVATIONS);
}

#[test]
fn boxes_that_are_none_have_no_track_and_disturb_no_other() {
    let mut tracker = Tracker::new(Parameters::default(), Arc::default());
    let mut over = BTreeSet::new();
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let turned = |center, size, angle| Observation {
        oriented: Some(OrientedBox { center, size, angle }),
        ..plain([0.0, 0.0, 9.0, 9.0], 0.9)
    };
    let none = [
        plain([nan; 4], 0.9),
        plain([0.0, 0.0, infinite, infinite], 0.9),
        plain([-infinite, 0.0, 5.0, 5.0], 0.9),
        plain([10.0, 10.0, 10.0, 50.0], 0.9),
        plain([50.0, 50.0, 10.0, 10.0], 0.9),
        plain([0.0, 0.0, f32::MAX, f32::MAX], 0.9),
        plain([100.0, 100.0, 200.0, 200.0], nan),
        plain([100.0, 100.0, 200.0, 200.0], -1.0),
        turned([nan, 5.0], [4.0, 4.0], 0.0),
        turned([5.0, 5.0], [0.0, 4.0], 0.0),
        turned([5.0, 5.0], [4.0, 4.0], infinite),
    ];
    for frame in 0..20_u64 {
        let mut seen = none.to_vec();
        seen.push(plain([300.0, 300.0, 340.0, 400.0], infinite));
        seen.push(plain([500.0, 300.0, 540.0, 400.0], 0.9));
        let step = step_of(&mut tracker, Duration::from_millis(frame * 100), &seen);
        check(&step, seen.len(), &mut over);
        assert!(step.tracks[..none.len()].iter().all(Option::is_none), "{:?}", step.tracks);
        assert_eq!(step.tracks[none.len() + 1].unwrap().id, 2);
    }
}

#[test]
fn the_shortest_and_the_longest_times_are_times() {
    let mut tracker = Tracker::new(Parameters::default(), Arc::default());
    let mut over = BTreeSet::new();
    let seen = [plain([0.0, 0.0, 40.0, 100.0], 0.9)];
    for at in
        [Duration::MAX, Duration::ZERO, Duration::from_nanos(1), Duration::MAX, Duration::MAX, Duration::from_secs(1)]
    {
        let step = step_of(&mut tracker, at, &seen);
        check(&step, 1, &mut over);
        assert_eq!(step.tracks[0].unwrap().id, 1);
    }
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![6 => -50.0..400.0_f32, 1 => any::<f32>(), 1 => Just(0.0), 1 => -1e6..1e6_f32]
}

fn observation() -> impl Strategy<Value = Observation<'static>> {
    static EMBEDDINGS: [&[f32]; 5] = [&[1.0, 0.0], &[0.0, 1.0], &[], &[f32::NAN, 1.0], &[1e30, 1e30, 1e30]];
    let turned = (number(), number(), number(), number(), number())
        .prop_map(|(x, y, width, height, angle)| OrientedBox { center: [x, y], size: [width, height], angle });
    let score = prop_oneof![4 => 0.0..1.0_f32, 1 => any::<f32>()];
    let embedding = proptest::option::weighted(0.3, proptest::sample::select(EMBEDDINGS.to_vec()));
    (number(), number(), 0.0..90.0_f32, number(), proptest::option::weighted(0.3, turned), score, 0..3_u32, embedding)
        .prop_map(|(x, y, width, bottom, oriented, score, class_id, embedding)| Observation {
            bounds: [x, y, x + width, bottom],
            oriented,
            score,
            class_id,
            embedding,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(39), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_detections_and_no_times_break_it(
        frames in proptest::collection::vec((0..4_000_000_000_u64, proptest::collection::vec(observation(), 0..12)), 1..30)
    ) {
        let mut tracker = Tracker::new(Parameters::default(), Arc::default());
        let mut over = BTreeSet::new();
        for (nanoseconds, seen) in &frames {
            check(&step_of(&mut tracker, Duration::from_nanos(*nanoseconds), seen), seen.len(), &mut over);
        }
    }
}
