#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::tz::TimeZone;
use parking_lot::Mutex;
use visiond_config::types::{AnnotateConfig, PictureFormat};
use visiond_engine::detector::Detection;
use visiond_engine::heads::FrameValues;
use visiond_events::Belonging;
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::FrameFacts;
use visiond_frames::timestamp::Instant;
use visiond_message::{LabelMessage, Timings};
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_tracker::TrackState;

use super::super::schedule::ActiveTime;
use super::*;
use crate::lane::testing::{message_channel, outlet};
use crate::lane_result::{CropResults, ModelFacts};
use crate::outlet::EventOutlet;

/// A camera whose first object, a person, walks to the right, 10 pixels a frame of 100 ms. A car may be parked there.
struct Walk {
    rules: CameraRules,
    outlet: Arc<Outlet>,
    events: Arc<Mutex<Vec<EventMessage>>>,
    model: ModelFacts,
    frames: u64,
    size: (u32, u32),
    annotator: Option<Annotator>,
    height: f32,
    car: Option<[f32; 4]>,
    /// An attribute of the person, by another model.
    coat: Option<&'static str>,
    /// The time of frame 0, in nanoseconds since 1970.
    began_ns: u64,
}

impl Walk {
    fn new() -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&events);
        let (publish, _) = message_channel();
        let outlet = outlet(publish, None, Arc::new(SimulatedClock::default()), &Stop::new().unwrap());
        let outlet =
            Outlet { events: Arc::new(move |event| sent.lock().push(event)), ..Arc::into_inner(outlet).unwrap() };
        let model = ModelFacts { labels: vec!["person".into(), "car".into()], ..ModelFacts::default() };
        Self {
            rules: CameraRules::default(),
            outlet: Arc::new(outlet),
            events,
            model,
            frames: 0,
            size: (640, 480),
            annotator: None,
            height: 100.0,
            car: None,
            coat: None,
            began_ns: 0,
        }
    }

    fn walk(&mut self, frames: u64, settings: &Arc<[RuleSettings]>) {
        for _ in 0..frames {
            self.frames += 1;
            let number = self.frames;
            let timestamp = Timestamp {
                monotonic_ns: number * 100_000_000,
                realtime_ns: self.began_ns + number * 100_000_000,
                instant: Instant::EndOfFrame,
            };
            let (width, height) = self.size;
            let frame = FrameFacts {
                width,
                height,
                format: "rgb",
                sequence: number,
                timestamp,
                recorded_at: None,
                damaged: false,
                name: None,
            };
            let left = number as f32 * 10.0;
            let person = [left - 20.0, 100.0, left + 20.0, 100.0 + self.height];
            let objects: Vec<_> = [Some(person), self.car].into_iter().flatten().zip(0..).collect();
            let detection = |&(bounds, class_id): &([f32; 4], u32)| {
                let box_in_source = Some(bounds);
                Detection { class_id, score: 0.9, box_in_source, ..Detection::default() }
            };
            let detections: Vec<_> = objects.iter().map(detection).collect();
            let report = |&(bounds, class_id): &([f32; 4], u32)| {
                Some(TrackReport {
                    id: u64::from(7 + class_id),
                    state: TrackState::Confirmed,
                    age_ms: 0,
                    velocity: [0.0; 2],
                    class_id,
                    smooth: bounds,
                    smooth_oriented: None,
                })
            };
            let reports: Vec<_> = objects.iter().map(report).collect();
            let (values, timings) = (&FrameValues::NONE, Timings::default());
            let coat = self.coat.map(|label| {
                let label = AttributeMessage::Label(LabelMessage { label: label.into(), score: 0.8 });
                let attributes = AttributesMessage(vec![("coat".into(), label)]);
                CropResults { attributes, ..CropResults::default() }
            });
            let crops = coat.as_slice();
            let result = LaneResult { frame, model: &self.model, detections: &detections, values, crops, timings };
            let annotator = self.annotator.as_ref();
            self.rules.step(settings, &result, (&reports, &[]), (annotator, None), (&"door".into(), &self.outlet));
        }
    }

    /// Rule, kind and phase of each new event, with its side and the reason.
    fn told(&self) -> Vec<String> {
        let told = |event: EventMessage| {
            let phase = format!("{:?}", event.phase);
            let more = event.to.as_deref().or(event.reason.as_deref()).unwrap_or_default().to_owned();
            format!("{} {} {phase} {more}", event.rule, event.kind).trim_end().to_owned()
        };
        std::mem::take(&mut *self.events.lock()).into_iter().map(told).collect()
    }
}

fn rule(name: &str, kind: Kind, area: &[[f32; 2]]) -> RuleSettings {
    RuleSettings {
        rule: Rule { area: area.to_vec(), ..Rule::new(name, kind) },
        classes: Vec::new(),
        owners: Vec::new(),
        enabled: true,
        schedule: None,
    }
}

const LEFT: [[f32; 2]; 4] = [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]];

#[test]
fn points_are_fractions_of_the_frame_whatever_its_size() {
    let mut walk = Walk::new();
    let line = Kind::Line { points: vec![[0.25, 0.0], [0.25, 1.0]], sides: ["east".into(), "west".into()] };
    let rules: Arc<[_]> = Arc::new([rule("line", line, &[]), rule("left", Kind::Zone, &LEFT)]);
    walk.walk(15, &rules);
    assert_eq!(walk.told(), ["left zone Begin"]);
    walk.walk(5, &rules);
    let crossing = walk.events.lock()[0].clone();
    assert_eq!(walk.told(), ["line line Moment east"], "at 160 of 640 pixels");
    assert_eq!(
        (crossing.track, crossing.label.as_deref(), crossing.totals.unwrap().begun),
        (Some(7), Some("person"), 1)
    );
    assert_eq!(&crossing.since[..23], "1970-01-01T00:00:01.700");
    // Of a frame of half the width, it is beyond the zone. Nothing is known of the objects before.
    walk.size = (320, 480);
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["left zone End camera_gone"]);
}

#[test]
fn an_event_keeps_its_image_and_gets_another_when_its_object_is_seen_better() {
    let folder = tempfile::tempdir().unwrap();
    let config = AnnotateConfig {
        directory: folder.path().to_owned(),
        every: 0,
        on_detection: false,
        on_event: true,
        format: PictureFormat::Jpeg,
        keep: 0,
    };
    let annotator = Annotator::start(&config, "door", IfUnusable::Retry).unwrap();
    let mut walk = Walk { annotator: Some(annotator), ..Walk::new() };
    let line = Kind::Line { points: vec![[0.25, 0.0], [0.25, 1.0]], sides: ["east".into(), "west".into()] };
    let rules: Arc<[_]> = Arc::new([rule("line", line, &[]), rule("left", Kind::Zone, &LEFT)]);
    let (mut images, mut looks) = (Vec::new(), Vec::new());
    for frame in 1..40 {
        walk.height = if frame < 10 { 100.0 } else { 160.0 };
        walk.walk(1, &rules);
        let (sharper, other): (Vec<_>, Vec<_>) = walk.rules.images().drain(..).partition(|image| image.only_if_sharper);
        images.extend(other.into_iter().map(|image| (frame, image.name)));
        looks.extend(sharper.into_iter().map(|image| (frame, image.name, image.track)));
    }
    let events = std::mem::take(&mut *walk.events.lock());
    let image_of = |event: &EventMessage| event.image.clone().unwrap();
    let [visit, crossing, end] = &*events else { panic!("{events:?}") };
    assert_eq!((visit.phase, crossing.phase, end.phase), (EventPhase::Begin, EventPhase::Moment, EventPhase::End));
    assert_eq!(&*image_of(visit), format!("door-{}.jpg", visit.event));
    assert_eq!((image_of(end), &end.event), (image_of(visit), &visit.event));
    assert_ne!(image_of(crossing), image_of(visit));
    // The object is 1.6 times as large from the tenth frame on.
    assert_eq!(
        images,
        [(visit.sequence, image_of(visit)), (10, image_of(visit)), (crossing.sequence, image_of(crossing)),]
    );
    // Then after longer and longer pauses, and from the new image on again.
    let at: Vec<_> = looks.iter().map(|(frame, ..)| *frame).collect();
    assert!(looks.iter().all(|(_, name, track)| *name == image_of(visit) && *track == visit.track), "{looks:?}");
    assert_eq!(at, [4, 6, 11, 13, 17, 25]);
    walk.walk(5, &rules);
    assert!(walk.rules.under_way.is_empty());
}

#[test]
fn an_event_has_the_way_of_its_object_and_what_other_models_say_of_it() {
    let mut walk = Walk::new();
    let rules: Arc<[_]> = Arc::new([rule("left", Kind::Zone, &LEFT)]);
    for coat in [None, Some("red"), Some("red"), Some("blue")] {
        walk.coat = coat;
        walk.walk(4, &rules);
    }
    // The last known ones stay until the end.
    walk.coat = None;
    walk.walk(30, &rules);
    let events = std::mem::take(&mut *walk.events.lock());
    let text = |event: &EventMessage| {
        let coat = event.attributes.get("coat").map(|coat| serde_json::to_string(coat).unwrap());
        format!("{:?} {} {}", event.phase, coat.unwrap_or_default(), event.path.len())
    };
    assert_eq!(events.iter().map(text).collect::<Vec<_>>(), ["Begin  0", "End  18"], "no model ran at the begin");
    // From here on, one runs at the begin.
    walk.rules = CameraRules::default();
    walk.frames = 0;
    for coat in ["red", "red", "blue"] {
        walk.coat = Some(coat);
        walk.walk(4, &rules);
    }
    walk.coat = None;
    walk.walk(30, &rules);
    let events = std::mem::take(&mut *walk.events.lock());
    assert_eq!(
        events.iter().map(text).collect::<Vec<_>>(),
        [r#"Begin "red" 0"#, r#"Update "blue" 0"#, r#"End "blue" 18"#]
    );
    let path = &events[2].path;
    assert_eq!((path[0], path[1]), ([30.0, 200.0], [50.0, 200.0]));
    assert!(path.iter().all(|[x, y]| *x <= 350.0 && *y == 200.0), "{path:?}");
}

/// Remembers totals as the ledger does.
#[derive(Default)]
struct Totals(Mutex<BTreeMap<String, RuleTotals>>, AtomicU64);

impl EventOutlet for Totals {
    fn publish(&self, event: EventMessage, totals: Option<RuleTotals>) {
        if let Some(totals) = totals {
            self.0.lock().insert(format!("{} {} {}", event.camera, event.rule, event.kind), totals);
        }
    }

    fn totals(&self, camera: &str, rule: &str, kind: &str) -> RuleTotals {
        self.0.lock().get(&format!("{camera} {rule} {kind}")).cloned().unwrap_or_default()
    }

    fn set_totals(&self, camera: &str, rule: &str, kind: &str, totals: RuleTotals) {
        self.0.lock().insert(format!("{camera} {rule} {kind}"), totals);
    }

    fn reset_totals(&self, camera: &str, rule: &str) {
        self.0.lock().retain(|key, _| !key.starts_with(&format!("{camera} {rule} ")));
    }

    fn revision(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }
}

#[test]
fn totals_outlast_a_changed_rule_other_tracks_and_another_process() {
    let totals = Arc::new(Totals::default());
    let line = |sides: [&str; 2], at: f32| {
        let points = vec![[at, 0.0], [at, 1.0]];
        rule("line", Kind::Line { points, sides: sides.map(Arc::from) }, &[])
    };
    let occupancy = Kind::Occupancy { at_least: Some(1), at_most: None, lasting: Duration::ZERO };
    let first: Arc<[_]> = Arc::new([line(["east", "west"], 0.25), rule("here/occupancy", occupancy.clone(), &[])]);
    // The sides are swapped, and a walk to the right crosses to what is now the second.
    let second: Arc<[_]> = Arc::new([line(["up", "east"], 0.25), rule("here/occupancy", occupancy, &LEFT)]);
    for process in 1..3 {
        let mut walk = Walk::new();
        let outlet = Arc::into_inner(walk.outlet).unwrap();
        walk.outlet = Arc::new(Outlet { events: Arc::<Totals>::clone(&totals), ..outlet });
        walk.walk(25, &first);
        let begun = totals.totals("door", "here", "occupancy").begun;
        walk.walk(1, &second);
        let east = totals.totals("door", "line", "line").crossed_to[&Arc::from("east")];
        assert_eq!((begun, east), (process * 2 - 1, process));
        walk.walk(4, &second);
        assert_eq!(
            totals.totals("door", "here", "occupancy"),
            RuleTotals { begun: process * 2, ended: process * 2 - 1, ..RuleTotals::default() }
        );
        walk.rules.finish(EndReason::CameraGone, &walk.model.labels, (&"door".into(), &walk.outlet));
    }
}

#[test]
fn speeds_are_in_km_h_whatever_the_size_of_the_frame() {
    for size in [(640, 480), (1280, 480)] {
        let mut walk = Walk::new();
        walk.size = size;
        // A frame is 64 m wide and 48 m high.
        let corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
        let plane = corners.map(|[x, y]: [f32; 2]| ([x, y], [x * 64.0, y * 48.0]));
        let kind = Kind::Speed { plane, at_least: Some(4.0), at_most: None, over: Duration::from_millis(500) };
        let rules: Arc<[_]> = Arc::new([rule("street/speed", kind, &[])]);
        walk.walk(15, &rules);
        let begin = walk.events.lock()[0].clone();
        assert_eq!(walk.told(), ["street speed Begin"]);
        // 100 pixels a second.
        assert_eq!(begin.speed_kmh, Some(36.0 * 640.0 / size.0 as f32));
    }
}

#[test]
fn a_car_that_is_taken_away_counts_unless_an_owner_is_near() {
    let belonging = Belonging { distance: 20.0, time: Duration::from_millis(300), owners: Vec::new(), near: 1000.0 };
    // The model has no bicycles, so a car whose owner is one has no owner.
    for (owner, wanted) in [("bicycle", &["here taken_away Moment"][..]), ("person", &[])] {
        let mut walk = Walk::new();
        let rule = rule("here/taken_away", Kind::TakenAway(belonging.clone()), &[]);
        let rules: Arc<[_]> =
            Arc::new([RuleSettings { classes: vec!["car".into()], owners: vec![owner.into()], ..rule }]);
        walk.car = Some([300.0, 300.0, 340.0, 340.0]);
        walk.walk(6, &rules);
        assert!(walk.told().is_empty());
        walk.car = Some([400.0, 300.0, 440.0, 340.0]);
        walk.walk(6, &rules);
        let totals = walk.events.lock().first().and_then(|event| event.totals);
        assert_eq!(walk.told(), wanted);
        assert_eq!(totals.map(|totals| totals.begun), (!wanted.is_empty()).then_some(1));
    }
}

#[test]
fn events_end_while_the_camera_is_away_for_longer_than_their_rules_wait() {
    let mut walk = Walk::new();
    let parked = {
        let mut parked = rule("parked", Kind::Zone, &[]);
        parked.rule.parked = true;
        parked
    };
    let (quick, slow): (Arc<[_]>, Arc<[_]>) =
        (Arc::new([rule("here", Kind::Zone, &[])]), Arc::new([rule("here", Kind::Zone, &[]), parked]));
    let miss = |walk: &mut Walk, seconds| {
        let (labels, door) = (walk.model.labels.clone(), "door".into());
        walk.rules.miss_frames(Duration::from_secs(seconds), &labels, (&door, &walk.outlet))
    };
    walk.walk(5, &quick);
    assert_eq!(walk.told(), ["here zone Begin"]);
    assert!(!miss(&mut walk, 1) && walk.told().is_empty(), "not longer than `hold`");
    assert!(miss(&mut walk, 2));
    assert_eq!(walk.told(), ["here zone End frames_missing"]);
    miss(&mut walk, 3);
    assert!(walk.told().is_empty(), "it ends once");
    walk.walk(5, &slow);
    assert_eq!(walk.told(), ["here zone Begin", "parked zone Begin"]);
    assert!(miss(&mut walk, 59));
    assert_eq!(walk.told(), ["here zone End frames_missing"], "what is parked may be found again for a minute");
    let under_way: Vec<_> = walk.rules.counts().map(|(_, counts)| (counts.inside, counts.under_way)).collect();
    assert_eq!(under_way, [(0, 0), (1, 1)]);
    assert!(miss(&mut walk, 61));
    assert_eq!(walk.told(), ["parked zone End frames_missing"]);
}

#[test]
fn a_recording_has_its_own_time_and_a_source_that_ended_may_begin_again() {
    let mut walk = Walk::new();
    let rules: Arc<[_]> = Arc::new([rule("here", Kind::Zone, &[])]);
    assert_eq!(walk.rules.frame_age(0), None);
    walk.walk(5, &rules);
    assert_eq!(walk.rules.frame_age(1_500_000_000), Some(Duration::from_secs(1)));
    walk.rules.is_recording = true;
    assert_eq!(walk.rules.frame_age(1_500_000_000), None);
    walk.rules.end_events(EndReason::CameraGone, &walk.model.labels, (&"door".into(), &walk.outlet));
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["here zone Begin", "here zone End camera_gone", "here zone Begin"]);
}

#[test]
fn a_rule_that_is_switched_off_ends_its_events_and_keeps_its_totals_until_they_are_reset() {
    let mut walk = Walk::new();
    let switched = |enabled: bool| -> Arc<[RuleSettings]> {
        let zone = RuleSettings { enabled, ..rule("here", Kind::Zone, &[]) };
        let dwell = RuleSettings { enabled, ..rule("here/dwell", Kind::Dwell { time: Duration::ZERO }, &[]) };
        Arc::new([zone, dwell, rule("other", Kind::Zone, &[])])
    };
    let begun =
        |walk: &Walk| walk.rules.scene.as_ref().unwrap().counters().map(|(_, totals)| totals.begun).collect::<Vec<_>>();
    walk.walk(5, &switched(true));
    assert_eq!(walk.told().len(), 3);
    walk.walk(5, &switched(false));
    assert_eq!(walk.told(), ["here zone End rule_off", "here dwell End rule_off"]);
    walk.rules.reset_totals("her");
    assert_eq!(begun(&walk), [1, 1, 1]);
    let on = switched(true);
    walk.walk(5, &on);
    assert_eq!(walk.told(), ["here zone Begin", "here dwell Begin"]);
    assert_eq!(begun(&walk), [2, 2, 1]);
    walk.rules.reset_totals("here");
    assert_eq!(begun(&walk), [0, 0, 1]);
    walk.walk(1, &on);
    assert!(walk.rules.has_news(), "readers learn of the reset with the next frame");
}

#[test]
fn a_schedule_switches_a_rule_and_resets_its_totals_by_local_time() {
    const SECOND: u64 = 1_000_000_000;
    let mut walk = Walk::new();
    let time_zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    let times = ActiveTime { days: [true; 7], from: 7 * 60, to: 6 * 60 };
    let always = rule("always", Kind::Zone, &[]);
    let schedule = |active: &[ActiveTime]| {
        Some(Schedule { active: active.to_vec(), reset: Some(6 * 60), time_zone: time_zone.clone() })
    };
    let rules: Arc<[_]> = Arc::new([
        RuleSettings { schedule: schedule(&[times]), ..rule("night", Kind::Zone, &[]) },
        RuleSettings { schedule: schedule(&[]), ..always },
    ]);
    // The clock is not set.
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["night zone Begin", "always zone Begin"]);
    // Set to a second before six in the morning: totals were of no day, and stay.
    walk.began_ns = "2026-07-01T03:59:59Z".parse::<jiff::Timestamp>().unwrap().as_second() as u64 * SECOND;
    walk.walk(4, &rules);
    assert!(walk.told().is_empty());
    let begun =
        |walk: &Walk| walk.rules.scene.as_ref().unwrap().counters().map(|(_, totals)| totals.begun).collect::<Vec<_>>();
    assert_eq!(begun(&walk), [1, 1]);
    walk.walk(10, &rules);
    assert_eq!(walk.told(), ["night zone End rule_off"]);
    assert_eq!(begun(&walk), [0, 0]);
    // Back by five minutes: it is on again, and the day is the same.
    walk.began_ns -= 300 * SECOND;
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["night zone Begin"]);
    walk.began_ns += 300 * SECOND;
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["night zone End rule_off"]);
    assert_eq!(begun(&walk), [1, 0]);
    // A reload that removes the schedule while it is off.
    let always: Arc<[_]> = Arc::new([rule("night", Kind::Zone, &[])]);
    walk.walk(5, &always);
    assert_eq!(walk.told(), ["always zone End rule_removed", "night zone Begin"]);
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["night zone End rule_off", "always zone Begin"]);
    // From seven, and on the next day.
    walk.began_ns += 3600 * SECOND;
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["night zone Begin"]);
    walk.began_ns += 86_400 * SECOND;
    walk.walk(1, &rules);
    assert_eq!(begun(&walk)[1], 0);
}

#[test]
fn totals_are_reset_at_a_start_on_a_later_day() {
    const DAY: u64 = 86_400_000_000_000;
    let totals = Arc::new(Totals::default());
    let schedule = Some(Schedule { active: Vec::new(), reset: Some(0), time_zone: TimeZone::UTC });
    let rules: Arc<[_]> = Arc::new([RuleSettings { schedule, ..rule("here", Kind::Zone, &[]) }]);
    let mut begun = Vec::new();
    for day in [20_000, 20_000, 20_001] {
        let mut walk = Walk::new();
        let outlet = Arc::into_inner(walk.outlet).unwrap();
        walk.outlet = Arc::new(Outlet { events: Arc::<Totals>::clone(&totals), ..outlet });
        walk.began_ns = day * DAY;
        walk.walk(5, &rules);
        begun.push(totals.totals("door", "here", "zone").begun);
    }
    assert_eq!(begun, [1, 2, 1]);
}

#[test]
fn a_clock_that_was_ahead_costs_no_reset_and_an_hour_that_happens_twice_is_one_day() {
    const SECOND: u64 = 1_000_000_000;
    let zone = |zone| TimeZone::posix(zone).unwrap();
    let at = |time: &str| time.parse::<jiff::Timestamp>().unwrap().as_second() as u64 * SECOND;
    // The totals after each look. Every frame of a walk has one crossing more or less, so each is of one count.
    let run = |time_zone: TimeZone, reset: u16, restarts: bool, times: &[&str]| -> Vec<u64> {
        let totals = Arc::new(Totals::default());
        let schedule = Some(Schedule { active: Vec::new(), reset: Some(reset), time_zone });
        let rules: Arc<[_]> = Arc::new([RuleSettings { schedule, ..rule("here", Kind::Zone, &[]) }]);
        let new = || {
            let mut walk = Walk::new();
            let outlet = Arc::into_inner(walk.outlet).unwrap();
            walk.outlet = Arc::new(Outlet { events: Arc::<Totals>::clone(&totals), ..outlet });
            walk
        };
        let mut walk = new();
        let mut begun = Vec::new();
        for time in times {
            if restarts {
                walk = new();
            }
            walk.began_ns = at(time) - walk.frames * 100_000_000;
            // A visit at each time.
            walk.walk(5, &rules);
            walk.rules.end_events(EndReason::CameraGone, &walk.model.labels, (&"door".into(), &walk.outlet));
            begun.push(totals.totals("door", "here", "zone").begun);
        }
        begun
    };
    for restarts in [false, true] {
        let days = ["10T12", "11T12", "10T13", "11T01", "11T13", "12T13"].map(|day| format!("2026-07-{day}:00:00Z"));
        let days = days.each_ref().map(String::as_str);
        assert_eq!(run(zone("UTC0"), 0, restarts, &days), [1, 1, 2, 1, 2, 1], "{restarts}");
        let ahead = ["2026-07-10T12:00:00Z", "2026-07-15T12:00:00Z", "2026-07-10T13:00:00Z", "2026-07-11T01:00:00Z"];
        assert_eq!(run(zone("UTC0"), 0, restarts, &ahead), [1, 1, 2, 1], "{restarts}");
        // 02:20, 02:40, 02:10 and 02:40 once more, 02:40 on the next day.
        let twice = [
            "2026-10-25T00:20:00Z",
            "2026-10-25T00:40:00Z",
            "2026-10-25T01:10:00Z",
            "2026-10-25T01:40:00Z",
            "2026-10-26T01:40:00Z",
        ];
        let berlin = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        assert_eq!(run(berlin, 2 * 60 + 30, restarts, &twice), [1, 1, 2, 3, 1], "{restarts}");
        // Set back a little just after the reset.
        let little = ["2026-07-10T23:59:00Z", "2026-07-11T00:01:00Z", "2026-07-10T23:58:00Z", "2026-07-11T00:02:00Z"];
        assert_eq!(run(zone("UTC0"), 0, restarts, &little), [1, 1, 2, 3], "{restarts}");
    }
}

#[test]
fn totals_of_an_earlier_process_that_come_late_are_counted_on() {
    let totals = Arc::new(Totals::default());
    let rules: Arc<[_]> = Arc::new([rule("here", Kind::Zone, &[])]);
    let mut walk = Walk::new();
    let outlet = Arc::into_inner(walk.outlet).unwrap();
    walk.outlet = Arc::new(Outlet { events: Arc::<Totals>::clone(&totals), ..outlet });
    walk.walk(5, &rules);
    totals.set_totals("door", "here", "zone", RuleTotals { begun: 6, ended: 5, ..RuleTotals::default() });
    totals.1.store(1, Ordering::Relaxed);
    walk.walk(1, &rules);
    assert_eq!(walk.rules.counts().map(|(_, counts)| counts.begun).collect::<Vec<_>>(), [6]);
    assert!(walk.rules.has_news(), "readers learn of them at once");
    walk.rules.end_events(EndReason::CameraGone, &walk.model.labels, (&"door".into(), &walk.outlet));
    assert_eq!(totals.totals("door", "here", "zone"), RuleTotals { begun: 6, ended: 6, ..RuleTotals::default() });
}

#[test]
fn a_frame_with_old_rules_does_not_keep_the_new_ones_from_the_next() {
    let mut walk = Walk::new();
    let old: Arc<[_]> = Arc::new([rule("here", Kind::Zone, &[]), rule("stays", Kind::Zone, &[])]);
    let new: Arc<[_]> = Arc::new([rule("there", Kind::Zone, &[]), rule("stays", Kind::Zone, &[])]);
    walk.walk(5, &old);
    assert_eq!(walk.told(), ["here zone Begin", "stays zone Begin"]);
    walk.walk(5, &new);
    assert_eq!(walk.told(), ["here zone End rule_removed", "there zone Begin"]);
    walk.rules.finish(EndReason::Shutdown, &walk.model.labels, (&"door".into(), &walk.outlet));
    assert_eq!(walk.told(), ["there zone End shutdown", "stays zone End shutdown"]);
    // A lane may still have a frame.
    walk.walk(5, &new);
    assert!(walk.told().is_empty());
}

#[test]
fn classes_are_labels_of_the_model_and_parts_of_a_zone_have_its_name() {
    let mut walk = Walk::new();
    let only =
        |name: &str, kind: Kind, class: &str| RuleSettings { classes: vec![class.into()], ..rule(name, kind, &[]) };
    let dwell = Kind::Dwell { time: Duration::from_millis(300) };
    let mut without = rule("d", Kind::Zone, &[]);
    without.rule.unless = vec!["c".into()];
    let rules: Arc<[_]> = Arc::new([
        only("a", Kind::Zone, "car"),
        only("b/dwell", dwell, "person"),
        // The model has no such class, and others may depend on it.
        only("c", Kind::Zone, "bicycle"),
        without,
    ]);
    walk.walk(6, &rules);
    assert_eq!(walk.told(), ["d zone Begin", "b dwell Begin"]);
    // The same numbers mean something else.
    walk.model.labels.swap(0, 1);
    walk.rules.take_model();
    walk.walk(6, &rules);
    assert_eq!(walk.told(), ["b dwell End rule_removed", "a zone Begin"]);
}

#[test]
fn rules_that_do_not_fit_the_frame_report_nothing_and_come_back_with_another_size() {
    let mut walk = Walk::new();
    // Two pixels of a frame of 640, one point of a frame of 1.
    let line = Kind::Line { points: vec![[0.25, 0.0], [0.2501, 0.0]], sides: ["a".into(), "b".into()] };
    let rules: Arc<[_]> = Arc::new([rule("line", line, &[]), rule("all", Kind::Zone, &[])]);
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["all zone Begin"]);
    walk.size = (1, 1);
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["all zone End camera_gone"]);
    walk.size = (640, 480);
    walk.walk(5, &rules);
    assert_eq!(walk.told(), ["all zone Begin"]);
}

#[test]
fn totals_and_facts_are_by_line_and_by_kind_of_a_zone() {
    let mut walk = Walk::new();
    let line = Kind::Line { points: vec![[0.25, 0.0], [0.25, 1.0]], sides: ["east".into(), "west".into()] };
    let dwell = Kind::Dwell { time: Duration::from_millis(300) };
    let rules: Arc<[_]> =
        Arc::new([rule("door", line, &[]), rule("hall/dwell", dwell, &LEFT), rule("hall", Kind::Zone, &[])]);
    assert_eq!(walk.rules.counts().count(), 0, "before the first frame");
    walk.walk(20, &rules);
    let counts: Vec<_> = walk.rules.counts().map(|(name, counts)| (name.to_string(), counts)).collect();
    let counted = |begun, crossed_to, inside, under_way| RuleCounts { begun, crossed_to, inside, under_way };
    let wanted = [
        ("door", counted(1, [1, 0], 0, 0)),
        ("hall/dwell", counted(1, [0, 0], 1, 1)),
        ("hall", counted(1, [0, 0], 1, 1)),
    ];
    assert_eq!(counts, wanted.map(|(name, counts)| (name.to_owned(), counts)));
    let facts = |name: &str, kind: &str, sides| RuleFacts { name: name.into(), kind: kind.into(), sides };
    let sides = Some(["east".into(), "west".into()]);
    let all: Vec<_> = rules.iter().map(RuleSettings::facts).collect();
    assert_eq!(all, [facts("door", "line", sides), facts("hall", "dwell", None), facts("hall", "zone", None)]);
}
