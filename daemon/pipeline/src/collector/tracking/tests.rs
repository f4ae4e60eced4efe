#![allow(clippy::unwrap_used)]

use std::f32::consts::FRAC_PI_2;

use visiond_engine::detector::Detection;
use visiond_engine::heads::FrameValues;
use visiond_events::{Kind, Rule};
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::FrameFacts;
use visiond_frames::timestamp::{Instant, Timestamp};
use visiond_kernels::oriented::OrientedBox;
use visiond_message::{DetectionMessage, Message, Timings, TrackMessageState};
use visiond_system::stop::Stop;

use super::*;
use crate::collector::message_of;
use crate::lane::testing::{message_channel, outlet};
use crate::lane_result::ModelFacts;

/// Frame `number` of 30 a second, as a camera captures it.
fn frame(number: u64) -> FrameFacts {
    let timestamp = Timestamp { monotonic_ns: number * 33_333_333, realtime_ns: 0, instant: Instant::EndOfFrame };
    let (width, height, format) = (640, 480, "rgb");
    FrameFacts { width, height, format, sequence: number, timestamp, recorded_at: None, damaged: false, name: None }
}

fn model(score_threshold: f32) -> ModelFacts {
    ModelFacts { labels: vec!["person".into(), "dog".into()], score_threshold, ..ModelFacts::default() }
}

/// A detection whose box is 40 by 100 pixels.
fn at(left: f32, top: f32, class_id: u32, score: f32) -> Detection {
    let box_in_source = Some([left, top, left + 40.0, top + 100.0]);
    Detection { class_id, score, box_in_source, ..Detection::default() }
}

/// The message of these detections in a frame.
fn message(
    tracks: &mut CameraTracks,
    settings: &TrackSettings,
    model: &ModelFacts,
    frame: FrameFacts,
    detections: &[Detection],
) -> Message {
    let (values, timings) = (&FrameValues::NONE, Timings::default());
    let result = LaneResult { frame, model, detections, values, crops: &[], timings };
    message_of(&"door".into(), &result, tracks.step(settings, &result, &mut TrackBuffers::default()))
}

fn ids(message: &Message) -> Vec<Option<u64>> {
    message.detections.iter().map(|detection| detection.track.map(|track| track.id)).collect()
}

#[test]
fn objects_keep_their_ids_whatever_the_order_of_their_detections() {
    let (mut tracks, settings, model) = (CameraTracks::new(Arc::default()), TrackSettings::default(), model(0.3));
    for number in 0..60 {
        let left = number as f32 * 3.0;
        // The second walks the other way; a box without a track is between them.
        let mut seen = [at(left, 100.0, 0, 0.9), at(300.0, 20.0, 0, 0.31), at(500.0 - left, 250.0, 1, 0.8)];
        let backwards = number % 2 == 1;
        if backwards {
            seen.reverse();
        }
        let mut message = message(&mut tracks, &settings, &model, frame(number), &seen);
        if backwards {
            message.detections.reverse();
        }
        assert_eq!(ids(&message), [Some(1), None, Some(2)], "frame {number}");
        let [Some(person), _, Some(dog)] = [0, 1, 2].map(|index| message.detections[index].track) else { panic!() };
        assert_eq!(person.age_ms, (number as f64 * 33.333_333).round() as u64);
        if number > 30 {
            assert_eq!((person.state, dog.state), (TrackMessageState::Confirmed, TrackMessageState::Confirmed));
            let [right, left] = [person.velocity[0], dog.velocity[0]];
            assert!((right - 90.0).abs() < 5.0 && (left + 90.0).abs() < 5.0, "{right} {left}");
        }
    }
}

#[test]
fn a_recording_has_its_own_time() {
    // Frames of a file are read as fast as they are decoded, here 1 ms apart.
    let (mut tracks, settings, model) = (CameraTracks::new(Arc::default()), TrackSettings::default(), model(0.3));
    let mut last = None;
    for number in 0..60 {
        let recorded_at = Some(Duration::from_secs_f64(number as f64 / 10.0));
        let mut frame = FrameFacts { recorded_at, ..frame(number) };
        frame.timestamp.monotonic_ns = number * 1_000_000;
        let seen = [at(number as f32 * 5.0, 100.0, 0, 0.9)];
        last = message(&mut tracks, &settings, &model, frame, &seen).detections[0].track;
    }
    let last = last.unwrap();
    assert_eq!((last.id, last.age_ms), (1, 5_900));
    assert!((last.velocity[0] - 50.0).abs() < 3.0, "{last:?}");
}

#[test]
fn settings_choose_what_has_a_track() {
    let dogs = TrackSettings { classes: vec!["dog".to_owned()], ..TrackSettings::default() };
    let mut tracks = CameraTracks::new(Arc::default());
    let seen = [at(0.0, 0.0, 0, 0.9), at(300.0, 0.0, 1, 0.9)];
    assert_eq!(ids(&message(&mut tracks, &dogs, &model(0.3), frame(0), &seen)), [None, Some(1)]);

    // The threshold of the model, the score that is set, and the least that begins a track.
    for (threshold, score, begins) in
        [(0.05, None, 0.35), (0.4, None, 0.5), (0.8, None, 0.7), (0.05, Some(0.5), 0.6), (0.4, Some(0.0), 0.1)]
    {
        let settings = TrackSettings { score, ..TrackSettings::default() };
        for (seen, wanted) in [(begins + 0.01, Some(1)), (begins - 0.01, None)] {
            let mut tracks = CameraTracks::new(Arc::default());
            let message = message(&mut tracks, &settings, &model(threshold), frame(0), &[at(9.0, 9.0, 0, seen)]);
            assert_eq!(ids(&message), [wanted], "{threshold} {score:?} {seen}");
        }
    }
}

#[test]
fn an_object_out_of_sight_keeps_its_id_as_long_as_it_may() {
    for (unseen_ms, gap, same) in [(2_500, 60, true), (500, 60, false)] {
        let settings = TrackSettings { unseen: Duration::from_millis(unseen_ms), ..TrackSettings::default() };
        let (mut tracks, model) = (CameraTracks::new(Arc::default()), model(0.3));
        let seen = [at(100.0, 100.0, 0, 0.9)];
        let mut last = Vec::new();
        for number in (0..10).chain(10 + gap..12 + gap) {
            if number == 10 + gap {
                (10..number).for_each(|empty| drop(message(&mut tracks, &settings, &model, frame(empty), &[])));
            }
            last = ids(&message(&mut tracks, &settings, &model, frame(number), &seen));
        }
        assert_eq!(last == [Some(1)], same, "{unseen_ms} ms: {last:?}");
    }
}

#[test]
fn smooth_boxes_jitter_less_and_stay_in_the_frame() {
    let spread = |smooth: bool| {
        let settings = TrackSettings { smooth, ..TrackSettings::default() };
        let (mut tracks, model) = (CameraTracks::new(Arc::default()), model(0.3));
        let mut least_and_most = [f32::MAX, f32::MIN];
        for number in 0..90 {
            let jitter = [-6.0, 4.0, -1.0, 5.0, -2.0][number as usize % 5];
            let seen = [at(100.0 + jitter, 100.0, 0, 0.9), at(600.0, 380.0 + jitter.min(0.0), 0, 0.9)];
            let message = message(&mut tracks, &settings, &model, frame(number), &seen);
            for DetectionMessage { bounds, .. } in &message.detections {
                let bounds = bounds.unwrap();
                assert!(bounds.x + bounds.width <= 640.0 && bounds.y + bounds.height <= 480.0, "{bounds:?}");
            }
            if number > 30 {
                let x = message.detections[0].bounds.unwrap().x;
                least_and_most = [least_and_most[0].min(x), least_and_most[1].max(x)];
            }
        }
        least_and_most[1] - least_and_most[0]
    };
    let (plain, smooth) = (spread(false), spread(true));
    assert_eq!(plain, 11.0);
    assert!(smooth < 8.0, "{smooth}");
}

#[test]
fn what_is_no_object_has_no_track() {
    let (mut tracks, settings, model) = (CameraTracks::new(Arc::default()), TrackSettings::default(), model(0.3));
    let road = Detection { fraction: Some(0.5), ..at(0.0, 0.0, 0, 0.99) };
    let class = Detection { box_in_source: None, ..at(0.0, 0.0, 1, 0.99) };
    let seen = [road, class, at(f32::NAN, 0.0, 0, 0.99), at(50.0, 50.0, 0, 0.99)];
    for number in 0..3 {
        // The message leaves out the box of NaN.
        assert_eq!(ids(&message(&mut tracks, &settings, &model, frame(number), &seen)), [None, None, Some(1)]);
    }
}

#[test]
fn smooth_turned_boxes_jitter_less() {
    let spread = |smooth: bool| {
        let settings = TrackSettings { smooth, ..TrackSettings::default() };
        let (mut tracks, model) = (CameraTracks::new(Arc::default()), model(0.3));
        let mut least_and_most = [f32::MAX, f32::MIN];
        for number in 0..90 {
            let jitter = [-6.0, 4.0, -1.0, 5.0, -2.0][number as usize % 5];
            let upright = at(100.0 + jitter, 100.0, 0, 0.9);
            let oriented = upright.box_in_source.map(|bounds| OrientedBox::from_upright(bounds, 0.5));
            let seen = [Detection { oriented, ..upright }];
            let message = message(&mut tracks, &settings, &model, frame(number), &seen);
            if number > 30 {
                let turned = message.detections[0].oriented.unwrap();
                assert!(
                    (turned.angle - 0.5).abs() < 0.01 || (turned.angle - 0.5 + FRAC_PI_2).abs() < 0.01,
                    "{turned:?}"
                );
                least_and_most = [least_and_most[0].min(turned.x), least_and_most[1].max(turned.x)];
            }
        }
        least_and_most[1] - least_and_most[0]
    };
    let (plain, smooth) = (spread(false), spread(true));
    assert_eq!(plain, 11.0);
    assert!(smooth < 8.0, "{smooth}");
}

#[test]
fn new_settings_keep_the_ids() {
    let (mut tracks, model) = (CameraTracks::new(Arc::default()), model(0.3));
    let mut settings = TrackSettings::default();
    for number in 0..20 {
        if number == 10 {
            settings.classes = vec!["person".to_owned(), "unicorn".to_owned()];
            tracks.change_settings();
        }
        let message = message(&mut tracks, &settings, &model, frame(number), &[at(100.0, 100.0, 0, 0.9)]);
        assert_eq!(ids(&message), [Some(1)]);
    }
}

#[test]
fn the_camera_has_the_totals_of_its_zones_and_nobody_is_inside_once_the_tracks_end() {
    let metrics = CameraMetrics::new("door".into());
    let rule = Rule::new("hall", Kind::Zone);
    let rules: Arc<[_]> =
        Arc::new([RuleSettings { rule, classes: Vec::new(), owners: Vec::new(), enabled: true, schedule: None }]);
    metrics.set_rules(rules.iter().map(|rule| (Arc::clone(&rule.rule.name), rule.facts())));
    let settings = TrackSettings { rules, ..TrackSettings::default() };
    let (publish, _) = message_channel();
    let outlet = outlet(publish, None, Arc::new(SimulatedClock::default()), &Stop::new().unwrap());
    let (mut tracks, model) = (CameraTracks::new(Arc::default()), model(0.3));
    let hall = || metrics.status().rules.pop().map(|hall| (hall.begun, hall.inside, hall.under_way));
    assert_eq!(hall(), None, "before the first frame");
    for number in 0..30 {
        let (detections, mut buffers) = ([at(200.0, 100.0, 0, 0.9)], TrackBuffers::default());
        let (values, timings) = (&FrameValues::NONE, Timings::default());
        let frame = frame(number);
        let result = LaneResult { frame, model: &model, detections: &detections, values, crops: &[], timings };
        tracks.step(&settings, &result, &mut buffers);
        tracks.apply_rules(&settings, &result, &mut buffers, (None, None), (&metrics, &outlet));
    }
    assert_eq!(hall(), Some((1, Some(1), 1)));
    tracks.finish(EndReason::CameraGone, &metrics, &outlet);
    assert_eq!(hall(), Some((1, Some(0), 0)));
}
