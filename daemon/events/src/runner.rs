//! A rule at work.

use std::sync::Arc;
use std::time::Duration;

use crate::crossing::{Crossing, Side};
use crate::event::{Counters, EndReason, Event, Phase, Sink};
use crate::geometry::{LIMIT, Point, Polygon, Polyline, Vector, snap};
use crate::glance::{Attention, Reach};
use crate::object::{Anchor, Sieve};
use crate::path::{SpareTrails, Trail};
use crate::plane::{Plane, Speedometer};
use crate::rule::{Belonging, Kind, MOST_POINTS, Rule, RuleError};
use crate::settled::Settled;
use crate::stillness::Stillness;
use crate::tracks::{PARKED_UNSEEN, Track, Tracks};
use crate::visit::{Visit, Visited};
use crate::watch::{Neighbours, Watch, Watched};
use crate::wrong_way::WrongWay;

const DISTANCE: &str = "`distance` must be more than 0 and less than 65,536 px";
const NEAR: &str = "`near` must be more than 0 and less than 65,536 px";

/// A frame, as all rules see it.
pub(crate) struct Frame<'a> {
    /// The scene's time.
    pub(crate) now: Duration,
    /// The span since the last frame.
    pub(crate) elapsed: Duration,
    /// The frame's size in units.
    pub(crate) size: [i32; 2],
    pub(crate) tracks: &'a Tracks,
    /// Whether the rule's conditions hold.
    pub(crate) gate: bool,
}

/// What a rule looks for, in units and checked.
#[derive(Debug)]
enum Method {
    Line(Polyline, [Arc<str>; 2]),
    Zone,
    Dwell(Duration),
    Loitering { time: Duration, away: Duration },
    Count { least: u32, most: u32, lasting: Duration },
    Stopped { distance: i64, time: Duration },
    WrongWay { direction: Vector, distance: i64 },
    Speed { plane: Plane, at_least: f64, at_most: f64, over: Duration },
    LeftBehind(Belongings),
    TakenAway(Belongings),
}

#[derive(Debug)]
struct Belongings {
    distance: i64,
    time: Duration,
    owners: Vec<u32>,
    near: i64,
}

/// What a rule of one kind knows of a track, beyond its visit.
#[derive(Debug)]
enum Memory {
    None,
    Line(Crossing),
    /// The total of visits that are over, and when the last one ended.
    Loitering(Duration, Option<Duration>),
    Stopped(Option<Stillness>),
    WrongWay(Option<(WrongWay, Settled<bool>)>),
    // By far the largest.
    Speed(Box<(Speedometer, Settled<bool>)>),
    Watch(Option<Watch>),
}

/// What a rule knows of a track.
#[derive(Debug)]
struct Record {
    /// The last time that the rule saw it.
    seen: Option<Duration>,
    visit: Visit,
    memory: Memory,
    /// Whether what the rule looks for holds, whatever the conditions say, and since when it does or does not.
    holds: bool,
    since: Duration,
    speed: Option<f32>,
    /// The event under way.
    event: Option<u64>,
    /// The way since it began.
    trail: Option<Box<Trail>>,
}

/// A count that is within its limits.
#[derive(Debug, Default)]
struct Group {
    /// Since when it is.
    within: Option<Duration>,
    event: Option<(u64, u32)>,
}

/// A rule at work.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) rule: Rule,
    pub(crate) counters: Counters,
    pub(crate) on: bool,
    pub(crate) reach: Reach,
    pub(crate) sieve: Sieve,
    method: Method,
    area: Option<Polygon>,
    records: Vec<Record>,
    group: Group,
    spare_trails: SpareTrails,
}

/// Whether candidates for an owner are near an object.
struct Owners<'a> {
    belongings: &'a Belongings,
    frame: &'a Frame<'a>,
    anchor: Anchor,
    slot: usize,
    point: Point,
}

impl Owners<'_> {
    fn point(&self, track: &Track) -> Point {
        self.anchor.of(&track.bounds, self.frame.size)
    }
}

impl Neighbours for Owners<'_> {
    fn is_near(&self, id: u64) -> Option<bool> {
        let track = self.frame.tracks.get(id)?;
        Some(self.point(track).is_within(self.point, self.belongings.near))
    }

    fn nearest(&self) -> Option<u64> {
        let candidates = self.frame.tracks.iter().filter(|(slot, track)| {
            *slot != self.slot && track.seen_now && self.belongings.owners.contains(&track.class_id)
        });
        candidates
            .map(|(_, track)| (self.point(track).minus(self.point).squared(), track.id))
            .filter(|(squared, _)| *squared <= self.belongings.near * self.belongings.near)
            .min()
            .map(|(_, id)| id)
    }
}

impl Record {
    fn new(method: &Method) -> Self {
        let memory = match method {
            Method::Zone | Method::Dwell(_) | Method::Count { .. } => Memory::None,
            Method::Line(..) => Memory::Line(Crossing::default()),
            Method::Loitering { .. } => Memory::Loitering(Duration::ZERO, None),
            Method::Stopped { .. } => Memory::Stopped(None),
            Method::WrongWay { .. } => Memory::WrongWay(None),
            Method::Speed { .. } => Memory::Speed(Box::new((Speedometer::new(), Settled::new(false, Duration::ZERO)))),
            Method::LeftBehind(_) | Method::TakenAway(_) => Memory::Watch(None),
        };
        let (seen, since) = (None, Duration::ZERO);
        Self { seen, visit: Visit::new(), memory, holds: false, since, speed: None, event: None, trail: None }
    }

    /// Forgets everything, and keeps the memory.
    fn clear(&mut self) {
        match &mut self.memory {
            Memory::None => {}
            Memory::Line(crossing) => *crossing = Crossing::default(),
            Memory::Loitering(total, left) => (*total, *left) = (Duration::ZERO, None),
            Memory::Stopped(still) => *still = None,
            Memory::WrongWay(way) => *way = None,
            Memory::Speed(speed) => **speed = (Speedometer::new(), Settled::new(false, Duration::ZERO)),
            Memory::Watch(watch) => *watch = None,
        }
        (self.seen, self.visit, self.holds, self.speed, self.event) = (None, Visit::new(), false, None, None);
    }

    /// Whether a fresh record would find the same events from now on; of a line, one that has the last point.
    fn is_idle(&self) -> bool {
        let is_outside = self.visit.is_outside() && !self.holds && self.event.is_none();
        match &self.memory {
            Memory::None => is_outside,
            Memory::Line(crossing) => crossing.is_settled(),
            Memory::Loitering(total, left) => is_outside && total.is_zero() && left.is_none(),
            Memory::WrongWay(way) => is_outside && way.is_none(),
            Memory::Stopped(_) | Memory::Speed(_) | Memory::Watch(_) => false,
        }
    }

    /// Sets whether it holds.
    fn set(&mut self, holds: bool, since: Duration) {
        if holds != self.holds {
            (self.holds, self.since) = (holds, since);
        }
    }
}

impl Runner {
    /// Checks a rule.
    pub(crate) fn new(rule: Rule) -> Result<Self, RuleError> {
        let name = || Arc::clone(&rule.name);
        let range = |problem| RuleError::Range { rule: name(), problem };
        let sieve =
            Sieve::new(&rule.filter).ok_or_else(|| range("each number of the filter must be a number, not NaN"))?;
        let points = |points: &[[f32; 2]]| -> Result<Vec<Point>, RuleError> {
            if points.len() > MOST_POINTS {
                return Err(RuleError::TooManyPoints { rule: name(), found: points.len() });
            }
            let within = |number: f32| snap(number).filter(|units| units.abs() < LIMIT);
            let point = |[x, y]: &[f32; 2]| Some(Point { x: within(*x)?, y: within(*y)? });
            let points: Option<Vec<Point>> = points.iter().map(point).collect();
            points.ok_or_else(|| range("each point must be within 65,536 px of the upper left corner"))
        };
        let distance = |pixels: f32, problem| {
            let units = snap(pixels).filter(|units| *units > 0 && *units < LIMIT);
            units.map(i64::from).ok_or_else(|| range(problem))
        };
        let belongings = |belonging: &Belonging| -> Result<Belongings, RuleError> {
            Ok(Belongings {
                distance: distance(belonging.distance, DISTANCE)?,
                time: belonging.time,
                owners: belonging.owners.clone(),
                near: distance(belonging.near, NEAR)?,
            })
        };
        let method = match &rule.kind {
            Kind::Line { points: line, sides } => {
                let line = Polyline::new(points(line)?);
                if !line.has_length() {
                    return Err(RuleError::NoLine { rule: name() });
                }
                if !rule.area.is_empty() {
                    return Err(RuleError::AreaOfLine { rule: name() });
                }
                Method::Line(line, sides.clone())
            }
            Kind::Zone => Method::Zone,
            Kind::Dwell { time } => Method::Dwell(*time),
            Kind::Loitering { time, away } => Method::Loitering { time: *time, away: *away },
            Kind::Occupancy { at_least: None, at_most: None, .. } => {
                return Err(range("`at_least` or `at_most` must be given"));
            }
            Kind::Occupancy { at_least, at_most, lasting } => {
                let (least, most) = (at_least.unwrap_or(0), at_most.unwrap_or(u32::MAX));
                if least > most {
                    return Err(range("`at_least` must be `at_most` or less"));
                }
                Method::Count { least, most, lasting: *lasting }
            }
            Kind::Absence { time } => Method::Count { least: 0, most: 0, lasting: *time },
            Kind::Stopped { distance: pixels, time } => {
                Method::Stopped { distance: distance(*pixels, DISTANCE)?, time: *time }
            }
            Kind::WrongWay { direction, distance: pixels } => {
                let [x, y] = direction.map(|part| snap(part).map(i64::from));
                let zero = || range("`direction` must be two numbers of which one is not 0");
                let direction = Vector { x: x.ok_or_else(zero)?, y: y.ok_or_else(zero)? };
                if direction.squared() == 0 {
                    return Err(zero());
                }
                Method::WrongWay { direction, distance: distance(*pixels, DISTANCE)? }
            }
            Kind::Speed { plane, at_least, at_most, over } => {
                let plane = Plane::new(plane).ok_or_else(|| RuleError::Plane { rule: name() })?;
                if at_least.is_none() && at_most.is_none() {
                    return Err(range("`at_least` or `at_most` must be given"));
                }
                if at_least.iter().chain(at_most).any(|limit| limit.is_nan() || *limit < 0.0) {
                    return Err(range("a limit of speed must be 0 or more"));
                }
                if over.is_zero() {
                    return Err(range("`over` must be more than 0"));
                }
                let (at_least, at_most) = (at_least.map_or(0.0, f64::from), at_most.map_or(f64::INFINITY, f64::from));
                Method::Speed { plane, at_least, at_most, over: *over }
            }
            Kind::LeftBehind(belonging) => Method::LeftBehind(belongings(belonging)?),
            Kind::TakenAway(belonging) => Method::TakenAway(belongings(belonging)?),
        };
        let area = if rule.area.is_empty() { None } else { Some(Polygon::new(points(&rule.area)?)) };
        if area.as_ref().is_some_and(|area| !area.has_area()) {
            return Err(RuleError::NoArea { rule: name() });
        }
        let (records, group, counters) = (Vec::new(), Group::default(), Counters::default());
        let reach = match (&method, &area) {
            (Method::Line(line, _), _) if !rule.parked => Reach::Line(line.bounds()),
            // Without `settle`, a path through the zone counts as well.
            (_, Some(_)) if rule.settle.is_zero() => Reach::Frame,
            // They remember nothing of a track outside.
            (Method::Zone | Method::Dwell(_) | Method::Loitering { .. }, Some(area)) => Reach::Zone(area.bounds()),
            (Method::Count { .. } | Method::WrongWay { .. }, Some(area)) => Reach::Zone(area.bounds()),
            _ => Reach::Frame,
        };
        let spare_trails = SpareTrails::default();
        Ok(Self { rule, counters, on: true, reach, sieve, method, area, records, group, spare_trails })
    }

    /// Whether it has an event under way.
    pub(crate) fn holds(&self) -> bool {
        self.counters.under_way > 0
    }

    /// Whether it keeps a parked object that its tracker has lost.
    fn keeps(&self, parked: bool) -> bool {
        self.rule.parked && parked
    }

    /// Takes in a frame, as the rule number `rule` of the scene. `attention` has one entry for each slot of a track. Returns whether it must
    /// take in the next frame also without a track to look at.
    pub(crate) fn step(
        &mut self,
        rule: usize,
        attention: &mut [Attention],
        frame: &Frame<'_>,
        sink: &mut Sink<'_>,
    ) -> bool {
        for ((slot, track), attention) in frame.tracks.places().zip(attention) {
            if let Some(track) = track.filter(|_| attention.looks.has(rule)) {
                self.look(rule, (slot, track), attention, frame, sink);
            }
        }
        match self.method {
            Method::Count { least, most, lasting } => self.count(least, most, lasting, frame, sink),
            _ => false,
        }
    }

    /// Looks at a track, and decides whether to follow it.
    fn look(
        &mut self,
        rule: usize,
        (slot, track): (usize, &Track),
        attention: &mut Attention,
        frame: &Frame<'_>,
        sink: &mut Sink<'_>,
    ) {
        if self.records.len() < frame.tracks.len() {
            self.records.resize_with(frame.tracks.len(), || Record::new(&self.method));
        }
        if let Some(before) = track.before.filter(|_| attention.saw.has(rule))
            && let Some(record) = self.records.get_mut(slot)
        {
            let last = self.rule.anchor.of(&before.bounds, frame.size);
            (record.seen, record.memory) = (Some(before.seen), Memory::Line(Crossing::beside(last, before.seen)));
        }
        let sees = track.seen_now && self.sieve.passes(&track.bounds, track.class_id, track.score);
        self.look_for_gap(slot, track, sees, frame, sink);
        if sees {
            self.sight(slot, track, frame, sink);
        }
        self.report(slot, track, frame, sink);
        if track.ended && !self.keeps(track.parked) {
            self.lose(slot, track.id, EndReason::TrackEnded, frame.now, sink);
        }
        let Some(record) = self.records.get_mut(slot) else { return };
        let saw = matches!(self.reach, Reach::Line(_)) && sees && record.is_idle();
        if saw || matches!(self.reach, Reach::Zone(_)) && record.is_idle() {
            record.clear();
        }
        attention.saw.set(rule, saw);
        attention.follows.set(rule, record.seen.is_some());
    }

    /// Ends what was known of a track that the rule has not seen for too long.
    fn look_for_gap(&mut self, slot: usize, track: &Track, sees: bool, frame: &Frame<'_>, sink: &mut Sink<'_>) {
        let Some(seen) = self.records.get(slot).and_then(|record| record.seen) else { return };
        let gap = frame.now.saturating_sub(seen);
        if gap <= self.rule.hold {
            return;
        }
        // What is parked is either unseen or at its place.
        let waits = self.keeps(track.was_parked) && gap <= PARKED_UNSEEN && (!sees || track.parked);
        if !waits {
            let missing = frame.elapsed > self.rule.hold;
            let reason = if missing { EndReason::FramesMissing } else { EndReason::TrackLost };
            self.lose(slot, track.id, reason, frame.now, sink);
        }
    }

    /// Ends what was known of a track.
    pub(crate) fn lose(&mut self, slot: usize, track: u64, reason: EndReason, now: Duration, sink: &mut Sink<'_>) {
        let Some(record) = self.records.get_mut(slot) else { return };
        let Some(seen) = record.seen else { return };
        if record.visit.is_inside() {
            self.counters.inside = self.counters.inside.saturating_sub(1);
            sink.has_moves = true;
        }
        let ago = now.saturating_sub(seen);
        if let Some(id) = record.event {
            self.counters.under_way = self.counters.under_way.saturating_sub(1);
            self.counters.ended += 1;
            let path = record.trail.take().map(|trail| self.spare_trails.end(trail)).unwrap_or_default();
            if let Some(event) = end(sink, id, &self.rule.name, Some(track), reason, ago) {
                event.path = path;
            }
        }
        // `holds` of a thing that may be taken away: it was at its place, its owner was not, and the conditions held.
        let is_track = matches!(reason, EndReason::TrackEnded | EndReason::TrackLost);
        if matches!(self.method, Method::TakenAway(_)) && record.holds && is_track {
            self.counters.taken += 1;
            moment(sink, &self.rule.name, track, ago);
        }
        record.clear();
    }

    /// Takes in that the rule sees a track.
    fn sight(&mut self, slot: usize, track: &Track, frame: &Frame<'_>, sink: &mut Sink<'_>) {
        let Self { rule, counters, method, area, records, .. } = self;
        let Some(record) = records.get_mut(slot) else { return };
        let (now, settle) = (frame.now, rule.settle);
        let point = rule.anchor.of(&track.bounds, frame.size);
        record.seen = Some(now);
        if let (Method::Line(line, sides), Memory::Line(crossing)) = (&*method, &mut record.memory) {
            if let Some(side) = crossing.sight(line, point, now, settle).filter(|_| frame.gate) {
                let to = usize::from(side == Side::Right);
                if let (Some(counter), Some(name)) = (counters.crossed_to.get_mut(to), sides.get(to)) {
                    *counter += 1;
                    let ago = now.saturating_sub(crossing.since().unwrap_or(now));
                    if let Some(event) = moment(sink, &rule.name, track.id, ago) {
                        event.to = Some(Arc::clone(name));
                    }
                }
            }
            return;
        }
        let entered_before = record.visit.since();
        let visited = record.visit.sight(area.as_ref(), point, now, settle);
        match visited {
            Visited::Entered => counters.inside += 1,
            Visited::Left => counters.inside = counters.inside.saturating_sub(1),
            Visited::Same | Visited::Passed => {}
        }
        sink.has_moves |= matches!(visited, Visited::Entered | Visited::Left);
        if let (Some(_), Some(trail)) = (record.event, &mut record.trail) {
            trail.add(point);
        }
        let (inside, visit_since) = (record.visit.is_inside(), record.visit.since());
        let lasted = now.saturating_sub(visit_since);
        // What holds may last over a sighting outside, but does not begin with one.
        let sure = record.holds || record.visit.is_seen_inside();
        // Of what must be inside: since when both hold.
        let both = |since: Duration| since.max(visit_since);
        let over = if visited == Visited::Left { visit_since } else { now };
        match (&*method, &mut record.memory) {
            (Method::Zone, _) => {
                record.set(inside, visit_since);
                if visited == Visited::Passed && frame.gate {
                    counters.begun += 1;
                    counters.ended += 1;
                    let id = sink.ids.take();
                    sink.push(id, &rule.name, Phase::Begin, Some(track.id));
                    end(sink, id, &rule.name, Some(track.id), EndReason::Over, Duration::ZERO);
                }
            }
            (Method::Dwell(time), _) => {
                let holds = inside && sure && lasted >= *time;
                record.set(holds, if holds { visit_since } else { over });
            }
            (Method::Loitering { time, away }, Memory::Loitering(total, left)) => {
                if visited == Visited::Left {
                    *total = total.saturating_add(visit_since.saturating_sub(entered_before));
                    *left = Some(visit_since);
                }
                let gap = left.map(|left| if inside { visit_since } else { now }.saturating_sub(left));
                // A sighting inside that has not settled may turn out to be a return in time.
                if gap.is_some_and(|gap| gap > *away) && record.visit.is_seen_inside() == inside {
                    (*total, *left) = (Duration::ZERO, None);
                }
                if inside {
                    *left = None;
                }
                let total = if inside { total.saturating_add(lasted) } else { *total };
                let holds = total >= *time && sure && (inside || record.holds);
                record.set(holds, now);
            }
            (Method::Stopped { distance, time }, Memory::Stopped(still)) => {
                let still = still.get_or_insert(Stillness::new(point, now));
                still.sight(point, now, *distance, settle);
                let since = both(still.since());
                let sure = sure && (record.holds || still.is_there());
                let holds = inside && sure && now.saturating_sub(since) >= *time;
                record.set(holds, if holds { since } else { over });
            }
            (Method::WrongWay { direction, distance }, Memory::WrongWay(memory)) => {
                if !inside {
                    *memory = None;
                } else {
                    let (way, wrong) = memory.get_or_insert((WrongWay::new(point), Settled::new(false, now)));
                    let is_wrong = way.sight(point, *direction, *distance);
                    wrong.sight(is_wrong, now, settle);
                }
                let wrong = memory.as_ref().map(|(_, wrong)| *wrong);
                let holds = wrong.is_some_and(|wrong| wrong.state);
                record.set(holds, wrong.map_or(over, |wrong| wrong.since));
            }
            (Method::Speed { plane, at_least, at_most, over: span }, Memory::Speed(memory)) => {
                let (speedometer, beyond) = &mut **memory;
                let speed = plane.project(point).and_then(|place| speedometer.sight(place, now, *span));
                if let Some(speed) = speed {
                    beyond.sight((*at_least..=*at_most).contains(&speed), now, settle);
                    record.speed = Some(speed as f32);
                }
                let (holds, since) = (inside && beyond.state, both(beyond.since));
                record.set(holds, if holds { since } else { over });
            }
            (Method::LeftBehind(belongings) | Method::TakenAway(belongings), Memory::Watch(memory)) => {
                let owners = Owners { belongings, frame, anchor: rule.anchor, slot, point };
                let watch = memory.get_or_insert_with(|| Watch::new(point, now));
                let watched = watch.sight(point, &owners, now, belongings.distance, settle);
                let Watched { still_since, alone_since, moved_from } = watched;
                let stays = |since: Duration| now.saturating_sub(both(since)) >= belongings.time;
                if let Method::LeftBehind(_) = method {
                    let since = alone_since.map(|alone| alone.max(still_since));
                    let holds = inside && sure && since.is_some_and(stays);
                    record.set(holds, if holds { both(since.unwrap_or(now)) } else { over });
                } else {
                    // Its owner may take it, and so may a condition.
                    let alone = alone_since.is_some() && frame.gate;
                    if (moved_from.is_some() || visited == Visited::Left) && record.holds && alone {
                        counters.taken += 1;
                        moment(sink, &rule.name, track.id, Duration::ZERO);
                    }
                    record.holds = inside && stays(still_since) && alone;
                }
            }
            _ => {}
        }
    }

    /// Begins, changes or ends the event of a track.
    fn report(&mut self, slot: usize, track: &Track, frame: &Frame<'_>, sink: &mut Sink<'_>) {
        let Self { rule, counters, method, records, spare_trails, .. } = self;
        let Some(record) = records.get_mut(slot) else { return };
        if !rule.kind.lasts() || matches!(method, Method::Count { .. }) {
            return;
        }
        let ago = frame.now.saturating_sub(record.since);
        match record.event {
            None if record.holds && frame.gate => {
                let id = sink.ids.take();
                (record.event, counters.under_way, counters.begun) =
                    (Some(id), counters.under_way + 1, counters.begun + 1);
                record.trail = record.visit.last().map(|point| spare_trails.begin(point));
                if let Some(event) = sink.push(id, &rule.name, Phase::Begin, Some(track.id)) {
                    (event.ago, event.speed) = (ago, record.speed);
                }
            }
            Some(id) if !record.holds || !frame.gate => {
                (record.event, counters.under_way, counters.ended) =
                    (None, counters.under_way.saturating_sub(1), counters.ended + 1);
                let (reason, ago) =
                    if record.holds { (EndReason::Condition, Duration::ZERO) } else { (EndReason::Over, ago) };
                let path = record.trail.take().map(|trail| spare_trails.end(trail)).unwrap_or_default();
                if let Some(event) = end(sink, id, &rule.name, Some(track.id), reason, ago) {
                    event.path = path;
                }
            }
            Some(id) if track.renamed => {
                sink.push(id, &rule.name, Phase::Update, Some(track.id));
            }
            _ => {}
        }
    }

    /// Begins, changes or ends the event of a count; returns whether the count is within its limits.
    fn count(&mut self, least: u32, most: u32, lasting: Duration, frame: &Frame<'_>, sink: &mut Sink<'_>) -> bool {
        let Self { rule, counters, group, .. } = self;
        let count = counters.inside;
        // Nothing is known of the time without frames.
        let missing = frame.elapsed > rule.hold;
        let is_within = (least..=most).contains(&count);
        if !is_within || missing {
            group.within = None;
        }
        let ends = if missing {
            Some(EndReason::FramesMissing)
        } else if !is_within {
            Some(EndReason::Over)
        } else {
            (!frame.gate).then_some(EndReason::Condition)
        };
        if let Some(reason) = ends
            && let Some((id, _)) = group.event.take()
        {
            (counters.under_way, counters.ended) = (counters.under_way.saturating_sub(1), counters.ended + 1);
            if let Some(event) = end(sink, id, &rule.name, None, reason, Duration::ZERO) {
                event.count = Some(count);
            }
        }
        if !is_within {
            return false;
        }
        let ago = frame.now.saturating_sub(*group.within.get_or_insert(frame.now));
        match &mut group.event {
            None if frame.gate && ago >= lasting => {
                let id = sink.ids.take();
                (group.event, counters.under_way, counters.begun) =
                    (Some((id, count)), counters.under_way + 1, counters.begun + 1);
                if let Some(event) = sink.push(id, &rule.name, Phase::Begin, None) {
                    (event.ago, event.count) = (ago, Some(count));
                }
            }
            Some((id, last)) if *last != count => {
                *last = count;
                if let Some(event) = sink.push(*id, &rule.name, Phase::Update, None) {
                    event.count = Some(count);
                }
            }
            _ => {}
        }
        true
    }

    /// Ends all events, and forgets all tracks. Totals stay.
    pub(crate) fn finish(&mut self, reason: EndReason, tracks: &Tracks, now: Duration, sink: &mut Sink<'_>) {
        for (slot, track) in tracks.iter() {
            self.lose(slot, track.id, reason, now, sink);
        }
        if let Some((id, _)) = std::mem::take(&mut self.group).event {
            self.counters.ended += 1;
            if let Some(event) = end(sink, id, &self.rule.name, None, reason, Duration::ZERO) {
                event.count = Some(self.counters.inside);
            }
        }
        self.counters.under_way = 0;
    }
}

fn end<'a>(
    sink: &'a mut Sink<'_>,
    id: u64,
    rule: &Arc<str>,
    track: Option<u64>,
    reason: EndReason,
    ago: Duration,
) -> Option<&'a mut Event> {
    let event = sink.push(id, rule, Phase::End, track)?;
    (event.ago, event.reason) = (ago, Some(reason));
    Some(event)
}

fn moment<'a>(sink: &'a mut Sink<'_>, rule: &Arc<str>, track: u64, ago: Duration) -> Option<&'a mut Event> {
    let id = sink.ids.take();
    let event = sink.push(id, rule, Phase::Moment, Some(track))?;
    event.ago = ago;
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_knows_of_a_track_is_as_small_as_the_documents_say() {
        let (record, speedometer) = (size_of::<Record>(), size_of::<(Speedometer, Settled<bool>)>());
        assert!(record <= 256 && record + speedometer <= 576, "{record} {speedometer}");
    }
}
