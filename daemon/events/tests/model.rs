//! Random tracks, clocks and rules: the events are those of a model that computes each frame's events from all sightings so far.
//!
//! The model keeps no state. Its times are whole microseconds and its positions whole steps of 1/32 px, in numbers of 128 bits. Where a path
//! meets a line exactly, it moves path and ends of the line by tiny whole distances in a finer grid, so that no case is left over.
//!
//! Speeds are the exception: both compute with fractions, and no limit equals the speed between two steps.
//!
//! `EVENTS_CASES=100000 EVENTS_SEED=8 cargo test -p visiond-events --test model` tries more of them, and others.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use visiond_events::{Anchor, Belonging, EndReason, Event, Filter, Kind, Object, Phase, Rule, Scene};

/// Steps per pixel, and the side of the frame in pixels.
const STEPS: i128 = 32;
const SIDE: u32 = 16;

type At = (i128, i128);

/// An object in a frame: its track, its anchor, whether its score is high, and its class.
type Seen = (u64, At, bool, u32);

#[derive(Debug, Clone)]
struct Shot {
    /// Microseconds to the frame before, perhaps back.
    after: i64,
    seen: Vec<Seen>,
    ended: Vec<u64>,
}

#[derive(Debug, Clone)]
enum Look {
    Line(Vec<At>),
    Zone,
    Dwell(i64),
    Loitering(i64, i64),
    Count(u32, u32, i64),
    Stopped(i128, i64),
    /// The right direction and the distance.
    WrongWay(At, i128),
    /// Whether the ground is seen aslant, its limits and the span.
    Speed(bool, f32, f32, i64),
    LeftBehind(Thing),
    TakenAway(Thing),
}

/// A thing with an owner: the distance at one place, the time, classes of owners, and how near they are.
#[derive(Debug, Clone)]
struct Thing {
    distance: i128,
    time: i64,
    owners: Vec<u32>,
    near: i128,
}

impl Look {
    fn is_moment(&self) -> bool {
        matches!(self, Self::Line(_) | Self::TakenAway(_))
    }
}

/// The place on the ground of a point of the frame.
fn ground(aslant: bool, p: At) -> [f64; 2] {
    let [x, y] = [p.0, p.1].map(|steps| steps as f64 / STEPS as f64);
    // The horizon is one height of the frame above it.
    if aslant { [16.0 * x / (y + 16.0), 16.0 * y / (y + 16.0)] } else { [2.0 * x, 2.0 * y] }
}

fn spread(points: &[At], part: fn(&At) -> i128) -> i128 {
    points.iter().map(part).max().unwrap() - points.iter().map(part).min().unwrap()
}

fn are_within(points: &[At], distance: i128) -> bool {
    spread(points, |p| p.0) <= distance && spread(points, |p| p.1) <= distance
}

fn squared(a: At, b: At) -> i128 {
    (a.0 - b.0).pow(2) + (a.1 - b.1).pow(2)
}

/// A thing after all sightings of a segment.
struct Watched {
    still_since: i64,
    alone_since: Option<i64>,
    has_moved: bool,
}

#[derive(Debug, Clone)]
struct Plan {
    look: Look,
    /// Empty: the whole frame.
    area: Vec<At>,
    settle: i64,
    hold: i64,
    high_only: bool,
    class: Option<u32>,
    /// Index of an earlier rule, and whether this rule needs it or is barred by it.
    condition: Option<(usize, bool)>,
}

/// An event: rule, track, phase, reason, microseconds ago, count, whether it crossed to the right.
type Told = (usize, Option<u64>, Phase, Option<EndReason>, i64, Option<u32>, Option<bool>);

fn cross(o: At, a: At, b: At) -> i128 {
    (a.0 - o.0) * (b.1 - o.1) - (a.1 - o.1) * (b.0 - o.0)
}

/// Whether a point is on a segment: its foot on the line is itself, between the ends.
fn on(a: At, b: At, p: At) -> bool {
    let (d, v) = ((b.0 - a.0, b.1 - a.1), (p.0 - a.0, p.1 - a.1));
    let (length, along) = (d.0 * d.0 + d.1 * d.1, d.0 * v.0 + d.1 * v.1);
    if length == 0 {
        return p == a;
    }
    (0..=length).contains(&along) && v.0 * length == d.0 * along && v.1 * length == d.1 * along
}

fn ring(area: &[At]) -> impl Iterator<Item = (At, At)> + '_ {
    (0..area.len()).map(|index| (area[index], area[(index + 1) % area.len()]))
}

/// Whether a point is in a zone: on its edge, or a ray that can meet no corner meets an odd number of edges.
fn inside(area: &[At], p: At) -> bool {
    let far = (p.0 + (1 << 20), p.1 + 1);
    area.is_empty()
        || ring(area).any(|(a, b)| on(a, b, p))
        || ring(area)
            .filter(|&(a, b)| {
                let apart = |x: i128, y: i128| (x > 0) != (y > 0);
                apart(cross(p, far, a), cross(p, far, b)) && apart(cross(a, b, p), cross(a, b, far))
            })
            .count()
            % 2
            == 1
}

/// Whether a path touches the edge of a zone: by Cramer's rule, or in line with it.
fn touches(area: &[At], from: At, to: At) -> bool {
    ring(area).any(|(a, b)| {
        let (r, s, q) = ((to.0 - from.0, to.1 - from.1), (b.0 - a.0, b.1 - a.1), (a.0 - from.0, a.1 - from.1));
        let cross = |a: At, b: At| a.0 * b.1 - a.1 * b.0;
        let (whole, t, u) = (cross(r, s), cross(q, s), cross(q, r));
        if whole == 0 {
            return on(from, to, a) || on(from, to, b) || on(a, b, from) || on(a, b, to);
        }
        let part = |x: i128| (0..=whole.abs()).contains(&(x * whole.signum()));
        part(t) && part(u)
    })
}

/// How often a path crosses a line to the right, less to the left.
fn crossings(line: &[At], from: At, to: At) -> i32 {
    const FINE: i128 = 1 << 46;
    const END: i128 = 1 << 24;
    const NUDGE: At = (1 << 12, 1);
    let mut line = line.to_vec();
    line.dedup();
    let nudged = |p: At| (p.0 * FINE + NUDGE.0, p.1 * FINE + NUDGE.1);
    let (p, q) = (nudged(from), nudged(to));
    let mut fine: Vec<At> = line.iter().map(|p| (p.0 * FINE, p.1 * FINE)).collect();
    if line.len() == 2 || line.first() != line.last() {
        let last = line.len() - 1;
        fine[0].0 -= (line[1].0 - line[0].0) * END;
        fine[0].1 -= (line[1].1 - line[0].1) * END;
        fine[last].0 += (line[last].0 - line[last - 1].0) * END;
        fine[last].1 += (line[last].1 - line[last - 1].1) * END;
    }
    if from == to {
        return 0;
    }
    let mut net = 0;
    for (a, b) in fine.windows(2).map(|pair| (pair[0], pair[1])) {
        let signs = [cross(a, b, p), cross(a, b, q), cross(p, q, a), cross(p, q, b)].map(i128::signum);
        assert!(signs.iter().all(|sign| *sign != 0), "{signs:?}");
        if signs[0] != signs[1] && signs[2] != signs[3] {
            net += signs[1] as i32;
        }
    }
    net
}

/// A sighting: its frame, time and point.
type Sight = (usize, i64, At);

struct Model<'a> {
    plans: &'a [Plan],
    shots: &'a [Shot],
    /// The scene's time of each frame.
    times: Vec<i64>,
}

/// The state of something that must settle, after all sightings: the last value that lasted, and its first sighting.
fn settled<T: Copy + PartialEq>(first: Option<T>, seen: &[(i64, T)], settle: i64) -> Option<(T, i64)> {
    settled_since(first.map(|first| (first, 0)), seen, settle)
}

/// The same, with the state before and its time.
fn settled_since<T: Copy + PartialEq>(first: Option<(T, i64)>, seen: &[(i64, T)], settle: i64) -> Option<(T, i64)> {
    let mut lasting: Vec<(T, i64)> = first.into_iter().collect();
    for run in seen.chunk_by(|a, b| a.1 == b.1) {
        let (begin, value) = run[0];
        if run.last().unwrap().0 - begin >= settle || lasting.is_empty() {
            lasting.push((value, begin));
        }
    }
    // Of the last runs of one value, the first.
    lasting.chunk_by(|a, b| a.0 == b.0).last().map(|runs| runs[0])
}

impl Model<'_> {
    /// The sightings of a track by a rule up to a frame, since the last break.
    fn segment(&self, rule: usize, track: u64, frame: usize) -> Vec<Sight> {
        let plan = &self.plans[rule];
        let mut segment: Vec<Sight> = Vec::new();
        for index in 0..=frame {
            if segment.last().is_some_and(|last| self.times[index] - last.1 > plan.hold) {
                segment.clear();
            }
            // The first box of a track counts.
            let seen = self.shots[index].seen.iter().find(|seen| seen.0 == track);
            if let Some(&(_, at, high, class)) = seen
                && (high || !plan.high_only)
                && plan.class.is_none_or(|wanted| wanted == class)
            {
                let side = i128::from(SIDE) * STEPS;
                segment.push((index, self.times[index], (at.0.clamp(0, side), at.1.clamp(0, side))));
            }
            if index < frame && self.shots[index].ended.contains(&track) {
                segment.clear();
            }
        }
        segment
    }

    fn visit(&self, rule: usize, segment: &[Sight]) -> (bool, i64) {
        let plan = &self.plans[rule];
        let seen: Vec<(i64, bool)> = segment.iter().map(|&(_, at, p)| (at, inside(&plan.area, p))).collect();
        settled(Some(false), &seen, plan.settle).unwrap()
    }

    fn side(&self, rule: usize, line: &[At], segment: &[Sight]) -> Option<(i32, i64)> {
        let mut sum = 0;
        let mut seen = Vec::new();
        for (index, &(_, at, p)) in segment.iter().enumerate() {
            sum += if index > 0 { crossings(line, segment[index - 1].2, p) } else { 0 };
            if !line.windows(2).any(|pair| on(pair[0], pair[1], p)) {
                seen.push((at, sum));
            }
        }
        settled(None, &seen, self.plans[rule].settle)
    }

    /// For each sighting: since when the object is at its place, and whether that is a new one.
    fn places(&self, rule: usize, distance: i128, segment: &[Sight]) -> Vec<(i64, bool)> {
        let (mut place, mut since, mut misfits) = (Vec::new(), segment[0].1, Vec::new());
        let mut all = Vec::new();
        for &(_, at, p) in segment {
            let mut has_moved = false;
            let with: Vec<At> = place.iter().copied().chain([p]).collect();
            if are_within(&with, distance) {
                place = with;
                misfits.clear();
            } else {
                misfits.push(at);
                if at - misfits[0] >= self.plans[rule].settle {
                    (place, since, has_moved) = (vec![p], at, true);
                    misfits.clear();
                }
            }
            all.push((since, has_moved));
        }
        all
    }

    /// Where a track was last seen, if the scene knows it while rules look at a frame.
    fn last_seen(&self, track: u64, frame: usize) -> Option<(usize, At, u32)> {
        let longest = self.plans.iter().map(|plan| plan.hold).max().unwrap();
        if self.shots[..=frame].iter().any(|shot| shot.ended.contains(&track)) {
            return None;
        }
        let seen = |index: usize| self.shots[index].seen.iter().find(|seen| seen.0 == track).map(|seen| (index, seen));
        let (index, seen) = (0..=frame).rev().find_map(seen)?;
        let side = i128::from(SIDE) * STEPS;
        let at = (seen.1.0.clamp(0, side), seen.1.1.clamp(0, side));
        (index == frame || self.times[frame - 1] - self.times[index] <= longest).then_some((index, at, seen.3))
    }

    fn nearest_owner(&self, thing: &Thing, track: u64, (frame, _, here): Sight) -> Option<u64> {
        let shown = self.shots[frame].seen.iter().map(|seen| seen.0).filter(|id| *id != track);
        let side = i128::from(SIDE) * STEPS;
        let place = |id: u64| {
            let seen = self.shots[frame].seen.iter().find(|seen| seen.0 == id).unwrap();
            let at = (seen.1.0.clamp(0, side), seen.1.1.clamp(0, side));
            thing.owners.contains(&seen.3).then(|| (squared(at, here), id))
        };
        shown.filter_map(place).filter(|(squared, _)| *squared <= thing.near * thing.near).min().map(|(_, id)| id)
    }

    fn watched(&self, rule: usize, thing: &Thing, track: u64, segment: &[Sight]) -> Watched {
        let settle = self.plans[rule].settle;
        let places = self.places(rule, thing.distance, segment);
        // Its owner at each sighting: the last one that was near while the thing was new at a place.
        let mut attended = Vec::new();
        for count in 0..segment.len() {
            let owner = (0..=count).rev().find_map(|index| {
                let (_, at, _) = segment[index];
                let is_new = at - places[index].0 < settle || at == places[index].0;
                let owner = is_new.then(|| self.nearest_owner(thing, track, segment[index])).flatten();
                owner.map(|id| (index, id))
            });
            let is_near = |id: u64, (frame, _, here): Sight| {
                self.last_seen(id, frame).map(|(_, at, _)| squared(at, here) <= thing.near * thing.near)
            };
            let any = || self.nearest_owner(thing, track, segment[count]).is_some();
            attended.push((
                segment[count].1,
                match owner {
                    None => any(),
                    // The first sighting since then at which its track had ended.
                    Some((from, id)) => match (from..=count).find(|&index| is_near(id, segment[index]).is_none()) {
                        None => is_near(id, segment[count]).unwrap(),
                        // It was near when it was chosen.
                        Some(end) if end == from || is_near(id, segment[end - 1]) == Some(true) => any(),
                        Some(_) => false,
                    },
                },
            ));
        }
        // Before the first sighting it is not attended.
        let (is_attended, since) = settled_since(Some((false, segment[0].1)), &attended, settle).unwrap();
        let (still_since, has_moved) = *places.last().unwrap();
        Watched { still_since, alone_since: (!is_attended).then_some(since), has_moved }
    }

    /// Whether what a rule looks for holds after all sightings of a segment, and since when it does or does not.
    fn holds(&self, rule: usize, track: u64, segment: &[Sight]) -> (bool, i64) {
        let Some((&(_, now, here), before)) = segment.split_last() else { return (false, 0) };
        let plan = &self.plans[rule];
        let (is_inside, since) = self.visit(rule, segment);
        let is_seen = inside(&plan.area, here);
        let over = |before: &dyn Fn() -> (bool, i64)| {
            let (held, last) = before();
            let left = !is_inside && self.visit(rule, before_of(segment)).0;
            if held { (false, if left { since } else { now }) } else { (false, last) }
        };
        let earlier = || self.holds(rule, track, before);
        match &plan.look {
            Look::Zone => (is_inside, since),
            Look::Dwell(time) => {
                let held = is_inside && earlier().0;
                if is_inside && now - since >= *time && (is_seen || held) { (true, since) } else { over(&earlier) }
            }
            Look::Loitering(time, away) => {
                let (held, last) = earlier();
                let mut total = 0;
                let mut left: Option<i64> = None;
                // All visits so far, from first sightings inside to first sightings outside.
                let mut visits: Vec<(i64, Option<i64>)> = Vec::new();
                for count in 1..=segment.len() {
                    match (self.visit(rule, &segment[..count]), visits.last_mut()) {
                        ((true, since), Some(visit)) if visit.1.is_some() || visit.0 != since => {
                            visits.push((since, None))
                        }
                        ((true, since), None) => visits.push((since, None)),
                        ((false, since), Some(visit)) if visit.1.is_none() => visit.1 = Some(since),
                        _ => {}
                    }
                }
                for (from, to) in &visits {
                    if left.is_some_and(|left| from - left > *away) {
                        total = 0;
                    }
                    total += to.unwrap_or(now) - from;
                    left = *to;
                }
                // Seen outside for too long.
                let outside = |sight: &&Sight| left.is_some_and(|left| sight.1 - left > *away && sight.1 >= left);
                if !is_inside && segment.iter().filter(outside).any(|sight| !inside(&plan.area, sight.2)) {
                    total = 0;
                }
                let holds = total >= *time && (held || is_inside && is_seen);
                (holds, if holds == held { last } else { now })
            }
            Look::Stopped(distance, time) => {
                // A place has the sightings that fit; the last of those that did not fit for `settle` begins the next one.
                let fits = |place: &[At], p: At| {
                    let with: Vec<At> = place.iter().copied().chain([p]).collect();
                    are_within(&with, *distance)
                };
                let (mut place, mut from, mut misfits) = (Vec::new(), segment[0].1, Vec::new());
                for &(_, at, p) in segment {
                    if fits(&place, p) {
                        place.push(p);
                        misfits.clear();
                    } else {
                        misfits.push(at);
                        if at - misfits[0] >= plan.settle {
                            (place, from) = (vec![p], at);
                            misfits.clear();
                        }
                    }
                }
                let since = from.max(since);
                let (held, last) = earlier();
                let sure = held || is_seen && misfits.is_empty();
                if is_inside && now - since >= *time && sure {
                    (true, if held { last } else { since })
                } else {
                    over(&|| (held, last))
                }
            }
            Look::WrongWay(direction, distance) => {
                let (held, last) = earlier();
                // The sightings since it is inside.
                let visited = |count: &usize| self.visit(rule, &segment[..*count]).0;
                let begin = (1..=segment.len()).rev().take_while(visited).last().filter(|_| is_inside);
                let Some(begin) = begin else { return over(&|| (held, last)) };
                let seen = &segment[begin - 1..];
                // From the point furthest along, it has moved far enough for a new way.
                let (mut furthest, mut wrong) = (seen[0].2, false);
                let mut ways = Vec::new();
                for &(_, at, p) in seen {
                    let along = (p.0 - furthest.0) * direction.0 + (p.1 - furthest.1) * direction.1;
                    let across = (p.0 - furthest.0) * direction.1 - (p.1 - furthest.1) * direction.0;
                    if squared(p, furthest) >= distance * distance {
                        wrong = along < 0 && across.abs() <= along.abs();
                        furthest = p;
                    } else if along == 0 || (along < 0) == wrong {
                        furthest = p;
                    }
                    ways.push((at, wrong));
                }
                let (holds, since) = settled_since(Some((false, seen[0].1)), &ways, plan.settle).unwrap();
                (holds, if holds == held { last } else { since })
            }
            Look::Speed(aslant, at_least, at_most, span) => {
                let (held, last) = earlier();
                let mut kept: Vec<(i64, [f64; 2])> = Vec::new();
                let mut seen = Vec::new();
                for &(_, at, p) in segment {
                    let [x, y] = ground(*aslant, p);
                    if let Some((from, [u, v])) = kept.iter().rev().find(|(from, _)| at - from >= *span) {
                        let speed = ((x - u).powi(2) + (y - v).powi(2)).sqrt() / ((at - from) as f64 / 1e6);
                        seen.push((at, (f64::from(*at_least)..=f64::from(*at_most)).contains(&speed)));
                    }
                    if kept.last().is_none_or(|(from, _)| 4 * (at - from) >= *span) {
                        kept.push((at, [x, y]));
                    }
                }
                let (is_within, from) = settled(Some(false), &seen, plan.settle).unwrap();
                if is_inside && is_within {
                    (true, if held { last } else { since.max(from) })
                } else {
                    over(&|| (held, last))
                }
            }
            Look::LeftBehind(thing) => {
                let (held, last) = earlier();
                let Watched { still_since, alone_since, .. } = self.watched(rule, thing, track, segment);
                let from = alone_since.map(|alone| alone.max(still_since).max(since));
                let stays = from.is_some_and(|from| now - from >= thing.time);
                if is_inside && stays && (held || is_seen) {
                    (true, if held { last } else { from.unwrap() })
                } else {
                    over(&|| (held, last))
                }
            }
            Look::Line(_) | Look::Count(..) | Look::TakenAway(_) => (false, 0),
        }
    }

    /// The events of all frames.
    fn run(&self) -> Vec<Vec<Told>> {
        let mut all = vec![Vec::new(); self.shots.len()];
        let tracks: BTreeSet<u64> = self.shots.iter().flat_map(|shot| shot.seen.iter().map(|seen| seen.0)).collect();
        // For each rule and frame: the events under way after it.
        let mut under_way: Vec<Vec<u32>> = Vec::new();
        for (rule, plan) in self.plans.iter().enumerate() {
            let gate =
                |frame: usize| plan.condition.is_none_or(|(other, needed)| (under_way[other][frame] > 0) == needed);
            let mut counts = vec![0; self.shots.len()];
            let mut insiders = vec![0; self.shots.len()];
            for &track in &tracks {
                let mut active = false;
                let mut last: Vec<Sight> = Vec::new();
                // Of a thing that may be taken away: it was at its place, without its owner.
                let mut stood = false;
                for frame in 0..self.shots.len() {
                    let now = self.times[frame];
                    let mut tell =
                        |phase, reason, ago, to| all[frame].push((rule, Some(track), phase, reason, ago, None, to));
                    let segment = self.segment(rule, track, frame);
                    let is_new = |sight: &Sight| sight.0 == frame;
                    if let Some(seen) = last.last()
                        && segment.first().is_none_or(is_new)
                    {
                        let missing = now - self.times[frame - 1] > plan.hold;
                        let reason = if missing { EndReason::FramesMissing } else { EndReason::TrackLost };
                        if active {
                            tell(Phase::End, Some(reason), now - seen.1, None);
                        }
                        if stood && !missing {
                            tell(Phase::Moment, None, now - seen.1, None);
                        }
                        (active, stood) = (false, false);
                        last = Vec::new();
                    }
                    let is_seen = segment.last().is_some_and(is_new);
                    if let (Look::Line(line), true, true) = (&plan.look, is_seen, gate(frame))
                        && let (Some(a), Some(b)) = (self.side(rule, line, &last), self.side(rule, line, &segment))
                        && a.0 != b.0
                    {
                        tell(Phase::Moment, None, now - b.1, Some(b.0 > a.0));
                    }
                    if let (Look::TakenAway(thing), true) = (&plan.look, is_seen) {
                        let Watched { still_since, alone_since, has_moved } =
                            self.watched(rule, thing, track, &segment);
                        let (is_inside, since) = self.visit(rule, &segment);
                        let has_left = !is_inside && self.visit(rule, before_of(&segment)).0;
                        let alone = alone_since.is_some() && gate(frame);
                        if (has_moved || has_left) && stood && alone {
                            tell(Phase::Moment, None, 0, None);
                        }
                        stood = is_inside && now - still_since.max(since) >= thing.time && alone;
                    }
                    if let (Look::Zone, true, false) = (&plan.look, is_seen, last.is_empty())
                        && plan.settle == 0
                        && gate(frame)
                    {
                        let (from, to) = (last.last().unwrap().2, segment.last().unwrap().2);
                        let both_outside = !inside(&plan.area, from) && !inside(&plan.area, to);
                        if both_outside && touches(&plan.area, from, to) {
                            tell(Phase::Begin, None, 0, None);
                            tell(Phase::End, Some(EndReason::Over), 0, None);
                        }
                    }
                    let (holds, since) = self.holds(rule, track, &segment);
                    if holds && gate(frame) && !active {
                        tell(Phase::Begin, None, now - since, None);
                    } else if active && !holds {
                        tell(Phase::End, Some(EndReason::Over), now - since, None);
                    } else if active && !gate(frame) {
                        tell(Phase::End, Some(EndReason::Condition), 0, None);
                    }
                    active = holds && gate(frame);
                    insiders[frame] += u32::from(self.visit(rule, &segment).0);
                    last = segment;
                    if self.shots[frame].ended.contains(&track) && !last.is_empty() {
                        insiders[frame] -= u32::from(self.visit(rule, &last).0);
                        if active {
                            tell(Phase::End, Some(EndReason::TrackEnded), now - last.last().unwrap().1, None);
                        }
                        if stood {
                            tell(Phase::Moment, None, now - last.last().unwrap().1, None);
                        }
                        (active, stood) = (false, false);
                        last = Vec::new();
                    }
                    counts[frame] += u32::from(active);
                }
            }
            if let Look::Count(least, most, lasting) = plan.look {
                let within = |frame: usize| (least..=most).contains(&insiders[frame]);
                let missing = |frame: usize| frame > 0 && self.times[frame] - self.times[frame - 1] > plan.hold;
                let mut active: Option<u32> = None;
                for frame in 0..self.shots.len() {
                    let (now, count) = (self.times[frame], Some(insiders[frame]));
                    let mut tell = |phase, reason, ago| all[frame].push((rule, None, phase, reason, ago, count, None));
                    let reason = match (missing(frame), within(frame), gate(frame)) {
                        (true, ..) => Some(EndReason::FramesMissing),
                        (_, false, _) => Some(EndReason::Over),
                        (.., false) => Some(EndReason::Condition),
                        _ => None,
                    };
                    if reason.is_some() && active.take().is_some() {
                        tell(Phase::End, reason, 0);
                    }
                    let begin = (0..=frame)
                        .rev()
                        .take_while(|&index| within(index))
                        .find(|&index| index == 0 || missing(index) || !within(index - 1));
                    if let (Some(begin), true) = (begin, gate(frame)) {
                        let ago = now - self.times[begin];
                        if active.is_none() && ago >= lasting {
                            active = count;
                            tell(Phase::Begin, None, ago);
                        } else if active.is_some() && active != count {
                            active = count;
                            tell(Phase::Update, None, 0);
                        }
                    }
                    counts[frame] = u32::from(active.is_some());
                }
            }
            under_way.push(counts);
        }
        all
    }
}

fn before_of(segment: &[Sight]) -> &[Sight] {
    &segment[..segment.len() - 1]
}

fn pixels(p: At) -> [f32; 2] {
    [p.0 as f32 / STEPS as f32, p.1 as f32 / STEPS as f32]
}

fn micros(time: i64) -> Duration {
    Duration::from_micros(time.unsigned_abs())
}

fn belonging(Thing { distance, time, owners, near }: &Thing) -> Belonging {
    let [distance, near] = [distance, near].map(|steps| *steps as f32 / STEPS as f32);
    Belonging { distance, time: micros(*time), owners: owners.clone(), near }
}

fn rule_of(index: usize, plan: &Plan) -> Rule {
    let kind = match &plan.look {
        Look::Line(line) => {
            Kind::Line { points: line.iter().copied().map(pixels).collect(), sides: ["left".into(), "right".into()] }
        }
        Look::Zone => Kind::Zone,
        Look::Dwell(time) => Kind::Dwell { time: micros(*time) },
        Look::Loitering(time, away) => Kind::Loitering { time: micros(*time), away: micros(*away) },
        Look::Count(0, 0, time) => Kind::Absence { time: micros(*time) },
        Look::Count(least, most, time) => {
            Kind::Occupancy { at_least: Some(*least), at_most: Some(*most), lasting: micros(*time) }
        }
        Look::Stopped(distance, time) => {
            Kind::Stopped { distance: *distance as f32 / STEPS as f32, time: micros(*time) }
        }
        Look::WrongWay(direction, distance) => {
            Kind::WrongWay { direction: pixels(*direction), distance: *distance as f32 / STEPS as f32 }
        }
        Look::Speed(aslant, at_least, at_most, over) => {
            let side = i128::from(SIDE) * STEPS;
            let corners = [(0, 0), (side, 0), (side, side), (0, side)];
            let plane = corners.map(|corner| (pixels(corner), ground(*aslant, corner).map(|metres| metres as f32)));
            let at_most = Some(*at_most).filter(|limit| limit.is_finite());
            Kind::Speed { plane, at_least: Some(*at_least), at_most, over: micros(*over) }
        }
        Look::LeftBehind(thing) => Kind::LeftBehind(belonging(thing)),
        Look::TakenAway(thing) => Kind::TakenAway(belonging(thing)),
    };
    let name = |index: usize| index.to_string().into();
    let condition = |wanted: bool| {
        let named = plan.condition.filter(|(_, needed)| *needed == wanted);
        named.map(|(other, _)| name(other)).into_iter().collect()
    };
    Rule {
        area: plan.area.iter().copied().map(pixels).collect(),
        filter: Filter {
            min_score: if plan.high_only { 0.5 } else { 0.0 },
            classes: plan.class.into_iter().collect(),
            ..Filter::default()
        },
        anchor: Anchor::Bottom,
        settle: micros(plan.settle),
        hold: micros(plan.hold),
        only_while: condition(true),
        unless: condition(false),
        ..Rule::new(&index.to_string(), kind)
    }
}

/// Runs the scene; checks ids on the way.
fn run(plans: &[Plan], shots: &[Shot], ats: &[i64]) -> Vec<Vec<Told>> {
    let rules = plans.iter().enumerate().rev().map(|(index, plan)| rule_of(index, plan)).collect();
    let mut scene = Scene::new([SIDE; 2], rules, Arc::default()).unwrap();
    let (mut events, mut open, mut used) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let mut check = |events: &[Event]| {
        for event in events {
            let about = (event.rule.clone(), event.track);
            match event.phase {
                Phase::Begin => assert!(used.insert(event.id) && open.insert(event.id, about).is_none(), "{event:?}"),
                Phase::Update => assert_eq!(open.get(&event.id), Some(&about), "{event:?}"),
                Phase::End => assert_eq!(open.remove(&event.id), Some(about), "{event:?}"),
                Phase::Moment => assert!(used.insert(event.id), "{event:?}"),
            }
        }
        open.len()
    };
    let mut all = Vec::new();
    for (shot, at) in shots.iter().zip(ats) {
        let object = |&(track, at, high, class_id): &Seen| {
            let [x, y] = pixels(at);
            let score = if high { 0.9 } else { 0.3 };
            Object { track, bounds: [x - 4.0, y - 8.0, x + 4.0, y], class_id, score }
        };
        let objects: Vec<Object> = shot.seen.iter().map(object).collect();
        scene.step(micros(*at), &objects, &shot.ended, &mut events);
        check(&events);
        all.push(
            events
                .iter()
                .map(|event| {
                    let ago = i64::try_from(event.ago.as_micros()).unwrap();
                    let to = event.to.as_deref().map(|side| side == "right");
                    (event.rule.parse().unwrap(), event.track, event.phase, event.reason, ago, event.count, to)
                })
                .collect(),
        );
    }
    let taken = all.iter().flatten().filter(|event: &&Told| event.2 == Phase::Moment && event.6.is_none()).count();
    assert_eq!(scene.counters().map(|(_, totals)| totals.taken).sum::<u64>(), taken as u64);
    let totals: u64 = scene.counters().map(|(_, totals)| totals.begun - totals.ended).sum();
    assert_eq!(totals, check(&[]) as u64);
    scene.finish(EndReason::Shutdown, &mut events);
    assert_eq!(check(&events), 0, "an event did not end");
    all
}

/// By rule and track, in the order of each.
fn sorted(mut events: Vec<Told>) -> Vec<Told> {
    events.sort_by_key(|event| (event.0, event.1));
    events
}

fn compare(plans: &[Plan], shots: &[Shot]) {
    let (mut at, mut now, mut last) = (10_000_000_000_000_i64, 0, 10_000_000_000_000_i64);
    let (mut ats, mut times) = (Vec::new(), Vec::new());
    for (index, shot) in shots.iter().enumerate() {
        at = (at + shot.after).max(0);
        if index == 0 {
            last = at;
        }
        now += (at - last).max(0);
        if at > last || last - at >= 1_000_000 {
            last = at;
        }
        ats.push(at);
        times.push(now);
    }
    let expected = Model { plans, shots, times }.run();
    let found = run(plans, shots, &ats);
    for (frame, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(sorted(found), sorted(expected.clone()), "frame {frame}, expected on the right");
    }
}

/// Coordinates that often meet each other and the edges of the frame.
fn coordinate() -> impl Strategy<Value = i128> {
    let side = i128::from(SIDE) * STEPS;
    prop_oneof![4 => (0..=4_i128).prop_map(move |part| part * side / 4), 1 => 0..=side, 1 => -16..=side + 16]
}

fn point() -> impl Strategy<Value = At> {
    (coordinate(), coordinate())
}

fn inner() -> impl Strategy<Value = At> {
    point().prop_map(|(x, y)| (x.clamp(0, 512), y.clamp(0, 512)))
}

fn area() -> impl Strategy<Value = Vec<At>> {
    let polygon = proptest::collection::vec(inner(), 3..7)
        .prop_filter("no area", |area| area.iter().any(|&a| area.iter().any(|&b| cross(area[0], a, b) != 0)));
    prop_oneof![
        1 => Just(Vec::new()),
        3 => Just(vec![(128, 128), (384, 128), (384, 384), (128, 384)]),
        3 => polygon,
    ]
}

fn look() -> impl Strategy<Value = Look> {
    let time = || prop_oneof![Just(0_i64), Just(100_000), Just(250_000), 0..600_000_i64];
    let line =
        proptest::collection::vec(inner(), 2..6).prop_filter("no length", |line| line.iter().any(|p| *p != line[0]));
    prop_oneof![
        4 => prop_oneof![1 => Just(vec![(128, 256), (384, 256)]), 2 => line].prop_map(Look::Line),
        3 => Just(Look::Zone),
        2 => time().prop_map(Look::Dwell),
        2 => (time(), time()).prop_map(|(time, away)| Look::Loitering(time, away)),
        2 => (0..3_u32, 0..3_u32, time()).prop_map(|(least, more, time)| Look::Count(least, least + more, time)),
        2 => (prop_oneof![Just(128_i128), 1..200_i128], time()).prop_map(|(distance, time)| Look::Stopped(distance, time)),
        2 => (direction(), prop_oneof![Just(64_i128), 1..300_i128]).prop_map(|(direction, distance)| Look::WrongWay(direction, distance)),
        2 => (any::<bool>(), speed(), speed(), any::<bool>(), prop_oneof![Just(100_000_i64), 40_000..500_000_i64]).prop_map(
            |(aslant, one, other, bounded, over)| {
                Look::Speed(aslant, one.min(other), if bounded { one.max(other) } else { f32::INFINITY }, over)
            }
        ),
        3 => thing().prop_map(Look::LeftBehind),
        3 => thing().prop_map(Look::TakenAway),
    ]
}

fn direction() -> impl Strategy<Value = At> {
    (-64..64_i128, -64..64_i128).prop_filter("no direction", |direction| *direction != (0, 0))
}

/// Limits that no speed between two steps equals, and 0.
fn speed() -> impl Strategy<Value = f32> {
    prop_oneof![1 => Just(0.0_f32), 4 => (1..400_u16).prop_map(|part| f32::from(part) * 0.271_828)]
}

fn thing() -> impl Strategy<Value = Thing> {
    let time = prop_oneof![Just(0_i64), Just(100_000), 0..400_000_i64];
    let owners = prop_oneof![1 => Just(vec![]), 4 => Just(vec![0]), 1 => Just(vec![1]), 2 => Just(vec![0, 1])];
    let near = prop_oneof![Just(128_i128), 1..400_i128];
    (prop_oneof![Just(128_i128), 1..200_i128], time, owners, near).prop_map(|(distance, time, owners, near)| Thing {
        distance,
        time,
        owners,
        near,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let settle = prop_oneof![2 => Just(0_i64), 2 => Just(100_000), 1 => Just(40_000), 1 => 0..300_000_i64];
    let hold = prop_oneof![Just(100_000_i64), Just(300_000), Just(1_000_000), 0..500_000_i64];
    let class = proptest::option::weighted(0.2, 0..2_u32);
    let condition = proptest::option::weighted(0.5, (any::<usize>(), any::<bool>()));
    (look(), area(), settle, hold, any::<bool>(), class, condition).prop_map(
        |(look, area, settle, hold, high_only, class, condition)| {
            let area = if matches!(look, Look::Line(_)) { Vec::new() } else { area };
            Plan { look, area, settle, hold, high_only, class, condition }
        },
    )
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    proptest::collection::vec(plan(), 1..5).prop_map(|mut plans| {
        for index in 0..plans.len() {
            // A rule depends on an earlier one that lasts, if there is one.
            let lasting: Vec<usize> = (0..index).filter(|&other| !plans[other].look.is_moment()).collect();
            plans[index].condition = plans[index]
                .condition
                .filter(|_| !lasting.is_empty())
                .map(|(choice, needed)| (lasting[choice % lasting.len()], needed));
        }
        plans
    })
}

fn shots() -> impl Strategy<Value = Vec<Shot>> {
    let after = prop_oneof![
        16 => Just(40_000_i64),
        8 => 0..120_000_i64,
        2 => Just(100_000),
        1 => 200_000..1_200_000_i64,
        1 => Just(0),
        1 => -900_000..0_i64,
        1 => prop_oneof![Just(-1_000_000), Just(-3_600_000_000), Just(3_600_000_000), Just(-999_999)],
    ];
    // Most objects stay or are where they were before, so that states settle.
    let seen = |track: u64| {
        let moves = prop_oneof![3 => Just(None), 2 => point().prop_map(Some)];
        (
            Just(track),
            moves,
            proptest::bool::weighted(0.85),
            proptest::bool::weighted(0.9),
            proptest::bool::weighted(0.9),
        )
    };
    let frame = (after, [seen(1), seen(2), seen(3)], proptest::option::weighted(0.02, 1..4_u64));
    (proptest::collection::vec(frame, 1..28), [point(), point(), point()]).prop_map(|(frames, mut places)| {
        let mut over = BTreeSet::new();
        let mut shots = Vec::new();
        for (after, objects, ended) in frames {
            let mut seen = Vec::new();
            for (track, moves, shown, high, usual) in objects {
                let place = &mut places[track as usize - 1];
                *place = moves.unwrap_or(*place);
                if shown && !over.contains(&track) {
                    seen.push((track, *place, high, u32::from(!usual)));
                }
            }
            let ended: Vec<u64> = ended.filter(|track| over.insert(*track)).into_iter().collect();
            shots.push(Shot { after, seen, ended });
        }
        shots
    })
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

fn config() -> ProptestConfig {
    let cases = from_environment("EVENTS_CASES", 800) as u32;
    let rng_seed = RngSeed::Fixed(from_environment("EVENTS_SEED", 7));
    ProptestConfig { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_events_of_random_tracks_are_those_of_the_model(plans in plans(), shots in shots()) {
        compare(&plans, &shots);
    }
}
