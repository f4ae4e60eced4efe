//! Random tracks, clocks and rules: the events are those of a model that computes each frame's events from all sightings so far.
//!
//! The model keeps no state. Its times are whole microseconds and its positions whole steps of 1/32 px, in numbers of 128 bits. Where a path
//! meets a line exactly, it moves path and ends of the line by tiny whole distances in a finer grid, so that no case is left over.
//!
//! `EVENTS_CASES=100000 EVENTS_SEED=8 cargo test -p visiond-events --test model` tries more of them, and others.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use visiond_events::{Anchor, EndReason, Event, Filter, Kind, Object, Phase, Rule, Scene};

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
    let mut lasting: Vec<(T, i64)> = first.map(|first| (first, 0)).into_iter().collect();
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

    /// Whether what a rule looks for holds after all sightings of a segment, and since when it does or does not.
    fn holds(&self, rule: usize, segment: &[Sight]) -> (bool, i64) {
        let Some((&(_, now, here), before)) = segment.split_last() else { return (false, 0) };
        let plan = &self.plans[rule];
        let (is_inside, since) = self.visit(rule, segment);
        let is_seen = inside(&plan.area, here);
        let over = |before: &dyn Fn() -> (bool, i64)| {
            let (held, last) = before();
            let left = !is_inside && self.visit(rule, before_of(segment)).0;
            if held { (false, if left { since } else { now }) } else { (false, last) }
        };
        let earlier = || self.holds(rule, before);
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
                    let spread = |part: fn(&At) -> i128| {
                        let parts = || place.iter().chain([&p]).map(part);
                        parts().max().unwrap() - parts().min().unwrap() <= *distance
                    };
                    spread(|p| p.0) && spread(|p| p.1)
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
            Look::Line(_) | Look::Count(..) => (false, 0),
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
                        active = false;
                        last = Vec::new();
                    }
                    let is_seen = segment.last().is_some_and(is_new);
                    if let (Look::Line(line), true, true) = (&plan.look, is_seen, gate(frame))
                        && let (Some(a), Some(b)) = (self.side(rule, line, &last), self.side(rule, line, &segment))
                        && a.0 != b.0
                    {
                        tell(Phase::Moment, None, now - b.1, Some(b.0 > a.0));
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
                    let (holds, since) = self.holds(rule, &segment);
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
                        active = false;
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
    ]
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
            let lasting: Vec<usize> = (0..index).filter(|&other| !matches!(plans[other].look, Look::Line(_))).collect();
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
