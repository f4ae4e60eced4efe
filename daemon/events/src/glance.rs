//! What decides, for most rules and tracks of a frame, that the rule has nothing to do with the track.

use crate::geometry::Bounds;
use crate::object::{Anchor, Sieve};
use crate::rule::MOST_RULES;
use crate::tracks::Track;

/// A set of a scene's rules, by their index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RuleSet([u64; MOST_RULES / 64]);

impl RuleSet {
    pub(crate) fn has(&self, rule: usize) -> bool {
        self.0.get(rule / 64).is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, rule: usize, has: bool) {
        if let Some(word) = self.0.get_mut(rule / 64) {
            *word = *word & !(1 << (rule % 64)) | u64::from(has) << (rule % 64);
        }
    }

    fn of(rules: impl Iterator<Item = bool>) -> Self {
        let mut set = Self::default();
        rules.enumerate().for_each(|(rule, has)| set.set(rule, has));
        set
    }

    fn join(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let mut joined = *self;
        joined.0.iter_mut().zip(other.0).for_each(|(word, other)| *word = with(*word, other));
        joined
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        self.join(other, |a, b| a & b)
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        self.join(other, |a, b| a | b)
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        self.join(other, |a, b| a & !b)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(64 * index + bit)
            })
        })
    }
}

/// What the rules of a scene know of a track. A rule that is in neither of the first two sets has not seen it since the last break, or is a
/// zone that has seen it outside only.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attention {
    /// The rules that have a record of it.
    pub(crate) follows: RuleSet,
    /// The lines that saw it away from them, settled, with its last sighting.
    pub(crate) saw: RuleSet,
    /// The rules that look at it in this frame.
    pub(crate) looks: RuleSet,
}

impl Attention {
    /// Forgets what a rule knows.
    pub(crate) fn forget(&mut self, rule: usize) {
        self.follows.set(rule, false);
        self.saw.set(rule, false);
    }
}

/// Which tracks a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All that it sees.
    Frame,
    /// Those that it follows, and those within the bounding box of its zone.
    Zone(Bounds),
    /// Those that it follows, and those whose path touches the bounding box of the line.
    Line(Bounds),
}

/// The part of a scene's rules that each frame needs, apart from what the rules remember. A track is compared with all rules at once.
#[derive(Debug, Default)]
pub(crate) struct Glances {
    /// The rules that are on.
    on: RuleSet,
    /// The rules by their [`Reach`].
    frames: RuleSet,
    zones: RuleSet,
    lines: RuleSet,
    /// The bounding box of each rule.
    bounds: Vec<Bounds>,
    /// The rules that look at each anchor.
    anchors: Vec<(Anchor, RuleSet)>,
    /// The rules that have each filter.
    sieves: Vec<(Sieve, RuleSet)>,
}

impl Glances {
    /// Takes the rules of a scene, in their order: whether each is on, and what it looks at.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (bool, Reach, Anchor, &'a Sieve)> + Clone) -> Self {
        let reaches = |is: fn(Reach) -> bool| RuleSet::of(rules.clone().map(|(_, reach, ..)| is(reach)));
        let mut glances = Self {
            on: RuleSet::of(rules.clone().map(|(on, ..)| on)),
            frames: reaches(|reach| reach == Reach::Frame),
            zones: reaches(|reach| matches!(reach, Reach::Zone(_))),
            lines: reaches(|reach| matches!(reach, Reach::Line(_))),
            ..Self::default()
        };
        for (rule, (_, reach, anchor, sieve)) in rules.enumerate() {
            glances.bounds.push(match reach {
                Reach::Frame => Bounds::of(&[]),
                Reach::Zone(bounds) | Reach::Line(bounds) => bounds,
            });
            match glances.anchors.iter_mut().find(|(known, _)| *known == anchor) {
                Some((_, rules)) => rules.set(rule, true),
                None => glances.anchors.push((anchor, RuleSet::of((0..=rule).map(|other| other == rule)))),
            }
            match glances.sieves.iter_mut().find(|(known, _)| known == sieve) {
                Some((_, rules)) => rules.set(rule, true),
                None => glances.sieves.push((sieve.clone(), RuleSet::of((0..=rule).map(|other| other == rule)))),
            }
        }
        glances
    }

    /// The rules that are on.
    pub(crate) fn on(&self) -> RuleSet {
        self.on
    }

    /// The rules that are on and see a track.
    fn sees(&self, track: &Track) -> RuleSet {
        let passing = self.sieves.iter().filter(|(sieve, _)| sieve.passes(&track.bounds, track.class_id, track.score));
        passing.fold(RuleSet::default(), |sees, (_, rules)| sees.or(rules)).and(&self.on)
    }

    /// The rules whose bounding box touches another one.
    fn touching(&self, bounds: &Bounds) -> RuleSet {
        let mut touching = RuleSet::default();
        for (word, part) in touching.0.iter_mut().zip(self.bounds.chunks(64)) {
            *word = part.iter().rev().fold(0, |word, rule| word << 1 | u64::from(rule.touches(bounds)));
        }
        touching
    }

    /// Finds the rules that look at a track in this frame. Notes for the others what little they must know of it.
    pub(crate) fn pass(&self, track: &Track, attention: &mut Attention, size: [i32; 2]) {
        let Attention { follows, saw, looks } = attention;
        if !track.seen_now {
            *looks = *follows;
            if track.ended {
                *saw = RuleSet::default();
            }
            return;
        }
        let sees = self.sees(track);
        // Those that the path since the last sighting touches, and those with the place at its end.
        let (mut touched, mut reached) = (RuleSet::default(), RuleSet::default());
        for (anchor, rules) in &self.anchors {
            let at = anchor.of(&track.bounds, size);
            let path =
                track.before.map_or(Bounds::of(&[at]), |before| Bounds::of(&[at, anchor.of(&before.bounds, size)]));
            let near = self.touching(&path).and(rules);
            touched = touched.or(&near);
            for rule in near.iter() {
                reached.set(rule, self.bounds.get(rule).is_some_and(|bounds| bounds.contains(at)));
            }
        }
        let knows = if track.before.is_some() { *saw } else { RuleSet::default() };
        // Where a line no longer sees the track, it must remember the last place.
        let remember = knows.and(&touched).or(&knows.without(&sees));
        let see = sees.and(&reached).and(&self.zones.or(&self.lines.without(&knows)));
        *looks = follows.or(&remember).or(&see).or(&sees.and(&self.frames)).and(&self.on);
        let goes_on = if track.ended { RuleSet::default() } else { sees.and(&self.lines) };
        *saw = saw.and(looks).or(&goes_on.without(looks));
    }
}
