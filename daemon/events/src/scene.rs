//! The rules of a camera.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::event::{Counters, EndReason, Event, EventIds, Sink};
use crate::glance::{Attention, Glances, RuleSet};
use crate::object::Object;
use crate::rule::{MOST_RULES, Rule, RuleError};
use crate::runner::{Frame, Runner};
use crate::tracks::{PARKED_UNSEEN, Tracks};

/// The greatest side of a frame in pixels.
const LARGEST_SIDE: u32 = 1 << 16;

/// Rules over the tracks of one camera.
///
/// Every event that begins also ends: call [`finish`](Self::finish) before dropping a scene.
#[derive(Debug)]
pub struct Scene {
    /// The frame's size in units.
    size: [i32; 2],
    clock: Clock,
    now: Duration,
    /// The time of the last frame by the caller's clock.
    at: Duration,
    tracks: Tracks,
    /// For each slot of `tracks`.
    attention: Vec<Attention>,
    rules: Vec<Runner>,
    glances: Glances,
    /// The rules that must be asked in the next frame even if they look at no track.
    counting: RuleSet,
    /// Indices of `rules`, those that others depend on first.
    order: Vec<usize>,
    /// For each of `rules`, those that must and must not hold; empty if none has any.
    conditions: Vec<[Vec<usize>; 2]>,
    /// Whether a rule that is on has [`Rule::parked`].
    parked: bool,
    /// The longest [`Rule::hold`].
    hold: Duration,
    has_moves: bool,
    ids: Arc<EventIds>,
}

impl Scene {
    /// Makes a scene for frames of `width` and `height` pixels. Scenes share `ids`.
    ///
    /// # Errors
    /// If a rule is wrong, see [`RuleError`].
    pub fn new([width, height]: [u32; 2], rules: Vec<Rule>, ids: Arc<EventIds>) -> Result<Self, RuleError> {
        let units = |pixels: u32| (1..=LARGEST_SIDE).contains(&pixels).then_some((pixels * 256) as i32);
        let (Some(x), Some(y)) = (units(width), units(height)) else {
            return Err(RuleError::FrameSize { width, height });
        };
        let mut scene = Self {
            size: [x, y],
            clock: Clock::default(),
            now: Duration::ZERO,
            at: Duration::ZERO,
            tracks: Tracks::new(),
            attention: Vec::new(),
            rules: Vec::new(),
            glances: Glances::default(),
            counting: RuleSet::default(),
            order: Vec::new(),
            conditions: Vec::new(),
            parked: false,
            hold: Duration::ZERO,
            has_moves: false,
            ids,
        };
        scene.replace(rules, &mut Vec::new())?;
        Ok(scene)
    }

    /// Replaces the rules. A rule that is the same as before goes on with its events and state; the events of the others end. A
    /// rule of the same name keeps its totals, of a line those of the same sides. Rules are on unless they were switched off before. `events` is cleared first.
    ///
    /// # Errors
    /// If a rule is wrong. All rules then stay as they were.
    pub fn replace(&mut self, rules: Vec<Rule>, events: &mut Vec<Event>) -> Result<(), RuleError> {
        events.clear();
        if rules.len() > MOST_RULES {
            return Err(RuleError::TooManyRules { found: rules.len() });
        }
        let mut fresh = rules.into_iter().map(Runner::new).collect::<Result<Vec<_>, _>>()?;
        let conditions = resolve(&fresh)?;
        self.order = order(&fresh, &conditions)?;
        // Without any, none are read in each frame.
        let has_some = conditions.iter().flatten().any(|rules| !rules.is_empty());
        self.conditions = if has_some { conditions } else { Vec::new() };
        let mut sink = Sink { events, ids: &self.ids, at: self.at, has_moves: false };
        let before = std::mem::replace(&mut self.attention, vec![Attention::default(); self.tracks.len()]);
        for (index, mut old) in self.rules.drain(..).enumerate() {
            match fresh.iter_mut().enumerate().find(|(_, new)| new.rule.name == old.rule.name) {
                Some((to, new)) if new.rule == old.rule => {
                    *new = old;
                    for (now, before) in self.attention.iter_mut().zip(&before) {
                        now.follows.set(to, before.follows.has(index));
                        now.saw.set(to, before.saw.has(index));
                    }
                }
                new => {
                    old.finish(EndReason::RuleRemoved, &self.tracks, self.now, &mut sink);
                    if let Some((_, new)) = new {
                        new.on = old.on;
                        new.counters = old.counters.of(&new.rule.kind, &old.rule.kind);
                    }
                }
            }
        }
        self.rules = fresh;
        self.take_rules();
        Ok(())
    }

    /// Finds what holds for all rules.
    fn take_rules(&mut self) {
        self.parked = self.rules.iter().any(|runner| runner.on && runner.rule.parked);
        self.hold = self.rules.iter().map(|runner| runner.rule.hold).max().unwrap_or_default();
        let facts = self.rules.iter().map(|runner| (runner.on, runner.reach, runner.rule.anchor, &runner.sieve));
        self.glances = Glances::new(facts);
        self.counting = self.glances.on();
    }

    /// Switches a rule on or off; returns whether there is a rule of this name. A rule that is off has no events and sees no tracks, and its
    /// totals stay. `events` is cleared first.
    pub fn switch(&mut self, name: &str, on: bool, events: &mut Vec<Event>) -> bool {
        events.clear();
        let found = self.rules.iter_mut().enumerate().find(|(_, runner)| &*runner.rule.name == name);
        let Some((index, runner)) = found else { return false };
        if runner.on && !on {
            let mut sink = Sink { events, ids: &self.ids, at: self.at, has_moves: false };
            runner.finish(EndReason::RuleOff, &self.tracks, self.now, &mut sink);
            self.attention.iter_mut().for_each(|attention| attention.forget(index));
        }
        runner.on = on;
        self.take_rules();
        true
    }

    /// Takes in the objects of a frame of the time `at`, by any clock that usually goes ahead, and the ids of tracks that ended with it. A
    /// frame without objects is one as well. `events` is cleared first, and then has the events of each rule by the order of conditions.
    ///
    /// A frame up to a second before the last one is late, and counts as of the same time. Where a clock is set back further, or forward by
    /// more than a rule's `hold`, nothing is known of the time between: rules begin again.
    ///
    /// Costs a hash lookup for each object, and for each track a pass over the bounding boxes of all rules. A rule looks at the points of its zone or line only
    /// for a track that has moved and is within, or crosses, their bounding box. [`Kind::LeftBehind`](crate::Kind::LeftBehind) and
    /// [`Kind::TakenAway`](crate::Kind::TakenAway) compare each of their objects with all tracks. Without allocation once the buffers, and
    /// `events`, have grown. `cargo run --release -p visiond-events --example events-bench` measures it.
    pub fn step(&mut self, at: Duration, objects: &[Object], ended: &[u64], events: &mut Vec<Event>) {
        events.clear();
        self.at = at;
        let (now, elapsed) = self.clock.advance(at);
        self.now = now;
        self.tracks.see(objects, now);
        for &id in ended {
            self.tracks.end(id);
        }
        if self.parked {
            self.tracks.find_parked(now);
        }
        let mut sink = Sink { events, ids: &self.ids, at, has_moves: false };
        while let Some(slot) = self.tracks.in_the_way() {
            remove(&mut self.tracks, &mut self.attention, (&mut self.rules, &mut self.counting), slot, now, &mut sink);
        }
        self.tracks.admit(now);
        self.attention.resize(self.tracks.len(), Attention::default());
        // Those that are new in this frame.
        for &id in ended {
            self.tracks.end(id);
        }
        let mut wanted = self.counting;
        for ((_, track), attention) in self.tracks.places().zip(&mut self.attention) {
            if let Some(track) = track {
                self.glances.pass(track, attention, self.size);
                wanted = wanted.or(&attention.looks);
            }
        }
        for &index in self.order.iter().filter(|&&index| wanted.has(index)) {
            let gate = self.conditions.get(index).is_none_or(|[needs, bars]| {
                let holds = |&other: &usize| self.rules.get(other).is_some_and(Runner::holds);
                needs.iter().all(holds) && !bars.iter().any(holds)
            });
            if let Some(runner) = self.rules.get_mut(index) {
                let frame = Frame { now, elapsed, size: self.size, tracks: &self.tracks, gate };
                let counts = runner.step(index, &mut self.attention, &frame, &mut sink);
                self.counting.set(index, counts);
            }
        }
        // Tracks that no rule remembers.
        for slot in 0..self.tracks.len() {
            let Some(track) = self.tracks.at(slot) else { continue };
            let unseen = now.saturating_sub(track.seen);
            let waits = self.parked && track.parked && unseen <= PARKED_UNSEEN;
            if !waits && (track.ended || unseen > self.hold) {
                remove(
                    &mut self.tracks,
                    &mut self.attention,
                    (&mut self.rules, &mut self.counting),
                    slot,
                    now,
                    &mut sink,
                );
            }
        }
        self.has_moves = sink.has_moves;
    }

    /// Ends all events and forgets all tracks: before a shutdown, or when the camera is gone. `events` is cleared first.
    pub fn finish(&mut self, reason: EndReason, events: &mut Vec<Event>) {
        events.clear();
        let mut sink = Sink { events, ids: &self.ids, at: self.at, has_moves: false };
        for runner in &mut self.rules {
            runner.finish(reason, &self.tracks, self.now, &mut sink);
        }
        self.counting = self.glances.on();
        self.tracks.clear();
        self.attention.clear();
    }

    /// Returns whether the number of objects in a zone has changed with the last frame.
    pub fn has_moves(&self) -> bool {
        self.has_moves
    }

    /// Sets the totals of a rule, such as those of an earlier run, or 0; returns whether there is a rule of this name. `inside` and `under_way`
    /// are no totals and stay.
    pub fn set_totals(&mut self, name: &str, totals: Counters) -> bool {
        let found = self.rules.iter_mut().find(|runner| &*runner.rule.name == name);
        let Some(runner) = found else { return false };
        runner.counters = Counters { inside: runner.counters.inside, under_way: runner.counters.under_way, ..totals };
        true
    }

    /// Ends the events of each rule for which no frame came for too long, as the next frame would; `away` is the time since the last one.
    /// Returns whether there was such a rule. `events` is cleared first.
    pub fn miss_frames(&mut self, away: Duration, events: &mut Vec<Event>) -> bool {
        events.clear();
        let mut sink = Sink { events, ids: &self.ids, at: self.at, has_moves: false };
        let mut missed = false;
        for (index, runner) in self.rules.iter_mut().enumerate() {
            let longest = if runner.rule.parked { runner.rule.hold.max(PARKED_UNSEEN) } else { runner.rule.hold };
            if runner.on && away > longest {
                missed = true;
                runner.finish(EndReason::FramesMissing, &self.tracks, self.now, &mut sink);
                self.attention.iter_mut().for_each(|attention| attention.forget(index));
                self.counting.set(index, true);
            }
        }
        missed
    }

    /// Returns each rule's name and totals.
    pub fn counters(&self) -> impl Iterator<Item = (&Arc<str>, Counters)> {
        self.rules.iter().map(|runner| (&runner.rule.name, runner.counters))
    }
}

/// Removes a track, for all rules.
fn remove(
    tracks: &mut Tracks,
    attention: &mut [Attention],
    (rules, counting): (&mut [Runner], &mut RuleSet),
    slot: usize,
    now: Duration,
    sink: &mut Sink<'_>,
) {
    if let (Some(track), Some(attention)) = (tracks.at(slot), attention.get_mut(slot)) {
        let reason = if track.ended { EndReason::TrackEnded } else { EndReason::TrackLost };
        for (index, runner) in rules.iter_mut().enumerate() {
            if attention.follows.has(index) {
                runner.lose(slot, track.id, reason, now, sink);
                counting.set(index, true);
            }
        }
        *attention = Attention::default();
    }
    tracks.remove(slot);
}

/// Finds the rules that each rule depends on.
fn resolve(rules: &[Runner]) -> Result<Vec<[Vec<usize>; 2]>, RuleError> {
    let find = |of: &Runner, names: &[Arc<str>]| -> Result<Vec<usize>, RuleError> {
        let index = |name: &Arc<str>| {
            let found = rules.iter().enumerate().find(|(_, runner)| runner.rule.name == *name);
            let (rule, on) = (Arc::clone(&of.rule.name), Arc::clone(name));
            match found {
                Some((index, runner)) if runner.rule.kind.lasts() => Ok(index),
                Some(_) => Err(RuleError::MomentCondition { rule, on }),
                None => Err(RuleError::UnknownCondition { rule, on }),
            }
        };
        names.iter().map(index).collect()
    };
    for (index, runner) in rules.iter().enumerate() {
        if rules.iter().take(index).any(|other| other.rule.name == runner.rule.name) {
            return Err(RuleError::SameName { name: Arc::clone(&runner.rule.name) });
        }
    }
    rules.iter().map(|of| Ok([find(of, &of.rule.only_while)?, find(of, &of.rule.unless)?])).collect()
}

/// Orders rules so that each comes after those that it depends on.
fn order(rules: &[Runner], conditions: &[[Vec<usize>; 2]]) -> Result<Vec<usize>, RuleError> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < rules.len() {
        let ready = |index: &usize| {
            let done = |other: &usize| order.contains(other);
            !done(index) && conditions.get(*index).is_none_or(|conditions| conditions.iter().flatten().all(done))
        };
        let Some(next) = (0..rules.len()).find(ready) else {
            let stuck = rules.iter().enumerate().find(|(index, _)| !order.contains(index));
            return Err(RuleError::Circle {
                rule: stuck.map_or_else(|| "".into(), |(_, runner)| Arc::clone(&runner.rule.name)),
            });
        };
        order.push(next);
    }
    Ok(order)
}
