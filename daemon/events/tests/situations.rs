//! Situations as users meet them, and the events that are right.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use visiond_events::{
    Anchor, Belonging, Counters, EndReason, Event, Filter, Kind, Object, Phase, Rule, RuleError, Scene,
};

const FPS: u64 = 30;
const SIZE: [u32; 2] = [1280, 720];
const PERSON: u32 = 0;
const BAG: u32 = 24;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A box of 40x80 px whose lower edge has its middle at a point.
fn object(track: u64, [x, y]: [f32; 2]) -> Object {
    Object { track, bounds: [x - 20.0, y - 80.0, x + 20.0, y], class_id: PERSON, score: 0.9 }
}

/// A scene, a clock and what happened.
struct Film {
    scene: Scene,
    now: Duration,
    all: Vec<Event>,
}

impl Film {
    fn new(rules: Vec<Rule>) -> Self {
        Self { scene: Scene::new(SIZE, rules, Arc::default()).unwrap(), now: ms(5000), all: Vec::new() }
    }

    /// Shows objects for a time at 30 frames a second.
    fn show(&mut self, time: Duration, objects: &[Object]) -> &mut Self {
        self.play(time, |_| objects.to_vec())
    }

    /// Shows what there is at each part of a time, 0 to 1.
    fn play(&mut self, time: Duration, objects: impl Fn(f32) -> Vec<Object>) -> &mut Self {
        let frames = (time.as_millis() as u64 * FPS / 1000).max(1);
        for frame in 0..frames {
            self.frame(ms(1000) / FPS as u32, &objects(frame as f32 / (frames - 1).max(1) as f32), &[]);
        }
        self
    }

    /// Moves one object.
    fn walk(&mut self, time: Duration, track: u64, from: [f32; 2], to: [f32; 2]) -> &mut Self {
        self.play(time, |part| {
            vec![object(track, [from[0] + part * (to[0] - from[0]), from[1] + part * (to[1] - from[1])])]
        })
    }

    /// Shows one frame.
    fn frame(&mut self, after: Duration, objects: &[Object], ended: &[u64]) -> &mut Self {
        self.now += after;
        let mut events = Vec::new();
        self.scene.step(self.now, objects, ended, &mut events);
        self.all.append(&mut events);
        self
    }

    /// What happened since the last call, by rule and phase.
    fn told(&mut self) -> Vec<String> {
        let told = self.all.iter().map(|event| {
            let to = event.to.as_deref().map(|side| format!(" to {side}")).unwrap_or_default();
            let count = event.count.map(|count| format!(" {count}")).unwrap_or_default();
            let reason = event.reason.map(|reason| format!(" {reason:?}")).unwrap_or_default();
            format!("{} {:?}{to}{count}{reason}", event.rule, event.phase)
        });
        let told = told.collect();
        self.all.clear();
        told
    }

    fn totals(&self, name: &str) -> Counters {
        self.scene.counters().find(|(rule, _)| &***rule == name).unwrap().1
    }
}

fn line_of(points: &[[f32; 2]]) -> Rule {
    Rule::new("line", Kind::Line { points: points.to_vec(), sides: ["above".into(), "below".into()] })
}

fn line() -> Rule {
    line_of(&[[400.0, 300.0], [800.0, 300.0]])
}

const SQUARE: [[f32; 2]; 4] = [[400.0, 200.0], [800.0, 200.0], [800.0, 500.0], [400.0, 500.0]];

fn in_square(name: &str, kind: Kind) -> Rule {
    Rule { area: SQUARE.to_vec(), ..Rule::new(name, kind) }
}

fn zone() -> Rule {
    in_square("zone", Kind::Zone)
}

// Lines

#[test]
fn whoever_walks_over_a_line_and_back_is_counted_once_each_way() {
    let mut film = Film::new(vec![line()]);
    film.walk(ms(1000), 1, [600.0, 200.0], [600.0, 400.0]);
    assert_eq!(film.told(), ["line Moment to below"]);
    film.walk(ms(1000), 1, [600.0, 400.0], [600.0, 200.0]);
    assert_eq!(film.told(), ["line Moment to above"]);
    film.walk(ms(1000), 1, [600.0, 200.0], [600.0, 400.0]);
    assert_eq!(film.told(), ["line Moment to below"]);
    assert_eq!(film.totals("line").crossed_to, [1, 2]);
}

#[test]
fn a_jump_over_a_line_counts() {
    let mut film = Film::new(vec![line()]);
    film.show(ms(500), &[object(1, [600.0, 100.0])]).show(ms(500), &[object(1, [600.0, 600.0])]);
    assert_eq!(film.told(), ["line Moment to below"]);
}

#[test]
fn boxes_that_flicker_across_a_line_count_nothing() {
    let mut film = Film::new(vec![line()]);
    for _ in 0..30 {
        film.show(ms(100), &[object(1, [600.0, 299.0])]).show(ms(100), &[object(1, [600.0, 303.0])]);
    }
    film.show(ms(1000), &[object(1, [600.0, 280.0])]);
    assert_eq!(film.told(), [""; 0]);
}

#[test]
fn paths_beside_an_end_and_round_it_count_nothing() {
    let mut film = Film::new(vec![line()]);
    film.walk(ms(1000), 1, [810.0, 200.0], [810.0, 400.0]);
    // Round the end, and to the middle of the other side.
    film.walk(ms(300), 2, [600.0, 250.0], [850.0, 250.0]).walk(ms(300), 2, [850.0, 250.0], [850.0, 350.0]);
    film.walk(ms(300), 2, [850.0, 350.0], [600.0, 350.0]).show(ms(500), &[object(2, [600.0, 350.0])]);
    assert_eq!(film.told(), [""; 0]);
    // Who is then on the other side crosses it to come back, and once more after another round.
    film.walk(ms(500), 2, [600.0, 350.0], [600.0, 250.0]).show(ms(500), &[object(2, [600.0, 250.0])]);
    assert_eq!(film.told(), ["line Moment to above"]);
    film.walk(ms(300), 2, [600.0, 250.0], [850.0, 250.0]).walk(ms(300), 2, [850.0, 250.0], [850.0, 350.0]);
    film.walk(ms(300), 2, [850.0, 350.0], [600.0, 350.0]).walk(ms(500), 2, [600.0, 350.0], [600.0, 250.0]);
    assert_eq!(film.show(ms(500), &[object(2, [600.0, 250.0])]).told(), ["line Moment to above"]);
}

#[test]
fn jitter_round_the_end_of_a_line_counts_at_most_once() {
    let mut film = Film::new(vec![line()]);
    film.show(ms(500), &[object(1, [795.0, 295.0])]);
    for _ in 0..20 {
        for place in [[795.0, 305.0], [805.0, 305.0], [805.0, 295.0], [795.0, 295.0]] {
            film.frame(ms(33), &[object(1, place)], &[]);
        }
    }
    film.show(ms(500), &[object(1, [795.0, 295.0])]);
    assert_eq!(film.told(), ["line Moment to below"]);
}

#[test]
fn who_touches_a_line_and_turns_back_is_not_counted_and_who_starts_on_it_is_not() {
    for start in [200.0, 400.0] {
        let mut film = Film::new(vec![line()]);
        film.walk(ms(1000), 1, [600.0, start], [600.0, 300.0]).show(ms(2000), &[object(1, [600.0, 300.0])]);
        film.walk(ms(1000), 1, [600.0, 300.0], [600.0, start]);
        film.show(ms(500), &[object(2, [600.0, 300.0])]).walk(ms(1000), 2, [600.0, 300.0], [600.0, start]);
        assert_eq!(film.told(), [""; 0], "{start}");
    }
}

#[test]
fn an_object_hidden_on_a_line_is_counted_and_one_gone_for_longer_than_hold_is_not() {
    for (hidden, count) in [(900, 1), (1100, 0)] {
        let mut film = Film::new(vec![line()]);
        film.show(ms(500), &[object(1, [600.0, 250.0])]).show(ms(hidden), &[]);
        film.show(ms(500), &[object(1, [600.0, 350.0])]);
        assert_eq!(film.told().len(), count, "{hidden}");
    }
}

#[test]
fn a_line_of_many_points_counts_who_ends_on_its_other_side() {
    // A funnel that opens upwards.
    let mut film = Film::new(vec![line_of(&[[400.0, 200.0], [600.0, 400.0], [800.0, 200.0]])]);
    film.walk(ms(400), 1, [300.0, 300.0], [900.0, 300.0]).show(ms(500), &[object(1, [900.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.walk(ms(1000), 2, [600.0, 250.0], [600.0, 550.0]);
    assert_eq!(film.told(), ["line Moment to below"]);
}

#[test]
fn a_crossing_tells_when_the_object_was_first_beyond() {
    let mut film = Film::new(vec![line()]);
    film.frame(ms(100), &[object(1, [600.0, 250.0])], &[]);
    for _ in 0..3 {
        film.frame(ms(100), &[object(1, [600.0, 350.0])], &[]);
    }
    let [event] = &film.all[..] else { panic!("{:?}", film.all) };
    assert_eq!((event.at, event.ago, event.track), (ms(5400), ms(200), Some(1)));
}

// Zones

#[test]
fn a_visit_begins_and_ends_once_and_says_since_when() {
    let mut film = Film::new(vec![zone()]);
    film.show(ms(1000), &[object(1, [300.0, 300.0])]).show(ms(1000), &[object(1, [600.0, 300.0])]);
    film.show(ms(1000), &[object(1, [300.0, 300.0])]);
    let [begin, end] = &film.all[..] else { panic!("{:?}", film.all) };
    assert_eq!((begin.phase, end.phase, begin.id), (Phase::Begin, Phase::End, end.id));
    assert_eq!(end.reason, Some(EndReason::Over));
    let stayed = (end.at - end.ago) - (begin.at - begin.ago);
    assert!(stayed.abs_diff(ms(1000)) < ms(1), "{stayed:?}");
    assert_eq!(film.totals("zone"), Counters { begun: 1, ended: 1, ..Counters::default() });
}

#[test]
fn a_visit_shorter_than_settle_is_none() {
    let mut film = Film::new(vec![zone()]);
    film.show(ms(500), &[object(1, [300.0, 300.0])]).frame(ms(33), &[object(1, [600.0, 300.0])], &[]);
    film.show(ms(500), &[object(1, [300.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
}

#[test]
fn the_same_events_come_at_every_frame_rate() {
    for interval in [10, 40, 100, 200] {
        let mut film = Film::new(vec![zone(), in_square("dwell", Kind::Dwell { time: ms(3000) })]);
        for frame in 0..10_000 / interval {
            let inside = (2000..8000).contains(&(frame * interval));
            film.frame(ms(interval), &[object(1, [if inside { 600.0 } else { 300.0 }, 300.0])], &[]);
        }
        assert_eq!(film.told(), ["zone Begin", "dwell Begin", "zone End Over", "dwell End Over"], "{interval}");
    }
}

#[test]
fn with_no_settle_who_runs_through_between_two_frames_enters_and_leaves() {
    let mut film = Film::new(vec![Rule { settle: Duration::ZERO, ..zone() }]);
    film.show(ms(200), &[object(1, [390.0, 300.0])]).show(ms(200), &[object(1, [810.0, 300.0])]);
    assert_eq!(film.told(), ["zone Begin", "zone End Over"]);
    film.show(ms(200), &[object(2, [390.0, 190.0])]).show(ms(200), &[object(2, [810.0, 190.0])]);
    assert_eq!(film.told(), [""; 0]);
}

#[test]
fn the_anchor_of_a_box_that_the_frame_cuts_off_stays_in_the_frame() {
    let floor = Rule { area: vec![[0.0, 600.0], [1280.0, 600.0], [1280.0, 720.0], [0.0, 720.0]], ..zone() };
    let mut film = Film::new(vec![floor]);
    film.show(ms(500), &[object(1, [600.0, 790.0]), object(2, [-10.0, 800.0])]);
    assert_eq!(film.told(), ["zone Begin", "zone Begin"]);
}

#[test]
fn a_zone_whose_polygon_goes_round_a_hole_and_back_has_a_hole() {
    // The slit has no width, which is the hardest case.
    let (corner, inner) = ([200.0, 100.0], [400.0, 250.0]);
    let outer = [corner, [800.0, 100.0], [800.0, 600.0], [200.0, 600.0], corner];
    let ring: Vec<_> =
        outer.into_iter().chain([inner, [400.0, 450.0], [600.0, 450.0], [600.0, 250.0], inner]).collect();
    for settle in [ms(0), ms(200)] {
        let mut film = Film::new(vec![Rule { area: ring.clone(), settle, ..zone() }]);
        film.show(ms(500), &[object(1, [450.0, 350.0])]).show(ms(500), &[object(1, [550.0, 350.0])]);
        assert_eq!(film.told(), [""; 0]);
        // Over the way to the hole.
        film.walk(ms(500), 2, [250.0, 160.0], [350.0, 200.0]).walk(ms(500), 2, [350.0, 200.0], [250.0, 110.0]);
        assert_eq!(film.told(), ["zone Begin"]);
    }
}

#[test]
fn each_anchor_is_the_middle_of_its_side() {
    let anchors = [Anchor::Bottom, Anchor::Center, Anchor::Top, Anchor::Left, Anchor::Right];
    let places = [[600.0, 500.0], [600.0, 400.0], [600.0, 300.0], [500.0, 400.0], [700.0, 400.0]];
    for (index, anchor) in anchors.into_iter().enumerate() {
        for (other, [x, y]) in places.into_iter().enumerate() {
            let area = vec![[x - 1.0, y - 1.0], [x + 1.0, y - 1.0], [x + 1.0, y + 1.0], [x - 1.0, y + 1.0]];
            let mut film = Film::new(vec![Rule { area, anchor, ..zone() }]);
            let object = Object { track: 1, bounds: [500.0, 300.0, 700.0, 500.0], class_id: 0, score: 1.0 };
            film.show(ms(500), &[object]);
            assert_eq!(film.totals("zone").inside, u32::from(index == other), "{anchor:?} {other}");
        }
    }
}

#[test]
fn an_ended_track_leaves_at_once_and_a_lost_one_after_hold() {
    let mut film = Film::new(vec![zone()]);
    film.show(ms(500), &[object(1, [600.0, 300.0]), object(2, [700.0, 300.0])]).told();
    film.frame(ms(33), &[object(2, [700.0, 300.0])], &[1]);
    assert_eq!(film.told(), ["zone End TrackEnded"]);
    film.show(ms(900), &[]);
    assert_eq!((film.told().len(), film.totals("zone").inside), (0, 1));
    film.show(ms(200), &[]);
    assert_eq!((film.told(), film.totals("zone").inside), (vec!["zone End TrackLost".to_owned()], 0));
}

#[test]
fn a_filter_sees_some_classes_scores_and_sizes_only() {
    let filters = [
        Filter { classes: vec![PERSON], ..Filter::default() },
        Filter { min_score: 0.5, ..Filter::default() },
        Filter { min_size: 60.0, ..Filter::default() },
        Filter { max_size: 90.0, ..Filter::default() },
    ];
    let passes = object(1, [600.0, 300.0]);
    let [x1, y1, x2, y2] = passes.bounds;
    let fails = [
        Object { class_id: BAG, ..passes },
        Object { score: 0.4, ..passes },
        Object { bounds: [x1, y1 + 30.0, x2, y2], ..passes },
        Object { bounds: [x1, y1 - 20.0, x2, y2], ..passes },
    ];
    for (index, filter) in filters.into_iter().enumerate() {
        for (other, failing) in fails.into_iter().enumerate() {
            let mut film = Film::new(vec![Rule { filter: filter.clone(), ..zone() }]);
            film.show(ms(500), &[Object { track: 2, ..failing }]);
            assert_eq!(film.totals("zone").inside, u32::from(index != other), "{filter:?} {failing:?}");
        }
    }
    // A score that is low for less than `hold` is no break.
    let mut film = Film::new(vec![Rule { filter: Filter { min_score: 0.5, ..Filter::default() }, ..zone() }]);
    film.show(ms(500), &[passes]).show(ms(800), &[fails[1]]).show(ms(500), &[passes]);
    assert_eq!(film.told(), ["zone Begin"]);
}

#[test]
fn boxes_that_are_none_are_no_objects() {
    let mut film = Film::new(vec![Rule::new("frame", Kind::Zone)]);
    let none = [[f32::NAN; 4], [1.0, 1.0, 1.0, 5.0], [5.0, 1.0, 1.0, 5.0], [0.0, 0.0, f32::INFINITY, 5.0]];
    let objects: Vec<Object> =
        none.iter().zip(1..).map(|(&bounds, track)| Object { track, bounds, class_id: 0, score: 0.9 }).collect();
    assert_eq!(film.show(ms(500), &objects).told(), [""; 0]);
}

// Time in zones

#[test]
fn two_short_visits_are_no_dwell_and_are_loitering() {
    let loitering = in_square("loitering", Kind::Loitering { time: ms(5000), away: ms(4500) });
    let mut film = Film::new(vec![in_square("dwell", Kind::Dwell { time: ms(5000) }), loitering]);
    film.show(ms(3000), &[object(1, [600.0, 300.0])]).show(ms(4000), &[object(1, [300.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(3000), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["loitering Begin"]);
    // Away for long enough, it begins from nothing.
    film.show(ms(4300), &[object(1, [300.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(400), &[object(1, [300.0, 300.0])]);
    assert_eq!(film.told(), ["loitering End Over"]);
    film.show(ms(4900), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(400), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["dwell Begin", "loitering Begin"]);
}

#[test]
fn a_crowd_must_last_and_its_count_is_kept_up_to_date() {
    let crowd = Kind::Occupancy { at_least: Some(2), at_most: None, lasting: ms(2000) };
    let mut film = Film::new(vec![in_square("crowd", crowd)]);
    let people = |count: u64| -> Vec<Object> {
        let place = |track| [500.0, if track <= count { 300.0 } else { 100.0 }];
        (1..=3).map(|track| object(track, place(track))).collect()
    };
    film.show(ms(1900), &people(2)).show(ms(1500), &people(1)).show(ms(1900), &people(2));
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(500), &people(2)).show(ms(500), &people(3));
    assert_eq!(film.told(), ["crowd Begin 2", "crowd Update 3"]);
    film.show(ms(1500), &people(2)).show(ms(1500), &people(1));
    assert_eq!(film.told(), ["crowd Update 2", "crowd End 1 Over"]);
}

#[test]
fn a_place_that_is_empty_for_a_time_is_reported_until_somebody_comes() {
    let mut film = Film::new(vec![in_square("empty", Kind::Absence { time: ms(3000) })]);
    film.show(ms(2900), &[object(1, [300.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(200), &[]);
    assert_eq!(film.told(), ["empty Begin 0"]);
    film.show(ms(500), &[object(2, [600.0, 300.0])]);
    assert_eq!(film.told(), ["empty End 1 Over"]);
    // Time without frames is unknown.
    film.show(ms(5000), &[]).frame(ms(60_000), &[], &[]);
    assert_eq!(film.told(), ["empty Begin 0", "empty End 0 FramesMissing"]);
    film.show(ms(2900), &[]);
    assert_eq!(film.told(), [""; 0]);
}

// Motion

#[test]
fn a_car_that_stops_is_reported_until_it_drives_on() {
    let mut film = Film::new(vec![in_square("stopped", Kind::Stopped { distance: 20.0, time: ms(3000) })]);
    film.walk(ms(2000), 1, [410.0, 300.0], [600.0, 300.0]);
    film.play(ms(2500), |part| vec![object(1, [600.0 + 8.0 * (part * 50.0).sin(), 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    // A single box elsewhere does not count.
    film.frame(ms(33), &[object(1, [640.0, 300.0])], &[]).show(ms(1000), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["stopped Begin"]);
    film.walk(ms(1000), 1, [600.0, 300.0], [700.0, 300.0]);
    assert_eq!(film.told(), ["stopped End Over"]);
}

#[test]
fn the_wrong_way_is_against_the_direction_and_not_across_it() {
    let way = in_square("way", Kind::WrongWay { direction: [1.0, 0.0], distance: 50.0 });
    let mut film = Film::new(vec![way]);
    film.walk(ms(2000), 1, [410.0, 300.0], [700.0, 300.0]);
    film.walk(ms(1000), 1, [700.0, 300.0], [700.0, 450.0]);
    // Back a little, as a box does.
    film.walk(ms(500), 1, [700.0, 450.0], [660.0, 450.0]).walk(ms(500), 1, [660.0, 450.0], [700.0, 450.0]);
    // More across than back, and again.
    film.walk(ms(2000), 1, [700.0, 450.0], [600.0, 250.0]).walk(ms(2000), 1, [600.0, 250.0], [700.0, 450.0]);
    assert_eq!(film.told(), [""; 0]);
    film.walk(ms(2000), 1, [700.0, 450.0], [500.0, 270.0]);
    assert_eq!(film.told(), ["way Begin"]);
    film.walk(ms(2000), 1, [500.0, 270.0], [700.0, 400.0]);
    assert_eq!(film.told(), ["way End Over"]);
}

#[test]
fn speed_is_measured_on_the_ground() {
    // 100 px are a metre.
    let plane = [
        ([0.0, 0.0], [0.0, 0.0]),
        ([1000.0, 0.0], [10.0, 0.0]),
        ([1000.0, 700.0], [10.0, 7.0]),
        ([0.0, 700.0], [0.0, 7.0]),
    ];
    let kind = |at_least, at_most| Kind::Speed { plane, at_least, at_most, over: ms(1000) };
    let rules = vec![Rule::new("fast", kind(Some(2.0), None)), Rule::new("slow", kind(None, Some(0.5)))];
    let mut film = Film::new(rules);
    film.walk(ms(4000), 1, [100.0, 300.0], [500.0, 300.0]);
    assert_eq!(film.told(), [""; 0]);
    film.walk(ms(2000), 1, [500.0, 300.0], [1100.0, 300.0]);
    let [begin] = &film.all[..] else { panic!("{:?}", film.all) };
    assert_eq!((&*begin.rule, begin.phase), ("fast", Phase::Begin));
    assert!((2.0..3.1).contains(&begin.speed.unwrap()), "{begin:?}");
    film.told();
    film.show(ms(3000), &[object(1, [1100.0, 300.0])]);
    assert_eq!(film.told(), ["fast End Over", "slow Begin"]);
}

// Belongings

fn belonging() -> Belonging {
    Belonging { distance: 15.0, time: ms(5000), owners: vec![PERSON], near: 150.0 }
}

fn bags(name: &str, kind: Kind) -> Rule {
    Rule { filter: Filter { classes: vec![BAG], ..Filter::default() }, ..Rule::new(name, kind) }
}

fn bag(track: u64, place: [f32; 2]) -> Object {
    Object { class_id: BAG, ..object(track, place) }
}

#[test]
fn a_bag_is_left_behind_once_its_owner_is_away() {
    let mut film = Film::new(vec![bags("left", Kind::LeftBehind(belonging()))]);
    let here = [600.0, 300.0];
    film.play(ms(2000), |part| {
        let x = 300.0 + 300.0 * part;
        vec![bag(1, [x, 300.0]), object(2, [x + 30.0, 300.0])]
    });
    film.show(ms(8000), &[bag(1, here), object(2, [630.0, 300.0])]);
    // Somebody else who is near is not the owner.
    film.show(ms(4500), &[bag(1, here), object(2, [900.0, 300.0]), object(3, [610.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(1000), &[bag(1, here), object(2, [900.0, 300.0]), object(3, [610.0, 300.0])]);
    assert_eq!(film.told(), ["left Begin"]);
    film.show(ms(500), &[bag(1, here), object(2, [650.0, 300.0])]);
    assert_eq!(film.told(), ["left End Over"]);
}

#[test]
fn a_bag_without_owner_is_watched_by_everybody() {
    let mut film = Film::new(vec![bags("left", Kind::LeftBehind(belonging()))]);
    film.show(ms(4000), &[bag(1, [600.0, 300.0])]);
    film.show(ms(3000), &[bag(1, [600.0, 300.0]), object(3, [610.0, 300.0])]);
    film.show(ms(4900), &[bag(1, [600.0, 300.0])]);
    assert_eq!(film.told(), [""; 0]);
    film.show(ms(500), &[bag(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["left Begin"]);
}

#[test]
fn an_owner_whose_track_ended_beside_the_bag_may_be_anybody_near_and_one_who_went_away_is_gone() {
    for (place, told) in [([630.0, 300.0], vec![]), ([900.0, 300.0], vec!["left Begin"])] {
        let mut film = Film::new(vec![bags("left", Kind::LeftBehind(belonging()))]);
        let here = bag(1, [600.0, 300.0]);
        film.show(ms(2000), &[here, object(2, [630.0, 300.0])]).show(ms(500), &[here, object(2, place)]);
        // Somebody near, perhaps the owner with a new track.
        film.frame(ms(33), &[here, object(3, [640.0, 300.0])], &[2]);
        assert_eq!(film.show(ms(8000), &[here, object(3, [640.0, 300.0])]).told(), told, "{place:?}");
    }
}

#[test]
fn what_vanishes_or_moves_without_its_owner_was_taken_away() {
    let start = |owner: [f32; 2]| {
        let mut film = Film::new(vec![bags("taken", Kind::TakenAway(belonging()))]);
        film.show(ms(1000), &[bag(1, [600.0, 300.0]), object(2, [620.0, 300.0])]);
        film.show(ms(7000), &[bag(1, [600.0, 300.0]), object(2, owner)]);
        assert_eq!(film.told(), [""; 0]);
        film
    };
    let (near, far) = ([620.0, 300.0], [1000.0, 300.0]);
    assert_eq!(start(far).show(ms(1500), &[object(2, far)]).told(), ["taken Moment"]);
    assert_eq!(start(near).show(ms(1500), &[object(2, near)]).told(), [""; 0]);
    assert_eq!(start(far).walk(ms(1500), 9, far, far).told(), ["taken Moment"]);
    let mut moved = start(far);
    moved.play(ms(1000), |part| vec![bag(1, [600.0 + 200.0 * part, 300.0]), object(2, far)]);
    assert_eq!(moved.told(), ["taken Moment"]);
    assert_eq!(moved.totals("taken").taken, 1);
    // A camera that was off did not see who took it.
    assert_eq!(start(far).frame(ms(60_000), &[], &[]).told(), [""; 0]);
}

#[test]
fn what_leaves_the_zone_without_its_owner_was_taken_away_however_short_the_way() {
    let rule = Rule { area: SQUARE.to_vec(), ..bags("taken", Kind::TakenAway(belonging())) };
    let mut film = Film::new(vec![rule]);
    film.show(ms(7000), &[bag(1, [600.0, 495.0])]);
    assert_eq!(film.told(), [""; 0]);
    assert_eq!(film.show(ms(1000), &[bag(1, [600.0, 505.0])]).told(), ["taken Moment"]);
}

// Parked objects

fn parked() -> Rule {
    Rule { parked: true, ..zone() }
}

#[test]
fn a_parked_car_that_is_found_at_its_place_never_left() {
    let mut film = Film::new(vec![parked(), Rule { name: "plain".into(), ..zone() }]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]);
    film.told();
    // Lost by its tracker, and found as another track.
    film.show(ms(2500), &[]).frame(ms(33), &[], &[1]).show(ms(20_000), &[]);
    assert_eq!(film.told(), ["plain End TrackLost"]);
    film.show(ms(1000), &[object(7, [604.0, 302.0])]);
    assert_eq!(film.told(), ["zone Update", "plain Begin"]);
    film.show(ms(1000), &[object(7, [300.0, 300.0])]);
    assert_eq!(film.told(), ["zone End Over", "plain End Over"]);
    assert_eq!(film.totals("zone").begun, 1);
}

#[test]
fn a_parked_car_that_is_not_found_leaves_after_a_minute() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).show(ms(59_000), &[]);
    assert_eq!(film.told(), ["zone Begin"]);
    film.show(ms(2000), &[]);
    assert_eq!(film.told(), ["zone End TrackLost"]);
}

#[test]
fn a_car_that_moved_while_it_was_unseen_was_not_parked_and_neither_was_one_that_came_just_now() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).show(ms(5000), &[]).show(ms(500), &[object(1, [700.0, 300.0])]);
    assert_eq!(film.told(), ["zone Begin", "zone End TrackLost", "zone Begin"]);
    film.show(ms(5000), &[]);
    assert_eq!(film.told(), ["zone End TrackLost"]);
}

#[test]
fn an_object_of_another_class_at_the_place_of_a_parked_one_is_another_object() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).frame(ms(33), &[], &[1]);
    film.show(ms(1000), &[bag(2, [600.0, 300.0])]);
    assert_eq!((film.told(), film.totals("zone").inside), (vec!["zone Begin".to_owned(), "zone Begin".to_owned()], 2));
}

#[test]
fn the_time_at_a_place_begins_again_after_a_long_gap() {
    let mut film = Film::new(vec![parked()]);
    let car = [object(1, [600.0, 300.0])];
    film.show(ms(2000), &car).show(ms(20_000), &[]).show(ms(2000), &car).told();
    film.show(ms(5000), &[]);
    assert_eq!(film.told(), ["zone End TrackLost"]);
}

#[test]
fn another_car_before_a_parked_one_is_another_car() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]);
    // The parked one is hidden for a moment by the other.
    film.show(ms(500), &[object(2, [602.0, 300.0])])
        .show(ms(500), &[object(1, [600.0, 300.0]), object(2, [700.0, 300.0])]);
    assert_eq!((film.told().len(), film.totals("zone").inside), (2, 2));
}

/// The left two fifths of what `object` is.
fn part_of(track: u64, place: [f32; 2]) -> Object {
    let [x1, y1, _, y2] = object(track, place).bounds;
    Object { bounds: [x1, y1, x1 + 16.0, y2], ..object(track, place) }
}

#[test]
fn a_parked_car_of_which_something_hides_a_part_for_a_moment_stays_parked() {
    let (car, part) = (object(1, [600.0, 300.0]), part_of(1, [600.0, 300.0]));
    let lost = |before: &[Object], after: &[Object]| {
        let mut film = Film::new(vec![parked()]);
        film.show(ms(20_000), &[car]);
        before.iter().for_each(|object| {
            film.show(ms(300), &[*object]);
        });
        film.show(ms(5000), &[]);
        after.iter().for_each(|object| {
            film.show(ms(300), &[*object]);
        });
        film.show(ms(5000), &[]).told()
    };
    // Before it is hidden, when it is seen again, and both.
    assert_eq!(lost(&[part], &[car]), ["zone Begin"]);
    assert_eq!(lost(&[], &[part, car]), ["zone Begin"]);
    assert_eq!(lost(&[part], &[part, car]), ["zone Begin"]);
    // As another track.
    let [other, part_of_other] = [Object { track: 2, ..car }, Object { track: 2, ..part }];
    assert_eq!(lost(&[part], &[part_of_other, other]), ["zone Begin", "zone Update"]);
    // A box that is wrong in any way, for less than half a second.
    let wrong = Object { bounds: [540.0, 220.0, 620.0, 420.0], ..car };
    assert_eq!(lost(&[wrong, car], &[car]), ["zone Begin"]);
    assert_eq!(lost(&[wrong], &[car]), ["zone Begin"]);
    // It parks elsewhere.
    let elsewhere = object(1, [640.0, 300.0]);
    assert_eq!(
        lost(&[elsewhere, elsewhere], &[car]),
        ["zone Begin", "zone End TrackLost", "zone Begin", "zone End TrackLost"]
    );
}

#[test]
fn something_small_at_the_place_of_a_parked_car_is_not_the_car() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).show(ms(2000), &[]);
    let far = Object { bounds: [590.0, 250.0, 600.0, 270.0], ..object(2, [600.0, 300.0]) };
    film.show(ms(500), &[far]);
    assert_eq!((film.told(), film.totals("zone").inside), (vec!["zone Begin".to_owned(), "zone Begin".to_owned()], 2));
}

#[test]
fn a_parked_car_whose_track_has_another_id_at_once_is_one_car() {
    let (car, other) = ([object(1, [600.0, 300.0])], [object(2, [602.0, 300.0])]);
    for hidden in [0, 33, 300, 900] {
        for ended in [&[1][..], &[]] {
            let mut film = Film::new(vec![parked()]);
            film.show(ms(11_000), &car);
            if hidden > 0 {
                film.frame(ms(33), &[], ended).show(ms(hidden), &[]);
            }
            film.frame(ms(33), &other, ended)
                .show(ms(2500), &other)
                .frame(ms(33), &other, &[1])
                .show(ms(65_000), &other);
            assert_eq!(film.told(), ["zone Begin", "zone Update"], "{hidden} {ended:?}");
            assert_eq!((film.totals("zone").inside, film.totals("zone").begun), (1, 1));
            film.frame(ms(33), &[], &[2]).show(ms(61_000), &[]);
            assert_eq!(film.told(), ["zone End TrackLost"]);
        }
    }
}

#[test]
fn a_bag_whose_track_has_another_id_was_not_taken_away() {
    let rule = Rule { parked: true, ..bags("taken", Kind::TakenAway(belonging())) };
    let owner = object(9, [1000.0, 300.0]);
    let mut film = Film::new(vec![rule]);
    film.show(ms(15_000), &[bag(1, [600.0, 300.0]), owner]).show(ms(500), &[owner]);
    film.show(ms(75_000), &[bag(5, [600.0, 300.0]), owner]);
    assert_eq!(film.told(), [""; 0]);
    // And then it was.
    film.show(ms(61_000), &[owner]);
    assert_eq!(film.told(), ["taken Moment"]);
}

#[test]
fn a_new_car_that_hides_a_parked_one_and_goes_on_is_another_one() {
    let mut film = Film::new(vec![parked()]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).show(ms(300), &[object(2, [602.0, 300.0])]);
    // The parked one is still hidden.
    film.show(ms(500), &[object(2, [640.0, 300.0])]).show(ms(500), &[object(2, [700.0, 300.0])]);
    film.show(ms(500), &[object(1, [600.0, 300.0]), object(2, [700.0, 300.0])]);
    assert_eq!((film.told().len(), film.totals("zone").inside), (2, 2));
}

#[test]
fn an_object_that_is_first_seen_in_the_frame_that_ends_its_track_leaves_at_once() {
    let mut film = Film::new(vec![Rule { settle: Duration::ZERO, ..parked() }]);
    film.frame(ms(33), &[object(1, [600.0, 300.0])], &[1]);
    assert_eq!(film.told(), ["zone Begin", "zone End TrackEnded"]);
}

// Conditions, switches, reloads

#[test]
fn a_rule_has_events_only_while_and_unless_others_have() {
    let people = || Filter { classes: vec![PERSON], ..Filter::default() };
    let dwell = in_square("dwell", Kind::Dwell { time: ms(500) });
    let gated = Rule { only_while: vec!["zone".into()], filter: people(), ..dwell };
    let barred = Rule { unless: vec!["zone".into()], ..line_of(&[[900.0, 300.0], [1200.0, 300.0]]) };
    let guard = Rule { filter: Filter { classes: vec![BAG], ..Filter::default() }, ..zone() };
    // In an order in which the conditions come last.
    let mut film = Film::new(vec![gated, barred, guard]);
    film.show(ms(1000), &[object(1, [600.0, 300.0])]).walk(ms(1000), 2, [1000.0, 200.0], [1000.0, 400.0]);
    assert_eq!(film.told(), ["line Moment to below"]);
    film.show(ms(900), &[object(1, [600.0, 300.0]), bag(3, [610.0, 300.0])]);
    assert_eq!(film.told(), ["zone Begin", "dwell Begin"]);
    film.play(ms(1000), |part| {
        vec![object(1, [600.0, 300.0]), bag(3, [610.0, 300.0]), object(4, [1000.0, 200.0 + 200.0 * part])]
    });
    assert_eq!(film.told(), [""; 0]);
    film.frame(ms(33), &[object(1, [600.0, 300.0])], &[3]).frame(ms(33), &[object(1, [600.0, 300.0])], &[]);
    assert_eq!(film.told(), ["zone End TrackEnded", "dwell End Condition"]);
}

#[test]
fn a_rule_that_is_off_sees_nothing_and_ends_its_events() {
    let mut film = Film::new(vec![zone()]);
    film.show(ms(500), &[object(1, [600.0, 300.0])]);
    let mut events = Vec::new();
    assert!(film.scene.switch("zone", false, &mut events));
    assert_eq!((events.len(), events[0].reason), (1, Some(EndReason::RuleOff)));
    film.told();
    film.show(ms(500), &[object(1, [600.0, 300.0])]);
    assert_eq!((film.told().len(), film.totals("zone")), (0, Counters { begun: 1, ended: 1, ..Counters::default() }));
    assert!(film.scene.switch("zone", true, &mut events) && events.is_empty());
    assert_eq!(film.show(ms(500), &[object(1, [600.0, 300.0])]).told(), ["zone Begin"]);
    assert!(!film.scene.switch("none", true, &mut events));
}

#[test]
fn a_reload_keeps_rules_that_are_the_same_and_ends_the_events_of_others() {
    let mut film = Film::new(vec![zone(), in_square("other", Kind::Zone)]);
    film.show(ms(500), &[object(1, [600.0, 300.0])]).told();
    let mut events = Vec::new();
    let changed = Rule { settle: ms(400), ..in_square("other", Kind::Zone) };
    film.scene.replace(vec![Rule::new("new", Kind::Zone), changed.clone(), zone()], &mut events).unwrap();
    assert_eq!(
        events.iter().map(|event| (&*event.rule, event.reason)).collect::<Vec<_>>(),
        [("other", Some(EndReason::RuleRemoved))]
    );
    film.show(ms(1000), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["new Begin", "other Begin"]);
    assert_eq!(film.totals("zone").begun, 1);
    // What was off stays off.
    film.scene.switch("other", false, &mut events);
    let again = Rule { settle: ms(500), ..changed };
    film.scene.replace(vec![Rule::new("new", Kind::Zone), again, zone()], &mut events).unwrap();
    assert_eq!((film.show(ms(1000), &[object(1, [600.0, 300.0])]).told().len(), events.len()), (0, 0));
    // Wrong ones change nothing.
    let wrong = film.scene.replace(vec![zone(), zone()], &mut events);
    assert_eq!((wrong, events.len()), (Err(RuleError::SameName { name: "zone".into() }), 0));
    film.scene.finish(EndReason::Shutdown, &mut events);
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.phase == Phase::End && event.reason == Some(EndReason::Shutdown)));
    film.scene.finish(EndReason::Shutdown, &mut events);
    assert_eq!(events, []);
}

#[test]
fn while_frames_are_missing_each_rule_ends_by_its_own_hold() {
    let rules = || {
        vec![
            zone(),
            Rule { name: "long".into(), hold: ms(60_000), ..zone() },
            Rule { name: "parked".into(), ..parked() },
        ]
    };
    let mut film = Film::new(rules());
    let mut missing = Vec::new();
    let mut miss = |film: &mut Film, seconds: u64| {
        let missed = film.scene.miss_frames(ms(1000 * seconds), &mut missing);
        (missed, missing.iter().map(|event| format!("{} {:?}", event.rule, event.reason.unwrap())).collect::<Vec<_>>())
    };
    film.show(ms(500), &[object(1, [600.0, 300.0])]).told();
    assert_eq!(miss(&mut film, 1), (false, Vec::new()));
    assert_eq!(miss(&mut film, 2), (true, vec!["zone FramesMissing".to_owned()]));
    assert_eq!(miss(&mut film, 3).1, [""; 0], "it ends once");
    assert_eq!(["zone", "long", "parked"].map(|name| film.totals(name).inside), [0, 1, 1]);
    // The camera is back: for `long`, nothing has happened.
    film.frame(ms(4000), &[object(1, [600.0, 300.0])], &[]).show(ms(500), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["parked End FramesMissing", "zone Begin", "parked Begin"]);
    assert_eq!(miss(&mut film, 61).1.len(), 3);
    // A count begins again, and a line remembers nothing.
    let crowd = in_square("crowd", Kind::Occupancy { at_least: Some(1), at_most: None, lasting: ms(0) });
    let mut film = Film::new(vec![crowd, line()]);
    film.show(ms(500), &[object(1, [600.0, 250.0])]).told();
    assert_eq!(miss(&mut film, 2), (true, vec!["crowd FramesMissing".to_owned()]));
    film.show(ms(500), &[object(1, [600.0, 350.0])]);
    assert_eq!(film.told(), ["crowd Begin 1"]);
}

#[test]
fn clocks_that_jump_begin_again_and_end_what_was() {
    let mut film = Film::new(vec![zone(), in_square("dwell", Kind::Dwell { time: ms(60_000) })]);
    film.show(ms(500), &[object(1, [600.0, 300.0])]);
    // Ahead by an hour: nothing is known of the time between.
    film.frame(ms(3_600_000), &[object(1, [600.0, 300.0])], &[]);
    assert_eq!(film.told(), ["zone Begin", "zone End FramesMissing"]);
    // Back by two hours: the time goes on from there.
    film.show(ms(500), &[object(1, [600.0, 300.0])]);
    film.now = ms(1);
    film.show(ms(58_000), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["zone Begin"]);
    film.show(ms(3000), &[object(1, [600.0, 300.0])]);
    assert_eq!(film.told(), ["dwell Begin"]);
}

#[test]
fn rules_that_are_wrong_are_rejected_with_a_remedy() {
    let error = |rule: Rule| Scene::new(SIZE, vec![rule], Arc::default()).unwrap_err().to_string();
    let kind = |kind: Kind| error(Rule::new("r", kind));
    let text = error(line_of(&[[1.0, 1.0], [1.0, 1.0]]));
    assert_eq!(text, "rule `line`: a line must have two or more different points");
    assert!(error(Rule { area: SQUARE.to_vec(), ..line() }).contains("remove the area"));
    assert!(error(Rule { area: vec![[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]], ..zone() }).contains("not on one line"));
    assert!(error(Rule { area: vec![[0.0, 0.0], [f32::NAN, 5.0], [9.0, 0.0]], ..zone() }).contains("within 65,536 px"));
    assert!(error(Rule { area: vec![[0.0, 0.0]; 1001], ..zone() }).contains("at most 1000"));
    assert!(error(Rule { filter: Filter { min_score: f32::NAN, ..Filter::default() }, ..zone() }).contains("filter"));
    assert!(kind(Kind::Occupancy { at_least: None, at_most: None, lasting: ms(0) }).contains("must be given"));
    assert!(kind(Kind::Occupancy { at_least: Some(3), at_most: Some(2), lasting: ms(0) }).contains("or less"));
    assert!(kind(Kind::Stopped { distance: 0.0, time: ms(0) }).contains("`distance` must be more than 0"));
    assert!(kind(Kind::WrongWay { direction: [0.0, 0.0], distance: 9.0 }).contains("`direction`"));
    assert!(kind(Kind::LeftBehind(Belonging { near: -1.0, ..belonging() })).contains("`near`"));
    let plane = [([0.0, 0.0], [0.0, 0.0]); 4];
    assert!(kind(Kind::Speed { plane, at_least: Some(1.0), at_most: None, over: ms(1000) }).contains("no three"));
    let on = |name: &str, other: &str| Rule { unless: vec![other.into()], ..Rule::new(name, Kind::Zone) };
    assert!(error(on("r", "q")).contains("does not exist"));
    let several = |rules: Vec<Rule>| Scene::new(SIZE, rules, Arc::default()).unwrap_err();
    assert!(matches!(several(vec![on("r", "line"), line()]), RuleError::MomentCondition { .. }));
    assert!(matches!(several(vec![on("a", "b"), on("b", "a")]), RuleError::Circle { .. }));
    assert!(matches!(several(vec![zone(); 257]), RuleError::TooManyRules { found: 257 }));
    assert!(matches!(Scene::new([0, 1], Vec::new(), Arc::default()), Err(RuleError::FrameSize { .. })));
}

#[test]
fn a_parked_car_whose_track_ended_beside_a_line_is_another_one_beyond_it() {
    let across = line_of(&[[610.0, 100.0], [610.0, 700.0]]);
    let mut film = Film::new(vec![parked(), Rule { settle: Duration::ZERO, ..across }]);
    film.show(ms(11_000), &[object(1, [600.0, 300.0])]).frame(ms(33), &[object(1, [600.0, 300.0])], &[1]).told();
    // The zone finds it again, a step to the right.
    film.show(ms(300), &[object(2, [612.0, 300.0])]);
    assert_eq!(film.told(), ["zone Update"]);
}

#[test]
fn a_line_that_a_reload_moves_remembers_where_each_object_was() {
    let across = line_of(&[[610.0, 100.0], [610.0, 700.0]]);
    let mut film = Film::new(vec![zone(), across.clone()]);
    film.show(ms(500), &[object(1, [200.0, 300.0])]);
    film.scene.replace(vec![across, zone()], &mut Vec::new()).unwrap();
    film.show(ms(500), &[object(1, [1200.0, 300.0])]);
    assert_eq!(film.totals("line").crossed_to.iter().sum::<u64>(), 1);
    // While it is off, it sees nothing.
    film.scene.switch("line", false, &mut Vec::new());
    film.scene.switch("line", true, &mut Vec::new());
    film.show(ms(500), &[object(1, [200.0, 300.0])]);
    assert_eq!(film.totals("line").crossed_to.iter().sum::<u64>(), 1);
}

#[test]
fn a_zone_that_was_switched_off_with_objects_inside_is_empty_afterwards() {
    let mut film = Film::new(vec![in_square("absence", Kind::Absence { time: ms(1000) })]);
    film.show(ms(500), &[object(1, [600.0, 300.0])]);
    film.scene.switch("absence", false, &mut Vec::new());
    film.scene.switch("absence", true, &mut Vec::new());
    film.show(ms(2000), &[]);
    assert_eq!(film.told(), ["absence Begin 0"]);
}
