#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use visiond_message::{BoxMessage, TrackMessage, TrackMessageState};

use super::*;

const MS: u64 = 1_000_000;

/// A message of this time whose detections have these tracks and positions: the bottom centre of each is at `x`, 40.
fn message(at_ms: u64, tracks: &[(u64, f32)]) -> Message {
    let mut message = visiond_message::testing::message("a", &vec!["person"; tracks.len()]);
    message.monotonic_ns = 7_000_000_000 + at_ms * MS;
    (message.frame.width, message.frame.height) = (100, 80);
    for (detection, &(id, x)) in message.detections.iter_mut().zip(tracks) {
        detection.bounds = Some(BoxMessage { x: x - 2.0, y: 10.0, width: 4.0, height: 30.0 });
        detection.track =
            Some(TrackMessage { id, state: TrackMessageState::Confirmed, age_ms: at_ms, velocity: [0.0, 0.0] });
    }
    message
}

/// Adds a message, and returns the x and the age in milliseconds of each point of each tail.
fn follow(trails: &mut Trails, message: &Message) -> Vec<Vec<(f32, u64)>> {
    trails.add(message, Orientation::UPRIGHT);
    shown(&trails.tails(message))
}

fn shown(tails: &Tails) -> Vec<Vec<(f32, u64)>> {
    let point = |point: &TailPoint| ((point.anchor[0] * 100.0).round(), (point.age * 2000.0).round() as u64);
    tails.0.iter().map(|tail| tail.iter().map(point).collect()).collect()
}

#[test]
fn a_tail_is_the_path_of_the_bottom_centre_over_the_last_two_seconds() {
    let mut trails = Trails::default();
    for at in 0..25 {
        trails.add(&message(100 * at, &[(7, at as f32), (9, 50.0)]), Orientation::UPRIGHT);
    }
    let last = message(2500, &[(9, 50.0), (7, 25.0)]);
    let [still, moving] = follow(&mut trails, &last).try_into().unwrap();
    assert_eq!(moving, (0..=20).map(|ago| ((25 - ago) as f32, 100 * ago)).collect::<Vec<_>>());
    assert!(still.iter().all(|&(x, _)| x == 50.0) && still.len() == 21, "{still:?}");
    assert_eq!(trails.tails(&last).0[1][0], TailPoint { anchor: [0.25, 0.5], age: 0.0 });
    // One that is drawn again, and one that is drawn after a newer message has come.
    assert_eq!(follow(&mut trails, &last)[1], moving);
    trails.add(&message(2600, &[(7, 26.0)]), Orientation::UPRIGHT);
    assert_eq!(shown(&trails.tails(&last))[1], moving[..20], "what is older than two seconds is forgotten");
    // A message that is too late adds no point.
    trails.add(&message(2550, &[(7, 99.0)]), Orientation::UPRIGHT);
    assert_eq!(shown(&trails.tails(&message(2600, &[(7, 26.0)])))[0][..2], [(26.0, 0), (25.0, 100)]);
}

#[test]
fn a_path_begins_again_where_its_object_was_unseen_for_more_than_a_second() {
    let mut trails = Trails::default();
    let mut at = |at_ms, tracks: &[(u64, f32)]| follow(&mut trails, &message(at_ms, tracks));
    at(0, &[(7, 1.0)]);
    at(400, &[]);
    at(900, &[(8, 2.0)]);
    assert_eq!(at(1000, &[(7, 3.0)]), [[(3.0, 0), (1.0, 1000)]]);
    assert_eq!(at(1901, &[(8, 4.0), (7, 5.0)]), [vec![(4.0, 0)], vec![(5.0, 0), (3.0, 901), (1.0, 1901)]]);
    // Also where no message came.
    assert_eq!(at(9000, &[(7, 6.0)]), [[(6.0, 0)]]);
}

#[test]
fn time_that_goes_back_begins_again() {
    let mut trails = Trails::default();
    let mut at = |at_ms, x| follow(&mut trails, &message(at_ms, &[(7, x)])).remove(0);
    at(5000, 1.0);
    assert!(at(3000, 2.0).is_empty(), "a message that is late");
    assert_eq!(at(5100, 3.0), [(3.0, 0), (1.0, 100)]);
    assert_eq!(at(3099, 4.0), [(4.0, 0)], "a recording from its start");
    assert_eq!(at(3199, 5.0), [(5.0, 0), (4.0, 100)]);
}

#[test]
fn detections_without_a_track_or_a_box_have_no_tail() {
    let mut trails = Trails::default();
    let mut plain = message(0, &[(1, 1.0), (2, 2.0), (3, 3.0)]);
    plain.detections[0].track = None;
    plain.detections[1].bounds = None;
    assert_eq!(follow(&mut trails, &plain), [vec![], vec![], vec![(3.0, 0)]]);
    assert_eq!(trails.paths.len(), 1);
    let mut empty = Trails::default();
    plain.detections.truncate(2);
    assert_eq!(follow(&mut empty, &plain), Vec::<Vec<_>>::new());
}

#[test]
fn a_path_has_two_seconds_at_every_frame_rate() {
    // Frames per second, and the points of two seconds, of which the last is the present.
    for (fps, points) in [(10, 21), (25, 51), (30, 61), (60, 61), (240, 61)] {
        let mut trails = Trails::default();
        let mut tails = Vec::new();
        for frame in 0..6 * fps {
            tails = follow(&mut trails, &message(frame * 1000 / fps, &[(7, frame as f32)]));
        }
        let tail = &tails[0];
        let (_, oldest) = *tail.last().unwrap();
        assert_eq!(tail[0], ((6 * fps - 1) as f32, 0), "{fps}");
        assert!((1960..=2000).contains(&oldest), "{fps}: {oldest}");
        assert!(tail.len().abs_diff(points) <= 2 && tail.len() <= MOST_POINTS, "{fps}: {}", tail.len());
        assert!(tail.windows(2).all(|pair| pair[1].1 - pair[0].1 <= 100), "{fps}: {tail:?}");
    }
    // Frames that come in pairs, in step with the spacing, leave the most points.
    let (mut trails, mut frame) = (Trails::default(), message(0, &[(7, 1.0)]));
    for pair in 0..200 {
        for second in 0..2 {
            frame.monotonic_ns = pair * SPACING_NS + second;
            trails.add(&frame, Orientation::UPRIGHT);
        }
    }
    assert_eq!(trails.paths[&7].len(), MOST_POINTS);
}

#[test]
fn a_hundred_thousand_tracks_take_the_memory_of_256() {
    let mut trails = Trails::default();
    // A message of more than are remembered, of which the first ones are.
    let crowd: Vec<_> = (0..100_000).map(|id| (id, 1.0)).collect();
    let tails = follow(&mut trails, &message(0, &crowd));
    assert_eq!(tails.iter().filter(|tail| !tail.is_empty()).count(), MOST_TRACKS);
    assert!(!tails[MOST_TRACKS - 1].is_empty() && tails[MOST_TRACKS].is_empty());
    // Those that are remembered move on, and the others wait until one of them is gone.
    assert_eq!(follow(&mut trails, &message(600, &crowd[255..257])), [vec![(1.0, 0), (1.0, 600)], vec![]]);
    assert_eq!(
        follow(&mut trails, &message(1001, &crowd[255..257])),
        [vec![(1.0, 0), (1.0, 401), (1.0, 1001)], vec![(1.0, 0)]]
    );
    assert_eq!(trails.paths.len(), 2);
    // New ones in each message, for an hour.
    for frame in 0..100_000_u64 {
        trails.add(&message(2000 + 36 * frame, &[(1_000_000 + frame, 1.0), (5, 1.0)]), Orientation::UPRIGHT);
        assert!(trails.paths.len() <= MOST_TRACKS);
    }
    assert!(trails.paths.len() <= 2 + 1000 / 36, "{}", trails.paths.len());
    assert!(trails.paths.capacity() <= 4 * MOST_TRACKS, "{}", trails.paths.capacity());
    let points: usize = trails.paths.values().map(VecDeque::capacity).sum();
    assert!(points <= trails.paths.len() * MOST_POINTS, "{points}");
}

proptest! {
    #[test]
    fn paths_are_bounded_and_in_order_whatever_comes(messages in prop::collection::vec((0..6000_u64, prop::collection::vec((0..400_u64, any::<f32>()), 0..8)), 0..200)) {
        let mut trails = Trails::default();
        for (at_ms, tracks) in messages {
            let message = message(at_ms, &tracks);
            trails.add(&message, Orientation::UPRIGHT);
            for tail in &trails.tails(&message).0 {
                prop_assert!(tail.len() <= MOST_POINTS && tail.iter().all(|point| (0.0..=1.0).contains(&point.age)));
                prop_assert!(tail.windows(2).all(|pair| pair[0].age < pair[1].age));
            }
            prop_assert!(trails.paths.values().all(|path| !path.is_empty() && path.len() <= MOST_POINTS));
        }
    }
}
