//! How long an object is at a place.

use std::time::Duration;

use crate::geometry::{Bounds, Point};

/// A place, and since when an object is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stillness {
    /// All sightings since then.
    place: Bounds,
    since: Duration,
    /// The first of its last sightings away from the place.
    away: Option<Duration>,
}

impl Stillness {
    pub(crate) fn new(point: Point, since: Duration) -> Self {
        Self { place: Bounds::of(&[point]), since, away: None }
    }

    /// The first sighting at the place.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// Whether the last sighting was at the place.
    pub(crate) fn is_there(&self) -> bool {
        self.away.is_none()
    }

    /// Takes a sighting. The object is at its place while all sightings there are at most `distance` apart in x and in y. Returns whether it
    /// has been away for `settle`, so that it has a new place.
    pub(crate) fn sight(&mut self, point: Point, now: Duration, distance: i64, settle: Duration) -> bool {
        let place = self.place.with(point);
        if place.is_within(distance) {
            (self.place, self.away) = (place, None);
            return false;
        }
        if now.saturating_sub(*self.away.get_or_insert(now)) < settle {
            return false;
        }
        *self = Self::new(point, now);
        true
    }
}
