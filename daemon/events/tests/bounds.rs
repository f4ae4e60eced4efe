//! Whatever a tracker, a clock and a configuration return: bounded memory, and every event ends.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use visiond_events::{
    Anchor, Belonging, Counters, EndReason, Event, Filter, Kind, MOST_POINTS, MOST_TRACKS, Object, Phase, Rule, Scene,
};

const SIZE: [u32; 2] = [1920, 1080];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Events under way, and how many there were.
#[derive(Default)]
struct Ledger {
    open: BTreeSet<u64>,
    last_id: u64,
    begun: usize,
}

impl Ledger {
    fn check(&mut self, events: &[Event]) {
        for event in events {
            match event.phase {
                Phase::Begin | Phase::Moment => {
                    assert!(event.id > self.last_id, "{event:?}");
                    self.last_id = event.id;
                    self.begun += 1;
                    if event.phase == Phase::Begin {
                        self.open.insert(event.id);
                    }
                }
                Phase::Update => assert!(self.open.contains(&event.id), "{event:?}"),
                Phase::End => assert!(self.open.remove(&event.id), "{event:?}"),
            }
        }
    }

    fn finish(mut self, scene: &mut Scene) {
        let mut events = Vec::new();
        scene.finish(EndReason::Shutdown, &mut events);
        self.check(&events);
        assert_eq!(self.open, BTreeSet::new());
    }
}

/// One rule of each kind, in a zone of as many points as there may be.
fn rules() -> Vec<Rule> {
    let star = |index: usize| {
        let (angle, radius) =
            (index as f32 / MOST_POINTS as f32 * std::f32::consts::TAU, 300.0 + 200.0 * (index % 2) as f32);
        [960.0 + radius * angle.cos(), 540.0 + radius * angle.sin()]
    };
    let points: Vec<[f32; 2]> = (0..MOST_POINTS).map(star).collect();
    let belonging = || Belonging { distance: 20.0, time: seconds(1), owners: vec![1], near: 200.0 };
    let (time, distance) = (seconds(1), 20.0);
    let plane = [
        ([0.0, 400.0], [0.0, 90.0]),
        ([1920.0, 400.0], [90.0, 90.0]),
        ([1920.0, 1080.0], [50.0, 10.0]),
        ([0.0, 1080.0], [40.0, 10.0]),
    ];
    let kinds = [
        Kind::Zone,
        Kind::Dwell { time },
        Kind::Loitering { time, away: time },
        Kind::Occupancy { at_least: Some(3), at_most: None, lasting: Duration::ZERO },
        Kind::Absence { time },
        Kind::Stopped { distance, time },
        Kind::WrongWay { direction: [1.0, 0.5], distance },
        Kind::Speed { plane, at_least: Some(1.0), at_most: None, over: time },
        Kind::LeftBehind(belonging()),
        Kind::TakenAway(belonging()),
    ];
    let settle = Duration::ZERO;
    let in_star = |(index, kind): (usize, Kind)| Rule {
        area: points.clone(),
        settle,
        parked: index % 2 == 0,
        ..Rule::new(&index.to_string(), kind)
    };
    let mut rules: Vec<Rule> = kinds.into_iter().enumerate().map(in_star).collect();
    let line = Kind::Line { points, sides: ["in".into(), "out".into()] };
    rules.push(Rule { settle, anchor: Anchor::Center, ..Rule::new("line", line) });
    rules
}

fn object(track: u64, x: f32, y: f32) -> Object {
    Object { track, bounds: [x - 15.0, y - 60.0, x + 15.0, y], class_id: (track % 3) as u32, score: 0.9 }
}

#[test]
fn a_million_events_of_ids_that_never_come_back_leave_nothing_behind() {
    let mut scene =
        Scene::new(SIZE, vec![Rule { settle: Duration::ZERO, ..Rule::new("frame", Kind::Zone) }], Arc::default())
            .unwrap();
    let (mut events, mut ledger) = (Vec::new(), Ledger::default());
    for frame in 0..1000_u64 {
        let objects: Vec<Object> = (0..500).map(|index| object(frame * 500 + index, index as f32, 300.0)).collect();
        scene.step(Duration::from_millis(frame * 33), &objects, &[], &mut events);
        ledger.check(&events);
        assert!(ledger.open.len() <= MOST_TRACKS, "{}", ledger.open.len());
        let inside = scene.counters().next().unwrap().1.inside as usize;
        assert_eq!(inside, ledger.open.len());
    }
    assert_eq!(ledger.begun, 500_000);
    ledger.finish(&mut scene);
}

#[test]
fn more_objects_than_a_scene_holds_are_left_out_and_the_known_ones_stay() {
    let mut scene =
        Scene::new(SIZE, vec![Rule { settle: Duration::ZERO, ..Rule::new("frame", Kind::Zone) }], Arc::default())
            .unwrap();
    let (mut events, mut ledger) = (Vec::new(), Ledger::default());
    let objects: Vec<Object> = (0..3 * MOST_TRACKS as u64).map(|track| object(track, 100.0, 300.0)).collect();
    for frame in 0..4 {
        scene.step(Duration::from_millis(frame * 33), &objects, &[], &mut events);
        ledger.check(&events);
        assert_eq!((ledger.open.len(), ledger.begun), (MOST_TRACKS, MOST_TRACKS));
    }
    // Those that are unseen longest give way to new ones.
    scene.step(Duration::from_millis(200), &objects[1..1000], &[], &mut events);
    ledger.check(&events);
    let fresh: Vec<Object> = (0..1100).map(|index| object(1_000_000 + index, 100.0, 300.0)).collect();
    scene.step(Duration::from_millis(233), &fresh, &[], &mut events);
    ledger.check(&events);
    assert!(events.iter().filter(|event| event.phase == Phase::End).count() == 1100);
    let known = |event: &Event| event.phase == Phase::End && (1..1000).contains(&event.track.unwrap());
    assert_eq!(events.iter().filter(|event| known(event)).count(), 1100 - (MOST_TRACKS - 999));
    ledger.finish(&mut scene);
}

#[test]
fn the_longest_times_and_the_farthest_boxes_do_no_harm() {
    let mut scene = Scene::new([65_536, 65_536], rules(), Arc::default()).unwrap();
    let (mut events, mut ledger) = (Vec::new(), Ledger::default());
    let boxes = [
        [f32::MIN, f32::MIN, f32::MAX, f32::MAX],
        [-1e30, 0.0, 1.0, 1e30],
        [65_535.0, 65_535.0, 1e9, 1e9],
        [0.0, 0.0, 1e-30, 1e-30],
        [0.0, 0.0, 65_536.0, 65_536.0],
    ];
    for at in [Duration::MAX, Duration::ZERO, Duration::from_nanos(1), Duration::MAX, Duration::MAX, seconds(5)] {
        for shift in 0..boxes.len() {
            let object = |index: usize| Object {
                bounds: boxes[(index + shift) % boxes.len()],
                ..object(index as u64, 0.0, 0.0)
            };
            let objects: Vec<Object> = (0..boxes.len()).map(object).collect();
            scene.step(at, &objects, &[], &mut events);
            ledger.check(&events);
        }
    }
    ledger.finish(&mut scene);
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![6 => -50.0..2000.0_f32, 1 => any::<f32>(), 1 => -1e6..1e6_f32]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_event_of_every_kind_ends_whatever_comes(
        frames in proptest::collection::vec(
            (
                prop_oneof![4 => 0..400_u64, 1 => 0..100_000_u64],
                any::<bool>(),
                proptest::collection::vec((1..12_u64, number(), number(), 0.0..2.0_f32), 0..10),
                proptest::collection::vec(1..12_u64, 0..2),
                0..50_usize,
            ),
            1..30,
        ),
        filters in proptest::collection::vec((0..3_u32, any::<bool>()), 11),
    ) {
        let mut rules = rules();
        for (rule, (class, filtered)) in rules.iter_mut().zip(&filters) {
            if *filtered {
                rule.filter = Filter { classes: vec![*class], min_score: 0.5, ..Filter::default() };
            }
        }
        let mut scene = Scene::new(SIZE, rules.clone(), Arc::default()).unwrap();
        let (mut events, mut ledger, mut now) = (Vec::new(), Ledger::default(), 50_000_u64);
        for (after, back, objects, ended, action) in frames {
            now = if back { now.saturating_sub(after) } else { now + after };
            let objects: Vec<Object> =
                objects.into_iter().map(|(track, x, y, score)| Object { score, ..object(track, x, y) }).collect();
            scene.step(Duration::from_millis(now), &objects, &ended, &mut events);
            ledger.check(&events);
            match action {
                0..11 => {
                    scene.switch(&rules[action].name.clone(), after % 2 == 0, &mut events);
                    ledger.check(&events);
                }
                11..22 => {
                    rules[action - 11].hold = Duration::from_millis(after);
                    scene.replace(rules.clone(), &mut events).unwrap();
                    ledger.check(&events);
                }
                22 => {
                    scene.finish(EndReason::CameraGone, &mut events);
                    ledger.check(&events);
                }
                23..34 => {
                    let totals = Counters { begun: after, ended: after, ..Counters::default() };
                    prop_assert!(scene.set_totals(&rules[action - 23].name, totals));
                    let restored = scene.counters().nth(action - 23).unwrap().1;
                    prop_assert_eq!((restored.begun, restored.ended, restored.crossed_to), (after, after, [0; 2]));
                }
                _ => {}
            }
            let under_way: u64 = scene.counters().map(|(_, totals)| u64::from(totals.under_way)).sum();
            // Those of rules that were replaced are over.
            prop_assert_eq!(under_way, ledger.open.len() as u64);
        }
        ledger.finish(&mut scene);
    }
}
