//! Applies a camera's lines and zones to its tracks, and publishes their events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use visiond_annotate::annotator::{Annotator, EventImage};
use visiond_clips::recorder::ClipRecorder;
use visiond_engine::detector::class_label;
use visiond_events::{Counters, EndReason, Event, Kind, Object, Phase, Rule, Scene};
use visiond_frames::timestamp::Timestamp;
use visiond_message::{
    AttributeMessage, AttributesMessage, BoxMessage, EVENT_SCHEMA, EventMessage, EventPhase, EventTotals,
    PlainAttribute, RuleTotals, event_id, event_topic, next_message_id,
};
use visiond_telemetry::rules::{RuleCounts, RuleFacts};
use visiond_tracker::TrackReport;

use super::frame_spans::FrameSpans;
use super::rounding::{box_of, rounded_pixels, rounded_score, significant};
use super::schedule::Schedule;
use crate::lane_result::LaneResult;
use crate::outlet::Outlet;

/// Separates the name of a zone from what a rule reports of it. No name has this character.
pub const PART: char = '/';

/// No model has a class of this number.
const NO_CLASS: u32 = u32::MAX;

/// A line, or one thing to report about a zone. Points are fractions of the frame, distances are in its pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSettings {
    /// The rule. Its filter and its owners have no classes yet. Its name is that of the line or zone; after a [`PART`], what it reports of the zone.
    pub rule: Rule,
    /// The labels that it sees; empty: all.
    pub classes: Vec<String>,
    /// The labels of owners, if it has any.
    pub owners: Vec<String>,
    /// Whether it is on at all.
    pub enabled: bool,
    /// When it is active and when its totals begin again. Without it, it is always active and counts on.
    pub schedule: Option<Schedule>,
}

impl RuleSettings {
    /// Returns the rule for frames of this size and a model with these labels. It sees nothing if the model has none of its classes.
    fn rule(&self, [width, height]: [u32; 2], labels: &[Arc<str>]) -> Rule {
        let mut rule = self.rule.clone();
        let scale = |points: &mut Vec<[f32; 2]>| {
            points.iter_mut().for_each(|[x, y]| (*x, *y) = (*x * width as f32, *y * height as f32));
        };
        scale(&mut rule.area);
        match &mut rule.kind {
            Kind::Line { points, .. } => scale(points),
            Kind::WrongWay { direction: [x, y], .. } => (*x, *y) = (*x * width as f32, *y * height as f32),
            Kind::Speed { plane, .. } => {
                plane.iter_mut().for_each(|([x, y], _)| (*x, *y) = (*x * width as f32, *y * height as f32));
            }
            Kind::LeftBehind(belonging) | Kind::TakenAway(belonging) => {
                belonging.owners = class_ids(&self.owners, labels);
            }
            _ => {}
        }
        rule.filter.classes = class_ids(&self.classes, labels);
        if rule.filter.classes.is_empty() && !self.classes.is_empty() {
            rule.filter.classes.push(NO_CLASS);
        }
        rule
    }

    /// Returns its facts for the status.
    pub fn facts(&self) -> RuleFacts {
        let sides = match &self.rule.kind {
            Kind::Line { sides, .. } => Some(sides.clone()),
            _ => None,
        };
        let (name, kind) = name_and_kind(&self.rule);
        RuleFacts { name: name.into(), kind: kind.into(), sides }
    }
}

/// Returns the numbers of classes.
fn class_ids(classes: &[String], labels: &[Arc<str>]) -> Vec<u32> {
    let has = |label: &str| classes.iter().any(|class| **class == *label);
    let named = labels.iter().enumerate().filter(|(_, label)| has(label)).map(|(class_id, _)| class_id as u32);
    // A class without a name has its number as its label.
    let numbers = classes.iter().filter_map(|class| class.parse().ok());
    named.chain(numbers.filter(|&class_id: &u32| labels.get(class_id as usize).is_none())).collect()
}

/// The most events of a camera whose images are replaced by better ones, and whose changes of attributes are updates.
const MOST_FOLLOWED: usize = 64;

/// How much better a frame must show an object for another image.
const BETTER: f32 = 1.5;
/// How well a frame must show it to be another image if it is sharper.
const ABOUT_AS_WELL: f32 = 0.8;
/// How long after an image a sharper one is looked for. Then it is twice as long each time, so that an event of any length costs few frames.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// An event under way, where events have images or attributes.
#[derive(Debug)]
struct UnderWay {
    event: u64,
    rule: Arc<str>,
    track: Option<u64>,
    image: Option<Arc<str>>,
    /// Of an object, the area of its box times its score; otherwise the count.
    quality: f32,
    /// When a sharper image is looked for, and how long that is after the last time.
    next_look: Duration,
    pause: Duration,
    /// The last ones that were found.
    attributes: AttributesMessage,
}

/// The lines and zones of a camera, with their state.
#[derive(Debug, Default)]
pub struct CameraRules {
    scene: Option<Scene>,
    size: [u32; 2],
    /// The last frame's number and time.
    last: Option<(u64, Timestamp)>,
    /// Whether it has a time in a recording.
    is_recording: bool,
    objects: Vec<Object>,
    ended: Vec<u64>,
    events: Vec<Event>,
    /// The rules that run. A frame that the lane had at a reload still comes with these.
    settings: Arc<[RuleSettings]>,
    /// The events under way, and those of the last frame.
    under_way: Vec<UnderWay>,
    /// The images that the last frame is for.
    images: Vec<EventImage>,
    /// The events under way that have a clip, its name, and who stores it.
    clips: Vec<(u64, Arc<str>, Arc<ClipRecorder>)>,
    /// The last frame's time among the camera's frames.
    time: Duration,
    spans: FrameSpans,
    /// The times of the last look at the schedules and of the next one, in nanoseconds since 1970.
    looks_ns: [u64; 2],
    /// The day of the totals of each rule that resets them, and the minute with which days begin.
    days: Vec<(Arc<str>, u16, i64)>,
    /// That of the totals from which the rules count on: see [`EventOutlet::revision`](crate::outlet::EventOutlet::revision).
    revision: u64,
    /// Whether totals have been counted since they changed in any other way than by a frame.
    has_counted: bool,
    /// Whether totals have changed with the last frame.
    has_news: bool,
    /// Whether the camera's tracks end. A frame that a lane still has must begin no event, since none would end it.
    is_over: bool,
}

impl CameraRules {
    /// Compares the rules with the classes of a new model at the next frame.
    pub fn take_model(&mut self) {
        self.settings = Arc::new([]);
    }

    /// Takes in the tracks of a frame, and publishes the events that it completes. Costs nothing without rules; allocates only for events.
    pub fn step(
        &mut self,
        settings: &Arc<[RuleSettings]>,
        result: &LaneResult<'_>,
        (reports, ended): (&[Option<TrackReport>], &[TrackReport]),
        (annotator, recorder): (Option<&Annotator>, Option<&Arc<ClipRecorder>>),
        (camera, outlet): (&Arc<str>, &Outlet),
    ) {
        self.images.clear();
        self.has_news = false;
        if self.is_over || settings.is_empty() && self.scene.is_none() {
            return;
        }
        let LaneResult { frame, model, detections, .. } = result;
        let size = [frame.width, frame.height];
        if !Arc::ptr_eq(&self.settings, settings) || self.size != size {
            self.change(settings, size, &model.labels, (camera, outlet));
        }
        let revision = outlet.events.revision();
        if std::mem::replace(&mut self.revision, revision) != revision {
            // They may be of another day.
            (self.looks_ns, self.has_counted) = ([0; 2], false);
            self.days.clear();
            self.restore_totals((camera, outlet));
        }
        self.follow_schedules(frame.timestamp.realtime_ns, &model.labels, (camera, outlet));
        let Some(scene) = &mut self.scene else { return };
        if self.last.is_some() {
            let rules = settings.iter().filter(|settings| settings.enabled);
            let rules = rules.map(|RuleSettings { rule, .. }| (parts(&rule.name).0, rule.hold));
            self.spans.take(frame.time().saturating_sub(self.time), rules, camera);
        }
        (self.last, self.time) = (Some((frame.sequence, frame.timestamp)), frame.time());
        self.is_recording = frame.recorded_at.is_some();
        self.objects.clear();
        self.objects.extend(detections.iter().zip(reports).filter_map(|(detection, report)| {
            let (bounds, report) = (detection.box_in_source?, report.as_ref()?);
            Some(Object { track: report.id, bounds, class_id: report.class_id, score: detection.score })
        }));
        self.ended.clear();
        self.ended.extend(ended.iter().map(|report| report.id));
        scene.step(frame.time(), &self.objects, &self.ended, &mut self.events);
        self.has_news = !self.events.is_empty() || scene.has_moves() || !self.has_counted;
        self.has_counted = true;
        self.follow(result, reports, annotator);
        if let Some(recorder) = recorder {
            self.film(recorder);
        }
        self.publish(&model.labels, (camera, outlet));
    }

    /// Returns the images of events that the last frame is for. The caller may take them.
    pub fn images(&mut self) -> &mut Vec<EventImage> {
        &mut self.images
    }

    /// Finds the events that begin with this frame, whose object it shows best, or whose object has other attributes.
    fn follow(&mut self, result: &LaneResult<'_>, reports: &[Option<TrackReport>], annotator: Option<&Annotator>) {
        let Self { objects, events, under_way, images, time: now, .. } = self;
        let now = *now;
        let quality = |track: Option<u64>, count: Option<u32>| match track {
            Some(track) => {
                let object = objects.iter().find(|object| object.track == track)?;
                let [x1, y1, x2, y2] = object.bounds;
                Some((x2 - x1) * (y2 - y1) * object.score)
            }
            None => count.map(|count| count as f32),
        };
        let attributes = |track: Option<u64>| {
            let is_it = |report: &Option<TrackReport>| report.as_ref().map(|report| report.id) == track;
            let crops = result.crops.get(reports.iter().position(is_it).filter(|_| track.is_some())?)?;
            (!crops.attributes.is_empty()).then_some(&crops.attributes)
        };
        let changed = events.len();
        for known in under_way.iter_mut().take(MOST_FOLLOWED) {
            let event = events.iter().take(changed).find(|event| event.id == known.event);
            let count = event.and_then(|event| event.count);
            // A parked object may have another track.
            known.track = event.map_or(known.track, |event| event.track);
            if let Some(image) = &known.image
                && let Some(found) = quality(known.track, count)
            {
                let is_better = found > BETTER * known.quality;
                let is_time = now >= known.next_look && known.track.is_some();
                if is_better || is_time && found >= ABOUT_AS_WELL * known.quality {
                    known.quality = if is_better { found } else { known.quality };
                    known.pause = if is_better { FIRST_LOOK } else { 2 * known.pause };
                    known.next_look = now + known.pause;
                    let (name, track) = (Arc::clone(image), known.track);
                    images.push(EventImage { name, track, only_if_sharper: !is_better });
                }
            }
            if let Some(found) = attributes(known.track) {
                let is_news = event.is_none() && !has_same_labels(found, &known.attributes);
                known.attributes.clone_from(found);
                if is_news {
                    let (rule, at) = (Arc::clone(&known.rule), result.frame.time());
                    events.push(Event { track: known.track, ..Event::new(known.event, rule, Phase::Update, at) });
                }
            }
        }
        for event in events.iter().filter(|event| matches!(event.phase, Phase::Begin | Phase::Moment)) {
            let image = annotator.and_then(|annotator| annotator.event_image(&event_id(event.id)));
            images.extend(image.clone().map(|name| EventImage { name, track: event.track, only_if_sharper: false }));
            if image.is_some() || !result.crops.is_empty() {
                let (rule, attributes) =
                    (Arc::clone(&event.rule), attributes(event.track).cloned().unwrap_or_default());
                let quality = quality(event.track, event.count).unwrap_or(f32::INFINITY);
                under_way.push(UnderWay {
                    event: event.id,
                    rule,
                    track: event.track,
                    image,
                    quality,
                    next_look: now + FIRST_LOOK,
                    pause: FIRST_LOOK,
                    attributes,
                });
            }
        }
    }

    /// Begins the clips of the events that begin with this frame.
    fn film(&mut self, recorder: &Arc<ClipRecorder>) {
        for event in self.events.iter().filter(|event| matches!(event.phase, Phase::Begin | Phase::Moment)) {
            let (rule, part) = parts(&event.rule);
            let kind = part.unwrap_or(if event.to.is_some() { "line" } else { "zone" });
            if let Some(clip) = recorder.begin(&event_id(event.id), (rule, kind), self.time) {
                self.clips.push((event.id, clip, Arc::clone(recorder)));
            }
        }
    }

    /// Ends all events, because the camera's tracks end.
    pub fn finish(&mut self, reason: EndReason, labels: &[Arc<str>], (camera, outlet): (&Arc<str>, &Outlet)) {
        self.is_over = true;
        if let Some(scene) = &mut self.scene {
            scene.finish(reason, &mut self.events);
            self.publish(labels, (camera, outlet));
        }
        self.scene = None;
    }

    /// Ends the events of each rule whose events the next frame would end, because the camera has sent none for so long; returns whether there
    /// was such a rule.
    pub fn miss_frames(&mut self, away: Duration, labels: &[Arc<str>], to: (&Arc<str>, &Outlet)) -> bool {
        let Some(scene) = &mut self.scene else { return false };
        if !scene.miss_frames(away, &mut self.events) {
            return false;
        }
        self.objects.clear();
        self.publish(labels, to);
        true
    }

    /// Ends all events. Later frames may begin others.
    pub fn end_events(&mut self, reason: EndReason, labels: &[Arc<str>], to: (&Arc<str>, &Outlet)) {
        if let Some(scene) = &mut self.scene {
            scene.finish(reason, &mut self.events);
            self.objects.clear();
            self.publish(labels, to);
        }
    }

    /// Returns the age of the last frame. `None` without one, and of a recording, whose time is its own.
    pub fn frame_age(&self, now_ns: u64) -> Option<Duration> {
        let (_, timestamp) = self.last.filter(|_| !self.is_recording)?;
        Some(Duration::from_nanos(now_ns.saturating_sub(timestamp.monotonic_ns)))
    }

    /// Resets the totals of a line or zone, of all that it reports.
    pub fn reset_totals(&mut self, name: &str) {
        let Some(scene) = &mut self.scene else { return };
        for RuleSettings { rule, .. } in self.settings.iter().filter(|settings| parts(&settings.rule.name).0 == name) {
            scene.set_totals(&rule.name, Counters::default());
        }
        self.has_counted = false;
    }

    /// Returns whether totals have changed with the last frame.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Returns the name of each rule among the camera's, and its totals. Allocates nothing.
    pub fn counts(&self) -> impl Iterator<Item = (&Arc<str>, RuleCounts)> {
        let counts = |Counters { begun, crossed_to, taken, inside, under_way, .. }: Counters| RuleCounts {
            begun: begun + taken + crossed_to.iter().sum::<u64>(),
            crossed_to,
            inside,
            under_way,
        };
        self.scene.iter().flat_map(Scene::counters).map(move |(name, counters)| (name, counts(counters)))
    }

    /// Applies the rules to frames of another size, or other rules.
    fn change(
        &mut self,
        settings: &Arc<[RuleSettings]>,
        size: [u32; 2],
        labels: &[Arc<str>],
        to: (&Arc<str>, &Outlet),
    ) {
        self.settings = Arc::clone(settings);
        self.has_counted = false;
        self.looks_ns = [0; 2];
        self.days.retain(|(name, ..)| settings.iter().any(|settings| settings.rule.name == *name));
        let rules: Vec<_> = settings.iter().map(|settings| settings.rule(size, labels)).collect();
        let has_none =
            |classes: &[String]| !classes.is_empty() && !labels.is_empty() && class_ids(classes, labels).is_empty();
        for RuleSettings { rule: Rule { name, .. }, classes, owners, .. } in settings.iter() {
            let camera = to.0;
            if has_none(classes) {
                log::warn!(
                    camera:% = camera;
                    "camera {camera}: the model has none of the classes {classes:?} of {name}, which therefore reports nothing: \
                     correct `classes`"
                );
            }
            if has_none(owners) {
                log::warn!(
                    camera:% = camera;
                    "camera {camera}: the model has none of the owners {owners:?} of {name}, so no object has an owner: correct `owners`"
                );
            }
        }
        // What ends now is not in this frame.
        self.objects.clear();
        let same_size = std::mem::replace(&mut self.size, size) == size;
        let changed = match self.scene.as_mut().filter(|_| same_size) {
            Some(scene) => scene.replace(rules, &mut self.events),
            None => {
                if let Some(scene) = &mut self.scene {
                    scene.finish(EndReason::CameraGone, &mut self.events);
                    self.publish(labels, to);
                }
                self.scene = None;
                self.events.clear();
                Scene::new(size, rules, Arc::clone(&to.1.event_ids)).map(|scene| self.scene = Some(scene))
            }
        };
        match changed {
            Ok(()) => {
                self.restore_totals(to);
                self.publish(labels, to);
            }
            // `check` reports all that can be wrong, except for points that are the same pixel of a small frame.
            Err(error) => log::error!("camera {}: its lines and zones report nothing new: {error}: correct them", to.0),
        }
    }

    /// Goes on with the totals that rules had with other tracks, or in an earlier process.
    fn restore_totals(&mut self, (camera, outlet): (&Arc<str>, &Outlet)) {
        let Some(scene) = &mut self.scene else { return };
        for RuleSettings { rule, .. } in self.settings.iter() {
            let (name, kind) = name_and_kind(rule);
            let earlier = outlet.events.totals(camera, name, kind);
            let counters = scene.counters().find(|(name, _)| **name == rule.name).map(|(_, counters)| counters);
            let Some(counters) = counters else { continue };
            let RuleTotals { begun, ended, taken, crossed_to, .. } = totals_of(&counters, &rule.kind).larger(&earlier);
            let crossed_to = match &rule.kind {
                Kind::Line { sides, .. } => sides.each_ref().map(|side| crossed_to.get(side).copied().unwrap_or(0)),
                _ => [0; 2],
            };
            scene.set_totals(&rule.name, Counters { begun, ended, taken, crossed_to, ..counters });
        }
    }

    /// Switches rules on and off and resets totals, as their schedules say at a time. Costs two comparisons until something may change.
    fn follow_schedules(&mut self, now_ns: u64, labels: &[Arc<str>], to: (&Arc<str>, &Outlet)) {
        let [last, next] = self.looks_ns;
        // A clock that was set back needs a new look.
        if (last..next).contains(&now_ns) {
            return;
        }
        self.looks_ns = [now_ns, u64::MAX];
        let settings = Arc::clone(&self.settings);
        let mut is_set = true;
        for RuleSettings { rule, enabled, schedule, .. } in settings.iter() {
            let name = &rule.name;
            let Some(scene) = &mut self.scene else { return };
            // A reload may have removed the schedule while the rule was off.
            let mut is_active = *enabled;
            if let Some(schedule) = schedule {
                let look = schedule.look(now_ns);
                self.looks_ns[1] = self.looks_ns[1].min(look.until_ns);
                is_active &= look.is_active;
                is_set &= look.day.is_some();
                if let (Some(minute), Some(day)) = (schedule.reset, look.day) {
                    let (events, (of, kind)) = (&to.1.events, name_and_kind(rule));
                    let mut reset = || {
                        self.has_counted = false;
                        scene.set_totals(name, Counters::default());
                        events.set_totals(to.0, of, kind, RuleTotals { day: Some(day), ..RuleTotals::default() });
                    };
                    let known = self.days.iter().find(|(known, of, _)| known == name && *of == minute);
                    // An earlier process may have counted on another day.
                    let known = known.map_or_else(|| events.totals(to.0, of, kind).day, |(.., day)| Some(*day));
                    let day = match known {
                        Some(known) if known < day => {
                            reset();
                            day
                        }
                        // An hour that happens twice is the same day.
                        Some(known) if known == day || schedule.has_begun(known, now_ns) => known,
                        Some(_) => {
                            // The clock was ahead, and has been corrected: totals are reset when that day comes, also by the next process.
                            let totals = events.totals(to.0, of, kind);
                            events.set_totals(to.0, of, kind, RuleTotals { day: Some(day), ..totals });
                            day
                        }
                        None => day,
                    };
                    self.days.retain(|(known, ..)| known != name);
                    self.days.push((Arc::clone(name), minute, day));
                }
            }
            scene.switch(name, is_active, &mut self.events);
            self.publish(labels, to);
        }
        if !is_set {
            let camera = to.0;
            log::warn!(
                camera:% = camera;
                "camera {camera}: the clock is not set, so `active` and `reset` have no effect: check that this machine gets the time"
            );
        }
    }

    /// Publishes the events of the last step.
    fn publish(&mut self, labels: &[Arc<str>], (camera, outlet): (&Arc<str>, &Outlet)) {
        let (Some(scene), Some((sequence, timestamp))) = (&self.scene, self.last) else { return };
        for event in self.events.drain(..) {
            let settings = self.settings.iter().find(|settings| settings.rule.name == event.rule);
            let object = event.track.and_then(|track| self.objects.iter().find(|object| object.track == track));
            let side = event.to.as_ref().and_then(|to| {
                let Kind::Line { sides, .. } = &settings?.rule.kind else { return None };
                sides.iter().position(|side| side == to)
            });
            // A removed rule has no counts.
            let counters = scene.counters().find(|(name, _)| **name == event.rule).map(|(_, counters)| counters);
            let totals = counters.map(|counters| match side {
                Some(side) => EventTotals { begun: counters.crossed_to[side], inside: None },
                // What is taken away is a moment, and does not begin.
                None => EventTotals { begun: counters.begun.max(counters.taken), inside: Some(counters.inside) },
            });
            let since_ns = timestamp.realtime_ns.saturating_sub(nanoseconds(event.ago));
            let under_way = self.under_way.iter().position(|known| known.event == event.id);
            let known = under_way.map(|at| &self.under_way[at]);
            let filmed = self.clips.iter().position(|(filmed, ..)| *filmed == event.id);
            let (rule, part) = parts(&event.rule);
            let message = EventMessage {
                schema: EVENT_SCHEMA,
                id: next_message_id(),
                event: event_id(event.id),
                camera: Arc::clone(camera),
                topic: event_topic(camera),
                rule: rule.into(),
                kind: part.unwrap_or(if event.to.is_some() { "line" } else { "zone" }).into(),
                phase: match event.phase {
                    Phase::Begin => EventPhase::Begin,
                    Phase::Update => EventPhase::Update,
                    Phase::End => EventPhase::End,
                    Phase::Moment => EventPhase::Moment,
                },
                at: timestamp.rfc3339(),
                since: Timestamp { realtime_ns: since_ns, ..timestamp }.rfc3339(),
                sequence,
                track: event.track,
                label: object.map(|object| class_label(labels, object.class_id)),
                score: object.and_then(|object| rounded_score(object.score)),
                bounds: object.map(|object| inside(object.bounds, self.size)),
                image: known.and_then(|known| known.image.clone()),
                attributes: known.map(|known| plain(&known.attributes)).unwrap_or_default(),
                path: event.path.iter().map(|point| point.map(|part| rounded_pixels(f64::from(part)) as f32)).collect(),
                clip: filmed.map(|at| Arc::clone(&self.clips[at].1)),
                count: event.count,
                // The ground is in metres.
                speed_kmh: event.speed.and_then(|metres_per_second| significant(metres_per_second * 3.6)),
                to: event.to,
                reason: event.reason.map(|reason| reason_name(reason).into()),
                totals,
            };
            let day = self.days.iter().find(|(name, ..)| *name == event.rule).map(|(.., day)| *day);
            let totals = counters
                .zip(settings)
                .map(|(counters, settings)| RuleTotals { day, ..totals_of(&counters, &settings.rule.kind) });
            if let Some(at) = under_way.filter(|_| matches!(event.phase, Phase::End | Phase::Moment)) {
                self.under_way.swap_remove(at);
            }
            if let Some(at) = filmed.filter(|_| matches!(event.phase, Phase::End | Phase::Moment)) {
                let (_, clip, recorder) = self.clips.swap_remove(at);
                recorder.end(&clip, self.time);
            }
            outlet.events.publish(message, totals);
        }
    }
}

/// Returns the name of a line or zone, and what a rule reports of a zone.
fn parts(rule: &str) -> (&str, Option<&str>) {
    rule.split_once(PART).map_or((rule, None), |(zone, part)| (zone, Some(part)))
}

/// Returns the name of a line or zone and the kind of its rule, as messages have them.
fn name_and_kind(rule: &Rule) -> (&str, &str) {
    let (name, part) = parts(&rule.name);
    (name, part.unwrap_or(if matches!(rule.kind, Kind::Line { .. }) { "line" } else { "zone" }))
}

/// Returns the totals by the names of sides.
fn totals_of(counters: &Counters, kind: &Kind) -> RuleTotals {
    let Counters { begun, ended, taken, crossed_to, .. } = *counters;
    let crossed_to = match kind {
        Kind::Line { sides, .. } => sides.iter().cloned().zip(crossed_to).collect(),
        _ => BTreeMap::new(),
    };
    RuleTotals { begun, ended, taken, crossed_to, day: None }
}

/// Returns the part of a box in a frame of this size.
fn inside([x1, y1, x2, y2]: [f32; 4], [width, height]: [u32; 2]) -> BoxMessage {
    let (width, height) = (width as f32, height as f32);
    box_of([x1.clamp(0.0, width), y1.clamp(0.0, height), x2.clamp(0.0, width), y2.clamp(0.0, height)])
}

/// Returns attributes by name, without scores.
fn plain(attributes: &AttributesMessage) -> BTreeMap<String, PlainAttribute> {
    attributes.0.iter().map(|(name, attribute)| (name.to_string(), attribute.into())).collect()
}

/// Whether two sets of attributes differ by numbers and scores only.
fn has_same_labels(a: &AttributesMessage, b: &AttributesMessage) -> bool {
    let labels = |attribute: &AttributeMessage| match attribute {
        AttributeMessage::Label(one) => vec![Arc::clone(&one.label)],
        AttributeMessage::Labels { labels } => labels.iter().map(|one| Arc::clone(&one.label)).collect(),
        AttributeMessage::Number { .. } => Vec::new(),
    };
    let names_and_labels = |attributes: &AttributesMessage| -> Vec<_> {
        attributes.0.iter().map(|(name, attribute)| (Arc::clone(name), labels(attribute))).collect()
    };
    names_and_labels(a) == names_and_labels(b)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn reason_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Over => "over",
        EndReason::TrackEnded => "track_ended",
        EndReason::TrackLost => "track_lost",
        EndReason::FramesMissing => "frames_missing",
        EndReason::Condition => "condition",
        EndReason::RuleOff => "rule_off",
        EndReason::RuleRemoved => "rule_removed",
        EndReason::CameraGone => "camera_gone",
        EndReason::Shutdown => "shutdown",
    }
}

#[cfg(test)]
mod tests;
