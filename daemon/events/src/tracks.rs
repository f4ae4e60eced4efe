//! The tracks of a scene: which of its places each has, and when it was seen.

use std::collections::HashMap;
use std::time::Duration;

use crate::geometry::Bounds;
use crate::object::Object;

/// Tracks that a scene holds.
pub const MOST_TRACKS: usize = 2048;
/// How long an object must be at its place to be parked: boxes with an IoU of 0.5 or more with the first one there. Other boxes for less than
/// half a second do not count, nor does a part of a parked object.
pub const PARKED_AFTER: Duration = Duration::from_secs(10);
/// How long a parked object may be unseen where a rule has [`Rule::parked`](crate::Rule::parked).
pub const PARKED_UNSEEN: Duration = Duration::from_secs(60);
/// How long a parked object is left to its own track before another track may be found in its place.
const ADOPTED_AFTER: Duration = Duration::from_secs(1);
/// How long an object must be seen elsewhere before that is its place.
const MOVED_AFTER: Duration = Duration::from_millis(500);

/// Where a track was, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sighting {
    pub(crate) bounds: Bounds,
    pub(crate) seen: Duration,
}

/// A track.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub(crate) id: u64,
    pub(crate) bounds: Bounds,
    pub(crate) class_id: u32,
    pub(crate) score: f32,
    /// The last sighting.
    pub(crate) seen: Duration,
    /// The sighting before the last one.
    pub(crate) before: Option<Sighting>,
    /// Whether this frame shows it.
    pub(crate) seen_now: bool,
    /// Whether it was parked before this frame.
    pub(crate) was_parked: bool,
    /// Whether it is at its place for so long that it is parked.
    pub(crate) parked: bool,
    /// Whether its id is another one since this frame.
    pub(crate) renamed: bool,
    /// Whether the tracker has ended it.
    pub(crate) ended: bool,
    /// The first box at its place, and its time.
    place: Bounds,
    place_since: Duration,
    /// The first of its last boxes elsewhere.
    away: Option<Duration>,
}

impl Track {
    fn new(object: &Object, bounds: Bounds, now: Duration) -> Self {
        Self {
            id: object.track,
            bounds,
            class_id: object.class_id,
            score: object.score,
            seen: now,
            before: None,
            seen_now: true,
            was_parked: false,
            parked: false,
            renamed: false,
            ended: false,
            place: bounds,
            place_since: now,
            away: None,
        }
    }

    /// Whether a box is at the place of this object. Something may hide a part of one that is parked.
    fn is_at_place(&self, bounds: &Bounds) -> bool {
        bounds.is_same_place(&self.place) || self.parked && bounds.is_part_of(&self.place)
    }

    fn sight(&mut self, object: &Object, bounds: Bounds, now: Duration) {
        if self.is_at_place(&bounds) {
            self.away = None;
            self.parked |= now.saturating_sub(self.place_since) >= PARKED_AFTER;
        } else {
            let unseen = now.saturating_sub(self.seen);
            if unseen.max(now.saturating_sub(*self.away.get_or_insert(now))) >= MOVED_AFTER {
                (self.place, self.place_since, self.away, self.parked) = (bounds, now, None, false);
            }
        }
        self.before = Some(Sighting { bounds: self.bounds, seen: self.seen });
        (self.bounds, self.class_id, self.score) = (bounds, object.class_id, object.score);
        (self.seen, self.seen_now) = (now, true);
    }
}

/// All tracks. Each has a slot, whose number does not change; rules have their records by it.
#[derive(Debug)]
pub(crate) struct Tracks {
    slots: Vec<Option<Track>>,
    free: Vec<usize>,
    by_id: HashMap<u64, usize>,
    /// Objects of this frame whose track is unknown.
    unknown: Vec<(Object, Bounds)>,
    /// Slots that may be taken, those unseen longest last.
    oldest: Vec<(Duration, usize)>,
}

impl Tracks {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_id: HashMap::new(), unknown: Vec::new(), oldest: Vec::new() }
    }

    /// Slots that exist, used or not.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All slots, used or not.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, Option<&Track>)> {
        self.slots.iter().map(Option::as_ref).enumerate()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Track)> {
        self.slots.iter().enumerate().filter_map(|(slot, track)| Some((slot, track.as_ref()?)))
    }

    pub(crate) fn at(&self, slot: usize) -> Option<&Track> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Track> {
        self.slots.get(*self.by_id.get(&id)?)?.as_ref()
    }

    /// Takes the objects of a frame whose tracks are known; [`admit`](Self::admit) takes the others.
    pub(crate) fn see(&mut self, objects: &[Object], now: Duration) {
        for track in self.slots.iter_mut().flatten() {
            (track.seen_now, track.renamed, track.was_parked) = (false, false, track.parked);
        }
        self.unknown.clear();
        self.unknown.reserve(objects.len());
        for object in objects {
            let Some(bounds) = object.snapped() else { continue };
            match self.by_id.get(&object.track).and_then(|&slot| self.slots.get_mut(slot)?.as_mut()) {
                // Of two boxes of a track the first counts.
                Some(track) if track.seen_now => {}
                Some(track) => track.sight(object, bounds, now),
                None => self.unknown.push((*object, bounds)),
            }
        }
    }

    /// Gives new tracks to parked objects that were lost at their place. Until it is clear that one is lost, leaves out a new track there: it
    /// is either the parked object or hides it.
    pub(crate) fn find_parked(&mut self, now: Duration) {
        let Self { slots, by_id, unknown, .. } = self;
        unknown.retain(|(object, bounds)| {
            let is_lost = |track: &Track| {
                !track.seen_now && track.parked && track.class_id == object.class_id && track.is_at_place(bounds)
            };
            let is_over = |track: &Track| track.ended || now.saturating_sub(track.seen) >= ADOPTED_AFTER;
            let mut waits = false;
            let found = slots.iter_mut().enumerate().find_map(|(slot, track)| {
                let track = track.as_mut().filter(|track| is_lost(track))?;
                waits |= !is_over(track);
                is_over(track).then_some((slot, track))
            });
            // A second box of the same new track.
            let Some((slot, track)) = found.filter(|_| !by_id.contains_key(&object.track)) else { return !waits };
            by_id.remove(&track.id);
            by_id.insert(object.track, slot);
            (track.id, track.renamed, track.ended) = (object.track, true, false);
            track.sight(object, *bounds, now);
            false
        });
    }

    /// Returns a track that must be [removed](Self::remove) to make room: while there are more unknown ones than room, the one that is
    /// unseen longest. Call it until it returns none.
    pub(crate) fn in_the_way(&mut self) -> Option<usize> {
        let used = self.slots.len() - self.free.len();
        if used + self.unknown.len() <= MOST_TRACKS {
            self.oldest.clear();
            return None;
        }
        if self.oldest.is_empty() {
            let unseen = self.slots.iter().enumerate().filter_map(|(slot, track)| {
                let track = track.as_ref().filter(|track| !track.seen_now)?;
                Some((track.seen, slot))
            });
            self.oldest.extend(unseen);
            self.oldest.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.oldest.pop().map(|(_, slot)| slot)
    }

    /// Begins tracks for the objects that are left, as long as there is room.
    pub(crate) fn admit(&mut self, now: Duration) {
        self.oldest.clear();
        for index in 0..self.unknown.len() {
            let Some((object, bounds)) = self.unknown.get(index).copied() else { continue };
            if self.by_id.contains_key(&object.track) {
                continue;
            }
            let slot = match self.free.pop() {
                Some(slot) => slot,
                None if self.slots.len() < MOST_TRACKS => {
                    self.slots.push(None);
                    // So that a frame in which all tracks end grows nothing.
                    self.free.reserve(self.slots.len());
                    self.slots.len() - 1
                }
                None => break,
            };
            self.by_id.insert(object.track, slot);
            if let Some(place) = self.slots.get_mut(slot) {
                *place = Some(Track::new(&object, bounds, now));
            }
        }
    }

    /// Notes that the tracker has ended a track.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some(track) = self.by_id.remove(&id).and_then(|slot| self.slots.get_mut(slot)?.as_mut()) {
            track.ended = true;
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        if let Some(track) = self.slots.get_mut(slot).and_then(Option::take) {
            if self.by_id.get(&track.id) == Some(&slot) {
                self.by_id.remove(&track.id);
            }
            self.free.push(slot);
        }
    }

    pub(crate) fn clear(&mut self) {
        for slot in 0..self.slots.len() {
            self.remove(slot);
        }
    }
}
