//! Objects whose truth is known keep their ids: at every rate, through crossings, occlusions, gaps and jumps of the clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::f32::consts::PI;
use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::oriented::OrientedBox;
use visiond_tracker::{Observation, Parameters, Step, TrackIds, TrackReport, TrackState, Tracker};

/// Takes a step with a result of its own.
fn step_of(tracker: &mut Tracker, at: Duration, seen: &[Observation<'_>]) -> Step {
    let mut step = Step::default();
    tracker.step(at, seen, &mut step);
    step
}

/// Numbers that are the same in each run.
struct Noise(u32);

impl Noise {
    /// From -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn person(x: f32, y: f32, score: f32) -> Observation<'static> {
    Observation { bounds: [x, y, x + 40.0, y + 100.0], oriented: None, score, class_id: 0, embedding: None }
}

/// One camera, and which ids each object had.
struct Scene {
    tracker: Tracker,
    noise: Noise,
    /// For each object, how many of its detections had which id; 0 for none.
    ids: BTreeMap<usize, BTreeMap<u64, usize>>,
    ended: BTreeSet<u64>,
}

impl Scene {
    fn new() -> Self {
        let tracker = Tracker::new(Parameters::default(), Arc::default());
        Self { tracker, noise: Noise(39), ids: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// Shows a frame with objects, by their numbers, whose boxes waver by 2 % as those of a detector do.
    fn show(&mut self, at: f64, objects: &[(usize, Observation<'static>)]) -> Vec<Option<TrackReport>> {
        let waver = |mut seen: Observation<'static>, noise: &mut Noise| {
            let [width, height] = [seen.bounds[2] - seen.bounds[0], seen.bounds[3] - seen.bounds[1]];
            for (side, of) in seen.bounds.iter_mut().zip([width, height, width, height]) {
                *side += 0.02 * of * noise.next();
            }
            seen
        };
        let observations: Vec<Observation<'_>> =
            objects.iter().map(|(_, seen)| waver(*seen, &mut self.noise)).collect();
        let step = step_of(&mut self.tracker, Duration::from_secs_f64(at), &observations);
        self.ended.extend(step.ended.iter().map(|track| track.id));
        for ((object, _), track) in objects.iter().zip(&step.tracks) {
            let id = track.map_or(0, |track| track.id);
            assert!(!self.ended.contains(&id), "{id} came back after its end");
            *self.ids.entry(*object).or_default().entry(id).or_default() += 1;
        }
        step.tracks.to_vec()
    }

    /// The ids of an object, but for detections without one.
    fn ids_of(&self, object: usize) -> Vec<u64> {
        self.ids[&object].keys().copied().filter(|id| *id != 0).collect()
    }

    /// Each of so many objects had one id, and no two the same.
    fn assert_one_id_each(&self, objects: usize) {
        let all: Vec<Vec<u64>> = (0..objects).map(|object| self.ids_of(object)).collect();
        assert!(all.iter().all(|ids| ids.len() == 1), "{all:?}");
        assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), objects, "{all:?}");
    }

    /// The part of detections that have the id which their object had most: IDF1, as every detection is an object here.
    fn idf1(&self) -> f64 {
        let all: usize = self.ids.values().flat_map(BTreeMap::values).sum();
        let most = |ids: &BTreeMap<u64, usize>| {
            ids.iter().filter(|(id, _)| **id != 0).map(|(_, count)| *count).max().unwrap_or(0)
        };
        self.ids.values().map(most).sum::<usize>() as f64 / all as f64
    }
}

/// Eight people that cross a square: four from the left and four from the right, each pair at its own depth.
fn crossing(time: f32) -> Vec<(usize, Observation<'static>)> {
    let mut all = Vec::new();
    for lane in 0..4 {
        let (y, speed) = (100.0 + 130.0 * lane as f32, 90.0 + 20.0 * lane as f32);
        let (right, left) = (speed * time, 900.0 - speed * time);
        all.push((2 * lane, person(right, y + 8.0, 0.9)));
        // Behind the other one, as long as that covers most of it.
        if (right - left).abs() > 14.0 {
            all.push((2 * lane + 1, person(left, y, if (right - left).abs() < 30.0 { 0.3 } else { 0.9 })));
        }
    }
    all
}

#[test]
fn people_who_cross_keep_their_ids_at_thirty_frames_a_second_and_at_five() {
    for rate in [30.0, 15.0, 5.0] {
        let mut scene = Scene::new();
        for frame in 0..(9.0 * rate) as usize {
            let time = frame as f64 / rate;
            scene.show(time, &crossing(time as f32));
        }
        scene.assert_one_id_each(8);
        assert!(scene.idf1() > 0.99, "{rate}: {}", scene.idf1());
    }
}

#[test]
fn a_rate_that_falls_from_sixty_to_one_and_bursts_change_no_id() {
    let mut scene = Scene::new();
    let mut times: Vec<f64> = (0..180).map(|frame| f64::from(frame) / 60.0).collect();
    times.extend((0..4).map(|frame| 3.0 + f64::from(frame)));
    // Five frames in 20 ms, then none for half a second.
    times.extend((0..40).map(|frame| 7.0 + f64::from(frame / 5) * 0.5 + f64::from(frame % 5) * 0.005));
    times.extend((0..120).map(|frame| 11.0 + f64::from(frame) / 60.0));
    for time in times {
        // Side by side, so that a mistake at one frame a second has somewhere to go.
        let walker = |object: usize| {
            let (speed, start) = (35.0 + 5.0 * object as f32, 120.0 * object as f32);
            (object, person(start + speed * time as f32, 100.0 + 12.0 * object as f32, 0.9))
        };
        scene.show(time, &(0..6).map(walker).collect::<Vec<_>>());
    }
    scene.assert_one_id_each(6);
    assert_eq!(scene.idf1(), 1.0);
}

#[test]
fn one_frame_a_second_from_the_start_is_enough() {
    let mut scene = Scene::new();
    for second in 0..20 {
        let time = second as f32;
        // A step of more than the own width from one frame to the next.
        scene.show(
            f64::from(second),
            &[(0, person(70.0 * time, 100.0, 0.9)), (1, person(1400.0 - 60.0 * time, 400.0, 0.9))],
        );
    }
    scene.assert_one_id_each(2);
}

#[test]
fn two_seconds_behind_a_pillar_change_no_id() {
    for rate in [30.0, 10.0] {
        let mut scene = Scene::new();
        for frame in 0..(8.0 * rate) as usize {
            let time = frame as f64 / rate;
            let hidden = (3.0..5.0).contains(&time);
            let mut seen = vec![(0, person(400.0, 300.0, 0.9))];
            if !hidden {
                seen.push((1, person(100.0 + 60.0 * time as f32, 100.0, 0.9)));
            } else if time > 3.1 {
                let lost: Vec<TrackReport> = scene.tracker.lost().collect();
                assert!(matches!(lost[..], [TrackReport { state: TrackState::Lost, .. }]), "{lost:?}");
            }
            scene.show(time, &seen);
        }
        scene.assert_one_id_each(2);
    }
}

#[test]
fn an_object_that_stays_away_ends_and_comes_back_as_another() {
    let mut scene = Scene::new();
    for frame in 0..30 {
        scene.show(f64::from(frame) / 10.0, &[(0, person(100.0, 100.0, 0.9))]);
    }
    for frame in 30..60 {
        scene.show(f64::from(frame) / 10.0, &[]);
    }
    assert_eq!(scene.ended.len(), 1);
    scene.show(6.0, &[(0, person(100.0, 100.0, 0.9))]);
    assert_eq!(scene.ids_of(0).len(), 2);
}

#[test]
fn a_camera_that_was_away_for_ten_seconds_knows_what_stood_still() {
    let mut scene = Scene::new();
    for frame in 0..90 {
        // A reconnect after three seconds.
        let time = f64::from(frame) / 15.0 + if frame < 45 { 0.0 } else { 10.0 };
        let walker = person(300.0 + 20.0 * time as f32, 500.0, 0.9);
        let mut seen = vec![(0, person(100.0, 100.0, 0.9)), (2, walker)];
        // The first frames after it do not show everything.
        if !(45..50).contains(&frame) {
            seen.push((1, person(300.0, 110.0, 0.8)));
        }
        scene.show(time, &seen);
    }
    assert_eq!([scene.ids_of(0).len(), scene.ids_of(1).len()], [1, 1]);
    // The one who walked meanwhile is another or the same, but no one else.
    assert!(scene.ids_of(2).iter().all(|id| !scene.ids_of(0).contains(id) && !scene.ids_of(1).contains(id)));
}

#[test]
fn a_clock_that_jumps_an_hour_either_way_or_stands_changes_no_id() {
    let mut scene = Scene::new();
    for frame in 0..240 {
        let time = frame as f32 / 30.0;
        let clock = f64::from(time)
            + match frame {
                0..60 => 7200.0,
                60..120 => 10800.0,
                _ => 0.0,
            };
        let clock = if frame >= 180 { 100.0 } else { clock };
        scene.show(clock, &[(0, person(80.0 * time, 100.0, 0.9)), (1, person(700.0 - 80.0 * time, 160.0, 0.9))]);
    }
    scene.assert_one_id_each(2);
}

#[test]
fn who_is_hidden_while_the_camera_turns_is_found_again() {
    let mut scene = Scene::new();
    for frame in 0..90 {
        // It turns by more than a width in the second that two of twelve are hidden.
        let turned = 6.0 * (frame.clamp(30, 60) - 30) as f32;
        let one = |object: usize| {
            let (column, row) = ((object % 4) as f32, (object / 4) as f32);
            let (x, y) = (190.0 * column + 40.0 * row, 150.0 * row + 9.0 * column);
            (object, person(x - turned + 0.3 * frame as f32, y, 0.9))
        };
        let hidden = |object: &usize| [5, 6].contains(object) && (30..60).contains(&frame);
        scene.show(f64::from(frame) / 30.0, &(0..12).filter(|object| !hidden(object)).map(one).collect::<Vec<_>>());
    }
    scene.assert_one_id_each(12);
}

#[test]
fn scores_decide_how_a_track_begins_and_what_keeps_it() {
    let mut scene = Scene::new();
    let show = |scene: &mut Scene, at: f64, score: f32| scene.show(at, &[(0, person(100.0, 100.0, score))])[0];
    assert_eq!(show(&mut scene, 0.0, 0.5), None, "too little to begin");
    assert_eq!(show(&mut scene, 0.1, 0.65), None);
    let tentative = show(&mut scene, 0.2, 0.75).unwrap();
    assert_eq!((tentative.state, tentative.age_ms), (TrackState::Tentative, 0));
    let confirmed = show(&mut scene, 0.3, 0.75).unwrap();
    assert_eq!((confirmed.state, confirmed.id), (TrackState::Confirmed, tentative.id));
    assert!((99..=101).contains(&confirmed.age_ms), "{confirmed:?}");
    // Half hidden, it is seen with a low score.
    for frame in 4..40 {
        assert_eq!(show(&mut scene, f64::from(frame) / 10.0, 0.2).unwrap().id, confirmed.id);
    }
    assert_eq!(show(&mut scene, 4.0, 0.05), None);
    // Sure at once; and a tentative one that is not seen again is over.
    let other = scene.show(4.1, &[(1, person(500.0, 100.0, 0.85)), (2, person(900.0, 100.0, 0.75))]);
    assert_eq!(
        other.iter().map(|track| track.unwrap().state).collect::<Vec<_>>(),
        [TrackState::Confirmed, TrackState::Tentative]
    );
    scene.show(4.2, &[]);
    assert_eq!(scene.ended, BTreeSet::from([other[1].unwrap().id]));
}

#[test]
fn a_label_that_flickers_changes_no_id_and_a_rider_is_not_the_bicycle() {
    let mut scene = Scene::new();
    let mut last = Vec::new();
    for frame in 0..60 {
        let x = 4.0 * frame as f32;
        let of = |class_id: u32, [x1, y1, x2, y2]: [f32; 4], score: f32| Observation {
            bounds: [x + x1, y1, x + x2, y2],
            class_id,
            ..person(0.0, 0.0, score)
        };
        // A car that is sometimes a truck, once both; a rider whose box is nearly that of the bicycle, and who is missed at times.
        let mut seen = vec![(0, of(if frame % 3 == 1 { 7 } else { 2 }, [0.0, 400.0, 180.0, 500.0], 0.9))];
        if frame == 30 {
            seen.push((3, of(7, [1.0, 401.0, 181.0, 501.0], 0.85)));
        }
        seen.push((1, of(1, [300.0, 40.0, 380.0, 160.0], 0.9)));
        if frame % 10 < 7 {
            seen.push((2, of(0, [305.0, 10.0, 375.0, 150.0], 0.9)));
        }
        last = scene.show(f64::from(frame) / 20.0, &seen);
    }
    scene.assert_one_id_each(3);
    assert_eq!(scene.ids_of(3), [], "a second box of the car");
    assert_eq!(last[0].unwrap().class_id, 2);
    assert_eq!(last[1].unwrap().class_id, 1);
}

#[test]
fn turned_boxes_are_told_apart_by_how_they_are_turned() {
    let mut scene = Scene::new();
    let mut last = Vec::new();
    for frame in 0..80 {
        let time = frame as f32 / 10.0;
        // Lorries side by side on a slope: their upright boxes overlap more than half. One turns in a circle.
        let lorry = |object: usize| {
            let across = 14.0 * object as f32;
            let along = 30.0 * time + 3.0 * object as f32;
            let center = [200.0 + 0.8 * along - 0.6 * across, 100.0 + 0.6 * along + 0.8 * across];
            OrientedBox { center, size: [60.0, 12.0], angle: 0.6435 }
        };
        let circle = |turn: f32| OrientedBox {
            center: [700.0 + 80.0 * turn.cos(), 300.0 + 80.0 * turn.sin()],
            size: [12.0, 40.0],
            angle: turn.rem_euclid(PI),
        };
        let boxes = [lorry(0), lorry(1), lorry(2), circle(0.8 * time)];
        let seen = |oriented: &OrientedBox| Observation {
            bounds: oriented.bounds(),
            oriented: Some(*oriented),
            ..person(0.0, 0.0, 0.9)
        };
        last = scene.show(f64::from(time), &boxes.iter().map(seen).enumerate().collect::<Vec<_>>());
    }
    scene.assert_one_id_each(4);
    let [vx, vy] = last[0].unwrap().velocity;
    assert!((vx - 24.0).abs() < 1.0 && (vy - 18.0).abs() < 1.0, "{vx} {vy}");
    assert!(last[3].unwrap().smooth_oriented.unwrap().size[1] > 39.0);
}

#[test]
fn embeddings_tell_apart_who_met() {
    let looks = [[1.0, 0.1], [0.1, 1.0]];
    let ids = [true, false].map(|with| {
        let mut tracker = Tracker::new(Parameters::default(), Arc::default());
        let mut ids = [BTreeSet::new(), BTreeSet::new()];
        for frame in 0..120 {
            // They walk towards each other, are hidden for a moment, and both turn back.
            let apart = f32::abs(60.0 - frame as f32) * 1.5;
            let seen = |object: usize| {
                let x = 400.0 + apart * if object == 0 { -1.0 } else { 1.0 };
                Observation { embedding: with.then_some(&looks[object]), ..person(x, 100.0, 0.9) }
            };
            let both = [seen(0), seen(1)];
            let step = step_of(&mut tracker, Duration::from_millis(frame * 100), if apart < 2.0 { &[] } else { &both });
            for (object, track) in step.tracks.iter().enumerate() {
                ids[object].insert(track.unwrap().id);
            }
        }
        ids.map(|ids| ids.len())
    });
    assert_eq!(ids[0], [1, 1]);
    assert_eq!(ids[1], [2, 2], "without embeddings they seem to have passed each other");
}

#[test]
fn the_smooth_box_wavers_less_and_the_velocity_is_in_pixels_a_second() {
    for rate in [10, 30] {
        let mut scene = Scene::new();
        let (mut raw, mut smooth) = (0.0, 0.0);
        for frame in 0..rate * 6 {
            let time = frame as f32 / rate as f32;
            let truth = person(120.0 * time, 100.0, 0.9).bounds;
            let mut seen = person(120.0 * time, 100.0, 0.9);
            let waver = [scene.noise.next(), scene.noise.next(), scene.noise.next(), scene.noise.next()];
            for (side, waver) in seen.bounds.iter_mut().zip(waver) {
                *side += 4.0 * waver;
            }
            let step = step_of(&mut scene.tracker, Duration::from_secs_f32(time), &[seen]);
            let track = step.tracks[0].unwrap();
            if frame > rate * 2 {
                let off = |bounds: [f32; 4]| bounds.iter().zip(truth).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
                raw += off(seen.bounds);
                smooth += off(track.smooth);
                assert!(
                    (track.velocity[0] - 120.0).abs() < 25.0 && track.velocity[1].abs() < 25.0,
                    "{:?}",
                    track.velocity
                );
            }
        }
        assert!(smooth < 0.7 * raw, "{rate}: {smooth} {raw}");
    }
}

#[test]
fn cameras_that_share_a_source_of_ids_have_none_in_common() {
    let ids = Arc::new(TrackIds::default());
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        let mut tracker = Tracker::new(Parameters::default(), Arc::clone(&ids));
        let seen = [person(0.0, 0.0, 0.9), person(200.0, 0.0, 0.9)];
        all.extend(step_of(&mut tracker, Duration::ZERO, &seen).tracks.iter().map(|track| track.unwrap().id));
    }
    assert_eq!(all, (1..=6).collect());
}

#[test]
fn other_parameters_leave_the_tracks_as_they_are() {
    let mut tracker = Tracker::new(Parameters::default(), Arc::default());
    let id = step_of(&mut tracker, Duration::ZERO, &[person(0.0, 0.0, 0.9)]).tracks[0].unwrap().id;
    tracker.set_parameters(Parameters { score: 0.3, unseen: Duration::from_secs(9), ..Parameters::default() });
    let step = step_of(&mut tracker, Duration::from_secs(6), &[person(1.0, 0.0, 0.45), person(300.0, 0.0, 0.45)]);
    assert_eq!(step.tracks[0].unwrap().id, id);
    assert!(step.tracks[1].is_some());
}

/// Whether an object had one id throughout.
fn kept(scene: &Scene, object: usize) -> bool {
    scene.ids_of(object).len() == 1
}

#[test]
fn objects_that_all_move_alike_have_their_velocity_and_what_is_parked_has_none() {
    for rate in [30, 10, 1] {
        // Cars in a row, 120 px apart, at 40 px a frame at 1 frame/s; and two that are parked.
        let speed = if rate == 1 { 40.0 } else { 150.0 };
        let mut scene = Scene::new();
        let mut last = Vec::new();
        for frame in 0..rate * 60 {
            let at = f64::from(frame) / f64::from(rate);
            let car = |number: usize| (number, person(120.0 * number as f32 + speed * at as f32, 100.0, 0.9));
            let parked = |number: usize| (number, person(300.0 * number as f32, 600.0, 0.9));
            let seen: Vec<_> = (0..8).map(car).chain((8..10).map(parked)).collect();
            last = scene.show(at, &seen);
        }
        assert!((0..10).all(|object| kept(&scene, object)), "{rate} frames/s: {:?}", scene.ids);
        for (object, track) in last.iter().enumerate() {
            let wanted = if object < 8 { speed } else { 0.0 };
            let seen = track.unwrap().velocity[0];
            assert!((seen - wanted).abs() < 12.0, "{rate} frames/s, object {object}: {seen} instead of {wanted}");
        }
    }
}

#[test]
fn what_is_parked_keeps_its_id_through_any_gap_that_its_setting_allows() {
    for (unseen, gap, hidden) in
        [(10, 9.0, false), (60, 10.0, false), (60, 50.0, false), (3600, 600.0, false), (60, 20.0, true)]
    {
        let parameters = Parameters { unseen: Duration::from_secs(unseen), ..Parameters::default() };
        let mut scene = Scene { tracker: Tracker::new(parameters, Arc::default()), ..Scene::new() };
        let car = |number: usize| (number, person(60.0 * number as f32, 100.0, 0.9));
        let all: Vec<_> = (0..8).map(car).collect();
        let show = |scene: &mut Scene, from: f64| {
            for frame in 0..60 {
                scene.show(from + f64::from(frame) / 30.0, &all);
            }
        };
        show(&mut scene, 0.0);
        if hidden {
            // Frames go on, and show none of them.
            for frame in 0..(gap * 30.0) as i32 {
                scene.show(2.0 + f64::from(frame) / 30.0, &[]);
            }
        }
        show(&mut scene, 2.0 + gap);
        scene.assert_one_id_each(8);
    }
}

#[test]
fn an_object_may_be_unseen_for_less_than_a_frame() {
    let parameters = Parameters { unseen: Duration::from_millis(500), ..Parameters::default() };
    let mut scene = Scene { tracker: Tracker::new(parameters, Arc::default()), ..Scene::new() };
    let mut last = Vec::new();
    for second in 0..20 {
        last = scene.show(f64::from(second), &[(0, person(70.0 * second as f32, 100.0, 0.9))]);
    }
    assert!(kept(&scene, 0), "{:?}", scene.ids);
    assert!((last[0].unwrap().velocity[0] - 70.0).abs() < 5.0, "{last:?}");
}

#[test]
fn a_frame_that_comes_late_does_not_stretch_the_time() {
    let mut scene = Scene::new();
    let mut last = Vec::new();
    for frame in 0..90 {
        // Every tenth changes places with the next.
        let number = match frame % 10 {
            4 => frame + 1,
            5 => frame - 1,
            _ => frame,
        };
        let at = f64::from(number) / 30.0;
        last = scene.show(at, &[(0, person(120.0 * at as f32, 100.0, 0.9))]);
    }
    assert!(kept(&scene, 0), "{:?}", scene.ids);
    let track = last[0].unwrap();
    assert!((track.velocity[0] - 120.0).abs() < 8.0, "{track:?}");
    assert_eq!(track.age_ms, 2967);
}

#[test]
fn every_score_that_can_be_set_has_tracks() {
    for score in [0.0, 0.02, 0.5, 0.95, 1.0] {
        let mut scene = Scene {
            tracker: Tracker::new(Parameters { score, ..Parameters::default() }, Arc::default()),
            ..Scene::new()
        };
        let certain = person(100.0, 100.0, 1.0);
        let at_score = person(300.0, 100.0, (score as f32 + 0.11).min(1.0));
        for frame in 0..5 {
            scene.show(f64::from(frame) / 30.0, &[(0, certain), (1, at_score)]);
        }
        scene.assert_one_id_each(2);
    }
}

#[test]
fn a_lost_object_does_not_come_back_as_another_thing() {
    let mut scene = Scene::new();
    for frame in 0..10 {
        scene.show(f64::from(frame) / 30.0, &[(0, person(100.0, 100.0, 0.9))]);
    }
    for frame in 10..25 {
        scene.show(f64::from(frame) / 30.0, &[]);
    }
    for frame in 25..40 {
        let car = Observation { class_id: 2, ..person(100.0, 100.0, 0.9) };
        scene.show(f64::from(frame) / 30.0, &[(1, car)]);
    }
    scene.assert_one_id_each(2);
}

#[test]
fn new_objects_have_tracks_however_many_were_lost() {
    let parameters = Parameters { unseen: Duration::from_secs(3600), ..Parameters::default() };
    let mut tracker = Tracker::new(parameters, Arc::default());
    let mut steady = BTreeSet::new();
    for second in 0..3_000_u32 {
        // One stays, and another passes each second, nowhere near the last.
        let (x, y) = ((second % 60 * 100) as f32, 500.0 + (second / 60 * 200) as f32);
        let seen = [person(5.0, 5.0, 0.9), person(x, y, 0.9)];
        let step = step_of(&mut tracker, Duration::from_secs(u64::from(second)), &seen);
        steady.insert(step.tracks[0].unwrap().id);
        assert!(step.tracks[1].is_some(), "number {second}");
    }
    assert_eq!(steady.len(), 1);
}
